"""ONNX pass: removes an Expand, an And with True, or an Or with False, whose readers repeat the value anyway.

1. Every reader repeats the mask anyway: an elementwise operator with an operand of the full size, perhaps
   after other elementwise operators, reductions and joints of repeated values along other axes, or an
   Attention. A Gather of one position along a repeated axis reads the only one that remains.
2. Ranks and sizes are known, and the mask has the rank of the result, so that no reader sees another rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass, replace_by_value
from ..pass_order import Run
from ..row_operators import UNARY_BY_ROWS

_NEUTRAL = {"And": True, "Or": False}
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
            narrowed: dict[ir.Value, frozenset[int]] = {}
            if axes is None or not self._is_repeated(result, axes, narrowed):
                continue
            for repeated, narrow_axes in narrowed.items():
                self._narrow(repeated, narrow_axes)
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

    def _narrow(self, value: ir.Value, axes: frozenset[int]) -> None:
        """Give a value the size 1 along axes; a Gather along one of them reads the first position."""
        assert value.shape is not None
        value.shape = ir.Shape([1 if axis in axes else size for axis, size in enumerate(value.shape)])
        for node, _ in list(value.uses()):
            if node.op_type == "Gather" and _gathered_axis(node, value) in axes:
                node.replace_input_with(1, self.initializers.make(np.array(0, np.int64), "first_position"))

    def _is_repeated(
        self, value: ir.Value, axes: frozenset[int], narrowed: dict[ir.Value, frozenset[int]]
    ) -> bool:
        """Whether every reader repeats a value along axes; `narrowed` collects values that become smaller."""
        if value.is_graph_output() or len(narrowed) >= MAXIMUM_READERS:
            return False
        narrowed[value] = axes
        for node, _ in value.uses():
            # A reader in a sub-graph may see the shape of the value.
            if node.domain or len(node.outputs) != 1 or node.graph is not _graph(value):
                return False
            result = node.outputs[0]
            axes_of_result = self._axes_of_result(node, value, axes, narrowed)
            if axes_of_result is None or (axes_of_result and result.shape is None):
                return False
            if result in narrowed:
                if narrowed[result] != axes_of_result:
                    return False
            elif axes_of_result and not self._is_repeated(result, axes_of_result, narrowed):
                return False
        return True

    def _axes_of_result(
        self, node: ir.Node, value: ir.Value, axes: frozenset[int], narrowed: dict[ir.Value, frozenset[int]]
    ) -> frozenset[int] | None:
        """The axes along which the result of a reader repeats, too; None if the reader needs all elements."""
        result = node.outputs[0]
        readers = [index for index, operand in enumerate(node.inputs) if operand is value]
        if node.op_type == "Attention" and value.shape is not None and len(value.shape) == 4:
            # It repeats its mask over the batch and the heads.
            return frozenset() if readers == [_MASK_OF_ATTENTION] and axes <= {0, 1} else None
        if node.op_type == "Unsqueeze":
            inserted = self.initializers.integers(node, "axes", 1)
            if inserted is None or value.shape is None:
                return None
            rank = len(value.shape) + len(inserted)
            old_axes = sorted({*range(rank)} - {axis % rank for axis in inserted})
            return frozenset(old_axes[axis] for axis in axes)
        if node.op_type == "Gather":
            gathered = _gathered_axis(node, value)
            position = node.inputs[1]
            if gathered is None or position is None or not self.initializers.is_constant(position):
                return None
            if position.shape != ():
                return None
            return frozenset(axis - (axis > gathered) for axis in axes - {gathered})
        if not _same_rank(result, value):
            return None
        if node.op_type == "Concat":
            joins_equal = all(
                operand is not None and narrowed.get(operand) == axes for operand in node.inputs
            )
            assert result.shape is not None
            is_other_axis = node.attributes.get_int("axis", 0) % len(result.shape) not in axes
            return axes if joins_equal and is_other_axis else None
        if node.op_type in BROADCASTING:
            # Along axes of which another operand has the size, nothing narrower leaves this node.
            return self._axes_of_narrowed(node, value, axes, narrowed)
        return axes if node.op_type in UNARY_BY_ROWS or self._reduces_others(node, axes) else None

    def _axes_of_narrowed(
        self, node: ir.Node, value: ir.Value, axes: frozenset[int], narrowed: dict[ir.Value, frozenset[int]]
    ) -> frozenset[int]:
        """The axes along which no operand that keeps its sizes has the size of the result."""
        result = node.outputs[0].shape
        assert result is not None
        shapes = [
            operand.shape
            for operand in node.inputs
            if operand is not None and operand not in narrowed and operand.shape is not None
        ]
        return frozenset(
            axis
            for axis in axes
            if not any(
                len(shape) >= len(result) - axis and shape[axis - len(result)] == result[axis]
                for shape in shapes
            )
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


def _gathered_axis(node: ir.Node, value: ir.Value) -> int | None:
    """The axis along which a Gather reads a value; None if it reads it as positions."""
    if value.shape is None or node.inputs[0] is not value or node.inputs[1] is value:
        return None
    return node.attributes.get_int("axis", 0) % len(value.shape)


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
