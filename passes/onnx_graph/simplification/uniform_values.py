"""ONNX pass: removes computations on tensors of which all elements are one number, such as masks of True.

1. Shape changes, selections and elementwise operators of such tensors are evaluated on that number alone;
   a ConstantOfShape of any size is such a tensor.
2. Where a node broadcasts one with a tensor that has the shape of the result, it reads a scalar instead.
3. A Where by such a condition is the operand that it selects, if that has the shape of the result.
4. Weights of floats never count as such tensors, because their numbers may be replaced.
5. Neighbours in a Range differ by 1, and sums of zeros are 0, at any length.
6. Positions of one number that a Gather of other values reads become a constant, if the sizes are known.
7. Adding 0.0 is left out before operators to which -0.0 and 0.0 are the same.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ....registration.inference import shape_inference
from ....registration.inference.folding import evaluate
from ....registration.inference.tensor_sizes import element_count
from ..node_pass import ConstantPass, replace_by_value, replace_node
from ..pass_order import Run
from .consecutive_positions import ConsecutivePositions
from .false_conditions import LowerBounds

_REDUCING = frozenset({"ReduceMax", "ReduceMin"})
_MOVING = _REDUCING | frozenset(
    "Expand Flatten Gather GatherElements Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split()
)
_ELEMENTWISE = frozenset(
    "Add And Cast Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Not Or Sub Where Xor".split()
)
_BROADCASTING = _ELEMENTWISE - {"Cast", "Not"}
_EXTREMES = frozenset({"Max", "Min"})
_BLIND_TO_ZEROS = ("Softmax", "LogSoftmax", "Exp", "Cos", "Abs")
_MAXIMUM_CONSTANT = 2**18
"""Constants of more elements are not read, nor floats that are computed when the file is written."""


@dataclasses.dataclass(frozen=True)
class _Uniform:
    """A tensor of which all elements are one number: that number as a zero-dim array, and the shape."""

    number: np.ndarray
    shape: tuple[int | ir.SymbolicDim, ...]


class RemoveUniformValues(ConstantPass):
    """Replaces tensors of one number by scalars, where they are broadcast."""

    runs = (
        Run(
            "basic",
            after={"FindFalseConditions": "A condition that is never true is a tensor of one number."},
        ),
        Run(
            "basic",
            after={"BroadcastNamed": "Causal masks without an And or an Expand are recognised."},
            name="RemoveNarrowValues",
        ),
    )
    op_types = _MOVING | _ELEMENTWISE | {"ConstantOfShape", "CumSum"}

    def begin(self, model: ir.Model) -> bool:
        """Forget the values of another model."""
        self._positions = ConsecutivePositions(self.initializers)
        self._bounds = LowerBounds(self.initializers)
        self._uniforms: dict[ir.Value, _Uniform | None] = {}
        # Before opset 8 the operands of Max and Min have one shape.
        self._broadcasting = _BROADCASTING - (
            _EXTREMES if model.opset_imports.get("", 8) < 8 else frozenset[str]()
        )
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Remember a result of one number; simplify a node that reads one and has another result."""
        if len(node.outputs) != 1:
            return False
        uniform = self._result(node)
        if uniform is not None:
            # The node stays until its reader is simplified; then it is unused and removed.
            self._uniforms[node.outputs[0]] = uniform
            return False
        if node.op_type == "Gather":
            return self._write_positions(node)
        return node.op_type in self._broadcasting and self._simplify(node)

    def _write_positions(self, node: ir.Node) -> bool:
        """Let a Gather read a constant in place of computed positions of one number."""
        positions = node.inputs[1]
        uniform = None if positions is None or positions.const_value is not None else self._uniform(positions)
        if uniform is None or not all(isinstance(size, int) for size in uniform.shape):
            return False
        sizes = [size for size in uniform.shape if isinstance(size, int)]
        if math.prod(sizes) > _MAXIMUM_CONSTANT:
            return False
        node.replace_input_with(1, self.initializers.make(np.full(sizes, uniform.number), "positions"))
        return True

    def _uniform(self, value: ir.Value | None) -> _Uniform | None:
        if value is None:
            return None
        if value not in self._uniforms:
            self._uniforms[value] = self._constant(value)
        return self._uniforms[value]

    def _constant(self, value: ir.Value) -> _Uniform | None:
        tensor = value.const_value
        if (
            tensor is None
            or not self.initializers.is_constant(value)
            or not 0 < element_count(tensor) <= _MAXIMUM_CONSTANT
        ):
            return None
        is_weight = tensor.dtype in FLOATS and (
            value in self.initializers.named or isinstance(tensor, ir.LazyTensor)
        )
        if is_weight or tensor.dtype == ir.DataType.STRING:
            return None
        array = tensor.numpy()
        first = np.ascontiguousarray(array.reshape(-1)[:1])
        # Bytes tell -0.0 from 0.0, and a NaN is equal to itself.
        is_uniform = array.tobytes() == first.tobytes() * array.size
        return _Uniform(first.reshape(()), array.shape) if is_uniform else None

    def _result(self, node: ir.Node) -> _Uniform | None:
        """The result of a node, if all of its elements are one number."""
        if not node.inputs:
            return None
        result, dtype = node.outputs[0], node.outputs[0].dtype
        if node.op_type == "Sub" and result.shape is not None and self._positions.is_difference(node):
            assert dtype is not None
            return _Uniform(np.ones((), dtype.numpy()), result.shape.dims)
        if node.op_type == "Less" and result.shape is not None and self._bounds.is_never_less(node):
            return _Uniform(np.zeros((), bool), result.shape.dims)
        if node.op_type == "ConstantOfShape":
            return _uniform_fill(node)
        elementwise = node.op_type in _ELEMENTWISE
        operands = []
        for value in node.inputs if elementwise else node.inputs[:1]:
            uniform = self._uniform(value)
            if uniform is None:
                return None
            operands.append(uniform)
        attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
        shape = shape_inference.infer(node.op_type, node.inputs, attributes) or node.outputs[0].shape
        # An empty tensor has no number, and its maximum is another one; other results of it are empty too.
        if shape is None or (not shape.is_static() and node.op_type in _REDUCING) or 0 in shape:
            return None
        if node.op_type == "CumSum" and operands[0].number.any():
            return None
        numbers = [operand.number for operand in operands]
        number = evaluate(node.op_type, numbers, attributes) if elementwise else numbers[0]
        return None if number is None else _Uniform(np.asarray(number).reshape(()), shape.dims)

    def _simplify(self, node: ir.Node) -> bool:
        if node.op_type == "Where":
            condition = self._uniform(node.inputs[0])
            if condition is not None:
                chosen = node.inputs[1 if bool(condition.number) else 2]
                if chosen is not None and self._covers(chosen, node, chosen):
                    return _bypass(node, chosen)
        modified = False
        for index, value in enumerate(node.inputs):
            uniform = self._uniform(value)
            if (
                uniform is None
                or not uniform.shape
                or not any(
                    operand is not value and self._covers(operand, node, value) for operand in node.inputs
                )
            ):
                continue
            # Adding 0.0 changes nothing but the sign of -0.0.
            if node.op_type == "Add" and _is_zero(uniform.number) and self._is_lost(node):
                operand = node.inputs[1 - index]
                return _bypass(node, operand) if operand is not None else modified
            stem = (value.name if value is not None else None) or "constant"
            node.replace_input_with(index, self.initializers.make(uniform.number, f"{stem}_scalar"))
            modified = True
        return modified

    def _covers(self, operand: ir.Value | None, node: ir.Node, without: ir.Value | None) -> bool:
        """Whether the result keeps the shape of `operand` even if `without` becomes a scalar."""
        result = node.outputs[0].shape
        shape = None if operand is None else operand.shape
        if shape is None or result is None or len(shape) != len(result):
            return False
        other_shapes = [value.shape for value in node.inputs if value is not None and value is not operand]
        for axis in range(1, len(shape) + 1):
            sizes = [
                other_shape[-axis]
                for other_shape in other_shapes
                if other_shape is not None and len(other_shape) >= axis
            ]
            # A size without a name may differ from another one.
            if any(size not in (1, shape[-axis]) or size == ir.SymbolicDim(None) for size in sizes):
                return False
        return all(other_shape is not None and len(other_shape) <= len(shape) for other_shape in other_shapes)

    def _is_lost(self, node: ir.Node) -> bool:
        """Whether no reader tells -0.0 from 0.0."""
        result = node.outputs[0]
        readers = [reader for reader, _ in result.uses()]
        return not result.is_graph_output() and all(
            reader.op_type in _BLIND_TO_ZEROS and not reader.domain for reader in readers
        )


def _uniform_fill(node: ir.Node) -> _Uniform | None:
    """The result of a ConstantOfShape; without the attribute `value` it is zeros."""
    shape, filler = node.outputs[0].shape, node.attributes.get("value")
    if shape is None or 0 in shape:
        return None
    number = np.zeros((), np.float32) if filler is None else filler.as_tensor().numpy()
    return _Uniform(np.asarray(number).reshape(()), shape.dims)


def _is_zero(number: np.ndarray) -> bool:
    return number.dtype.kind == "f" and not number.any()


def _bypass(node: ir.Node, operand: ir.Value) -> bool:
    """Let all readers of a node read an operand; an Identity remains for an output of a graph."""
    if node.outputs[0].is_graph_output():
        replace_node(node, "Identity", [operand])
    else:
        replace_by_value(node, operand)
    return True
