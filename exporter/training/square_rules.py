"""The update rules of RMSprop, Adagrad, Adadelta and Adafactor, which divide by a root of earlier squares.

Formulas and their order are those of `torch/optim/rmsprop.py`, `adagrad.py`, `adadelta.py` and
`_adafactor.py`.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from onnx_ir import DataType, Value

from ...passes.source_builder import sizes_of
from .update_rules import State, Updated, UpdateRule
from .updates import GroupUpdates


@dataclasses.dataclass(frozen=True)
class RmsProp(UpdateRule):
    """`torch.optim.RMSprop`."""

    alpha: float
    eps: float
    momentum: float
    centered: bool

    @property
    def counts(self) -> bool:
        """Steps do not depend on their number."""
        return False

    @property
    def noise_steps(self) -> float:
        """The first average of squares is a small share of a square, so the first step is long."""
        share = math.sqrt(max(1.0 - self.alpha, 1e-6))
        return 2.0 / share / max(1.0 - self.momentum, 1e-6)

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The average of squares, with momentum the buffer, and if centered the average of gradients."""
        names = ["square_avg"]
        if self.momentum > 0:
            names.append("momentum_buffer")
        if self.centered:
            names.append("grad_avg")
        return {name: np.zeros_like(parameter) for name in names}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        gradient = self.add_decay(write, gradient, parameter)
        squares = write.average_squares(state["square_avg"], gradient, self.alpha)
        new_state = {"square_avg": squares}
        variance = squares
        if self.centered:
            average = write.lerp(state["grad_avg"], gradient, 1.0 - self.alpha)
            new_state["grad_avg"] = average
            variance = write.emit("addcmul", "default", squares, tensor1=average, tensor2=average, value=-1.0)
        denominator = write.add(write.unary("sqrt", variance), self.eps)
        if self.momentum > 0:
            buffer = write.mul(state["momentum_buffer"], self.momentum)
            buffer = new_state["momentum_buffer"] = write.add(buffer, write.div(gradient, denominator))
            return write.subtract_multiple(parameter, buffer), new_state
        direction = write.div(gradient, denominator)
        return write.subtract_multiple(parameter, direction), new_state


@dataclasses.dataclass(frozen=True)
class Adagrad(UpdateRule):
    """`torch.optim.Adagrad`."""

    lr_decay: float
    eps: float
    initial_accumulator_value: float

    @property
    def counts(self) -> bool:
        """Whether the learning rate decays."""
        return bool(self.lr_decay)

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The sum of squares."""
        return {"sum": np.full_like(parameter, self.initial_accumulator_value)}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        gradient = self.add_decay(write, gradient, parameter)
        total = write.emit("addcmul", "default", state["sum"], tensor1=gradient, tensor2=gradient, value=1.0)
        denominator = write.add(write.unary("sqrt", total), self.eps)

        def negative_step() -> Value:
            rate = write.negative_rate()
            if write.steps is None or not self.lr_decay:
                return rate
            earlier = write.sub(write.count, 1.0)
            return write.div(rate, write.add(write.mul(earlier, self.lr_decay), 1.0))

        step = write.share_scalar("step", parameter.dtype, negative_step)
        change = write.div(write.mul(gradient, step), denominator)
        return write.add(parameter, change), {"sum": total}


@dataclasses.dataclass(frozen=True)
class Adadelta(UpdateRule):
    """`torch.optim.Adadelta`."""

    rho: float
    eps: float

    @property
    def counts(self) -> bool:
        """Steps do not depend on their number."""
        return False

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The averages of the squares of gradients and of steps."""
        return {"square_avg": np.zeros_like(parameter), "acc_delta": np.zeros_like(parameter)}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        gradient = self.add_decay(write, gradient, parameter)
        squares = write.average_squares(state["square_avg"], gradient, self.rho)
        deviation = write.unary("sqrt", write.add(squares, self.eps))
        length = write.unary("sqrt", write.add(state["acc_delta"], self.eps))
        delta = write.mul(write.div(length, deviation), gradient)
        lengths = write.average_squares(state["acc_delta"], delta, self.rho)
        return write.subtract_multiple(parameter, delta), {"square_avg": squares, "acc_delta": lengths}


@dataclasses.dataclass(frozen=True)
class Adafactor(UpdateRule):
    """`torch.optim.Adafactor`, which keeps the squares of a matrix as a row times a column."""

    beta2_decay: float
    eps: tuple[float | None, float]
    d: float

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The averages of the rows and columns of a matrix, or of all elements of a vector."""
        if parameter.ndim < 2:
            return {"variance": np.zeros_like(parameter)}
        *batch, rows, columns = parameter.shape
        return {
            "row_var": np.zeros((*batch, rows, 1), parameter.dtype),
            "col_var": np.zeros((*batch, 1, columns), parameter.dtype),
        }

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        dtype = parameter.dtype
        assert dtype is not None
        sizes = sizes_of(parameter)
        assert sizes is not None
        root_of_count = math.sqrt(math.prod(sizes))
        low, smallest = self.eps
        if low is None:
            low = float(np.finfo(dtype.numpy()).eps)
        length = write.div(write.to_double(write.norm(parameter)), root_of_count)
        step = write.mul(write.clamp(length, smallest, None), self._relative_step(write))
        parameter = self.shrink(write, parameter)
        new_state = self._average(write, gradient, state)
        if "variance" in new_state:
            estimate = new_state["variance"]
        else:
            rows = new_state["row_var"]
            estimate = write.matmul(rows, new_state["col_var"], gradient)
            estimate = write.div(estimate, write.clamp(write.mean(rows, -2), low, None))
        change = write.mul(write.unary("rsqrt", write.clamp(estimate, low * low, None)), gradient)
        size = write.div(write.to_double(write.norm(change)), root_of_count * self.d)
        factor = write.unary("neg", write.div(step, write.clamp(size, 1.0, None)))
        return write.add(parameter, write.mul(change, write.cast(factor, dtype))), new_state

    def _relative_step(self, write: GroupUpdates) -> Value:
        """The smaller of the learning rate and the inverse root of the number of steps, in float64."""

        def smaller() -> Value:
            inverse = write.unary("reciprocal", write.unary("sqrt", write.count))
            return write.emit("minimum", "default", write.rate, other=inverse)

        return write.share_scalar("relative_step", DataType.DOUBLE, smaller)

    def _average(self, write: GroupUpdates, gradient: Value, state: State) -> dict[str, Value]:
        """The new averages of squares."""
        weight = write.share_scalar(
            "weight", gradient.dtype, lambda: write.power(write.count, self.beta2_decay)
        )
        if "variance" in state:
            return {"variance": write.lerp(state["variance"], write.mul(gradient, gradient), weight)}
        averages = {}
        sizes = sizes_of(gradient)
        assert sizes is not None
        for name, dim in (("row_var", -1), ("col_var", -2)):
            norm = write.norm(gradient, dim=dim)
            means = write.div(write.mul(norm, norm), float(sizes[dim]))
            averages[name] = write.lerp(state[name], means, weight)
        return averages
