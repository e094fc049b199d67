"""Converts element types, symbolic sizes and constants of a captured graph to those of source values."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import sympy
import torch
from onnx_ir import DataType, tensor_adapters

from ....registration import ALIAS, NUMBER, CaptureError, Device, Layout, MemoryFormat
from ...torch_boundary.operators.overloads import returned_arguments, shared_arguments

_NUMBERS: dict[type, tuple[str, DataType]] = {
    torch.SymInt: ("int", DataType.INT64),
    torch.SymFloat: ("float", DataType.DOUBLE),
    torch.SymBool: ("bool", DataType.BOOL),
}
Imported = Any
"""The result of an fx node in the source graph: a value, lists of values, a constant, or a sub-graph."""
_UNKNOWN_DIM = ir.SymbolicDim(None)


class NamedDimensions:
    """Symbolic sizes of torch as named dimensions; each expression is written out once.

    Attributes:
        names: the name of each torch symbol.
        closed: whether a size with another symbol is unknown; otherwise it keeps torch's name.
        unproven: axes whose sizes are unknown, whatever the fake tensor has there, by the name of the value.
    """

    def __init__(
        self,
        names: Mapping[object, str] | None = None,
        *,
        closed: bool = False,
        unproven: Mapping[str, Container[int]] | None = None,
    ):
        self.names: dict[sympy.Symbol, str] = dict(names or {})
        self.closed = closed
        self.unproven = dict(unproven or {})
        self._dimensions: dict[object, int | ir.SymbolicDim] = {}

    def shape(self, name: str, sizes: Sequence[int | torch.SymInt]) -> ir.Shape:
        """The shape of a value by its name in the captured graph."""
        shape = [size if type(size) is int else self(size) for size in sizes]
        unproven = self.unproven.get(name)
        if unproven:
            shape = [_UNKNOWN_DIM if axis in unproven else size for axis, size in enumerate(shape)]
        return ir.Shape(shape)

    def __call__(self, size: int | torch.SymInt) -> int | ir.SymbolicDim:
        """The size as a number or a named dimension."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        dim = self._dimensions.get(expression)
        if dim is None:
            dim = self._dimensions[expression] = self._convert(expression)
        return dim

    def _convert(self, expression: sympy.Expr) -> int | ir.SymbolicDim:
        if expression.is_Integer:
            return int(expression)
        # In a decomposition the symbols of torch have no meaning for the caller.
        if self.closed and not expression.free_symbols <= self.names.keys():
            return _UNKNOWN_DIM
        renamed = {
            symbol: sympy.Symbol(self.names[symbol], integer=True, positive=True)
            for symbol in expression.free_symbols
            if symbol in self.names
        }
        return ir.SymbolicDim(str(expression.xreplace(renamed)))


def tensor_type(value: torch.Tensor) -> ir.TensorType:
    """The element type of a tensor.

    Raises:
        CaptureError: ONNX has no such element type.
    """
    return ir.TensorType(element_type(value.dtype))


@functools.cache
def element_type(dtype: torch.dtype) -> DataType:
    """ONNX's element type for one of torch.

    Raises:
        CaptureError: it has none.
    """
    try:
        return tensor_adapters.from_torch_dtype(dtype)
    except TypeError as error:
        raise CaptureError(f"{dtype} has no ONNX element type") from error


def describe(value: ir.Value, example: object, dimensions: NamedDimensions, name: str = "") -> ir.Value:
    """Set the element type and shape of a source value to those of its fake tensor or symbolic number.

    Args:
        name: its name in the captured graph, where it has one.
    """
    if isinstance(example, torch.Tensor):
        value.type = tensor_type(example)
        value.shape = dimensions.shape(name, example.shape)
    elif type(example) in _NUMBERS:
        name, dtype = _NUMBERS[type(example)]
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(())
        value.metadata_props[NUMBER] = name
    return value


def share_memory_by_schema(
    schema: torch.FunctionSchema, results: Sequence[object], arguments: Mapping[str, object]
) -> list[Any]:
    """The results of another library's operator, whose schema says which of them share memory with arguments.

    Args:
        results: for each result of the schema, a value or a list of values. A view is marked with the name of
            the argument.
        arguments: by name.

    Returns:
        The results; one that is an argument to which the operator writes is this argument.
    """
    returned = returned_arguments(schema)
    for name, result in zip(shared_arguments(schema), results, strict=True):
        if name is not None and name not in returned:
            for value in result if isinstance(result, list) else [result]:
                if isinstance(value, ir.Value):
                    value.metadata_props[ALIAS] = name
    pairs = zip(returned, results, strict=True)
    return [result if name is None else arguments[name] for name, result in pairs]


def constant(item: object) -> object:
    """A constant argument in the form in which source nodes keep it; None for a random generator."""
    if isinstance(item, torch.Generator):
        return None
    if item is None or isinstance(item, (bool, int, float, str, complex)):
        return item
    if isinstance(item, torch.dtype):
        return element_type(item)
    if isinstance(item, torch.device):
        return Device(item)
    if isinstance(item, torch.layout):
        return Layout(str(item).removeprefix("torch."))
    if isinstance(item, torch.memory_format):
        return MemoryFormat(str(item).removeprefix("torch."))
    raise CaptureError(f"an argument of type {type(item).__name__} cannot be captured: {item!r}")
