"""`export`: from a PyTorch model to a `Program`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ..passes.faults import faults_reported
from ..passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ..registration import (
    FIXED_WEIGHTS,
    Registry,
    UnsupportedOperatorsError,
    UsageError,
    registry_or_default,
)
from ..registration.warning import warn
from .capture.capture_options import CaptureOptions
from .captured_graph import specializations
from .captured_graph.capture import Capture
from .captured_graph.size_checks import write_size_checks
from .captured_graph.stages import StageClock
from .devices.targets.load_target import resolve_target
from .devices.targets.target import Target
from .export_arguments import ExportableModel, model_call, refuse_unknown
from .files.garbage_collection import rare_collections
from .lowering.driver import check_names
from .program import Program, SourceModel
from .running.captured_calls import CapturedCalls
from .torch_boundary import probe
from .torch_boundary.requirements import need_torch

if TYPE_CHECKING:
    import torch

    from .capture.stored_weights.opening import Weights

Progress = Callable[[str], None]


def export(
    model: ExportableModel,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    opset: int | None = None,
    dynamic_shapes: object = None,
    dynamic_axes: Mapping[str, object] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    mutations: str = "error",
    registry: Registry | None = None,
    strict: bool = False,
    capture: str = "auto",
    specialize: bool = False,
    narrow: bool | Collection[str] = False,
    guard: bool = False,
    source_lines: bool = False,
    explain: bool = False,
    weights: Weights | None = None,
    progress: Progress | None = None,
    optimize: str | bool = DEFAULT_LEVEL,
    target: str | os.PathLike[str] | Target | None = None,
    **others: object,
) -> Program:
    """Export a PyTorch model to ONNX at exactly `opset`.

    The model is captured once, in its current mode: call `model.eval()` first to export it for inference. The
    model, the arguments and the state of the process (random generators, grad mode, settings, logging,
    warning filters) are restored, also after an error. Dataclasses among the arguments and results stay
    registered with torch's pytree. Exports in several threads run one after the other.

    Args:
        model: an `nn.Module`, a function of tensors, a `torch.export.ExportedProgram`, a TorchScript module
            or function (`torch.jit.script`, `torch.jit.trace`), or the path of a file that `torch.jit.save`
            wrote.
        args: example positional arguments, a tuple or a single tensor. A dict as last element has keyword
            arguments if its keys name parameters of the forward, as in torch.onnx.
        kwargs: example keyword arguments.
        opset: the ONNX opset to write; by default the target's, or 17.
        dynamic_shapes: the dynamic dimensions, as for `torch.export.export`; a string may replace a `Dim`,
            also with a range, `"time <= 128"`, or as a sum of others, `"total = past + new"`. The example may
            have any size there, 0 and 1 included.
        dynamic_axes: the same in torch.onnx's older form, `{"input": {0: "batch"}}`.
        input_names: names for the first graph inputs, in order; the others are named after the forward's
            parameters.
        output_names: names for the flattened outputs, in order.
        mutations: what to do with inputs and buffers that the model writes to: `"outputs"` appends their new
            values to the outputs; `"state"` also makes the buffers inputs, with their current values as
            defaults; `"drop"` discards the new values with a warning; `"error"` refuses the model.
        registry: the symbolic functions to lower with; by default the default registry.
        strict: capture through TorchDynamo; the same as `capture="strict"`.
        capture: how to capture. `"direct"` runs the model once on fake tensors and records its operators,
            `"torch.export"` and `"strict"` use torch.export without and with TorchDynamo, and `"trace"` uses
            torch.jit.trace, which follows the path of the example. `"auto"` is direct capture; where that
            fails, torch.export and strict capture follow, if they may help. See docs/capture.md.
        specialize: where a decision of the model's Python code depends on the values of inputs, take the
            decision for the example. The program is wrong for inputs that decide otherwise; a warning and
            `Program.specializations` list the decisions.
        narrow: accept a program that is valid for some sizes of a dynamic dimension only: a warning,
            `Program.dimensions` and the metadata of the file say which. By default this is an error, unless
            the program only excludes sizes below 2, or demands multiples of a number. A collection of names
            accepts it for these dimensions only.
        guard: write the sizes for which the program is valid, `Program.dimensions`, as checks into the file:
            every runtime then fails at other sizes. By default only opsetta refuses them.
        source_lines: keep the user's source line on every node, as metadata `opsetta.line`.
        explain: after a failed capture, try strict capture, a script and a trace of a copy of the model; the
            error names those that work.
        weights: the weights of a module that was built on the meta device or under FakeTensorMode: the path
            of a .safetensors file, of a checkpoint of torch.save, of the index of a sharded one, or of a
            folder with one of these; or a mapping from names to tensors, as `open_weights` gives. They are
            matched by the names of the state_dict, and read when the program is saved; see docs/weights.md.
        progress: called with the name of each stage as it begins.
        optimize: how far the graph is optimized, "none", "basic" or "full"; docs/optimization.md has what
            each may change. True stands for "full" and False for "none".
        target: the runtime or device that will read the file: a name that `opsetta targets` lists, or the
            path of a TOML file. It chooses the opset, rewrites the graph by its conventions, and refuses what
            it does not support; see docs/targets.md.
        others: refused. For torch.onnx's keywords the message says what to use instead.

    Returns:
        The program. Its method `verify` compares it with PyTorch, `save` writes the file, and `lower` writes
        the same capture at another opset.

    Raises:
        UsageError: an argument has an unknown name or a wrong type.
        OpsetError: an opset that opsetta does not write.
        CaptureError: the model could not be captured.
        NarrowedError: it is not captured for every size of a dynamic dimension, and `narrow` is False.
        ModelFileError: `weights` cannot be read, or do not fit the model.
        MutationError: the model writes to its inputs or buffers, and `mutations` is `"error"`.
        UnsupportedOperatorsError: the opset cannot express the model; lists all such operators.
        TargetError: lists everything that the target does not support.
    """
    refuse_unknown(others, export)
    requested_opset, resolved_target = resolve_target(opset, target)
    level = check_level(optimize)
    registry = registry_or_default(registry)
    check_names("input_names", input_names)
    check_names("output_names", output_names)
    options = CaptureOptions(
        dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes,
        input_names=input_names,
        output_names=output_names,
        mutations=mutations,
        strict=strict,
        capture=capture,
        specialize=specialize,
        narrow=narrow,
        guard=guard,
        source_lines=source_lines,
        explain=explain,
        weights=weights,
    )
    with rare_collections():
        captured = capture_model(model, args, kwargs, options, progress)
        if progress is not None:
            progress("lowering")
        names = {"input_names": input_names, "output_names": output_names}
        try:
            return lower_capture(
                captured, requested_opset, registry, **names, optimize=level, target=resolved_target
            )
        except UnsupportedOperatorsError as error:
            # Captures do not check all types, axes and sizes: PyTorch itself may refuse the model.
            if error.may_be_fault_of_model:
                CapturedCalls(captured).check_example()
            raise


@faults_reported("when it captured the model")
def capture_model(
    model: ExportableModel,
    args: object,
    kwargs: Mapping[str, object] | None,
    options: CaptureOptions,
    progress: Progress | None = None,
) -> Capture:
    """The source graph of a model, after the source passes: the part of `export` without an opset.

    Arguments and errors are those of `export`.
    """
    options.check()
    if progress is not None and not callable(progress):
        raise UsageError(f"progress must be a function of a stage's name, not {type(progress).__name__}")
    report = StageClock(progress)
    report("loading")
    need_torch("exporting a model")
    from .torch_boundary.boundary import boundary

    probe.require(probe.CAPTURE)
    with boundary(), rare_collections():
        from .capture import torchscript
        from .capture.eager_quantization import refuse_eager_quantized
        from .capture.pytorch.capture_model import capture as capture_pytorch
        from .capture.sizes.requests.example_devices import check_devices
        from .capture.sizes.requests.example_sizes import check_example
        from .capture.stored_weights.stored_weights import (
            StoredWeights,
            check_initializers,
            explaining_absence,
        )
        from .capture.training import is_training
        from .lowering.source_passes import prepare

        if isinstance(model, (str, os.PathLike)):
            model = torchscript.load(model)
        args, kwargs = model_call(model, args, kwargs)
        # Its packed weights would fail deep within the capture.
        refuse_eager_quantized(model)
        if is_training(model):
            warn("the model is exported in training mode; for inference, call model.eval() first")
        report("capturing")
        check_devices(model, args, kwargs)
        stored = None if options.weights is None else StoredWeights(model, options.weights)
        with explaining_absence(model) if stored is None else stored.attach():
            if torchscript.is_torchscript(model):
                captured = torchscript.capture(cast("torch.jit.ScriptModule", model), args, kwargs, options)
            elif options.method == "trace":
                captured = torchscript.capture_trace(model, args, kwargs, options)
            else:
                captured = capture_pytorch(model, args, kwargs, options)
            check_example(captured)
            if stored is None:
                check_initializers(captured.source)
            else:
                stored.refer_to_files(captured.source)
        # An ExportedProgram makes its module when it is needed.
        captured.module = None if model is captured.exported else model
        captured.weights = stored
        if is_training(model):
            # Weights of a model in training are updated later: passes must not fold them.
            captured.source.metadata_props[FIXED_WEIGHTS] = "true"
        report("source passes")
        prepare(captured, options.mutations)
        if options.guard:
            write_size_checks(captured.source)
    report.end()
    captured.stages = report.stages
    _warn_of_specializations(captured)
    return captured


def lower_capture(
    captured: Capture,
    opset: int,
    registry: Registry | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    optimize: str = DEFAULT_LEVEL,
    target: Target | None = None,
) -> Program:
    """Lower a capture at an opset: the part of `export` that needs no model."""
    from .capture.fx_import.decomposition import Decomposer

    model = SourceModel(captured, input_names=input_names, output_names=output_names, decompose=Decomposer())
    return model.lower(opset, registry=registry, optimize=optimize, target=target)


def _warn_of_specializations(captured: Capture) -> None:
    decisions = specializations.read_specializations(captured.source.metadata_props)
    if decisions:
        warn(
            "the program follows the decisions of the example inputs, and is wrong for inputs with other "
            f"decisions:\n{specializations.describe(decisions)}"
        )
