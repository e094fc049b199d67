"""`export`, with the signature of `torch.onnx.export`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from ...exporter.captured_graph import specializations
from ...registration import CaptureError, OpsettaError
from ...registration.warning import warn
from ..symbolic_functions.registered_with_torch import functions_of_torch
from . import keywords
from .arguments import Call, example_call
from .artifacts import Artifacts
from .fixed_paths import check_outputs

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...exporter.captured_graph.capture import Capture
    from ...exporter.program import Program
    from .keywords import ExportOptions
    from .onnx_program import ONNXProgram
    from .translation_table import TranslationTable


def export(
    model: object,
    args: object = (),
    f: str | os.PathLike[str] | IO[bytes] | None = None,
    *,
    kwargs: dict[str, object] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: dict[str, object] | tuple[object, ...] | list[object] | None = None,
    custom_translation_table: dict[Callable[..., object], Callable[..., object]] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str]] | Mapping[str, Sequence[int]] | None = None,
    training: object = None,
    operator_export_type: object = None,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type] = False,
    autograd_inlining: bool = True,
    fallback: bool = False,
    **removed: object,
) -> ONNXProgram:
    """Export a model as `torch.onnx.export` does, at exactly `opset_version`.

    docs/torch-onnx.md documents each keyword. If the model writes to its buffers, the export omits these
    writes and warns.

    Args:
        model: an `nn.Module`, a function, TorchScript, an `ExportedProgram` or an `ExportableModule`.
        args: example arguments; a dict at their end has keyword arguments.
        f: a path, a binary file object, or None to write no file.
        opset_version: the opset to write; None means 17.
        removed: keywords of older releases of torch.onnx.

    Returns:
        An `ONNXProgram`, also with `dynamo=False`, where torch.onnx returns None.

    Raises:
        OpsettaError: the errors of `opsetta.export`, and a `UsageError` for an unsupported value of a
            keyword. Each is also a `torch.onnx.OnnxExporterError`.
    """
    # Nothing else may be defined before this line: `locals()` are exactly the keywords.
    options = keywords.ExportOptions(**locals())
    from ...exporter.devices.targets.load_target import resolve_target

    with _as_error_of_torch():
        keywords.check(options)
        opset, _ = resolve_target(opset_version, None)
        artifacts = Artifacts(options, opset)
        try:
            result = _export(options, opset, artifacts)
        except Exception as error:
            artifacts.write_failure(error)
            raise
        artifacts.write(result)
    return result


def _export(options: ExportOptions, opset: int, artifacts: Artifacts) -> ONNXProgram:
    """Capture, lower, verify and save, in this order."""
    from ...exporter.torch_boundary.requirements import need_torch

    need_torch("exporting a model")
    from ...exporter.torch_boundary.boundary import boundary
    from ...exporter.torch_boundary.onnx_exporter import exporting
    from .translation_table import TranslationTable

    table = TranslationTable(options.custom_translation_table)
    for function in functions_of_torch(uses_our_helpers=True):
        table.registry.put_first(function)
    call = example_call(options)
    with boundary(exporting(), *_static_symbolics(options, table)), _training_mode(options):
        program = _lower(options, opset, call, table, artifacts)
        table.warn_of_unused(program.source)
        result = _make_onnx_program(options, call, program)
        if options.verify:
            artifacts.begin("verifying")
            program.verify()
    if options.f is not None:
        artifacts.begin("saving")
        is_path = isinstance(options.f, (str, os.PathLike))
        result.save(
            options.f,
            include_initializers=options.export_params,
            keep_initializers_as_inputs=options.keep_initializers_as_inputs,
            external_data=True if options.external_data and options.dynamo and is_path else None,
        )
    return result


def _static_symbolics(
    options: ExportOptions, table: TranslationTable
) -> list[contextlib.AbstractContextManager[None]]:
    """With `dynamo=False`, return the object that registers the `symbolic` methods of autograd functions."""
    if options.dynamo:
        return []
    from .autograd_functions import AutogradFunctions

    functions = AutogradFunctions()
    functions.register(table.registry)
    return [functions.record_calls()]


def _lower(
    options: ExportOptions, opset: int, call: Call, table: TranslationTable, artifacts: Artifacts
) -> Program:
    from ...exporter.export_model import lower_capture

    capture = _capture(options, call, artifacts)
    check_outputs(capture.source)
    artifacts.begin("lowering")
    # `do_constant_folding` belongs to the TorchScript exporter; the newer one ignores it.
    folds = options.optimize and (options.dynamo or options.do_constant_folding)
    outputs = call.output_names
    if options.dynamo:
        outputs = _limit_names("output_names", outputs, len(capture.source.graph.outputs))
    return lower_capture(
        capture,
        opset,
        table.registry,
        input_names=(call.input_names or [])[: len(capture.source.graph.inputs)] or None,
        output_names=outputs,
        optimize="full" if folds else "none",
    )


def _capture(options: ExportOptions, call: Call, artifacts: Artifacts) -> Capture:
    """Capture the model; with fixed decisions, trace it if that keeps branches or loops of scripts."""
    from ...exporter.capture.capture_options import CaptureOptions
    from ...exporter.export_model import capture_model

    plain = CaptureOptions(
        dynamic_shapes=None if _is_exported_program(call.model) else call.dynamic_shapes,
        dynamic_axes=call.dynamic_axes,
        input_names=call.input_names,
        output_names=call.output_names,
        mutations="drop",
        # `dynamic_axes` only labels axes: torch.onnx writes files for which other sizes fail.
        narrow=call.dynamic_shapes is None,
        source_lines=bool(options.verbose),
    )

    def capture(*, capture: str = "auto", specialize: bool = False) -> Capture:
        changed = dataclasses.replace(plain, capture=capture, specialize=specialize)
        return capture_model(call.model, call.args, call.kwargs, changed, artifacts.begin)

    if options.dump_exported_program:
        return capture(capture="torch.export")
    if options.dynamo and not options.fallback:
        return capture()
    with warnings.catch_warnings(record=True) as recorded_warnings:
        specialized = capture(specialize=True)
    if specializations.read_specializations(specialized.source.metadata_props):
        with contextlib.suppress(CaptureError):
            traced = capture(capture="trace")
            if any(node.domain == "prim" and node.op_type in ("If", "Loop") for node in traced.source.graph):
                warn(
                    "the model was captured by torch.jit.trace: branches and loops of scripted code are "
                    "kept, but decisions of Python code on values are those of the example"
                )
                return traced
    # A warning of a capture that is not used would mislead; this one is used, so its warnings are shown.
    for warning in recorded_warnings:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return specialized


def _make_onnx_program(options: ExportOptions, call: Call, program: Program) -> ONNXProgram:
    """Return the `ONNXProgram`, with the names and versions that `torch.onnx.export` writes into a model."""
    from . import model_edits
    from .onnx_program import ONNXProgram

    weights = (call.input_names or [])[len(program.source.graph.inputs) :]
    if weights and options.dynamo:
        _limit_names("input_names", call.input_names, len(program.source.graph.inputs))
        weights = []
    state = model_edits.state_names(call.model) if weights else []
    axes: dict[str, str] = {}
    if _is_exported_program(call.model) and call.dynamic_shapes:
        axes = model_edits.axis_names(program.model.graph.inputs, call.dynamic_shapes)

    def finish(model: ir.Model) -> None:
        model_edits.name_weights(model, state, weights)
        model_edits.set_domain_versions(model, options.custom_opsets or {})
        model_edits.label_outputs(model, call.dynamic_axes or {})
        if axes:
            model_edits.rename_axes(model, axes)

    return ONNXProgram(program, finish)


def _limit_names(option: str, names: Sequence[str] | None, count: int) -> Sequence[str] | None:
    """Return the first `count` names; warn if there are more."""
    if names is not None and len(names) > count:
        warn(f"{option} has {len(names)} names for {count}: {', '.join(names[count:])} are ignored")
        return names[:count]
    return names


def _is_exported_program(model: object) -> bool:
    import torch

    return isinstance(model, torch.export.ExportedProgram)


@contextlib.contextmanager
def _training_mode(options: ExportOptions) -> Iterator[None]:
    """Set the mode of the model to `training`; restore the mode of each of its modules afterwards."""
    import torch

    model = options.model
    mode = keywords.name_of(options.training, "EVAL")
    if options.dynamo or mode == "PRESERVE" or not isinstance(model, torch.nn.Module):
        yield
        return
    before = [(module, module.training) for module in model.modules()]
    try:
        model.train(mode == "TRAINING")
        yield
    finally:
        for module, training in before:
            module.training = training


@contextlib.contextmanager
def _as_error_of_torch() -> Iterator[None]:
    """Make the errors of opsetta also instances of `torch.onnx.OnnxExporterError`, which callers catch."""
    try:
        yield
    except OpsettaError as error:
        error_class: type = type(error)
        error.__class__ = _joint_error(error_class)
        raise


@functools.cache
def _joint_error(error_class: type) -> type:
    import torch

    if issubclass(error_class, torch.onnx.OnnxExporterError):
        return error_class
    names = {
        "__module__": error_class.__module__,
        "__qualname__": error_class.__qualname__,
        "__doc__": error_class.__doc__,
    }
    return type(error_class.__name__, (error_class, torch.onnx.OnnxExporterError), names)
