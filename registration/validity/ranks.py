"""The ranks and axes that operators require of their inputs, in tables from the operators' texts.

Unknown ranks and computed axes are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx_ir as ir

from ..inference.constant_integers import integers
from ..schemas import OperatorSchema
from .equations import equation_problem

_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
VECTORS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys([f"Reduce{name}" for name in _REDUCTIONS], (1,)),
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "Pad": (1, 3),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""The positions of inputs that are vectors. Some files have a scalar in place of a vector of one element."""

RANKS: dict[str, dict[int, tuple[int, int | None]]] = {
    "AffineGrid": {0: (3, 3), 1: (1, 1)},
    "Attention": {0: (3, 4), 1: (3, 4), 2: (3, 4), 4: (4, 4), 5: (4, 4)},
    "AveragePool": {0: (3, None)},
    "BatchNormalization": {0: (1, None), 1: (1, 1), 2: (1, 1), 3: (1, 1), 4: (1, 1)},
    "Conv": {0: (3, None), 2: (1, 1)},
    "ConvInteger": {0: (3, None)},
    "ConvTranspose": {0: (3, None), 2: (1, 1)},
    "CumProd": {1: (0, 1)},
    "CumSum": {1: (0, 1)},
    "DeformConv": {0: (3, None), 1: (3, None), 2: (3, None), 3: (1, 1)},
    "DepthToSpace": {0: (4, 4)},
    "Det": {0: (2, None)},
    "EyeLike": {0: (2, 2)},
    "GRU": {0: (3, 3), 1: (3, 3), 2: (3, 3), 3: (2, 2), 4: (1, 1), 5: (3, 3)},
    "Gather": {0: (1, None)},
    "GatherElements": {0: (1, None), 1: (1, None)},
    "GatherND": {0: (1, None), 1: (1, None)},
    "Gemm": {0: (2, 2), 1: (2, 2), 2: (0, 2)},
    "GlobalAveragePool": {0: (3, None)},
    "GlobalLpPool": {0: (3, None)},
    "GlobalMaxPool": {0: (3, None)},
    "GridSample": {0: (3, None), 1: (3, None)},
    "GroupNormalization": {0: (2, None), 1: (1, 1), 2: (1, 1)},
    "InstanceNormalization": {0: (2, None), 1: (1, 1), 2: (1, 1)},
    "LRN": {0: (2, None)},
    "LSTM": {0: (3, 3), 1: (3, 3), 2: (3, 3), 3: (2, 2), 4: (1, 1), 5: (3, 3), 6: (3, 3), 7: (2, 2)},
    "LpPool": {0: (3, None)},
    "MatMul": {0: (1, None), 1: (1, None)},
    "MatMulInteger": {0: (1, None), 1: (1, None)},
    "MaxPool": {0: (3, None)},
    "MaxRoiPool": {0: (4, 4), 1: (2, 2)},
    "MaxUnpool": {0: (3, None)},
    "Multinomial": {0: (2, 2)},
    "NegativeLogLikelihoodLoss": {0: (2, None), 2: (1, 1)},
    "NonMaxSuppression": {0: (3, 3), 1: (3, 3)},
    "QLinearConv": {0: (3, None), 3: (3, None), 8: (1, 1)},
    "QLinearMatMul": {0: (1, None), 3: (1, None)},
    "RNN": {0: (3, 3), 1: (3, 3), 2: (3, 3), 3: (2, 2), 4: (1, 1), 5: (3, 3)},
    "ReverseSequence": {0: (2, None), 1: (1, 1)},
    "RoiAlign": {0: (4, 4), 1: (2, 2), 2: (1, 1)},
    "RotaryEmbedding": {0: (3, 4), 1: (2, 3), 2: (2, 3), 3: (2, 2)},
    "ScatterElements": {0: (1, None), 1: (1, None)},
    "ScatterND": {0: (1, None), 1: (1, None)},
    "SoftmaxCrossEntropyLoss": {0: (2, None), 2: (1, 1)},
    "SpaceToDepth": {0: (4, 4)},
    "TopK": {0: (1, None)},
    "Trilu": {0: (2, None)},
}
"""The lowest and the highest rank of inputs by position; None is no bound."""

