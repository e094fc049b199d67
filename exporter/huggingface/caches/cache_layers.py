"""What the layers of an exported cache do in place of those of transformers, without writes to inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from .cache_settings import DYNAMIC, DYNAMIC_FULL, CacheSettings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


_IS_NEEDLESS = "_ignore_causal_mask_sdpa"
"""The function of transformers that tells whether a mask can be left out."""
_RECURRENT_MASK = "create_recurrent_attention_mask"
"""The function of transformers that cuts the mask of all positions to that of the tokens of a call."""
_CAUSAL_MASK = "create_causal_mask"
"""The function of transformers that makes masks without a window."""
_WINDOW_MASKS = ("create_sliding_window_causal_mask", "create_masks_for_generate")
"""Its functions that make masks with a window."""


@dataclasses.dataclass(frozen=True)
class CachePositions:
    """Where the tokens of a call are in a cache.

    Attributes:
        past_length: the number of tokens before them.
        cache_position: the positions of a static cache to write to, `[sequence]`, one after the other.
        attention_mask: of the past and of the tokens, for layers that read lengths from it.
    """

    past_length: int = 0
    cache_position: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None


class _Layer(Protocol):
    """What the methods below use of a layer."""

    keys: torch.Tensor
    values: torch.Tensor
    conv_states: dict[int, torch.Tensor]
    recurrent_states: dict[int, torch.Tensor]


def bind_methods(layer: object, settings: CacheSettings, positions: CachePositions) -> None:
    """Give a copy of a layer the methods of an exported cache.

    Args:
        layer: a part of a cache, which may have no methods to replace.
        settings: of the cache.
        positions: of the tokens of the call.
    """
    from transformers.cache_utils import CacheLayerMixin, DynamicLayer

    methods: dict[str, Callable[..., object]] = {}
    is_sliding = getattr(layer, "is_sliding", None) is True
    if settings.is_static and isinstance(layer, CacheLayerMixin):
        methods |= _static_methods(settings.length, positions)
    elif is_sliding and settings.implementation == DYNAMIC:
        vars(layer)["cumulative_length"] = positions.past_length
        methods |= {"get_mask_sizes": _window_sizes, "update": _append_to_window}
    elif is_sliding and settings.limits_reads:
        vars(layer)["cumulative_length"] = positions.past_length
        methods |= {"get_mask_sizes": _read_sizes, "update": _append_and_read_window}
    elif is_sliding:
        names = ("update", "get_mask_sizes", "get_seq_length")
        methods |= {name: getattr(DynamicLayer, name) for name in names}
    if settings.shares_buffer and isinstance(layer, CacheLayerMixin):
        methods["update"] = _pass_on
    if hasattr(layer, "conv_states"):
        methods["update_conv_state"] = _append_to_conv_state
        methods["update_recurrent_state"] = _replace_recurrent_state
    vars(layer).update({name: types.MethodType(method, layer) for name, method in methods.items()})


@contextlib.contextmanager
def written_masks(settings: CacheSettings) -> Iterator[None]:
    """Within the context, transformers writes the masks of caches that do not keep all positions.

    It would leave out masks that equal those of a causal attention, which depends on lengths and offsets.
    """
    from transformers import masking_utils

    from ...torch_boundary.process.process_state import replace_attribute

    keeps_all = settings.implementation == DYNAMIC_FULL and not settings.limits_reads
    if keeps_all or not hasattr(masking_utils, _IS_NEEDLESS):
        yield
        return
    with replace_attribute(masking_utils, _IS_NEEDLESS, lambda *arguments, **options: False):
        yield


def masks_windows(model: PreTrainedModel) -> bool:
    """Whether the masks of a decoder exclude what is outside of a sliding window.

    The masks of Moshi do not: it forgets the tokens that its cache drops, and no others.
    """
    functions = vars(sys.modules[type(model.get_decoder()).__module__])
    return _CAUSAL_MASK not in functions or any(name in functions for name in _WINDOW_MASKS)


@contextlib.contextmanager
def masks_at_positions(model: PreTrainedModel, cache_position: torch.Tensor | None) -> Iterator[None]:
    """Within the context, recurrent layers read the mask at the positions of the tokens.

    transformers takes the last columns of the mask, which are those of the tokens unless the cache is static.

    Args:
        model: whose modules' code calls the function of transformers.
        cache_position: the positions of the tokens; None unless the cache is static.
    """
    from ...torch_boundary.process.process_state import replace_attribute

    def create_mask(
        config: object,
        inputs_embeds: object,
        attention_mask: torch.Tensor | None,
        *options: object,
        **keywords: object,
    ) -> torch.Tensor | None:
        if attention_mask is None or attention_mask.ndim != 2 or cache_position is None:
            return None
        return attention_mask.index_select(1, cache_position)

    names = sorted({type(module).__module__ for module in model.modules()})
    with contextlib.ExitStack() as stack:
        for name in names if cache_position is not None else []:
            if hasattr(sys.modules[name], _RECURRENT_MASK):
                stack.enter_context(replace_attribute(sys.modules[name], _RECURRENT_MASK, create_mask))
        yield


def _window_sizes(self: _Layer, query: torch.Tensor | int) -> tuple[int, int]:
    """`get_mask_sizes` of a layer that keeps a window, without a question about its length.

    Args:
        query: the number of new tokens; their positions before transformers 5.

    Returns:
        The number of keys, and the position of the first one.
    """
    import torch

    count = query.shape[0] if isinstance(query, torch.Tensor) else query
    kept = self.keys.shape[-2]
    past_length: int = vars(self)["cumulative_length"]
    return kept + count, past_length - kept


def _append_to_window(
    self: _Layer, key_states: torch.Tensor, value_states: torch.Tensor, *options: object, **keywords: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """`update` of a layer that keeps a window, without a question about its length."""
    import torch

    window: int = vars(self)["sliding_window"]
    keys = torch.cat([self.keys, key_states], dim=-2)
    values = torch.cat([self.values, value_states], dim=-2)
    length = keys.shape[-2]
    # The next token attends to itself, and to one position less than the window.
    kept = torch.sym_min(length, window - 1)
    self.keys, self.values = (tensor.narrow(2, length - kept, kept) for tensor in (keys, values))
    return keys, values


def _read_sizes(self: _Layer, query: torch.Tensor | int) -> tuple[int, int]:
    """`get_mask_sizes` of a layer that keeps all positions and reads a window.

    Args:
        query: as for `_window_sizes`.
    """
    import torch

    count = query.shape[0] if isinstance(query, torch.Tensor) else query
    past_length: int = vars(self)["cumulative_length"]
    read = torch.sym_min(past_length, vars(self)["sliding_window"] - 1)
    return read + count, past_length - read


def _append_and_read_window(
    self: _Layer, key_states: torch.Tensor, value_states: torch.Tensor, *options: object, **keywords: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """`update` of a layer that keeps all positions, and returns those that a cache with a window keeps."""
    import torch

    count, _ = _read_sizes(self, key_states.shape[-2])
    self.keys = torch.cat([self.keys, key_states], dim=-2)
    self.values = torch.cat([self.values, value_states], dim=-2)
    first = self.keys.shape[-2] - count
    return self.keys.narrow(2, first, count), self.values.narrow(2, first, count)


def _pass_on(
    self: _Layer, key_states: torch.Tensor, value_states: torch.Tensor, *options: object, **keywords: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """`update` of a layer that attention writes to."""
    return key_states, value_states


def _static_methods(length: int, positions: CachePositions) -> dict[str, Callable[..., object]]:
    """The methods of a layer with a fixed number of positions.

    Layers with a sliding window keep all positions, too: the mask excludes the old ones.
    """
    import torch

    cache_position = positions.cache_position
    assert cache_position is not None

    def update(
        self: _Layer,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *options: object,
        **keywords: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        from ...torch_boundary.replacements.models.key_value_caches import write_to_cache

        self.keys = write_to_cache(self.keys, key_states, cache_position)
        self.values = write_to_cache(self.values, value_states, cache_position)
        return self.keys, self.values

    def get_mask_sizes(self: _Layer, query: object) -> tuple[int, int]:
        return length, 0

    def get_seq_length(self: _Layer, *options: object) -> torch.Tensor:
        # Models add this to the numbers of the tokens, which gives the positions for no tokens, too.
        return cache_position - torch.arange(cache_position.shape[0], device=cache_position.device)

    return {"update": update, "get_mask_sizes": get_mask_sizes, "get_seq_length": get_seq_length}


def _append_to_conv_state(
    self: _Layer, conv_states: torch.Tensor, state_idx: int = 0, **options: object
) -> torch.Tensor:
    """What `update_conv_state` of a layer computes, without writing to a tensor."""
    import torch

    state = self.conv_states[state_idx]
    full = torch.cat([state, conv_states], dim=-1)
    self.conv_states[state_idx] = full[..., -state.shape[-1] :].to(state.dtype)
    return full


def _replace_recurrent_state(
    self: _Layer, recurrent_states: torch.Tensor, state_idx: int = 0, **options: object
) -> torch.Tensor:
    """What `update_recurrent_state` of a layer computes, without writing to a tensor."""
    self.recurrent_states[state_idx] = recurrent_states.to(self.recurrent_states[state_idx].dtype)
    return self.recurrent_states[state_idx]
