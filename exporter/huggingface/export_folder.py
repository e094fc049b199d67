"""`export_huggingface`: from a Hugging Face folder to a folder with ONNX files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ...passes.quantization import Error, Quantization
from ...registration import CaptureError, ModelFileError, UsageError
from ..devices.targets.load_target import resolve_target
from ..devices.targets.target import Target
from ..export_model import export
from ..files.stored_types import BFLOAT16_CAST
from ..onnx_model import OnnxModel
from ..program import Program
from ..quantizing import initializer_bytes, is_compared, output_error, quantize_weights, scheme_of
from ..torch_boundary.requirements import need_torch
from .expected_warnings import expected_warnings
from .folder import check_library, copy_files, folder_at, task_of_modules
from .graphs import CACHE, SEQUENCE, TOTAL, ExampleCall, GraphFile, Pairs, TaskModel
from .model_folders import DTYPES, Loaded, load, need_transformers, read_config
from .tasks.record import Task
from .tasks.selection import task_named, task_of, task_of_sentences

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

    from ..running.verification import VerificationReport


@dataclasses.dataclass(frozen=True)
class ExportedGraph:
    """One ONNX file of a model.

    Attributes:
        path: of the file.
        opset: of the file.
        nodes: the number of its nodes.
        weight_bytes: the bytes of its weights.
        inputs, outputs: their names, in order.
        report: the comparison with eager PyTorch, if it was asked for.
        quantization: what was quantized, if it was asked for.
        output_error: that of the quantized outputs for the example inputs, if both models ran.
    """

    path: pathlib.Path
    opset: int
    nodes: int
    weight_bytes: int
    inputs: list[str]
    outputs: list[str]
    report: VerificationReport | None = None
    quantization: Quantization | None = None
    output_error: Error | None = None


@dataclasses.dataclass(frozen=True)
class HuggingFaceExport:
    """The files that `export_huggingface` wrote.

    Attributes:
        folder: where it is.
        task: the name of the task.
        graphs: the ONNX files.
        copied: names of the files of tokenizers, processors and configurations.
        weights_loaded: whether transformers loaded the weights into memory, because the checkpoint has other
            names than the model or lacks tensors.
    """

    folder: pathlib.Path
    task: str
    graphs: list[ExportedGraph]
    copied: list[str]
    weights_loaded: bool


def export_huggingface(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    opset: int | None = None,
    dtype: str = "float32",
    quantize: str | Mapping[str, object] | None = None,
    weights: str = "copy",
    external_data: bool | None = None,
    optimize: str | bool = DEFAULT_LEVEL,
    target: str | os.PathLike[str] | Target | None = None,
    verify: bool = False,
    narrow: bool = False,
    guard: bool = False,
    progress: Callable[[str], None] | None = None,
) -> HuggingFaceExport:
    """Export the model of a Hugging Face folder for a task; see docs/huggingface.md.

    All graphs are captured and lowered before the first file is written. No code from the folder is run.

    Args:
        folder: with config.json, weights and the files of a tokenizer or processor.
        output: the folder to write; it may be the same one.
        task: a name that docs/huggingface.md lists, or optimum's name of the same task; by default that of
            the architecture in config.json.
        opset: the ONNX opset to write; by default the target's, or 17.
        dtype: of weights and activations, "float32", "float16" or "bfloat16".
        quantize: "int8" or "int4", or a mapping of these as `dtype` and further arguments of
            `quantize_weights`.
        weights: "copy", or "reference" to refer to the checkpoint, which is then in `output` or below it.
        external_data: whether weights are beside the ONNX files; by default if they do not fit into them.
        optimize: as for `export`.
        target: as for `export`.
        verify: compare each graph with eager PyTorch first; write nothing where they differ.
        narrow: accept graphs that are valid for some sizes only, as for `export`.
        guard: write the valid sizes as checks into the files, as for `export`.
        progress: called with the name of each stage as it begins.

    Raises:
        ModelFileError: the folder cannot be read, or the output cannot be written.
        UsageError: the model has no such task, or an argument has an unknown value.
        CaptureError, UnsupportedOperatorsError, TargetError, VerificationError: as for `export` and `verify`.
    """
    source, output_folder = folder_at(folder), pathlib.Path(os.fsdecode(output))
    target_opset, loaded_target = resolve_target(opset, target)
    level = check_level(optimize)
    quantization = _check_choices(dtype, weights, quantize)
    if output_folder.exists() and not output_folder.is_dir():
        raise ModelFileError(f"the output '{output_folder}' is a file: name a folder")
    report = progress or (lambda stage: None)
    need_torch("exporting a model")
    report("loading the model")
    check_library(source)
    config = read_config(source)
    chosen_task = choose_task(task, source, config)
    loaded = load(source, config, chosen_task, DTYPES[dtype])
    if weights == "reference":
        _check_reference(loaded, dtype, target_opset)
    lowered_graphs = [
        _lower(
            loaded,
            file,
            example,
            opset=target_opset,
            optimize=level,
            target=loaded_target,
            quantization=quantization,
            verify=verify,
            # The cache and the tokens together always have as many positions as the mask.
            sizes={"narrow": narrow or (TOTAL,), "guard": guard},
            report=_prefix_stages(file.name, report),
        )
        for file, example in chosen_task.example_calls(TaskModel(loaded.model, config, source))
    ]
    _make_folder(output_folder)
    graphs = [
        _write(lowered_graph, output_folder, weights, external_data, verify, report)
        for lowered_graph in lowered_graphs
    ]
    report("copying the tokenizer")
    copied = copy_files(source, output_folder)
    return HuggingFaceExport(output_folder, chosen_task.name, graphs, copied, loaded.weights is None)


def _check_reference(loaded: Loaded, dtype: str, opset: int) -> None:
    """Refuse to refer to a checkpoint with other names than the exported model, or with other types.

    A graph casts weights from the type that they are stored in, if its opset can.
    """
    if loaded.weights is None:
        raise UsageError(
            "weights='reference' is not possible for this model, because its checkpoint has other names "
            "or lacks tensors: copy the weights"
        )
    dtypes = {tensor.dtype for tensor in loaded.weights.values() if tensor.dtype.is_floating_point()}
    stored = {stored_dtype.numpy().name for stored_dtype in dtypes}
    others = sorted(stored - {DTYPES[dtype]})
    if others and opset < BFLOAT16_CAST and "bfloat16" in {*others, DTYPES[dtype]}:
        raise UsageError(
            f"weights='reference' takes the weights as they are stored, in {', '.join(others)}, and at opset "
            f"{opset} a graph cannot cast them to {DTYPES[dtype]}: pass opset={BFLOAT16_CAST} or a higher "
            "one, or copy the weights"
        )


def _check_choices(dtype: str, weights: str, quantize: str | Mapping[str, object] | None) -> dict[str, Any]:
    """Check arguments of `export_huggingface`; return those of `quantize_weights`."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if weights not in ("copy", "reference"):
        raise UsageError(f"weights must be 'copy' or 'reference', not {weights!r}")
    options = {"dtype": quantize} if isinstance(quantize, str) else dict(quantize or {})
    if options:
        scheme_of(**options)
    return options


