"""Computes upper bounds on the ranks that shape inference would find for a model's values.

Ranks follow from other ranks and from the lengths of shape tensors, and a length may follow from a number:
`ConstantOfShape` of 2**40 gives a shape tensor from which `Expand` gets 2**40 dimensions. Most operators keep
the greatest rank of their inputs; the rules below are for the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import onnx
from onnx import numpy_helper

from ..files.reading.subgraphs import subgraphs

LARGEST_RANK = 1024
"""The assumed rank of a value whose shape tensor comes from a sub-graph or an unusual operator."""
_RANK_OF_IMAGES = 5
"""The assumed rank of the results of operators on images, windows and sequences."""
_MAXIMUM = 2**40
_SHAPE_ARITHMETIC = frozenset(
    "Abs Add Cast CastLike Ceil Div Equal Floor Greater Identity Less Max Min Mod Mul Neg Not Or And Pow "
    "Reshape Round Slice Squeeze Sub Unsqueeze Where Flatten ReduceProd ReduceMax ReduceMin ReduceSum".split()
)
"""Operators of shape arithmetic whose results are no longer than their inputs, and have no greater rank
unless a rule says so.
"""
_MAXIMUM_SHAPE_ELEMENTS = 64
"""The most integers of a constant that may be a shape."""
_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)


class RankBounds:
    """Bounds on the ranks of values, on their sizes, and on the integers in them, by name.

    A name that occurs twice gets the larger bound.

    Attributes:
        functions: whether the model has functions, which are not analysed.
    """

    def __init__(self, model: onnx.ModelProto):
        self._ranks: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._longest_name = 0
        self._total = 0
        self.functions = bool(model.functions)
        self._graph(model.graph)

    def dimensions(self) -> int:
        """The number of dimensions of all values together; a long name counts as several."""
        return self._total * (1 + self._longest_name // 64)

    def _graph(self, graph: onnx.GraphProto) -> None:
        for info in (*graph.value_info, *graph.input, *graph.output):
            self._state(info.name, info.type)
        for tensor in graph.initializer:
            self._put(tensor.name, len(tensor.dims), max(tensor.dims, default=1), _largest_number(tensor))
        for node in graph.node:
            self._node(node)

    def _state(self, name: str, value_type: onnx.TypeProto) -> None:
        while value_type.WhichOneof("value") in ("sequence_type", "optional_type"):
            value_type = getattr(value_type, str(value_type.WhichOneof("value"))).elem_type
        dims = value_type.tensor_type.shape.dim
        # A symbolic size does not determine a rank.
        self._put(name, len(dims), max((dim.dim_value for dim in dims), default=1))
        longest = max((len(dim.dim_param) for dim in dims), default=0)
        self._longest_name = max(self._longest_name, longest)

    def _put(self, name: str, rank: int, length: int, number: int = 0) -> None:
        # Bounds grow without end in a chain of nodes; beyond the maximum a model is too expensive anyway.
        rank, length, number = min(rank, _MAXIMUM), min(length, _MAXIMUM), min(number, _MAXIMUM)
        self._total += rank
        self._ranks[name] = max(rank, self._ranks.get(name, 0))
        self._lengths[name] = max(length, self._lengths.get(name, 0))
        if number:
            self._numbers[name] = max(number, self._numbers.get(name, 0))

    def rank(self, node: onnx.NodeProto, position: int) -> int:
        """Return the bound on the rank of an input of a node."""
        return self._ranks.get(node.input[position], 0) if position < len(node.input) else 0

    def length(self, node: onnx.NodeProto, position: int) -> int:
        """Return the bound on the length of an input of rank 1."""
        return self._lengths.get(node.input[position], 0) if position < len(node.input) else 0

    def number(self, node: onnx.NodeProto, position: int) -> int:
        """Return the bound on the absolute values of the integers in an input."""
        return self._numbers.get(node.input[position], 0) if position < len(node.input) else 0

    def _node(self, node: onnx.NodeProto) -> None:
        inner = subgraphs(node)
        ranks = [self._ranks.get(name, 0) for name in node.input]
        greatest = max(ranks, default=0)
        for graph in inner:
            for info in graph.input:
                # An input of a body may be any operand of the node.
                self._put(info.name, greatest, LARGEST_RANK)
            self._graph(graph)
            greatest = max([greatest, *(self._ranks.get(info.name, 0) for info in graph.output)])
        if inner:
            # Scan outputs of Loop and Scan have one more dimension.
            lengths = [self._lengths.get(name, 0) for name in node.input]
            lengths += [self._lengths.get(info.name, 0) for graph in inner for info in graph.output]
            rank, length = greatest + 1, max([LARGEST_RANK, *lengths])
            number = max([0, *(self._numbers.get(info.name, 0) for graph in inner for info in graph.output)])
        else:
            rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
            lowest = 0 if node.op_type in _SHAPE_ARITHMETIC else _RANK_OF_IMAGES
            rank = max(greatest, lowest) if rule is None else rule(self, node)
            length = self._result_length(node, rank)
            number = self._result_number(node)
        for name in node.output:
            if name:
                self._put(name, max(rank, 0), length, number)

    def _result_number(self, node: onnx.NodeProto) -> int:
        """Return the bound on the integers that data propagation finds in a result."""
        numbers = [self._numbers.get(name, 0) for name in node.input]
        match node.op_type:
            case "Constant":
                return max(map(_constant_number, node.attribute), default=0)
            case "Shape":
                return self.length(node, 0)
            case "Size":
                return _power(self.length(node, 0), self.rank(node, 0))
            case "Add" | "Sub":
                return sum(numbers)
            case "Mul":
                return math.prod(numbers)
            case "Slice" | "Gather":
                return self.number(node, 0)
            case "ReduceProd":
                return _power(self.number(node, 0), self.length(node, 0))
            case "ReduceSum" | "CumSum":
                return self.number(node, 0) * self.length(node, 0)
            # The bounds of base and exponent give no useful bound on a power.
            case "Pow":
                return _MAXIMUM
        return max(numbers, default=0)

    def _result_length(self, node: onnx.NodeProto, rank: int) -> int:
        if node.op_type == "Constant":
            lengths = [1]
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    lengths += attribute.t.dims
                lengths += [len(attribute.ints), len(attribute.floats), len(attribute.strings)]
            return max(lengths)
        lengths = [self._lengths.get(name, 0) for name in node.input]
        if node.op_type == "Shape":
            return self.rank(node, 0)
        if node.op_type == "Concat":
            return sum(lengths)
        if node.op_type == "Gather":
            return self.length(node, 1)
        if node.op_type == "Reshape":
            return max(_power(self.length(node, 0), self.rank(node, 0)), self.number(node, 1), 1)
        if node.op_type == "ConstantOfShape":
            return self.number(node, 0)
        if node.op_type in _SHAPE_ARITHMETIC:
            return max([1, *lengths])
        # Scales are floats, which are not tracked.
        if node.op_type in ("Resize", "Upsample"):
            return _MAXIMUM
        if node.op_type == "Tile":
            return self.length(node, 0) * max(1, self.number(node, 1))
        numbers = [self._numbers.get(name, 0) for name in node.input]
        stated = [abs(number) for attribute in node.attribute for number in attribute.ints]
        return 1 if rank == 0 else max(LARGEST_RANK, sum(lengths) + sum(numbers) + sum(stated))


def _constant_number(attribute: onnx.AttributeProto) -> int:
    if attribute.HasField("t"):
        return _largest_number(attribute.t)
    return int(max(abs(attribute.i), *map(abs, attribute.ints[:_MAXIMUM_SHAPE_ELEMENTS]), 0))


def _largest_number(tensor: onnx.TensorProto) -> int:
    """Return the largest absolute value in a constant that may be a shape; 0 for other constants."""
    is_few = tensor.data_type in _INTEGERS and math.prod(tensor.dims) <= _MAXIMUM_SHAPE_ELEMENTS
    if not is_few or not (tensor.raw_data or tensor.int64_data or tensor.int32_data):
        return 0
    return max(map(abs, numpy_helper.to_array(tensor).reshape(-1).tolist()), default=0)


def _power(base: int, exponent: int) -> int:
    # Python would compute powers of any length.
    return _MAXIMUM if base > 1 and exponent > _MAXIMUM.bit_length() else base**exponent


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _axes(bounds: RankBounds, node: onnx.NodeProto) -> int:
    attribute = _attribute(node, "axes")
    return len(attribute.ints) if attribute is not None else bounds.length(node, 1)


def _constant(bounds: RankBounds, node: onnx.NodeProto) -> int:
    return max((len(a.t.dims) if a.HasField("t") else 1 for a in node.attribute), default=0)


def _reduction_rank(bounds: RankBounds, node: onnx.NodeProto) -> int:
    keepdims = _attribute(node, "keepdims")
    axes = _attribute(node, "axes")
    # Axes in an input, from opset 13 or 18 on, are not known: assume that the rank stays.
    if keepdims is None or keepdims.i or axes is None:
        return bounds.rank(node, 0)
    return bounds.rank(node, 0) - len(axes.ints)


def _arg_reduction_rank(bounds: RankBounds, node: onnx.NodeProto) -> int:
    keepdims = _attribute(node, "keepdims")
    return bounds.rank(node, 0) - (keepdims is not None and not keepdims.i)


def _squeeze_rank(bounds: RankBounds, node: onnx.NodeProto) -> int:
    axes = _attribute(node, "axes")
    return bounds.rank(node, 0) - (len(axes.ints) if axes is not None else 0)


def _reshape_rank(bounds: RankBounds, node: onnx.NodeProto) -> int:
    shape = _attribute(node, "shape")
    return len(shape.ints) if shape is not None else bounds.length(node, 1)


def _equation(bounds: RankBounds, node: onnx.NodeProto) -> int:
    equation = _attribute(node, "equation")
    # An ellipsis of the equation stands for dimensions of the operands.
    letters = 0 if equation is None else len(re.sub(rb".*->", b"", equation.s))
    return letters + max((bounds.rank(node, i) for i in range(len(node.input))), default=0)


def _attribute_shape_rank(bounds: RankBounds, node: onnx.NodeProto) -> int:
    shape = _attribute(node, "shape")
    return 0 if shape is None else len(shape.ints)


def _rank_plus_one(bounds: RankBounds, node: onnx.NodeProto) -> int:
    return max((bounds.rank(node, i) for i in range(len(node.input))), default=0) + 1


_Rule = Callable[[RankBounds, onnx.NodeProto], int]
_RULES: dict[str, _Rule] = {
    "ArgMax": _arg_reduction_rank,
    "ArgMin": _arg_reduction_rank,
    "Col2Im": lambda bounds, node: 2 + bounds.length(node, 1),
    "ConcatFromSequence": _rank_plus_one,
    "Constant": _constant,
    "ConstantOfShape": lambda bounds, node: bounds.length(node, 0),
    "DFT": _rank_plus_one,
    "Einsum": _equation,
    "Expand": lambda bounds, node: max(bounds.rank(node, 0), bounds.length(node, 1)),
    "Flatten": lambda bounds, node: 2,
    "Gather": lambda bounds, node: bounds.rank(node, 0) - 1 + bounds.rank(node, 1),
    "GatherND": lambda bounds, node: bounds.rank(node, 0) + bounds.rank(node, 1),
    "Gemm": lambda bounds, node: 2,
    "NonZero": lambda bounds, node: 2,
    "OneHot": _rank_plus_one,
    "RandomNormal": _attribute_shape_rank,
    "RandomUniform": _attribute_shape_rank,
    "Range": lambda bounds, node: 1,
    "Reshape": _reshape_rank,
    "Shape": lambda bounds, node: 1,
    "Size": lambda bounds, node: 0,
    "Squeeze": _squeeze_rank,
    "StringSplit": _rank_plus_one,
    "Unsqueeze": lambda bounds, node: bounds.rank(node, 0) + _axes(bounds, node),
}
_RULES |= dict.fromkeys(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare".split(),
    _reduction_rank,
)
