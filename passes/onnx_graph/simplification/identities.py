"""ONNX pass: replaces arithmetic that returns its operand, bit for bit, by Identity.

    x * 1, x / 1, x ** 1, x + 0, x - 0, And(x, true), Or(x, false), Dropout in inference,
    Expand, Reshape, Resize and Tile to the same shape, Cast to the same type, Concat of one, Pad by nothing,
    Gather of positions from a Range of all positions, Gather of the only element as a list

1. For floats only -0.0 is neutral to Add, and only 0.0 to Sub: `-0.0 + 0.0` is 0.0.
2. The result has the shape of the operand, as far as that is known; else the node stays.
3. `RemoveIdentities` removes the Identity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from ..constants.initializers import Initializers
from ..node_pass import ConstantPass, NodePass, keeps_shape, producer_of, replace_node
from ..pass_order import Run


def _neutral(
    is_neutral: Callable[[np.ndarray], bool], right_only: bool = False
) -> Callable[..., ir.Value | None]:
    """The rule of a binary operator: the operand whose partner is a constant that changes nothing."""

    def rule(initializers: Initializers, node: ir.Node) -> ir.Value | None:
        if len(node.inputs) != 2 or node.attributes:
            return None
        a, b = node.inputs
        for operand, constant in ((a, b),) if right_only else ((a, b), (b, a)):
            array = initializers.small_array(constant)
            if array is None or operand is None or not array.size or operand is constant:
                continue
            if operand.dtype is None and array.dtype.kind == "f":
                continue
            if keeps_shape(operand, array.shape) and is_neutral(array):
                return operand
        return None

    return rule


def _is_one(array: np.ndarray) -> bool:
    # The first element tells most weights apart from ones.
    return array.dtype.kind != "b" and array.item(0) == 1 and bool((array == 1).all())


def _is_zero(sign: bool) -> Callable[[np.ndarray], bool]:
    def test(array: np.ndarray) -> bool:
        if array.item(0):
            return False
        if array.dtype.kind in "iu":
            return not array.any()
        return not array.any() and bool((np.signbit(array) == sign).all())

    return test


def _has_sizes(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    """Expand or Reshape to the shape that the operand has."""
    operand, target = (
        node.inputs[0],
        initializers.small_array(node.inputs[1] if len(node.inputs) > 1 else None),
    )
    if operand is None or target is None or operand.shape is None:
        return None
    sizes, shape = target.tolist(), operand.shape
    if node.op_type == "Expand":
        return operand if keeps_shape(operand, tuple(sizes)) else None
    if len(sizes) != len(shape):
        return None
    copies = not node.attributes.get_int("allowzero", 0)
    open_ended = sum(
        not (size == operand_size or (size == 0 and copies))
        for size, operand_size in zip(sizes, shape, strict=True)
    )
    # With a size of 0, the size for -1 would not follow from the number of elements.
    has_no_zero = all(
        size == -1 or (isinstance(operand_size, int) and operand_size > 0)
        for size, operand_size in zip(sizes, shape, strict=True)
    )
    return operand if open_ended == 0 or (open_ended == 1 and -1 in sizes and has_no_zero) else None


def _same_type(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    operand = node.inputs[0]
    if operand is None or operand.dtype is None:
        return None
    return operand if operand.dtype == node.attributes.get_int("to") else None


def _dropout(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is not None:
        is_training = initializers.small_array(training)
        if is_training is None or is_training.any():
            return None
    return node.inputs[0]


def _only_operand(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    """The operand of a variadic operator that has only one."""
    return node.inputs[0] if len(node.inputs) == 1 else None


def _tile(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    # Tile 1 has three inputs and another meaning.
    repeats = initializers.small_array(node.inputs[1] if len(node.inputs) == 2 else None)
    return node.inputs[0] if repeats is not None and (repeats == 1).all() else None


def _pad(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    pads = initializers.integers(node, "pads", 1)
    return node.inputs[0] if pads is not None and not any(pads) else None


def _transpose(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    perm = node.attributes.get_ints("perm")
    return node.inputs[0] if perm is not None and [*perm] == [*range(len(perm))] else None


def _slice(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    """The operand of a Slice that takes all of it."""
    operand = node.inputs[0]
    arrays = [initializers.small_array(value) for value in node.inputs[1:]]
    if operand is None or operand.shape is None or len(arrays) < 2 or any(array is None for array in arrays):
        return None
    numbers = [array.tolist() for array in arrays if array is not None]
    starts, ends = numbers[:2]
    axes = numbers[2] if len(numbers) > 2 else [*range(len(starts))]
    steps = numbers[3] if len(numbers) > 3 else [1] * len(starts)
    rank = len(operand.shape)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -rank <= axis < rank:
            return None
        size = operand.shape[axis]
        is_end = end >= _ENDLESS or (isinstance(size, int) and end >= size)
        if start != 0 or step != 1 or not is_end:
            return None
    return operand


def _clip(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    """The operand of a Clip below 0, if it has no negative elements."""
    if producer_of(node.inputs[0], "Abs", "Exp", "Relu", "Sigmoid", "Softmax", "Softplus") is None:
        return None
    # Before opset 11, the bounds are attributes.
    low, high = (initializers.small_array(value) for value in [*node.inputs, None, None][1:3])
    is_low = low is not None and low.size == 1 and low.item() <= 0
    is_open = len(node.inputs) < 3 or node.inputs[2] is None or (high is not None and np.isposinf(high).all())
    return node.inputs[0] if is_low and is_open else None


def _gather(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    """The only element of a list, or the indices of a Gather from 0, 1, 2, …, if they are not negative."""
    data, indices = node.inputs
    if data is None or indices is None or data.shape is None:
        return None
    positions = initializers.small_array(indices)
    if [*data.shape] == [1] and positions is not None and positions.shape == (1,):
        return data
    if data.dtype != indices.dtype:
        return None
    if len(data.shape) != 1 or not _counts_from_zero(initializers, data, _SAME_ORDER):
        return None
    return indices if _counts_from_zero(initializers, indices, (*_SAME_ORDER, "Expand")) else None


def _counts_from_zero(initializers: Initializers, value: ir.Value, passed: tuple[str, ...]) -> bool:
    """Whether the elements are those of a Range from 0 in steps of 1, behind some operators."""
    node = producer_of(value, "Range", *passed)
    while node is not None and node.op_type != "Range":
        node = producer_of(node.inputs[0], "Range", *passed)
    start, step = (initializers.small_array(node.inputs[i]) if node is not None else None for i in (0, 2))
    return start is not None and step is not None and not start.any() and bool((step == 1).all())


_SAME_ORDER = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def _resize(initializers: Initializers, node: ir.Node) -> ir.Value | None:
    """The operand of a Resize to its own sizes, such as position embeddings at the size of training."""
    operand, coordinates = node.inputs[0], node.attributes.get_string("coordinate_transformation_mode")
    # The others read another pixel than the one at the same position, or a part of the image.
    if coordinates in ("tf_crop_and_resize", "tf_half_pixel_for_nn"):
        return None
    # Before opset 11, Resize has two inputs.
    inputs = [*node.inputs, None, None, None]
    scales, sizes = (inputs[1], None) if len(node.inputs) == 2 else inputs[2:4]
    factors, counts = initializers.small_array(scales), initializers.small_array(sizes)
    if sizes is None:
        return operand if factors is not None and factors.size and (factors == 1).all() else None
    if operand is None or operand.shape is None or counts is None:
        return None
    axes = node.attributes.get_ints("axes") or range(len(operand.shape))
    return operand if [operand.shape[axis] for axis in axes] == counts.tolist() else None


_ENDLESS = 2**31 - 1
"""No dimension of a model has this size: exporters write such ends for "to the end"."""


_RULES: dict[str, Callable[[Initializers, ir.Node], ir.Value | None]] = {
    # x + -0.0 is x for every x, but -0.0 + 0.0 is 0.0; for Sub it is the other way round.
    "Add": _neutral(_is_zero(sign=True)),
    "And": _neutral(lambda array: bool(array.all())),
    "Cast": _same_type,
    "Clip": _clip,
    "Concat": _only_operand,
    "Div": _neutral(_is_one, right_only=True),
    "Dropout": _dropout,
    "Expand": _has_sizes,
    "Gather": _gather,
    "Max": _only_operand,
    "Mean": _only_operand,
    "Min": _only_operand,
    "Mul": _neutral(_is_one),
    "Or": _neutral(lambda array: not array.any()),
    "Pad": _pad,
    "Pow": _neutral(_is_one, right_only=True),
    "Reshape": _has_sizes,
    "Resize": _resize,
    "Slice": _slice,
    "Sub": _neutral(_is_zero(sign=False), right_only=True),
    "Sum": _only_operand,
    "Tile": _tile,
    "Transpose": _transpose,
    "Xor": _neutral(lambda array: not array.any()),
}


class RemoveIdentityArithmetic(ConstantPass):
    """Replaces nodes that change nothing by Identity."""

    runs = (
        Run("basic", after={"MergeEqualNodes": "Equal nodes are examined once."}),
        Run(
            "basic",
            after={
                "RemoveUniformValues": "Operands have become neutral constants.",
                "MergeShapeChains": "A merged Reshape may have no effect.",
                "SimplifyGathers": "A Reshape that it writes may have no effect.",
            },
            name="RemoveFoldedArithmetic",
        ),
    )
    op_types = tuple(_RULES)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node by the rule of its operator."""
        further_outputs = node.outputs[1:]
        if further_outputs and any(value.uses() or value.is_graph_output() for value in further_outputs):
            return False
        operand = _RULES[node.op_type](self.initializers, node)
        if operand is None:
            return False
        result = node.outputs[0]
        result.type, result.shape = result.type or operand.type, result.shape or operand.shape
        replace_node(node, "Identity", [operand])
        return True


class RemoveIdentities(NodePass, common.IdentityEliminationPass):
    """Removes Identity, but not copies by which a sub-graph returns an outer or repeated value."""

    runs = (
        Run("basic", after={"RemoveIdentityArithmetic": "It writes Identity for arithmetic without effect."}),
        Run(
            "basic",
            after={"RemoveFoldedArithmetic": "It writes Identity for arithmetic without effect."},
            name="RemoveFoldedIdentities",
        ),
    )
    op_types = ("Identity",)

    def rewrite(self, node: ir.Node) -> bool:
        """Remove an Identity."""
        return self._try_eliminate_identity_node(node)

    def _try_eliminate_identity_node(self, node: ir.Node) -> bool:
        source = node.inputs[0] if node.inputs else None
        if source is not None:
            output = node.outputs[0]
            ranks = {len(value.shape) for value in (source, output) if value.shape is not None}
            if len(ranks) > 1:
                return False
            producer = source.producer()
            if output.is_graph_output() and (
                producer is None or producer.graph is not node.graph or source.is_graph_output()
            ):
                return False
        return super()._try_eliminate_identity_node(node)