for _op_type, _positions in VECTORS.items():
    RANKS[_op_type] = dict.fromkeys(_positions, (0, 1)) | RANKS.get(_op_type, {})

EQUAL_RANKS: dict[str, tuple[int, ...]] = {
    "Attention": (0, 1, 2),
    "Conv": (0, 1),
    "ConvInteger": (0, 1),
    "ConvTranspose": (0, 1),
    "DeformConv": (0, 1),
    "GatherElements": (0, 1),
    "GridSample": (0, 1),
    "MaxUnpool": (0, 1),
    "QLinearConv": (0, 3),
    "Scatter": (0, 1, 2),
    "ScatterElements": (0, 1, 2),
}
"""Positions of inputs that must have equal ranks."""

AXES: dict[str, tuple[str, int]] = {
    **dict.fromkeys(
        "ArgMax ArgMin Gather GatherElements Hardmax LayerNormalization LogSoftmax LpNormalization "
        "RMSNormalization Scatter ScatterElements Softmax Split SplitToSequence TopK".split(),
        ("axis", 0),
    ),
    **dict.fromkeys([f"Reduce{name}" for name in _REDUCTIONS], ("axes", 0)),
    "CenterCropPad": ("axes", 0),
    "Compress": ("axis", 0),
    "Concat": ("axis", 0),
    "CumProd": ("axis", 0),
    "CumSum": ("axis", 0),
    "Flatten": ("axis", 1),
    "MeanVarianceNormalization": ("axes", 0),
    "OneHot": ("axis", 1),
    "Pad": ("axes", 0),
    "Resize": ("axes", 0),
    "Slice": ("axes", 0),
    "Squeeze": ("axes", 0),
    "Unique": ("axis", 0),
}
"""The attribute or input with axes of the first input, and by how much their range exceeds its rank."""

_WINDOWS = (
    "AveragePool Conv ConvInteger ConvTranspose DeformConv LpPool MaxPool MaxUnpool QLinearConv".split()
)
_PER_AXIS = {"dilations": 1, "kernel_shape": 1, "output_padding": 1, "pads": 2, "strides": 1}
"""How many numbers attributes of windows have for each spatial axis."""


def rank_of(value: ir.Value | None) -> int | None:
    """The rank of a value, None if it is unknown."""
    return None if value is None or value.shape is None else len(value.shape)


def rank_problem(node: ir.Node, schema: OperatorSchema) -> str | None:
    """Describe what is wrong with the ranks or the axes of a node; None if no problem is known."""
    inputs = node.inputs
    ranks = [rank_of(value) for value in inputs]
    for position, (lowest, highest) in RANKS.get(node.op_type, {}).items():
        rank = ranks[position] if position < len(ranks) else None
        if rank is not None and (rank < lowest or (highest is not None and rank > highest)):
            return f"its input '{schema.inputs[position].name}' has rank {rank}, {_bound(lowest, highest)}"
    equal = EQUAL_RANKS.get(node.op_type)
    problem = None if equal is None else _unequal(ranks[i] for i in equal if i < len(ranks))
    if problem is not None:
        return problem
    specific = _RULES.get(node.op_type)
    problem = None if specific is None else specific(node, ranks)
    return problem or _axes_problem(node, schema, ranks)


def _unequal(ranks: Iterable[int | None]) -> str | None:
    among = sorted({rank for rank in ranks if rank is not None})
    if len(among) < 2:
        return None
    return f"its inputs have the ranks {' and '.join(map(str, among))}, which must be equal"


def _bound(lowest: int, highest: int | None) -> str:
    if highest is None:
        return f"but needs {lowest} or more"
    return f"not {lowest}" if lowest == highest else f"not {lowest} to {highest}"


def _axes_problem(node: ir.Node, schema: OperatorSchema, ranks: Sequence[int | None]) -> str | None:
    rule = AXES.get(node.op_type)
    rank = ranks[0] if ranks else None
    if rule is None or rank is None:
        return None
    name, excess = rule
    axes = _numbers(node, schema, name)
    for axis in axes or ():
        # The axis of OneHot may be one more in both directions, that of Flatten only upwards.
        if not -rank - (excess if node.op_type == "OneHot" else 0) <= axis < rank + excess:
            return f"its axis {axis} is outside of an input of rank {rank}"
    if axes is not None and name == "axes" and len({axis % max(rank, 1) for axis in axes}) < len(axes):
        return f"its axes {axes} name an axis twice"
    return None


