"""Writes `model.plan` and `model.weights`: a whole model for a device, which the runtime in C runs.

Everything is little-endian. `model.plan` has a head of 64 bytes: the magic `OPDV`; then as 32-bit numbers the
format (4), the numbers of values, nodes, inputs, outputs and pool entries, and the bytes of the text; then as
64-bit numbers the bytes of the arena and of the weights; then as 32-bit numbers the number of the graph's
nodes, that of memories after the first, and the position in the pool of their beginnings in the arena; and 4
further bytes. The parts follow in the order pool (signed 64-bit numbers), values, nodes, inputs and outputs
(32-bit indices of values), text. The first nodes are those of the graph; the nodes of sub-graphs follow.

A value has, as 32-bit numbers, ONNX's number of the element type, the rank, the position of its sizes in the
pool, and where it is (0 omitted, 1 arena, 2 weights); then as 64-bit numbers its offset there and its bytes.
Value 0 stands for omitted operands. A node has, as 32-bit numbers, the position of its operator in the text;
the number of inputs and the position of their values in the pool, likewise of outputs and of numbers. The
operators are those of the runtime, to which one of ONNX may take several; each kernel says what its numbers
are. Real numbers are stored as the bits of float64. A sub-graph is numbers of its node: its first node and
their count, the counts of its inputs and outputs, and the values of both.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from .....passes.planning import align
from .....registration import PlanError
from ..records import WORKSPACE, PlanFacts, PlannedBody, PlannedGraph
from ..value_bytes import Dimensions, bytes_of
from .device_nodes import DeviceNode, OnnxNode, Operand, Scratch, copy, walk_numbers
from .device_operators import FORMS, check_nodes

MAGIC = b"OPDV"
FORMAT = 4
_HEAD = struct.Struct("<4s7I2Q3I4x")
_VALUE = struct.Struct("<4I2Q")
_NODE = struct.Struct("<7I")
_OMITTED, _ARENA, _WEIGHTS = range(3)
_LOWEST_OPSET = 13
"""The lowest supported opset; before it operators have other meanings: Softmax flattens its input."""


def plan_file_contents(plan: PlanFacts) -> tuple[bytes, bytes]:
    """Return the contents of `model.plan` and `model.weights`.

    Raises:
        PlanError: the plan has no model, or formulas instead of sizes; the opset is below 13; the runtime
            lacks operators of the model; or the sizes of a sub-graph are unknown.
    """
    if plan.model is None:
        raise PlanError("a device needs a plan with its model")
    if plan.peak is None:
        names = {str(size) for value in plan.model.graph.inputs for size in value.shape or ()}
        listed = ", ".join(sorted(name for name in names if not name.isdecimal())) or "data-dependent sizes"
        raise PlanError(
            f"a device needs the sizes of all dimensions, but the model has {listed}: set them, such "
            "as --dim batch=1 or sizes={'batch': 1}"
        )
    opset = plan.model.graph.opset_imports.get("", 0)
    if opset < _LOWEST_OPSET:
        raise PlanError(
            f"a device needs opset {_LOWEST_OPSET} or higher, not {opset}: convert the model first"
        )
    return _Writer(plan, plan.model.graph, opset).write()


class _Writer:
    """Collects the parts of `model.plan` and `model.weights`."""

    def __init__(self, plan: PlanFacts, graph: ir.Graph, opset: int):
        self._plan, self._graph, self._opset = plan, graph, opset
        # The empty set of names makes a size that is a formula an error.
        self._dimensions = Dimensions(plan.dimensions, frozenset())
        self._pool: list[int] = []
        self._text = bytearray(b"\0")
        self._text_positions = {"": 0}
        self._values = [_VALUE.pack(0, 0, 0, _OMITTED, 0, 0)]
        self._indices: dict[ir.Value, int] = {}
        self._weights = bytearray()
        self._locations: dict[ir.Value, tuple[int, int]] = {}
        self._arena = plan.peak or 0
        self._nodes: list[bytes] = []
        self._constants: dict[tuple[str, bytes], int] = {}
        self._scratch: dict[Scratch, int] = {}
        # The scratch values of all nodes of the model share the same memory at the end of the arena.
        self._shared_offsets: dict[Scratch, int] = {}
        self._shared_size = 0

    def write(self) -> tuple[bytes, bytes]:
        """Return the contents of both files."""
        self._locate_buffers(self._graph, self._plan, 0)
        check_nodes(self._onnx_nodes(self._graph, self._plan), self._opset)
        main_count = len(self._write_nodes(self._graph, self._plan))
        inputs = [self._index(value) for value in self._graph.inputs if not value.is_initializer()]
        outputs = [self._index(value) for value in self._graph.outputs]
        memories = self._plan.memories[1:]
        for index in (self._scratch[scratch] for scratch in self._shared_offsets):
            *fields, offset, size = _VALUE.unpack(self._values[index])
            self._values[index] = _VALUE.pack(*fields, self._arena + offset, size)
        self._arena += self._shared_size
        self._check_last_memory()
        begins = self._add_numbers([memory.begin for memory in memories])
        head = _HEAD.pack(
            MAGIC,
            FORMAT,
            len(self._values),
            len(self._nodes),
            len(inputs),
            len(outputs),
            len(self._pool),
            len(self._text),
            self._arena,
            len(self._weights),
            main_count,
            len(memories),
            begins,
        )
        ends = struct.pack(f"<{len(inputs) + len(outputs)}I", *inputs, *outputs)
        pool = struct.pack(f"<{len(self._pool)}q", *self._pool)
        return b"".join([head, pool, *self._values, *self._nodes, ends, self._text]), bytes(self._weights)

    def _check_last_memory(self) -> None:
        """Refuse a plan whose last memory has no room for the runtime's memory after the planned buffers."""
        if self._plan.memories:
            last = self._plan.memories[-1]
            needed = self._arena - last.begin
            if last.size is not None and needed > last.size:
                raise PlanError(
                    f"memory '{last.name}' has {last.size} bytes, but the runtime needs {needed}, because it "
                    f"keeps states of recurrent layers and of loops there"
                )

    def _locate_buffers(self, graph: ir.Graph, planned: PlannedGraph, base: int) -> None:
        """Set the arena offsets of the values of a graph and its sub-graphs; `base` is the graph's offset."""
        offsets = {name: base + (buffer.offset or 0) for buffer in planned.buffers for name in buffer.values}
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            if value.name in offsets:
                self._locations[value] = _ARENA, offsets[value.name]
        workspaces = {
            buffer.lifetime[0]: base + (buffer.offset or 0)
            for buffer in planned.buffers
            if buffer.kind == WORKSPACE
        }
        nodes = list(graph)
        for body in planned.bodies:
            if body.unplanned:
                raise PlanError(
                    f"a sub-graph of node '{nodes[body.node].name}' has no plan: {body.unplanned}"
                )
            block = nodes[body.node].attributes[body.attribute].as_graph()
            for value in block.inputs:
                if not any(value.name in buffer.values for buffer in body.buffers):
                    self._locations[value] = _ARENA, self._arena
                    size = bytes_of(value, self._dimensions)
                    assert isinstance(size, int)
                    self._arena += align(size, self._plan.alignment)
            self._locate_buffers(block, body, workspaces.get(body.node, 0))

    def _computing_nodes(self, graph: ir.Graph, planned: PlannedGraph) -> Iterator[tuple[ir.Node, int]]:
        """Yield the nodes that compute something (no views or constants), with their positions."""
        for index, (node, planned_node) in enumerate(zip(graph, planned.nodes, strict=True)):
            source = node.inputs[0] if planned_node.view else None
            if source is not None and node.outputs[0] not in self._locations:
                # A view of a constant has the location of the constant.
                self._locations[node.outputs[0]] = self._locate(source)
            if not planned_node.view and (node.op_type != "Constant" or node.domain not in ("", "ai.onnx")):
                yield node, index

    def _onnx_nodes(self, graph: ir.Graph, planned: PlannedGraph) -> Iterator[ir.Node]:
        """Yield the nodes that compute something, including those of sub-graphs."""
        for node, index in self._computing_nodes(graph, planned):
            yield node
            for body in planned.bodies:
                if body.node == index:
                    yield from self._onnx_nodes(node.attributes[body.attribute].as_graph(), body)

    def _write_nodes(self, graph: ir.Graph, planned: PlannedGraph, nodes: Sequence[DeviceNode] = ()) -> range:
        """Write the nodes of a graph, then `nodes`, then the nodes of sub-graphs.

        Returns:
            The positions of the nodes of the graph and of `nodes`.
        """
        ordered: list[tuple[DeviceNode, ir.Node | None, Sequence[PlannedBody]]] = []
        for node, index in self._computing_nodes(graph, planned):
            bodies = [body for body in planned.bodies if body.node == index]
            if not bodies:
                onnx_node = OnnxNode(node, self._opset, self._sizes, self._share)
                items = list(FORMS[node.op_type](onnx_node))
                self._locate_scratch(items)
                ordered += [(item, None, ()) for item in items]
            elif node.op_type == "If":
                ordered.append((DeviceNode("If", node.inputs, ()), node, bodies))
            else:
                before, loop, after = self._loop(node)
                ordered += [(item, None, ()) for item in before]
                ordered.append((loop, node, bodies))
                ordered += [(item, None, ()) for item in after]
        ordered += [(item, None, ()) for item in nodes]
        first = len(self._nodes)
        self._nodes += [b""] * len(ordered)
        for position, (item, owner, planned_bodies) in enumerate(ordered, first):
            numbers: list[int] = []
            # The runtime expects "else_branch" before "then_branch".
            for body in sorted(planned_bodies, key=lambda body: body.attribute):
                assert owner is not None
                block = owner.attributes[body.attribute].as_graph()
                if owner.op_type == "If":
                    pairs = zip(block.outputs, owner.outputs, strict=True)
                    copies = [
                        copied for inner, outer in pairs if outer.name for copied in self._copy(inner, outer)
                    ]
                else:
                    copies = self._next_inputs(owner, block, item)
                positions = self._write_nodes(block, body, copies)
                numbers += [positions.start, len(positions)]
            self._nodes[position] = self._node(item, [*numbers, *item.numbers])
        return range(first, first + len(ordered))

    def _locate_scratch(self, nodes: Sequence[DeviceNode]) -> None:
        """Set the offsets in the shared memory of the scratch values of one node of the model."""
        size = 0
        for operand in (operand for node in nodes for operand in (*node.inputs, *node.outputs)):
            if isinstance(operand, Scratch) and operand not in self._shared_offsets:
                self._shared_offsets[operand] = size
                size += align(operand.size, self._plan.alignment)
        self._shared_size = max(self._shared_size, size)

    def _copy(self, source: Operand, result: ir.Value | Scratch) -> Iterator[DeviceNode]:
        shape = self._sizes(result) if isinstance(result, ir.Value) else result.shape
        return copy(source, result, [math.prod(shape)], [1])

    def _loop(self, node: ir.Node) -> tuple[list[DeviceNode], DeviceNode, list[DeviceNode]]:
        """Return copies of operands to the body's inputs, the Loop, and copies of these to its results."""
        block = node.attributes["body"].as_graph()
        carried = list(block.inputs)[2:]
        before = [
            item
            for inner, outer in zip(carried, node.inputs[2:], strict=True)
            for item in self._copy(outer, inner)
        ]
        after = [
            item
            for inner, outer in zip(carried, node.outputs, strict=False)
            if outer.name
            for item in self._copy(inner, outer)
        ]
        counts = [self._sizes(value)[0] for value in node.outputs[len(carried) :] if value.name]
        condition: ir.Value | Scratch = block.outputs[0]
        if self._locate(block.outputs[0]) in map(self._locate, carried):
            # The copy to the next iteration's input would overwrite the condition.
            condition = Scratch(ir.DataType.BOOL, [])
        inputs = [*node.inputs[:2], condition]
        return before, DeviceNode("Loop", inputs, block.inputs[:2], [*counts, -1][:1]), after

    def _next_inputs(self, node: ir.Node, block: ir.Graph, loop: DeviceNode) -> list[DeviceNode]:
        """Return copies of a body's results to its inputs, and to the rows of the stacked results."""
        counter, carried = block.inputs[0], list(block.inputs)[2:]
        results = list(block.outputs)[1 : 1 + len(carried)]
        inputs = {self._locate(value): value for value in carried}
        condition = loop.inputs[2]
        copies = list(self._copy(block.outputs[0], condition)) if isinstance(condition, Scratch) else []
        sources: list[ir.Value | Scratch] = []
        for result, target in zip(results, carried, strict=True):
            source: ir.Value | Scratch = result
            if inputs.get(self._locate(result), target) is not target:
                # The result is another input of the body, which is itself overwritten: copy it first.
                source = Scratch(result.dtype or ir.DataType.UNDEFINED, self._sizes(result))
                copies += self._copy(result, source)
            sources.append(source)
        for value, outer in zip(
            list(block.outputs)[1 + len(carried) :], node.outputs[len(carried) :], strict=True
        ):
            size = math.prod(self._sizes(value))
            if outer.name and size:
                walk = walk_numbers([], (0, []), (0, []), (0, []))
                numbers = [0, size, 1, self._sizes(outer)[0], size, *walk]
                copies.append(DeviceNode("Scatter", [counter, value], [outer], numbers))
        for source, target in zip(sources, carried, strict=True):
            copies += self._copy(source, target)
        return copies

    def _node(self, node: DeviceNode, numbers: Sequence[int]) -> bytes:
        inputs, outputs = (
            [self._operand(operand) for operand in operands] for operands in (node.inputs, node.outputs)
        )
        while inputs and not inputs[-1]:
            inputs.pop()
        counts = len(inputs), self._add_numbers(inputs), len(outputs), self._add_numbers(outputs)
        if node.op_type not in self._text_positions:
            self._text_positions[node.op_type] = len(self._text)
            self._text += node.op_type.encode() + b"\0"
        return _NODE.pack(
            self._text_positions[node.op_type], *counts, len(numbers), self._add_numbers(numbers)
        )

    def _operand(self, operand: Operand) -> int:
        """Return the index of an operand, which is added at its first use; 0 for an omitted one."""
        if operand is None:
            return 0
        if isinstance(operand, ir.Value):
            return self._index(operand)
        if isinstance(operand, Scratch):
            if operand not in self._scratch:
                offset = self._shared_offsets.get(operand)
                if offset is None:
                    offset = self._arena
                    self._arena += align(operand.size, self._plan.alignment)
                fields = operand.dtype, operand.shape, _ARENA, offset, operand.size
                self._scratch[operand] = self._add_value(*fields)
            return self._scratch[operand]
        key = f"{operand.dtype}{operand.shape}", operand.tobytes()
        if key not in self._constants:
            offset = self._add_weights(key[1])
            dtype = ir.DataType.from_numpy(operand.dtype)
            self._constants[key] = self._add_value(dtype, operand.shape, _WEIGHTS, offset, len(key[1]))
        return self._constants[key]

    def _add_value(
        self, dtype: ir.DataType | None, shape: Sequence[int], location: int, offset: int, size: int
    ) -> int:
        number = int(dtype or ir.DataType.UNDEFINED)
        fields = number, len(shape), self._add_numbers(shape), location, offset, size
        self._values.append(_VALUE.pack(*fields))
        return len(self._values) - 1

    def _add_weights(self, content: bytes) -> int:
        self._weights += b"\0" * (-len(self._weights) % self._plan.alignment)
        self._weights += content
        return len(self._weights) - len(content)

    def _share(self, operand: ir.Value, result: ir.Value) -> bool:
        return self._locate(operand) == self._locate(result)

    def _index(self, value: ir.Value) -> int:
        """Return the index of a value, which is added at its first use."""
        if value not in self._indices:
            size, sizes = bytes_of(value, self._dimensions), self._sizes(value)
            location, offset = self._locate(value)
            assert isinstance(size, int)
            self._indices[value] = self._add_value(value.dtype, sizes, location, offset, size)
        return self._indices[value]

    def _locate(self, value: ir.Value) -> tuple[int, int]:
        """Return `_ARENA` or `_WEIGHTS` for a value, and its offset there."""
        if value not in self._locations:
            tensor = get_const_tensor(value)
            if tensor is None:
                raise PlanError(f"value '{value.name}' has neither a buffer nor contents")
            self._locations[value] = _WEIGHTS, self._add_weights(tensor.tobytes())
        return self._locations[value]

    def _sizes(self, value: ir.Value) -> list[int]:
        if value.shape is None:
            raise PlanError(f"the rank of '{value.name}' is unknown")
        sizes = []
        for dim in value.shape:
            size = self._dimensions.size(value, dim)
            assert isinstance(size, int)
            sizes.append(size)
        return sizes

    def _add_numbers(self, numbers: Sequence[int]) -> int:
        position = len(self._pool)
        self._pool += numbers
        return position
