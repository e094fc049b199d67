"""The commands `opsetta export` and `opsetta verify`."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ....registration import UsageError
from ...torch_boundary.requirements import need_torch
from ..options import export as options
from ..options import quantization
from ..options.export import Trusted
from ..options.user_code import capture_options, load, names, quiet_stdout, torch_boundary
from ..terminal.output import Output, say
from ..terminal.progress import stages
from ..terminal.tables import count_text, print_json, size_text
from . import huggingface
from .targets import describe_target, resolve_target

if TYPE_CHECKING:
    from ...devices.targets.target import Target
    from ...factories import Example
    from ...program import Program
    from ...running.comparisons.verification import VerificationReport


def export(
    context: typer.Context,
    output: options.OutputFile,
    factory: options.OptionalFactory = None,
    hf: huggingface.Folder = None,
    task: huggingface.TaskName = None,
    base_model: huggingface.BaseModel = None,
    adapter: huggingface.AdapterForm = None,
    layout: huggingface.LayoutName = None,
    cache_implementation: huggingface.CacheImplementation = None,
    max_cache_len: huggingface.MaxCacheLen = None,
    batch_size: huggingface.BatchSize = None,
    sequence_length: huggingface.SequenceLength = None,
    dtype: huggingface.Dtype = None,
    inputs: options.Inputs = None,
    opset: options.Opset = None,
    verify: options.Verify = False,
    dynamic: options.Dynamic = None,
    input_names: options.InputNames = None,
    output_names: options.OutputNames = None,
    mutations: options.Mutations = None,
    capture: options.CaptureMethod = None,
    specialize: options.Specialize = False,
    explain: options.Explain = False,
    narrow: options.Narrow = False,
    guard: options.Guard = False,
    external_data: options.ExternalData = None,
    weights: options.StoredWeights = None,
    reference_weights: options.ReferenceWeights = False,
    optimize: options.Optimize = DEFAULT_LEVEL,
    target: options.Target = None,
    force: options.Force = False,
    quantize: quantization.Quantize = None,
    block_size: quantization.BlockSize = None,
    asymmetric: quantization.Asymmetric = False,
    quantize_embeddings: quantization.Embeddings = False,
    keep_lm_head: quantization.KeepHead = False,
    symbolics: options.Symbolics = None,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    as_json: options.Json = False,
) -> None:
    """Export a model to ONNX at exactly one opset."""
    to_opset, loaded_target = resolve_target(opset, target, force=force)
    check_level(optimize)
    quantized = quantization.arguments(quantize, block_size, asymmetric, quantize_embeddings, keep_lm_head)
    if hf is not None:
        return huggingface.export_folder(context, quantized)
    factory = huggingface.need_factory(context, factory)
    # An output that cannot be written is refused before the long work, not after it.
    written, begin = Output(output), time.perf_counter()
    if not verify and (rtol is not None or atol is not None):
        raise UsageError("--rtol and --atol are the tolerances of --verify: pass it, too")
    need_torch("exporting")
    with quiet_stdout(), stages() as stage, torch_boundary(stage):
        example = load(factory, symbolics, inputs)
        program = _export_example(context, example, to_opset, loaded_target, stage)
        if verify:
            stage("verifying")
        checked = program.verify(rtol=rtol, atol=atol) if verify else None
        model, error = quantization.quantize_and_compare(program, quantized, stage, compare=verify)
        stage("writing")
        written.save(model, external_data, **({"weights": "reference"} if reference_weights else {}))
    target_facts, target_lines = describe_target(model.model, loaded_target)
    facts: dict[str, Any] = {
        "file": str(output),
        "opset": program.opset,
        "bytes": written.size,
        "nodes": model.model.graph.num_nodes(),
        "inputs": program.input_names,
        "outputs": program.output_names,
        "seconds": round(time.perf_counter() - begin, 3),
        "verification": None if checked is None else _report(checked),
        **target_facts,
        **quantization.quantization_json(model, error),
    }
    text = f"{output}: opset {program.opset}, {count_text(facts['nodes'], 'node')}, {size_text(written.size)}"
    if checked is not None:
        text += f"\nagrees with eager PyTorch: largest absolute error {checked.max_absolute_error:.3g}"
    text = "\n".join([text, *target_lines, *quantization.quantization_lines(model, error)])
    written.report(facts, text, as_json=as_json)


def _export_example(
    context: typer.Context, example: Example, opset: int, target: Target | None, stage: Callable[[str], None]
) -> Program:
    """The program of an example, with the options of `opsetta export`."""
    from ...export_model import export as export_model

    parameters = context.params
    capture_arguments = capture_options(
        example,
        parameters["dynamic"],
        "--input names" if parameters["inputs"] else f"the factory '{parameters['factory']}' gives",
        input_names=names(parameters["input_names"]),
        output_names=names(parameters["output_names"]),
        mutations=parameters["mutations"],
        weights=parameters["weights"],
        capture=parameters["capture"],
        specialize=True if parameters["specialize"] else None,
        explain=True if parameters["explain"] else None,
        narrow=True if parameters["narrow"] else None,
        guard=True if parameters["guard"] else None,
    )
    return export_model(
        example.model,
        example.args,
        example.kwargs,
        opset=opset,
        optimize=parameters["optimize"],
        target=target,
        progress=stage,
        **capture_arguments,
    )


def verify(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to check.")],
    factory: options.Factory,
    inputs: options.Inputs = None,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    trusted: Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Compare a model file in onnxruntime with eager PyTorch."""
    from ...files.reading import bounds_of, read_model

    # A file that cannot be read is refused before torch is imported and the model is built.
    read_model(model, bounds_of(trusted))
    need_torch("verifying")
    with quiet_stdout(), stages() as stage, torch_boundary(stage):
        example = load(factory, None, inputs)
        from ...running.comparisons.file_verification import verify_file

        stage("verifying")
        checked = verify_file(
            model, example.model, example.args, example.kwargs, rtol=rtol, atol=atol, trusted=trusted
        )
    if as_json:
        print_json({"file": str(model), **_report(checked)})
        return
    for entry in checked.outputs:
        say(f"{entry.name}: largest absolute error {entry.max_absolute_error:.3g}")
    say(f"{model} agrees with eager PyTorch")


def _report(report: VerificationReport) -> dict[str, object]:
    return {
        "max_absolute_error": report.max_absolute_error,
        "outputs": [
            {
                "name": entry.name,
                "max_absolute_error": entry.max_absolute_error,
                "max_relative_error": entry.max_relative_error,
            }
            for entry in report.outputs
        ],
    }
