"""Choose few backend cases that together run every line of the version ladder that all of them run.

    python -m tests.conversion.choose_cases > tests/conversion/chosen_cases.txt

Each line of the file has the name of a case and the opsets at which it is converted. Run it after new cases
or new operators; it takes two minutes.
"""

from __future__ import annotations

import collections
import os
import pathlib
import sys
import warnings
from types import FrameType
from typing import Any

import onnx.defs

import opsetta
from opsetta import symbolics

from .cases import all_cases
from .judge import ours

_FOLDER = pathlib.Path(symbolics.__file__).parent
_FOLDERS = tuple(str(_FOLDER / name) + os.sep for name in ("onnx", "compositions", "sym"))

Line = tuple[str, int]


def opsets_of(model: onnx.ModelProto) -> list[int]:
    """The lowest opset, and those just below the newer versions of the operators, where the ladder serves."""
    own = next(entry.version for entry in model.opset_import if not entry.domain)
    kinds = {node.op_type for node in model.graph.node if not node.domain}
    versions = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and schema.name in kinds
    }
    lowest, highest = opsetta.MINIMUM_OPSET, min(own, opsetta.MAXIMUM_OPSET)
    return sorted({lowest, *(version - 1 for version in versions if lowest < version <= highest)})


def reached(model: onnx.ModelProto, opset: int) -> set[Line]:
    """The lines of the ladder that a conversion runs; none if it is refused."""
    found: set[Line] = set()

    def in_function(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found.add((frame.f_code.co_filename, frame.f_lineno))
        return in_function

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return in_function if frame.f_code.co_filename.startswith(_FOLDERS) else None

    sys.settrace(trace)
    try:
        ours(model, opset)
    except opsetta.UnsupportedOperatorsError:
        return set()
    finally:
        sys.settrace(None)
    return found


def chosen(found: dict[tuple[str, int], set[Line]]) -> list[tuple[str, int]]:
    """Few of the keys, whose lines together are all lines: again and again the one with most new lines."""
    rest = {line for lines in found.values() for line in lines}
    keys: list[tuple[str, int]] = []
    candidates = {key: set(lines) for key, lines in found.items()}
    while rest:
        best = max(candidates, key=lambda key: len(candidates[key]))
        keys.append(best)
        new = candidates.pop(best)
        rest -= new
        candidates = {key: left for key, lines in candidates.items() if (left := lines - new)}
    return keys


def main() -> None:
    """Print the cases."""
    found: dict[tuple[str, int], set[Line]] = {}
    for case in all_cases():
        if "_expanded" in case.name or "" not in {entry.domain for entry in case.model.opset_import}:
            continue
        for opset in opsets_of(case.model):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lines = reached(case.model, opset)
            if lines:
                found[case.name, opset] = lines
    opsets = collections.defaultdict(list)
    for name, opset in chosen(found):
        opsets[name].append(opset)
    for name in sorted(opsets):
        print(name, *sorted(opsets[name]))


if __name__ == "__main__":
    main()
