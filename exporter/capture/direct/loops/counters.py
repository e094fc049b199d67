"""Numbers to which a loop adds in each iteration, such as `state.steps += 1` or `total += x.shape[1]`.

The iterations of a recording stand for any number of iterations. So such a number is computed from the index
in each of them, and from the number of iterations after the loop.
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch

from ....torch_boundary.process.local_variables import set_local
from ..checks import has_no_effect
from .index_questions import IndexQuestions
from .recorded_loops import ITERATIONS, Number, RecordedLoop


@dataclasses.dataclass
class _CountedNumber:
    """A number that a loop counts.

    Attributes:
        target: the expression that the code assigns to.
        start: its value before the loop.
        step: what each iteration adds.
        value: its value at the start of the current iteration.
    """

    target: ast.expr
    start: Number
    step: Number
    value: Number


class Counters:
    """The numbers that one loop counts."""

    def __init__(
        self,
        loop: RecordedLoop,
        frame: types.FrameType,
        body: Sequence[ast.stmt],
        questions: IndexQuestions,
        carried: Container[str] = (),
    ):
        """Find the numbers.

        Args:
            frame: of the code that has the loop.
            body: the statements of the loop.
            carried: the variables whose numbers the loop carries as tensors.
        """
        self._loop, self._frame, self._questions = loop, frame, questions
        self._counters: dict[str, _CountedNumber] = {}
        for target, sign, term in steps(body):
            owner = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else None
            start = self._evaluate(target)
            # A number of a module would be another one after the export.
            is_of_module = owner is not None and isinstance(self._evaluate(owner), torch.nn.Module)
            # The evaluation of other terms could record operators.
            if (
                ast.unparse(target) in carried
                or is_of_module
                or not self._is_number(start)
                or not _is_size(term)
            ):
                continue
            step = self._evaluate(term)
            if not self._is_number(step):
                continue
            counter = self._counters.setdefault(ast.unparse(target), _CountedNumber(target, start, 0, start))
            counter.step = counter.step + sign * step

    def __contains__(self, path: object) -> bool:
        """Whether the loop counts a number, whose path is as `python_state` writes it."""
        return path in self._counters

    def __iter__(self) -> Iterator[str]:
        return iter(self._counters)

    def begin(self, index: Number) -> None:
        """Set the numbers for an iteration."""
        self.check()
        self._set(index)

    def restore(self, index: Number) -> None:
        """Set the numbers as they are at the end of an iteration."""
        self._set(index)
        for counter in self._counters.values():
            value = counter.value
            self._assign(counter, value + counter.step)
            counter.value = value

    def _set(self, index: Number) -> None:
        loop = self._loop
        if not self._counters:
            return
        done = index - loop.start if loop.step > 0 else loop.start - index
        for counter in self._counters.values():
            # A quotient has no polynomial, by which numbers are compared.
            exact = counter.step // abs(loop.step) if isinstance(counter.step, int) else 0
            is_exact = counter.step == exact * abs(loop.step) if exact else abs(loop.step) == 1
            added = done * (exact or counter.step) if is_exact else done // abs(loop.step) * counter.step
            self._assign(counter, counter.start + added)

    def finish(self) -> None:
        """Set the numbers, and variables that depend on the index, for the code after the loop."""
        self.check()
        loop = self._loop
        for counter in self._counters.values():
            self._assign(counter, counter.start + loop.count * counter.step)
        # An iteration of the outer loop must not leave a number to the next one.
        if loop.outer is not None:
            return
        index = loop.markers[ITERATIONS - 1].meta["val"]
        [atom] = self._questions.polynomial(index).atoms
        last = loop.start + (loop.count - 1) * loop.step
        for name, value in [*self._frame.f_locals.items()]:
            terms = self._questions.polynomial(value).terms if isinstance(value, torch.SymInt) else {}
            # The symbol of the index means nothing after the loop: compute the number from the last index.
            if (atom,) in terms and terms.keys() <= {(), (atom,)}:
                set_local(self._frame, name, last * terms[(atom,)] + terms.get((), 0))

    def check(self) -> None:
        """Refuse numbers to which an iteration has added another one."""
        if len(self._loop.markers) < 2:
            return
        polynomial = self._questions.polynomial
        for path, counter in self._counters.items():
            value = self._evaluate(counter.target)
            expected = polynomial(counter.value) + polynomial(counter.step)
            if not self._is_number(value, True) or polynomial(value) != expected:
                raise self._loop.refuse(f"does not add {counter.step} to '{path}' in each iteration")

    def _assign(self, counter: _CountedNumber, value: Number) -> None:
        target, counter.value = counter.target, value
        if isinstance(target, ast.Name):
            set_local(self._frame, target.id, value)
        elif isinstance(target, ast.Attribute):
            setattr(self._evaluate(target.value), target.attr, value)
        elif isinstance(target, ast.Subscript):
            self._evaluate(target.value)[self._evaluate(target.slice)] = value

    def _is_number(self, value: object, may_have_index: bool = False) -> bool:
        if type(value) is int:
            return True
        return isinstance(value, torch.SymInt) and (
            may_have_index or not self._questions.depends_on_index(value)
        )

    def _evaluate(self, expression: ast.expr) -> Any:
        """The value of an expression before the loop; None if evaluating it has side effects or fails."""
        if not has_no_effect(expression):
            return None
        code = compile(
            ast.parse(ast.unparse(expression), mode="eval"), self._frame.f_code.co_filename, "eval"
        )
        try:
            return eval(code, self._frame.f_globals, dict(self._frame.f_locals))
        except (NameError, AttributeError, LookupError, TypeError):
            return None


def _is_size(expression: ast.expr) -> bool:
    """Whether an expression consists of numbers, sizes of tensors and variables."""
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    names = {
        function.id if isinstance(function, ast.Name) else getattr(function, "attr", "") for function in calls
    }
    indexed = [node.value for node in ast.walk(expression) if isinstance(node, ast.Subscript)]
    return names <= {"len", "size"} and all(getattr(value, "attr", "") == "shape" for value in indexed)


def steps(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, int, ast.expr]]:
    """Each variable that a body increases or decreases, with the sign and the expression of the step."""
    for statement in body:
        if isinstance(statement, ast.AugAssign):
            target: ast.expr = statement.target
            operation, term = statement.op, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
            target, operation, term = statement.targets[0], statement.value.op, statement.value.right
            if ast.unparse(statement.value.left) != ast.unparse(target):
                continue
        else:
            continue
        if isinstance(operation, (ast.Add, ast.Sub)):
            yield target, 1 if isinstance(operation, ast.Add) else -1, term
