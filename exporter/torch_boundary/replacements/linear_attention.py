"""Linear attention as one operator, `opsetta::linear_attention`, with its state as input and output.

The gated delta rule of transformers, for any number of tokens. Semantics: `torch_recurrent_gated_delta_rule`
in transformers/models/qwen3_next/modeling_qwen3_next.py.
"""

from __future__ import annotations

import torch


def _run_recurrence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    past_state: torch.Tensor | None = None,
    decay: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of all tokens, of the shape of `value`, and the last state.

    Args:
        query: of shape [batch, tokens, heads, key size].
        key: like the query.
        value: of shape [batch, tokens, heads, value size].
        past_state: of shape [batch, heads, key size, value size]; zeros by default.
        decay: its logarithm for each token and head, [batch, tokens, heads]; none by default.
        beta: the rate of the delta rule, like the decay; by default keys and values are added.
    """
    output = torch.empty_like(value)
    shape = (query.shape[0], *query.shape[2:], value.shape[3])
    state = value.new_zeros(shape) if past_state is None else past_state.to(value)
    for token in range(value.shape[1]):
        token_key, updates = key[:, token, :, :, None], value[:, token, :, None]
        if decay is not None:
            state = state * decay[:, token, :, None, None].exp()
        if beta is not None:
            updates = beta[:, token, :, None, None] * (updates - token_key.mT @ state)
        state = state + token_key * updates
        output[:, token] = (query[:, token, :, None] @ state).squeeze(2)
    return output, state


def _shapes_of_results(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *options: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, _, heads, key_size = query.shape
    return torch.empty_like(value), value.new_empty((batch, heads, key_size, value.shape[3]))


_LIBRARY = torch.library.Library("opsetta", "FRAGMENT")
_LIBRARY.define("linear_attention" + torch.library.infer_schema(_run_recurrence, mutates_args=()))
_LIBRARY.impl("linear_attention", _run_recurrence, "CompositeExplicitAutograd")
torch.library.register_fake("opsetta::linear_attention", _shapes_of_results, lib=_LIBRARY)


def compute_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The function of transformers, with its arguments and results, by the operator."""
    dtype = query.dtype
    # Several heads of values share one of queries and keys.
    repeats = value.shape[2] // key.shape[2]
    query, key, values, decay, beta = (tensor.float() for tensor in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        query, key = (
            tensor * torch.rsqrt((tensor * tensor).sum(dim=-1, keepdim=True) + 1e-6)
            for tensor in (query, key)
        )
    query = query * query.shape[-1] ** -0.5
    if repeats > 1:
        query, key = (tensor.repeat_interleave(repeats, dim=2) for tensor in (query, key))
    state = None if initial_state is None else initial_state.float()
    output, state = torch.ops.opsetta.linear_attention(query, key, values, state, decay, beta)
    return output.to(dtype), state if output_final_state else None
