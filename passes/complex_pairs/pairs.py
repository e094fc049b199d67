"""Complex values as real pairs, [..., 2], in a source graph, and helpers shared by the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import COMPLEX, GraphError
from ...registration.arguments import replace_arguments
from ..source_builder import SourceBuilder, where

PART_OF = {DataType.COMPLEX64: DataType.FLOAT, DataType.COMPLEX128: DataType.DOUBLE}
"""The element type of the real and imaginary parts, by complex element type."""

Arguments = dict[str, Any]
Rule = Callable[["Pairs", ir.Node, Arguments], None]


class Pairs:
    """The pairs of a graph, and helpers to rewrite the nodes that use them."""

    def __init__(self, graph: ir.Graph):
        self._found: set[Value] = set()
        self.build = SourceBuilder(graph)

    def __contains__(self, item: Any) -> bool:
        return item in self._found

    def add(self, value: Value) -> None:
        """Register a value as a pair."""
        self._found.add(value)

    def rank(self, value: Value, node: ir.Node) -> int:
        """The rank of a value, without the last dimension of a pair.

        Raises:
            GraphError: the rank is unknown.
        """
        if value.shape is None:
            raise GraphError(f"{where(node)}: the rank of a complex tensor must be known")
        return len(value.shape) - (value in self)

    def pair(self, item: Any, part: DataType) -> Any:
        """Convert an operand to a pair with the given element type, unless it is a Python number or None."""
        if isinstance(item, list):
            return [self.pair(member, part) for member in item]
        if not isinstance(item, Value):
            return item
        if item in self:
            if item.dtype == part:
                return item
            result = self.build.cast(item, part)
        else:
            real = item if item.dtype == part else self.build.cast(item, part)
            shape = None if real.shape is None else ir.Shape([*real.shape, 2])
            result = self.build.emit("complex::from_real", {"self": real}, dtype=part, shape=shape)
        result.metadata_props[COMPLEX] = "true"
        self.add(result)
        return result

    def of_pair(self, name: str, item: Any) -> Any:
        """Apply `real`, `imag`, `abs` or `is_nonzero` to a pair or a number; return others unchanged."""
        if isinstance(item, list):
            return [self.of_pair(name, member) for member in item]
        if item in self:
            shape = None if item.shape is None else ir.Shape(item.shape.dims[:-1])
            dtype = DataType.BOOL if name == "is_nonzero" else item.dtype
            return self.build.emit(f"complex::{name}", {"self": item}, dtype=dtype, shape=shape)
        if isinstance(item, (bool, int, float, complex)) and name in ("real", "imag"):
            return getattr(item, name)
        return item

    def again(self, node: ir.Node, given: Arguments, output: Value | None = None) -> Value:
        """Emit the node's operator with other arguments, to compute a part of its result."""
        like = node.outputs[0] if output is None else output
        shape = None if like.shape is None else ir.Shape(like.shape.dims[:-1] if like in self else like.shape)
        name = f"{node.domain}::{node.op_type}"
        return self.build.emit(name, given, node.overload, dtype=like.dtype, shape=shape)

    def become(self, node: ir.Node, name: str, given: Arguments, overload: str = "default") -> None:
        """Replace the node by another operator, and keep its outputs."""
        node.domain, _, node.op_type = name.partition("::")
        node.overload = overload
        replace_arguments(node, given)


def to_complex_dialect(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Replace the node by the operator of the same name in the domain `complex`."""
    pairs.become(node, f"complex::{node.op_type}", given, node.overload)


def part_by_part(*names: str) -> Rule:
    """Apply the operator separately to the real and to the imaginary parts."""

    def rule(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
        if len(node.outputs) != 1:
            to_complex_dialect(pairs, node, given)
            return
        if isinstance(given.get("dtype"), DataType):
            given["dtype"] = node.outputs[0].dtype
        both = {
            name: pairs.again(
                node, given | {key: pairs.of_pair(name, given[key]) for key in names if key in given}
            )
            for name in ("real", "imag")
        }
        pairs.become(node, "complex::complex", both)

    return rule
