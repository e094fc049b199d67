"""The optimizer Lion in PyTorch, which torch.optim lacks, for `optimizer="lion"` and `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, overload

import torch

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


class Lion(torch.optim.Optimizer):
    """Lion of Chen et al., "Symbolic Discovery of Optimization Algorithms" (arXiv 2302.06675), algorithm 2.

    Moves each element by the learning rate along the sign of an average of gradients.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: the decay of the average in the step, and in the state.
        weight_decay: the decoupled decay.
        maximize: move along the gradient.

    Raises:
        ValueError: an argument is negative, or a beta is not below 1.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
    ):
        if lr < 0.0 or weight_decay < 0.0 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"Lion with lr={lr}, betas={betas}, weight_decay={weight_decay}")
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move the parameters that have a gradient; return the loss of the closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters: Iterable[torch.Tensor] = group["params"]
            for parameter in parameters:
                if parameter.grad is None:
                    continue
                gradient = -parameter.grad if group["maximize"] else parameter.grad
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                average = state["exp_avg"]
                first, second = group["betas"]
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                parameter.add_(average.lerp(gradient, 1.0 - first).sign_(), alpha=-group["lr"])
                average.lerp_(gradient, 1.0 - second)
        return loss
