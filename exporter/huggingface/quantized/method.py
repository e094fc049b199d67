"""The method with which the weights of a folder were quantized, as its configuration describes it."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from ....registration import UsageError
from ..folder import CONFIG, read_json
from .formats import FORMATS, LayerFormat, LayerSettings

_OWN_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Where older releases of AutoGPTQ and AutoAWQ describe their method."""
_AUTO_ROUND = {"gptq": ("gptq", "gptq"), "awq": ("awq", "gemm")}


@dataclasses.dataclass(frozen=True)
class QuantizationMethod:
    """A method that is supported.

    Attributes:
        name: of the method and its format.
        format: of the quantized layers.
        settings: of the quantized layers.
    """

    name: str
    format: LayerFormat
    settings: LayerSettings


def method_of(folder: pathlib.Path) -> QuantizationMethod | None:
    """The method of a folder; None if its weights are not quantized.

    Raises:
        UsageError: the method is not supported.
        ModelFileError: a configuration cannot be read.
    """
    config = read_json(folder / CONFIG)
    entries: Any = config.get("quantization_config") or config.get("compression_config")
    # config.json takes precedence: newer releases write both.
    for file, name in _OWN_FILES.items():
        if not entries and (folder / file).is_file():
            entries = {"quant_method": name, **read_json(folder / file)}
    if not isinstance(entries, dict):
        return None
    name = str(entries.get("quant_method", ""))
    format_name = str(
        entries.get("checkpoint_format") or entries.get("format") or entries.get("version") or ""
    )
    method, format_name = _resolve_names(name, format_name.lower(), str(entries.get("packing_format", "")))
    layer_format = FORMATS.get((method, format_name))
    problem = None if method != "compressed-tensors" else _compression_problem(entries)
    if layer_format is None or problem is not None:
        supported = ", ".join(" ".join(names) for names in FORMATS)
        full_name = " ".join(filter(None, (method, format_name, problem)))
        raise UsageError(
            f"the weights of '{folder}' are quantized ({full_name}), and the supported methods are "
            f"{supported}: export a folder with the original weights, and pass --quantize if wanted"
        )
    return QuantizationMethod(f"{method} {format_name}", layer_format, _settings_of(entries))


def _resolve_names(method: str, format_name: str, packing: str) -> tuple[str, str]:
    """The method and its format; AutoRound writes the formats of others."""
    if method in ("auto-round", "intel/auto-round"):
        name = packing.rpartition(":")[2].removeprefix("auto_")
        return _AUTO_ROUND.get(name, (method, packing))
    default = {"gptq": "gptq", "awq": "gemm"}.get(method, "")
    return method, format_name or default


def _settings_of(entries: Mapping[str, Any]) -> LayerSettings:
    """The settings; older configurations of AWQ have other names."""
    groups = [group.get("weights") or {} for group in (entries.get("config_groups") or {}).values()]
    if groups:
        bits = tuple(dict.fromkeys(int(group.get("num_bits") or 8) for group in groups))
        sizes = {int(group.get("group_size") or -1) for group in groups}
        return LayerSettings(bits, sizes.pop() if len(sizes) == 1 else -1)
    bits_entry = entries.get("bits") or entries.get("w_bit") or 4
    size = entries.get("group_size") or entries.get("q_group_size") or -1
    return LayerSettings((int(bits_entry),), int(size))


def _compression_problem(entries: Mapping[str, Any]) -> str | None:
    """What a configuration of compressed-tensors asks for besides integers as weights."""
    for group in (entries.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        if group.get("input_activations") or group.get("output_activations"):
            return "with quantized activations"
        if weights.get("type", "int") != "int":
            return f"with weights of the type {weights['type']}"
    if entries.get("kv_cache_scheme"):
        return "with a quantized cache"
    if entries.get("transform_config"):
        return "with transforms"
    sparsity = entries.get("sparsity_config") or {}
    return "with sparse weights" if sparsity.get("format", "dense") != "dense" else None
