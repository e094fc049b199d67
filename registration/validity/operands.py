"""The sizes and parameters of a node, by the names of its schema."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ..schemas import OperatorSchema

Demand = str | tuple[str, int, int | None] | None
"""What is wrong, or an input, one of its axes, and the size that it must have; None is no demand."""
Dims = tuple[int | None, ...]


def sizes_of(value: ir.Value | None) -> Dims | None:
    """Return the sizes of a value, with None for unknown sizes; None if the rank is unknown."""
    shape = None if value is None else value.shape
    if shape is None:
        return None
    return tuple([size if isinstance(size, int) else None for size in shape.dims])


class Operands:
    """The sizes and parameters of a node by the names of its schema."""

    def __init__(self, node: ir.Node, schema: OperatorSchema):
        self.node = node
        self.schema = schema

    def value(self, name: str) -> ir.Value | None:
        """An input; None if it is omitted."""
        position = self.schema.input_index.get(name)
        inputs = self.node.inputs
        return inputs[position] if position is not None and position < len(inputs) else None

    def sizes(self, name: str) -> Dims | None:
        """Return the sizes of an input, with None for unknown sizes; None if the rank is unknown."""
        return sizes_of(self.value(name))

    def size(self, name: str, axis: int) -> int | None:
        """A size of an input; None if it is not known."""
        sizes = self.sizes(name)
        return sizes[axis] if sizes is not None and -len(sizes) <= axis < len(sizes) else None

    def first(self, *axes: tuple[str, int]) -> int | None:
        """The first known size, of axes of inputs."""
        return next((size for name, axis in axes if (size := self.size(name, axis)) is not None), None)

    def number(self, name: str, default: object = None) -> Any:
        """An attribute; the default if it is not there."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None or attribute.is_ref() else attribute.value
