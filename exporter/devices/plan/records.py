"""The records of a plan: nodes, buffers, sub-graphs, weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from ..memory_amounts import ALIGNMENT
from .value_bytes import Size

WORKSPACE = "workspace"
"""The kind of a buffer that has the buffers of a node's sub-graphs."""


@dataclasses.dataclass(frozen=True)
class PlannedNode:
    """A node in execution order.

    Attributes:
        index: its position in the order.
        phase: `"forward"`; in training also `"calc_gradient"`, `"calc_derivative"`, `"apply_gradient"`.
        inputs, outputs: names of values; an empty name stands for an omitted one.
        in_place: per output that overwrites an input, the input's position.
        view: whether the bytes of the outputs are there already, so that nothing needs to be computed: those
            of input 0, parts of them, or the inputs of a Concat in order.
        captured: names of values that its sub-graphs read from outside.
    """

    index: int
    name: str
    domain: str
    op_type: str
    phase: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_place: Mapping[int, int] = dataclasses.field(default_factory=dict)
    view: bool = False
    captured: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PlannedBuffer:
    """A buffer in the block of memory.

    Attributes:
        name: the name of the first value in it.
        offset: bytes from the beginning of the block, of a body from the beginning of its workspace; None if
            sizes are formulas.
        size: bytes, or a formula of dimensions.
        lifetime: the indices of the first and the last node that need it, both inclusive.
        values: the names of the values in it; none in a workspace.
        kind: `"input"`, `"output"`, `"intermediate"`, or `"workspace"` for memory of a node's sub-graphs.
        within: the name of the buffer that this one is a part of; None if it is no part.
        memory: the memory that it is in; None if the plan has only one, or in a sub-graph.
    """

    name: str
    offset: int | None
    size: Size
    lifetime: tuple[int, int]
    values: tuple[str, ...]
    kind: str
    within: str | None = None
    memory: str | None = None


@dataclasses.dataclass(frozen=True)
class PlannedWeight:
    """A weight: its bytes, and the indices of the first and last node that read it."""

    name: str
    size: int
    lifetime: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class PlannedMemory:
    """A memory of the device, which is a range of the block.

    Attributes:
        size: the bytes that it has; None for any number.
        begin: the offset in the block where it begins.
        peak: the bytes that the plan needs of it.
    """

    name: str
    size: int | None
    begin: int
    peak: int


@dataclasses.dataclass(frozen=True)
class PlannedState:
    """An input that takes the value of an output in the next run.

    Attributes:
        in_place: whether both are in one buffer, so that the value is there already. Otherwise the caller
            copies it after the run.
    """

    input: str
    output: str
    in_place: bool


@dataclasses.dataclass(frozen=True)
class PlannedGraph:
    """Execution order, lifetimes, results in place and offsets of a graph.

    Attributes:
        nodes: in execution order.
        buffers: the values besides weights, and workspaces, in the order of their first use.
        bodies: the sub-graphs of its nodes.
        peak: the bytes of all buffers; None if sizes are formulas.
        lower_bound: the bytes that no placement can go below; None likewise.
    """

    nodes: tuple[PlannedNode, ...]
    buffers: tuple[PlannedBuffer, ...]
    bodies: tuple[PlannedBody, ...]
    peak: int | None
    lower_bound: int | None


@dataclasses.dataclass(frozen=True)
class PlannedBody(PlannedGraph):
    """A sub-graph of If, Loop or Scan.

    Attributes:
        node: the index of the node.
        attribute: the attribute of the node that has the sub-graph.
        buffer: the name of the workspace that has its buffers, in the graph of the node; None without one.
        inputs, outputs: names of values. Outputs without a buffer of the sub-graph are constants or values of
            the graphs around it.
        unplanned: why there are no buffers, if a size is unknown; else None.
    """

    node: int
    attribute: str
    buffer: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unplanned: str | None = None


@dataclasses.dataclass(frozen=True)
class PlanFacts(PlannedGraph):
    """The plan of a model.

    Attributes:
        mode: `"inference"` or `"train"`.
        weights: in the order of their first use.
        alignment: what every offset is a multiple of, in bytes.
        budget: the bytes that the caller allows for block and weights, or None.
        dimensions: the sizes that the caller gave to symbolic dimensions.
        states: the inputs that take the values of outputs in the next run. A run may overwrite them.
        memories: the memories of the device, the fastest first; none if the block is one memory.
        extra_work: the operations of nodes that run again for a memory limit, and of rows that two tiles
            compute, as a share of all others.
        model: the model that was planned, in execution order.
    """

    mode: str
    weights: tuple[PlannedWeight, ...]
    alignment: int = ALIGNMENT
    budget: int | None = None
    dimensions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    states: tuple[PlannedState, ...] = ()
    memories: tuple[PlannedMemory, ...] = ()
    extra_work: float = 0.0
    model: ir.Model | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return sum(weight.size for weight in self.weights)

    @property
    def fits(self) -> bool | None:
        """Whether block and weights fit into the budget; None without a budget, or if sizes are formulas."""
        if self.budget is None or self.peak is None:
            return None
        return self.peak + self.weight_bytes <= self.budget

    def buffer_of(self, value: str) -> PlannedBuffer | None:
        """The buffer of a value by its name; weights and constants have none."""
        return next((buffer for buffer in self.buffers if value in buffer.values), None)
