"""Operators that write to key-value caches, with the semantics of ONNX and onnxruntime."""

from __future__ import annotations

import torch


def _write_to_cache(past: torch.Tensor, update: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return a copy of the cache with new keys or values, as ONNX's TensorScatter writes them.

    Args:
        past: `[batch, heads, length, channels]`.
        update: `[batch, heads, tokens, channels]`.
        positions: the consecutive positions of the tokens, `[tokens]`.
    """
    return past.index_copy(2, positions, update)


def _shape_of_cache(past: torch.Tensor, update: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(past)


_LIBRARY = torch.library.Library("opsetta", "FRAGMENT")
_LIBRARY.define("write_to_cache" + torch.library.infer_schema(_write_to_cache, mutates_args=()))
_LIBRARY.impl("write_to_cache", _write_to_cache, "CompositeExplicitAutograd")
torch.library.register_fake("opsetta::write_to_cache", _shape_of_cache, lib=_LIBRARY)


def write_to_cache(past: torch.Tensor, update: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Call the operator `opsetta::write_to_cache`; see `_write_to_cache`."""
    written: torch.Tensor = torch.ops.opsetta.write_to_cache(past, update, positions)
    return written


def _group_query_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    past_key: torch.Tensor,
    past_value: torch.Tensor,
    attention_mask: torch.Tensor,
    head_sink: torch.Tensor | None,
    scale: float,
    window: int,
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute causal attention to the past and the new tokens, and the cache with both.

    The semantics are those of GroupQueryAttention (docs/ContribOperators.md of onnxruntime), for sequences
    without padding on the left.

    Args:
        query: `[batch, heads, tokens, channels]`.
        key: the new keys, `[batch, key heads, tokens, channels]`.
        value: the new values, of the shape of `key`.
        past_key: `[batch, key heads, past, channels]`.
        past_value: of the shape of `past_key`.
        attention_mask: `[batch, past + tokens]`; read only by onnxruntime, and its shape by the fake kernel.
        head_sink: for each head, one more score in the denominator of the softmax; None for none.
        scale: the factor of the scores.
        window: the number of keys that a query attends to, its own included; -1 for all.
        softcap: the limit of the scores; 0 for none.

    Returns:
        The results of the heads, of the shape of `query`, and all keys and all values.
    """
    keys, values = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
    groups = query.shape[1] // key.shape[1]
    scores = query @ keys.repeat_interleave(groups, dim=1).mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    columns = torch.arange(keys.shape[2], device=query.device)
    rows = columns[past_key.shape[2] :, None]
    excluded = columns > rows
    if window > 0:
        excluded = excluded | (columns <= rows - window)
    scores = scores.masked_fill(excluded, float("-inf")).float()
    if head_sink is not None:
        sinks = head_sink.float().reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    return weights.to(values.dtype) @ values.repeat_interleave(groups, dim=1), keys, values


def _shapes_of_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    past_key: torch.Tensor,
    past_value: torch.Tensor,
    attention_mask: torch.Tensor,
    *options: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, heads, _, channels = key.shape
    shape = (batch, heads, attention_mask.shape[1], channels)
    return torch.empty_like(query), key.new_empty(shape), value.new_empty(shape)


_LIBRARY.define("group_query_attention" + torch.library.infer_schema(_group_query_attention, mutates_args=()))
_LIBRARY.impl("group_query_attention", _group_query_attention, "CompositeExplicitAutograd")
torch.library.register_fake("opsetta::group_query_attention", _shapes_of_attention, lib=_LIBRARY)


def group_query_attention(*arguments: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Call the operator `opsetta::group_query_attention`; see `_group_query_attention`."""
    output, keys, values = torch.ops.opsetta.group_query_attention(*arguments)
    return output, keys, values
