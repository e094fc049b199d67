"""The settings of transformers.js: entries of config.json."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..graphs import CACHE
from .record import Entries, FileFacts

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# What users of transformers.js call the variants.
_TYPES = {"_fp16": "fp16", "_q4f16": "q4f16"}


def transformers_js_entries(
    source: pathlib.Path, config: PretrainedConfig, files: Sequence[FileFacts]
) -> Entries:
    """Which files have external data, and the types of caches that are not in float32."""
    settings: dict[str, object] = {}
    data_files = {file.name: 1 for file in files if file.data_name is not None}
    if data_files:
        settings["use_external_data_format"] = data_files
    cache_types = {
        _TYPES[file.variant.suffix]: file.variant.dtype
        for file in files
        if file.variant.suffix in _TYPES
        and any(str(value.name).startswith(CACHE) for value in file.model.graph.inputs)
    }
    if cache_types:
        # Releases before 4 do not read the types of the inputs.
        settings["kv_cache_dtype"] = cache_types
    return {"config.json": {"transformers.js_config": settings}}
