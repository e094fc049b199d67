"""`Plan`: everything that can be decided before a device sees the model."""

from __future__ import annotations

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
from ....passes.planning.order import reads
from ....passes.target.inplace_annotations import annotate_inplace
from ....registration import UsageError
from ...files.reading import TRUSTED
from ...lowering.conversion.preparation import copy_of, source_of
from . import json_form
from .records import ALIGNMENT, PlanFacts, PlannedBuffer, PlannedNode, PlannedWeight
from .saving import save_plan
from .sizes import Dimensions, Size, bytes_of

FORWARD = "forward"


class Plan(PlanFacts):
    """A plan, with its files; `PlanFacts` has its attributes."""

    def to_json(self) -> str:
        """The JSON form; `plan.schema.json` is its schema."""
        return json_form.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan of a JSON form.

        Raises:
            PlanError: it does not have the documented form.
        """
        return cls(**json_form.from_json(text))

    def save(self, folder: Any, *, html: bool = False) -> None:
        """Write `plan.json`, its schema, a picture, the C forms, and the model with the plan as metadata.

        Args:
            html: write `plan.html`, the picture with details on a page, too.

        Raises:
            ModelFileError: the folder cannot be written.
        """
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
