"""ONNX pass: infers sizes that were unknown in the file, before attention and normalization are fused.

Files often compute the targets of their Reshapes. Once these are constants, or sizes of other values, the
number of heads follows from them:

    data [batch, 197, 192] -> Reshape [Shape(data)[0], 197, -1, 64]      gives      [batch, 197, 3, 64]

1. Applies to graphs with a Softmax, in opsets with Attention, and to graphs with a mean of values whose last
   size is unknown, in opsets with LayerNormalization.
2. Sizes that are known stay.
3. A Slice of a table of `n` rows up to a size `s` has the size Min(n, s); broadcast with `s` it is `s`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from ....registration.inference import shape_inference
from ....registration.inference.derived_sizes import UNKNOWN, broadcast, least, product, quotient
from ....registration.inference.shape_inference import Dim
from ....registration.inference.size_vectors import elements
from ..constants.fold_constants import FoldConstants
from ..node_pass import InitializerPass, NodePass, NodesByOperator, same_dimension
from ..pass_order import Run
from ..shapes.static_sizes import cut_size, integers

_END = 2**31 - 1
"""An end of a Slice from this number on means the end of the dimension."""


class RefineShapes(NodePass):
    """Replaces unknown sizes in the shapes of values; no node changes."""

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Refine the shapes of a graph that may have an operator written out whose fusion needs them."""
        self.opset = model.opset_imports.get("", 0)
        is_attention = self.schema("Attention") is not None and nodes.of(("Softmax",))
        is_normalization = self.schema("LayerNormalization") is not None and any(
            not _has_last_size(node.inputs[0]) for node in nodes.of(("ReduceMean",))
        )
        return bool(is_attention or is_normalization) and super().run(model, nodes)

    def rewrite(self, node: ir.Node) -> bool:
        """Infer the shape of a result."""
        result = node.outputs[0] if len(node.outputs) == 1 and not node.domain else None
        if result is None or (result.shape is not None and result.shape.is_static()):
            return False
        inferred = _infer_sizes(node)
        if inferred is None or (result.shape is not None and len(inferred) != len(result.shape)):
            return False
        current = [UNKNOWN] * len(inferred) if result.shape is None else [*result.shape]
        # A number is most precise; the operands' symbol is preferred to the result's, which others share.
        sizes = [
            old if isinstance(old, int) or new == UNKNOWN else new
            for old, new in zip(current, inferred, strict=True)
        ]
        if result.shape is not None and sizes == [*result.shape]:
            return False
        result.shape = ir.Shape(sizes)
        return True


class RefineAndFold(InitializerPass):
    """Refines shapes, and folds the values that become constant, such as the masks of shifted windows."""

    runs = (
        Run(
            "full",
            after={"RemoveUnusedBeforeFusion": "Unused nodes would count as readers of folded constants."},
        ),
    )

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Run both passes; most graphs have nothing to refine, and so nothing new to fold."""
        if not RefineShapes().run(model, nodes):
            return False
        FoldConstants(self.initializers).run(model, nodes)
        return True


def _infer_sizes(node: ir.Node) -> list[Dim] | None:
    """The sizes of a result that follow from its operands."""
    if node.op_type in _RULES:
        return _RULES[node.op_type](node)
    if node.op_type in shape_inference.BROADCASTING:
        shapes = [value.shape.dims for value in node.inputs if value is not None and value.shape is not None]
        return broadcast(shapes) if len(shapes) == len(node.inputs) else None
    attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
    inferred = shape_inference.infer(node.op_type, node.inputs, attributes)
    return None if inferred is None else list(inferred)


def _has_last_size(value: ir.Value | None) -> bool:
    """Whether the last size of a value is a number."""
    return value is not None and value.shape is not None and isinstance([0, *value.shape][-1], int)


def _reshape_sizes(node: ir.Node) -> list[Dim] | None:
    """The sizes that a Reshape outputs, as far as they follow from its shape input and its operand."""
    data, target = node.inputs
    sizes = elements(target)
    if data is None or data.shape is None or sizes is None:
        return None
    # A target of 0 copies the size of the operand, unless `allowzero` is set.
    if not node.attributes.get_int("allowzero", 0):
        sizes = [data.shape[index] if size == 0 else size for index, size in enumerate(sizes)]
    if sizes.count(-1) != 1 or any(size == UNKNOWN or size == 0 for size in (*sizes, *data.shape)):
        return [UNKNOWN if size == -1 else size for size in sizes]
    source_factors, target_factors = [*data.shape], []
    # Symbols that both sides share cancel, so that the quotient of the rest may be a number.
    for size in sizes:
        if not isinstance(size, int) and size in source_factors:
            source_factors.remove(size)
        elif size != -1:
            target_factors.append(size)
    unit: Dim = 1
    inferred = quotient(
        functools.reduce(product, source_factors, unit), functools.reduce(product, target_factors, unit)
    )
    return [inferred if size == -1 else size for size in sizes]


def _expand_sizes(node: ir.Node) -> list[Dim] | None:
    """The sizes that an Expand outputs."""
    data, sizes = node.inputs[0], elements(node.inputs[1])
    if data is None or data.shape is None or sizes is None:
        return None
    return broadcast([data.shape.dims, tuple(sizes)])


def _slice_sizes(node: ir.Node) -> list[Dim] | None:
    """The sizes that a Slice outputs."""
    data, starts, ends = node.inputs[0], elements(node.inputs[1]), elements(node.inputs[2])
    if data is None or data.shape is None or starts is None:
        return None
    count, rank = len(starts), len(data.shape)
    axes, steps = integers(node, 3, [*range(count)]), integers(node, 4, [1] * count)
    ends = [UNKNOWN] * count if ends is None else ends
    if axes is None or steps is None or not count == len(ends) == len(axes) == len(steps):
        return None
    sizes = [*data.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not -rank <= axis < rank or step == 0:
            return None
        sizes[axis] = _cut(sizes[axis], start, end, step)
    return sizes


def _cut(size: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """The number of elements that a Slice takes along one dimension."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return cut_size(size, start, end, step)
    # The size would depend on the start, which no symbol expresses.
    if (start, step) != (0, 1):
        return UNKNOWN
    if same_dimension(size, end) or (isinstance(end, int) and end >= _END):
        return size
    is_limited = isinstance(size, int) and isinstance(end, ir.SymbolicDim) and end.value is not None
    return least(size, end) if is_limited else UNKNOWN  # type: ignore[arg-type]


def _range_sizes(node: ir.Node) -> list[Dim] | None:
    """The length of a Range from 0 to a size."""
    start, limit, step = (elements(value) for value in node.inputs)
    return limit if start == [0] and step == [1] else None


_RULES: dict[str, Callable[[ir.Node], list[Dim] | None]] = {
    "ConstantOfShape": lambda node: elements(node.inputs[0]),
    "Expand": _expand_sizes,
    "Range": _range_sizes,
    "Reshape": _reshape_sizes,
    "Slice": _slice_sizes,
}
