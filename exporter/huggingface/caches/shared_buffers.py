"""Attention of a decoder as GroupQueryAttention of onnxruntime, which writes keys and values into its cache.

The attention of transformers is a table of functions by name, to which a name is added while a model runs.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..graphs import trial_run

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_NAME = "opsetta_shared_buffer"
_IMPLEMENTATION = "_attn_implementation"
"""The entry of configurations with the name of a function of attention."""
_HEAD_MULTIPLE = 8
"""onnxruntime's kernel takes heads of multiples of this size."""
_IGNORED = frozenset({"dropout", "use_cache", "position_ids", "is_causal", "output_attentions"})
"""Arguments that change nothing in inference with a cache."""
_SUPPORTED = frozenset({"scaling", "sliding_window", "softcap", "s_aux"})


def supports_shared_buffer(model: PreTrainedModel, tokens: torch.Tensor) -> bool:
    """Whether all layers compute what GroupQueryAttention does.

    Args:
        model: whose weights need no data.
        tokens: of a trial run.
    """
    reads_mask = "attention_mask" in inspect.signature(type(model).forward).parameters
    if not (reads_mask and getattr(model, "_supports_attention_backend", False)):
        return False
    is_supported: list[bool] = []

    def examine(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        # Options of the model that are off come here, too.
        unsupported = {name for name, item in options.items() if item is not None and item is not False}
        unsupported -= _IGNORED | _SUPPORTED
        is_supported.append(
            attention_mask is None
            and not unsupported
            and options.get("is_causal", getattr(module, "is_causal", True)) in (True, None)
            and isinstance(getattr(module, "layer_idx", None), int)
            and key.shape == value.shape
            and query.shape[1] % key.shape[1] == query.shape[3] % _HEAD_MULTIPLE == 0
        )
        windows[getattr(module, "layer_idx", None)] = options.get("sliding_window")
        return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None

    # A trial run may begin anew with data.
    windows: dict[int | None, int | None] = {}
    with attention_replaced(model.config, examine):
        result = trial_run(model, {"input_ids": tokens})
    layers = getattr(result.get("past_key_values"), "layers", ())
    # The cache tells what the masks exclude: a window, or a chunk that attention does not know of.
    cached_windows = {
        index: layer.sliding_window if getattr(layer, "is_sliding", False) else None
        for index, layer in enumerate(layers)
    }
    return all(is_supported) and bool(layers) and cached_windows == windows


@contextlib.contextmanager
def attention_in_buffers(model: PreTrainedModel, cache: object, mask: torch.Tensor) -> Iterator[None]:
    """Within the context, attention writes to the layers of a cache.

    Args:
        model: that runs.
        cache: whose layers have their tensors from before the call.
        mask: of the past and of the tokens; texts begin without padding.
    """

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        **options: object,
    ) -> tuple[torch.Tensor, None]:
        from ...torch_boundary.replacements.models.key_value_caches import group_query_attention

        layer = getattr(cache, "layers")[module.layer_idx]  # noqa: B009
        output, layer.keys, layer.values = group_query_attention(
            query,
            key,
            value,
            layer.keys,
            layer.values,
            mask,
            s_aux,
            query.shape[-1] ** -0.5 if scaling is None else scaling,
            sliding_window or -1,
            softcap or 0.0,
        )
        return output.transpose(1, 2), None

    with attention_replaced(model.config, attend):
        yield


@contextlib.contextmanager
def attention_replaced(config: object, attend: Callable[..., object], name: str = _NAME) -> Iterator[None]:
    """Within the context, all layers call a function, without a mask: the table of masks lacks its name.

    Args:
        config: of the model that runs.
        attend: the function.
        name: of the function, which tells transformers about its arguments.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    original_name = getattr(config, _IMPLEMENTATION)
    ALL_ATTENTION_FUNCTIONS[name] = attend
    try:
        setattr(config, _IMPLEMENTATION, name)
        yield
    finally:
        setattr(config, _IMPLEMENTATION, original_name)
        del ALL_ATTENTION_FUNCTIONS[name]
