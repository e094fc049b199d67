"""The loops of a recording, and what becomes of the results of their iterations."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Container, Hashable, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from .....registration.size_algebra.polynomials import Polynomial
from ..refusals import LoopRefused
from .matching import LoopBody

ITERATIONS = 3
"""How often the body of a loop runs: two equal iterations, after a first one that may differ."""
Number = int | torch.SymInt


@dataclasses.dataclass(eq=False)
class SidePath:
    """One iteration of a loop, with one combination of answers.

    Attributes:
        marker: the node of its index.
        end: the node after its last one.
        answers: the answers to the conditions, in order.
        values: by the copy that the third iteration made of a value, the node of the value here.
    """

    marker: torch.fx.Node
    end: torch.fx.Node
    answers: list[bool]
    values: dict[torch.fx.Node, torch.fx.Node]


@dataclasses.dataclass(eq=False)
class RecordedLoop:
    """A loop that ran.

    Attributes:
        line: where it is in the user's code.
        start: the first index.
        stop: the bound that no index reaches.
        step: the difference between indices.
        count: the number of iterations.
        arguments: the first index, the bound and the number of iterations as arguments of graph nodes.
        outer: the loop in whose iteration it runs.
        key: equal for the loops that the iterations of the outer loop run at the same point of its body.
        markers: the nodes of the indices, each before its iteration, and a node after the last iteration.
        first_is_special: whether the first iteration took a branch that later ones do not take.
        states: the numbers and lists of the user's code before each iteration, and at the end.
        instruction: the frame of the user's code, and the position of the instruction that iterates.
        length: the number of iterations as a polynomial.
        symbols: those of the indices, of inner loops too.
        body: what the iterations have in common, once all have run.
        stacked: the nodes of the stacked results by position, once the loop is replaced.
        occurrences: how often the current iteration has come to a line.
        has_conditions: whether its body has conditions of which both sides are recorded.
        paths: the iterations that took other sides than the first three.
        index: the index of the iteration that runs.
        counted: the paths of the numbers that the loop counts.
        is_ended: whether its last recorded iteration ended it by `break`.
        appended_tensors: the nodes of tensors from before an iteration that it appended to lists.
    """

    line: str
    start: Number
    stop: Number
    step: int
    count: Number
    arguments: Sequence[Any]
    outer: RecordedLoop | None
    key: tuple[Hashable, ...]
    markers: list[torch.fx.Node] = dataclasses.field(default_factory=list)
    states: list[dict[str, object]] = dataclasses.field(default_factory=list)
    first_is_special: bool = False
    instruction: tuple[types.FrameType | None, int] = (None, -1)
    length: Polynomial[int] | None = None
    symbols: set[sympy.Symbol] = dataclasses.field(default_factory=set)
    body: LoopBody | None = None
    stacked: dict[int, torch.fx.Node] = dataclasses.field(default_factory=dict)
    occurrences: collections.Counter[Hashable] = dataclasses.field(default_factory=collections.Counter)
    has_conditions: bool = False
    paths: list[SidePath] = dataclasses.field(default_factory=list)
    index: Number = 0
    counted: Container[object] = ()
    is_ended: bool = False
    appended_tensors: list[torch.fx.Node] = dataclasses.field(default_factory=list)

    def is_running_with(self, frame: types.FrameType, length: Polynomial[int], step: int) -> bool:
        """Whether the loop runs at an instruction, with ranges of this length and step: `zip` takes both."""
        is_same = self.instruction == (frame, frame.f_lasti) and self.length == length and self.step == step
        return self.body is None and is_same

    def key_in_body(self, line: Hashable) -> tuple[Hashable, ...]:
        """Names the point of the body at which the code comes to a line, alike in all iterations."""
        self.occurrences[line] += 1
        return *self.key, line, self.occurrences[line]

    def is_of_index(self, value: Any) -> bool:
        """Whether a value is a number, or a tensor with a shape, that depends on the iteration.

        It may depend on the index, or on a number that the iteration reads from a tensor.
        """
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        symbols = set().union(
            *(size.node.expr.free_symbols for size in sizes if isinstance(size, torch.SymInt))
        )
        nodes = (node for iteration in self.iterations() for node in iteration) if symbols else ()
        return not symbols.isdisjoint(self.own_symbols()) or any(
            not symbols.isdisjoint(node.meta.get("unbacked_bindings") or ()) for node in nodes
        )

    def own_symbols(self) -> set[sympy.Symbol]:
        """The symbols of its indices."""
        markers = [*self.markers, *(node for path in self.paths for node in (path.marker, path.end))]
        return {node.meta["val"].node.expr for node in markers}

    def iterations(self) -> list[list[torch.fx.Node]]:
        """The nodes of each iteration; the first node of an iteration is its index."""
        return [nodes_between(*pair) for pair in zip(self.markers, self.markers[1:], strict=False)]

    @property
    def depth(self) -> int:
        """How many loops it is inside of."""
        return 0 if self.outer is None else self.outer.depth + 1

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


def nodes_between(start: torch.fx.Node, end: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes from one to another one, which is left out."""
    nodes = []
    while start is not end:
        nodes.append(start)
        start = start.next
    return nodes


@dataclasses.dataclass(eq=False)
class IterationResults:
    """The results of the repeated iterations of a loop, as successive members of a list.

    Attributes:
        position: their position among the nodes of an iteration.
        is_reversed: whether the last iteration comes first.
    """

    loop: RecordedLoop
    position: int
    is_reversed: bool

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

    def runs_of(self, loops: Sequence[RecordedLoop]) -> list[IterationResults]:
        """The operands that are results of loops."""
        return [part for part in self.parts if isinstance(part, IterationResults) and part.loop in loops]
