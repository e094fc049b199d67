"""`model.plan` and `model.weights`: a whole model for a device, which the runtime in C runs.

Everything is little-endian. `model.plan` has a head of 64 bytes: the magic `OPDV`; then as 32-bit numbers the
format (2), the numbers of values, nodes, inputs, outputs and pool entries, and the bytes of the text; then as
64-bit numbers the bytes of the arena and of the weights; then as 32-bit numbers the number of the graph's
nodes, that of memories after the first, and the position in the pool of their beginnings in the arena; and 4
further bytes. The parts follow in the order pool (signed 64-bit numbers), values, nodes, inputs and outputs
(32-bit indices of values), text. The first nodes are those of the graph; the nodes of sub-graphs follow.

A value has, as 32-bit numbers, ONNX's number of the element type, the rank, the position of its sizes in the
pool, and where it is (0 omitted, 1 arena, 2 weights); then as 64-bit numbers its offset there and its bytes.
Value 0 stands for omitted operands. A node has, as 32-bit numbers, the position of its operator in the text;
the number of inputs and the position of their values in the pool, likewise of outputs and of attributes. An
attribute takes four numbers of the pool: the positions of its name and of its text, the number of its items,
and their position. Integers are stored as they are, floats as the bits of float64; of several texts, all are
the same. A sub-graph is an attribute of numbers: its first node and their count, the counts of its inputs and
outputs, and the values of both.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from ....passes.planning import align
from ....registration import PlanError
from .device_nodes import DeviceNode, device_node
from .device_operators import check_nodes
from .records import WORKSPACE, PlanFacts, PlannedGraph
from .value_bytes import Dimensions, bytes_of

MAGIC = b"OPDV"
FORMAT = 2
_HEAD = struct.Struct("<4s7I2Q3I4x")
_VALUE = struct.Struct("<4I2Q")
_NODE = struct.Struct("<7I")
_OMITTED, _ARENA, _WEIGHTS = range(3)
_LOWEST_OPSET = 13
"""From here on the operators of the runtime have one meaning: Softmax reduces one axis, for example."""
_STATE_COUNTS = {"LSTM": 3, "GRU": 2, "RNN": 2}
"""Outputs that hold states during the run; another one has the gates of a few steps."""
_STEPS = 32
"""How many steps of a recurrent layer multiply their inputs at once."""


def device_form(plan: PlanFacts) -> tuple[bytes, bytes]:
    """The contents of `model.plan` and `model.weights`.

    Raises:
        PlanError: the plan has no model or formulas instead of sizes; the opset is below 13; the runtime
            lacks operators of the model; or a sub-graph has sizes that are not known.
    """
    if plan.model is None or plan.peak is None:
        raise PlanError("a device needs the model and the sizes of all dimensions")
    opset = plan.model.graph.opset_imports.get("", 0)
    if opset < _LOWEST_OPSET:
        raise PlanError(
            f"a device needs opset {_LOWEST_OPSET} or higher, not {opset}: convert the model first"
        )
    return _Writer(plan, plan.model.graph, opset).write()


class _Writer:
    """The parts of a plan for a device."""

    def __init__(self, plan: PlanFacts, graph: ir.Graph, opset: int):
        self._plan, self._graph, self._opset = plan, graph, opset
        # Without names, a size that is a formula is refused.
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
        self._copies: dict[ir.Value, int] = {}

    def write(self) -> tuple[bytes, bytes]:
        """Both files."""
        self._locate_buffers(self._graph, self._plan, 0)
        check_nodes(self._device_nodes(self._graph, self._plan))
        main_count = self._write_nodes(self._graph, self._plan, 0)
        inputs = [self._index(value) for value in self._graph.inputs if not value.is_initializer()]
        outputs = [self._index(value) for value in self._graph.outputs]
        memories = self._plan.memories[1:]
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
        """Refuse a plan whose last memory has no room for what the runtime needs beside the plan."""
        if self._plan.memories:
            last = self._plan.memories[-1]
            needed = self._arena - last.begin
            if last.size is not None and needed > last.size:
                raise PlanError(
                    f"memory '{last.name}' has {last.size} bytes, but the runtime needs {needed}, because it "
                    f"keeps states of recurrent layers and of loops there"
                )

    def _locate_buffers(self, graph: ir.Graph, planned: PlannedGraph, base: int) -> None:
        """Set where the values of a graph and of its sub-graphs are, relative to the arena."""
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
        """The nodes that compute something, with their positions: no views, and no constants."""
        for index, (node, planned_node) in enumerate(zip(graph, planned.nodes, strict=True)):
            source = node.inputs[0] if planned_node.view else None
            if source is not None and node.outputs[0] not in self._locations:
                # The result of a view of a constant is where the constant is.
                self._locations[node.outputs[0]] = self._locate(source)
            if not planned_node.view and (node.op_type != "Constant" or node.domain not in ("", "ai.onnx")):
                yield node, index

    def _device_nodes(self, graph: ir.Graph, planned: PlannedGraph) -> Iterator[DeviceNode]:
        for node, index in self._computing_nodes(graph, planned):
            yield device_node(node, self._opset)
            for body in planned.bodies:
                if body.node == index:
                    yield from self._device_nodes(node.attributes[body.attribute].as_graph(), body)

    def _write_nodes(self, graph: ir.Graph, planned: PlannedGraph, first: int) -> int:
        """Write the nodes of a graph from position `first` on, and those of its sub-graphs behind them."""
        computed = list(self._computing_nodes(graph, planned))
        copies = self._copies_of_inputs(graph)
        self._nodes += [b""] * (first + len(computed) - len(self._nodes)) + copies
        count = len(computed) + len(copies)
        for position, (node, index) in enumerate(computed, first):
            sub_graphs = []
            for body in planned.bodies:
                if body.node == index:
                    block, start = node.attributes[body.attribute].as_graph(), len(self._nodes)
                    inner_count = self._write_nodes(block, body, start)
                    values = [self._index(value) for value in block.inputs]
                    values += [self._copies.get(value) or self._index(value) for value in block.outputs]
                    numbers = [start, inner_count, len(block.inputs), len(block.outputs), *values]
                    name = self._text_of(body.attribute)
                    sub_graphs.append([name, 0, len(numbers), self._add_numbers(numbers)])
            self._nodes[position] = self._node(device_node(node, self._opset), sub_graphs)
        return count

    def _node(self, node: DeviceNode, sub_graphs: Sequence[Sequence[int]]) -> bytes:
        inputs = [0 if value is None else self._index(value) for value in node.inputs]
        outputs = [self._index(value) if value.name else 0 for value in node.outputs]
        if node.op_type in _STATE_COUNTS:
            outputs += [0] * (_STATE_COUNTS[node.op_type] - len(outputs))
            outputs = [index or self._state(node, number) for number, index in enumerate(outputs)]
            outputs.append(self._gates(node))
        attributes = [
            self._attribute(attribute)
            for attribute in node.attributes.values()
            if not attribute.is_ref() and attribute.type != ir.AttributeType.GRAPH
        ]
        flat = [number for attribute in (*attributes, *sub_graphs) for number in attribute]
        counts = len(inputs), self._add_numbers(inputs), len(outputs), self._add_numbers(outputs)
        return _NODE.pack(self._text_of(node.op_type), *counts, len(flat) // 4, self._add_numbers(flat))

    def _state(self, node: DeviceNode, number: int) -> int:
        """An omitted output of a recurrent layer, which keeps its state there."""
        source, recurrent = node.inputs[0], node.inputs[2]
        assert source is not None
        assert recurrent is not None
        time, batch, _ = self._sizes(source)
        directions, _, hidden = self._sizes(recurrent)
        return self._scratch(ir.DataType.FLOAT, [*([time] if number == 0 else []), directions, batch, hidden])

    def _gates(self, node: DeviceNode) -> int:
        """Memory for the gates of a recurrent layer: of some steps from inputs, and of one from the state."""
        source, weight = node.inputs[:2]
        assert source is not None
        assert weight is not None
        time, batch, _ = self._sizes(source)
        return self._scratch(ir.DataType.FLOAT, [min(time, _STEPS) + 1, batch, self._sizes(weight)[1]])

    def _scratch(self, dtype: ir.DataType, shape: Sequence[int]) -> int:
        """A value in memory above the planned arena."""
        size, offset = math.prod(shape) * dtype.bitwidth // 8, self._arena
        self._arena += align(size, self._plan.alignment)
        fields = int(dtype), len(shape), self._add_numbers(shape), _ARENA, offset, size
        self._values.append(_VALUE.pack(*fields))
        return len(self._values) - 1

    def _copies_of_inputs(self, graph: ir.Graph) -> list[bytes]:
        """Copies of results of a body that are its inputs, which the next iteration overwrites one by one."""
        inputs = {self._locations[value]: index for index, value in enumerate(graph.inputs)}
        copies = []
        for number, value in enumerate(graph.outputs):
            # Result n is the next value of input n + 1.
            if inputs.get(self._locate(value), number + 1) == number + 1 or value in self._copies:
                continue
            shape = self._sizes(value)
            self._copies[value] = self._scratch(value.dtype or ir.DataType.UNDEFINED, shape)
            source, target = self._add_numbers([self._index(value)]), self._add_numbers([self._copies[value]])
            copies.append(_NODE.pack(self._text_of("Identity"), 1, source, 1, target, 0, 0))
        return copies

    def _index(self, value: ir.Value) -> int:
        """The index of a value, which is added at its first use."""
        if value not in self._indices:
            size, sizes = bytes_of(value, self._dimensions), self._sizes(value)
            location, offset = self._locate(value)
            dtype = int(value.dtype or ir.DataType.UNDEFINED)
            self._values.append(
                _VALUE.pack(dtype, len(sizes), self._add_numbers(sizes), location, offset, size)
            )
            self._indices[value] = len(self._values) - 1
        return self._indices[value]

    def _locate(self, value: ir.Value) -> tuple[int, int]:
        """Where a value is: in the arena or the weights, and its offset."""
        if value not in self._locations:
            tensor = get_const_tensor(value)
            if tensor is None:
                raise PlanError(f"value '{value.name}' has neither a buffer nor contents")
            self._weights += b"\0" * (-len(self._weights) % self._plan.alignment)
            self._locations[value] = _WEIGHTS, len(self._weights)
            self._weights += tensor.tobytes()
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

    def _attribute(self, attribute: ir.Attr) -> list[int]:
        name = self._text_of(attribute.name)
        if attribute.type == ir.AttributeType.STRING:
            return [name, self._text_of(attribute.as_string()), 0, 0]
        if attribute.type == ir.AttributeType.STRINGS:
            # The runtime takes only lists of one and the same text.
            return [name, self._text_of(attribute.as_strings()[0]), 0, 0]
        if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS):
            items: Sequence[int] = (
                attribute.as_ints() if attribute.type == ir.AttributeType.INTS else [attribute.as_int()]
            )
        elif attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
            floats = (
                attribute.as_floats() if attribute.type == ir.AttributeType.FLOATS else [attribute.as_float()]
            )
            items = struct.unpack(f"<{len(floats)}q", struct.pack(f"<{len(floats)}d", *floats))
        elif attribute.type == ir.AttributeType.TENSOR:
            array = attribute.as_tensor().numpy().reshape(-1)
            values = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
            items = values.view(np.int64).tolist()
        else:
            raise PlanError(f"attribute '{attribute.name}' has type {attribute.type.name}")
        return [name, 0, len(items), self._add_numbers(items)]

    def _add_numbers(self, numbers: Sequence[int]) -> int:
        position = len(self._pool)
        self._pool += numbers
        return position

    def _text_of(self, text: str) -> int:
        if text not in self._text_positions:
            self._text_positions[text] = len(self._text)
            self._text += text.encode() + b"\0"
        return self._text_positions[text]
