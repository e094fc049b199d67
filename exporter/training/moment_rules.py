"""The update rules of Adam and its relatives, which keep averages of gradients and of their squares.

Formulas and their order are those of `torch/optim/adam.py`, `adamax.py`, `nadam.py` and `radam.py`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from onnx_ir import DataType, Value

from .update_rules import State, Updated, UpdateRule
from .updates import GroupUpdates


@dataclasses.dataclass(frozen=True)
class _Moments(UpdateRule):
    """A rule with an average of gradients and one of their squares."""

    betas: tuple[float, float]
    eps: float
    decoupled_weight_decay: bool

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """Both averages."""
        return {"exp_avg": np.zeros_like(parameter), "exp_avg_sq": np.zeros_like(parameter)}

    def decay(self, write: GroupUpdates, parameter: Value, gradient: Value) -> tuple[Value, Value]:
        """The parameter and the gradient, one of them decayed."""
        if self.decoupled_weight_decay:
            return self.shrink(write, parameter), gradient
        return parameter, self.add_decay(write, gradient, parameter)

    def average(self, write: GroupUpdates, gradient: Value, state: State) -> dict[str, Value]:
        """The new averages."""
        first, second = self.betas
        return {
            "exp_avg": write.lerp(state["exp_avg"], gradient, 1.0 - first),
            "exp_avg_sq": write.average_squares(state["exp_avg_sq"], gradient, second),
        }


@dataclasses.dataclass(frozen=True)
class Adam(_Moments):
    """`torch.optim.Adam`, and `torch.optim.AdamW` if the weight decay is decoupled."""

    amsgrad: bool

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The averages, and the largest squares so far."""
        largest = {"max_exp_avg_sq": np.zeros_like(parameter)} if self.amsgrad else {}
        return {**super().initial_state(parameter, rate), **largest}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        first, second = self.betas
        dtype = parameter.dtype
        parameter, gradient = self.decay(write, parameter, gradient)
        new_state = self.average(write, gradient, state)
        squares = new_state["exp_avg_sq"]
        if self.amsgrad:
            squares = new_state["max_exp_avg_sq"] = write.maximum(state["max_exp_avg_sq"], squares)
        step = write.corrected_step(first, dtype)
        root = write.root_of_correction(second, dtype)
        denominator = write.add(write.div(write.unary("sqrt", squares), root), self.eps)
        change = write.div(write.mul(new_state["exp_avg"], step), denominator)
        return write.add(parameter, change), new_state


@dataclasses.dataclass(frozen=True)
class Adamax(UpdateRule):
    """`torch.optim.Adamax`."""

    betas: tuple[float, float]
    eps: float

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The average of gradients, and the decayed maximum of their magnitudes."""
        return {"exp_avg": np.zeros_like(parameter), "exp_inf": np.zeros_like(parameter)}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        first, second = self.betas
        gradient = self.add_decay(write, gradient, parameter)
        average = write.lerp(state["exp_avg"], gradient, 1.0 - first)
        magnitude = write.add(write.unary("abs", gradient), self.eps)
        largest = write.maximum(write.mul(state["exp_inf"], second), magnitude)
        step = write.corrected_step(first, parameter.dtype)
        change = write.div(write.mul(average, step), largest)
        return write.add(parameter, change), {"exp_avg": average, "exp_inf": largest}


@dataclasses.dataclass(frozen=True)
class NAdam(_Moments):
    """`torch.optim.NAdam`."""

    momentum_decay: float

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The averages, and the product of the momentums so far."""
        return {"mu_product": np.ones((), np.float32), **super().initial_state(parameter, rate)}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        dtype, product = parameter.dtype, state["mu_product"]
        parameter, gradient = self.decay(write, parameter, gradient)
        new_state = self.average(write, gradient, state)
        correction = write.share_scalar("correction", dtype, lambda: write.bias_correction(self.betas[1]))
        root = write.unary("sqrt", write.div(new_state["exp_avg_sq"], correction))
        denominator = write.add(root, self.eps)
        momentum = self._momentum(write, 0)
        following = self._momentum(write, 1)
        # The product is a state of float32, and all other scalars are numbers of Python.
        product = write.mul(product, write.cast(momentum, product.dtype))
        wide = write.to_double(product)
        rate = write.negative_rate()
        of_gradient = write.div(write.mul(rate, write.rsub(momentum, 1.0)), write.rsub(wide, 1.0))
        of_average = write.div(write.mul(rate, following), write.rsub(write.mul(wide, following), 1.0))
        for vector, factor in ((gradient, of_gradient), (new_state["exp_avg"], of_average)):
            change = write.div(write.mul(vector, write.cast(factor, dtype)), denominator)
            parameter = write.add(parameter, change)
        return parameter, {"mu_product": product, **new_state}

    def _momentum(self, write: GroupUpdates, later: int) -> Value:
        """The momentum of this step, or of a later one, in float64."""
        steps = write.count

        def momentum() -> Value:
            exponent = write.mul(write.add(steps, float(later)), self.momentum_decay)
            shrunk = write.rsub(write.mul(write.power_of(0.96, exponent), 0.5), 1.0)
            return write.mul(shrunk, self.betas[0])

        return write.share_scalar(f"momentum_{later}", steps.dtype, momentum)


@dataclasses.dataclass(frozen=True)
class RAdam(_Moments):
    """`torch.optim.RAdam`."""

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        first, second = self.betas
        dtype = parameter.dtype
        parameter, gradient = self.decay(write, parameter, gradient)
        new_state = self.average(write, gradient, state)
        correction = write.share_scalar("correction_1", dtype, lambda: write.bias_correction(first))
        corrected = write.div(new_state["exp_avg"], correction)
        limit = 2.0 / (1.0 - second) - 1.0

        def length() -> Value:
            assert write.steps is not None
            power = write.mul(write.power_of(second, write.steps), write.count)
            return write.rsub(write.div(write.mul(power, 2.0), write.bias_correction(second)), limit)

        def rectification() -> Value:
            rho = write.share_scalar("length", DataType.DOUBLE, length)
            product = write.mul(write.sub(rho, 4.0), write.sub(rho, 2.0))
            ratio = write.div(write.mul(product, limit), write.mul(rho, (limit - 4.0) * (limit - 2.0)))
            # Below 5 the rectification is not used; the root of a negative number would be NaN.
            return write.unary("sqrt", write.clamp(ratio, 0.0, None))

        root = write.root_of_correction(second, dtype)
        rectified = write.share_scalar("rectification", dtype, rectification)
        rate = write.share_scalar("rate", dtype, lambda: write.rate)
        plain = write.mul(corrected, rate)
        denominator = write.add(write.unary("sqrt", new_state["exp_avg_sq"]), self.eps)
        adaptive = write.mul(write.div(write.mul(plain, root), denominator), rectified)
        is_long = write.compare("gt", write.scalars["length", None], 5.0)
        return write.sub(parameter, write.where(is_long, adaptive, plain)), new_state
