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
from ..sizes.trials.recorded_answers import Question
from .loops.recorded_loops import RecordedLoop
from .value_numbers import RESHAPES, have_equal_results

MOST_BRANCHES = 16
"""Each branch takes another recording."""
MOST_BRANCHES_OF_ALL_BUT_ONE = 4
"""Up to this number of branches, a recording for each of them lets it alone have rows."""
MOST_SIDES = 15
"""The number of further recordings of models whose sides differ."""
_COUNTS = (1, 2, 3, 1000)
"""The numbers of rows at which a condition must have one answer, unlike without rows."""
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    f"aten::{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_COUNTS_OF_TRUE = ("aten::any", "aten::sum", "aten::count_nonzero")
_TESTS_OF_MASKS = (*_COUNTS_OF_TRUE, "aten::all")
"""`all` tells no number of true elements, so it decides no branch by itself."""
_OF_COUNTS = RESHAPES | frozenset(
    f"aten::{name}" for name in ("clamp", "clamp_max", "clamp_min", "logical_not", "select", "to")
)
"""Operators on the counts of several masks, such as those of a batch of images, and their limits."""
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


@dataclasses.dataclass(frozen=True)
class RecordedSide:
    """One side of a condition of which both are recorded, or a branch of which one side is.

    Attributes:
        question: the line that branches.
        answer: the answer to the condition; None for a branch of which one side is recorded.
        assumed: what holds on this side.
    """

    question: Question
    answer: bool | None = None
    assumed: sympy.Basic = sympy.true


class ChosenSides:
    """The sides that a recording takes.

    Args:
        planned: those of an earlier recording, in order, of which this one may leave some out.

    Attributes:
        recorded: those so far.
    """

    def __init__(self, planned: Sequence[RecordedSide]):
        self._planned = list(planned)
        self.recorded: list[RecordedSide] = []

    def pass_branch(self, question: Question) -> None:
        """Note a branch of which one side is recorded."""
        self._next(question)
        self.recorded.append(RecordedSide(question))

    def choose(self, question: Question, condition: Any) -> bool:
        """The answer to the next condition."""
        planned = self._next(question)
        answer = planned is None or planned.answer is not False
        self.recorded.append(RecordedSide(question, answer, condition if answer else sympy.Not(condition)))
        return answer

    def _next(self, question: Question) -> RecordedSide | None:
        """The next planned side of a line; those before it are left out."""
        questions = [side.question for side in self._planned]
        if question not in questions:
            return None
        position = questions.index(question)
        side = self._planned[position]
        del self._planned[: position + 1]
        return side


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
    """Whether a condition is about numbers of rows, or about how many elements of a tensor are not 0."""
    return bool(definitions) and all(
        node.target not in READS_OF_NUMBERS
        or _count_of_true(node.args[0], _TESTS_OF_MASKS) is not None
        or _tests_elements(node.args[0])
        for node, _ in definitions.values()
    )


def _tests_elements(node: object) -> bool:
    """Whether a number tells how many elements of a tensor are not 0, or whether any or all are.

    A sum counts only in tensors of booleans and integers. The result may be that along an axis, limited, or
    compared with a number. PyTorch takes an element other than 0 as true, whatever its type.
    """
    while isinstance(node, torch.fx.Node) and isinstance(node.target, OpOverload):
        source: Any = node.args[0] if node.args else None
        name = schema_of(node.target).name
        if name in _TESTS_OF_MASKS:
            # `torch.equal` asks where two tensors are equal.
            if not isinstance(source, torch.fx.Node) or (
                name == "aten::all" and source.target is torch.ops.aten.eq.Tensor
            ):
                return False
            dtype = source.meta["val"].dtype
            return name != "aten::sum" or not (dtype.is_floating_point or dtype.is_complex)
        is_comparison = name in _COMPARISONS and isinstance(node.args[1], (int, float))
        if name not in _OF_COUNTS and not is_comparison:
            return False
        node = source
    return False


