"""The settings of onnxruntime-genai: genai_config.json."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....registration import UsageError
from ..graphs import CACHE, PRESENT
from ..settings import read_settings
from .record import Entries, FileFacts

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_TYPE = "decoder"
"""The class of onnxruntime-genai for decoders that need nothing of their own."""
GENAI_CONFIG = "genai_config.json"
_CACHE_NAME = re.compile(rf"{CACHE}\.\d+\.(key|value)")


def genai_entries(source: pathlib.Path, config: PretrainedConfig, files: Sequence[FileFacts]) -> Entries:
    """What onnxruntime-genai must know of a decoder.

    Raises:
        UsageError: the cache of the model has other tensors than keys and values of one shape.
    """
    [file] = files
    inputs = {str(value.name): value for value in file.model.graph.inputs}
    cache = {name: value for name, value in inputs.items() if name.startswith(CACHE)}
    others = [name for name in cache if not _CACHE_NAME.fullmatch(name)]
    # Keys and values are [batch, heads, length, width].
    shapes = {tuple(value.shape or ())[1::2] for value in cache.values()}
    if others or len(shapes) != 1:
        problem = others[0] if others else "keys and values of several shapes"
        raise UsageError(
            f"the layout genai is for caches of keys and values of one shape, and the cache has {problem}: "
            "export without a layout"
        )
    [(heads, width)] = shapes
    text_config = config.get_text_config(decoder=True)
    settings = read_settings(source)
    length = int(getattr(text_config, "max_position_embeddings", None) or 2048)
    plain_inputs = {name: name for name in inputs if not name.startswith(CACHE)}
    first_token = getattr(text_config, "bos_token_id", None)
    return {
        GENAI_CONFIG: {
            "model": {
                "type": _TYPE,
                "vocab_size": text_config.vocab_size,
                "context_length": length,
                "bos_token_id": settings.pad if first_token is None else first_token,
                "eos_token_id": list(settings.ends) or [settings.pad],
                "pad_token_id": settings.pad,
                "decoder": {
                    "filename": file.name,
                    "session_options": {"provider_options": []},
                    "hidden_size": text_config.hidden_size,
                    "num_hidden_layers": len(cache) // 2,
                    "num_attention_heads": text_config.num_attention_heads,
                    "num_key_value_heads": heads,
                    "head_size": width,
                    "inputs": {
                        **plain_inputs,
                        "past_key_names": f"{CACHE}.%d.key",
                        "past_value_names": f"{CACHE}.%d.value",
                    },
                    "outputs": {
                        "logits": "logits",
                        "present_key_names": f"{PRESENT}.%d.key",
                        "present_value_names": f"{PRESENT}.%d.value",
                    },
                },
            },
            "search": {
                "max_length": length,
                "repetition_penalty": settings.repetition_penalty,
                # GroupQueryAttention appends to the buffer of the past; other attention returns a new cache.
                "past_present_share_buffer": any(
                    node.op_type == "GroupQueryAttention" for node in file.model.graph
                ),
            },
        }
    }
