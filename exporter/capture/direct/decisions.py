"""Decides branches on tensor values, and numbers that a model's Python code reads from tensors.

A value that depends on weights alone is a constant of the model. A value that depends on an input is refused,
or fixed at the value of the example.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
import torch.fx

from ...captured_graph.specializations import Specialization
from ...torch_boundary.containers import pytree
from ...torch_boundary.recording.recorder import READS_OF_NUMBERS, GraphRecorder
from ...torch_boundary.recording.replay import NotReplayable, Replay
from ...torch_boundary.recording.size_tensors import number_in
from ...torch_boundary.size_questions import tested_condition, user_frame
from ...torch_boundary.symbolic_numbers import GuardOnDataDependentSymNode, example_sizes
from ..fx_import.decision_marks import mark_decision
from ..sizes.trials.recorded_answers import QUESTIONS, AnswersOfLoop, Question, current_line, question_at
from ..user_lines import CodeLine
from .builtin_functions import check_number
from .checks import answer_that_stays, asked_by_check, is_caught, leaves_iteration, passes_if_equal
from .known_branches import known_answer
from .loops.sides import BranchingLoops
from .refusals import LoopRefused
from .row_branches import (
    MOST_BRANCHES,
    ChosenSides,
    RecordedSide,
    RowBranch,
    are_carried_numbers,
    is_about_rows,
    is_equation,
    row_branch,
)
from .sizes.environment import SizeEnvironment
from .sizes.nodes import SizeNode

_Definition = tuple[torch.fx.Node, Any]
"""The node that defines a symbol, and the path to the symbol in the node's result."""


class WeightsDecide(BaseException):
    """A branch depends on weights. A BaseException, so that the model does not catch it."""


