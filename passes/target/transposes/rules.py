"""How nodes compute on the bases of their transposed inputs.

A rule is given a node and the permutations of its inputs, and returns the permutation of its outputs and the
edit that makes it compute on bases; None if it cannot. An edit does not touch inputs that have a form.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration.origins import inherit
from ....registration.schemas import omissible
from ..constants.initializers import Initializers
from . import permutations
from .permutations import Permutation

Edit = Callable[[], None]


class Turned(NamedTuple):
    """A node that computes on bases.

    Attributes:
        perm: for its outputs, whose bases are its new results.
        edit: changes its attributes and its inputs without a form.
    """

    perm: Permutation
    edit: Edit


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules for the nodes of one model.

    Attributes:
        opset: that of its nodes.
        known: its constants.
        resizes: whether Resize may work on other dimensions than the last ones, which not every engine can.
    """

    opset: int
    known: Initializers
    resizes: bool = False

    def turned(
        self, node: ir.Node, perms: Mapping[int, Permutation], operands: Sequence[ir.Value | None]
    ) -> Turned | None:
        """How a node computes on bases; None if it cannot.

        Args:
            perms: those of the inputs that have a form, by position; they are no identities.
            operands: the inputs, with the bases of those that are equal to them.
        """
        if node.domain or len({*perms.values()}) != 1:
            return None
        perm = next(iter(perms.values()))
        op_type = node.op_type
        if op_type in _POINTWISE:
            return self._pointwise(node, perms, perm, operands)
        rule = _RULES.get(op_type)
        if rule is None or (0 not in perms and op_type != "Concat"):
            return None
        return rule(self, node, perms, perm)

    def _pointwise(
        self,
        node: ir.Node,
        perms: Mapping[int, Permutation],
        perm: Permutation,
        operands: Sequence[ir.Value | None],
    ) -> Turned | None:
        """An operator whose operands broadcast: its constants are permuted, and its vectors reshaped."""
        if len(node.outputs) != 1:
            return None
        others = [
            (index, value)
            for index, value in enumerate(node.inputs)
            if value is not None and index not in perms
        ]
        edits = []
        for index, value in others:
            edit = self._aligned(node, index, value, operands[index] or value, perm)
            if edit is None:
                return None
            edits.append(edit)
        axis = node.attributes.get("axis")
        by_axis = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        if by_axis and (0 not in perms or "block_size" in node.attributes):
            return None

        def edit_all() -> None:
            for each in edits:
                each()
            if by_axis and any(
                value.shape is not None and math.prod(value.shape) != 1 for _, value in others
            ):
                place = 1 if axis is None else axis.as_int()
                self.put(node, ir.AttrInt64("axis", perm[place % len(perm)]))

        return Turned(perm, edit_all)

    def _aligned(
        self, node: ir.Node, index: int, value: ir.Value, base: ir.Value, perm: Permutation
    ) -> Edit | None:
        """Makes an operand without a form, or equal to its base, broadcast against bases."""
        shape = value.shape
        if shape is None or len(shape) > len(perm):
            return None
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return (lambda: None) if len(shape) <= 1 and shape.is_static() else None
        if all(size == 1 for size in shape):
            return lambda: None
        back = permutations.inverse(perm)
        if self.known.is_constant(value):
            return lambda: node.replace_input_with(index, self._permuted(node, value, back))
        if not shape.is_static():
            return None
        full = permutations.full_rank(shape.numpy(), len(perm))
        if not permutations.is_reshape(full, back):
            return None
        target = [full[axis] for axis in back]
        while len(target) > 1 and target[0] == 1:
            target.pop(0)

        def reshape() -> None:
            sizes = self.known.make(np.array(target, dtype=np.int64), "aligned_shape")
            name = self.known.unique(f"{node.name}/Reshape_{index}")
            made = ir.node("Reshape", [base, sizes], name=name)
            made.outputs[0].name = f"{name}_output_0"
            made.outputs[0].type, made.outputs[0].shape = value.type, ir.Shape(target)
            inherit(made, node)
            assert node.graph is not None
            node.graph.insert_before(node, made)
            node.replace_input_with(index, made.outputs[0])

        return reshape

    def _permuted(self, node: ir.Node, value: ir.Value, perm: Permutation) -> ir.Value:
        """A constant in the order of bases."""
        tensor = value.const_value
        assert tensor is not None
        shape = permutations.full_rank(tensor.shape.numpy(), len(perm))
        result = tuple(shape[axis] for axis in perm)
        small = tensor.size <= 4096
        if small:
            turned = tensor.numpy().reshape(shape).transpose(perm)
            return self.known.make(turned, value.name or "constant")

        def compute(array: np.ndarray) -> np.ndarray:
            result: np.ndarray = array.reshape(shape).transpose(perm)
            return result

        return self.known.derive([value], compute, tensor.dtype, result)

    def integers(self, node: ir.Node, name: str, index: int) -> list[int] | None:
        """Integers that are an attribute or a constant input; None if they are neither."""
        attribute = node.attributes.get(name)
        if attribute is not None:
            value = attribute.value
            return [int(value)] if isinstance(value, int) else [int(item) for item in value]
        given = node.inputs[index] if len(node.inputs) > index else None
        if given is None or given.const_value is None or given.is_graph_input():
            return None
        return [int(item) for item in given.const_value.numpy().reshape(-1)]

    def write(self, node: ir.Node, name: str, index: int, numbers: Sequence[int]) -> None:
        """Replace integers where they are: in the attribute, or in a new constant."""
        attribute = node.attributes.get(name)
        if attribute is not None:
            single = attribute.type == ir.AttributeType.INT
            self.put(node, ir.AttrInt64(name, numbers[0]) if single else ir.AttrInt64s(name, list(numbers)))
            return
        given = node.inputs[index]
        assert given is not None
        assert given.const_value is not None
        shape = given.const_value.shape.numpy()
        made = np.array(numbers, dtype=given.const_value.dtype.numpy()).reshape(shape)
        node.replace_input_with(index, self.known.make(made, f"{node.name or node.op_type}_{name}"))

    def put(self, node: ir.Node, attribute: ir.Attr) -> None:
        """Set an attribute; one that equals its default is left out."""
        node.attributes.pop(attribute.name, None)
        if not omissible(node.op_type, "", self.opset, attribute):
            node.attributes[attribute.name] = attribute


