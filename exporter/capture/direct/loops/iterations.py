"""Follows a Python loop over a dynamic size through three iterations.

In a model, `for t in range(x.shape[1])` cannot run as often as an unknown size says. Its body runs three
times instead, each time with a new symbol for `t`. The second and the third iteration stand for all later
ones; `rolling` turns them into one operator if they recorded the same calls.
"""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from .....registration.size_algebra.polynomials import Polynomial, decide
from ....torch_boundary.operators.overloads import Args, OpOverload
from ....torch_boundary.recording.recorder import GraphRecorder
from ....torch_boundary.recording.replay import NotReplayable
from ....torch_boundary.size_questions import user_frame
from ...sizes.recorded_answers import current_line
from ..refusals import LoopRefused
from ..sizes.nodes import SizeNode
from .matching import LoopBody, match_iterations
from .python_state import ListState, python_state
from .tensor_writes import NotRepeated

_OPPOSITES = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
ITERATIONS = 3
"""How often the body of a loop runs: two equal iterations, after a first one that may differ."""
Number = int | torch.SymInt


def loop_index(loop: int, iteration: int) -> int:
    """The index of an iteration; a target for graph nodes only.

    Raises:
        NotReplayable: always, since the operator that replaces the loop has its own index.
    """
    raise NotReplayable("it depends on the index of a loop")


@dataclasses.dataclass(eq=False)
class RecordedLoop:
    """A loop that ran.

    Attributes:
        line: where it is in the user's code.
        start: the first index.
        stop: the bound that no index reaches.
        step: the difference between indices.
        count: the number of iterations.
        start_argument: the first index as an argument of a graph node.
        stop_argument: the bound as such an argument.
        count_argument: the number of iterations as such an argument.
        anchors: the last node before each iteration, and the last node of all.
        indices: the nodes of the indices.
        first_is_special: whether the first iteration took a branch that later ones do not take.
        states: the numbers and lists of the user's code before each iteration, and at the end.
        instruction: the frame of the user's code, and the position of the instruction that iterates.
        length: the number of iterations as a polynomial.
        body: what the iterations have in common, once all have run.
    """

    line: str
    start: Number
    stop: Number
    step: int
    count: Number
    start_argument: Any
    stop_argument: Any
    count_argument: Any
    anchors: list[torch.fx.Node] = dataclasses.field(default_factory=list)
    indices: list[torch.fx.Node] = dataclasses.field(default_factory=list)
    states: list[dict[str, object]] = dataclasses.field(default_factory=list)
    first_is_special: bool = False
    instruction: tuple[types.FrameType | None, int] = (None, -1)
    length: Polynomial[int] | None = None
    body: LoopBody | None = None

    def is_running_with(self, frame: types.FrameType, length: Polynomial[int], step: int) -> bool:
        """Whether the loop runs at an instruction, with ranges of this length and step: `zip` takes both."""
        is_same = self.instruction == (frame, frame.f_lasti) and self.length == length and self.step == step
        return self.body is None and is_same

    def is_of_index(self, value: Any) -> bool:
        """Whether a value is a number, or a tensor with a shape, that depends on the index."""
        symbols = {node.meta["val"].node.expr for node in self.indices}
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        return any(
            not symbols.isdisjoint(size.node.expr.free_symbols)
            for size in sizes
            if isinstance(size, torch.SymInt)
        )

    @property
    def first(self) -> int:
        """The first iteration that the operator runs: 1 if the first one is recorded apart."""
        return 1 if self.body is not None and self.body.initial is None else 0

    @property
    def repeated(self) -> Number:
        """How many iterations the operator runs."""
        return self.count - self.first

    def refuse(self, reason: str) -> LoopRefused:
        """An error that names the loop, and says in the next line what it does and what helps."""
        return LoopRefused(
            f"no Loop operator for the loop over a dynamic size at {self.line}\n"
            f"The loop {reason}. Or make the dimension static (leave it out of dynamic_shapes)"
        )


@dataclasses.dataclass(eq=False)
class IterationResults:
    """The results of the repeated iterations of a loop, as successive members of a list.

    Attributes:
        position: their position among the nodes of an iteration.
        is_reversed: whether the last iteration comes first.
        stacked: the node of the stacked results, once the loop is replaced.
    """

    loop: RecordedLoop
    position: int
    is_reversed: bool
    stacked: Any = None

    @property
    def last(self) -> torch.fx.Node:
        """The node of the result of the last iteration."""
        assert self.loop.body is not None
        return self.loop.body.iterations[-1][self.position]


@dataclasses.dataclass(eq=False)
class Join:
    """A call that stacks or concatenates tensors, among them results of iterations.

    Attributes:
        node: its node.
        parts: its operands.
        axis: the axis, not negative.
        stacks: whether it adds the axis.
    """

    node: torch.fx.Node
    parts: list[IterationResults | torch.fx.Node]
    axis: int
    stacks: bool

    def runs_of(self, loop: RecordedLoop) -> list[IterationResults]:
        """The operands that are results of a loop."""
        return [part for part in self.parts if isinstance(part, IterationResults) and part.loop is loop]


