"""Linear attention as one operator, `opsetta::linear_attention`, with its state as input and output.

Serves the gated delta rule, Mamba 2, lightning attention and mLSTM of transformers, for any token count.
Semantics: `torch_recurrent_gated_delta_rule` in transformers/models/qwen3_next/modeling_qwen3_next.py,
`mamba2_chunk_scan` in transformers/models/mamba2/modeling_mamba2.py, `MiniMaxLightningAttention` in
transformers/models/minimax/modeling_minimax.py, and `mlstm_recurrent_sequence_native` in
transformers/models/xlstm/modeling_xlstm.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional


def _run_recurrence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    past_state: torch.Tensor | None = None,
    decay: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the outputs of all tokens and the last state, token by token.

    Args:
        query: of shape [batch, tokens, heads, key size].
        key: of the shape of `query`.
        value: of shape [batch, tokens, heads, value size].
        past_state: of shape [batch, heads, key size, value size]; zeros by default.
        decay: the logarithm of the state's decay, [batch, tokens, heads]; by default the state is kept.
        beta: the rate of the delta rule, of the shape of `decay`; by default key * value is added.

    Returns:
        The outputs, of the shape of `value`, and the state, of the shape of `past_state`.
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
    """Replace transformers' `torch_recurrent_gated_delta_rule`; same arguments and results."""
    dtype = query.dtype
    # Several value heads share one query and key head.
    repeats = value.shape[2] // key.shape[2]
    query, key, values, decay, beta = (tensor.float() for tensor in (query, key, value, g, beta))
    # Queries and keys have the same sizes, so they are normalized and repeated together.
    pairs = torch.cat((query, key), dim=2)
    if use_qk_l2norm_in_kernel:
        pairs = pairs * torch.rsqrt((pairs * pairs).sum(dim=-1, keepdim=True) + 1e-6)
    if repeats > 1:
        pairs = pairs.repeat_interleave(repeats, dim=2)
    query, key = pairs.chunk(2, dim=2)
    query = query * query.shape[-1] ** -0.5
    state = None if initial_state is None else initial_state.float()
    output, state = torch.ops.opsetta.linear_attention(query, key, values, state, decay, beta)
    return output.to(dtype), state if output_final_state else None


def compute_mamba2_scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Replace transformers' `mamba2_chunk_scan`; same arguments and results.

    A token multiplies the state by exp(A dt) and adds dt x B^T to it. The output is the state times C.
    """
    if dt_bias is not None:
        dt = dt + dt_bias.to(dt.dtype)
    if dt_softplus:
        dt = functional.softplus(dt)
    dt = torch.clamp(dt, min=dt_limit[0], max=dt_limit[1]).float()
    values = hidden_states.float()
    # Several heads share one group of B and C.
    repeats = hidden_states.shape[2] // B.shape[2]
    key, query = (tensor.float().repeat_interleave(repeats, dim=2) for tensor in (B, C))
    # transformers has the axes of the state in the other order.
    state = None if initial_states is None else initial_states.float().transpose(-1, -2)
    output, state = torch.ops.opsetta.linear_attention(
        query, key, values * dt[..., None], state, A.float() * dt, None
    )
    if D is not None:
        output = output + D[..., None] * values
    return (output, state.transpose(-1, -2)) if return_final_states else output


def compute_lightning_attention(
    module: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, past_key_values: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Replace the forward of `MiniMaxLightningAttention`, where each head has one constant decay.

    Args:
        module: the attention module.
        hidden_states: of shape [batch, tokens, hidden size].
        attention_mask: of shape [batch, tokens], 0 for padding.
        past_key_values: the cache that holds the state; it is updated.

    Returns:
        The output, of the shape of `hidden_states`, and the state.
    """
    batch, length = hidden_states.shape[:2]
    packed = module.act_fn(module.qkv_proj(hidden_states))
    dtype = packed.dtype
    if attention_mask is not None:
        packed = (packed * attention_mask[:, :, None]).to(dtype)
    packed = packed.reshape(batch, length, module.num_attention_heads, 3 * module.head_dim)
    query, key, value = packed.float().split(module.head_dim, dim=3)
    state = None if past_key_values is None else past_key_values.get_linear_cache(module.layer_idx)
    decay = -module.slope_rate.float().reshape(-1).expand(batch, length, -1)
    state = None if state is None else state.float()
    output, state = torch.ops.opsetta.linear_attention(query, key, value, state, decay, None)
    output = module.norm(output.to(dtype).reshape(batch, length, -1))
    output = module.out_proj(torch.sigmoid(module.output_gate(hidden_states)) * output)
    state = state.to(dtype)
    if past_key_values is not None:
        past_key_values.set_linear_cache(module.layer_idx, state)
    return output, state


def compute_mlstm(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    igate: torch.Tensor,
    fgate: torch.Tensor,
    c_initial: torch.Tensor | None = None,
    n_initial: torch.Tensor | None = None,
    m_initial: torch.Tensor | None = None,
    eps: float = 1e-6,
    positions: Callable[[int], Iterable[int]] = range,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Replace transformers' mLSTM of xLSTM; the operator's state holds both the matrix and the normalizer.

    A running maximum of the gates' logarithms keeps the exponential gates in range. Only this maximum needs a
    loop over the tokens.

    Args:
        query: of shape [batch, heads, tokens, key size].
        key: of the shape of `query`.
        value: of shape [batch, heads, tokens, value size].
        igate: the logarithm of the input gate, of shape [batch, heads, tokens].
        fgate: the forget gate before its sigmoid, of the shape of `igate`.
        c_initial: the state's matrix, [batch, heads, key size, value size]; zeros by default.
        n_initial: the state's normalizer, [batch, heads, key size]; zeros by default.
        m_initial: the running maximum, [batch, heads, 1]; zeros by default.
        eps: added to the denominator.
        positions: takes a number of tokens; returns the positions to loop over, so that a capture can record
            the loop.

    Returns:
        The output, [batch, heads, tokens, value size], and the new matrix, normalizer and maximum.
    """
    forget, entry = functional.logsigmoid(fgate).float(), igate.float()
    maximum = torch.zeros_like(entry[:, :, 0]) if m_initial is None else m_initial.float().squeeze(2)
    earlier, state, maxima = maximum[:, :, None], None, []
    for token in positions(query.shape[2]):
        maximum = torch.maximum(forget[:, :, token] + maximum, entry[:, :, token])
        maxima.append(maximum)
    level = torch.stack(maxima, dim=2)
    decay = forget + torch.cat((earlier, level[:, :, :-1]), dim=2) - level
    # A column of ones after the values makes the state's last column the sum of the keys.
    values = functional.pad(value.float(), (0, 1), value=1.0) * torch.exp(entry - level)[..., None]
    if c_initial is not None and n_initial is not None:
        state = torch.cat((c_initial, n_initial[..., None]), dim=3).float()
    scaled_query = query.float() * query.shape[-1] ** -0.5
    by_tokens = (tensor.transpose(1, 2) for tensor in (scaled_query, key.float(), values))
    output, state = torch.ops.opsetta.linear_attention(*by_tokens, state, decay.transpose(1, 2), None)
    numerator, total = output.transpose(1, 2).split((value.shape[-1], 1), dim=3)
    denominator = torch.maximum(total.abs(), torch.exp(-level)[..., None]) + eps
    last_state, key_sum = state.split((value.shape[-1], 1), dim=3)
    return (numerator / denominator).to(query.dtype), (last_state, key_sum.squeeze(3), maximum[:, :, None])