def choose_task(name: str | None, folder: pathlib.Path, config: PretrainedConfig) -> Task:
    """The named task, or that of the folder: sentence-transformers makes vectors of models that generate."""
    if name is not None:
        return task_named(name, config)
    module_task = task_of_modules(folder)
    return task_of(config) if module_task is None else task_of_sentences(module_task)


@dataclasses.dataclass(frozen=True)
class _LoweredGraph:
    """A graph that is ready to be written to the file of this name."""

    file: str
    program: Program
    quantized: OnnxModel | None
    verification: VerificationReport | None


def _lower(
    loaded: Loaded,
    file: GraphFile,
    example: ExampleCall,
    *,
    opset: int,
    optimize: str,
    target: Target | None,
    quantization: Mapping[str, Any],
    verify: bool,
    sizes: Mapping[str, Any],
    report: Callable[[str], None],
) -> _LoweredGraph:
    """Export one graph; verify and quantize it as requested."""
    # Some rotary embeddings write to the buffer of their frequencies before they read it.
    writes_frequencies = any(
        getattr(module, "rope_type", None) == "longrope" for module in loaded.model.modules()
    )

    def export_with(file: GraphFile) -> Program:
        return export(
            loaded.model,
            (example.arguments,),
            opset=opset,
            dynamic_shapes=(file.dynamic_shapes(example),),
            input_names=file.input_names(example),
            output_names=file.output_names(example),
            mutations="drop" if writes_frequencies else "error",
            weights=loaded.weights,
            optimize=optimize,
            target=target,
            progress=report,
            **sizes,
        )

    declaration = file.with_fixed_axes() if example.has_fixed_sizes else file
    with _forward_replaced(loaded.model, example):
        try:
            program = export_with(declaration)
        except CaptureError:
            # Some models of images and sounds have one position for each part of an input of one size.
            if not declaration.optional_axes:
                raise
            program = export_with(file.with_fixed_axes())
        loaded.check_missing(program.source)
        _check_states(program)
        verification = None
        if verify:
            report("verifying")
            verification = program.verify()
    quantized = None
    if quantization:
        report("quantizing")
        quantized = quantize_weights(program, **{"target": target, **quantization})
    return _LoweredGraph(file.name, program, quantized, verification)