class Decisions:
    """The decisions of one recording.

    Args:
        specialize: fix what depends on inputs at the value of the example.
        constants: numbers read from weights are Python's; otherwise `WeightsDecide` is raised where Python
            needs one.
        most_branches: how many branches on the number of rows are followed on their general side.
        takes_other_side: whether the branch at a position among them is followed on the side for no rows.
        two_sided: the positions of the branches of which both sides are recorded.
        sides: the sides to take of other conditions on numbers of rows, of which both are recorded, too;
            None if they are refused.
        branching: see `Loops`.

    Attributes:
        fixed: the decisions that were fixed at the value of the example.
        answers: the values of all of them in order, by line and kind; a line may decide several times.
        row_branches: the branches on the number of rows, in order.
        environment: the environment of the recording; None before.
        sides: the sides that were taken.
    """

    def __init__(
        self,
        specialize: bool = False,
        constants: bool = False,
        most_branches: int = MOST_BRANCHES,
        takes_other_side: Callable[[int], bool] = lambda position: False,
        two_sided: Container[int] = (),
        sides: Sequence[RecordedSide] | None = None,
        branching: BranchingLoops | None = None,
    ):
        self._specialize = specialize
        self._constants = constants
        self._replay: Replay | None = None
        self._defined: dict[sympy.Symbol, _Definition] = {}
        self._known: dict[sympy.Symbol, Any] = {}
        self._of_all_sizes: dict[torch.fx.Node, Any] = {}
        self._last: torch.fx.Node | None = None
        self.fixed: list[Specialization] = []
        self.answers: dict[Question, list[Any]] = {}
        self.row_branches: list[RowBranch] = []
        self._row_positions: dict[Hashable, int] = {}
        self.environment: SizeEnvironment | None = None
        self._most_branches = most_branches
        self._takes_other_side = takes_other_side
        self._two_sided = two_sided
        self.sides = None if sides is None else ChosenSides(sides)
        self.branching = branching

    @contextlib.contextmanager
    def decide_for(
        self, recorder: GraphRecorder, weights: Sequence[object], inputs: Sequence[object]
    ) -> Iterator[None]:
        """Decide for a recording within the context.

        Args:
            recorder: has the placeholders of the weights and of the inputs, in this order.
            weights: the real tensors of the model.
            inputs: the leaves of the example.
        """
        self._graph = recorder.graph
        self._node_of = recorder.node_of
        self._replay = Replay(recorder.graph, recorder.root, weights, inputs, self._size_of_weights)
        if self._constants:
            recorder.constant_of = self._constant_of
        recorder.number_of_sizes = functools.partial(self._number_of_sizes, recorder.root)
        recorder.elements_of = lambda tensor: self._array_of(recorder.node_of(tensor))
        try:
            yield
        finally:
            self._replay.close()
            self._replay = None

    def _constant_of(self, node: torch.fx.Node) -> bool | int | float | None:
        """The number in a tensor that depends on weights alone, else None."""
        assert self._replay is not None
        try:
            result: bool | int | float | None = self._replay.value_from_weights(node, torch.Tensor.item)
            return result
        except NotReplayable:
            return None

    def _number_of_sizes(self, root: torch.nn.Module, node: torch.fx.Node) -> Any:
        """The integer in a tensor that is computed from sizes, as an expression of them, else None."""
        assert self._replay is not None
        try:
            number, nodes = number_in(
                node, root, functools.partial(self._replay.value_from_weights, convert=torch.Tensor.tolist)
            )
        except NotReplayable:
            return None
        return None if self._replay.is_written_to(node, nodes) else number

    def _array_of(self, node: torch.fx.Node) -> np.ndarray | None:
        """The elements of a tensor that Python code converts to an array; None if it must not."""
        assert self._replay is not None
        try:
            result: np.ndarray | None = self._replay.value_from_weights(node, _array)
            return result
        except NotReplayable:
            if not self._specialize:
                return None
        try:
            result = self._replay.value_for_example(node, _array)
        except NotReplayable:
            return None
        self._fix("array", None)
        return result

    def decide(
        self,
        expression: sympy.Basic,
        result_type: type,
        environment: DecidingEnvironment,
        condition: torch.SymBool | None = None,
    ) -> Any:
        """The value of an expression of numbers read from tensors.

        Args:
            condition: the expression as a boolean of the recording, if it is one.

        Raises:
            NotReplayable: it depends on an input, and is not to be fixed.
        """
        if self._replay is None:
            raise NotReplayable("no direct capture is running")
        definitions = self._definitions(expression, environment)
        # From the most general answer to the most special: weights, all sizes, the example.
        with contextlib.suppress(NotReplayable):
            values = self._of_weights(definitions)
            value = environment.concrete(expression, values, result_type)
            if not self._constants:
                raise WeightsDecide
            environment.learn(values)
            return value
        with contextlib.suppress(NotReplayable):
            value = environment.concrete(expression, self._of_any_size(definitions), result_type)
            self._answer(current_line(), QUESTIONS[result_type], value)
            return value
        # A number that becomes a size would also decide shapes, so only reads of elements may be checks.
        of_elements = all(node.target in READS_OF_NUMBERS for node, _ in definitions.values())
        is_check = result_type is bool and of_elements and asked_by_check()
        if result_type is bool and not is_check:
            answer = self._of_rows(expression, definitions, environment)
            if answer is None and condition is not None and environment.loops is not None:
                answer = self.of_sides_in_loop(expression, condition, definitions, environment)
            has_sides = is_about_rows(definitions) or are_carried_numbers(definitions)
            # A kernel of torch that asks about a layout gets no answer: it has a way for any layout.
            has_sides &= of_elements or user_frame() is not None
            has_sides &= len(self._row_positions) < MOST_BRANCHES
            if answer is None and condition is not None and has_sides:
                answer = self._of_both_sides(condition, environment)
            if answer is not None:
                self._answer(current_line(), QUESTIONS[result_type], answer)
                return answer
        if not is_check and not self._specialize:
            raise NotReplayable("it depends on an input")
        # The recorded side of a branch need not be the example's. Then the check cannot be computed for the
        # example, and an assertion that values are equal is taken to hold.
        are_equations = all(is_equation(node.args[0]) for node, _ in definitions.values())
        if is_check and self.row_branches and are_equations and passes_if_equal():
            value = True
        else:
            value = environment.at_example(expression, self._of_example(definitions), result_type)
        if is_check:
            self._answer(current_line(), QUESTIONS[result_type], value)
        else:
            self._fix(QUESTIONS[result_type], value)
        return value

    def _of_rows(
        self,
        expression: sympy.Basic,
        definitions: Mapping[sympy.Symbol, _Definition],
        environment: DecidingEnvironment,
    ) -> bool | None:
        """The answer for a branch on the number of rows; None for other branches."""
        answer = known_answer()
        if answer is not None:
            return answer
        question = question_at(current_line(), QUESTIONS[bool])
        branch = row_branch(expression, definitions, question)
        if branch is None:
            return None
        loop = None if environment.loops is None else environment.loops.innermost
        # The side that ends the loop cannot stand for all iterations.
        if loop is not None and answer_that_stays() not in (None, branch.answer):
            return None
        count = len(self._row_positions)
        # The iterations of a loop take one side, since they become one body.
        key = (count,) if loop is None else loop.key_in_body(question)
        position = self._row_positions.setdefault(key, count)
        if position >= self._most_branches or position in self._two_sided:
            return None
        if self.sides is not None:
            self.sides.pass_branch(question)
        self.row_branches.append(dataclasses.replace(branch, position=position, loop=loop))
        if not self._takes_other_side(position):
            return branch.answer
        environment.learn_sizes(branch.sizes)
        return not branch.answer

    def _of_both_sides(self, condition: torch.SymBool, environment: DecidingEnvironment) -> bool | None:
        """The side of a condition that this recording takes; None if its sides cannot be joined later."""
        # A branch in the body of a loop would lie inside of the loop.
        if self.sides is None or (environment.loops is not None and environment.loops.innermost is not None):
            return None
        answer = self.sides.choose(question_at(current_line(), QUESTIONS[bool]), condition.node.expr)
        mark_decision(self._graph, self._node_of(condition))
        environment.assume(condition if answer else torch.sym_not(condition))
        return answer

    def of_sides_in_loop(
        self,
        expression: sympy.Basic,
        condition: torch.SymBool,
        definitions: Mapping[sympy.Symbol, _Definition],
        environment: DecidingEnvironment,
    ) -> bool | None:
        """The answer to a condition in the body of a loop, which gets both sides; None if it is refused.

        Raises:
            BranchesInLoop: another recording answers it.
        """
        # A kernel of torch asks about sizes where the user's code tests nothing.
        reads_numbers = bool(definitions) and all(
            node.target in READS_OF_NUMBERS for node, _ in definitions.values()
        )
        loop = environment.loops.innermost
        if loop is None or (user_frame() is None and not reads_numbers):
            return None
        line = current_line()
        rows = row_branch(expression, definitions, question_at(line, QUESTIONS[bool]))
        # Only one side writes to the tensors that an iteration changes, where the other one ends it.
        stays = answer_that_stays()
        usual = (not leaves_iteration() if rows is None else rows.answer) if stays is None else stays
        answer: bool | None = environment.loops.answer(usual)
        if answer is None:
            return None
        mark_decision(self._graph, self._node_of(condition))
        answers = self.answers.setdefault(question_at(line, QUESTIONS[bool]), AnswersOfLoop())
        if isinstance(answers, AnswersOfLoop) and environment.loops.sides[loop].is_first:
            answers.append(usual)
        if definitions:
            environment.assume(condition if answer else torch.sym_not(condition))
        return answer

    def _size_of_weights(self, number: object) -> Any:
        """The value of a symbolic number that depends on weights alone.

        Raises:
            NotReplayable: it depends on an input, or on a dynamic size.
        """
        if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return number
        environment, expression = number.node.shape_env, number.node.expr
        definitions = self._definitions(expression, environment)
        if definitions.keys() != expression.free_symbols:
            raise NotReplayable("it depends on a dynamic size")
        return environment.concrete(expression, self._of_weights(definitions), number.node.pytype)

    def _fix(self, question: str, value: Any) -> None:
        line = current_line()
        self._answer(line, question, value)
        entry = Specialization(
            line=question_at(line, question)[0],
            code="" if line is None else line.code,
            kind=question,
            value=value,
        )
        if entry not in self.fixed:
            self.fixed.append(entry)

    def _answer(self, line: CodeLine | None, question: str, value: object) -> None:
        self.answers.setdefault(question_at(line, question), []).append(value)

    def _definitions(
        self, expression: sympy.Basic, environment: DecidingEnvironment
    ) -> dict[sympy.Symbol, _Definition]:
        """The definition of each symbol that is not the size of an input."""
        for node in _after(self._last, self._graph):
            for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
                self._defined[symbol] = (node, path)
            self._last = node
        definitions = {}
        for symbol in sorted(expression.free_symbols, key=str):
            if environment.is_size_of_input(symbol):
                continue
            if symbol not in self._defined:
                # torch may have replaced the symbol by an equal one.
                equal = [candidate for candidate in self._defined if environment.replace(candidate) == symbol]
                if not equal:
                    raise NotReplayable(f"{symbol} has no definition")
                self._defined[symbol] = self._defined[equal[0]]
            definitions[symbol] = self._defined[symbol]
        return definitions

    def _of_weights(self, definitions: Mapping[sympy.Symbol, _Definition]) -> dict[sympy.Symbol, Any]:
        assert self._replay is not None
        for symbol, (node, path) in definitions.items():
            if symbol not in self._known:
                self._known[symbol] = pytree.key_get(self._replay.value_from_weights(node), path)
        return {symbol: self._known[symbol] for symbol in definitions}

    def _of_any_size(self, definitions: Mapping[sympy.Symbol, _Definition]) -> dict[sympy.Symbol, Any]:
        assert self._replay is not None
        values = {}
        for symbol, (node, path) in definitions.items():
            if node not in self._of_all_sizes:
                self._of_all_sizes[node] = self._replay.number_of_all_sizes(node)
            values[symbol] = pytree.key_get(self._of_all_sizes[node], path)
        return values

    def _of_example(self, definitions: Mapping[sympy.Symbol, _Definition]) -> dict[sympy.Symbol, Any]:
        assert self._replay is not None
        return {
            symbol: pytree.key_get(self._replay.value_for_example(node), path)
            for symbol, (node, path) in definitions.items()
        }


