"""The commands export, verify, check, ops and info of `opsetta`."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...passes.target.levels import DEFAULT_LEVEL, check_level
from ...registration import AnnotationError, OpsettaError, UnsafeAnnotation, UsageError
from ..source.specializations import Specialization
from ..targets.loading import chosen
from ..torch_boundary.requirements import need_torch
from . import export_options as options
from . import huggingface, quantization
from .compare import compare
from .convert import Trusted, convert
from .freeze import freeze
from .output import Output, say
from .plan import plan
from .prepack import prepack
from .progress import stages
from .realize import realize
from .report import report
from .stream import stream
from .sweep import sweep_command
from .tables import MOST_SHOWN, more, print_json, row, shape_text, show, size_text, table
from .targets import check_target
from .targets import targets as list_targets
from .user_code import capture_options, load, names, quiet_stdout, torch_boundary
from .weights import weights as list_weights

if TYPE_CHECKING:
    from ..factories import Example
    from ..program import Program
    from ..targets.target import Target

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich help would parse [batch,3] as markup, and truncates long words in tables.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(convert)
app.command()(compare)
app.command("targets")(list_targets)
app.command()(prepack)
app.command()(plan)
app.command()(realize)
app.command()(freeze)
app.command("weights")(list_weights)
app.command()(stream)
app.command()(report)
app.command()(huggingface.generate)
app.command("sweep")(sweep_command)


def _version(wanted: bool) -> None:
    if wanted:
        from ... import __version__

        print(f"opsetta {__version__}")
        raise typer.Exit


@app.callback()
def opsetta(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Any model, any opset: ONNX at exactly the opset that you ask for."""


