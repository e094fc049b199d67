"""Reads the body of a loop as expressions over its input, its states and weights."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext, Value
from ....registration.arguments import arguments
from ..loop_variables import origin
from .expressions import INPUT, Algebra, LoopOperand, Mapped, SideBySide, Term, Weights, width_of

_MAXIMUM_NODES = 256
"""Maximum nodes of a body that is read. The cells of Keras and TensorFlow have fewer than 100."""
_ACTIVATIONS = {name: (name, 0.0, 0.0) for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}
_ACTIVATIONS["Elu"] = ("Elu", 1.0, 0.0)
READS = {"TensorListGetItem": ("input_handle", "index"), "TensorArrayReadV3": ("flow_in", "index")}
"""The operators that read an element of a list, with the names of their arguments list and position."""


@dataclasses.dataclass
class Iteration:
    """The results of an iteration.

    Attributes:
        results: a term for each variable after it; None for lists and for values that no recurrent operator
            computes.
        terms: the terms of the body's values.
        sequence: the index of the list whose element an iteration reads; None if it reads none.
        algebra: the algebra that made the expressions.
    """

    results: list[Term | None]
    terms: Mapping[Value, Term]
    sequence: int | None
    algebra: Algebra


@dataclasses.dataclass(frozen=True)
class InitialValue:
    """The initial value of a loop variable; a counter is the number of the iteration."""

    value: Value
    is_invariant: bool
    is_counter: bool


def read_iteration(
    g: GraphContext, body: ir.Graph, initial_values: Sequence[InitialValue]
) -> Iteration | None:
    """Read a body; None if it is too large, or reads several lists."""
    if len(body) > _MAXIMUM_NODES:
        return None
    reader = _TermReader(g, body, initial_values)
    for node in body:
        rule = _RULES.get(node.op_type)
        # A value may lack a term as long as no result depends on it.
        results = rule(reader, arguments(node), node) if rule is not None and node.domain == "tf" else []
        if not isinstance(results, list):
            results = [results]
        for value, term in zip(node.outputs, results, strict=False):
            if term is not None:
                reader.terms[value] = term
    # A recurrent operator has one input sequence.
    if reader.sequences - {reader.sequence}:
        return None
    results = [reader.term(value) for value in body.outputs]
    return Iteration(results, reader.terms, reader.sequence, reader.algebra)


class _TermReader:
    """The terms of a body's values, and the indices of the lists whose elements it reads."""

    def __init__(self, g: GraphContext, body: ir.Graph, initial_values: Sequence[InitialValue]):
        self.algebra = Algebra()
        self.terms: dict[Value, Term] = {}
        self.sequences: set[int] = set()
        self._g, self._initial_values = g, initial_values
        self._positions = {value: position for position, value in enumerate(body.inputs)}
        for formal, initial in zip(body.inputs, initial_values, strict=True):
            term = self._invariant(initial.value) if initial.is_invariant else None
            if not initial.is_invariant and not initial.is_counter:
                shape = g.shape(initial.value)
                width = shape[1] if shape is not None and len(shape) == 2 else None
                position = self._positions[formal]
                term = self.algebra.make(LoopOperand, position, width if isinstance(width, int) else None)
            if term is not None:
                self.terms[formal] = term

    @property
    def sequence(self) -> int | None:
        """The index of the first list whose elements are read; None if there is none."""
        return min(self.sequences, default=None)

    def _invariant(self, value: Value) -> Term | None:
        shape = self._g.shape(value)
        if shape is not None and not shape:
            return _number(self._g.constant_value(value) if self._g.is_foldable(value) else None)
        sizes = [size for size in shape or () if isinstance(size, int)]
        return _weights(value, sizes) if shape is not None and len(sizes) == len(shape) else None

    def term(self, value: Any) -> Term | None:
        """The term of a value; constants of the source graph are weights or numbers."""
        if not isinstance(value, Value):
            return None
        if value not in self.terms and value.const_value is not None:
            array = value.const_value.numpy()
            term: Term | None = _number(array)
            if array.ndim and array.dtype.kind == "f":
                term = _weights(self._g.constant(array), array.shape)
            if term is not None:
                self.terms[value] = term
        return self.terms.get(value)

    def position_of(self, value: Any) -> int | None:
        """The index of the loop variable that a value equals; None if it is another value."""
        return self._positions.get(origin(value)) if isinstance(value, Value) else None

    def element(self, items: Any, index: Any) -> Term | None:
        """The element of a list at the iteration's index."""
        position, counter = self.position_of(items), self.position_of(index)
        if position is None or counter is None:
            return None
        # Element i of a constant list in iteration i is a step of the input sequence.
        if not self._initial_values[position].is_invariant or not self._initial_values[counter].is_counter:
            return None
        self.sequences.add(position)
        shape = self._g.shape(self._initial_values[position].value)
        # A sequence is [time, batch, features].
        width = shape[2] if shape is not None and len(shape) == 3 else None
        result: Term | None = self.algebra.make(LoopOperand, INPUT, width if isinstance(width, int) else None)
        return result


