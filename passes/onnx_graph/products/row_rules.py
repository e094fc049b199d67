"""Operators that compute the same numbers when all dimensions of a tensor but the last are merged into one.

A tensor [..., columns] is then a matrix [rows, columns], and each row is computed on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration.inference.tensor_sizes import element_count
from ....registration.schemas import operator_schema
from ..constants.initializers import Initializers
from ..row_operators import BROADCASTING_BY_ROWS, NORMALIZATIONS, REDUCTIONS, UNARY_BY_ROWS

_OPERATORS = (
    UNARY_BY_ROWS | BROADCASTING_BY_ROWS | NORMALIZATIONS | REDUCTIONS | {"Concat", "MatMul", "Split"}
)
_MAXIMUM_READERS = 64
"""Values with more readers are not changed, so that the time stays in proportion to the nodes."""
_MAXIMUM_COPY = 4096
"""Elements of a constant that may be copied, because other nodes read it too."""
_COLUMNS = 1
"""The axis of a matrix along which its columns are."""


class ByRows(NamedTuple):
    """How a node computes on matrices.

    Attributes:
        operands: the positions of the inputs that become matrices.
        edit: changes attributes and constants of the node.
    """

    operands: tuple[int, ...]
    edit: Callable[[], None]


def _keep_operands() -> None:
    return None


def matrix_shape(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape with the first dimensions merged; None where Reshape cannot restore them.

    The columns must be known, and all but one of the other sizes, or all of the others have names.
    """
    if shape is None or not has_rows(shape):
        return None
    *sizes, columns = shape.dims
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) == len(sizes):
        return ir.Shape([math.prod(numbers), columns])
    is_one = len(sizes) - len(numbers) == 1 and math.prod(numbers) == 1
    unknown = next(size for size in sizes if not isinstance(size, int))
    return ir.Shape([unknown if is_one else None, columns])


def has_rows(shape: ir.Shape | None) -> bool:
    """Whether `matrix_shape` gives the shape of a matrix."""
    sizes = () if shape is None else shape.dims
    if len(sizes) < 3 or 0 in sizes or not isinstance(sizes[-1], int):
        return False
    unknown = [size for size in sizes if not isinstance(size, int)]
    if len(unknown) < 2:
        return True
    return len(unknown) == len(sizes) - 1 and all(size.value is not None for size in unknown)


