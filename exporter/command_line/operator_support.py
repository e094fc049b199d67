"""Reports the supported operators by opset, from the registry and the results of the last sweep.

`python -m tests.sweep.support` writes `operator_support.json` beside this file from the results of a sweep.
Works without torch.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...registration import Registry, default_registry, load_entry_points
from ...registration.functions.registry import split_name
from ...registration.opsets import MAXIMUM_OPSET, MINIMUM_OPSET, check_opset

SYMBOLIC = "symbolic"
DECOMPOSED = "decomposed"
REFUSED = "refused"
KINDS = (SYMBOLIC, DECOMPOSED, REFUSED)

INTERNAL = ("before", "composed", "from_end", "list", "onnx", "packed", "promotion")
"""Internal domains of passes, compositions and conversion (`before13::Softmax`), which no model uses."""

OTHER_FRAMEWORKS = ("tf", "tf_complex", "caffe2")
"""Domains of operators that torch's databases do not have, and pages of their own list."""


@dataclasses.dataclass(frozen=True)
class OperatorSupport:
    """The support of one operator at one opset.

    Attributes:
        name: qualified name without overload; a function for any overload counts.
        opset: the opset.
        support: `"symbolic"`, it has a symbolic function; `"decomposed"`, torch's decomposition ends in
            operators with symbolic functions; `"refused"`; or None, it has no function and the sweep did not
            meet it.
        reasons: why samples of the sweep were refused; all samples if `support` is `"refused"`, else some.
        serves: the opset of the function, or None.
        first_opset: the lowest opset with a function, or None.
    """

    name: str
    opset: int
    support: str | None
    reasons: tuple[str, ...]
    serves: int | None
    first_opset: int | None


def swept() -> Mapping[str, Any]:
    """The results of the last sweep: `opsets`, and per operator those where it `passed` or was `refused`."""
    text = importlib.resources.files(__package__).joinpath("operator_support.json").read_text("utf-8")
    result: Mapping[str, Any] = json.loads(text)
    return result


def operator_support(
    opsets: Sequence[int], text: str = "", registry: Registry | None = None
) -> dict[str, dict[int, OperatorSupport]]:
    """The support of every known operator, by name and opset.

    Args:
        text: only operators whose name contains this text, ignoring case.
        registry: by default the default registry with entry points of installed packages.

    Raises:
        OpsetError: an opset that opsetta does not write.
    """
    for opset in opsets:
        check_opset(opset)
    if registry is None:
        from ... import symbolics  # noqa: F401

        load_entry_points()
        registry = default_registry
    results = swept()
    keys: dict[str, list[str]] = {}
    for key in registry.names():
        keys.setdefault(split_name(key)[0], []).append(key)
    # A user's own registry says nothing about operators that only decompose.
    # Operators that PyTorch keeps for itself come last in their domain.
    names = sorted(
        {*keys, *(results["operators"] if registry is default_registry else ())},
        key=lambda name: (name.partition("::")[0], name.partition("::")[2].startswith("_"), name),
    )
    return {
        name: {opset: _support(name, opset, keys.get(name, []), registry, results) for opset in opsets}
        for name in names
        if text.lower() in name.lower() and name.partition("::")[0].rstrip("0123456789") not in INTERNAL
    }


def _support(
    name: str, opset: int, keys: Sequence[str], registry: Registry, results: Mapping[str, Any]
) -> OperatorSupport:
    functions = [registry.lookup(*split_name(key), opset) for key in keys]
    serves = max((function.opset for function in functions if function is not None), default=None)
    firsts = [registry.first_opset(*split_name(key)) for key in keys]
    seen = results["operators"].get(name, {"passed": [], "refused": {}})
    # For an opset outside of the sweep, use the next lower one in the sweep.
    nearest = max((swept_opset for swept_opset in results["opsets"] if swept_opset <= opset), default=None)
    reasons = tuple(reason for reason, opsets in seen["refused"].items() if nearest in opsets)
    support: str | None
    if nearest in seen["passed"]:
        # A sample passed without a symbolic function: torch's decomposition made it possible.
        support = SYMBOLIC if serves is not None else DECOMPOSED
    elif reasons or (keys and serves is None):
        support = REFUSED
    else:
        support = SYMBOLIC if serves is not None else None
    first = min((opset for opset in firsts if opset is not None), default=None)
    return OperatorSupport(name, opset, support, reasons, serves, first)


