"""Values, nodes and types with the API of torch.onnx: thin wrappers of the graph's objects.

Every argument of an operator is a value, constants too. The node of a number is `onnx::Constant`, that of a
list with values `prim::ListConstruct`, that of None `prim::Constant`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from ...registration import Device, GraphContext, Layout, MemoryFormat
from ...registration.schemas import operator_schema
from .._type_utils import JitScalarType
from ..errors import refuse_attribute
from . import torch_arrays

if TYPE_CHECKING:
    import torch

Size = int | ir.SymbolicDim | None
"""The size of a dimension; a symbolic one or None if it is dynamic."""
_MEMORY_FORMATS = {"contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3}


class TensorType:
    """The known type of a tensor: `scalarType`, `dim`, `sizes`."""

    __slots__ = ("element_type", "shape")

    def __init__(self, element_type: DataType | None, shape: Sequence[Size] | None):
        self.element_type = element_type
        self.shape = None if shape is None else tuple(shape)

    def kind(self) -> str:
        """`TensorType`."""
        return "TensorType"

    def scalarType(self) -> str | None:
        """The element type in torch's names, `Float` or `Long`; None if it is unknown."""
        scalar_type = JitScalarType.of(self.element_type)
        return None if scalar_type == JitScalarType.UNDEFINED else scalar_type.scalar_name()

    def dtype(self) -> torch.dtype | None:
        """The element type as a `torch.dtype`; None if it is unknown."""
        scalar_type = JitScalarType.of(self.element_type)
        return None if scalar_type == JitScalarType.UNDEFINED else scalar_type.dtype()

    def dim(self) -> int | None:
        """The rank; None if it is unknown."""
        return None if self.shape is None else len(self.shape)

    def varyingSizes(self) -> list[int | None] | None:
        """The sizes, None for each dynamic one; None if the rank is unknown."""
        return None if self.shape is None else [s if isinstance(s, int) else None for s in self.shape]

    def sizes(self) -> list[int] | None:
        """The sizes if all of them are static, else None."""
        sizes = self.varyingSizes()
        return None if sizes is None or None in sizes else sizes  # type: ignore[return-value]

    def with_sizes(self, sizes: Sequence[int | None] | None) -> TensorType:
        """The same element type with other sizes."""
        return TensorType(self.element_type, sizes)

    def with_dtype(self, dtype: object) -> TensorType:
        """The same sizes with another element type, a `torch.dtype`."""
        return TensorType(JitScalarType.from_dtype(dtype).onnx_type(), self.shape)

    def contiguous(self) -> TensorType:
        """The type itself, because strides have no meaning here."""
        return self

    def isSubtypeOf(self, supertype: TensorType) -> bool:
        """Whether the other is of the same kind."""
        return supertype.kind() == self.kind()

    def __str__(self) -> str:
        return "Tensor"

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute("a type", name, "kind, scalarType, dtype, dim, sizes and varyingSizes are here")


class ListType(TensorType):
    """The type of a list."""

    __slots__ = ()

    def kind(self) -> str:
        """`ListType`."""
        return "ListType"

    def getElementType(self) -> TensorType:
        """The type of the elements."""
        return TensorType(self.element_type, self.shape)

    def __str__(self) -> str:
        return "List[Tensor]"


class NoneType(TensorType):
    """The type of None."""

    __slots__ = ()

    def kind(self) -> str:
        """`NoneType`."""
        return "NoneType"

    def __str__(self) -> str:
        return "NoneType"


