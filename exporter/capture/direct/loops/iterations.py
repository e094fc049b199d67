"""Follows a Python loop over a dynamic size through three iterations.

In a model, `for t in range(x.shape[1])` cannot run as often as an unknown size says. Its body runs three
times instead, each time with a new symbol for `t`. The second and the third iteration stand for all later
ones; `rolling` turns them into one operator if they recorded the same calls.
"""

from __future__ import annotations

import builtins
import collections
import itertools
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from ....torch_boundary.fake_tensors import storage_of
from ....torch_boundary.operators.overloads import Args, OpOverload
from ....torch_boundary.recording.recorder import GraphRecorder
from ....torch_boundary.recording.replay import written_storages
from ...sizes.trials.recorded_answers import current_line
from ..checks import loop_at, numbered_member
from ..refusals import LoopRefused
from ..sizes.environment import SizeEnvironment
from .counters import Counters
from .index_questions import IndexQuestions
from .matching import loop_index, match_iterations
from .python_state import ListState, lists_with_result, python_state
from .recorded_loops import ITERATIONS, IterationResults, Join, Number, RecordedLoop, nodes_between
from .sides import BranchesInLoop, BranchingLoops, LoopSides
from .tensor_writes import NotRepeated

_REPEATED = 29
"""A list of results has this many more members than iterations that ran; `python_state` looks at 64."""