def _number(array: np.ndarray | None) -> float | None:
    if array is None or array.ndim or array.dtype.kind != "f":
        return None
    return float(array)


def _weights(value: Value, sizes: Sequence[int]) -> Weights | None:
    if len(sizes) not in (1, 2) or not all(sizes):
        return None
    return Weights(value, tuple((0, size) for size in sizes), tuple(range(len(sizes))))


def _integers(value: Any) -> list[int] | None:
    """The elements of a small constant of the source graph; None for other values."""
    tensor = value.const_value if isinstance(value, Value) else None
    # Axes, bounds and sizes of a cell are short; larger constants are weights.
    if tensor is None or tensor.size > 8 or tensor.numpy().dtype.kind not in "iu":
        return None
    return [int(item) for item in tensor.numpy().reshape(-1)]


OptionalTerm = Term | None
Rule = Callable[[_TermReader, Mapping[str, Any], ir.Node], "OptionalTerm | list[OptionalTerm]"]


def _identity(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    return r.term(node.inputs[0])


def _element(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    items, index = READS[node.op_type]
    return r.element(node_arguments[items], node_arguments[index])


def _activation(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a = r.term(node.inputs[0])
    if a is None or isinstance(a, (float, Weights)):
        return None
    if node.op_type == "Relu6":
        return r.algebra.clip(a, 0.0, 6.0)
    if node.op_type == "LeakyRelu":
        result: OptionalTerm = r.algebra.make(Mapped, "LeakyRelu", float(node_arguments["alpha"]), 0.0, a)
        return result
    result = r.algebra.make(Mapped, *_ACTIVATIONS[node.op_type], a)
    return result


def _add_or_multiply(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a, b = r.term(node.inputs[0]), r.term(node.inputs[1])
    combine = r.algebra.multiply if node.op_type == "Mul" else r.algebra.add
    return None if a is None or b is None else combine(a, b)


def _subtract(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a, b = r.term(node_arguments["x"]), r.term(node_arguments["y"])
    if isinstance(b, float) and a is not None and not isinstance(a, (float, Weights)):
        return r.algebra.affine(a, 1.0, -b)
    if isinstance(a, float) and b is not None and not isinstance(b, (float, Weights)):
        return r.algebra.affine(b, -1.0, a)
    return None


def _divide(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a, b = r.term(node_arguments["x"]), r.term(node_arguments["y"])
    if a is None or isinstance(a, (float, Weights)) or not isinstance(b, float) or b == 0:
        return None
    return r.algebra.affine(a, 1 / b, 0.0)


def _bound(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a, b = r.term(node_arguments["x"]), r.term(node_arguments["y"])
    if isinstance(a, float):
        a, b = b, a
    if a is None or isinstance(a, (float, Weights)) or not isinstance(b, float):
        return None
    return r.algebra.clip(a, *((b, np.inf) if node.op_type == "Maximum" else (-np.inf, b)))


def _clip(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a = r.term(node_arguments["t"])
    low, high = r.term(node_arguments["clip_value_min"]), r.term(node_arguments["clip_value_max"])
    if a is None or isinstance(a, (float, Weights)):
        return None
    if not isinstance(low, float) or not isinstance(high, float) or low > high:
        return None
    return r.algebra.clip(a, low, high)


def _matmul(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a, b = r.term(node_arguments["a"]), r.term(node_arguments["b"])
    if a is None or b is None or node_arguments["transpose_a"] or node_arguments["transpose_b"]:
        return None
    return r.algebra.matmul(a, b)


def _concatenate(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    parts = [r.term(value) for value in node_arguments["values"]]
    if any(part is None or isinstance(part, (float, Weights)) for part in parts):
        return None
    is_last_axis = _integers(node_arguments["axis"]) in ([1], [-1])
    return r.algebra.make(SideBySide, tuple(parts)) if is_last_axis else None


def _split(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> list[OptionalTerm]:
    """Split into equal parts, or by the sizes of SplitV, where -1 is the remaining size."""
    a, axes = r.term(node_arguments["value"]), _integers(node_arguments["split_dim"])
    if a is None or isinstance(a, float) or axes is None or len(axes) != 1:
        return []
    rank = len(a.shape) if isinstance(a, Weights) else 2
    axis = axes[0] % rank
    size = a.shape[axis] if isinstance(a, Weights) else width_of(a)
    # The rows of an expression are the batch, which a recurrent operator does not split.
    if size is None or (axis == 0 and not isinstance(a, Weights)):
        return []
    sizes = [size // len(node.outputs)] * len(node.outputs)
    if node.op_type == "SplitV":
        counts = _integers(node_arguments["size_splits"]) or []
        sizes = [size - sum(counts) - 1 if count == -1 else count for count in counts]
    if sum(sizes) != size or min(sizes) <= 0:
        return []
    ends = list(itertools.accumulate(sizes))
    part_ranges = zip([0, *ends], ends, strict=False)
    if isinstance(a, Weights):
        return [a.part(axis, *part_range) for part_range in part_ranges]
    return [r.algebra.columns(a, *part_range) for part_range in part_ranges]


def _unpack(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> list[OptionalTerm]:
    a = r.term(node_arguments["value"])
    if not isinstance(a, Weights):
        return []
    axis = node_arguments["axis"] % len(a.shape)
    if a.shape[axis] != len(node.outputs) or len(a.shape) != 2:
        return []
    return [a.part(axis, index, index + 1).without(axis) for index in range(len(node.outputs))]


def _squeeze(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    a, dims = r.term(node_arguments["input"]), node_arguments["squeeze_dims"]
    # Expressions are matrices, which the operators of recurrent cells do not squeeze.
    if not isinstance(a, Weights) or len(a.shape) != 2 or not dims or len(dims) != 1:
        return None
    axis = dims[0] % 2
    return a.without(axis) if a.shape[axis] == 1 else None


def _slice(r: _TermReader, node_arguments: Mapping[str, Any], node: ir.Node) -> OptionalTerm:
    """A slice with step 1 along each axis; an expression must keep all rows."""
    a = r.term(node_arguments["input"])
    if a is None or isinstance(a, float):
        return None
    bounds = [_integers(node_arguments[name]) for name in ("begin", "end", "strides")]
    if any(node_arguments[name] for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")):
        return None
    sizes: list[int | None] = list(a.shape) if isinstance(a, Weights) else [None, width_of(a)]
    begins, ends, strides = bounds
    if begins is None or ends is None or strides is None or len(begins) > len(sizes):
        return None
    for axis, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        size = sizes[axis]
        from_first, to_last = node_arguments["begin_mask"] >> axis & 1, node_arguments["end_mask"] >> axis & 1
        # All elements of an axis whose size is unknown.
        if stride == 1 and size is None and from_first and to_last:
            continue
        if stride != 1 or size is None:
            return None
        first, last, _ = slice(None if from_first else begin, None if to_last else end).indices(size)
        if first >= last:
            return None
        block = a.part(axis, first, last) if isinstance(a, Weights) else r.algebra.columns(a, first, last)
        if block is None or isinstance(block, float):
            return None
        a = block
    return a


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient", "Snapshot"), _identity),
    **dict.fromkeys(READS, _element),
    **dict.fromkeys((*_ACTIVATIONS, "LeakyRelu", "Relu6"), _activation),
    **dict.fromkeys(("Add", "AddV2", "BiasAdd", "Mul"), _add_or_multiply),
    "Sub": _subtract,
    "RealDiv": _divide,
    **dict.fromkeys(("Maximum", "Minimum"), _bound),
    "ClipByValue": _clip,
    "MatMul": _matmul,
    "ConcatV2": _concatenate,
    **dict.fromkeys(("Split", "SplitV"), _split),
    "Unpack": _unpack,
    "Squeeze": _squeeze,
    "StridedSlice": _slice,
}
