"""The command `opsetta targets`, and `opsetta check --target`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....registration import UsageError
from ....registration.opsets import MAXIMUM_OPSET, MINIMUM_OPSET, opset_or_default
from ..options import export as options
from ..terminal.output import say
from ..terminal.tables import print_json, row, show, table

if TYPE_CHECKING:
    import onnx_ir as ir

    from ....registration import InvalidNode
    from ...devices.targets.target import Target


def resolve_target(
    opset: int | None, target: str | None, *, force: bool = False
) -> tuple[int, Target | None]:
    """The opset and the target that the options of a command name."""
    # Commands without a target start faster without these modules.
    if target is None:
        return opset_or_default(opset), None
    from ...devices.targets import load_target

    return load_target.resolve_target(opset, target, force=force)


def targets(
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table of docs/targets.md.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the runtimes and devices that --target names."""
    from ...devices.targets.load_target import load_target, target_names

    if as_markdown and as_json:
        raise UsageError("--markdown and --json exclude each other")
    loaded_targets = [load_target(name) for name in target_names()]
    if as_json:
        print_json({"targets": [_as_json(target) for target in loaded_targets]})
        return
    if as_markdown:
        print(markdown(loaded_targets), end="")
        return
    targets_table = table("target", "opsets", "default", "versions", "product")
    for target in loaded_targets:
        cells = [str(target.opsets), str(target.default_opset), _versions(target), target.title]
        row(targets_table, target.name, *cells)
    show(targets_table)


def markdown(loaded_targets: Iterable[Target]) -> str:
    """The table of docs/targets.md."""
    lines = [
        "| target | product | versions | opsets | default | operators | not supported | conventions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for target in loaded_targets:
        cells = [f"`{target.name}`", target.title, _versions(target)]
        cells += [str(target.opsets), str(target.default_opset)]
        cells += [
            _operators(target),
            "; ".join(_limitations(target)) or "-",
            "; ".join(_conventions(target)) or "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _versions(target: Target) -> str:
    """The versions that can be named: those from the oldest measured one on, and those of other targets."""
    measured = target.measured_versions
    return f"{measured[0]} and up" if len(measured) > 1 else "-"


def _operators(target: Target) -> str:
    if target.operators.taken:
        return f"{len(target.operators.taken)} supported"
    return f"{len(target.operators.refused)} not supported" if target.operators.refused else "not listed"


def _limitations(target: Target) -> list[str]:
    limitations = []
    if target.static_shapes:
        limitations.append("dynamic shapes")
    if target.read_inputs:
        limitations.append("inputs that no node reads")
    if not target.external_data:
        limitations.append("external data")
    if target.maximum_bytes is not None:
        limitations.append(f"weights above {target.maximum_bytes:,} bytes")
    if target.types.taken:
        limitations.append(f"types other than {', '.join(sorted(target.types.taken))}")
    return limitations


def _conventions(target: Target) -> list[str]:
    conventions = []
    for name, value in dataclasses.asdict(target.conventions).items():
        text = ", ".join(value) if isinstance(value, tuple) else value
        if value:
            conventions.append(name.replace("_", " ") + ("" if value is True else f": {text}"))
    return conventions


def _as_json(target: Target) -> dict[str, object]:
    opsets = {
        "minimum": target.opsets.minimum or MINIMUM_OPSET,
        "maximum": target.opsets.maximum or MAXIMUM_OPSET,
        "default": target.default_opset,
    }
    return {
        "name": target.name,
        "title": target.title,
        "opsets": opsets,
        "measured_versions": list(target.measured_versions),
        "sources": list(target.sources),
        "notes": target.notes,
    }


def check_target(model: pathlib.Path, target: str, trusted: bool, as_json: bool) -> None:
    """Print everything in a file that a target does not support; exit with 1 if there is anything."""
    from ...devices.targets.load_target import load_target
    from ...files.reading import ModelFolder, bounds_of, read_model, to_ir
    from ...lowering.conversion.source_validity import invalid_nodes_of_file

    loaded_target = load_target(target)
    bounds = bounds_of(trusted)
    read = to_ir(read_model(model, bounds), ModelFolder.of(model), bounds)
    facts, lines = describe_target(
        read, loaded_target, is_file=True, invalid=invalid_nodes_of_file(read, bounds)
    )
    report = facts["target"]
    if as_json:
        opset = read.graph.opset_imports.get("")
        taken = not report["problems"]
        print_json({"file": str(model), **report, "opset": opset, "taken": taken})
    elif report["problems"]:
        say(f"{model}: target '{loaded_target.name}' ({loaded_target.title}) does not support")
    else:
        say(f"{model}: no known problems with target '{loaded_target.name}' ({loaded_target.title})")
    for line in () if as_json else lines:
        say(line)
    if report["problems"]:
        raise typer.Exit(1)


def describe_target(
    model: ir.Model,
    target: Target | None,
    *,
    is_file: bool = False,
    invalid: Iterable[InvalidNode] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """What is known about a model in a target, as JSON and as lines; nothing without a target."""
    if target is None:
        return {}, []
    from ...devices.targets.target_report import report_on_target

    report = report_on_target(model, target, is_file=is_file, invalid=invalid)
    facts = {"target": target.name, "version": target.version, **dataclasses.asdict(report)}
    lines = [f"  - {problem}" for problem in report.problems]
    lines += [f"  - {node}" for node in (*report.inexact_nodes, *report.host_nodes)]
    return {"target": facts}, [*lines, *report.lines(target)]