def _numbers(node: ir.Node, schema: OperatorSchema, name: str) -> list[int] | None:
    """The integers of an attribute or a constant input; the schema's default if there are none."""
    position = schema.input_index.get(name)
    if position is not None:
        return integers(node.inputs[position]) if position < len(node.inputs) else None
    attribute = node.attributes.get(name)
    if attribute is not None:
        # The value of a function's attribute comes from its caller.
        value: Any = None if attribute.is_ref() else attribute.value
    else:
        formal = schema.attributes.get(name)
        value = None if formal is None else formal.default
    return None if value is None else [value] if isinstance(value, int) else list(value)


def _attribute(node: ir.Node, name: str) -> Any:
    attribute = node.attributes.get(name)
    return None if attribute is None or attribute.is_ref() else attribute.value


def _concatenation(node: ir.Node, ranks: Sequence[int | None]) -> str | None:
    return _unequal(ranks) or ("its inputs have rank 0, and so no axis" if 0 in ranks else None)


def _transposition(node: ir.Node, ranks: Sequence[int | None]) -> str | None:
    order = _attribute(node, "perm")
    if order is None:
        return None
    if sorted(order) != list(range(len(order))):
        return f"its order {list(order)} is no permutation"
    if ranks[0] is not None and len(order) != ranks[0]:
        return f"its order of {len(order)} axes is for an input of rank {ranks[0]}"
    return None


def _unsqueeze(node: ir.Node, ranks: Sequence[int | None]) -> str | None:
    axes = _attribute(node, "axes") if len(node.inputs) < 2 else integers(node.inputs[1])
    if axes is None or ranks[0] is None:
        return None
    rank = ranks[0] + len(axes)
    outside = next((axis for axis in axes if not -rank <= axis < rank), None)
    if outside is not None:
        return f"its axis {outside} is outside of a result of rank {rank}"
    if len({axis % rank for axis in axes}) < len(axes):
        return f"its axes {list(axes)} name an axis twice"
    return None


def _einsum(node: ir.Node, ranks: Sequence[int | None]) -> str | None:
    equation = _attribute(node, "equation")
    return None if equation is None else equation_problem(equation, ranks)


def _windows(node: ir.Node, ranks: Sequence[int | None]) -> str | None:
    if ranks[0] is None:
        return None
    spatial = ranks[0] - 2
    for name, count in _PER_AXIS.items():
        numbers = _attribute(node, name)
        if numbers is not None and len(numbers) != count * spatial:
            return f"its {name} have {len(numbers)} numbers, and its input {spatial} spatial axes"
    return None


def _quantization(node: ir.Node, ranks: Sequence[int | None]) -> str | None:
    """The axis matters only where a scale belongs to each of several elements along it."""
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    axis = _attribute(node, "axis")
    if axis is None or ranks[0] is None or scale is None or scale.shape is None:
        return None
    # A scale of one element is for the whole tensor, whatever the axis says.
    if len(scale.shape) == 0 or (len(scale.shape) == 1 and scale.shape[0] in (0, 1)):
        return None
    if not -ranks[0] <= axis < ranks[0]:
        return f"its axis {axis} is outside of an input of rank {ranks[0]}"
    return None


_RULES: dict[str, Callable[[ir.Node, Sequence[int | None]], str | None]] = {
    **dict.fromkeys(_WINDOWS, _windows),
    "Concat": _concatenation,
    "DequantizeLinear": _quantization,
    "Einsum": _einsum,
    "QuantizeLinear": _quantization,
    "Transpose": _transposition,
    "Unsqueeze": _unsqueeze,
}

CHECKED = frozenset({*RANKS, *EQUAL_RANKS, *AXES, *_RULES})
"""The operators that have a rule."""


def position_of_axes(schema: OperatorSchema) -> int | None:
    """The position of the input whose contents an operator's rule reads; None if it reads none."""
    name = "axes" if _RULES.get(schema.name) is _unsqueeze else AXES.get(schema.name, ("", 0))[0]
    return schema.input_index.get(name)


def reads_sizes(schema: OperatorSchema) -> bool:
    """Whether an operator's rule reads sizes."""
    return _RULES.get(schema.name) is _quantization
