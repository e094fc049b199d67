"""Python's `while` over a dynamic size, which counts a variable up or down to a bound.

`while start + window <= x.shape[1]:` with `start += hop` in its body runs like a `for` over a range. The
variable has the index as its value in each iteration, and its last value after the loop.
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Iterator
from typing import Any

import torch

from ....torch_boundary.process.local_variables import set_local
from ..checks import while_at
from .counters import steps
from .iterations import Loops
from .recorded_loops import Number, RecordedLoop

_UPWARDS = {ast.Lt: 0, ast.LtE: 1}
"""How far the end of a range is beyond the bound, by the comparison of a variable with it."""
_DOWNWARDS = {ast.Gt: 0, ast.GtE: -1}
_FLIPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@dataclasses.dataclass
class _Counter:
    """The variable that a loop counts.

    Attributes:
        name: its name.
        stop: the bound that it does not reach.
        step: what each iteration adds.
    """

    name: str
    stop: Number
    step: int


@dataclasses.dataclass
class _RunningWhile:
    counter: _Counter
    indices: Iterator[Number]
    loop: RecordedLoop
    index: Number


class WhileLoops:
    """The `while` loops of one recording."""

    def __init__(self, loops: Loops):
        self._loops = loops
        self._running: dict[tuple[types.FrameType, ast.While], _RunningWhile] = {}

    def answer(self, frame: types.FrameType) -> bool | None:
        """Whether the loop whose condition a frame tests goes on; None if it is no such loop.

        Raises:
            LoopRefused: the loop does not count a variable by one step in each iteration.
        """
        statement = while_at(frame)
        if statement is None:
            return None
        running = self._running.get((frame, statement))
        if running is None:
            counter = _counter_of(statement, frame)
            if counter is None:
                return None
            indices = self._loops.iterate(frame.f_locals[counter.name], counter.stop, counter.step, frame)
            index = next(indices)
            running = _RunningWhile(counter, indices, self._loops.all[-1], index)
            self._running[frame, statement] = running
            set_local(frame, counter.name, index)
            return True
        counter, loop = running.counter, running.loop
        again = _counter_of(statement, frame)
        value = frame.f_locals[counter.name]
        polynomial = self._loops.questions.polynomial
        if polynomial(value) != polynomial(running.index + counter.step):
            raise loop.refuse(f"does not add {counter.step} to '{counter.name}' in each iteration")
        if again is None or polynomial(again.stop) != polynomial(counter.stop):
            raise loop.refuse(f"changes the bound of '{counter.name}'")
        next_index = next(running.indices, None)
        if next_index is None:
            del self._running[frame, statement]
            next_index = loop.start + loop.count * loop.step
        running.index = next_index
        set_local(frame, counter.name, next_index)
        return (frame, statement) in self._running


def _counter_of(statement: ast.While, frame: types.FrameType) -> _Counter | None:
    """The variable that a loop counts from its value in a frame to a bound; None for other loops."""
    test = statement.test
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    variables = frame.f_locals

    def value_of(expression: ast.expr) -> Any:
        # The condition has just been evaluated, and `while_at` has found that it has no effect.
        code = compile(ast.Expression(expression), frame.f_code.co_filename, "eval")
        return eval(code, frame.f_globals, dict(variables))

    sides = (test.left, type(test.ops[0]), test.comparators[0])
    flipped = (sides[2], _FLIPPED.get(sides[1]), sides[0])
    for target, sign_of_step, step_expression in steps(statement.body):
        if not isinstance(target, ast.Name):
            continue
        name = target.id
        for counter, relation, right in (sides, flipped):
            offsets = _offsets(counter, name)
            reads_name = any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(right))
            if offsets is None or reads_name or type(variables.get(name)) not in (int, torch.SymInt):
                continue
            step = value_of(step_expression)
            if type(step) is not int or step == 0:
                continue
            step *= sign_of_step
            ends = _UPWARDS if step > 0 else _DOWNWARDS
            if relation not in ends:
                continue
            stop = value_of(right) + ends[relation]
            for sign, offset in offsets:
                stop = stop - sign * value_of(offset)
            return _Counter(name, stop, step)
    return None


def _offsets(expression: ast.expr, name: str) -> list[tuple[int, ast.expr]] | None:
    """The signs and terms that a sum has besides a variable; None if it is no such sum."""
    if isinstance(expression, ast.Name):
        return [] if expression.id == name else None
    if not isinstance(expression, ast.BinOp) or not isinstance(expression.op, (ast.Add, ast.Sub)):
        return None
    sign = 1 if isinstance(expression.op, ast.Add) else -1
    sides = [(expression.left, expression.right, sign)]
    if sign == 1:
        sides.append((expression.right, expression.left, 1))
    for side, term, sign in sides:
        offsets = _offsets(side, name)
        is_constant = not any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(term))
        if offsets is not None and is_constant:
            return [*offsets, (sign, term)]
    return None
