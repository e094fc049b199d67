"""The commands `opsetta plan`, `build`, `plan-tflite`, `prepack` and `stream`: models for deployment."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Annotated

import typer

from ....registration import UsageError
from ....registration.opsets import OPSET_RANGE, check_opset
from ...devices.memory_amounts import EXTRA_WORK, memory_amount
from ...files.output.output_paths import check_folder, resolve
from ..options import export as options
from ..options.named_values import parse_sizes
from ..terminal.output import say
from ..terminal.tables import count_text
from .editing import load_as_onnx

Mode = Annotated[str, typer.Option(help="inference, or train for a training graph.")]
InPlace = Annotated[bool, typer.Option("--in-place/--no-in-place", help="Whether nodes overwrite operands.")]
Reorder = Annotated[
    bool,
    typer.Option(
        "--reorder/--keep-order", help="Whether to change the order of nodes if that needs less memory."
    ),
]
SplitNodes = Annotated[
    bool | None,
    typer.Option(
        "--split/--no-split",
        help="Whether to split nodes into parts for less memory; by default those of inference.",
    ),
]
Tile = Annotated[
    bool,
    typer.Option(
        "--tile",
        help="Split convolutions into bands of rows, too; neighbouring bands compute some rows twice.",
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        help="The memory for values, such as 64MiB, or lowest. Nodes run again to meet it.",
    ),
]
ExtraWork = Annotated[
    float,
    typer.Option(help="How many operations --memory-limit and --tile may add, as a share of the model's."),
]
Memories = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZE",
        help="A memory of the device, such as sram=512KiB; may be repeated, the fastest first. The last one "
        "may have no size.",
    ),
]


def memories_of(entries: list[str] | None) -> dict[str, str | None] | None:
    """The sizes of memories by name, from `NAME=SIZE` or `NAME`."""
    if entries is None:
        return None
    pairs = [entry.partition("=") for entry in entries]
    names = [name for name, _, _ in pairs]
    if "" in names or len(set(names)) < len(names):
        raise UsageError(f"--memory needs a different name for each memory, not {', '.join(entries)}")
    return {name: size if sign else None for name, sign, size in pairs}


def plan(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to plan.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    mode: Mode = "inference",
    budget: Annotated[
        str | None, typer.Option(help="The memory for values and weights, such as 200MB or 64MiB.")
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="The size of a dimension; may be repeated.")
    ] = None,
    alignment: Annotated[int, typer.Option(help="The alignment of offsets, in bytes.")] = 64,
    html: Annotated[
        bool, typer.Option("--html", help="Also write plan.html, a page with the picture.")
    ] = False,
    prefix: Annotated[
        str, typer.Option(help="The beginning of the names in plan.h; one for each plan in a program.")
    ] = "opsetta",
    in_place: InPlace = True,
    reorder: Reorder = True,
    split: SplitNodes = None,
    tile: Tile = False,
    memory_limit: MemoryLimit = None,
    extra_work: ExtraWork = EXTRA_WORK,
    memory: Memories = None,
    trusted: options.Trusted = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json.")] = False,
) -> None:
    """Plan execution order, lifetimes and memory offsets.

    The exit code is 1 if values and weights do not fit into --budget.
    """
    from ...devices.plan.forms.picture import summary

    check_folder(output)
    dimensions = parse_sizes(dim)
    limit = None if budget is None else memory_amount(budget)
    planned = load_as_onnx(model, trusted).plan(
        mode=mode,
        budget=limit,
        dimensions=dimensions,
        alignment=alignment,
        in_place=in_place,
        reorder=reorder,
        split=split,
        tile=tile,
        memory_limit=memory_limit,
        extra_work=extra_work,
        memories=memories_of(memory),
    )
    planned.save(output, html=html, prefix=prefix)
    if as_json:
        print(planned.to_json())
    else:
        say(f"{output}: {summary(planned)}")
    if planned.fits is False:
        raise typer.Exit(1)


def build(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to build.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="The size of a dimension; may be repeated.")
    ] = None,
    mode: Mode = "inference",
    in_place: InPlace = True,
    reorder: Reorder = True,
    split: SplitNodes = None,
    tile: Tile = False,
    memory_limit: MemoryLimit = None,
    extra_work: ExtraWork = EXTRA_WORK,
    memory: Memories = None,
    trusted: options.Trusted = False,
) -> None:
    """Write a C99 program that runs a model on a device.

    The folder has the model, a runtime in C99, and a Makefile.
    """
    from ...onnx_model import OnnxModel

    check_folder(output)
    source, sizes = load_as_onnx(model, trusted), parse_sizes(dim)
    if sizes and isinstance(source, OnnxModel) and mode == "inference":
        # What the graph computes of its sizes, such as the bounds of a Slice, becomes constant.
        source, sizes = source.lower(source.opset, dims=sizes), {}
    planned = source.plan(
        mode=mode,
        dimensions=sizes,
        in_place=in_place,
        reorder=reorder,
        split=split,
        tile=tile,
        memory_limit=memory_limit,
        extra_work=extra_work,
        memories=memories_of(memory),
    )
    planned.build(output)
    say(f"{output}: arena of {planned.peak} bytes, {len(planned.nodes)} nodes; compile it with make")


def plan_tflite(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.tflite", help="The file to plan.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The .tflite file to write.")],
    as_json: options.Json = False,
) -> None:
    """Write the memory plan of TensorFlow Lite Micro into a .tflite file."""
    from ...devices.plan.forms.tflite_plan import plan_tflite as write_plan

    resolve(output)
    planned = write_plan(model, output)
    if as_json:
        print(json.dumps(dataclasses.asdict(planned), indent=2))
    else:
        count = sum(offset >= 0 for offset in planned.offsets)
        say(f"{output}: {count} tensors in {planned.peak} bytes (lower bound {planned.lower_bound})")


def prepack(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to pack.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    opset: Annotated[
        int | None,
        typer.Option(help=f"The opset of the portable model, {OPSET_RANGE}; by default the file's."),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            help="portable, or native: also packs convolutions, for processors with the same instructions."
        ),
    ] = "portable",
    header: Annotated[
        bool,
        typer.Option(
            "--header", help="Also write opsetta_prepack.h, with which programs in C check the folder."
        ),
    ] = False,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Pack the weights of a model for onnxruntime on this machine.

    The folder also has the portable model. opsetta.load_session opens it.
    """
    from ...devices.prepack.manifest import MANIFEST, PACKED, PLAIN, Manifest

    check_folder(output)
    if opset is not None:
        check_opset(opset)
    load_as_onnx(model, trusted, opset).save(output, prepack=True, layout=layout)
    if header:
        from ...devices.prepack.saving import write_header

        write_header(output)
    if not (output / MANIFEST).is_file():
        # A warning has said that onnxruntime packs no weight.
        facts = {"folder": str(output), "layout": layout, "packed_weights": 0}
        say(json.dumps(facts) if as_json else f"{output / PLAIN}: no packed weights")
        return
    manifest = Manifest.from_folder(output)
    size = sum(blob.size for blob in manifest.blobs)
    if as_json:
        summary = {
            "folder": str(output),
            "layout": manifest.layout,
            "packed_weights": len(manifest.blobs),
            "packed_bytes": size,
            "files": {record.name: record.size for record in (*manifest.plain, *manifest.packed)},
        }
        print(json.dumps(summary, indent=2))
        return
    say(
        f"{output / PACKED}: {count_text(len(manifest.blobs), 'packed weight')}, {size} bytes; "
        f"{MANIFEST} says where they are valid"
    )


