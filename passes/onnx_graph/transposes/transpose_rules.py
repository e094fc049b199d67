"""How nodes compute on the bases of their transposed inputs.

The base of a value is the value before a Transpose. A rule takes a node and the permutations of its inputs,
and returns the permutation of its outputs and the edit that makes it compute on bases, or None if it cannot.
An edit does not touch inputs that have a form, which the rewriter replaces by their bases.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration.inference.constant_integers import argument
from ....registration.origins import inherit
from ....registration.schemas import omissible
from ..constants.initializers import Initializers
from . import permutations
from .permutations import Permutation

Edit = Callable[[], None]


class NodeRewrite(NamedTuple):
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
        initializers: its constants.
        resizes: whether Resize may work on other dimensions than the last ones, which not every engine can.
    """

    opset: int
    initializers: Initializers
    resizes: bool = False

    def rewrite_of(
        self, node: ir.Node, perms: Mapping[int, Permutation], operands: Sequence[ir.Value | None]
    ) -> NodeRewrite | None:
        """The rewrite that makes a node compute on bases; None if there is none.

        Args:
            perms: those of the inputs that have a form, by position; they are no identities.
            operands: the inputs, with the bases of those that are equal to them.
        """
        # Operands in different orders would still need a Transpose.
        if node.domain or len({*perms.values()}) != 1:
            return None
        perm = next(iter(perms.values()))
        op_type = node.op_type
        if op_type in _POINTWISE:
            return self._pointwise(node, perms, perm, operands)
        if op_type == "Concat":
            return _concat(self, node, perms, perm)
        # The other inputs (indices, sizes, axes) name dimensions, which the rules change; they have no form.
        rule = _RULES.get(op_type) if perms.keys() == {0} else None
        return None if rule is None else rule(self, node, perm)

    def _pointwise(
        self,
        node: ir.Node,
        perms: Mapping[int, Permutation],
        perm: Permutation,
        operands: Sequence[ir.Value | None],
    ) -> NodeRewrite | None:
        """An operator whose operands broadcast: its constants are permuted, and its vectors reshaped."""
        if len(node.outputs) != 1:
            return None
        other_operands = [
            (index, value)
            for index, value in enumerate(node.inputs)
            if value is not None and index not in perms
        ]
        edits = []
        for index, value in other_operands:
            edit = self._align_operand(node, index, value, operands[index] or value, perm)
            if edit is None:
                return None
            edits.append(edit)
        axis = node.attributes.get("axis")
        by_axis = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        # Only the data may be transposed; with blocks, the scale has its rank and would need permuting too.
        if by_axis and (0 not in perms or "block_size" in node.attributes):
            return None

        def edit_all() -> None:
            for apply in edits:
                apply()
            if by_axis and any(
                value.shape is not None and math.prod(value.shape) != 1 for _, value in other_operands
            ):
                axis_number = 1 if axis is None else axis.as_int()
                self.set_attribute(node, ir.AttrInt64("axis", perm[axis_number % len(perm)]))

        return NodeRewrite(perm, edit_all)

    def _align_operand(
        self, node: ir.Node, index: int, value: ir.Value, base: ir.Value, perm: Permutation
    ) -> Edit | None:
        """The edit that makes an operand without a form, or equal to its base, broadcast against bases."""
        shape = value.shape
        if shape is None or len(shape) > len(perm):
            return None
        # Scale and zero point follow the axis, which `edit_all` moves; their own dimensions stay.
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return (lambda: None) if len(shape) <= 1 and shape.is_static() else None
        if all(size == 1 for size in shape):
            return lambda: None
        # Operands must come into the order of the base, which undoes the Transpose.
        back = permutations.inverse(perm)
        if self.initializers.is_constant(value):
            return lambda: node.replace_input_with(index, self.permute_constant(node, value, back))
        if not shape.is_static():
            return None
        full = permutations.full_rank(shape.numpy(), len(perm))
        # A real Transpose of the operand would save nothing.
        if not permutations.keeps_element_order(full, back):
            return None
        target = [full[axis] for axis in back]
        # Broadcasting adds leading dimensions of size 1 by itself.
        while len(target) > 1 and target[0] == 1:
            target.pop(0)

        def reshape() -> None:
            sizes = self.initializers.make(np.array(target, dtype=np.int64), "aligned_shape")
            name = self.initializers.unique(f"{node.name}/Reshape_{index}")
            reshape_node = ir.node("Reshape", [base, sizes], name=name)
            reshape_node.outputs[0].name = f"{name}_output_0"
            reshape_node.outputs[0].type, reshape_node.outputs[0].shape = value.type, ir.Shape(target)
            inherit(reshape_node, node)
            assert node.graph is not None
            node.graph.insert_before(node, reshape_node)
            node.replace_input_with(index, reshape_node.outputs[0])

        return reshape

    def permute_constant(self, node: ir.Node, value: ir.Value, perm: Permutation) -> ir.Value:
        """A constant in the order of bases."""
        tensor = value.const_value
        assert tensor is not None
        shape = permutations.full_rank(tensor.shape.numpy(), len(perm))
        result = tuple(shape[axis] for axis in perm)
        is_small = tensor.size <= 4096
        if is_small:
            permuted = tensor.numpy().reshape(shape).transpose(perm)
            return self.initializers.make(permuted, value.name or "constant")

        def compute(array: np.ndarray) -> np.ndarray:
            result: np.ndarray = array.reshape(shape).transpose(perm)
            return result

        return self.initializers.derive([value], compute, tensor.dtype, result)

    def integers(self, node: ir.Node, name: str, index: int) -> list[int] | None:
        """Integers that are an attribute or a constant input; None if they are neither."""
        return argument(node, name, index)

    def write_integers(self, node: ir.Node, name: str, index: int, numbers: Sequence[int]) -> None:
        """Replace integers where they are: in the attribute, or in a new constant."""
        attribute = node.attributes.get(name)
        if attribute is not None:
            single = attribute.type == ir.AttributeType.INT
            self.set_attribute(
                node, ir.AttrInt64(name, numbers[0]) if single else ir.AttrInt64s(name, list(numbers))
            )
            return
        constant = node.inputs[index]
        assert constant is not None
        assert constant.const_value is not None
        shape = constant.const_value.shape.numpy()
        array = np.array(numbers, dtype=constant.const_value.dtype.numpy()).reshape(shape)
        node.replace_input_with(index, self.initializers.make(array, f"{node.name or node.op_type}_{name}"))

    def set_attribute(self, node: ir.Node, attribute: ir.Attr) -> None:
        """Set an attribute; one that equals its default is left out."""
        node.attributes.pop(attribute.name, None)
        if not omissible(node.op_type, self.opset, attribute):
            node.attributes[attribute.name] = attribute


