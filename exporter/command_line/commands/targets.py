"""The command `opsetta targets`, and `opsetta check --target`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Annotated

import typer

from ....registration.opsets import MAXIMUM_OPSET, MINIMUM_OPSET
from ...devices.targets.load_target import load_target, target_names
from ...devices.targets.target import Target
from ..options import export as options
from ..terminal.output import say
from ..terminal.tables import print_json, row, show, table


def targets(
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table of docs/targets.md.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the runtimes and devices that a model can be written for or checked against."""
    loaded_targets = [load_target(name) for name in target_names()]
    if as_json:
        print_json({"targets": [_as_json(target) for target in loaded_targets]})
        return
    if as_markdown:
        print(markdown(loaded_targets), end="")
        return
    targets_table = table("target", "opsets", "default", "product")
    for target in loaded_targets:
        row(targets_table, target.name, str(target.opsets), str(target.default_opset), target.title)
    show(targets_table)


def markdown(loaded_targets: Iterable[Target]) -> str:
    """The table of docs/targets.md."""
    lines = [
        "| target | product | opsets | default | operators | not supported | conventions |",
        "|---|---|---|---|---|---|---|",
    ]
    for target in loaded_targets:
        cells = [f"`{target.name}`", target.title, str(target.opsets), str(target.default_opset)]
        cells += [
            _operators(target),
            "; ".join(_limitations(target)) or "-",
            "; ".join(_conventions(target)) or "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _operators(target: Target) -> str:
    if target.operators.taken:
        return f"{len(target.operators.taken)} supported"
    return f"{len(target.operators.refused)} not supported" if target.operators.refused else "not listed"


def _limitations(target: Target) -> list[str]:
    limitations = []
    if target.static_shapes:
        limitations.append("dynamic shapes")
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
        "sources": list(target.sources),
        "notes": target.notes,
    }


def check_target(model: pathlib.Path, target: str, trusted: bool, as_json: bool) -> None:
    """Print everything in a file that a target does not support; exit with 1 if there is anything."""
    from ...devices.targets.target_problems import find_problems
    from ...files.reading import ModelFolder, bounds_of, read_model, to_ir
    from ...lowering.conversion.source_validity import invalid_nodes_of_file

    loaded_target = load_target(target)
    bounds = bounds_of(trusted)
    read = to_ir(read_model(model, bounds), ModelFolder.of(model), bounds)
    problems = find_problems(read, loaded_target, is_file=True, invalid=invalid_nodes_of_file(model, trusted))
    if as_json:
        listed = [dataclasses.asdict(problem) for problem in problems]
        opset = read.graph.opset_imports.get("")
        print_json(
            {
                "file": str(model),
                "target": loaded_target.name,
                "opset": opset,
                "taken": not problems,
                "problems": listed,
            }
        )
    elif problems:
        say(f"{model}: target '{loaded_target.name}' ({loaded_target.title}) does not support")
        for problem in problems:
            say(f"  - {problem}")
    else:
        say(f"{model}: no known problems with target '{loaded_target.name}' ({loaded_target.title})")
    if problems:
        raise typer.Exit(1)
