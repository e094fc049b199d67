"""`model.plan` and `model.weights`: a whole model for a device, which the runtime in C runs.

Everything is little-endian. `model.plan` has a head of 64 bytes: the magic `OPDV`; then as 32-bit numbers the
format (1), the numbers of values, nodes, inputs, outputs and pool entries, and the bytes of the text; then as
64-bit numbers the bytes of the arena and of the weights, and 16 bytes of zeros. The parts follow in the order
pool (signed 64-bit numbers), values, nodes, inputs and outputs (32-bit indices of values), text.

A value has, as 32-bit numbers, ONNX's number of the element type, the rank, the position of its sizes in the
pool, and where it is (0 omitted, 1 arena, 2 weights); then as 64-bit numbers its offset there and its bytes.
Value 0 stands for omitted operands. A node has, as 32-bit numbers, the position of its operator in the text;
the number of inputs and the position of their values in the pool, likewise of outputs and of attributes. An
attribute takes four numbers of the pool: the positions of its name and of its text, the number of its items,
and their position. Integers are stored as they are, floats as the bits of float64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from ....passes.planning import align
from ....registration import PlanError
from ....registration.arguments import blocks, qualified_name
from .records import PlanFacts
from .value_bytes import Dimensions, bytes_of

MAGIC = b"OPDV"
FORMAT = 1
_HEAD = struct.Struct("<4s7I2Q16x")
_VALUE = struct.Struct("<4I2Q")
_NODE = struct.Struct("<7I")
_OMITTED, _ARENA, _WEIGHTS = range(3)
_LOWEST_OPSET = 13
"""From here on the operators of the runtime have one meaning: Softmax reduces one axis, for example."""


def device_form(plan: PlanFacts) -> tuple[bytes, bytes]:
    """The contents of `model.plan` and `model.weights`.

    Raises:
        PlanError: the plan has no model or formulas instead of sizes; a node has a sub-graph; or the opset is
            below 13.
    """
    if plan.model is None or plan.peak is None:
        raise PlanError("a device needs the model and the sizes of all dimensions")
    opset = plan.model.graph.opset_imports.get("", 0)
    if opset < _LOWEST_OPSET:
        raise PlanError(
            f"a device needs opset {_LOWEST_OPSET} or higher, not {opset}: convert the model first"
        )
    return _Writer(plan, plan.model.graph).write()


class _Writer:
    """The parts of a plan for a device."""

    def __init__(self, plan: PlanFacts, graph: ir.Graph):
        self._plan, self._graph = plan, graph
        # Without names, a size that is a formula is refused.
        self._dimensions = Dimensions(plan.dimensions, frozenset())
        self._pool: list[int] = []
        self._text = bytearray(b"\0")
        self._text_positions = {"": 0}
        self._values = [_VALUE.pack(0, 0, 0, _OMITTED, 0, 0)]
        self._indices: dict[ir.Value, int] = {}
        self._weights = bytearray()
        self._locations: dict[ir.Value, tuple[int, int]] = {}
        self._offsets = {name: buffer.offset or 0 for buffer in plan.buffers for name in buffer.values}
        self._arena = plan.peak or 0

    def write(self) -> tuple[bytes, bytes]:
        """Both files."""
        nodes = []
        for node, planned in zip(self._graph, self._plan.nodes, strict=True):
            if blocks(node):
                raise PlanError(f"node '{node.name}' ({qualified_name(node)}) has a sub-graph")
            # Values of constants are in the file, and views compute nothing.
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                continue
            if planned.view:
                source, result = node.inputs[0], node.outputs[0]
                # The result of a view of a constant is where the constant is.
                if source is not None and result.name not in self._offsets:
                    self._locations[result] = self._locate(source)
                continue
            nodes.append(self._node(node))
        inputs = [self._index(value) for value in self._graph.inputs if not value.is_initializer()]
        outputs = [self._index(value) for value in self._graph.outputs]
        head = _HEAD.pack(
            MAGIC,
            FORMAT,
            len(self._values),
            len(nodes),
            len(inputs),
            len(outputs),
            len(self._pool),
            len(self._text),
            self._arena,
            len(self._weights),
        )
        ends = struct.pack(f"<{len(inputs) + len(outputs)}I", *inputs, *outputs)
        pool = struct.pack(f"<{len(self._pool)}q", *self._pool)
        return b"".join([head, pool, *self._values, *nodes, ends, self._text]), bytes(self._weights)

    def _node(self, node: ir.Node) -> bytes:
        if node.domain not in ("", "ai.onnx"):
            raise PlanError(f"node '{node.name}' ({qualified_name(node)}) is no operator of ONNX")
        inputs = [0 if value is None else self._index(value) for value in node.inputs]
        outputs = [self._index(value) if value.name else 0 for value in node.outputs]
        if node.op_type == "LSTM":
            outputs += [0] * (3 - len(outputs))
            outputs = [index or self._scratch(node, number) for number, index in enumerate(outputs)]
        attributes = [
            self._attribute(attribute) for attribute in node.attributes.values() if not attribute.is_ref()
        ]
        counts = len(inputs), self._add_numbers(inputs), len(outputs), self._add_numbers(outputs)
        flat = [number for attribute in attributes for number in attribute]
        return _NODE.pack(self._text_of(node.op_type), *counts, len(attributes), self._add_numbers(flat))

    def _scratch(self, node: ir.Node, number: int) -> int:
        """An omitted output of an LSTM, which keeps its state there: memory above the planned arena."""
        source, recurrent = node.inputs[0], node.inputs[2]
        assert source is not None
        assert recurrent is not None
        time, batch, _ = self._sizes(source)
        directions, _, hidden = self._sizes(recurrent)
        shape = [time, directions, batch, hidden] if number == 0 else [directions, batch, hidden]
        size = 4 * directions * batch * hidden * (time if number == 0 else 1)
        offset = self._arena
        self._arena += align(size, self._plan.alignment)
        fields = int(ir.DataType.FLOAT), len(shape), self._add_numbers(shape), _ARENA, offset, size
        self._values.append(_VALUE.pack(*fields))
        return len(self._values) - 1

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
        if value.name in self._offsets:
            return _ARENA, self._offsets[value.name]
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
        if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS):
            items: Sequence[int] = (
                attribute.as_ints() if attribute.type == ir.AttributeType.INTS else [attribute.as_int()]
            )
        elif attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
            floats = (
                attribute.as_floats() if attribute.type == ir.AttributeType.FLOATS else [attribute.as_float()]
            )
            items = struct.unpack(f"<{len(floats)}q", struct.pack(f"<{len(floats)}d", *floats))
        elif attribute.type == ir.AttributeType.STRINGS:
            items = [self._text_of(text) for text in attribute.as_strings()]
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
