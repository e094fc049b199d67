"""Makes GraphDefs for tests, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opsetta.exporter.capture.tensorflow.element_types import type_number
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.operator_definitions import definition

FLOAT, INT32, BOOL, VARIANT = "DT_FLOAT", "DT_INT32", "DT_BOOL", "DT_VARIANT"
_NUMPY = {"float32": FLOAT, "int32": INT32, "int64": "DT_INT64", "bool": BOOL, "float64": "DT_DOUBLE"}
_GUESSED = {bool: "bool", int: "int", float: "float", str: "string", bytes: "string"}


def tensor(array: Any) -> Any:
    """A TensorProto."""
    array = np.asarray(array)
    message = message_type("TensorProto")()
    if array.dtype.kind in "US":
        message.dtype = type_number("DT_STRING")
        message.string_val.extend(item.encode() for item in array.reshape(-1).tolist())
    else:
        message.dtype = type_number(_NUMPY[array.dtype.name])
        message.tensor_content = array.tobytes()
    for size in array.shape:
        message.tensor_shape.dim.add(size=size)
    return message


def set_attribute(attribute: Any, kind: str, value: Any) -> None:
    """Fill an AttrValue with a value of an OpDef's type of attributes."""
    if kind.startswith("list("):
        attribute.list.SetInParent()
        for item in value:
            _append(attribute.list, kind[5:-1], item)
    elif kind == "string":
        attribute.s = value if isinstance(value, bytes) else value.encode()
    elif kind == "type":
        attribute.type = type_number(value)
    elif kind == "shape":
        _shape(attribute.shape, value)
    elif kind == "tensor":
        attribute.tensor.CopyFrom(tensor(value))
    elif kind == "func":
        attribute.func.name = value
    elif kind == "placeholder":
        attribute.placeholder = value
    else:
        setattr(attribute, {"int": "i", "float": "f", "bool": "b"}[kind], value)


def _append(target: Any, kind: str, item: Any) -> None:
    if kind == "type":
        target.type.append(type_number(item))
    elif kind == "shape":
        _shape(target.shape.add(), item)
    elif kind == "tensor":
        target.tensor.add().CopyFrom(tensor(item))
    elif kind == "func":
        target.func.add().name = item
    elif kind == "string":
        target.s.append(item.encode())
    else:
        getattr(target, {"int": "i", "float": "f", "bool": "b"}[kind]).append(item)


def _shape(message: Any, sizes: Sequence[int] | None) -> None:
    message.SetInParent()
    if sizes is None:
        message.unknown_rank = True
    for size in sizes or ():
        message.dim.add(size=size)


class Placeholder(str):
    """The name of an attribute of a function's caller."""


class Nodes:
    """Adds nodes to a list of NodeDef messages."""

    def __init__(self, target: Any):
        self.target = target

    def add(self, op: str, name: str, inputs: Sequence[str] = (), device: str = "", **attributes: Any) -> str:
        """Add a node and return its name."""
        node = self.target.add(name=name, op=op, input=list(inputs), device=device)
        known = {each.name: each.type for each in getattr(definition(op), "attr", ())}
        for key, value in attributes.items():
            if isinstance(value, Placeholder):
                set_attribute(node.attr[key], "placeholder", value)
            elif key in known:
                set_attribute(node.attr[key], known[key], value)
            else:
                first = value[0] if isinstance(value, list) else value
                kind = _GUESSED[type(first)]
                set_attribute(node.attr[key], f"list({kind})" if isinstance(value, list) else kind, value)
        return name

    def constant(self, name: str, value: Any, controls: Sequence[str] = ()) -> str:
        """Add a Const."""
        array = np.asarray(value)
        if array.dtype == np.int64 and not isinstance(value, np.ndarray):
            array = array.astype(np.int32)
        if array.dtype == np.float64 and not isinstance(value, np.ndarray):
            array = array.astype(np.float32)
        kind = "DT_STRING" if array.dtype.kind == "U" else _NUMPY[array.dtype.name]
        return self.add("Const", name, controls, dtype=kind, value=array)

    def placeholder(self, name: str, shape: Sequence[int] | None = None, dtype: str = FLOAT) -> str:
        """Add a Placeholder."""
        return self.add("Placeholder", name, dtype=dtype, shape=shape)

    def call(
        self, op: str, name: str, inputs: Sequence[str] = (), dtype: str = FLOAT, **attributes: Any
    ) -> str:
        """Add an operator whose element type is `T`."""
        return self.add(op, name, inputs, T=dtype, **attributes)


class Graph(Nodes):
    """A GraphDef in the making."""

    def __init__(self) -> None:
        self.message = message_type("GraphDef")()
        self.message.versions.producer = 2000
        super().__init__(self.message.node)

    def function(
        self,
        name: str,
        inputs: Sequence[tuple[str, str]],
        results: Sequence[tuple[str, str, str]],
        attributes: Sequence[str] = (),
    ) -> Nodes:
        """Add a function; nodes are added to what this returns.

        Args:
            inputs: name and element type of each argument; a type in lower case is an attribute.
            results: name, element type and reference of each result.
            attributes: names of attributes that are types.
        """
        function = self.message.library.function.add()
        function.signature.name = name
        for attribute in attributes:
            function.signature.attr.add(name=attribute, type="type")
        for key, kind in inputs:
            _argument(function.signature.input_arg.add(name=key), kind)
        for key, kind, reference in results:
            _argument(function.signature.output_arg.add(name=key), kind)
            function.ret[key] = reference
        return Nodes(function.node_def)


def _argument(argument: Any, kind: str) -> None:
    if kind.startswith("DT_"):
        argument.type = type_number(kind)
    else:
        argument.type_attr = kind
