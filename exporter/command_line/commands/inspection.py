"""The commands `opsetta check`, `opsetta ops` and `opsetta info`."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import onnx_ir as ir
import typer

from ....registration import AnnotationError, GraphError, OpsettaError, UnsafeAnnotation, UsageError
from ....registration.opsets import OPSET_RANGE
from ....registration.printable import one_line
from ...captured_graph.specializations import Specialization
from ..options import export as options
from ..options import interface
from ..terminal.output import say
from ..terminal.tables import (
    MOST_SHOWN,
    count_text,
    more,
    print_json,
    row,
    shape_text,
    show,
    size_text,
    table,
)
from .editing import load_onnx
from .targets import check_target

if TYPE_CHECKING:
    from ...inspection.node_costs import ModelCosts


_PLAN, _SEARCH = 10, 50
"""How many times as much time as an inference of shapes a plan may take, and the search for its order."""


def check(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to check.")],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[@VERSION] | FILE.toml",
            help="List instead everything that this runtime or device does not support.",
        ),
    ] = None,
    inplace: Annotated[
        bool, typer.Option("--inplace", help="Check instead that its in-place annotations are safe.")
    ] = False,
    run: Annotated[
        bool,
        typer.Option("--run", help="Also run the file on random inputs. Only for files that you trust."),
    ] = False,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Check that nodes are valid, and which targets support a file."""
    if (target is not None) + inplace + run > 1:
        raise UsageError("--target, --inplace and --run are separate checks: pass one of them")
    if target is not None:
        check_target(model, target, trusted, as_json)
        return
    if inplace:
        _check_inplace(model, trusted, as_json)
        return
    loaded = load_onnx(model, trusted)
    checked = loaded.check(run=run)
    if as_json:
        facts = dataclasses.asdict(checked) | {"supported_by": checked.supported_by}
        print_json({"file": str(model), "valid": not checked.invalid, **facts})
    else:
        count = len(checked.invalid)
        validity = f"{count} node{'s' if count > 1 else ''} not valid" if count else "every node is valid"
        say(f"{model}: {validity} at opset {loaded.opset}")
        for line in checked.lines():
            say(line)
    if not checked.is_good:
        raise typer.Exit(1)


def _check_inplace(model: pathlib.Path, trusted: bool, as_json: bool) -> None:
    from ...running.comparisons.inplace_check import check_inplace

    count = 0
    unsafe: tuple[UnsafeAnnotation, ...] = ()
    try:
        count = check_inplace(model, trusted=trusted)
    except AnnotationError as error:
        unsafe = error.unsafe
    if as_json:
        entries = [dataclasses.asdict(entry) for entry in unsafe]
        print_json({"file": str(model), "safe": count, "unsafe": entries})
    for entry in () if as_json else unsafe:
        say(entry)
    if unsafe:
        raise typer.Exit(1)
    if not as_json:
        say(f"{model}: {count} in-place annotations, all safe")


