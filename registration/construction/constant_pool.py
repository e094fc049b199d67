"""The constants of a graph under construction, deduplicated and written only if used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from .. import dtypes


def to_array(value: object, dtype: DataType | None = None) -> np.ndarray:
    """Convert a Python number, a nested list of numbers, or an array to a numpy array."""
    if dtype is not None:
        if dtype in dtypes.FLOATS or isinstance(value, np.ndarray):
            return np.asarray(value, dtype=dtype.numpy())
        # Otherwise numpy would choose the type of [] or of a bool.
        return np.asarray(value).astype(dtype.numpy())
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    if array.size == 0 or array.dtype.kind in "iu":
        return array.astype(np.int64)
    # A Python float without a type is FLOAT, torch's default type.
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _tensor(array: np.ndarray) -> ir.TensorProtocol:
    """Convert an array to a tensor; string arrays may have the dtype object, bytes or str."""
    if array.dtype.kind in "OSU":
        strings = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
        return ir.StringTensor(strings, shape=ir.Shape(array.shape))
    # numpy's ascontiguousarray turns a scalar into a vector.
    return ir.Tensor(np.ascontiguousarray(array) if array.ndim else array)


class ConstantPool:
    """The constants of one graph; equal constants are the same value.

    A constant becomes an initializer of the outermost graph when the first node uses it. So constants left
    over by folding never reach the file, and sub-blocks share the constants of their parents.
    """

    __slots__ = ("_graph", "_keys", "_unique_name", "_values")

    def __init__(self, graph: ir.Graph, unique_name: Callable[[str], str]):
        self._graph = graph
        self._unique_name = unique_name
        self._values: dict[tuple[np.dtype, tuple[int, ...], bytes], Value] = {}
        self._keys: set[Value] = set()

    def make(self, array: np.ndarray) -> Value:
        """Return the value of a constant; equal contents give the same value."""
        # Bytes, because NaN is not equal to itself, and 0.0 is equal to -0.0.
        # The bytes of an array of objects are addresses.
        content = repr(array.tolist()).encode() if array.dtype.kind in "OSU" else array.tobytes()
        key = (array.dtype, array.shape, content)
        value = self._values.get(key)
        if value is None:
            tensor = _tensor(array)
            value = ir.Value(
                shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
            )
            self._values[key] = value
            self._keys.add(value)
        return value

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, value: Value) -> bool:
        return value in self._keys

    def use(self, value: Value) -> bool:
        """Mark a value as used by a node or a graph output: a constant becomes an initializer.

        Returns whether it is a constant.
        """
        if value not in self._keys:
            return False
        if not value.is_initializer():
            value.name = self._unique_name("constant")
            self._graph.initializers.add(value)
        return True
