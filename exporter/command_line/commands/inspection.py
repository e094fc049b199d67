"""The commands `opsetta check`, `opsetta ops` and `opsetta info`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ....registration import AnnotationError, OpsettaError, UnsafeAnnotation
from ....registration.opsets import OPSET_RANGE
from ...captured_graph.specializations import Specialization
from ..options import export as options
from ..options.export import Trusted
from ..terminal.output import say
from ..terminal.tables import MOST_SHOWN, more, print_json, row, shape_text, show, size_text, table
from .targets import check_target


def check(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to check.")],
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME | FILE.toml", help="Check instead what this consumer does not take."),
    ] = None,
    trusted: Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Check that the nodes of a model file are valid, and that its in-place annotations are safe.

    With --target, check what that consumer does not take; its list has the invalid nodes, too.
    """
    if target is not None:
        check_target(model, target, trusted, as_json)
        return
    from ...lowering.conversion.source_validity import invalid_nodes_of_file
    from ...running.inplace_check import check_inplace

    count = 0
    unsafe: tuple[UnsafeAnnotation, ...] = ()
    try:
        count = check_inplace(model, trusted=trusted)
    except AnnotationError as error:
        unsafe = error.unsafe
    invalid = invalid_nodes_of_file(model, trusted)
    if as_json:
        print_json(
            {
                "file": str(model),
                "invalid": [dataclasses.asdict(entry) for entry in invalid],
                "safe": count,
                "unsafe": [dataclasses.asdict(entry) for entry in unsafe],
            }
        )
    for entry in () if as_json else (*invalid, *unsafe):
        say(entry)
    if invalid or unsafe:
        raise typer.Exit(1)
    if not as_json:
        say(f"{model}: every node is valid; {count} in-place annotations, all safe")


def ops(
    opset: Annotated[
        int | None, typer.Option(help=f"The opset to look at, {OPSET_RANGE}; the swept ones unless given.")
    ] = None,
    text: Annotated[str, typer.Option("--filter", help="Only operators whose name holds this text.")] = "",
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/operators.md.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the operators: symbolic (S), decomposed (D) or refused (-) at each opset, and why."""
    from .. import operator_support as support

    if as_markdown:
        if opset is not None or text or as_json:
            raise OpsettaError("--markdown prints the whole page, and cannot be combined with other options")
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
    from ...capture.caffe2.net_reading import is_net
    from ...capture.tensorflow.recognition import recognise

    if is_net(model):
        from ...capture.caffe2.summary import describe_net as describe
    elif recognise(model) is None:
        from ...files.summary import describe_file as describe
    else:
        from ...capture.tensorflow.summary import describe_graph as describe
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
    """The lines that `info` prints before the tables."""
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
