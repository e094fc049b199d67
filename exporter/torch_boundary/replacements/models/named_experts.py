"""transformers' experts that are picked by a number from a tensor, for any routing.

Switch Transformers and NLLB-MoE run a loop over the experts that have tokens, and pick the module by
`self[f"expert_{index[0]}"]`; LongCat-Flash asks whether the number is that of an expert which returns its
tokens. A capture can follow neither. The functions here run all experts: one without tokens adds nothing.

Semantics: transformers, `SwitchTransformersExperts`, `NllbMoeExperts` and `LongcatFlashExperts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from .model_methods import replace_methods


def _add_results(
    experts: Any,
    states: torch.Tensor,
    mask: torch.Tensor,
    weights: torch.Tensor,
    functions: Sequence[Callable[[torch.Tensor], torch.Tensor]],
) -> torch.Tensor:
    """Add up the experts' weighted results for their tokens.

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


def run_all() -> AbstractContextManager[None]:
    """Replace the functions of transformers within the context, where their modules are imported."""
    methods: dict[tuple[str, str, str], Callable[..., torch.Tensor]] = {
        ("switch_transformers", "SwitchTransformersExperts", "forward"): _run_switch,
        ("nllb_moe", "NllbMoeExperts", "forward"): _run_nllb,
        ("longcat_flash", "LongcatFlashExperts", "forward"): _run_longcat,
    }
    return replace_methods(methods, frozenset({"nonzero", "index_add_"}))
