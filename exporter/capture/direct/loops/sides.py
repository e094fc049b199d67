"""Both sides of the conditions in the body of a loop over a dynamic size.

The first three iterations of such a loop take one side of each condition. After them, the body runs once
more for each other combination of answers. Then Python's variables get their values of the third iteration
back, and `side_bodies` makes one body of all recorded ones.

A value reaches the next iteration through a variable or a list. At the end of an iteration these get copies
of their values: on each side another tensor may be the variable's value, and the copy stands for both. A
Python number that the iterations change, such as `done = True`, is carried as a tensor: an iteration reads it
at its beginning.
"""

from __future__ import annotations

import ast
import itertools
import types
from collections.abc import Callable, Hashable, Iterator, Sequence

import torch
import torch.fx

from ....torch_boundary.process.local_variables import set_local
from ....torch_boundary.recording.recorder import GraphRecorder
from ....torch_boundary.recording.replay import variable_in_loop
from ..refusals import LoopRefused
from .matching import LoopBody
from .python_state import ListState, lists_with_result, python_state, tensor_members
from .recorded_loops import RecordedLoop, SidePath
from .tensor_writes import have_same_type

_MOST_PATHS = 8
"""Each combination of answers takes another iteration, and another side in the file."""
_RUNS = "break"
"""The name of the flag; no variable has it."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = {
    # PyTorch makes no tensor of a truth value that depends on data.
    bool: (torch.bool, (bool,)),
    int: (torch.int64, (int, torch.SymInt)),
    float: (torch.float64, (float, torch.SymFloat)),
}
"""By the class of a number, the type of the tensor that carries it, and the classes of its later values."""
_REMEDY = "; compute both sides and choose by torch.where, or make the sides alike in this"


class BranchesInLoop(BaseException):
    """A condition in a loop needs both sides. A BaseException, so that the model does not catch it."""


class BranchingLoops:
    """The loops of a model whose bodies have conditions; it lasts from one recording to the next.

    Attributes:
        endings: by the key of a loop, see `RecordedLoop`, the combinations of answers that end it.
        numbers: by such a key, the variables whose Python numbers the iterations change.
        is_changed: whether another recording knows more of these.
    """

    def __init__(self) -> None:
        self.endings: dict[tuple[Hashable, ...], list[Sequence[bool]]] = {}
        self.numbers: dict[tuple[Hashable, ...], set[str]] = {}
        self.is_changed = False

    def add_ending(self, key: tuple[Hashable, ...], answers: Sequence[bool]) -> None:
        """Let another recording of a loop run a combination of answers last, which ends the loop."""
        # It had run last already: no order of the combinations runs all of them.
        self.is_changed |= answers not in self.endings[key]
        self.endings[key].append(answers)

    def carry_number(self, loop: RecordedLoop, name: str) -> None:
        """Let another recording of a loop carry the number of a variable, if that is possible.

        Raises:
            BranchesInLoop: the other recording is to begin.
        """
        names = self.numbers.setdefault(loop.key, set())
        # Other paths are those of attributes and members of containers.
        is_variable = name.isidentifier()
        if is_variable and type(loop.states[0].get(name)) in _NUMBERS and name not in names:
            names.add(name)
            self.endings.setdefault(loop.key, [])
            raise BranchesInLoop


class LoopSides:
    """The sides of the conditions in the body of one loop.

    Args:
        frame: of the code that has the loop.
        statement: the loop.
        branching: knows the combinations of answers that end the loop, which run last, and the numbers that
            the iterations change.

    Attributes:
        answers: the answers of the current iteration so far.
        planned: the first answers of the current iteration.
        initial: by variable, the copy of its value before the loop.
        copies: by variable or list, the copies at the end of the first three iterations.
        variable_nodes: the copies of variables, which are calls of `variable_in_loop`.
        numbers: the tensors that carry Python numbers, by variable.
    """

    def __init__(
        self,
        loop: RecordedLoop,
        frame: types.FrameType,
        statement: ast.For | ast.While | None,
        recorder: GraphRecorder,
        branching: BranchingLoops,
    ):
        if statement is None:
            raise loop.refuse("has a condition, and is not a statement `for` or `while` of a source file")
        self._loop, self._frame, self._recorder = loop, frame, recorder
        self._before = dict(frame.f_locals)
        self._body = statement.body
        self._targets = [statement.target] if isinstance(statement, ast.For) else []
        self._branching = branching
        self._last_answers = branching.endings[loop.key]
        self.variable_nodes: list[torch.fx.Node] = []
        self.answers: list[bool] = []
        self.planned: list[bool] = []
        self._pending: list[list[bool]] | None = None
        self._answers_of_iterations: list[list[bool]] = []
        loop.has_conditions = True
        nodes = [node for part in statement.body for node in ast.walk(part)]
        augmented = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
        names = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in augmented
        }
        variables = [name for name in sorted(names) if isinstance(frame.f_locals.get(name), torch.Tensor)]
        self.initial = {name: self._copy_variable(name) for name in variables}
        self.copies: dict[str, list[torch.fx.Node]] = {name: [] for name in variables}
        self._breaks = [node.lineno for node in _breaks(statement.body)]
        if self._breaks and statement.orelse:
            raise loop.refuse(
                "has a condition, a `break` and an `else`; use a variable in place of the `else`"
            )
        self._classes = {name: type(frame.f_locals[name]) for name in branching.numbers.get(loop.key, ())}
        if self._breaks:
            # Whether the iteration runs; `break` makes it false.
            self.initial[_RUNS], self._runs = self._make_number(True)
            self.copies[_RUNS] = []
            self._stopped, _ = self._make_number(False)
        self.numbers: dict[str, torch.Tensor] = {}
        self._read: dict[str, tuple[object, torch.Tensor]] = {}
        """The numbers at the beginning of the iteration, and the tensors that they were read from."""
        for name in sorted(self._classes):
            self.initial[name], self.numbers[name] = self._copy_number(name)
            self.copies[name] = []

    @property
    def is_first(self) -> bool:
        """Whether the first iteration runs."""
        return not self._answers_of_iterations

    @property
    def usual(self) -> list[bool]:
        """The answers of the first three iterations."""
        return self._answers_of_iterations[0]

    def read_numbers(self) -> None:
        """Set the variables of carried numbers, for an iteration or for the code after the loop."""
        for name, tensor in self.numbers.items():
            # A fake tensor gives the same symbol at each reading.
            copy = self._copy(tensor)[1]
            self._read[name] = copy.item(), copy
            set_local(self._frame, name, self._read[name][0])

    def answer(self, usual: bool) -> bool:
        """The answer to the next condition of an iteration.

        Args:
            usual: the answer in the first three iterations.
        """
        position = len(self.answers)
        self.answers.append(self.planned[position] if position < len(self.planned) else usual)
        return self.answers[-1]

    def finish_iteration(self) -> None:
        """Copy the values of one of the first three iterations for the next one."""
        before, after = self._loop.states[-1], python_state(self._frame)
        for name in sorted(self.initial.keys() - {_RUNS}):
            if name in self.numbers:
                node, self.numbers[name] = self._copy_number(name)
            else:
                node = self._copy_variable(name)
            self.copies[name].append(node)
        if _RUNS in self.initial:
            node, self._runs = self._copy(self._runs)
            self.copies[_RUNS].append(node)
        for path, items, position in lists_with_result(before, after):
            node, items[position] = self._copy(items[position])
            self.copies.setdefault(path, []).append(node)
        self._answers_of_iterations.append(self.answers)
        self.answers = []

    def begin_other(self, begin: Callable[[], torch.fx.Node]) -> torch.fx.Node | None:
        """Begin an iteration that takes other sides; returns the node of its index, or None after the last.

        Args:
            begin: adds the node.
        """
        usual = self.usual
        if self._pending is None:
            if any(answers != usual for answers in self._answers_of_iterations):
                for name, value in self._before.items():
                    if self._frame.f_locals.get(name) is not value and name not in self._loop.counted:
                        self._branching.carry_number(self._loop, name)
                raise self._loop.refuse("tests its condition in some iterations only")
            self._pending = [[*usual[:index], not usual[index]] for index in range(len(usual))]
            # A side may leave such a variable as an earlier iteration set it, which it does not have here.
            for name, value in self._before.items():
                is_changed = self._frame.f_locals.get(name) is not value and name not in self.initial
                if is_changed and name not in self._loop.counted and not self._is_set_first(name):
                    raise self._refuse_change(name)
        if not self._pending:
            return None
        if len(self._loop.paths) + 1 >= _MOST_PATHS:
            raise self._loop.refuse(f"has more than {_MOST_PATHS} combinations of its conditions")
        # No iteration can run after one that ends the loop.
        self._pending.sort(key=lambda answers: answers not in self._last_answers)
        self.planned = self._pending.pop()
        self._variables = dict(self._frame.f_locals)
        self._numbers, self._tensors = python_state(self._frame), tensor_members(self._frame)
        self._nodes = [(tensor, self._recorder.node_of(tensor)) for tensor in self._tensors.values()]
        self._marker = begin()
        self.read_numbers()
        return self._marker

    def finish_other(self, begin: Callable[[], torch.fx.Node], is_ended: bool = False) -> None:
        """Finish such an iteration: Python's variables get their values of the third one back.

        Args:
            begin: see `begin_other`.
            is_ended: whether the iteration ended the loop.
        """
        answers, self.answers = self.answers, []
        planned, pending = self.planned, self._pending
        assert pending is not None
        if answers[: len(planned)] != list(planned):
            raise self._loop.refuse("tests its condition in some iterations only")
        pending += [[*answers[:index], not answers[index]] for index in range(len(planned), len(answers))]
        values = self._values()
        if _RUNS in self.copies:
            copy = self.copies[_RUNS][-1]
            values[copy] = self._stopped if is_ended else copy
        self._check_changes()
        self._loop.paths.append(SidePath(self._marker, begin(), answers, values))
        for name, value in self._variables.items():
            if self._frame.f_locals.get(name) is not value:
                set_local(self._frame, name, value)
        # A write in place gives a tensor another node.
        for tensor, node in self._nodes:
            if self._recorder.node_of(tensor) is not node and isinstance(node, torch.fx.Node):
                self._recorder.bind(tensor, node)
        self.planned = self.usual

    @property
    def is_at_break(self) -> bool:
        """Whether the code is at a `break` of the loop."""
        return self._frame.f_lineno in self._breaks

    @property
    def is_complete(self) -> bool:
        """Whether all combinations of answers have run."""
        return not self._pending

    @property
    def flag(self) -> torch.fx.Node | None:
        """What the third iteration copies of the flag that `break` makes false; None without `break`."""
        return self.copies[_RUNS][-1] if _RUNS in self.copies else None

    def carry(self, body: LoopBody) -> None:
        """Let a body carry all variables, and all tensors that it writes to: a side may leave them.

        Raises:
            LoopRefused: the type or shape of one changes, or the first iteration is recorded apart.
        """
        if body.initial is None:
            raise self._loop.refuse("has a condition, and does something else in the first iteration")
        values = [(self.initial[name], self.copies[name]) for name in self.initial]
        values += [*body.updates.items()]
        for initial, results in values:
            position = body.positions[results[-1]][1]
            if position in body.carried:
                continue
            if not (have_same_type(initial, results[-1]) and have_same_type(results[-2], results[-1])):
                raise self._loop.refuse("changes the type or shape of a variable")
            body.carried.append(position)
            body.inputs.append(results[0])
            body.initial.append(initial)

    def _copy_variable(self, name: str) -> torch.fx.Node:
        value = self._frame.f_locals.get(name)
        if not isinstance(value, torch.Tensor):
            raise self._loop.refuse(f"assigns {value!r} to '{name}', which was a tensor")
        node, copy = self._copy(value)
        set_local(self._frame, name, copy)
        return node

    def _copy(self, tensor: torch.Tensor) -> tuple[torch.fx.Node, torch.Tensor]:
        recorder = self._recorder
        node = recorder.graph.call_function(variable_in_loop, (recorder.node_of(tensor),))
        self.variable_nodes.append(node)
        node.meta["nn_module_stack"] = {}
        result = recorder.empty(tensor.shape, tensor.dtype, tensor.device)
        recorder.bind(result, node)
        return node, result

    def _copy_number(self, name: str) -> tuple[torch.fx.Node, torch.Tensor]:
        """Copy the present number of a variable to a tensor: a node of the graph, and its result."""
        value = self._frame.f_locals.get(name)
        number, tensor = self._read.get(name, (None, None))
        if tensor is not None and value is number:
            return self._copy(tensor)
        if isinstance(value, torch.SymInt) and isinstance(number, torch.SymInt):
            symbol, expression = number.node.expr, value.node.expr
            if (expression.subs(symbol, symbol + 1) - expression).expand() not in (0, 1, -1):
                raise self._loop.refuse(f"multiplies '{name}', which may need more bits than a tensor has")
        return self._copy(self._make_number(value, name)[1])

    def _make_number(self, value: object, name: str = _RUNS) -> tuple[torch.fx.Node, torch.Tensor]:
        """A tensor of a number.

        Raises:
            LoopRefused: the number is of another class than at the beginning.
        """
        dtype, classes = _NUMBERS[self._classes.get(name, bool)]
        if type(value) not in classes:
            raise self._loop.refuse(
                f"assigns {type(value).__name__} to '{name}', which was {type(self._before[name]).__name__}"
            )
        recorder = self._recorder
        number = recorder.node_of(value)
        node = recorder.graph.call_function(torch.ops.aten.full.default, ([], number), {"dtype": dtype})
        node.meta["nn_module_stack"] = {}
        result = recorder.empty((), dtype)
        recorder.bind(result, node)
        return node, result

    def _values(self) -> dict[torch.fx.Node, torch.fx.Node]:
        """The values of another side, by the copies of the third iteration; shortens lists again."""
        tensors: dict[str, object] = {
            name: self._copy_number(name)[1] if name in self.numbers else self._frame.f_locals.get(name)
            for name in self.initial
            if name != _RUNS
        }
        seen: set[int] = set()
        for path, state in self._numbers.items():
            if not isinstance(state, ListState) or id(state.items) in seen:
                continue
            seen.add(id(state.items))
            growth = len(state.items) - state.length
            if growth != (1 if path in self.copies else 0):
                raise self._loop.refuse(
                    f"appends to the list '{path}' on one side of a condition only{_REMEDY}"
                )
            if growth:
                tensors[path] = state.items.pop()
        values = {}
        for name, tensor in tensors.items():
            copy = self.copies[name][-1]
            if not isinstance(tensor, torch.Tensor):
                raise self._loop.refuse(f"gives '{name}' a tensor on one side of a condition only{_REMEDY}")
            values[copy] = self._recorder.node_of(tensor)
            if not have_same_type(copy, values[copy]):
                raise self._loop.refuse(
                    f"gives '{name}' another type or shape on each side of a condition{_REMEDY}"
                )
        return values

    def _check_changes(self) -> None:
        """Refuse a side that changes what the sides of the third iteration leave as it is."""
        numbers_after, tensors_after = python_state(self._frame), tensor_members(self._frame)
        own_nodes = set(itertools.chain(*self._loop.iterations()))
        changed = [
            name
            for name, value in self._variables.items()
            if (value is None) != (self._frame.f_locals.get(name) is None)
        ]
        for path, number in self._numbers.items():
            after = numbers_after.get(path, number)
            if isinstance(number, ListState) or path in self._loop.counted or path in self.numbers:
                continue
            if isinstance(number, _SYMBOLIC) and isinstance(after, _SYMBOLIC):
                # A number that each iteration computes may not be used after the loop.
                continue
            before = self._loop.states[0].get(path, number) if path not in self._variables else number
            values = [number, after, before]
            if any(isinstance(value, _SYMBOLIC) for value in values) or not number == after == before:
                changed.append(path)
        for path, tensor in self._tensors.items():
            is_own = self._recorder.node_of(tensor) in own_nodes
            if tensors_after.get(path, tensor) is not tensor and not is_own and path not in self.initial:
                changed.append(path)
        if changed:
            raise self._refuse_change(changed[0])

    def _refuse_change(self, path: str) -> LoopRefused:
        self._branching.carry_number(self._loop, path)
        return self._loop.refuse(
            f"has a condition, and changes '{path}': only local variables that are tensors or numbers before "
            f"the loop may differ between its sides{_REMEDY}"
        )

    def _is_set_first(self, name: str) -> bool:
        """Whether every iteration assigns to a variable before it reads it."""
        for statement in [*self._targets, *self._body]:
            is_loop = isinstance(statement, ast.For)
            # The body of a loop may run for no member.
            heads: list[ast.AST] = [statement]
            if isinstance(statement, ast.For):
                heads = [statement.iter, statement.target]
            for parts in (heads, [statement]):
                names = [
                    node
                    for part in parts
                    for node in ast.walk(part)
                    if isinstance(node, ast.Name) and node.id == name
                ]
                if names and isinstance(statement, ast.AugAssign):
                    return False
                if any(isinstance(node.ctx, ast.Load) for node in names):
                    return False
                if names and (parts is heads if is_loop else not hasattr(statement, "body")):
                    return True
        return False


def _breaks(body: Sequence[ast.stmt]) -> Iterator[ast.Break]:
    """The statements that end a loop; those of other loops in its body end these."""
    for statement in body:
        if isinstance(statement, ast.Break):
            yield statement
        elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            yield from _breaks(statement.orelse)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for name in ("body", "orelse", "finalbody"):
                yield from _breaks(getattr(statement, name, []))
            for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
                yield from _breaks(part.body)
