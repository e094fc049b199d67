"""Complex values that are real pairs, [..., 2], in a source graph, and what the rules for them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import COMPLEX, GraphError
from ...registration.arguments import replace_arguments
from ..source_builder import SourceBuilder, where

PART_OF = {DataType.COMPLEX64: DataType.FLOAT, DataType.COMPLEX128: DataType.DOUBLE}
"""The element type of the parts of a complex element type."""

Arguments = dict[str, Any]
Rule = Callable[["Pairs", ir.Node, Arguments], None]


class Pairs:
    """The pairs of a graph, and what is needed to rewrite the nodes that touch them."""

    def __init__(self, graph: ir.Graph):
        self._found: set[Value] = set()
        self.build = SourceBuilder(graph)

    def __contains__(self, item: Any) -> bool:
        return item in self._found

    def add(self, value: Value) -> None:
        """Count a value among the pairs."""
        self._found.add(value)

    def rank(self, value: Value, node: ir.Node) -> int:
        """The rank of a value, without the dimension of the parts.

        Raises:
            GraphError: it is unknown.
        """
        if value.shape is None:
            raise GraphError(f"{where(node)}: the rank of a complex tensor must be known")
        return len(value.shape) - (value in self)

    def pair(self, item: Any, part: DataType) -> Any:
        """An operand as a pair whose parts have an element type; Python numbers and None stay."""
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
        """`real`, `imag`, `abs` or `is_nonzero` of a pair, a part of a number; the rest stays."""
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
        """The node's own operator with other arguments, for a part of its result."""
        like = node.outputs[0] if output is None else output
        shape = None if like.shape is None else ir.Shape(like.shape.dims[:-1] if like in self else like.shape)
        name = f"{node.domain}::{node.op_type}"
        return self.build.emit(name, given, node.overload, dtype=like.dtype, shape=shape)

    def become(self, node: ir.Node, name: str, given: Arguments, overload: str = "default") -> None:
        """Make the node another one, with the same outputs."""
        node.domain, _, node.op_type = name.partition("::")
        node.overload = overload
        replace_arguments(node, given)


def to_complex_dialect(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """The operator of the same name in the dialect of complex numbers."""
    pairs.become(node, f"complex::{node.op_type}", given, node.overload)


def part_by_part(*names: str) -> Rule:
    """The operator on the real parts, and on the imaginary ones."""

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