def stream(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to stream.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    opset: Annotated[
        int | None, typer.Option(help=f"The opset of the model, {OPSET_RANGE}; by default the file's.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Show the segments for this memory of weights and activations, such as 200MB."),
    ] = None,
    lookahead: Annotated[
        int | None, typer.Option(min=0, help="Show the segments if so many of them are read ahead.")
    ] = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Write a folder that runs with few weights in memory.

    opsetta.StreamingSession runs it.
    """
    from ...devices.streaming import StreamingSession, save_streaming
    from ...devices.streaming.folder import INDEX, Index

    check_folder(output)
    if opset is not None:
        check_opset(opset)
    if budget is not None:
        memory_amount(budget)
    save_streaming(load_as_onnx(model, trusted, opset), output)
    index = Index.from_folder(output)
    size = sum(weight.size for weight in index.weights)
    facts = {"folder": str(output), "weights": len(index.weights), "weight_bytes": size}
    text = f"{output / INDEX}: {count_text(len(index.weights), 'weight')}, {size} bytes"
    if budget is not None or lookahead is not None:
        with StreamingSession(
            output, budget=budget, lookahead=lookahead, verify="size", trusted=trusted
        ) as session:
            facts |= {
                "segments": len(session.segments),
                "lookahead": session.lookahead,
                "largest_segment": session.largest_segment,
                "activations": session.activations,
            }
        text += (
            f"; {count_text(len(session.segments), 'segment')} of {facts['largest_segment']} bytes at most, "
            f"lookahead {facts['lookahead']}, {facts['activations']} bytes of activations"
        )
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        say(text)
