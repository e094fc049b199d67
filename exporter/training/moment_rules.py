"""The update rules of Adam and its relatives, which keep averages of gradients and of their squares.

Formulas and their order are those of `torch/optim/adam.py`, `adamax.py`, `nadam.py` and `radam.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from onnx_ir import DataType, Value

from .update_rules import Updated, UpdateRule, corrected_step, negative_rate, root_of_correction
from .updates import GroupScalars, UpdateBuilder


@dataclasses.dataclass(frozen=True)
class _Moments(UpdateRule):
    """A rule with an average of gradients and one of their squares."""

    betas: tuple[float, float]
    eps: float
    decoupled_weight_decay: bool

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """Both averages."""
        return {"exp_avg": np.zeros_like(parameter), "exp_avg_sq": np.zeros_like(parameter)}

    def decay(
        self, write: UpdateBuilder, scalars: GroupScalars, parameter: Value, gradient: Value
    ) -> tuple[Value, Value]:
        """The parameter and the gradient, one of them decayed."""
        if self.decoupled_weight_decay:
            return self.shrink(write, scalars, parameter), gradient
        return parameter, self.add_decay(write, gradient, parameter)

    def average(self, write: UpdateBuilder, gradient: Value, state: Mapping[str, Value]) -> dict[str, Value]:
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

    def update(
        self,
        write: UpdateBuilder,
        scalars: GroupScalars,
        parameter: Value,
        gradient: Value,
        state: Mapping[str, Value],
    ) -> Updated:
        """Write a step of a parameter."""
        first, second = self.betas
        dtype = parameter.dtype
        parameter, gradient = self.decay(write, scalars, parameter, gradient)
        new_state = self.average(write, gradient, state)
        squares = new_state["exp_avg_sq"]
        if self.amsgrad:
            squares = new_state["max_exp_avg_sq"] = write.maximum(state["max_exp_avg_sq"], squares)
        step = corrected_step(write, scalars, first, dtype)
        root = root_of_correction(write, scalars, second, dtype)
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

    def update(
        self,
        write: UpdateBuilder,
        scalars: GroupScalars,
        parameter: Value,
        gradient: Value,
        state: Mapping[str, Value],
    ) -> Updated:
        """Write a step of a parameter."""
        first, second = self.betas
        gradient = self.add_decay(write, gradient, parameter)
        average = write.lerp(state["exp_avg"], gradient, 1.0 - first)
        magnitude = write.add(write.unary("abs", gradient), self.eps)
        largest = write.maximum(write.mul(state["exp_inf"], second), magnitude)
        step = corrected_step(write, scalars, first, parameter.dtype)
        change = write.div(write.mul(average, step), largest)
        return write.add(parameter, change), {"exp_avg": average, "exp_inf": largest}


@dataclasses.dataclass(frozen=True)
class NAdam(_Moments):
    """`torch.optim.NAdam`."""

    momentum_decay: float

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The averages, and the product of the momentums so far."""
        return {"mu_product": np.ones((), np.float32), **super().initial_state(parameter, rate)}

    def update(
        self,
        write: UpdateBuilder,
        scalars: GroupScalars,
        parameter: Value,
        gradient: Value,
        state: Mapping[str, Value],
    ) -> Updated:
        """Write a step of a parameter."""
        dtype, product = parameter.dtype, state["mu_product"]
        parameter, gradient = self.decay(write, scalars, parameter, gradient)
        new_state = self.average(write, gradient, state)
        correction = write.share_scalar(
            scalars, "correction", dtype, lambda: write.bias_correction(scalars, self.betas[1])
        )
        root = write.unary("sqrt", write.div(new_state["exp_avg_sq"], correction))
        denominator = write.add(root, self.eps)
        momentum = self._momentum(write, scalars, 0)
        following = self._momentum(write, scalars, 1)
        # The product is a state of float32, and all other scalars are numbers of Python.
        product = write.mul(product, write.cast(momentum, product.dtype))
        wide = write.to_double(product)
        rate = negative_rate(write, scalars)
        of_gradient = write.div(write.mul(rate, write.rsub(momentum, 1.0)), write.rsub(wide, 1.0))
        of_average = write.div(write.mul(rate, following), write.rsub(write.mul(wide, following), 1.0))
        for vector, factor in ((gradient, of_gradient), (new_state["exp_avg"], of_average)):
            change = write.div(write.mul(vector, write.cast(factor, dtype)), denominator)
            parameter = write.add(parameter, change)
        return parameter, {"mu_product": product, **new_state}

    def _momentum(self, write: UpdateBuilder, scalars: GroupScalars, later: int) -> Value:
        """The momentum of this step, or of a later one, in float64."""
        assert scalars.steps is not None
        steps = write.to_double(scalars.steps)

        def momentum() -> Value:
            exponent = write.mul(write.add(steps, float(later)), self.momentum_decay)
            shrunk = write.rsub(write.mul(write.power_of(0.96, exponent), 0.5), 1.0)
            return write.mul(shrunk, self.betas[0])

        return write.share_scalar(scalars, f"momentum_{later}", steps.dtype, momentum)


@dataclasses.dataclass(frozen=True)
class RAdam(_Moments):
    """`torch.optim.RAdam`."""

    def update(
        self,
        write: UpdateBuilder,
        scalars: GroupScalars,
        parameter: Value,
        gradient: Value,
        state: Mapping[str, Value],
    ) -> Updated:
        """Write a step of a parameter."""
        first, second = self.betas
        dtype = parameter.dtype
        parameter, gradient = self.decay(write, scalars, parameter, gradient)
        new_state = self.average(write, gradient, state)
        correction = write.share_scalar(
            scalars, "correction_1", dtype, lambda: write.bias_correction(scalars, first)
        )
        corrected = write.div(new_state["exp_avg"], correction)
        limit = 2.0 / (1.0 - second) - 1.0

        def length() -> Value:
            assert scalars.steps is not None
            power = write.mul(write.power_of(second, scalars.steps), write.to_double(scalars.steps))
            return write.rsub(write.div(write.mul(power, 2.0), write.bias_correction(scalars, second)), limit)

        def rectification() -> Value:
            rho = write.share_scalar(scalars, "length", DataType.DOUBLE, length)
            product = write.mul(write.sub(rho, 4.0), write.sub(rho, 2.0))
            ratio = write.div(write.mul(product, limit), write.mul(rho, (limit - 4.0) * (limit - 2.0)))
            # Below 5 the rectification is not used; the root of a negative number would be NaN.
            return write.unary("sqrt", write.clamp(ratio, 0.0, None))

        root = root_of_correction(write, scalars, second, dtype)
        rectified = write.share_scalar(scalars, "rectification", dtype, rectification)
        rate = write.share_scalar(scalars, "rate", dtype, lambda: write.to_double(scalars.rate))
        plain = write.mul(corrected, rate)
        denominator = write.add(write.unary("sqrt", new_state["exp_avg_sq"]), self.eps)
        adaptive = write.mul(write.div(write.mul(plain, root), denominator), rectified)
        is_long = write.compare("gt", scalars.scalars["length", None], 5.0)
        return write.sub(parameter, write.where(is_long, adaptive, plain)), new_state
