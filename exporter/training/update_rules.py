"""The update rules of optimizers: what torch.optim computes for one parameter and its gradient.

A rule has a field for each hyper-parameter, under torch's name. Formulas and their order are those of
`torch/optim/*.py`, so that results agree to rounding; those of Lion are of its paper (arXiv 2302.06675).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from onnx_ir import Value

from .updates import GroupUpdates

State: TypeAlias = Mapping[str, Value]
"""The state of a parameter by torch's names."""
Updated: TypeAlias = tuple[Value, dict[str, Value]]
"""The new value of a parameter, and the new values of its state by torch's names."""


@dataclasses.dataclass(frozen=True)
class UpdateRule(abc.ABC):
    """The rule of an optimizer.

    Attributes:
        weight_decay: the decay of parameters towards zero.
    """

    weight_decay: float

    @property
    def counts(self) -> bool:
        """Whether it needs the number of earlier steps."""
        return True

    @property
    def has_rate(self) -> bool:
        """Whether a step depends on the learning rate."""
        return True

    @property
    def noise_steps(self) -> float:
        """How many learning rates two runs may be apart after a step if a gradient is only rounding error.

        0 means that the step is proportional to the gradient.
        """
        # Adam moves by 3.2 learning rates at most, the others by one.
        return 4.0

    @abc.abstractmethod
    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The state tensors of a parameter before the first step, by torch's names."""

    @abc.abstractmethod
    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""

    def add_decay(self, write: GroupUpdates, gradient: Value, parameter: Value) -> Value:
        """The gradient with that of the decay."""
        return write.add(gradient, parameter, self.weight_decay) if self.weight_decay else gradient

    def shrink(self, write: GroupUpdates, parameter: Value) -> Value:
        """The parameter after the decoupled decay, which is independent of gradients."""
        if not self.weight_decay:
            return parameter

        def factor() -> Value:
            return write.rsub(write.mul(write.rate, self.weight_decay), 1.0)

        return write.mul(parameter, write.share_scalar("decay", parameter.dtype, factor))


@dataclasses.dataclass(frozen=True)
class Sgd(UpdateRule):
    """`torch.optim.SGD`."""

    momentum: float
    dampening: float
    nesterov: bool

    @property
    def counts(self) -> bool:
        """Whether the first step differs from the others."""
        return bool(self.momentum and self.dampening)

    @property
    def noise_steps(self) -> float:
        """A step is proportional to the gradient."""
        return 0.0

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """A buffer if there is momentum."""
        return {"momentum_buffer": np.zeros_like(parameter)} if self.momentum else {}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        new_state = {}
        gradient = self.add_decay(write, gradient, parameter)
        if self.momentum:
            decayed = write.mul(state["momentum_buffer"], self.momentum)
            buffer = write.add(decayed, self._dampen(write, gradient))
            new_state["momentum_buffer"] = buffer
            # Nesterov looks ahead along the buffer instead of taking it as the step.
            gradient = write.add(gradient, buffer, self.momentum) if self.nesterov else buffer
        return write.subtract_multiple(parameter, gradient), new_state

    def _dampen(self, write: GroupUpdates, gradient: Value) -> Value:
        """The gradient scaled by the dampening; unscaled in the first step."""
        if not self.dampening:
            return gradient
        assert write.steps is not None
        steps = write.steps

        # torch copies the first gradient into the momentum buffer without dampening.
        def share() -> Value:
            first = write.to_double(write.compare("le", steps, 1.0))
            return write.add(write.mul(first, self.dampening), 1.0 - self.dampening)

        return write.mul(gradient, write.share_scalar("damping", gradient.dtype, share))


@dataclasses.dataclass(frozen=True)
class Asgd(UpdateRule):
    """`torch.optim.ASGD`."""

    lambd: float
    alpha: float
    t0: float

    @property
    def noise_steps(self) -> float:
        """A step is proportional to the gradient."""
        return 0.0

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The step length, the weight of the average, and the average."""
        return {
            "eta": np.asarray(rate, np.float32),
            "mu": np.ones((), np.float32),
            "ax": np.zeros_like(parameter),
        }

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        dtype = parameter.dtype
        gradient = self.add_decay(write, gradient, parameter)
        length = write.to_double(state["eta"])
        factor = write.cast(write.rsub(write.mul(length, self.lambd), 1.0), dtype)
        step = write.mul(gradient, write.cast(write.unary("neg", length), dtype))
        parameter = write.add(write.mul(parameter, factor), step)
        weight = write.cast(state["mu"], dtype)
        average = write.add(state["ax"], write.mul(write.sub(parameter, state["ax"]), weight))
        # With a weight of 1 torch copies the parameter, which a difference and a sum would round.
        average = write.where(write.compare("eq", state["mu"], 1.0), parameter, average)

        def next_length() -> Value:
            rate = write.rate
            decay = write.add(write.mul(write.mul(rate, self.lambd), write.count), 1.0)
            return write.div(rate, write.power(decay, self.alpha))

        def next_weight() -> Value:
            excess = write.clamp(write.sub(write.count, self.t0), 1.0, None)
            return write.unary("reciprocal", excess)

        # Scalars of the state may have another element type than the parameter.
        eta = write.share_scalar("eta", state["eta"].dtype, next_length)
        mu = write.share_scalar("mu", state["mu"].dtype, next_weight)
        return parameter, {"eta": eta, "mu": mu, "ax": average}


@dataclasses.dataclass(frozen=True)
class Rprop(UpdateRule):
    """`torch.optim.Rprop`, which has no weight decay."""

    etas: tuple[float, float]
    step_sizes: tuple[float, float]

    @property
    def counts(self) -> bool:
        """Steps do not depend on their number."""
        return False

    @property
    def has_rate(self) -> bool:
        """The learning rate is only the first step size."""
        return False

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The gradient of the step before, and a step size for each element."""
        return {"prev": np.zeros_like(parameter), "step_size": np.full_like(parameter, rate)}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        shrinking, growing = self.etas
        product = write.mul(gradient, state["prev"])
        turned = write.compare("lt", product, 0.0)
        ahead = write.compare("gt", product, 0.0)
        size = state["step_size"]
        size = write.where(
            turned, write.mul(size, shrinking), write.where(ahead, write.mul(size, growing), size)
        )
        size = write.clamp(size, *self.step_sizes)
        # Where the sign changed the parameter stays, and the next step counts as a first one.
        gradient = write.where(turned, write.mul(gradient, 0.0), gradient)
        step = write.mul(write.unary("sign", gradient), size)
        return write.sub(parameter, step), {"prev": gradient, "step_size": size}


@dataclasses.dataclass(frozen=True)
class LionRule(UpdateRule):
    """Lion of Chen et al. (arXiv 2302.06675), algorithm 2."""

    betas: tuple[float, float]

    @property
    def counts(self) -> bool:
        """Steps do not depend on their number."""
        return False

    def initial_state(self, parameter: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """The average of the gradients."""
        return {"exp_avg": np.zeros_like(parameter)}

    def update(self, write: GroupUpdates, parameter: Value, gradient: Value, state: State) -> Updated:
        """Write a step of a parameter."""
        average = state["exp_avg"]
        direction = write.unary("sign", write.lerp(average, gradient, 1.0 - self.betas[0]))
        parameter = write.subtract_multiple(self.shrink(write, parameter), direction)
        return parameter, {"exp_avg": write.lerp(average, gradient, 1.0 - self.betas[1])}