class Value:
    """An argument or a result: a value of the graph, a constant, a list, or None."""

    __slots__ = ("context", "wrapped")

    def __init__(self, context: GraphContext, wrapped: object):
        self.context = context
        self.wrapped = _to_plain(wrapped)

    @property
    def element_type(self) -> DataType | None:
        """The ONNX element type; for a list, that of its elements; None if it is unknown."""
        wrapped = self.wrapped
        if isinstance(wrapped, ir.Value):
            return wrapped.dtype
        first = wrapped[0] if isinstance(wrapped, list) and wrapped else wrapped
        if isinstance(first, ir.Value):
            return first.dtype
        if isinstance(first, bool):
            return DataType.BOOL
        # torch takes an empty list for one of integers, such as sizes.
        if isinstance(first, int) or wrapped == []:
            return DataType.INT64
        return DataType.DOUBLE if isinstance(first, float) else None

    def is_packed(self) -> bool:
        """Whether it is a list that is not constant."""
        wrapped = self.wrapped
        return isinstance(wrapped, list) and any(
            item is None or isinstance(item, (ir.Value, str)) for item in wrapped
        )

    def members(self) -> list[Value]:
        """The members of a list; none for anything else."""
        members = self.wrapped if isinstance(self.wrapped, list) else []
        return [Value(self.context, member) for member in members]

    def type(self) -> TensorType:
        """The known part of its type."""
        wrapped = self.wrapped
        if wrapped is None:
            return NoneType(None, None)
        if self.is_packed() or (isinstance(wrapped, ir.Value) and isinstance(wrapped.type, ir.SequenceType)):
            return ListType(self.element_type, None)
        if isinstance(wrapped, ir.Value):
            return TensorType(wrapped.dtype, None if wrapped.shape is None else wrapped.shape.dims)
        return TensorType(self.element_type, [len(wrapped)] if isinstance(wrapped, list) else [])

    def setType(self, type: TensorType) -> Value:
        """Set the unknown type and shape of a result; return the value."""
        wrapped = self.wrapped
        if isinstance(wrapped, ir.Value) and isinstance(type, TensorType):
            # What emission has inferred is right; only gaps are filled.
            if wrapped.dtype is None and type.element_type is not None:
                wrapped.dtype = type.element_type
            if wrapped.shape is None and type.shape is not None:
                wrapped.shape = ir.Shape(type.shape)
        return self

    def node(self) -> Node:
        """The node whose output it is."""
        return Node(self)

    def debugName(self) -> str:
        """Its name in the graph."""
        return (self.wrapped.name or "") if isinstance(self.wrapped, ir.Value) else repr(self.wrapped)

    def isCompleteTensor(self) -> bool:
        """Whether its element type and all its sizes are known."""
        return self.element_type is not None and self.type().sizes() is not None

    def constant(self) -> object:
        """A constant as a number, a string, a list of numbers or an array; None for anything else."""
        wrapped = self.wrapped
        if isinstance(wrapped, ir.Value):
            return self.context.constant_value(wrapped) if self.context.is_foldable(wrapped) else None
        return None if wrapped is None or self.is_packed() else wrapped

    def __eq__(self, operand: object) -> bool:
        if not isinstance(operand, Value):
            return NotImplemented
        if isinstance(self.wrapped, ir.Value) or isinstance(operand.wrapped, ir.Value):
            return self.wrapped is operand.wrapped
        # Constants may hold arrays, whose comparison is an array.
        return self is operand

    def __hash__(self) -> int:
        return hash(self.wrapped) if isinstance(self.wrapped, ir.Value) else id(self)

    def __repr__(self) -> str:
        return f"Value({self.debugName()})"

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute("a value", name, "type, setType, node and debugName are here")


Results = Value | tuple[Value, ...]
"""The result of an operator, or a tuple if there are several."""


def _to_plain(argument: object) -> object:
    """An argument as torch.onnx passes it, with element types and memory formats as numbers."""
    if isinstance(argument, Value):
        return argument.wrapped
    if isinstance(argument, (list, tuple)):
        return [_to_plain(item) for item in argument]
    if isinstance(argument, DataType):
        return int(JitScalarType.of(argument))
    if isinstance(argument, MemoryFormat):
        return _MEMORY_FORMATS.get(argument, 0)
    if isinstance(argument, Layout):
        return 0
    return str(argument) if isinstance(argument, Device) else argument


