"""Complex values as real pairs, [..., 2], in a source graph, and helpers that the rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        self._values: set[Value] = set()
        self.build = SourceBuilder(graph)

    def __contains__(self, operand: object) -> bool:
        return operand in self._values

    def isdisjoint(self, values: Iterable[Value | None]) -> bool:
        """Whether none of some values is a pair."""
        return self._values.isdisjoint(values)

    def add(self, value: Value) -> None:
        """Register a value as a pair."""
        self._values.add(value)

    def rank(self, value: Value, node: ir.Node) -> int:
        """The rank of a value, without the last dimension of a pair.

        Raises:
            GraphError: the rank is unknown.
        """
        if value.shape is None:
            raise GraphError(f"{where(node)}: the rank of a complex tensor must be known")
        return len(value.shape) - (value in self)

    def to_pair(self, operand: Any, part: DataType) -> Any:
        """Convert an operand to a pair with the given element type, unless it is a Python number or None."""
        if isinstance(operand, list):
            return [self.to_pair(member, part) for member in operand]
        if not isinstance(operand, Value):
            return operand
        if operand in self:
            if operand.dtype == part:
                return operand
            result = self.build.cast(operand, part)
        else:
            real = operand if operand.dtype == part else self.build.cast(operand, part)
            shape = None if real.shape is None else ir.Shape([*real.shape, 2])
            result = self.build.emit("complex::from_real", {"self": real}, dtype=part, shape=shape)
        result.metadata_props[COMPLEX] = "true"
        self.add(result)
        return result

    def apply(self, name: str, operand: Any) -> Any:
        """Apply `real`, `imag`, `abs` or `is_nonzero` to a pair or a number; return others unchanged."""
        if isinstance(operand, list):
            return [self.apply(name, member) for member in operand]
        if operand in self:
            shape = None if operand.shape is None else ir.Shape(operand.shape.dims[:-1])
            dtype = DataType.BOOL if name == "is_nonzero" else operand.dtype
            return self.build.emit(f"complex::{name}", {"self": operand}, dtype=dtype, shape=shape)
        if isinstance(operand, (bool, int, float, complex)) and name in ("real", "imag"):
            return getattr(operand, name)
        return operand

    def emit_operator(self, node: ir.Node, arguments: Arguments) -> Value:
        """Emit the node's operator with other arguments, to compute the real or the imaginary part."""
        like = node.outputs[0]
        shape = None if like.shape is None else ir.Shape(like.shape.dims[:-1] if like in self else like.shape)
        name = f"{node.domain}::{node.op_type}"
        return self.build.emit(name, arguments, node.overload, dtype=like.dtype, shape=shape)

    def replace_operator(
        self, node: ir.Node, name: str, arguments: Arguments, overload: str = "default"
    ) -> None:
        """Replace the node by another operator, and keep its outputs."""
        node.domain, _, node.op_type = name.partition("::")
        node.overload = overload
        replace_arguments(node, arguments)


def to_complex_dialect(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Replace the node by the operator of the same name in the domain `complex`."""
    pairs.replace_operator(node, f"complex::{node.op_type}", arguments, node.overload)


def part_by_part(*names: str) -> Rule:
    """Apply the operator separately to the real and to the imaginary parts."""

    def rule(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
        # Operators with several results have no common pattern for their parts.
        if len(node.outputs) != 1:
            to_complex_dialect(pairs, node, arguments)
            return
        if isinstance(arguments.get("dtype"), DataType):
            arguments["dtype"] = node.outputs[0].dtype
        part_values = {
            name: pairs.emit_operator(
                node,
                arguments | {key: pairs.apply(name, arguments[key]) for key in names if key in arguments},
            )
            for name in ("real", "imag")
        }
        pairs.replace_operator(node, "complex::complex", part_values)

    return rule
