"""`Plan`: everything that can be decided before a device sees the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ....passes.planning import (
    Buffer,
    Interval,
    Memory,
    assign_offsets,
    buffers_of,
    execution_order,
    lower_bound,
)
from ....passes.target.inplace_annotations import annotate_inplace
from ....registration import UsageError
from ...files.reading import TRUSTED
from ...lowering.conversion.preparation import copy_of, source_of
from .sizes import Dimensions, Size, bytes_of

FORWARD = "forward"
ALIGNMENT = 64


@dataclasses.dataclass(frozen=True)
class PlannedNode:
    """A node in execution order.

    Attributes:
        index: its position in the order.
        phase: `"forward"`; in training also `"calc_gradient"`, `"calc_derivative"`, `"apply_gradient"`.
        inputs, outputs: names of values; an empty name stands for an omitted one.
        in_place: per output that overwrites an input, the input's position.
        view: whether output 0 is the same bytes as input 0, so that nothing needs to be computed.
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


@dataclasses.dataclass(frozen=True)
class PlannedBuffer:
    """A place in the block of memory.

    Attributes:
        name: the name of the first value in it.
        offset: bytes from the beginning of the block; None if sizes are formulas.
        size: bytes, or a formula of dimensions.
        lifetime: the indices of the first and the last node that need it, both inclusive.
        values: the names of the values in it.
        kind: `"input"`, `"output"` or `"intermediate"`.
    """

    name: str
    offset: int | None
    size: Size
    lifetime: tuple[int, int]
    values: tuple[str, ...]
    kind: str


@dataclasses.dataclass(frozen=True)
class PlannedWeight:
    """A weight: its bytes, and the indices of the first and last node that read it."""

    name: str
    size: int
    lifetime: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Execution order, lifetimes, in-place results and offsets of a model.

    Attributes:
        mode: `"inference"` or `"train"`.
        nodes: in execution order.
        buffers: the values besides weights, in the order of their first use.
        weights: in the order of their first use.
        peak: the bytes of the block; None if sizes are formulas.
        lower_bound: the bytes that no placement can go below; None likewise.
        alignment: what every offset is a multiple of, in bytes.
        budget: the bytes that the caller allows for block and weights, or None.
        dimensions: the sizes that the caller gave to symbolic dimensions.
        model: the model that was planned, in execution order.
    """

    mode: str
    nodes: tuple[PlannedNode, ...]
    buffers: tuple[PlannedBuffer, ...]
    weights: tuple[PlannedWeight, ...]
    peak: int | None
    lower_bound: int | None
    alignment: int = ALIGNMENT
    budget: int | None = None
    dimensions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    model: ir.Model | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return sum(weight.size for weight in self.weights)

    @property
    def fits(self) -> bool | None:
        """Whether block and weights fit into the budget; None without one, or if sizes are formulas."""
        if self.budget is None or self.peak is None:
            return None
        return self.peak + self.weight_bytes <= self.budget

    def buffer_of(self, value: str) -> PlannedBuffer | None:
        """The buffer of a value by its name; weights and constants have none."""
        return next((buffer for buffer in self.buffers if value in buffer.values), None)

    def to_json(self) -> str:
        """The JSON form; `plan.schema.json` is its schema."""
        from .json_form import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan of a JSON form.

        Raises:
            PlanError: it does not have the documented form.
        """
        from .json_form import from_json

        return from_json(text)

    def save(self, folder: Any, *, html: bool = False) -> None:
        """Write `plan.json`, its schema, a picture, the C forms, and the model with the plan as metadata.

        Args:
            html: write `plan.html`, the picture with details on a page, too.

        Raises:
            ModelFileError: the folder cannot be written.
        """
        from .saving import save_plan

        save_plan(self, folder, html=html)


