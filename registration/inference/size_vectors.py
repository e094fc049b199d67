"""Reads the elements of a vector of sizes from the nodes that compute it.

Models compute the targets of Reshape and Expand from the sizes of other values:

    Concat(Gather(Shape(x), 0), [-1], Mul(Gather(Shape(x), 2), 4))      gives      [batch, -1, 4*width]

These operators are understood:

- Shape, with `start` and `end`, of a value whose shape is known;
- Concat; Gather and Slice by constants;
- Cast to an integer type, Identity, Reshape, Squeeze and Unsqueeze;
- Mul and Div of two single sizes;
- Where that replaces elements of -1, as torch.onnx writes the target of an Expand.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from ..size_algebra.dimensions import UNKNOWN, Dim, product, quotient
from .constant_integers import MAXIMUM_RANK, argument, integers

_MAXIMUM_DEPTH = 16
"""The longest chain of nodes that is followed from a vector to the sizes that it contains."""
_MAXIMUM_VALUES = 256
"""The most values that are read for one vector."""
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_LARGEST = 2**31 - 1
"""The largest number of INT32."""

Elements = list[Dim]


def elements(value: ir.Value | None) -> Elements | None:
    """The elements of a vector of sizes, or the only element of a number.

    An element is a number, a named dimension, or UNKNOWN. The result is None if not even the length is known.
    Numbers may be negative, as in the target of a Reshape.
    """
    return _SizeVectorReader().read_elements(value, _MAXIMUM_DEPTH)


class _SizeVectorReader:
    """Reads the values behind one vector. Each is read once, so the time is linear in the number of nodes."""

    def __init__(self) -> None:
        self._elements: dict[ir.Value, Elements | None] = {}

    def read_elements(self, value: ir.Value | None, depth: int) -> Elements | None:
        if value is None or (value.shape is not None and len(value.shape) > 1):
            return None
        if value not in self._elements:
            if depth == 0 or len(self._elements) == _MAXIMUM_VALUES:
                return _unknown(value)
            # Ends the recursion if a malformed graph has a cycle.
            self._elements[value] = None
            self._elements[value] = self._compute(value, depth)
        return self._elements[value]

    def _compute(self, value: ir.Value, depth: int) -> Elements | None:
        numbers = integers(value) if value.dtype in (None, *_INTEGERS) else None
        if numbers is not None:
            return [*numbers]
        node = value.producer()
        rule = _RULES.get(node.op_type) if node is not None and node.domain == "" else None
        vector = rule(self, node, depth - 1) if rule is not None and node is not None else None
        return _unknown(value) if vector is None else vector

    def _shape(self, node: ir.Node, depth: int) -> Elements | None:
        source = node.inputs[0]
        if source is None or source.shape is None:
            return None
        # Shape has `start` and `end` from opset 15 on.
        start, end = (node.attributes.get(name) for name in ("start", "end"))
        return [*source.shape][start.as_int() if start else None : end.as_int() if end else None]

    def _pass_through(self, node: ir.Node, depth: int) -> Elements | None:
        """All elements of the operand; a result without a known rank is a vector if it has one element."""
        vector = self.read_elements(node.inputs[0], depth)
        # A Reshape or Squeeze of one element may give a number instead of a vector; elements are the same.
        is_vector = node.outputs[0].shape is not None or node.op_type == "Identity"
        return vector if vector is not None and (is_vector or len(vector) == 1) else None

    def _cast(self, node: ir.Node, depth: int) -> Elements | None:
        to = node.attributes["to"].as_int()
        vector = self.read_elements(node.inputs[0], depth) if to in _INTEGERS else None
        if vector is None or to == ir.DataType.INT64:
            return vector
        # INT32 would wrap around, so the number is another one than that of INT64.
        return [UNKNOWN if isinstance(size, int) and abs(size) > _LARGEST else size for size in vector]

    def _concat(self, node: ir.Node, depth: int) -> Elements | None:
        vector: Elements = []
        for value in node.inputs:
            operand = self.read_elements(value, depth)
            if operand is None or len(vector) + len(operand) > MAXIMUM_RANK:
                return None
            vector += operand
        return vector

    def _gather(self, node: ir.Node, depth: int) -> Elements | None:
        data, indices = self.read_elements(node.inputs[0], depth), integers(node.inputs[1])
        # An index outside of the data is an error of the model, for which there are no elements.
        if data is None or indices is None or not all(-len(data) <= index < len(data) for index in indices):
            return None
        return [data[index] for index in indices]

    def _slice(self, node: ir.Node, depth: int) -> Elements | None:
        data = self.read_elements(node.inputs[0], depth)
        starts, ends = argument(node, "starts", 1), argument(node, "ends", 2)
        steps = integers(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
        if data is None or starts is None or ends is None or steps is None:
            return None
        if not len(starts) == len(ends) == len(steps) == 1 or steps[0] == 0:
            return None
        return data[starts[0] : ends[0] : steps[0]]

    def _multiply(self, node: ir.Node, depth: int) -> Elements | None:
        pair = self._pair(node, depth)
        return None if pair is None else [product(*pair)]

    def _divide(self, node: ir.Node, depth: int) -> Elements | None:
        pair = self._pair(node, depth)
        if pair is None:
            return None
        a, b = pair
        if isinstance(a, int) and isinstance(b, int):
            # ONNX's Div truncates and Python's // floors; they agree for numbers that are not negative.
            return [a // b] if a >= 0 and b > 0 else None
        return [quotient(a, b)]

    def _pair(self, node: ir.Node, depth: int) -> tuple[Dim, Dim] | None:
        """The two operands, if each is a single size."""
        a, b = (self.read_elements(value, depth) for value in node.inputs)
        return (a[0], b[0]) if a is not None and b is not None and len(a) == len(b) == 1 else None

    def _where(self, node: ir.Node, depth: int) -> Elements | None:
        """Where(Equal(sizes, [-1, ...]), others, sizes)."""
        condition, replacement, sizes = node.inputs
        equal = condition.producer() if condition is not None else None
        if equal is None or equal.domain != "" or equal.op_type != "Equal" or sizes not in equal.inputs:
            return None
        compared = self.read_elements(equal.inputs[1 - equal.inputs.index(sizes)], depth)
        replacements, vector = self.read_elements(replacement, depth), self.read_elements(sizes, depth)
        if compared is None or replacements is None or vector is None or set(compared) != {-1}:
            return None
        if len(compared) not in (1, len(vector)) or len(replacements) not in (1, len(vector)):
            return None
        replacements = replacements * len(vector) if len(replacements) == 1 else replacements
        return [
            substitute if size == -1 else size for size, substitute in zip(vector, replacements, strict=True)
        ]


_RULES: dict[str, Callable[[_SizeVectorReader, ir.Node, int], Elements | None]] = {
    "Cast": _SizeVectorReader._cast,
    "Concat": _SizeVectorReader._concat,
    "Div": _SizeVectorReader._divide,
    "Gather": _SizeVectorReader._gather,
    "Identity": _SizeVectorReader._pass_through,
    "Mul": _SizeVectorReader._multiply,
    "Reshape": _SizeVectorReader._pass_through,
    "Shape": _SizeVectorReader._shape,
    "Slice": _SizeVectorReader._slice,
    "Squeeze": _SizeVectorReader._pass_through,
    "Unsqueeze": _SizeVectorReader._pass_through,
    "Where": _SizeVectorReader._where,
}


def _unknown(value: ir.Value) -> Elements | None:
    """As many unknown elements as the shape of a vector or number states."""
    if value.shape is None:
        return None
    length = value.shape[0] if len(value.shape) else 1
    return [UNKNOWN] * length if isinstance(length, int) and length <= MAXIMUM_RANK else None


def filled_size(value: ir.Value, dim: int) -> ir.Value | None:
    """The zero-dim value from which a ConstantOfShape takes one of its sizes; None for other values."""
    node = value.producer()
    vector = node.inputs[0] if node is not None and not node.domain else None
    concat = vector.producer() if node is not None and node.op_type == "ConstantOfShape" and vector else None
    parts = [] if concat is None or concat.op_type != "Concat" else [*concat.inputs]
    if len(parts) <= dim or any(part is None or part.shape is None or part.shape != [1] for part in parts):
        return None
    part = parts[dim]
    unsqueeze = None if part is None else part.producer()
    source = unsqueeze.inputs[0] if unsqueeze is not None and unsqueeze.op_type == "Unsqueeze" else None
    return source if source is not None and source.shape is not None and source.shape.rank() == 0 else None
