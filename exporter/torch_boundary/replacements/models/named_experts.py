"""Runs all experts of transformers' models that pick an expert by a number from a tensor.

Switch Transformers and NLLB-MoE loop over the experts that have tokens, and pick the module by
`self[f"expert_{index[0]}"]`, which a capture cannot follow. Here every expert runs; an expert without tokens
adds nothing.

Semantics: transformers, `SwitchTransformersExperts` and `NllbMoeExperts`.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ...process.process_state import replace_attribute

_MODELS = "transformers.models"
_CALLED = frozenset({"nonzero", "index_add_"})
"""Names that the original functions use; without them, a release of transformers computes something else."""


def _add_results(
    experts: Any, states: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Add up the experts' weighted results for their tokens.

    Args:
        experts: the module dict of the experts.
        states: the hidden states, `[tokens, features]`.
        mask: nonzero where a token's choice is the expert, `[experts, choices, tokens]`.
        weights: the weight of each choice, `[tokens, choices]`.

    Returns:
        A new tensor of the shape of `states`.
    """
    result = torch.zeros_like(states)
    dropout = getattr(experts, "moe_token_dropout", 0)
    for number in range(experts.num_experts):
        choices, tokens = torch.where(mask[number])
        computed = experts[f"expert_{number}"](states[tokens]) * weights[tokens, choices, None]
        if dropout > 0:
            computed = experts.token_dropout(computed) if experts.training else computed * (1 - dropout)
        result.index_add_(0, tokens, computed.to(states.dtype))
    return result


def _run_switch(
    self: Any, hidden_states: torch.Tensor, selected_experts: torch.Tensor, routing_weights: torch.Tensor
) -> torch.Tensor:
    return _add_results(self, hidden_states, selected_experts.permute(2, 1, 0), routing_weights)


def _run_nllb(
    self: Any, hidden_states: torch.Tensor, router_mask: torch.Tensor, router_probs: torch.Tensor
) -> torch.Tensor:
    one_hot = torch.nn.functional.one_hot(router_mask, num_classes=self.num_experts)
    return _add_results(self, hidden_states, one_hot.permute(2, 1, 0), router_probs)


_FORWARDS = {
    ("switch_transformers", "SwitchTransformersExperts"): _run_switch,
    ("nllb_moe", "NllbMoeExperts"): _run_nllb,
}
"""By model type and class name, the replacement of the class's `forward`."""


@contextlib.contextmanager
def run_all() -> Iterator[None]:
    """Replace the `forward` of these classes within the context, if their modules are imported."""
    with contextlib.ExitStack() as stack:
        for (model_type, class_name), function in _FORWARDS.items():
            module = sys.modules.get(f"{_MODELS}.{model_type}.modeling_{model_type}")
            experts_class = getattr(module, class_name, None)
            forward = getattr(experts_class, "forward", None)
            code = getattr(forward, "__code__", None)
            if forward is None or code is None or not set(code.co_names) >= _CALLED:
                continue
            if [*inspect.signature(forward).parameters] == [*inspect.signature(function).parameters]:
                stack.enter_context(replace_attribute(experts_class, "forward", function))
        yield