def make_plan(
    model: ir.Model,
    *,
    mode: str = "inference",
    budget: int | None = None,
    dimensions: Mapping[str, int] | None = None,
    alignment: int = ALIGNMENT,
    phases: Mapping[str, str] | None = None,
) -> Plan:
    """Plan a model; it is not changed.

    Args:
        mode: `"inference"`, or `"train"` for a training graph, whose nodes have phases.
        budget: bytes that block and weights may take; the plan says whether they do.
        dimensions: sizes of symbolic dimensions. Without them sizes stay formulas, and there are no offsets.
        alignment: a power of two that every offset is a multiple of.
        phases: the phase of each node of a training graph, by name.

    Raises:
        PlanError: a value has no size that is known before the model runs.
        UsageError: an argument is none of these.
    """
    if mode not in ("inference", "train"):
        raise UsageError(f"mode is 'inference' or 'train', not {mode!r}")
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise UsageError(f"alignment is a power of two, not {alignment!r}")
    given = _checked_dimensions(model, dimensions)
    prepared = _prepared(model, given.sizes)
    memory = buffers_of(prepared.graph, list(prepared.graph))
    sizes = {buffer: _size(buffer, given) for buffer in memory.buffers}
    intervals = [Interval(size, b.first, b.last) for b, size in sizes.items() if isinstance(size, int)]
    known = len(intervals) == len(sizes)
    offsets = assign_offsets(intervals, alignment) if known else []
    rounded = [Interval(-(-i.size // alignment) * alignment, i.first, i.last) for i in intervals]
    places = dict(zip(memory.buffers, offsets, strict=True)) if known else {}
    return Plan(
        mode=mode,
        nodes=tuple(_node(memory, index, phases or {}) for index in range(len(memory.nodes))),
        buffers=tuple(
            _buffer(prepared.graph, buffer, places.get(buffer), sizes[buffer]) for buffer in memory.buffers
        ),
        weights=tuple(_weights(prepared.graph, memory)),
        peak=max((o + i.size for o, i in zip(offsets, rounded, strict=True)), default=0) if known else None,
        lower_bound=lower_bound(rounded) if known else None,
        alignment=alignment,
        budget=budget,
        dimensions=given.sizes,
        model=prepared,
    )


def _checked_dimensions(model: ir.Model, given: Mapping[str, int] | None) -> Dimensions:
    known = {
        dim.value
        for value in model.graph.inputs
        for dim in value.shape or ()
        if isinstance(dim, ir.SymbolicDim) and dim.value
    }
    for name, size in (given or {}).items():
        if name not in known:
            raise UsageError(f"there is no dimension '{name}'; the inputs have {sorted(known) or 'no names'}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise UsageError(f"dimension '{name}' is a number of elements, not {size!r}")
    return Dimensions(dict(given or {}), frozenset(known))


def _prepared(model: ir.Model, dimensions: Mapping[str, int]) -> ir.Model:
    """A copy in execution order, with sizes, types and in-place annotations."""
    copy = copy_of(model)
    for value in copy.graph.inputs:
        if value.shape is not None and dimensions:
            value.shape = ir.Shape(
                [
                    dimensions.get(dim.value or "", dim) if isinstance(dim, ir.SymbolicDim) else dim
                    for dim in value.shape
                ]
            )
    ordered = execution_order(copy.graph)
    if ordered != list(copy.graph):
        copy.graph.sort()
    prepared = source_of(copy, TRUSTED)
    _name_nodes(prepared.graph)
    annotate_inplace(prepared)
    return prepared


def _name_nodes(graph: ir.Graph) -> None:
    """Give every node a name of its own."""
    taken: set[str] = set()
    for index, node in enumerate(graph):
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{index}"
        taken.add(node.name)


def _size(buffer: Buffer, dimensions: Dimensions) -> Size:
    """The bytes of a buffer: of the largest value in it."""
    found = [bytes_of(value, dimensions) for value in buffer.values]
    numbers = [size for size in found if isinstance(size, int)]
    if len(numbers) == len(found):
        return max(numbers)
    return next(size for size in found if isinstance(size, str))


def _node(memory: Memory, index: int, phases: Mapping[str, str]) -> PlannedNode:
    node = memory.nodes[index]
    place = memory.in_place.get(node)
    return PlannedNode(
        index,
        node.name or "",
        node.domain,
        node.op_type,
        phases.get(node.name or "", FORWARD),
        tuple("" if value is None else value.name or "" for value in node.inputs),
        tuple(value.name or "" for value in node.outputs),
        {} if place is None else {0: place},
        node in memory.views,
    )


def _buffer(graph: ir.Graph, buffer: Buffer, offset: int | None, size: Size) -> PlannedBuffer:
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    kind = "input" if buffer.values[0] in inputs else "intermediate"
    if any(value in outputs for value in buffer.values) and kind != "input":
        kind = "output"
    names = tuple(value.name or "" for value in buffer.values)
    return PlannedBuffer(buffer.name, offset, size, (buffer.first, buffer.last), names, kind)


def _weights(graph: ir.Graph, memory: Memory) -> Sequence[PlannedWeight]:
    from ....passes.planning.order import reads

    spans: dict[ir.Value, list[int]] = {}
    for index, node in enumerate(memory.nodes):
        for value in reads(node):
            if value in spans:
                spans[value][1] = index
            elif value.is_initializer() and value.const_value is not None:
                spans[value] = [index, index]
    last = max(0, len(memory.nodes) - 1)
    for value in graph.outputs:
        if value.is_initializer():
            spans.setdefault(value, [0, last])[1] = last
    return [
        PlannedWeight(value.name or "", value.const_value.nbytes, (first, end))  # type: ignore[union-attr]
        for value, (first, end) in spans.items()
    ]