@app.command()
def export(
    context: typer.Context,
    output: options.OutputFile,
    factory: options.OptionalFactory = None,
    hf: huggingface.Folder = None,
    task: huggingface.TaskName = None,
    dtype: huggingface.Dtype = None,
    inputs: options.Inputs = None,
    opset: options.Opset = None,
    verify: options.Verify = False,
    dynamic: options.Dynamic = None,
    input_names: options.InputNames = None,
    output_names: options.OutputNames = None,
    mutations: options.Mutations = None,
    capture: options.CaptureWay = None,
    specialize: options.Specialize = False,
    external_data: options.ExternalData = None,
    weights: options.StoredWeights = None,
    reference_weights: options.ReferenceWeights = False,
    optimize: options.Optimize = DEFAULT_LEVEL,
    target: options.Target = None,
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
    to_opset, aim = chosen(opset, target)
    check_level(optimize)
    quantized = quantization.arguments(quantize, block_size, asymmetric, quantize_embeddings, keep_lm_head)
    if hf is not None:
        huggingface.export_folder(context, quantized)
        return
    if factory is None or task is not None or dtype is not None:
        raise UsageError("give a FACTORY, or --hf FOLDER, to which --task and --dtype belong")
    written = Output(output)
    need_torch("exporting")
    begin = time.perf_counter()
    with quiet_stdout(), stages() as stage, torch_boundary(stage):
        example = load(factory, symbolics, inputs)
        program = _exported(context, example, to_opset, aim, stage)
        checked = None
        if verify:
            stage("verifying")
            checked = program.verify(rtol=rtol, atol=atol)
        model, error = quantization.applied(program, quantized, stage, compare=verify)
        stage("writing")
        written.save(model, external_data, **({"weights": "reference"} if reference_weights else {}))
    found = {
        "file": str(output),
        "opset": program.opset,
        "bytes": written.size,
        "nodes": model.model.graph.num_nodes(),
        "inputs": program.input_names,
        "outputs": program.output_names,
        "seconds": round(time.perf_counter() - begin, 3),
        "verification": None if checked is None else _report(checked),
        **quantization.facts(model, error),
    }
    text = f"{output}: opset {program.opset}, {found['nodes']} nodes, {size_text(written.size)}"
    if checked is not None:
        text += f"\nagrees with eager PyTorch: largest absolute error {checked.max_absolute_error:.3g}"
    text = "\n".join([text, *quantization.described(model, error)])
    written.report(found, text, as_json=as_json)


def _exported(
    context: typer.Context, example: Example, opset: int, target: Target | None, stage: Callable[[str], None]
) -> Program:
    """The program of an example, with the options of `opsetta export`."""
    from ..entry import export as export_model

    given = context.params
    wanted = capture_options(
        example,
        given["dynamic"],
        "--input names" if given["inputs"] else f"the factory '{given['factory']}' gives",
        input_names=names(given["input_names"]),
        output_names=names(given["output_names"]),
        mutations=given["mutations"],
        weights=given["weights"],
        capture=given["capture"],
        specialize=True if given["specialize"] else None,
    )
    return export_model(
        example.model,
        example.args,
        example.kwargs,
        opset=opset,
        optimize=given["optimize"],
        target=target,
        progress=stage,
        **wanted,
    )


@app.command()
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
    from ..files.reading import bounds_of, read_model

    read_model(model, bounds_of(trusted))
    need_torch("verifying")
    with quiet_stdout(), stages() as stage, torch_boundary(stage):
        example = load(factory, None, inputs)
        from ..running.file_verification import verify_file

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


@app.command()
def check(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to check.")],
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME | FILE.toml", help="Check instead what this consumer does not take."),
    ] = None,
    trusted: Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Prove that the in-place annotations of a model file are safe, or that a target takes the file."""
    if target is not None:
        check_target(model, target, trusted, as_json)
        return
    from ..running.inplace_check import check_inplace

    count = 0
    unsafe: tuple[UnsafeAnnotation, ...] = ()
    try:
        count = check_inplace(model, trusted=trusted)
    except AnnotationError as error:
        unsafe = error.unsafe
    if as_json:
        print_json(
            {"file": str(model), "safe": count, "unsafe": [dataclasses.asdict(entry) for entry in unsafe]}
        )
    for entry in () if as_json else unsafe:
        say(entry)
    if unsafe:
        raise typer.Exit(1)
    if not as_json:
        say(f"{model}: {count} in-place annotations, all safe")


@app.command()
def ops(
    opset: Annotated[
        int | None, typer.Option(help="The opset to look at, 7 to 26; the swept ones unless given.")
    ] = None,
    text: Annotated[str, typer.Option("--filter", help="Only operators whose name holds this text.")] = "",
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/operators.md.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the operators: symbolic (S), decomposed (D) or refused (-) at each opset, and why."""
    from . import operator_support as support

    if as_markdown:
        if opset is not None or text or as_json:
            raise OpsettaError("--markdown prints the whole page: it takes no other option")
        print(support.markdown(), end="")
        return
    opsets = support.swept()["opsets"] if opset is None else [opset]
    found = support.operator_support(opsets, text)
    if as_json:
        rows = [dataclasses.asdict(entry) for entries in found.values() for entry in entries.values()]
        print_json({"opsets": opsets, "operators": rows})
        return
    shown = table("operator", *map(str, opsets), "refused")
    for name, entries in found.items():
        cells = (support.cell(entry) for entry in entries.values())
        row(shown, name, *cells, "; ".join(support.remarks(entries)))
    show(shown)
    for at in opsets:
        kinds = [entries[at].support for entries in found.values()]
        served = ", ".join(f"{kinds.count(kind)} {kind}" for kind in support.KINDS)
        print(f"opset {at}: {served}")


@app.command()
def info(
    model: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="MODEL", help="The file to look at: ONNX, a graph of TensorFlow, or a net of Caffe2."
        ),
    ],
    trusted: Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Show the opsets, inputs, outputs, operators and weights of a model file."""
    from ..capture.caffe2.reading import is_net
    from ..capture.tensorflow.recognition import recognise

    if is_net(model):
        from ..capture.caffe2.summary import describe_net as describe
    elif recognise(model) is None:
        from ..files.summary import describe_file as describe
    else:
        from ..capture.tensorflow.summary import describe_graph as describe
    found = describe(model, trusted=trusted)
    if as_json:
        print_json(found)
        return
    for line in _header(found):
        say(line)
    rows = table("", "name", "type", "shape")
    for kind in ("inputs", "outputs"):
        for value in found[kind][:MOST_SHOWN]:
            row(rows, kind.removesuffix("s"), value["name"], value["type"], shape_text(value["shape"]))
        if len(found[kind]) > MOST_SHOWN:
            row(rows, kind, more(len(found[kind])), "", "")
    show(rows)
    for entry in found.get("dimensions", ()):
        where = f"{entry['line']}: " if entry["line"] else ""
        print(f"valid for {entry['condition']} ({where}{entry['reason']})")
    for entry in found.get("specializations", ()):
        print(f"fixed at the example: {Specialization(**entry)}")
    rows = table("operator", "nodes")
    for name, count in list(found["operators"].items())[:MOST_SHOWN]:
        row(rows, name, str(count))
    if len(found["operators"]) > MOST_SHOWN:
        row(rows, more(len(found["operators"])), "")
    row(rows, "all", str(found["nodes"]))
    show(rows)


def _header(found: dict[str, Any]) -> Iterator[str]:
    """What `info` says of a file before the tables."""
    file = f"{found['file']}: {size_text(found['bytes'])}"
    if "opset_imports" in found:
        opsets = _listed([f"{domain} {version}" for domain, version in found["opset_imports"].items()])
        yield f"{file}, opsets {opsets}, IR version {found['ir_version']}"
        weights = found["initializers"]
        where = f", in {_listed(found['external_data'])}" if found["external_data"] else ""
        yield f"weights: {weights['count']} initializers, {size_text(weights['bytes'])}{where}"
        return
    yield f"{file}, {found['form']} {found['kind']}, {found['producer']}"
    constants = found["constants"]
    where = f"; checkpoint {found['checkpoint']}" if found.get("checkpoint") else ""
    yield f"weights: {constants['count']} constants, {size_text(constants['bytes'])}{where}"
    if found.get("signatures"):
        yield f"signatures: {_listed(found['signatures'])}; shown is {found['signature'] or 'none of them'}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_SHOWN])
    return f"{shown}, {more(len(names))}" if len(names) > MOST_SHOWN else shown


def _report(report: Any) -> dict[str, Any]:
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
