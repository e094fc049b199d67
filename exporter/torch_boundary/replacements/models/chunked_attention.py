"""Attention in chunks of transformers' encoders of long texts, for any number of chunks.

CANINE attends to one chunk after the other in a loop over the text. Longformer and LED cut the text into
overlapping chunks with `as_strided`, and pad it if its length is no multiple of a chunk. Here the chunks are
an axis of the tensors, and padding may be 0 positions long. Longformer also counts the separators of a text
to find the end of its question, and refuses texts without exactly three; here the first one is taken.

Semantics: transformers, `CanineAttention`, `LongformerSelfAttention`, `LEDEncoderSelfAttention` and
`_get_question_end_index` of Longformer.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...process.process_state import replace_attribute
from .model_methods import owner_of, replace_methods

_CANINE = ("canine", "CanineAttention")


def _attend_in_chunks(
    self: Any,
    hidden_states: Any,
    attention_mask: torch.Tensor | None,
    output_attentions: bool | None,
) -> tuple[torch.Tensor] | None:
    """What CANINE's attention returns, if it attends in chunks that do not overlap and to nothing else."""
    width = self.attend_from_chunk_width
    sizes = (self.attend_from_chunk_stride, self.attend_to_chunk_width, self.attend_to_chunk_stride)
    attends_to_first = self.always_attend_to_first_position or self.first_position_attends_to_all
    if not self.local or output_attentions or attends_to_first or set(sizes) != {width}:
        return None
    length = hidden_states.shape[1]
    count = (length + width - 1) // width
    added = count * width - length
    attention = self.self
    padded = torch.nn.functional.pad(hidden_states, (0, 0, 0, added)).unflatten(1, (count, width))
    # `[batch, heads, chunks, width, features of a head]`
    query, key, value = (
        project(padded)
        .unflatten(3, (attention.num_attention_heads, attention.attention_head_size))
        .permute(0, 3, 1, 2, 4)
        for project in (attention.query, attention.key, attention.value)
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(attention.attention_head_size)
    if attention_mask is not None:
        squares = torch.nn.functional.pad(attention_mask, (0, added, 0, added))
        squares = squares.unflatten(2, (count, width)).unflatten(1, (count, width))
        # Those of a chunk and itself, `[batch, chunks, width, width]`.
        mask = squares.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
        scores = scores + ((1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min)[:, None]
    exists = (torch.arange(count * width, device=scores.device) < length).unflatten(0, (count, width))
    scores = scores.masked_fill(~exists[:, None], -torch.inf)
    context = attention.dropout(scores.softmax(-1)) @ value
    joined = context.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)[:, :length]
    return (self.output(joined, hidden_states),)


def _blocks_with_neighbours(states: torch.Tensor, width: int, value: float) -> torch.Tensor:
    """Blocks of positions, each between the block before and the one behind it.

    Args:
        states: `[batch, length, heads, features]`, whose length is a multiple of `width`.
        width: of a block.
        value: of the positions before the first block, and behind the last one.

    Returns:
        `[batch, heads, blocks, 3 * width, features]`.
    """
    padded = torch.nn.functional.pad(states.transpose(1, 2), (0, 0, width, width), value=value)
    blocks = padded.unflatten(2, (-1, width))
    count = states.shape[1] // width
    return torch.cat([blocks.narrow(2, first, count) for first in range(3)], dim=3)


def _score_window(self: Any, query: torch.Tensor, key: torch.Tensor, window_overlap: int) -> torch.Tensor:
    """The products of each position with those around it: `[batch, length, heads, window]`."""
    length = query.shape[1]
    queries = query.transpose(1, 2).unflatten(2, (-1, window_overlap))
    scores = queries @ _blocks_with_neighbours(key, window_overlap, 0.0).transpose(-1, -2)
    # Row `i` of a block begins with column `i`.
    rows = torch.arange(window_overlap, device=query.device)[:, None]
    offsets = torch.arange(2 * window_overlap + 1, device=query.device)
    window = scores.gather(-1, (rows + offsets).expand(*scores.shape[:3], -1, -1))
    positions = torch.arange(length, device=query.device)[:, None] + offsets - window_overlap
    exists = (positions >= 0) & (positions < length)
    masked: torch.Tensor = window.flatten(2, 3).transpose(1, 2).masked_fill(~exists[:, None], -torch.inf)
    return masked


def _weigh_window(
    self: Any, attn_probs: torch.Tensor, value: torch.Tensor, window_overlap: int
) -> torch.Tensor:
    """The sums of the values around each position by their weights, `[batch, length, heads, features]`."""
    weights = attn_probs.transpose(1, 2).unflatten(2, (-1, window_overlap))
    batch, heads, blocks, _, width = weights.shape
    # Row `i` is moved by `i` columns, for each row is one column longer than the result's.
    longer = torch.nn.functional.pad(weights, (0, window_overlap)).flatten(3)
    moved = longer[..., : window_overlap * (width + window_overlap - 1)]
    moved = moved.reshape(batch, heads, blocks, window_overlap, width + window_overlap - 1)
    values = _blocks_with_neighbours(value, window_overlap, 0.0)
    return (moved @ values).flatten(2, 3).transpose(1, 2)


def _pad_longformer(
    self: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    token_type_ids: torch.Tensor,
    position_ids: torch.Tensor,
    inputs_embeds: torch.Tensor,
    pad_token_id: int,
) -> tuple[Any, ...]:
    states, window = input_ids if input_ids is not None else inputs_embeds, _window_of(self.config)
    added = (window - states.shape[1] % window) % window
    pad = torch.nn.functional.pad
    if input_ids is not None:
        input_ids = pad(input_ids, (0, added), value=pad_token_id)
    if position_ids is not None:
        position_ids = pad(position_ids, (0, added), value=pad_token_id)
    if inputs_embeds is not None:
        padding = inputs_embeds.new_full((states.shape[0], added), self.config.pad_token_id, dtype=torch.long)
        inputs_embeds = torch.cat([inputs_embeds, self.embeddings(padding)], dim=-2)
    attention_mask = pad(attention_mask, (0, added), value=0)
    token_type_ids = pad(token_type_ids, (0, added), value=0)
    return added, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds


def _window_of(config: Any) -> int:
    """The largest window of the layers."""
    window = config.attention_window
    return int(window if isinstance(window, int) else max(window))


def _pad_led(
    self: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    inputs_embeds: torch.Tensor,
    pad_token_id: int,
) -> tuple[Any, ...]:
    states, window = input_ids if input_ids is not None else inputs_embeds, _window_of(self.config)
    # The encoder cuts `-added` positions off if there are any, a branch that 0 must not reach.
    added = window - states.shape[1] % window
    pad = torch.nn.functional.pad
    if input_ids is not None:
        input_ids = pad(input_ids, (0, added), value=pad_token_id)
    if inputs_embeds is not None:
        padding = inputs_embeds.new_full((states.shape[0], added), self.config.pad_token_id, dtype=torch.long)
        inputs_embeds = torch.cat([inputs_embeds, self.embed_tokens(padding)], dim=-2)
    return added, input_ids, pad(attention_mask, (0, added), value=False), inputs_embeds


def _get_question_end_index(input_ids: torch.Tensor, sep_token_id: int) -> torch.Tensor:
    """The position of the first separator of each text, `[batch]`."""
    return input_ids.eq(sep_token_id).int().argmax(dim=1)


@contextlib.contextmanager
def chunk_any_count() -> Iterator[None]:
    """Replace the functions of transformers within the context, where their modules are imported."""
    original: Callable[..., Any] | None = getattr(owner_of(*_CANINE), "forward", None)

    def attend(
        self: Any,
        hidden_states: tuple[torch.Tensor],
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> Any:
        result = _attend_in_chunks(self, hidden_states, attention_mask, output_attentions)
        assert original is not None  # This function replaces it.
        return original(self, hidden_states, attention_mask, output_attentions) if result is None else result

    windows: dict[tuple[str, str, str], Callable[..., Any]] = {
        (model_type, class_name, name): function
        for model_type, class_name in (
            ("longformer", "LongformerSelfAttention"),
            ("led", "LEDEncoderSelfAttention"),
        )
        for name, function in (
            ("_sliding_chunks_query_key_matmul", _score_window),
            ("_sliding_chunks_matmul_attn_probs_value", _weigh_window),
        )
    }
    padding: dict[tuple[str, str, str], Callable[..., Any]] = {
        ("longformer", "LongformerModel", "_pad_to_window_size"): _pad_longformer,
        ("led", "LEDEncoder", "_pad_to_window_size"): _pad_led,
    }
    longformer = sys.modules.get("transformers.models.longformer.modeling_longformer")
    ends_question: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if hasattr(longformer, _get_question_end_index.__name__):
        ends_question = replace_attribute(
            longformer, _get_question_end_index.__name__, _get_question_end_index
        )
    with (
        ends_question,
        replace_methods({(*_CANINE, "forward"): attend}, frozenset({"attend_from_chunk_stride", "cat"})),
        replace_methods(windows, frozenset({"einsum", "transpose"})),
        replace_methods(padding, frozenset({"pad", "new_full"})),
    ):
        yield
