"""Checks the keywords of `torch.onnx.export`, which docs/torch-onnx.md documents."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import IO

from ...registration import UsageError

REMOVED = ("enable_onnx_checker", "example_outputs", "strip_doc_string", "use_external_data_format")
"""Keywords without effect that left torch.onnx before 2.0, and that old code still passes."""

_SWITCHES = (
    "dynamo external_data report optimize verify profile dump_exported_program export_params "
    "do_constant_folding autograd_inlining fallback"
).split()
_MODES = ("EVAL", "PRESERVE", "TRAINING")
_EXPORT_TYPES = ("ONNX", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The arguments of `torch.onnx.export` by their names, before they are checked."""

    model: object
    args: object
    f: str | os.PathLike[str] | IO[bytes] | None
    kwargs: object
    verbose: bool | None
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    opset_version: int | None
    dynamo: bool
    external_data: bool
    dynamic_shapes: object
    custom_translation_table: Mapping[object, Callable[..., object]] | None
    report: bool
    optimize: bool
    verify: bool
    profile: bool
    dump_exported_program: bool
    artifacts_dir: str | os.PathLike[str]
    export_params: bool
    keep_initializers_as_inputs: bool
    dynamic_axes: Mapping[str, object] | None
    training: object
    operator_export_type: object
    do_constant_folding: bool
    custom_opsets: Mapping[str, int] | None
    export_modules_as_functions: bool | Collection[type]
    autograd_inlining: bool
    fallback: bool
    removed: Mapping[str, object]


def check(options: ExportOptions) -> None:
    """Refuse unsupported values of keywords; each error names the keyword and a remedy.

    Raises:
        UsageError: a keyword has an unsupported value, or one of a wrong type.
    """
    unknown = [name for name in options.removed if name not in REMOVED]
    if unknown:
        raise UsageError(f"torch.onnx.export has no argument '{unknown[0]}'")
    for name in _SWITCHES:
        if getattr(options, name) not in (True, False, None):
            raise UsageError(f"{name} must be True or False, not {getattr(options, name)!r}")
    destination = options.f
    if (
        destination is not None
        and not isinstance(destination, (str, os.PathLike))
        and not hasattr(destination, "write")
    ):
        raise UsageError(f"f must be a path, a binary file object or None, not {type(destination).__name__}")
    _check_enumerations(options)
    if options.export_modules_as_functions:
        raise UsageError(
            "export_modules_as_functions is not supported; nodes have their module's path as metadata, "
            "see docs/metadata.md"
        )
    versions = options.custom_opsets or {}
    if not isinstance(versions, Mapping) or not all(
        isinstance(domain, str) and isinstance(version, int) for domain, version in versions.items()
    ):
        raise UsageError(f"custom_opsets must be a dict from domains to versions, not {versions!r}")
    if "" in versions or "ai.onnx" in versions:
        raise UsageError("custom_opsets names the domain of ONNX: pass its version as opset_version=")


def _check_enumerations(options: ExportOptions) -> None:
    if name_of(options.training, "EVAL") not in _MODES:
        raise UsageError(f"training must be a torch.onnx.TrainingMode, not {options.training!r}")
    export_type = name_of(options.operator_export_type, "ONNX")
    if export_type == "ONNX_ATEN":
        raise UsageError(
            "operator_export_type=ONNX_ATEN is not supported, because no runtime has ATen operators; "
            "register a symbolic function for an operator that ONNX lacks: "
            "opsetta.torch_onnx.register_custom_op_symbolic"
        )
    if export_type not in _EXPORT_TYPES:
        raise UsageError(f"operator_export_type must be a torch.onnx.OperatorExportTypes, not {export_type}")


def name_of(member: object, default: str) -> str:
    """Return the name of a member of one of torch's enumerations; for None, that of the default."""
    return default if member is None else str(getattr(member, "name", repr(member)))