def are_carried_numbers(definitions: Mapping[sympy.Symbol, _Definition]) -> bool:
    """Whether a condition is about numbers that a loop has carried as tensors, such as `if seen:`."""
    sources = [node.args[0] if node.args else None for node, _ in definitions.values()]
    return bool(sources) and all(getattr(source, "target", None) is variable_in_loop for source in sources)


def is_equation(node: object) -> bool:
    """Whether a node tests tensors for equality."""
    if not isinstance(node, torch.fx.Node) or not isinstance(node.target, OpOverload):
        return False
    name = schema_of(node.target).name
    # The truth of a tensor is whether it is not 0.
    is_truth = name == "aten::ne" and bool(node.args[1] == 0)
    return name == "aten::eq" or (is_truth and is_equation(node.args[0]))


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


Recording = tuple[RecordedProgram, Sequence[RowBranch]]
"""A program, and its branches on numbers of rows."""


def first_unequal(
    program: RecordedProgram,
    branches: Sequence[RowBranch],
    record_other_sides: Callable[[Callable[[int], bool]], Recording | None],
) -> int | None:
    """The position of the first branch whose sides differ; None if all sides agree.

    Args:
        program: the recording of the general sides.
        branches: its branches.
        record_other_sides: records the other side of the branches at some positions; None if the model
            cannot be recorded there.
    """
    # The body of a loop is its last recorded iteration.
    by_position = {branch.position: branch for branch in branches}
    for position, branch in list(by_position.items()):
        # Code that comes to it has rows: an earlier branch, or a recorded side, had none.
        earlier = (item for item in branches if item.position < position and item.loop is branch.loop)
        if any(item.sizes.items() <= branch.sizes.items() for item in earlier) or any(
            fact.xreplace(dict(branch.sizes)) == sympy.false for fact in program.assumed
        ):
            del by_position[position]
    general = program, list({branch.position: branch for branch in branches}.values())
    for position, branch in by_position.items():
        # A first iteration that is recorded apart may have rows where others have none.
        loop = branch.loop
        while loop is not None and loop.first == 0:
            loop = loop.outer
        if loop is not None or not _agree(general, record_other_sides, position.__eq__):
            return position
    # Sides that agree one by one may differ together: a list that is empty only if nothing has rows.
    count = len(by_position)
    combinations = [lambda position: True] if count > 1 else []
    if 2 < count <= MOST_BRANCHES_OF_ALL_BUT_ONE and not program.recorded_sides:
        combinations += [position.__ne__ for position in by_position]
    are_equal = all(_agree(general, record_other_sides, takes_other) for takes_other in combinations)
    return None if are_equal else min(by_position)


def _agree(
    general: Recording,
    record_other_sides: Callable[[Callable[[int], bool]], Recording | None],
    takes_other_side: Callable[[int], bool],
) -> bool:
    """Whether the general sides compute without rows what the other sides of some branches do."""
    recorded = record_other_sides(takes_other_side)
    if recorded is None:
        return False
    program, branches = general
    without_rows, branches_without_rows = recorded
    sizes: dict[sympy.Symbol, int] = {}
    masks: list[torch.fx.Node] = []
    twin_masks: list[torch.fx.Node] = []
    # Without rows, the code may skip branches of the general side, but it comes to no others.
    remaining = iter(branches)
    for twin in {item.position: item for item in branches_without_rows}.values():
        branch = next((item for item in remaining if item.question == twin.question), None)
        if branch is None:
            return False
        if takes_other_side(twin.position):
            sizes.update(branch.sizes)
            masks += branch.masks
            twin_masks += twin.masks
    return (
        _conditions(without_rows) <= _conditions(program) | set(without_rows.assumed)
        and without_rows.specializations == program.specializations
        and have_equal_results(program, without_rows, sizes, masks, twin_masks)
    )


def _conditions(program: RecordedProgram) -> set[sympy.Basic]:
    """The conditions on sizes for which a recording holds."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor) and value.fake_mode.shape_env is not None:
            environment: Any = value.fake_mode.shape_env
            conditions = {*questions_of(environment), *(guard.expr for guard in environment.guards)}
            return conditions - {sympy.true}
    return set()