def _check_states(program: Program) -> None:
    """Refuse a graph that continues from nothing.

    The code of some models reads a state for one token only, and begins anew for several.

    Raises:
        UsageError: the graph does not use an input of its cache; the message names it.
    """
    unused = [
        value.name
        for value in program.model.graph.inputs
        if str(value.name).startswith(CACHE) and not value.uses() and not value.is_graph_output()
    ]
    if unused:
        raise UsageError(
            f"for several tokens the model does not continue from its state ({unused[0]}), which "
            "text-generation does not support: export the model with opsetta.export"
        )


def _write(
    lowered: _LoweredGraph,
    folder: pathlib.Path,
    weights: str,
    external_data: bool | None,
    verify: bool,
    report: Callable[[str], None],
) -> ExportedGraph:
    """Write one graph; compare a quantized one with the original."""
    report_stage = _prefix_stages(lowered.file, report)
    saved: Program | OnnxModel = lowered.program
    quantization = error = None
    if lowered.quantized is not None:
        saved, quantization = lowered.quantized, lowered.quantized.quantization
        if is_compared(lowered.program, verify):
            report_stage("comparing with the weights as they were")
            error = output_error(lowered.quantized, lowered.program)
    report_stage("writing")
    path = folder / lowered.file
    saved.save(path, external_data=external_data, weights=weights)
    return ExportedGraph(
        path,
        lowered.program.opset,
        saved.model.graph.num_nodes(),
        initializer_bytes(saved.model),
        saved.input_names,
        saved.output_names,
        lowered.verification,
        quantization,
        error,
    )


@contextlib.contextmanager
def _forward_replaced(model: PreTrainedModel, example: ExampleCall) -> Iterator[None]:
    """Replace the forward of the model by the example's call, so that weights keep their names."""
    from ..torch_boundary.process.process_state import replace_attribute
    from ..torch_boundary.size_questions import trust_forms_for_one

    def forward(
        self: PreTrainedModel, inputs: dict[str, torch.Tensor | Pairs]
    ) -> torch.Tensor | tuple[torch.Tensor, Pairs] | tuple[torch.Tensor, ...]:
        tensors = {name: item for name, item in inputs.items() if not isinstance(item, list)}
        past = inputs.get(CACHE, [])
        return example.call(self, tensors, past if isinstance(past, list) else [])

    trust = (
        trust_forms_for_one(need_transformers(), SEQUENCE) if example.has_states else contextlib.nullcontext()
    )
    with replace_attribute(model, "forward", types.MethodType(forward, model)), trust, expected_warnings():
        yield


def _prefix_stages(file: str, report: Callable[[str], None]) -> Callable[[str], None]:
    return lambda stage: report(f"{file}: {stage}")


def _make_folder(path: pathlib.Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"the folder '{path}' cannot be made: {error}") from error
