"""Collects and compares environments: everything on which the format of packed weights depends."""

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
"""The fields of an environment by name, as JSON values; None means unknown."""

LIMITS = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS")
"""Environment variables that keep libraries from using instructions that the processor has."""

PACKING_ENTRY = "session.disable_prepacking"
"""The session entry that makes onnxruntime read weights as they are, without packing them."""

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
"""Fields that are recorded, but whose changes do not prevent the use of packed weights."""
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

Linux kernels and versions of numpy also list others, on which no weight format depends.
"""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A field of the fingerprint that changed since the weights were packed.

    Attributes:
        field: the name of the field.
        saved: the value when the weights were packed; for a list, only the items missing here.
        here: the value in this process; for a list, only the items missing there.
    """

    field: str
    saved: str
    here: str

    def __str__(self) -> str:
        return f"{self.field} (saved {self.saved}, here {self.here})"


def machine() -> Fingerprint:
    """Return the fields of this machine and process that matter for every packing library."""
    return {
        "architecture": platform.machine() or None,
        "byte_order": sys.byteorder,
        "operating_system": sys.platform,
        "processor_features": _features(),
        "processor_flags": _flags(),
        "processor_limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
    }


def session(options: Any, providers: Sequence[object], level: str) -> Fingerprint:
    """Return the fields of an onnxruntime session in this process.

    Args:
        options: the `onnxruntime.SessionOptions` of the session.
        providers: the execution providers, as names or pairs of a name and options.
        level: the graph optimization level.
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
    """Return the fields that differ or are unknown in one of the environments, except advisory fields."""
    changed = []
    for field in [*current, *(name for name in saved if name not in current)]:
        before, after = saved.get(field), current.get(field)
        if field in _INSTRUCTION_SETS:
            before, after = _kernel_sets(before), _kernel_sets(after)
        # Unknown fields count as different, even if both are unknown.
        if field in _ADVISORY or (before == after and before is not None):
            continue
        changed.append(
            Difference(field, _describe_difference(before, after), _describe_difference(after, before))
        )
    return changed


def _kernel_sets(names: object) -> object:
    """Return the instruction sets that kernels use; the whole list if none is known to be used."""
    if not isinstance(names, list):
        return names
    return [name for name in names if isinstance(name, str) and _USED_BY_KERNELS.match(name)] or names


def advisory(saved: Mapping[str, object], current: Mapping[str, object]) -> list[Difference]:
    """Return the advisory fields that differ."""
    return [
        Difference(field, str(saved.get(field)), str(current.get(field)))
        for field in sorted(_ADVISORY)
        if saved.get(field) != current.get(field)
    ]


def _features() -> list[str] | None:
    """Return the instruction sets that the processor reports; None if unknown."""
    # numpy asks the processor, so those of an emulator count; NPY_DISABLE_CPU_FEATURES hides some.
    umath = getattr(getattr(np, "_core", np), "_multiarray_umath", None)
    features = getattr(umath, "__cpu_features__", None)
    if not isinstance(features, dict):
        return None
    return sorted(name for name, present in features.items() if present) or None


def _flags() -> list[str] | None:
    """Return the processor's flags from /proc/cpuinfo; None on other systems than Linux."""
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
    # As after reading JSON: a list, not a tuple, and options as text, as onnxruntime reads them.
    return [name, {str(key): str(value) for key, value in sorted(options.items())}]


def session_entries(options: Any) -> dict[str, str]:
    """Return the entries of `SESSION_ENTRIES` that are set in a session's options."""
    entries = {}
    for key in SESSION_ENTRIES:
        try:
            entries[key] = options.get_session_config_entry(key)
        except RuntimeError:
            # onnxruntime raises for an entry that was not set.
            continue
    return entries


def _describe_difference(field_value: object, counterpart: object) -> str:
    """Format a value for a message; for a list of texts, only the items that its counterpart lacks."""
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
