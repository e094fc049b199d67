"""Branches on the number of rows that depends on data, such as `if len(boxes) == 0` or `if mask.any()`.

A recording takes the side on which the code goes on for any other number. Another recording takes the side
for no rows. If the first one computes the same without rows, it is valid for all numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.operators.overloads import OpOverload, schema_of
from ...torch_boundary.recording.recorder import READS_OF_NUMBERS
from ...torch_boundary.recording.replay import variable_in_loop
from ...torch_boundary.size_questions import questions_of
from ..fx_import.captured_program import RecordedProgram
from ..sizes.recorded_answers import Question
from .loops.recorded_loops import RecordedLoop
from .value_numbers import RESHAPES, have_equal_results

MOST_BRANCHES = 16
"""Each branch takes another recording."""
MOST_SIDES = 7
"""The number of further recordings of models whose sides differ."""
_COUNTS = (1, 2, 3, 1000)
"""The numbers of rows at which a condition must have one answer, unlike without rows."""
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    f"aten::{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_COUNTS_OF_TRUE = ("aten::any", "aten::sum", "aten::count_nonzero")
_TESTS_OF_MASKS = (*_COUNTS_OF_TRUE, "aten::all")
"""`all` tells no number of true elements, so it decides no branch by itself."""
_Definition = tuple[torch.fx.Node, Any]
_Count = Callable[[int], int]


@dataclasses.dataclass(frozen=True)
class RowBranch:
    """A branch on the number of rows.

    Attributes:
        question: the line that branches.
        answer: the answer on the general side.
        sizes: the values of the symbols without rows.
        masks: the nodes of masks whose true elements are the rows.
        position: the number of the branch among those of a recording; the iterations of a loop share it.
        loop: the innermost loop that has the branch in its body.
    """

    question: Question
    answer: bool
    sizes: Mapping[sympy.Symbol, int]
    masks: Sequence[torch.fx.Node]
    position: int = 0
    loop: RecordedLoop | None = None


def row_branch(
    expression: sympy.Basic, definitions: Mapping[sympy.Symbol, _Definition], question: Question
) -> RowBranch | None:
    """The branch on the number of rows that a condition decides; None if it is another condition.

    Args:
        definitions: the nodes that define the symbols of the condition.
    """
    if not definitions or definitions.keys() != expression.free_symbols:
        return None
    counts: dict[sympy.Symbol, _Count] = {}
    masks = []
    for symbol, (node, _) in definitions.items():
        if node.target not in READS_OF_NUMBERS:
            counts[symbol] = _same
            continue
        tested = _count_of_true(node.args[0])
        if tested is None:
            return None
        mask, counts[symbol] = tested
        masks.append(mask)
        # A reshaped mask has the same elements: if none is true, none of the original mask is.
        while isinstance(mask.target, OpOverload) and schema_of(mask.target).name in RESHAPES:
            mask = mask.all_input_nodes[0]
            masks.append(mask)

    def answer_at(numbers: Sequence[int]) -> bool | None:
        values = {
            symbol: sympy.Integer(int(count(number)))
            for (symbol, count), number in zip(counts.items(), numbers, strict=True)
        }
        answer = expression.xreplace(values)
        return bool(answer) if answer in (sympy.true, sympy.false) else None

    without_rows = answer_at([0] * len(counts))
    # Rows for one of the symbols, or for all.
    indices = range(len(counts))
    numbers_of_rows = [
        [count if index == position else 0 for index in indices]
        for position, count in itertools.product(indices, _COUNTS)
    ]
    numbers_of_rows += [[count] * len(counts) for count in _COUNTS]
    answers = {answer_at(numbers) for numbers in numbers_of_rows}
    if without_rows is None or answers != {not without_rows}:
        return None
    sizes = {symbol: int(count(0)) for symbol, count in counts.items()}
    return RowBranch(question, not without_rows, sizes, masks)


def is_about_rows(definitions: Mapping[sympy.Symbol, _Definition]) -> bool:
    """Whether a condition is about numbers of rows, or about how many elements of a mask are true."""
    return bool(definitions) and all(
        node.target not in READS_OF_NUMBERS or _count_of_true(node.args[0], _TESTS_OF_MASKS) is not None
        for node, _ in definitions.values()
    )


def are_carried_numbers(definitions: Mapping[sympy.Symbol, _Definition]) -> bool:
    """Whether a condition is about numbers that a loop has carried as tensors, such as `if seen:`."""
    sources = [node.args[0] if node.args else None for node, _ in definitions.values()]
    return bool(sources) and all(getattr(source, "target", None) is variable_in_loop for source in sources)


def _same(count: int) -> int:
    return count


def _count_of_true(
    node: Any, reductions: Collection[str] = _COUNTS_OF_TRUE
) -> tuple[torch.fx.Node, _Count] | None:
    """The mask whose true elements a number tells, and the number by their count; None for other numbers.

    Args:
        reductions: the operators that reduce a mask to a number.
    """
    if not isinstance(node, torch.fx.Node) or not isinstance(node.target, OpOverload):
        return None
    name = schema_of(node.target).name
    source: Any = node.args[0] if node.args else None
    if name in reductions:
        is_whole = len(node.args) == 1 and not node.kwargs
        is_mask = isinstance(source, torch.fx.Node) and source.meta["val"].dtype == torch.bool
        # `torch.equal` asks where two tensors are equal: no rows are chosen by such a mask.
        if not is_whole or not is_mask or source.target is torch.ops.aten.eq.Tensor:
            return None
        return source, (lambda count: min(count, 1)) if name == "aten::any" else _same
    inner = _count_of_true(source, reductions)
    if inner is None:
        return None
    mask, inner_count = inner
    if name == "aten::logical_not":
        return mask, lambda count: not inner_count(count)
    compare = _COMPARISONS.get(name)
    bound = node.args[1] if len(node.args) > 1 else None
    if compare is None or not isinstance(bound, (int, float)):
        return None
    return mask, lambda count: compare(inner_count(count), bound)


def first_unequal(
    program: RecordedProgram,
    branches: Sequence[RowBranch],
    record_other_side: Callable[[int], tuple[RecordedProgram, Sequence[RowBranch]] | None],
) -> int | None:
    """The position of the first branch whose sides differ; None if all sides agree.

    Args:
        program: the recording of the general sides.
        branches: its branches.
        record_other_side: records the other side of a branch: the program, and its branches; None if the
            model cannot be recorded on that side.
    """
    # The body of a loop is its last recorded iteration.
    by_position = {branch.position: branch for branch in branches}
    for position, branch in by_position.items():
        # A first iteration that is recorded apart may have rows where others have none.
        loop = branch.loop
        while loop is not None and loop.first == 0:
            loop = loop.outer
        recorded = record_other_side(position) if loop is None else None
        if recorded is None:
            return position
        without_rows, branches_without_rows = recorded
        has_further = {item.question for item in branches_without_rows} - {item.question for item in branches}
        twin = {item.position: item for item in branches_without_rows}.get(position)
        if (
            has_further
            or twin is None
            or not _conditions(without_rows) <= _conditions(program)
            or without_rows.specializations != program.specializations
            or not have_equal_results(program, without_rows, branch.sizes, branch.masks, twin.masks)
        ):
            return position
    return None


def _conditions(program: RecordedProgram) -> set[sympy.Basic]:
    """The conditions on sizes for which a recording holds."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor) and value.fake_mode.shape_env is not None:
            environment: Any = value.fake_mode.shape_env
            conditions = {*questions_of(environment), *(guard.expr for guard in environment.guards)}
            return conditions - {sympy.true}
    return set()