def _all_alone(node: ir.Node, perms: Mapping[int, Permutation]) -> bool:
    """Whether the data is the only input with a form."""
    return set(perms) == {0}


def _by_axis(default: int) -> Callable[..., Turned | None]:
    """An operator along one dimension, which its attribute `axis` names; the result has the same form."""

    def rule(
        rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
    ) -> Turned | None:
        given = node.attributes.get("axis")
        axis = default if given is None else given.as_int()
        if node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and rules.opset < _SOFTMAX_BY_AXIS:
            return None
        if node.op_type == "Gather":
            indices = node.inputs[1]
            if not _all_alone(node, perms) or indices is None or indices.shape is None:
                return None
            if len(indices.shape) == 0:
                place = axis % len(perm)
                moved = ir.AttrInt64("axis", perm[place])
                return Turned(permutations.without(perm, [place]), lambda: rules.put(node, moved))
            if len(indices.shape) != 1:
                return None
        elif not _all_alone(node, perms):
            return None
        return Turned(perm, lambda: rules.put(node, ir.AttrInt64("axis", perm[axis % len(perm)])))

    return rule


_SOFTMAX_BY_AXIS = 13
"""Below this opset, Softmax normalizes over all dimensions from its axis on."""


def _concat(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    axis = node.attributes["axis"].as_int() % len(perm)
    others = [
        (index, value) for index, value in enumerate(node.inputs) if index not in perms and value is not None
    ]
    for _, value in others:
        if not rules.known.is_constant(value) or value.shape is None or len(value.shape) != len(perm):
            return None
    back = permutations.inverse(perm)

    def edit() -> None:
        for index, value in others:
            node.replace_input_with(index, rules._permuted(node, value, back))
        rules.put(node, ir.AttrInt64("axis", perm[axis]))

    return Turned(perm, edit)


def _pad(rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation) -> Turned | None:
    if not _all_alone(node, perms):
        return None
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = rules.integers(node, "axes", 3)
        if axes is None:
            return None
        places = [perm[axis % len(perm)] for axis in axes]
        return Turned(perm, lambda: rules.write(node, "axes", 3, places))
    pads = rules.integers(node, "pads", 1)
    if pads is None or len(pads) != 2 * len(perm):
        return None
    back = permutations.inverse(perm)
    turned = [pads[axis] for axis in back] + [pads[len(perm) + axis] for axis in back]
    return Turned(perm, lambda: rules.write(node, "pads", 1, turned))


def _reduce(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    if not _all_alone(node, perms):
        return None
    keepdims = node.attributes.get("keepdims")
    kept = keepdims is None or keepdims.as_int() == 1
    given = "axes" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None)
    axes = rules.integers(node, "axes", 1)
    if not given or axes == []:
        noop = node.attributes.get("noop_with_empty_axes")
        if noop is not None and noop.as_int():
            return Turned(perm, lambda: None)
        return Turned(perm if kept else (), lambda: None)
    if axes is None:
        return None
    chosen = [axis % len(perm) for axis in axes]
    result = perm if kept else permutations.without(perm, chosen)
    return Turned(result, lambda: rules.write(node, "axes", 1, sorted(perm[axis] for axis in chosen)))


def _arg_reduce(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    given, keepdims = node.attributes.get("axis"), node.attributes.get("keepdims")
    axis = (0 if given is None else given.as_int()) % len(perm)
    kept = keepdims is None or keepdims.as_int() == 1
    result = perm if kept else permutations.without(perm, [axis])
    return Turned(result, lambda: rules.put(node, ir.AttrInt64("axis", perm[axis])))


def _squeeze(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    axes = rules.integers(node, "axes", 1)
    if axes is None or not _all_alone(node, perms):
        return None
    chosen = [axis % len(perm) for axis in axes]
    result = permutations.without(perm, chosen)
    return Turned(result, lambda: rules.write(node, "axes", 1, sorted(perm[axis] for axis in chosen)))


def _unsqueeze(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    axes = rules.integers(node, "axes", 1)
    if axes is None or not _all_alone(node, perms):
        return None
    rank = len(perm) + len(axes)
    return Turned(permutations.inserted(perm, [axis % rank for axis in axes]), lambda: None)


def _slice(rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation) -> Turned | None:
    axes = rules.integers(node, "axes", 3)
    if axes is None or not _all_alone(node, perms):
        return None
    return Turned(perm, lambda: rules.write(node, "axes", 3, [perm[axis % len(perm)] for axis in axes]))


def _tile(rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation) -> Turned | None:
    repeats = rules.integers(node, "repeats", 1)
    if repeats is None or len(repeats) != len(perm) or not _all_alone(node, perms):
        return None
    back = permutations.inverse(perm)
    return Turned(perm, lambda: rules.write(node, "repeats", 1, [repeats[axis] for axis in back]))


def _resize(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    """A Resize to the nearest pixel; onnxruntime interpolates along the last dimensions only."""
    mode, where = (node.attributes.get(name) for name in ("mode", "coordinate_transformation_mode"))
    if not rules.resizes or not _all_alone(node, perms):
        return None
    if mode is not None and mode.as_string() != "nearest":
        return None
    if where is not None and where.as_string() == "tf_crop_and_resize":
        return None
    axes = node.attributes.get("axes")
    if axes is not None:
        moved = ir.AttrInt64s("axes", [perm[axis % len(perm)] for axis in axes.as_ints()])
        return Turned(perm, lambda: rules.put(node, moved))
    sizes = [(place, value) for place, value in enumerate(node.inputs) if place and value is not None]
    if any(not rules.known.is_constant(value) for _, value in sizes):
        return None
    back = permutations.inverse(perm)

    def edit() -> None:
        for place, value in sizes:
            assert value.const_value is not None
            numbers = value.const_value.numpy()
            if numbers.size == len(perm):
                stem = value.name or "sizes"
                node.replace_input_with(place, rules.known.make(numbers[list(back)], stem))

    return Turned(perm, edit)


def _cumsum(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> Turned | None:
    axis = rules.integers(node, "axis", 1)
    if axis is None or len(axis) != 1 or not _all_alone(node, perms):
        return None
    return Turned(perm, lambda: rules.write(node, "axis", 1, [perm[axis[0] % len(perm)]]))


_POINTWISE = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
    "Cast Ceil Celu Clip Cos Cosh DequantizeLinear Div Elu Equal Erf Exp Floor Gelu Greater "
    "GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean "
    "Min Mish Mod Mul Neg Not Or PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign "
    "Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor".split()
)
_RULES: dict[str, Callable[..., Turned | None]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "TopK", "LpNormalization"), _by_axis(-1)),
    **dict.fromkeys(("Split", "Gather"), _by_axis(0)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_reduce),
    **dict.fromkeys(
        (
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
            "ReduceSum ReduceSumSquare"
        ).split(),
        _reduce,
    ),
    "Concat": _concat,
    "CumSum": _cumsum,
    "Pad": _pad,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Unsqueeze": _unsqueeze,
}


def has_rule(node: ir.Node) -> bool:
    """Whether nodes of this operator may be able to compute on bases."""
    return not node.domain and (node.op_type in _POINTWISE or node.op_type in _RULES)