LETTERS = {SYMBOLIC: "S", DECOMPOSED: "D", REFUSED: "-", None: ""}


def cell(entry: OperatorSupport) -> str:
    """One letter for the table, with a star if some samples were refused."""
    partly = entry.reasons and entry.support != REFUSED
    return LETTERS[entry.support] + ("*" if partly else "")


def remarks(entries: Mapping[int, OperatorSupport]) -> list[str]:
    """The reasons why an operator is refused, wholly or in part, each with its opsets."""
    opsets = list(entries)
    opsets_by_reason: dict[str, list[int]] = {}
    for opset, entry in entries.items():
        for reason in entry.reasons:
            opsets_by_reason.setdefault(reason, []).append(opset)
    return [_opset_range(where, opsets) + reason for reason, where in opsets_by_reason.items()]


def _opset_range(where: Sequence[int], opsets: Sequence[int]) -> str:
    count = len(where)
    if count == len(opsets):
        return ""
    if list(where) == list(opsets[:count]):
        return f"below {opsets[count]}: "
    if list(where) == list(opsets[-count:]):
        return f"from {where[0]}: "
    return f"at {', '.join(map(str, where))}: "


def markdown() -> str:
    """The support table of the default registry, in the form of `docs/operators.md`."""
    results = swept()
    opsets = results["opsets"]
    rows = []
    for name, entries in operator_support(opsets).items():
        if name.partition("::")[0] in OTHER_FRAMEWORKS:
            continue
        # A bar would begin another column of the Markdown table.
        why = "; ".join(remarks(entries)).replace("|", "\\|")
        cells = " | ".join(cell(entry) for entry in entries.values())
        rows.append(f"| `{name}` | {cells} | {why} |")
    figures = [
        f"| {row['suite']} | {row['opset']} | {row['samples']} | {row['entries']} | {row['passed']} "
        f"| {row['ratio']:.1%} | {row['by_reference'] or ''} |"
        for row in results["figures"]
    ]
    return _PAGE.format(
        minimum=MINIMUM_OPSET,
        maximum=MAXIMUM_OPSET,
        torch=results["torch"],
        onnxruntime=results["onnxruntime"],
        figures="\n".join(figures),
        header=" | ".join(map(str, opsets)),
        rule="|".join(["---"] * (len(opsets) + 2)),
        rows="\n".join(rows),
    )


_PAGE = """# Operators

Which operators can be written at which opset, from {minimum} to {maximum}. `opsetta ops` prints the same
table, and `opsetta ops --opset 12` prints it for one opset, with the reasons.
[tensorflow-operators.md](tensorflow-operators.md) lists TensorFlow's operators.

The table combines the registered symbolic functions with the results of the last sweep over PyTorch's own
test samples of operators and modules. Each sample is captured, lowered to the opsets below, run in
onnxruntime and compared with eager PyTorch (torch {torch}, onnxruntime {onnxruntime}). `make sweep` runs the
sweep, `python -m tests.sweep.support` writes its results into the package, and
`opsetta ops --markdown > docs/operators.md` writes this page.

## How many entries pass

An entry passes if all of its samples that were run pass. If onnxruntime has no kernel for a sample, ONNX's
reference evaluator runs the file; the last column counts the entries that need it. The entries that do not
pass raise an error that names the operator, or torch.export cannot capture them.

| database | opset | samples | entries | pass | | by evaluator |
|---|---|---|---|---|---|---|
{figures}

## Operator by opset

`S`: opsetta has a symbolic function for the operator. `D`: PyTorch decomposes it into operators that have
one. `-`: the export raises an error. A star means that the export of some samples raises an error at this
opset; the last column gives the reason. A cell is empty if there is no symbolic function and the samples do
not use the operator. An opset between two columns has the result of the left one.

| operator | {header} | refused |
|{rule}|
{rows}
"""
