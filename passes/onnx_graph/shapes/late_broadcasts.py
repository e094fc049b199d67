"""ONNX pass: removes an Expand, an And with True, or an Or with False, whose readers repeat the value anyway.

1. Every reader repeats the mask anyway: an elementwise operator with an operand of the full size, perhaps
   after other elementwise operators and reductions along other axes, or an Attention.
2. Ranks and sizes are known, and the mask has the rank of the result, so that no reader sees another rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ..node_pass import ConstantPass, replace_by_value
from ..pass_order import Run

_NEUTRAL = {"And": True, "Or": False}
_UNARY = frozenset(("Cast", "Not", "Identity", "Neg"))
BROADCASTING = frozenset(
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Mul Or Sub Where Xor".split()
)
"""The elementwise operators of several operands."""
_REDUCTIONS = frozenset(("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"))
MAXIMUM_READERS = 64
_MASK_OF_ATTENTION = 3


class BroadcastLate(ConstantPass):
    """Lets the readers of a mask repeat it."""

    runs = (
        Run(
            "basic",
            after={
                "RemoveFoldedIdentities": "An Expand without effect would separate a mask from its readers."
            },
        ),
    )
    op_types: tuple[str, ...] = tuple(_NEUTRAL)
    trusts_names = False
    """Whether sizes of one name are equal."""

    def rewrite(self, node: ir.Node) -> bool:
        """Remove a node that only repeats a value."""
        result = node.outputs[0]
        for index, value in enumerate(node.inputs):
            mask = node.inputs[1 - index]
            if value is None or mask is None or not self._is_neutral(node, index):
                continue
            axes = _repeated_axes(mask, result, self.trusts_names)
            narrowed: list[ir.Value] = []
            if axes is None or not self._is_repeated(result, axes, narrowed):
                continue
            for repeated in narrowed:
                assert repeated.shape is not None
                repeated.shape = ir.Shape(
                    [1 if axis in axes else size for axis, size in enumerate(repeated.shape)]
                )
            replace_by_value(node, mask)
            return True
        return False

    def _is_neutral(self, node: ir.Node, index: int) -> bool:
        """Whether an input only gives the result its shape."""
        value = node.inputs[index]
        if node.op_type == "Expand":
            return index == 1
        if value is None or value.const_value is None or not self.initializers.is_constant(value):
            return False
        array = value.const_value.numpy()
        return bool(array.size) and bool((array == _NEUTRAL[node.op_type]).all())

    def _is_repeated(self, value: ir.Value, axes: frozenset[int], narrowed: list[ir.Value]) -> bool:
        """Whether every reader repeats a value along axes; `narrowed` collects values that become smaller."""
        if value.is_graph_output() or len(narrowed) >= MAXIMUM_READERS:
            return False
        narrowed.append(value)
        for node, _ in value.uses():
            # A reader in a sub-graph may see the shape of the value.
            if node.domain or len(node.outputs) != 1 or node.graph is not _graph(value):
                return False
            result = node.outputs[0]
            if result in narrowed:
                continue
            if node.op_type == "Attention" and value.shape is not None and len(value.shape) == 4:
                # It repeats its mask over the batch and the heads.
                readers = [index for index, operand in enumerate(node.inputs) if operand is value]
                if readers == [_MASK_OF_ATTENTION] and axes <= {0, 1}:
                    continue
                return False
            if node.op_type in BROADCASTING:
                if not _same_rank(result, value):
                    return False
                # The other operands give the result its size, so nothing narrower leaves this node.
                if self._is_covered(node, value, axes, narrowed):
                    continue
            elif not (node.op_type in _UNARY or self._reduces_others(node, axes)):
                return False
            if not _same_rank(result, value) or not self._is_repeated(result, axes, narrowed):
                return False
        return True

    def _is_covered(
        self, node: ir.Node, value: ir.Value, axes: frozenset[int], narrowed: list[ir.Value]
    ) -> bool:
        """Whether operands that keep their sizes have the result's size along all of the axes."""
        result = node.outputs[0].shape
        assert result is not None
        other_operands = [operand for operand in node.inputs if operand is not None and operand is not value]
        shapes = [
            operand.shape
            for operand in other_operands
            if operand not in narrowed and operand.shape is not None
        ]
        return all(
            any(
                len(shape) >= len(result) - axis and shape[axis - len(result)] == result[axis]
                for shape in shapes
            )
            for axis in axes
        )

    def _reduces_others(self, node: ir.Node, axes: frozenset[int]) -> bool:
        """Whether a node reduces other axes than these, and keeps the rank; its axes must be known."""
        keepdims, shape = node.attributes.get("keepdims"), node.inputs[0].shape if node.inputs[0] else None
        if (
            node.op_type not in _REDUCTIONS
            or shape is None
            or (keepdims is not None and not keepdims.as_int())
        ):
            return False
        attribute = node.attributes.get("axes")
        axes_input = node.inputs[1] if len(node.inputs) > 1 else None
        reduced_axes: Sequence[int] | None = attribute.as_ints() if attribute is not None else None
        if (
            axes_input is not None
            and self.initializers.is_constant(axes_input)
            and axes_input.const_value is not None
        ):
            reduced_axes = [int(axis) for axis in axes_input.const_value.numpy().reshape(-1)]
        return bool(reduced_axes) and not axes & {axis % len(shape) for axis in reduced_axes or ()}


class BroadcastNamed(BroadcastLate):
    """The same for sizes that have a name, and for Expand.

    Conversions of files omit the pass, because two sizes of one name may differ there.
    """

    runs = (Run("basic", after={"BroadcastLate": "It needs no names."}),)
    op_types = (*_NEUTRAL, "Expand")
    trusts_names = True


def _graph(value: ir.Value) -> ir.Graph | ir.Function | None:
    producer = value.producer()
    return producer.graph if producer is not None else None


def _same_rank(result: ir.Value, value: ir.Value) -> bool:
    return result.shape is not None and value.shape is not None and len(result.shape) == len(value.shape)


def _repeated_axes(mask: ir.Value, result: ir.Value, trusts_names: bool) -> frozenset[int] | None:
    """The axes along which the result repeats the mask; None if they are not known, or there are none."""
    if not _same_rank(mask, result):
        return None
    assert mask.shape is not None
    assert result.shape is not None
    axes = set()
    for axis, (narrow, wide) in enumerate(zip(mask.shape, result.shape, strict=True)):
        if narrow == wide and narrow is not None and (isinstance(narrow, int) or narrow.value is not None):
            continue
        is_wide = wide > 1 if isinstance(wide, int) else trusts_names and wide.value is not None
        if narrow != 1 or not is_wide:
            return None
        axes.add(axis)
    return frozenset(axes) or None