class Node:
    """The producer of a value: its kind, inputs and attributes."""

    __slots__ = ("_value",)

    def __init__(self, value: Value):
        self._value = value

    @property
    def _producer(self) -> ir.Node | None:
        wrapped = self._value.wrapped
        return wrapped.producer() if isinstance(wrapped, ir.Value) else None

    def kind(self) -> str:
        """`onnx::Add`; `onnx::Constant`, `prim::ListConstruct`, `prim::Constant` (None) or `prim::Param`."""
        if self._value.wrapped is None:
            return "prim::Constant"
        if self._value.is_packed():
            return "prim::ListConstruct"
        if self._value.constant() is not None:
            return "onnx::Constant"
        producer = self._producer
        if producer is None:
            return "prim::Param"
        return f"{producer.domain or 'onnx'}::{producer.op_type}"

    def mustBeNone(self) -> bool:
        """Whether the value is None."""
        return self._value.wrapped is None

    def inputs(self) -> list[Value]:
        """The inputs, or the elements of a list."""
        context = self._value.context
        if self._value.is_packed():
            return self._value.members()
        producer = self._producer
        return [Value(context, item) for item in producer.inputs] if producer is not None else []

    def input(self, index: int = 0) -> Value:
        """One of the inputs."""
        return self.inputs()[index]

    def inputsSize(self) -> int:
        """The number of inputs."""
        return len(self.inputs())

    def outputs(self) -> list[Value]:
        """All results of the node."""
        producer = self._producer
        if producer is None:
            return [self._value]
        return [Value(self._value.context, item) for item in producer.outputs]

    def output(self) -> Value:
        """The first result."""
        return self.outputs()[0]

    def outputsSize(self) -> int:
        """The number of results."""
        return len(self.outputs())

    def _attributes(self) -> dict[str, tuple[str, object]]:
        constant = self._value.constant()
        if constant is not None:
            # torch.onnx has every constant as a tensor, numbers and lists of numbers, too.
            suffix = "s" if isinstance(constant, str) else "t"
            return {"value": (suffix, constant if suffix == "s" else torch_arrays.to_tensor(constant))}
        producer = self._producer
        if producer is None:
            return {}
        # Emission omits attributes that equal a default, but the function may have set them.
        opset = self._value.context.opset
        schema = operator_schema(producer.op_type, opset) if producer.domain == "" else None
        formals = schema.attributes.values() if schema is not None else ()
        defaults = {a.name: ir.Attr(a.name, a.type, a.default) for a in formals if a.default is not None}
        return {name: _read_attribute(item) for name, item in {**defaults, **producer.attributes}.items()}

    def attributeNames(self) -> list[str]:
        """The names of the attributes, including those with a default; a constant has `value`."""
        return list(self._attributes())

    def hasAttribute(self, name: str) -> bool:
        """Whether there is an attribute of this name."""
        return name in self._attributes()

    def kindOf(self, name: str) -> str:
        """The suffix of an attribute: `i`, `f`, `s`, `t`, `is`, `fs`, `ss`."""
        return self._attributes()[name][0]

    def __getitem__(self, name: str) -> object:
        return self._attributes()[name][1]

    def __getattr__(self, name: str) -> object:
        if name in _SUFFIXES.values():
            return self.__getitem__
        return refuse_attribute("a node", name, "kind, mustBeNone, inputs, outputs and attributes are here")


class OriginalNode(Node):
    """The exported operator. Its inputs are the arguments of the symbolic function."""

    __slots__ = ()

    def inputs(self) -> list[Value]:
        """Not supported: they are values of another graph."""
        return refuse_attribute("the original node", "inputs", "they are the arguments of the function")


_SUFFIXES = {
    ir.AttributeType.INT: "i",
    ir.AttributeType.FLOAT: "f",
    ir.AttributeType.STRING: "s",
    ir.AttributeType.TENSOR: "t",
    ir.AttributeType.INTS: "is",
    ir.AttributeType.FLOATS: "fs",
    ir.AttributeType.STRINGS: "ss",
    ir.AttributeType.GRAPH: "g",
}


def _read_attribute(attribute: ir.Attr) -> tuple[str, object]:
    suffix = _SUFFIXES.get(attribute.type, "")
    value = attribute.value
    if suffix == "t":
        return suffix, torch_arrays.to_tensor(np.asarray(value.numpy()))
    return suffix, list(value) if isinstance(value, tuple) else value
