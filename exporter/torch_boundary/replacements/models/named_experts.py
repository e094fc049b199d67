"""transformers' experts that are picked by a number from a tensor, for any routing.

Switch Transformers and NLLB-MoE run a loop over the experts that have tokens, and pick the module by
`self[f"expert_{index[0]}"]`; LongCat-Flash asks whether the number is that of an expert which returns its
tokens. A capture can follow neither. The functions here run all experts: one without tokens adds nothing.

Semantics: transformers, `SwitchTransformersExperts`, `NllbMoeExperts` and `LongcatFlashExperts`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...process.process_state import replace_attribute

_MODELS = "transformers.models"
_CALLED = frozenset({"nonzero", "index_add_"})
"""What the original functions call; other releases of transformers may compute something else."""


def _add_results(
    experts: Any,
    states: torch.Tensor,
    mask: torch.Tensor,
    weights: torch.Tensor,
    functions: Sequence[Callable[[torch.Tensor], torch.Tensor]],
) -> torch.Tensor:
    """The sum of the experts' results for their tokens.

    Args:
        states: `[tokens, features]`.
        mask: which tokens an expert has, and at which of their choices, `[experts, choices, tokens]`.
        weights: `[tokens, choices]`.
        functions: what each expert computes.
    """
    result = torch.zeros_like(states)
    dropout = getattr(experts, "moe_token_dropout", 0)
    for number, function in enumerate(functions):
        choices, tokens = torch.where(mask[number])
        computed = function(states[tokens]) * weights[tokens, choices, None]
        if dropout > 0:
            computed = experts.token_dropout(computed) if experts.training else computed * (1 - dropout)
        result.index_add_(0, tokens, computed.to(states.dtype))
    return result


def _run_switch(
    self: Any, hidden_states: torch.Tensor, selected_experts: torch.Tensor, routing_weights: torch.Tensor
) -> torch.Tensor:
    functions = [self[f"expert_{number}"] for number in range(self.num_experts)]
    return _add_results(self, hidden_states, selected_experts.permute(2, 1, 0), routing_weights, functions)


def _run_nllb(
    self: Any, hidden_states: torch.Tensor, router_mask: torch.Tensor, router_probs: torch.Tensor
) -> torch.Tensor:
    one_hot = torch.nn.functional.one_hot(router_mask, num_classes=self.num_experts)
    functions = [self[f"expert_{number}"] for number in range(self.num_experts)]
    return _add_results(self, hidden_states, one_hot.permute(2, 1, 0), router_probs, functions)


def _run_longcat(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    def run_routed(number: int, states: torch.Tensor) -> torch.Tensor:
        gate, up = torch.nn.functional.linear(states, self.gate_up_proj[number]).chunk(2, dim=-1)
        return torch.nn.functional.linear(self.act_fn(gate) * up, self.down_proj[number])

    one_hot = torch.nn.functional.one_hot(top_k_index, num_classes=self.total_experts)
    functions = [
        functools.partial(run_routed, number) if number < self.num_routed_experts else self.identity_expert
        for number in range(self.total_experts)
    ]
    return _add_results(self, hidden_states, one_hot.permute(2, 1, 0), top_k_weights, functions)


_FORWARDS = {
    ("switch_transformers", "SwitchTransformersExperts"): _run_switch,
    ("nllb_moe", "NllbMoeExperts"): _run_nllb,
    ("longcat_flash", "LongcatFlashExperts"): _run_longcat,
}
"""By the name of the model type and the class, the replacement of its `forward`."""


@contextlib.contextmanager
def run_all() -> Iterator[None]:
    """Replace the functions of transformers within the context, where their modules are imported."""
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