def _after(node: torch.fx.Node | None, graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes that follow a node in its graph, in order; for None, all nodes of the graph."""
    nodes: list[torch.fx.Node] = []
    for candidate in reversed(graph.nodes):
        if candidate is node:
            break
        nodes.append(candidate)
    return nodes[::-1]


class DecidingEnvironment(SizeEnvironment):
    """A `SizeEnvironment` that also answers questions about numbers read from tensors.

    Args:
        decisions: makes them.
        checks_numbers: whether to raise `MakesNumbers` where a module makes a number of a size.
        keeps_ones: see `SizeEnvironment`.

    Attributes:
        unanswered: the error of the first question without an answer that the model may have caught.
    """

    def __init__(
        self, decisions: Decisions, checks_numbers: bool = False, keeps_ones: bool = False, **settings: Any
    ):
        self._decisions = decisions
        self._checks_numbers = checks_numbers
        self.unanswered: Exception | None = None
        super().__init__(**settings)
        self.keeps_ones = keeps_ones
        decisions.environment = self

    def evaluate_sym_node(
        self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        """The value of a number. If it depends on the values of tensors, `decide` chooses it.

        Raises:
            MakesNumbers: a size could stay dynamic.
        """
        if self._checks_numbers and sym_node.pytype is int:
            check_number()
        if self.loops is not None and isinstance(sym_node, SizeNode) and fallback_value is None:
            frame = tested_condition()
            answer = None if frame is None else self.whiles.answer(frame)
            if answer is None:
                try:
                    answer = self.loops.questions.answer(sym_node.original, refuses=True)
                except LoopRefused:
                    if sym_node.pytype is bool:
                        answer = self._decisions.of_sides_in_loop(
                            sym_node.expr, torch.SymBool(sym_node), {}, self
                        )
                    if answer is None:
                        raise
            if answer is not None:
                return answer
        try:
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        except GuardOnDataDependentSymNode as error:
            number = sym_node.original if isinstance(sym_node, SizeNode) else sym_node
            try:
                condition = torch.SymBool(sym_node) if number.pytype is bool else None
                return self._decisions.decide(number.expr, number.pytype, self, condition)
            except NotReplayable:
                decided = False
            if not decided:
                if is_caught():
                    self.unanswered = self.unanswered or error
                raise

    def is_size_of_input(self, symbol: sympy.Symbol) -> bool:
        """Whether a symbol is a dynamic size of an input."""
        return symbol in example_sizes(self)

    def concrete(self, expression: sympy.Basic, values: dict[sympy.Symbol, Any], result_type: type) -> Any:
        """The value of an expression at given values of its symbols; adds a guard on the sizes in it."""
        if expression in values:
            return result_type(values[expression])
        remaining = expression.xreplace({symbol: sympy.sympify(item) for symbol, item in values.items()})
        if not remaining.free_symbols:
            return result_type(remaining)
        return super().evaluate_sym_node(
            self._node(remaining, result_type, self._at_sizes(remaining, result_type))
        )

    def learn(self, values: dict[sympy.Symbol, Any]) -> None:
        """Replace each symbol that always has one value by this integer."""
        for symbol, value in values.items():
            if type(value) is int and symbol not in self.replacements:
                self._set_replacement(symbol, sympy.Integer(value), "the value of a weight")

    def assume(self, condition: torch.SymBool) -> None:
        """Take a condition on numbers that depend on data as true from now on."""
        if not isinstance(condition, bool):
            self.guard_or_defer_runtime_assert(condition.node.expr, "the side of a branch")

    def learn_sizes(self, sizes: Mapping[sympy.Symbol, int]) -> None:
        """Replace symbols by numbers, which are 0 for sizes.

        Raises:
            NotReplayable: torch excludes a number.
        """
        for symbol, size in sizes.items():
            # torch assumes for its own questions that such a size is at least 2.
            self.size_like.discard(symbol)
            self._set_replacement(symbol, sympy.Integer(size), "there are no rows")
            if self.replace(symbol) != size:
                raise NotReplayable(f"{symbol} is not {size}")

    def at_example(self, expression: sympy.Basic, values: dict[sympy.Symbol, Any], result_type: type) -> Any:
        """The value of an expression at given values of its symbols, and at the example's sizes."""
        if expression in values:
            return result_type(values[expression])
        remaining = expression.xreplace({symbol: sympy.sympify(item) for symbol, item in values.items()})
        return self._at_sizes(remaining, result_type)

    def _at_sizes(self, expression: sympy.Basic, result_type: type) -> Any:
        return result_type(expression.xreplace(example_sizes(self)))


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.array(tensor.numpy(force=True))
