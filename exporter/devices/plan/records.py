"""The records of a plan: nodes, buffers, sub-graphs, weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from ..memory_amounts import ALIGNMENT
from .value_bytes import Size

WORKSPACE = "workspace"
"""The kind of a buffer that contains the buffers of a node's sub-graphs."""


@dataclasses.dataclass(frozen=True)
class PlannedNode:
    """A node in execution order.

    Attributes:
        index: the position of the node in the order.
        phase: `"forward"`; in training also `"calc_gradient"`, `"calc_derivative"`, `"apply_gradient"`.
        inputs, outputs: names of values; "" for an omitted one.
        in_place: by position of an output that overwrites an input, the input's position.
        view: whether the bytes of the outputs are in place already, so that nothing is computed: they are
            input 0, parts of it, or the operands of a Concat in order.
        captured: names of values that the node's sub-graphs read from outside.
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
        offset: bytes from the beginning of the block, or for a sub-graph, of its workspace; None if sizes
            are formulas.
        size: bytes, or a formula of dimensions.
        lifetime: the indices of the first and the last node that need it, both inclusive.
        values: the names of the values in it; none in a workspace.
        kind: `"input"`, `"output"`, `"intermediate"`, or `"workspace"` for memory of a node's sub-graphs.
        within: the name of the buffer of which this one is a part; None if it is not a part.
        memory: the name of the memory with the buffer; None if the plan has one memory, or in a sub-graph.
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
    """A memory of the device, which holds a range of the block.

    Attributes:
        size: the bytes of the memory; None if unlimited.
        begin: the offset in the block where the memory begins.
        peak: the bytes of the memory that the plan needs.
    """

    name: str
    size: int | None
    begin: int
    peak: int


@dataclasses.dataclass(frozen=True)
class PlannedState:
    """An input that takes the value of an output in the next run.

    Attributes:
        in_place: whether input and output share a buffer. If not, the caller copies the output to the input
            after the run.
    """

    input: str
    output: str
    in_place: bool


@dataclasses.dataclass(frozen=True)
class PlannedGraph:
    """Execution order, lifetimes, results in place and offsets of a graph.

    Attributes:
        nodes: in execution order.
        buffers: the buffers of values (not of weights) and workspaces, in the order of their first use.
        bodies: the sub-graphs of the nodes.
        peak: the bytes of the block; None if sizes are formulas.
        lower_bound: the fewest bytes that any placement needs; None if sizes are formulas.
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
        node: the index of the node with the sub-graph.
        attribute: the name of the node's attribute that holds the sub-graph.
        buffer: the name of the workspace for the sub-graph, in the node's graph; None if it needs none.
        inputs, outputs: names of values. An output without a buffer here is a constant or a value of an
            enclosing graph.
        unplanned: why the sub-graph has no buffers (a size is unknown); None if it has a plan.
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
        weights: the weights, in the order of their first use.
        alignment: every offset is a multiple of this many bytes.
        budget: the bytes that the caller allows for block and weights, or None.
        dimensions: the sizes that the caller gave to symbolic dimensions.
        states: the inputs that take the values of outputs in the next run. A run may overwrite them.
        memories: the memories of the device, the fastest first; none if the block is one memory.
        extra_work: the added operations of repeated nodes and of rows that two tiles compute, as a share of
            the model's operations.
        model: the planned model, in execution order; None for a plan that was read from a file.
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
        """Return the buffer of a value by its name; None for weights and constants."""
        return next((buffer for buffer in self.buffers if value in buffer.values), None)