class Loops:
    """The loops of one recording."""

    def __init__(self, recorder: GraphRecorder, environment: Any):
        self.recorder = recorder
        self._environment = environment
        self._indices: dict[int, tuple[RecordedLoop, int]] = {}
        """By the atom of an index, its loop and the number of its iteration."""
        self.all: list[RecordedLoop] = []
        self.joins: list[Join] = []

    # Iterations.

    def iterate(self, start: Number, stop: Number, step: int) -> Iterator[Number]:
        """The indices of the iterations that run."""
        count = (stop - start) if step == 1 else (stop - start + step - (1 if step > 0 else -1)) // step
        line = current_line()
        numbers = [self.recorder.node_of(number) for number in (start, stop, count)]
        frame = _frame_of_user(sys._getframe(1))
        if self.all and self.all[-1].is_running_with(frame, self._polynomial(count), step):
            yield from self._follow(self.all[-1], start)
            return
        loop = RecordedLoop(
            "an unknown line" if line is None else str(line), start, stop, step, count, *numbers
        )
        if self.all and self.all[-1].body is None:
            raise loop.refuse("is inside of another such loop, which is not supported")
        self.all.append(loop)
        loop.instruction = (frame, frame.f_lasti)
        loop.length = self._polynomial(count)
        for iteration in builtins.range(ITERATIONS):
            loop.states.append(python_state(frame))
            yield self._begin(loop, iteration)
        loop.states.append(python_state(frame))
        loop.anchors.append(self._last_node())
        self._check_state(loop, frame)
        self._match(loop)

    def _follow(self, loop: RecordedLoop, start: Number) -> Iterator[Number]:
        """The indices of a second range that `zip` runs through together with the first one."""
        while loop.body is None:
            index = loop.indices[-1].meta["val"]
            yield index if start is loop.start or start == loop.start else index + (start - loop.start)

    def _match(self, loop: RecordedLoop) -> None:
        """Compare the iterations."""
        nodes = _nodes_between(loop.anchors)
        symbols = {index.meta["val"].node.expr for index in loop.indices}
        try:
            loop.body = match_iterations(nodes, symbols, self.recorder.root, loop.first_is_special)
        except NotRepeated as error:
            raise loop.refuse(f"does not repeat: {error}") from None

    def _begin(self, loop: RecordedLoop, iteration: int) -> torch.SymInt:
        loop.anchors.append(self._last_node())
        environment = self._environment
        index: torch.SymInt = environment.create_unbacked_symint()
        expression = index.node.expr
        environment.pending_fresh_unbacked_symbols.remove(expression)
        [atom] = environment.polynomial(expression).atoms
        self._indices[atom] = (loop, iteration)
        node = self.recorder.graph.call_function(loop_index, (len(self.all) - 1, iteration))
        loop.indices.append(node)
        self.recorder.bind(index, node)
        return index

    def _last_node(self) -> torch.fx.Node:
        node: torch.fx.Node = next(iter(reversed(self.recorder.graph.nodes)))
        return node

    def _check_state(self, loop: RecordedLoop, frame: types.FrameType) -> None:
        """Refuse a loop that changes other things than tensors and lists of them."""
        second, third, final = loop.states[1:]
        for name, before in third.items():
            after = final.get(name, before)
            if isinstance(before, ListState) and isinstance(after, ListState) and before.items is after.items:
                states = [state.get(name) for state in loop.states]
                lengths = [state.length for state in states if isinstance(state, ListState)]
                growth = {later - earlier for earlier, later in itertools.pairwise(lengths)}
                if growth - {0} and (growth != {1} or len(lengths) <= ITERATIONS):
                    raise loop.refuse(f"does not extend the list '{name}' by one member in each iteration")
            elif before != after and name in second and not isinstance(before, ListState):
                raise loop.refuse(
                    f"changes '{name}' from {before!r} to {after!r}: only tensors, and lists to which it "
                    "appends tensors, may change"
                )

    # Lists of results.

    def length(self, items: list[Any]) -> Number:
        """The number of members of a list when all iterations have run."""
        nodes = [self.recorder.node_of(item) if isinstance(item, torch.Tensor) else None for item in items]
        length: Number = 0
        for part in self._parts(nodes):
            length = length + (part.loop.repeated if isinstance(part, IterationResults) else 1)
        return length

    def has_results(self, items: Sequence[object]) -> bool:
        """Whether a list has the results of all iterations of a loop."""
        if not any(loop.body is not None for loop in self.all):
            return False
        nodes = [self.recorder.node_of(item) if isinstance(item, torch.Tensor) else None for item in items]
        return any(isinstance(part, IterationResults) for part in self._parts(nodes))

    def join_results(self, func: OpOverload, args: Args) -> torch.Tensor | None:
        """Record a call of `stack` or `cat` if it takes the results of all iterations; None for others."""
        finished = [loop for loop in self.all if loop.body is not None]
        tensors = args[0]
        if not finished or not isinstance(tensors, (list, tuple)):
            return None
        parts = self._parts([self.recorder.node_of(tensor) for tensor in tensors])
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
        with self.recorder.graph.inserting_after(self._last_node()):
            node = self.recorder.graph.call_function(func, (list(self._nodes(tensors)), axis))
        node.meta["nn_module_stack"] = {}
        self.recorder.bind(result, node)
        self.joins.append(Join(node, parts, axis, stacks))
        return result

    def _nodes(self, tensors: Sequence[torch.Tensor]) -> Iterator[torch.fx.Node]:
        return (self.recorder.node_of(tensor) for tensor in tensors)

    def _parts(self, nodes: Sequence[Any]) -> list[Any]:
        """The nodes of a list, with each run of the results of a loop as one part."""
        parts: list[Any] = []
        position = 0
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

    # Decisions.

    def answer(self, node: SizeNode, *, refuses: bool = False) -> bool | None:
        """The value of a comparison that depends on an index, if it is the same in all iterations.

        Args:
            node: a symbolic boolean, or an integer that Python code needs as a number.
            refuses: raise an error if there is no such value.

        Raises:
            LoopRefused: `refuses` is set, and it differs between iterations.
        """
        difference = _difference(node)
        if not self._indices or difference is None:
            return None
        atoms = [atom for atom in difference.atoms if atom in self._indices]
        if not atoms:
            return None
        loop, iteration = self._indices[atoms[0]]
        degrees = [monomial.count(atoms[0]) for monomial in difference.terms]
        is_linear = len(atoms) == 1 and max(degrees) == 1
        if node.relation is not None and is_linear:
            name = node.relation[0]
            answer = self._answer_for_all(name, difference, atoms[0], loop, min(iteration, 1))
            if answer is None and iteration == 0 and user_frame() is None:
                # A kernel of torch asks for shapes, which are those of later iterations.
                answer = self._answer_for_all(name, difference, atoms[0], loop, 1)
            elif answer is None and iteration == 0 and refuses:
                start = difference.substitute({atoms[0]: self._polynomial(loop.start)})
                answer = decide(name, start, Polynomial.of_number(0), self._environment.bounds)
                loop.first_is_special = loop.first_is_special or answer is not None
            if answer is not None:
                return answer
        if not refuses:
            return None
        if node.relation is None:
            raise loop.refuse(f"needs its index as a Python number: {current_line()}")
        raise loop.refuse(
            f"does not do the same in every iteration: {current_line()}. A condition on the index may only "
            "tell the first iteration from the others"
        )

    def _answer_for_all(
        self, relation: str, difference: Polynomial[int], index: int, loop: RecordedLoop, iteration: int
    ) -> bool | None:
        """The relation of an expression of the index to 0, from an iteration on, if it is always the same."""
        first = self._polynomial(loop.start) + Polynomial.of_number(loop.step * iteration)
        last = self._polynomial(loop.stop) - Polynomial.of_number(1 if loop.step > 0 else -1)
        is_alone = all(term == (index,) or index not in term for term in difference.terms)
        factor = difference.terms.get((index,), 0) if is_alone else 0
        highest, lowest = (last, first) if factor * loop.step > 0 else (first, last)

        def is_always(name: str) -> bool:
            # The highest value decides whether all are negative, whether there is one iteration or many.
            ends = [first, last] if factor == 0 else [highest if name in ("lt", "le") else lowest]
            values = [difference.substitute({index: end}) for end in ends]
            zero = Polynomial.of_number(0)
            return all(decide(name, value, zero, self._environment.bounds) is True for value in values)

        if relation in ("eq", "ne"):
            differs = is_always("lt") or is_always("gt")
            return (relation == "ne") if differs else None
        if is_always(relation):
            return True
        return False if is_always(_OPPOSITES[relation]) else None

    def _polynomial(self, number: Number) -> Polynomial[int]:
        if isinstance(number, torch.SymInt):
            polynomial: Polynomial[int] = self._environment.adopt(number.node).polynomial
            return polynomial
        return Polynomial.of_number(number)


def _difference(node: SizeNode) -> Polynomial[int] | None:
    """The difference of the sides of a comparison, or an integer itself; None for other numbers."""
    if node.relation is None:
        polynomial: Polynomial[int] | None = node.polynomial
        return polynomial
    sides = node.relation[1:]
    if len(sides) != 2 or any(side.polynomial is None for side in sides):
        return None
    difference: Polynomial[int] = sides[0].polynomial - sides[1].polynomial
    return difference


def _frame_of_user(frame: types.FrameType) -> types.FrameType:
    """The innermost frame outside of this package's own generators."""
    while frame.f_globals.get("__name__", "").startswith(__name__.rpartition(".")[0]) and frame.f_back:
        frame = frame.f_back
    return frame


def _nodes_between(anchors: Sequence[torch.fx.Node]) -> list[list[torch.fx.Node]]:
    """The nodes after each anchor, up to the next one."""
    nodes: list[list[torch.fx.Node]] = []
    for first, last in itertools.pairwise(anchors):
        nodes.append([])
        node = first
        while node is not last:
            node = node.next
            nodes[-1].append(node)
    return nodes
