"""Splits nodes into parts that run one after the other, so that a plan needs less memory.

A convolution can compute some of its channels, and a matrix product some of its rows. Values between nodes
that run on parts have only the size of a part. If the parts of a value are contiguous, they are stored in the
memory of the whole, so that a Slice or Concat computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .....passes.onnx_graph.inplace.annotations import annotate_inplace
from .....passes.planning.node_work import work_of
from .....passes.planning.parts import constant_integers, sizes_of
from .....passes.planning.recomputation import is_lower
from .....passes.planning.splittable_regions import RegionSearch, Split
from .....registration import MAY_OVERWRITE, PLAN_PHASE, PlanError
from .....registration.arguments import every_node
from ....lowering.conversion.prepared_models.preparation import copy_of
from .live_memory import MemoryModel

_MOST_ROUNDS = 60
_MOST_TRIALS = 4
"""The most splits to try for one node."""
_RESHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def split_nodes(
    model: ir.Model, memory_model: MemoryModel, consumed: Mapping[str, str] | None, most_work: float | None
) -> tuple[ir.Model, float]:
    """Split nodes of a model if that lowers the peak of its plan.

    The parts of a node compute the same elements from the same operands. Nodes are split only if all sizes
    are numbers, and as long as the peak falls; a training graph keeps its phases.

    Args:
        model: the model, in execution order, with in-place annotations.
        consumed: by name of an input that may be overwritten, the output that is its next value; None if no
            node overwrites an operand.
        most_work: the most operations that overlapping parts may add, as a share of the model's operations;
            None if parts may not overlap.

    Returns:
        A changed copy, or the model itself; and the added operations, as a share of the model's.
    """
    work = sum(map(work_of, model.graph))
    added, best_added = 0, 0
    most_nodes = 3 * len(model.graph) + 200
    preferences: dict[str, str] = {}
    best, best_peak = model, math.inf
    try:
        layout = memory_model.lay_out(model.graph)
    except PlanError:
        return model, 0.0
    for _ in range(_MOST_ROUNDS):
        profile = layout.profile
        peak = max(profile)
        # Several nodes may reach the same peak, which falls only when all of them are split.
        if peak < best_peak:
            best, best_peak, best_added = model, peak, added
        search = RegionSearch(
            model.graph,
            layout.memory,
            layout.rules,
            profile,
            overwrites=consumed is not None,
            most_work=None if most_work is None else int(most_work * work) - added,
        )
        for split in search.splits(profile.index(peak))[:_MOST_TRIALS]:
            if len(model.graph) + split.copies > most_nodes:
                continue
            changed, chosen = _Rewriter(copy_of(model), search, split).rewrite()
            chosen = {**preferences, **chosen}
            if consumed is not None:
                annotate_inplace(changed, consumed)
                for node in changed.graph:
                    if (annotation := chosen.get(node.name or "")) is not None:
                        node.metadata_props[MAY_OVERWRITE] = annotation
            changed_layout = memory_model.lay_out(changed.graph)
            # A split must not move the next value of a state out of the state's buffer.
            keeps_states = not memory_model.next_values or (
                memory_model.states_in_place(changed_layout) >= memory_model.states_in_place(layout)
            )
            if keeps_states and is_lower(changed_layout.profile, profile):
                model, layout, preferences = changed, changed_layout, chosen
                added += split.work
                break
        else:
            break
    return best, best_added / max(work, 1)


class _Rewriter:
    """Replaces the nodes of a region by their parts."""

    def __init__(self, model: ir.Model, search: RegionSearch, split: Split):
        self._model, self._graph, self._search, self._split = model, model.graph, search, split
        self._nodes = list(model.graph)
        self._position_of = {node: index for index, node in enumerate(self._nodes)}
        self._positions = sorted(split.region.needs)
        self._end = max(self._positions)
        self._names = {value.name for node in every_node(model.graph) for value in node.outputs}
        self._names |= {value.name for value in (*model.graph.inputs, *model.graph.initializers.values())}
        self._pieces: dict[tuple[ir.Value, int, int, int], ir.Value] = {}
        self._new_nodes: list[ir.Node] = []
        self._preferences: dict[str, str] = {}
        self._phase = self._nodes[self._positions[0]].metadata_props.get(PLAN_PHASE)

    def rewrite(self) -> tuple[ir.Model, dict[str, str]]:
        """Return the changed model, and the in-place annotations of the new nodes by name."""
        region = set(self._positions)
        start = self._positions[0]
        hoisted = [self._nodes[i] for i in range(start, self._end + 1) if i not in region]
        parts = [self._copy_part(number) for number in range(self._split.count)]
        results: dict[ir.Value, ir.Value] = {}
        for position in self._positions:
            value = self._nodes[position].outputs[0]
            readers = (self._position_of[node] in region for node in value.consumers())
            if value.is_graph_output() or not all(readers):
                results[value] = self._join(position, [part[value] for part in parts])
        order = [*self._nodes[:start], *hoisted, *self._new_nodes, *self._nodes[self._end + 1 :]]
        self._replace(results)
        for node in self._nodes:
            self._graph.remove(node)
        self._graph.extend(order)
        self._remove_unused()
        return self._model, self._preferences

    def _replace(self, results: Mapping[ir.Value, ir.Value]) -> None:
        """Replace the results of the region by the joined results, which take over their names."""
        for value, whole in results.items():
            name, value.name = value.name, self._unused_name(f"{value.name}/whole")
            whole.name = name
            inside = {self._nodes[position] for position in self._positions}
            for node, index in list(value.uses()):
                if node not in inside:
                    node.replace_input_with(index, whole)
            for index, output in enumerate(self._graph.outputs):
                if output is value:
                    self._graph.outputs[index] = whole

    def _copy_part(self, number: int) -> dict[ir.Value, ir.Value]:
        """Add the nodes of part `number`; return, by result of the region, the part's contribution to it."""
        results: dict[ir.Value, ir.Value] = {}
        shares: dict[ir.Value, ir.Value] = {}
        for position in self._positions:
            node, needs = self._nodes[position], self._split.region.needs[position]
            inputs: list[ir.Value | None] = []
            for value, axis in zip(node.inputs, needs.axes, strict=True):
                if value is None or (axis is None and value not in results):
                    inputs.append(value)
                    continue
                assert axis is not None
                needed = self._split.ranges.needed[position, len(inputs)][number]
                if value in results:
                    inputs.append(self._cut_part(value, results[value], needed, number))
                else:
                    inputs.append(self._operand_piece(value, axis, number, needed))
            [value] = node.outputs
            results[value] = self._copy_node(node, inputs, position, number)
        for position in self._positions:
            [value] = self._nodes[position].outputs
            contributed = self._split.ranges.shares.get(self._search.value_at(position))
            if contributed is not None:
                shares[value] = self._cut_part(value, results[value], contributed[number], number)
        return shares

    def _copy_node(
        self, node: ir.Node, inputs: list[ir.Value | None], position: int, number: int
    ) -> ir.Value:
        """Add part `number` of a node, and return its result."""
        [value] = node.outputs
        axis = self._split.region.axes[self._search.value_at(position)]
        begin, end = self._part_range(position, number)
        shape = [end - begin if index == axis else size for index, size in enumerate(sizes_of(value) or ())]
        attributes = dict(node.attributes)
        op_type = node.op_type
        if op_type in _RESHAPING:
            op_type, attributes = "Reshape", {}
            inputs = [inputs[0], self._constant(shape, f"{value.name}/shape")]
        elif op_type == "Expand":
            inputs[1] = self._constant(shape, f"{value.name}/shape")
        elif op_type == "Conv" and self._split.region.needs[position].units:
            groups = node.attributes.get_int("group", 1)
            share = groups * (end - begin) // (sizes_of(value) or [])[axis]
            attributes["group"] = ir.AttrInt64("group", share)
        window = self._split.region.needs[position].window
        if window is not None and not window.is_transposed:
            before, after = window.padding((begin, end), (sizes_of(node.inputs[0]) or [])[axis])
            pads = (
                list(constant_integers(node.inputs[1]) or [])
                if op_type == "Pad"
                else list(node.attributes.get_ints("pads", [0] * 2 * (len(shape) - axis)))
            )
            index = axis if op_type == "Pad" else 0
            pads[index], pads[index + len(pads) // 2] = before, after
            if op_type == "Pad":
                inputs[1] = self._constant(pads, f"{value.name}/pads")
            else:
                attributes["pads"] = ir.AttrInt64s("pads", pads)
        copy = self._add_node(op_type, inputs, list(attributes.values()), value, shape, number, node)
        overwritten = self._search.overwritten(self._split.region, position, self._end)
        if overwritten is not None:
            copied = copy.producer()
            assert copied is not None
            self._preferences[copied.name or ""] = f"0:{overwritten}"
        return copy

    def _add_node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        whole: ir.Value,
        shape: Sequence[int],
        number: int | None,
        source: ir.Node | None = None,
    ) -> ir.Value:
        suffix = "whole" if number is None else f"part_{number}"
        name = self._unused_name(f"{whole.name}/{suffix}")
        node = ir.Node("", op_type, inputs, attributes, name=name, num_outputs=1)
        if source is not None:
            node.metadata_props.update(source.metadata_props)
        if self._phase is not None:
            node.metadata_props[PLAN_PHASE] = self._phase
        [value] = node.outputs
        value.name, value.shape, value.type = name, ir.Shape(shape), whole.type
        self._new_nodes.append(node)
        return value

    def _cut_part(self, value: ir.Value, part: ir.Value, elements: tuple[int, int], number: int) -> ir.Value:
        """Return the elements `[begin, end)` of a result of the region, cut from part `number`."""
        producer = value.producer()
        assert producer is not None
        position = self._position_of[producer]
        first, _ = self._part_range(position, number)
        axis = self._split.region.axes[self._search.value_at(position)]
        return self._cut(part, axis, elements[0] - first, elements[1] - first, number)

    def _part_range(self, position: int, number: int) -> tuple[int, int]:
        """Return the range of elements of its result that part `number` of a node computes."""
        return self._split.ranges.computed[self._search.value_at(position)][number]

    def _operand_piece(self, value: ir.Value, axis: int, number: int, needed: tuple[int, int]) -> ir.Value:
        """Return a range of an operand from outside the region: of a weight, or by a Slice."""
        key = value, axis, *needed
        if key not in self._pieces:
            is_weight = value.is_initializer() and value not in self._graph.inputs
            cut = self._weight_piece if is_weight else self._cut
            self._pieces[key] = cut(value, axis, *needed, number)
        return self._pieces[key]

    def _cut(self, value: ir.Value, axis: int, begin: int, end: int, number: int) -> ir.Value:
        """Add a Slice of a value; return the value itself if the range is all of it."""
        shape = list(sizes_of(value) or ())
        if (begin, end) == (0, shape[axis]):
            return value
        shape[axis] = end - begin
        limits = [
            self._constant([limit], f"{value.name}/{name}")
            for name, limit in (("begin", begin), ("end", end), ("axis", axis))
        ]
        return self._add_node("Slice", [value, *limits], [], value, shape, number)

    def _weight_piece(self, value: ir.Value, axis: int, begin: int, end: int, number: int) -> ir.Value:
        whole = value.const_value
        assert whole is not None
        name = self._unused_name(f"{value.name}/part_{number}")
        shape = [end - begin if a == axis else size for a, size in enumerate(sizes_of(value) or ())]

        def cut() -> ir.TensorProtocol:
            ranges = [slice(begin, end) if a == axis else slice(None) for a in range(len(shape))]
            return ir.Tensor(np.ascontiguousarray(whole.numpy()[tuple(ranges)]), dtype=whole.dtype, name=name)

        # Lazy, because the weight may be in a file.
        tensor = ir.LazyTensor(cut, dtype=whole.dtype, shape=ir.Shape(shape), name=name)
        return self._add_initializer(tensor, name)

    def _constant(self, numbers: Sequence[int], name: str) -> ir.Value:
        name = self._unused_name(name)
        return self._add_initializer(ir.tensor(np.array(numbers, np.int64), name=name), name)

    def _add_initializer(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self._graph.register_initializer(value)
        return value

    def _join(self, position: int, parts: Sequence[ir.Value]) -> ir.Value:
        """Add a Concat of the parts of a node's result."""
        [value] = self._nodes[position].outputs
        axis = self._split.region.axes[self._search.value_at(position)]
        return self._add_node(
            "Concat", parts, [ir.AttrInt64("axis", axis)], value, sizes_of(value) or [], None
        )

    def _unused_name(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        return candidate

    def _remove_unused(self) -> None:
        """Remove weights that only the replaced nodes read."""
        for position in self._positions:
            node = self._nodes[position]
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and value not in self._graph.inputs:
                del self._graph.initializers[name]
