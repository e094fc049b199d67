"""ONNX pass: fuses rotary embedding, written as separate operators, into RotaryEmbedding.

    x * cos + Concat(-x[..., d/2:], x[..., :d/2]) * sin

Applies from opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html).

1. x has four dimensions, [batch, heads, length, d].
2. cos and sin are constants, or are computed. They have the element type of x, and are the same for all
   heads. Their two halves along d are equal: the operator reads one half, which `rotary_tables` finds.
3. No intermediate result has another reader or is a graph output, apart from the halves of x.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.inference.constant_integers import integers
from ..node_pass import ConstantPass, replace_match
from ..pass_order import Run
from ..pattern_matcher import Pattern, PatternMatch, op, value
from .axes import is_last_axis
from .rotary_tables import RotaryTables

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _has_last_axis(node: ir.Node, match: PatternMatch) -> bool:
    axis = node.attributes.get_int("axis")
    return axis is not None and is_last_axis([axis], match["x"])


def _half(index: int) -> Pattern:
    """The lower (0) or the upper (1) half of x along the last dimension."""

    def splits_evenly(node: ir.Node, match: PatternMatch) -> bool:
        size, part = _last_size(match["x"]), _last_size(node.outputs[index])
        return (
            size is not None and part == size // 2 and len(node.outputs) == 2 and _has_last_axis(node, match)
        )

    def takes_half(node: ir.Node, match: PatternMatch) -> bool:
        size, arguments = _last_size(match["x"]), [integers(argument) for argument in node.inputs[1:]]
        numbers = [argument[0] for argument in arguments if argument is not None and len(argument) == 1]
        if size is None or len(numbers) < len(arguments) or len(numbers) not in (3, 4):
            return False
        # The bounds of a Slice may be negative, or beyond the end.
        start, end, _ = slice(numbers[0], numbers[1]).indices(size)
        expected = (0, size // 2) if index == 0 else (size // 2, size)
        return (
            (start, end) == expected and is_last_axis([numbers[2]], match["x"]) and numbers[3:] in ([], [1])
        )

    split = op("Split", _X, where=splits_evenly, output=index, shared=True)
    return split | op("Slice", _X, where=takes_half, shared=True)


def _last_size(value: ir.Value) -> int | None:
    size = value.shape[-1] if value.shape is not None and len(value.shape) else None
    return size if isinstance(size, int) else None


_X = value("x")
_ROTATED = op("Concat", op("Neg", _half(1)), _half(0), where=_has_last_axis)
_ROTARY_EMBEDDING = _ROTATED * value("sine") + _X * value("cosine")


class FuseRotaryEmbedding(ConstantPass):
    """Replaces the composition by RotaryEmbedding, if the model's opset has it."""

    runs = (
        Run(
            "full",
            after={
                "RefineAndFold": "Sizes of tables and heads must be known.",
                "FoldLinearScales": "A factor of the heads goes into weights first.",
            },
        ),
    )
    op_types = ("Add",)
    writes = "RotaryEmbedding"

    def begin(self, model: ir.Model) -> bool:
        """Forget the tables of another model."""
        self._tables = RotaryTables(self.initializers)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the pattern that ends in an Add."""
        match = _ROTARY_EMBEDDING.find(node)
        if match is None:
            return False
        x, tables = match["x"], [match["cosine"], match["sine"]]
        if x.shape is None or len(x.shape) != 4 or x.dtype not in _TYPES:
            return False
        if any(table.dtype != x.dtype for table in tables):
            return False
        halves = [self._tables.table(table, x, node) for table in tables]
        if any(half is None for half in halves):
            return False
        replace_match(node, "RotaryEmbedding", [x, *halves], [], self.opset)
        return True