def _by_axis(default: int) -> Callable[[Rules, ir.Node, Permutation], NodeRewrite | None]:
    """An operator along one dimension, which its attribute `axis` names; the result has the same form."""

    def rule(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
        axis = node.attributes.get_int("axis", default)
        if node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and rules.opset < _SOFTMAX_BY_AXIS:
            return None
        if node.op_type == "Gather":
            indices = node.inputs[1]
            if indices is None or indices.shape is None:
                return None
            # Gather with a scalar index removes the dimension.
            if len(indices.shape) == 0:
                position = axis % len(perm)
                moved = ir.AttrInt64("axis", perm[position])
                return NodeRewrite(
                    permutations.remove_axes(perm, [position]), lambda: rules.set_attribute(node, moved)
                )
            if len(indices.shape) != 1:
                return None
        return NodeRewrite(
            perm, lambda: rules.set_attribute(node, ir.AttrInt64("axis", perm[axis % len(perm)]))
        )

    return rule


_SOFTMAX_BY_AXIS = 13
"""Before this opset, Softmax normalizes over all dimensions from its axis on."""


def _concat(
    rules: Rules, node: ir.Node, perms: Mapping[int, Permutation], perm: Permutation
) -> NodeRewrite | None:
    axis = node.attributes["axis"].as_int() % len(perm)
    constants = [
        (index, value) for index, value in enumerate(node.inputs) if index not in perms and value is not None
    ]
    for _, value in constants:
        if not rules.initializers.is_constant(value) or value.shape is None or len(value.shape) != len(perm):
            return None
    back = permutations.inverse(perm)

    def edit() -> None:
        for index, value in constants:
            node.replace_input_with(index, rules.permute_constant(node, value, back))
        rules.set_attribute(node, ir.AttrInt64("axis", perm[axis]))

    return NodeRewrite(perm, edit)


def _pad(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = rules.integers(node, "axes", 3)
        if axes is None:
            return None
        new_axes = [perm[axis % len(perm)] for axis in axes]
        return NodeRewrite(perm, lambda: rules.write_integers(node, "axes", 3, new_axes))
    pads = rules.integers(node, "pads", 1)
    if pads is None or len(pads) != 2 * len(perm):
        return None
    back = permutations.inverse(perm)
    new_pads = [pads[axis] for axis in back] + [pads[len(perm) + axis] for axis in back]
    return NodeRewrite(perm, lambda: rules.write_integers(node, "pads", 1, new_pads))


def _reduce(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    keeps_dims = node.attributes.get_int("keepdims", 1) == 1
    has_axes = "axes" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None)
    axes = rules.integers(node, "axes", 1)
    if not has_axes or axes == []:
        # With `noop_with_empty_axes` the operator returns its input; otherwise it reduces all dimensions.
        if node.attributes.get_int("noop_with_empty_axes", 0):
            return NodeRewrite(perm, lambda: None)
        return NodeRewrite(perm if keeps_dims else (), lambda: None)
    if axes is None:
        return None
    chosen = [axis % len(perm) for axis in axes]
    result = perm if keeps_dims else permutations.remove_axes(perm, chosen)
    return NodeRewrite(
        result, lambda: rules.write_integers(node, "axes", 1, sorted(perm[axis] for axis in chosen))
    )


def _arg_reduce(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    axis = node.attributes.get_int("axis", 0) % len(perm)
    keeps_dims = node.attributes.get_int("keepdims", 1) == 1
    result = perm if keeps_dims else permutations.remove_axes(perm, [axis])
    return NodeRewrite(result, lambda: rules.set_attribute(node, ir.AttrInt64("axis", perm[axis])))


def _squeeze(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    axes = rules.integers(node, "axes", 1)
    if axes is None:
        return None
    chosen = [axis % len(perm) for axis in axes]
    result = permutations.remove_axes(perm, chosen)
    return NodeRewrite(
        result, lambda: rules.write_integers(node, "axes", 1, sorted(perm[axis] for axis in chosen))
    )


def _unsqueeze(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    axes = rules.integers(node, "axes", 1)
    if axes is None:
        return None
    rank = len(perm) + len(axes)
    return NodeRewrite(permutations.insert_axes(perm, [axis % rank for axis in axes]), lambda: None)


def _slice(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    axes = rules.integers(node, "axes", 3)
    if axes is None:
        return None
    return NodeRewrite(
        perm, lambda: rules.write_integers(node, "axes", 3, [perm[axis % len(perm)] for axis in axes])
    )


def _tile(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    repeats = rules.integers(node, "repeats", 1)
    if repeats is None or len(repeats) != len(perm):
        return None
    back = permutations.inverse(perm)
    return NodeRewrite(
        perm, lambda: rules.write_integers(node, "repeats", 1, [repeats[axis] for axis in back])
    )


def _resize(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    """A Resize to the nearest pixel; onnxruntime interpolates along the last dimensions only."""
    if not rules.resizes:
        return None
    if node.attributes.get_string("mode", "nearest") != "nearest":
        return None
    if node.attributes.get_string("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    axes = node.attributes.get_ints("axes")
    if axes is not None:
        moved = ir.AttrInt64s("axes", [perm[axis % len(perm)] for axis in axes])
        return NodeRewrite(perm, lambda: rules.set_attribute(node, moved))
    sizes = [(index, value) for index, value in enumerate(node.inputs) if index and value is not None]
    if any(not rules.initializers.is_constant(value) for _, value in sizes):
        return None
    back = permutations.inverse(perm)

    def edit() -> None:
        for index, value in sizes:
            assert value.const_value is not None
            numbers = value.const_value.numpy()
            if numbers.size == len(perm):
                stem = value.name or "sizes"
                node.replace_input_with(index, rules.initializers.make(numbers[list(back)], stem))

    return NodeRewrite(perm, edit)


def _cumsum(rules: Rules, node: ir.Node, perm: Permutation) -> NodeRewrite | None:
    axis = rules.integers(node, "axis", 1)
    if axis is None or len(axis) != 1:
        return None
    return NodeRewrite(perm, lambda: rules.write_integers(node, "axis", 1, [perm[axis[0] % len(perm)]]))


_POINTWISE = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
    "Cast Ceil Celu Clip Cos Cosh DequantizeLinear Div Elu Equal Erf Exp Floor Gelu Greater "
    "GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean "
    "Min Mish Mod Mul Neg Not Or PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign "
    "Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor".split()
)
_RULES: dict[str, Callable[[Rules, ir.Node, Permutation], NodeRewrite | None]] = {
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
    "CumSum": _cumsum,
    "Pad": _pad,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Unsqueeze": _unsqueeze,
}
_WITH_RULES = _POINTWISE | _RULES.keys() | {"Concat"}


def has_rule(node: ir.Node) -> bool:
    """Whether nodes of this operator may be able to compute on bases."""
    return not node.domain and node.op_type in _WITH_RULES