def ops(
    opset: Annotated[
        int | None,
        typer.Option(help=f"The opset to list, {OPSET_RANGE}; by default those of docs/operators.md."),
    ] = None,
    text: Annotated[str, typer.Option("--filter", help="Only operators whose name contains this text.")] = "",
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/operators.md.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the operators that each opset supports.

    S: a symbolic function writes the operator. D: PyTorch decomposes it into such operators. -: it is
    refused. With --opset, the reasons are printed.
    """
    from .. import operator_support as support

    if as_markdown:
        if opset is not None or text or as_json:
            raise UsageError("--markdown prints the whole page, and cannot be combined with other options")
        print(support.markdown(), end="")
        return
    opsets = support.swept()["opsets"] if opset is None else [opset]
    entries_by_operator = support.operator_support(opsets, text)
    if not entries_by_operator:
        raise UsageError(f"no operator has '{text}' in its name")
    if as_json:
        rows = [
            dataclasses.asdict(entry)
            for entries in entries_by_operator.values()
            for entry in entries.values()
        ]
        print_json({"opsets": opsets, "operators": rows})
        return
    rows_table = table("operator", *map(str, opsets), "refused")
    for name, entries in entries_by_operator.items():
        cells = (support.cell(entry) for entry in entries.values())
        row(rows_table, name, *cells, "; ".join(support.remarks(entries)))
    show(rows_table)
    for opset_number in opsets:
        supports = [entries[opset_number].support for entries in entries_by_operator.values()]
        served = ", ".join(f"{supports.count(support_name)} {support_name}" for support_name in support.KINDS)
        print(f"opset {opset_number}: {served}")


def info(
    model: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="MODEL", help="The file to describe: ONNX, a TensorFlow graph, or a Caffe2 net."
        ),
    ],
    nodes: Annotated[
        bool,
        typer.Option("--nodes", help="Show instead all nodes: shapes, multiplications and weights of each."),
    ] = False,
    dim: interface.Dims = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Show opsets, inputs, outputs, operators and weights of a file."""
    sizes = interface.interface_arguments(None, dim)
    if nodes:
        _show_nodes(model, *_costs_and_totals(model, sizes, trusted), as_json)
        return
    from ...capture.caffe2.net_reading import is_net
    from ...capture.tensorflow.recognition import recognise

    if is_net(model):
        from ...capture.caffe2.summary import describe_net as describe
    elif recognise(model) is None:
        from ...files.summary import describe_file as describe
    else:
        from ...capture.tensorflow.summary import describe_graph as describe
    description = describe(model, trusted=trusted)
    totals: dict[str, Any] = {}
    cause = ""
    if "opset_imports" in description:
        try:
            _, totals = _costs_and_totals(model, sizes, trusted)
        # A file that is not valid, or has no weights beside it, can be described without its costs.
        except OpsettaError as error:
            if sizes:
                raise
            cause = one_line(error)
    elif sizes:
        raise UsageError(f"--dim is for ONNX files, and '{model}' is none")
    if as_json:
        print_json(description | totals)
        return
    for line in _header(description):
        say(line)
    rows = table("", "name", "type", "shape")
    for section in ("inputs", "outputs"):
        for value in description[section][:MOST_SHOWN]:
            row(rows, section.removesuffix("s"), value["name"], value["type"], shape_text(value["shape"]))
        if len(description[section]) > MOST_SHOWN:
            row(rows, section, more(len(description[section])), "", "")
    show(rows)
    for entry in description.get("dimensions", ()):
        where = f"{entry['line']}: " if entry["line"] else ""
        print(f"valid for {entry['condition']} ({where}{entry['reason']})")
    for entry in description.get("specializations", ()):
        print(f"fixed at the example: {Specialization(**entry)}")
    rows = table("operator", "nodes")
    for name, count in list(description["operators"].items())[:MOST_SHOWN]:
        row(rows, name, str(count))
    if len(description["operators"]) > MOST_SHOWN:
        row(rows, more(len(description["operators"])), "")
    row(rows, "all", str(description["nodes"]))
    show(rows)
    if totals:
        _show_totals(totals)
    elif cause:
        say(f"parameters and MACs: unknown, because {cause}")


def _costs_and_totals(
    path: pathlib.Path, sizes: dict[str, Any], trusted: bool
) -> tuple[ModelCosts, dict[str, Any]]:
    """The costs of all nodes of an ONNX file, and their sums with the planned memory of results."""
    from ...devices.plan.options import PlanOptions
    from ...devices.plan.plan import declared_shapes, make_plan, sort_nodes
    from ...files.reading import REMEDY, bounds_of
    from ...inspection.node_costs import model_costs
    from ...lowering.conversion.prepared_models.preparation import prepare_source
    from ...lowering.conversion.size import is_describable

    model = load_onnx(path, trusted)
    tensors = [value.const_value for value in model.model.graph.initializers.values()]
    files = {path, *(pathlib.Path(t.path) for t in tensors if isinstance(t, ir.ExternalTensor))}
    size = sum(file.stat().st_size for file in files)
    if not (trusted or is_describable(model.model, size)):
        raise GraphError(f"the costs of so many nodes are not computed for a file of {size} bytes; {REMEDY}")
    if sizes:
        model = model.lower(model.opset, optimize="none", **sizes)
    bounds = bounds_of(trusted)
    declared = declared_shapes(model.model)
    # Costs and plan share one inference of shapes, in the model itself, which nothing else reads.
    sort_nodes(model.model)
    prepare_source(model.model, bounds)
    costs = model_costs(model.model)
    peak: int | None = None
    is_planned = trusted or is_describable(model.model, size, _PLAN)
    reorder = trusted or is_describable(model.model, size, _SEARCH)
    # Without the sizes of dynamic dimensions there is no plan.
    with contextlib.suppress(OpsettaError):
        if is_planned:
            # The search for nodes to split takes far longer than all else.
            plan_options = PlanOptions(split=False, reorder=reorder)
            peak = make_plan(model.model, plan_options, bounds, declared).peak
    return costs, {
        "parameters": costs.parameters,
        "macs": costs.macs,
        "peak_bytes": peak,
        "planned_order": ("searched" if reorder else "file") if is_planned else None,
        "bytes_by_operator": costs.weight_bytes_by("operator"),
        "bytes_by_module": costs.weight_bytes_by("module"),
    }


def _show_nodes(path: pathlib.Path, costs: ModelCosts, totals: dict[str, Any], as_json: bool) -> None:
    """Print the costs of all nodes, and their sums."""
    if as_json:
        print_json({"file": str(path), **dataclasses.asdict(costs), **totals})
        return
    rows = table("node", "operator", "result", "type", "shape", "MACs", "weights")
    for node in costs.nodes[:MOST_SHOWN]:
        macs = "?" if node.macs is None else str(node.macs or "")
        weights = size_text(node.weight_bytes) if node.weight_bytes else ""
        row(rows, node.name, node.operator, node.result, node.dtype, shape_text(node.shape), macs, weights)
    if len(costs.nodes) > MOST_SHOWN:
        row(rows, more(len(costs.nodes)), "", "", "", "", "", "")
    show(rows)
    _show_totals(totals)


def _show_totals(totals: dict[str, Any]) -> None:
    macs = f"{totals['macs']:,}" if isinstance(totals["macs"], int) else totals["macs"] or "unknown"
    say(f"parameters: {totals['parameters']:,}; multiplications with additions (MACs): {macs}")
    peak = totals["peak_bytes"]
    if totals["planned_order"] is None:
        memory = "not for so many nodes, except with --trusted"
    elif peak is None:
        memory = "for fixed sizes only (--dim NAME=SIZE)"
    else:
        memory = size_text(peak) + (" in the order of the file" if totals["planned_order"] == "file" else "")
    say(f"memory of results, planned: {memory}")
    for subject in ("operator", "module"):
        sums = totals[f"bytes_by_{subject}"]
        # Weights that belong to no module are listed under the empty name.
        listed = [f"{name or 'other'} {size_text(size)}" for name, size in sums.items()]
        hidden = [more(len(listed))] if len(listed) > MOST_SHOWN else []
        say(f"weights by {subject}: {', '.join(listed[:MOST_SHOWN] + hidden) or 'none'}")


def _header(description: dict[str, Any]) -> Iterator[str]:
    """The lines that `info` prints before the tables."""
    file = f"{description['file']}: {size_text(description['bytes'])}"
    if "opset_imports" in description:
        opsets = _list_names(
            [f"{domain} {version}" for domain, version in description["opset_imports"].items()]
        )
        yield f"{file}, opsets {opsets}, IR version {description['ir_version']}"
        weights = description["initializers"]
        where = f", in {_list_names(description['external_data'])}" if description["external_data"] else ""
        yield f"weights: {count_text(weights['count'], 'initializer')}, {size_text(weights['bytes'])}{where}"
        return
    yield f"{file}, {description['form']} {description['kind']}, {description['producer']}"
    constants = description["constants"]
    where = f"; checkpoint {description['checkpoint']}" if description.get("checkpoint") else ""
    yield f"weights: {constants['count']} constants, {size_text(constants['bytes'])}{where}"
    if description.get("signatures"):
        chosen = description["signature"] or "none of them"
        yield f"signatures: {_list_names(description['signatures'])}; this shows {chosen}"


def _list_names(names: list[str]) -> str:
    first_names = ", ".join(names[:MOST_SHOWN])
    return f"{first_names}, {more(len(names))}" if len(names) > MOST_SHOWN else first_names
