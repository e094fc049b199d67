"""The fingerprint of an environment: everything on which the format of packed weights depends."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Fingerprint = dict[str, Any]
"""The fields of an environment by name: text, numbers, lists and dicts, as in JSON. None means unknown."""

LIMITS = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS")
"""Environment variables that keep libraries from using instructions that the processor has."""

PACKING_ENTRY = "session.disable_prepacking"
"""The entry with which a session reads its weights where they are, and packs none."""

SESSION_ENTRIES = (
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "mlas.use_lut_gemm",
    "optimization.disable_specified_optimizers",
    "optimization.enable_gelu_approximation",
    "optimization.enable_mixed_gemm_int8_activations",
    PACKING_ENTRY,
    "session.disable_quant_qdq",
    "session.qdqisint8allowed",
    "session.set_denormal_as_zero",
    "session.use_device_allocator_for_initializers",
    "session.x64quantprecision",
)
"""The configuration entries of a session that may change its graph or the format of its weights."""

_ADVISORY = frozenset({"threads"})
"""Fields that are noted, but do not keep packed weights from being used."""
_CPUINFO = pathlib.Path("/proc/cpuinfo")
_INSTRUCTION_SETS = {"processor_features", "processor_flags"}
_USED_BY_KERNELS = re.compile(
    # x86: vectors, fused products, half precision, and tiles; `pni` is SSE3.
    r"(sse|ssse3|pni$|avx|fma|f16c$|amx|xop$"
    # Arm: vectors, half precision, dot products, matrix products, and scalable vectors.
    r"|neon|asimd|fphp$|bf16$|i8mm$|sve|sme)",
    re.IGNORECASE,
)
"""The instruction sets for which onnxruntime's MLAS, oneDNN and ATen have kernels.

Kernels and the versions of numpy list others, which no format of weights depends on.
"""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A field of the fingerprint that changed since the weights were packed.

    Attributes:
        field: its name.
        saved: its value there, or of a list what only that has.
        here: likewise in this process.
    """

    field: str
    saved: str
    here: str

    def __str__(self) -> str:
        return f"{self.field} (saved {self.saved}, here {self.here})"


def machine() -> Fingerprint:
    """The fields of this machine and process, whichever library packs the weights."""
    return {
        "architecture": platform.machine() or None,
        "byte_order": sys.byteorder,
        "operating_system": sys.platform,
        "processor_features": _features(),
        "processor_flags": _flags(),
        "processor_limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
    }


def session(options: Any, providers: Sequence[object], level: str) -> Fingerprint:
    """The fields of an onnxruntime session in this process.

    Args:
        options: its `onnxruntime.SessionOptions`.
        providers: its execution providers, names or pairs of a name and options.
        level: its graph optimization level.
    """
    import onnxruntime

    return {
        **machine(),
        "onnxruntime": onnxruntime.__version__,
        "onnxruntime_build": onnxruntime.get_build_info(),
        "providers": [_provider(provider) for provider in providers],
        "graph_optimization_level": level,
        "session_entries": session_entries(options),
        "threads": options.intra_op_num_threads,
    }


def differences(saved: Mapping[str, object], current: Mapping[str, object]) -> list[Difference]:
    """The fields that differ or are unknown on either side, except advisory ones."""
    changed = []
    for field in [*current, *(name for name in saved if name not in current)]:
        before, after = saved.get(field), current.get(field)
        if field in _INSTRUCTION_SETS:
            before, after = _kernel_sets(before), _kernel_sets(after)
        # An unknown field may differ, so it counts as different even from another unknown one.
        if field in _ADVISORY or (before == after and before is not None):
            continue
        changed.append(
            Difference(field, _describe_difference(before, after), _describe_difference(after, before))
        )
    return changed


def _kernel_sets(names: object) -> object:
    """The instruction sets of a list that kernels use; the whole list of an unknown architecture."""
    if not isinstance(names, list):
        return names
    return [name for name in names if isinstance(name, str) and _USED_BY_KERNELS.match(name)] or names


def advisory(saved: Mapping[str, object], current: Mapping[str, object]) -> list[Difference]:
    """The advisory fields that differ."""
    return [
        Difference(field, str(saved.get(field)), str(current.get(field)))
        for field in sorted(_ADVISORY)
        if saved.get(field) != current.get(field)
    ]


def _features() -> list[str] | None:
    """The instruction sets that the processor itself reports, emulated ones included; None if unknown."""
    # numpy asks the processor, so an emulator's answer counts; NPY_DISABLE_CPU_FEATURES hides some.
    umath = getattr(getattr(np, "_core", np), "_multiarray_umath", None)
    features = getattr(umath, "__cpu_features__", None)
    if not isinstance(features, dict):
        return None
    return sorted(name for name, present in features.items() if present) or None


def _flags() -> list[str] | None:
    """The processor's flags as Linux lists them; None elsewhere."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return sorted(set(value.split())) or None
    return None


def _provider(provider: Any) -> list[Any]:
    if isinstance(provider, str):
        return [provider, {}]
    name, options = provider
    # JSON has lists, not tuples, and onnxruntime reads all options as text.
    return [name, {str(key): str(value) for key, value in sorted(options.items())}]


def session_entries(options: Any) -> dict[str, str]:
    """The entries of a session's options that differ from the default and change its graph or weights."""
    entries = {}
    for key in SESSION_ENTRIES:
        try:
            entries[key] = options.get_session_config_entry(key)
        except RuntimeError:
            # onnxruntime raises for an entry that was not set.
            continue
    return entries


def _describe_difference(field_value: object, counterpart: object) -> str:
    """Format a value for a message; of a list, only the items that its counterpart lacks."""
    if field_value is None:
        return "unknown"
    if (
        isinstance(field_value, list)
        and isinstance(counterpart, list)
        and all(isinstance(item, str) for item in field_value)
    ):
        more = [item for item in field_value if item not in counterpart]
        return f"also {' '.join(more)}" if more else "fewer"
    if isinstance(field_value, dict):
        return ", ".join(f"{key}={value}" for key, value in field_value.items()) or "none"
    return str(field_value)