class RowRules:
    """The rules for one model."""

    def __init__(self, initializers: Initializers, opset: int):
        self._initializers = initializers
        self._opset = opset
        self._has_rows_by_value: dict[ir.Value | None, bool] = {}

    def has_rows(self, value: ir.Value | None) -> bool:
        """Whether `matrix_shape` gives the shape of a matrix; computed once for each value."""
        is_matrix = self._has_rows_by_value.get(value)
        if is_matrix is None:
            is_matrix = self._has_rows_by_value[value] = value is not None and has_rows(value.shape)
        return is_matrix

    def by_rows(self, node: ir.Node) -> ByRows | None:
        """How a node computes on matrices; None if it cannot, or its results would not be matrices."""
        if node.op_type not in _OPERATORS or node.domain or not node.inputs or node.inputs[0] is None:
            return None
        if not all(map(self.has_rows, node.outputs)):
            return None
        rule = self._rule(node)
        if rule is None or not all(self.has_rows(node.inputs[index]) for index in rule.operands):
            return None
        counts = [len(value.uses()) for value in node.outputs]
        # A node that nothing reads would only cost Reshapes.
        if not any(counts) and not any(value.is_graph_output() for value in node.outputs):
            return None
        return rule if max(counts) <= _MAXIMUM_READERS else None

    def _rule(self, node: ir.Node) -> ByRows | None:
        op_type = node.op_type
        if op_type in UNARY_BY_ROWS:
            return ByRows((0,), _keep_operands)
        if op_type in BROADCASTING_BY_ROWS:
            return self._broadcasting(node)
        if op_type == "MatMul":
            weight = node.inputs[1]
            is_matrix = weight is not None and weight.shape is not None and len(weight.shape) == 2
            return ByRows((0,), _keep_operands) if is_matrix else None
        if op_type in NORMALIZATIONS:
            return self._normalization(node)
        if op_type in REDUCTIONS:
            return self._reduction(node)
        if op_type in ("Split", "Concat"):
            return _join_or_split(node)
        return None

    def _broadcasting(self, node: ir.Node) -> ByRows | None:
        result = node.outputs[0].shape
        assert result is not None
        operands, vectors, computed = [], [], False
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            if value.shape is None:
                return None
            if _has_rows_of(value.shape, result):
                is_constant = self._initializers.is_constant(value)
                # Reshaping a shared weight would store it twice.
                if is_constant and len(value.uses()) > 1 and not _is_small(value):
                    return None
                operands.append(index)
                computed = computed or not is_constant
            # Leading dimensions of size 1 broadcast over rows just as a vector does.
            elif len(value.shape) > 1:
                if not (
                    self._initializers.is_constant(value) and all(size == 1 for size in value.shape[:-1])
                ):
                    return None
                vectors.append((index, value))

        def edit() -> None:
            for index, value in vectors:
                node.replace_input_with(index, self._vector(value))

        return ByRows(tuple(operands), edit) if computed else None

    def _vector(self, value: ir.Value) -> ir.Value:
        tensor = value.const_value
        assert tensor is not None
        size = tensor.shape.numpy()[-1]
        return self._initializers.derive(
            [value], lambda array: array.reshape(size), tensor.dtype, (size,), suffix="reshaped"
        )

    def _normalization(self, node: ir.Node) -> ByRows | None:
        schema = operator_schema(node.op_type, self._opset)
        used = [value for value in node.outputs[1:] if value.uses() or value.is_graph_output()]
        if schema is None or used:
            return None
        axis = node.attributes.get_int("axis", schema.attributes["axis"].default)
        if not isinstance(axis, int) or not _is_last([axis], node):
            return None
        vectors = [value.shape for value in node.inputs[1:] if value is not None]
        # Scale and bias must not have the dimensions that are merged.
        if any(shape is None or len(shape) > 1 for shape in vectors):
            return None
        # A negative axis means the columns of the matrix too.
        if "axis" not in node.attributes or axis == -1:
            return ByRows((0,), _keep_operands)
        return ByRows((0,), lambda: node.attributes.add(ir.AttrInt64("axis", _COLUMNS)))

    def _reduction(self, node: ir.Node) -> ByRows | None:
        if not node.attributes.get_int("keepdims", 1):
            return None
        axes = self._initializers.integers(node, "axes", 1)
        if axes is None or not _is_last(axes, node):
            return None
        if "axes" in node.attributes:
            return ByRows((0,), lambda: node.attributes.add(ir.AttrInt64s("axes", [_COLUMNS])))
        columns = np.array([_COLUMNS], dtype=np.int64)
        return ByRows((0,), lambda: node.replace_input_with(1, self._initializers.make(columns, "columns")))


def _is_small(value: ir.Value) -> bool:
    return value.const_value is not None and element_count(value.const_value) <= _MAXIMUM_COPY


def _has_rows_of(shape: ir.Shape, result: ir.Shape) -> bool:
    """Whether an operand has a row for each row of the result."""
    sizes, result_sizes = shape.dims[:-1], result.dims[:-1]
    return sizes == result_sizes and all(isinstance(size, int) or size.value is not None for size in sizes)


def _is_last(axes: Sequence[int], node: ir.Node) -> bool:
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return shape is not None and [axis % len(shape) for axis in axes] == [len(shape) - 1]


def _join_or_split(node: ir.Node) -> ByRows | None:
    """Split and Concat along the columns."""
    axis = node.attributes.get_int("axis")
    if axis is None or not _is_last([axis], node):
        return None
    data = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    first = node.outputs[0].shape
    assert first is not None
    if any(value is None or value.shape is None or not _has_rows_of(value.shape, first) for value in data):
        return None
    return ByRows(tuple(range(len(data))), lambda: node.attributes.add(ir.AttrInt64("axis", _COLUMNS)))