class Loops:
    """The loops of one recording.

    Args:
        branching: the loops whose conditions have both sides; None if such loops are refused.
    """

    def __init__(
        self,
        recorder: GraphRecorder,
        environment: SizeEnvironment,
        branching: BranchingLoops | None = None,
    ):
        self._branching = branching
        self.recorder = recorder
        self.questions = IndexQuestions(environment)
        self._environment = environment
        self._running: list[RecordedLoop] = []
        """The loops that run, the outermost one first."""
        self.all: list[RecordedLoop] = []
        self.joins: list[Join] = []
        self.sides: dict[RecordedLoop, LoopSides] = {}
        """The sides of the conditions in the bodies of loops."""
        self.failures: list[LoopRefused] = []
        """The errors of loops that ended by `break`, to be raised later.

        Python closes the generator of such a loop, and ignores what it raises then.
        """

    @property
    def innermost(self) -> RecordedLoop | None:
        """The innermost loop whose body is being recorded."""
        return self._running[-1] if self._running else None

    def answer(self, usual: bool) -> bool | None:
        """The answer to a condition in the body of the innermost loop; None if it is refused.

        Args:
            usual: the answer in the iterations that stand for all.

        Raises:
            BranchesInLoop: another recording answers it.
        """
        loop = self.innermost
        if loop is None or self._branching is None:
            return None
        if loop not in self.sides:
            self._branching.endings[loop.key] = []
            raise BranchesInLoop
        return self.sides[loop].answer(usual)

    # Iterations.

    def iterate(
        self, start: Number, stop: Number, step: int, frame: types.FrameType | None = None
    ) -> Iterator[Number]:
        """The indices of the iterations that run.

        Args:
            frame: of the code that has the loop; by default that which asks for the indices.
        """
        count = (stop - start) if step == 1 else (stop - start + step - (1 if step > 0 else -1)) // step
        line = current_line()
        arguments = [self.recorder.node_of(number) for number in (start, stop, count)]
        frame = frame or _frame_of_user(sys._getframe(1))
        outer = self.innermost
        if outer is not None and outer.is_running_with(frame, self.questions.polynomial(count), step):
            yield from self._follow(outer, start)
            return
        text = "an unknown line" if line is None else str(line)
        key = (len(self.all),) if outer is None else outer.key_in_body(text)
        loop = RecordedLoop(text, start, stop, step, count, arguments, outer, key)
        self.all.append(loop)
        self._running.append(loop)
        loop.instruction = (frame, frame.f_lasti)
        loop.length = self.questions.polynomial(count)
        statement = loop_at(frame)
        body = [] if statement is None else statement.body
        carried = () if self._branching is None else self._branching.numbers.get(loop.key, ())
        counters = Counters(loop, frame, body, self.questions, carried)
        loop.counted = counters
        if self._branching is not None and loop.key in self._branching.endings:
            self.sides[loop] = LoopSides(loop, frame, statement, self.recorder, self._branching)
        sides = self.sides.get(loop)
        for iteration in builtins.range(ITERATIONS):
            loop.states.append(python_state(frame))
            index = self._begin(loop, iteration)
            counters.begin(index)
            if sides is not None:
                sides.read_numbers()
            yield index
            if self._running[-1] is not loop:
                raise self._running[-1].refuse("ends early (break, return or an error)")
            if sides is not None:
                sides.finish_iteration()
            else:
                self._copy_earlier_results(loop, frame)
        loop.states.append(python_state(frame))
        loop.markers.append(self._mark(loop, loop.markers[-1].meta["val"]))
        self._check_state(loop, counters)
        if sides is not None:
            try:
                yield from self._run_other_sides(loop, sides, counters)
            except GeneratorExit:
                if not loop.is_ended:
                    raise
        try:
            self._finish(loop, counters, frame)
        except LoopRefused as error:
            if not loop.is_ended:
                raise
            self.failures.append(error)
        except BranchesInLoop:
            if self._branching is None or not loop.is_ended:
                raise
            self._branching.is_changed = True

    def _copy_earlier_results(self, loop: RecordedLoop, frame: types.FrameType) -> None:
        """Copy the tensors from before an iteration that it appended to lists: each has nodes of its own."""
        earlier_nodes: set[torch.fx.Node] = set()
        for _, items, position in lists_with_result(loop.states[-1], python_state(frame)):
            if not earlier_nodes:
                earlier_nodes.update(nodes_between(next(iter(self.recorder.graph.nodes)), loop.markers[-1]))
            member = items[position]
            node = self.recorder.node_of(member)
            # A write in place gives the same tensor another node.
            if node in earlier_nodes or (len(items) > 1 and member is items[1 if position == 0 else -2]):
                loop.appended_tensors.append(node)
            if node in earlier_nodes:
                items[position] = torch.ops.aten.clone.default(member)

    def _finish(self, loop: RecordedLoop, counters: Counters, frame: types.FrameType) -> None:
        """Compare the iterations of a loop, and set Python's variables for the code after it."""
        self._running.remove(loop)
        if self.failures or (loop in self.sides and not self.sides[loop].is_complete):
            # The code after it runs for nothing.
            return
        for name in counters if loop.is_ended else ():
            # The number of iterations does not tell it.
            assert self._branching is not None
            self._branching.carry_number(loop, name)
            raise loop.refuse(f"counts '{name}', which is no variable, and ends early (break)")
        inner = self.all[self.all.index(loop) :]
        loop.symbols = set().union(*(inner_loop.own_symbols() for inner_loop in inner))
        appended_storages = {storage_of(node.meta["val"]) for node in loop.appended_tensors}
        if any(written_storages(node) & appended_storages for nodes in loop.iterations() for node in nodes):
            raise loop.refuse("writes to a tensor that it appends to a list; append a clone()")
        # An inner loop writes to tensors by nodes that are replaced at the end of the recording.
        self.match(loop, takes_writes=len(inner) == 1)
        if not loop.is_ended:
            counters.finish()
        if loop in self.sides:
            self.sides[loop].read_numbers()
        for state in loop.states[-1].values():
            if isinstance(state, ListState):
                _lengthen_list(state, loop)
        member = numbered_member(frame)
        if member:
            raise loop.refuse(
                f"makes a list whose members the code reads by number: {member}; read [-1] only"
            )

    def _run_other_sides(self, loop: RecordedLoop, sides: LoopSides, counters: Counters) -> Iterator[Number]:
        """The indices of the iterations that take other sides than the first three."""

        def begin() -> torch.fx.Node:
            return self._begin_side(loop)

        while (marker := sides.begin_other(begin)) is not None:
            counters.begin(marker.meta["val"])
            try:
                yield marker.meta["val"]
            except GeneratorExit:
                if not sides.is_at_break:
                    raise
                loop.is_ended = True
                ending = sides.planned
                try:
                    sides.finish_other(begin, is_ended=True)
                except LoopRefused as error:
                    self.failures.append(error)
                except BranchesInLoop:
                    # Python ignores what a generator raises that is closed.
                    assert self._branching is not None
                    self._branching.is_changed = True
                    return
                if not sides.is_complete and self._branching is not None:
                    self._branching.add_ending(loop.key, ending)
                return
            if self._running[-1] is not loop:
                raise self._running[-1].refuse("ends early (break, return or an error)")
            counters.check()
            sides.finish_other(begin)
            counters.restore(loop.markers[ITERATIONS - 1].meta["val"])

    def _follow(self, loop: RecordedLoop, start: Number) -> Iterator[Number]:
        """The indices of a second range that `zip` runs through together with the first one."""
        while loop.body is None:
            index = loop.index
            yield index if start is loop.start or start == loop.start else index + (start - loop.start)

    def match(self, loop: RecordedLoop, *, takes_writes: bool) -> None:
        """Compare the iterations.

        Args:
            takes_writes: whether to take writes to tensors from before the loop out of the iterations.

        Raises:
            LoopRefused: they differ.
        """
        iterations, symbols, root = loop.iterations(), loop.symbols, self.recorder.root
        try:
            loop.body = match_iterations(
                iterations,
                symbols,
                root,
                peels=loop.first_is_special,
                takes_writes=takes_writes,
                takes_rows=loop not in self.sides,
            )
            if loop in self.sides:
                self.sides[loop].carry(loop.body)
        except NotRepeated as error:
            raise loop.refuse(f"does not repeat: {error}") from None

    def _begin(self, loop: RecordedLoop, iteration: int) -> torch.SymInt:
        index = self._new_index(loop, iteration)
        loop.markers.append(self._mark(loop, index))
        self.recorder.bind(index, loop.markers[-1])
        return index

    def _begin_side(self, loop: RecordedLoop) -> torch.fx.Node:
        """Mark the beginning or the end of an iteration that takes other sides than the first three."""
        # What it computes must hold for the first iteration, too.
        index = self._new_index(loop, 0)
        node = self._mark(loop, index)
        self.recorder.bind(index, node)
        return node

    def _new_index(self, loop: RecordedLoop, iteration: int) -> torch.SymInt:
        loop.occurrences.clear()
        environment = self._environment
        index: torch.SymInt = environment.create_unbacked_symint()
        loop.index = index
        environment.pending_fresh_unbacked_symbols.remove(index.node.expr)
        self.questions.add_index(index, loop, iteration)
        return index

    def _mark(self, loop: RecordedLoop, index: torch.SymInt) -> torch.fx.Node:
        """Add a node that marks where an iteration begins, or where the last one ends."""
        arguments = (self.all.index(loop), len(loop.markers))
        node = self.recorder.graph.call_function(loop_index, arguments)
        node.meta["val"] = index
        return node

    def _check_state(self, loop: RecordedLoop, counters: Counters) -> None:
        """Refuse a loop that changes other things than tensors, lists of them, and numbers that it counts."""
        second, third, final = loop.states[1:]
        for name, before in third.items():
            after = final.get(name, before)
            if name in counters or (loop in self.sides and name in self.sides[loop].numbers):
                continue
            if {type(before), type(after)} & {torch.SymInt, torch.SymFloat}:
                self._check_number(loop, name, before, after)
            elif (
                isinstance(before, ListState) and isinstance(after, ListState) and before.items is after.items
            ):
                states = [state.get(name) for state in loop.states]
                lengths = [state.length for state in states if isinstance(state, ListState)]
                growth = {later - earlier for earlier, later in itertools.pairwise(lengths)}
                if growth - {0} and (growth != {1} or len(lengths) <= ITERATIONS):
                    raise loop.refuse(f"does not extend the list '{name}' by one member in each iteration")
            elif before != after and name in second and not isinstance(before, ListState):
                numbers = [state.get(name) for state in loop.states]
                differences = [
                    later - earlier
                    for earlier, later in itertools.pairwise(numbers)
                    if isinstance(earlier, int) and isinstance(later, int)
                ]
                # A product may need more bits than a tensor has.
                if self._branching is not None and len(set(differences)) < 2:
                    self._branching.carry_number(loop, name)
                raise loop.refuse(
                    f"changes '{name}' from {before!r} to {after!r}: only tensors, and lists to which it "
                    "appends tensors, may change"
                )

    def _check_number(self, loop: RecordedLoop, name: str, before: object, after: object) -> None:
        """Refuse a number that changes from one iteration to the next, unless it follows from the index."""
        symbolic = [
            number for number in (before, after) if isinstance(number, (torch.SymInt, torch.SymFloat))
        ]
        own_symbols = set().union(*(recorded.own_symbols() for recorded in self.all))
        for nodes in loop.iterations():
            own_symbols.update(*(node.meta.get("unbacked_bindings") or {} for node in nodes))
        # An iteration may compute a number such as `min(t + 1, n)`, or read one from a tensor; code after the
        # loop may not use it.
        if any(not own_symbols.isdisjoint(number.node.expr.free_symbols) for number in symbolic):
            return
        if isinstance(before, Number) and isinstance(after, Number):
            is_same = self.questions.polynomial(before) == self.questions.polynomial(after)
        else:
            is_same = len(symbolic) == 2 and symbolic[0].node.expr == symbolic[1].node.expr
        if not is_same:
            raise loop.refuse(f"changes '{name}' by something else than '{name} += step' in each iteration")

    # Lists of results.

    def length(self, items: list[Any]) -> Number:
        """The number of members of a list when all iterations have run."""
        nodes = [self.recorder.node_of(item) if isinstance(item, torch.Tensor) else None for item in items]
        length: Number = 0
        for part in self.parts_of(nodes):
            length = length + (part.loop.repeated if isinstance(part, IterationResults) else 1)
        return length

    def has_results(self, items: Sequence[object]) -> bool:
        """Whether a list has the results of all iterations of a loop."""
        if not any(loop.body is not None for loop in self.all):
            return False
        nodes = [self.recorder.node_of(item) if isinstance(item, torch.Tensor) else None for item in items]
        return any(isinstance(part, IterationResults) for part in self.parts_of(nodes))

    def join_results(self, func: OpOverload, args: Args) -> torch.Tensor | None:
        """Record a call of `stack` or `cat` if it takes the results of all iterations; None for others."""
        finished = [loop for loop in self.all if loop.body is not None]
        tensors = args[0]
        if not finished or not isinstance(tensors, (list, tuple)):
            return None
        parts = self.parts_of([self.recorder.node_of(tensor) for tensor in tensors])
        if not any(isinstance(part, IterationResults) for part in parts):
            return None
        stacks = func is torch.ops.aten.stack.default
        shape = list(tensors[0].shape)
        axis = int(args[1]) if len(args) > 1 else 0
        axis %= len(shape) + stacks
        lengths: list[Number] = []
        for part in parts:
            node = part.last if isinstance(part, IterationResults) else part
            size = 1 if stacks else node.meta["val"].shape[axis]
            lengths.append(size * part.loop.repeated if isinstance(part, IterationResults) else size)
        shape[axis : axis + (0 if stacks else 1)] = [sum(lengths[1:], lengths[0])]
        result = self.recorder.empty(shape, tensors[0].dtype, tensors[0].device)
        node = self.recorder.graph.call_function(func, (list(self._nodes(tensors)), axis))
        node.meta["nn_module_stack"] = {}
        self.recorder.bind(result, node)
        self.joins.append(Join(node, parts, axis, stacks))
        return result

    def _nodes(self, tensors: Sequence[torch.Tensor]) -> Iterator[torch.fx.Node]:
        return (self.recorder.node_of(tensor) for tensor in tensors)

    def parts_of(self, nodes: Sequence[Any]) -> list[Any]:
        """The nodes of a list, with each run of the results of a loop as one part."""
        parts: list[Any] = []
        position = 0
        # `_lengthen_list` repeats the result of the second iteration.
        middle = {node for loop in self.all if loop.body is not None for node in loop.body.iterations[1]}
        nodes = [node for i, node in enumerate(nodes) if not (i and node is nodes[i - 1] and node in middle)]
        while position < len(nodes):
            run = self._run(nodes[position:])
            parts.append(nodes[position] if run is None else run)
            position += 1 if run is None else ITERATIONS - run.loop.first
        return parts

    def _run(self, nodes: Sequence[Any]) -> IterationResults | None:
        """The results of all repeated iterations of a loop, if these nodes begin with them."""
        for loop in self.all:
            if loop.body is None:
                continue
            entries = [loop.body.positions.get(node, (-1, -1)) for node in nodes[: ITERATIONS - loop.first]]
            iterations, positions = zip(*entries, strict=True)
            order = tuple(builtins.range(loop.first, ITERATIONS))
            if len(set(positions)) == 1 and iterations in (order, order[::-1]):
                if loop.is_of_index(nodes[0].meta["val"]):
                    raise loop.refuse("collects results whose shapes differ from one iteration to the next")
                return IterationResults(loop, positions[0], iterations != order)
        return None


def _lengthen_list(state: ListState, loop: RecordedLoop) -> None:
    """Repeat the result of the second iteration in a list to which each iteration added its own at an end.

    Otherwise `results[2]` would be the last member, as `results[-1]` is. So it is the result of the second
    iteration, which code after the loop may not read.
    """
    before = [e for states in loop.states[:-1] for e in states.values() if isinstance(e, ListState)]
    positions = [state.new_position(earlier) for earlier in before if earlier.items is state.items]
    # A deque with a maximum length takes no more members.
    grows = (
        isinstance(state.items, (list, collections.deque)) and getattr(state.items, "maxlen", None) is None
    )
    if grows and positions and positions[-1] is not None:
        second = 1 if positions[-1] == 0 else state.length - 2
        for _ in builtins.range(_REPEATED):
            state.items.insert(max(second, 1), state.items[second])


def _frame_of_user(frame: types.FrameType) -> types.FrameType:
    """The innermost frame outside of this package's own generators."""
    while frame.f_globals.get("__name__", "").startswith(__name__.rpartition(".")[0]) and frame.f_back:
        frame = frame.f_back
    return frame
