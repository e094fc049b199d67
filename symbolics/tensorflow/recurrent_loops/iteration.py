"""Reads the body of a loop as expressions over its input, its states and weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext, Value
from ....registration.arguments import arguments
from ..loop_variables import origin
from .expressions import INPUT, Algebra, Joined, Mapped, Operand, Term, Weights, width_of

_MAXIMUM_NODES = 256
"""Nodes of a body that is read. The cells of Keras and TensorFlow have less than 100."""
_ACTIVATIONS = {name: (name, 0.0, 0.0) for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}
_ACTIVATIONS["Elu"] = ("Elu", 1.0, 0.0)
READS = {"TensorListGetItem": ("input_handle", "index"), "TensorArrayReadV3": ("flow_in", "index")}
"""The operators that read an element of a list: their arguments for the list and the position."""


@dataclasses.dataclass
class Iteration:
    """The results of an iteration.

    Attributes:
        results: a term for each variable after it, None for lists and what no recurrent operator computes.
        terms: those of all values of the body.
        sequence: the position of the list whose element an iteration reads; None if it reads none.
        algebra: what made the expressions.
    """

    results: list[Term | None]
    terms: Mapping[Value, Term]
    sequence: int | None
    algebra: Algebra


@dataclasses.dataclass(frozen=True)
class Given:
    """The initial value of a loop variable.

    Attributes:
        value: its value.
        kept: whether no iteration changes it.
        counts: whether it is the number of the iteration.
    """

    value: Value
    kept: bool
    counts: bool


def read_iteration(g: GraphContext, body: ir.Graph, given: Sequence[Given]) -> Iteration | None:
    """Read a body; None if it is too large, or reads several lists."""
    if len(body) > _MAXIMUM_NODES:
        return None
    reader = _Reader(g, body, given)
    for node in body:
        rule = _RULES.get(node.op_type)
        results = rule(reader, arguments(node), node) if rule is not None and node.domain == "tf" else []
        if not isinstance(results, list):
            results = [results]
        for value, term in zip(node.outputs, results, strict=False):
            if term is not None:
                reader.terms[value] = term
    if reader.sequences - {reader.sequence}:
        return None
    results = [reader.term(value) for value in body.outputs]
    return Iteration(results, reader.terms, reader.sequence, reader.algebra)


class _Reader:
    """The terms of a body's values.

    Attributes:
        sequences: the positions of the lists of which elements are read.
    """

    def __init__(self, g: GraphContext, body: ir.Graph, given: Sequence[Given]):
        self.algebra = Algebra()
        self.terms: dict[Value, Term] = {}
        self.sequences: set[int] = set()
        self._g, self._given = g, given
        self._place = {value: place for place, value in enumerate(body.inputs)}
        for formal, each in zip(body.inputs, given, strict=True):
            term = self._invariant(each.value) if each.kept else None
            if not each.kept and not each.counts:
                shape = g.shape(each.value)
                width = shape[1] if shape is not None and len(shape) == 2 else None
                place = self._place[formal]
                term = self.algebra.make(Operand, place, width if isinstance(width, int) else None)
            if term is not None:
                self.terms[formal] = term

    @property
    def sequence(self) -> int | None:
        """The list that is read first."""
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
            found: Term | None = _number(array)
            if array.ndim and array.dtype.kind == "f":
                found = _weights(self._g.constant(array), array.shape)
            if found is not None:
                self.terms[value] = found
        return self.terms.get(value)

    def place_of(self, value: Any) -> int | None:
        """The index of the loop variable that a value is."""
        return self._place.get(origin(value)) if isinstance(value, Value) else None

    def element(self, items: Any, index: Any) -> Term | None:
        """The element of a list at the iteration's index."""
        place, counter = self.place_of(items), self.place_of(index)
        if place is None or counter is None:
            return None
        if not self._given[place].kept or not self._given[counter].counts:
            return None
        self.sequences.add(place)
        shape = self._g.shape(self._given[place].value)
        width = shape[2] if shape is not None and len(shape) == 3 else None
        result: Term | None = self.algebra.make(Operand, INPUT, width if isinstance(width, int) else None)
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
    """The elements of a constant of the source graph."""
    tensor = value.const_value if isinstance(value, Value) else None
    if tensor is None or tensor.size > 8 or tensor.numpy().dtype.kind not in "iu":
        return None
    return [int(item) for item in tensor.numpy().reshape(-1)]


Found = Term | None
Rule = Callable[[_Reader, Mapping[str, Any], ir.Node], "Found | list[Found]"]


def _identity(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    return r.term(node.inputs[0])


def _element(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    items, index = READS[node.op_type]
    return r.element(given[items], given[index])


def _activation(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a = r.term(node.inputs[0])
    if a is None or isinstance(a, (float, Weights)):
        return None
    if node.op_type == "Relu6":
        return r.algebra.clip(a, 0.0, 6.0)
    if node.op_type == "LeakyRelu":
        result: Found = r.algebra.make(Mapped, "LeakyRelu", float(given["alpha"]), 0.0, a)
        return result
    result = r.algebra.make(Mapped, *_ACTIVATIONS[node.op_type], a)
    return result


def _add(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, b = r.term(node.inputs[0]), r.term(node.inputs[1])
    return None if a is None or b is None else r.algebra.add(a, b)


def _subtract(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, b = r.term(given["x"]), r.term(given["y"])
    if isinstance(b, float) and a is not None and not isinstance(a, (float, Weights)):
        return r.algebra.affine(a, 1.0, -b)
    if isinstance(a, float) and b is not None and not isinstance(b, (float, Weights)):
        return r.algebra.affine(b, -1.0, a)
    return None


def _multiply(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, b = r.term(given["x"]), r.term(given["y"])
    return None if a is None or b is None else r.algebra.multiply(a, b)


def _divide(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, b = r.term(given["x"]), r.term(given["y"])
    if a is None or isinstance(a, (float, Weights)) or not isinstance(b, float) or b == 0:
        return None
    return r.algebra.affine(a, 1 / b, 0.0)


def _bounded(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, b = r.term(given["x"]), r.term(given["y"])
    if isinstance(a, float):
        a, b = b, a
    if a is None or isinstance(a, (float, Weights)) or not isinstance(b, float):
        return None
    return r.algebra.clip(a, *((b, np.inf) if node.op_type == "Maximum" else (-np.inf, b)))


def _clipped(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a = r.term(given["t"])
    low, high = r.term(given["clip_value_min"]), r.term(given["clip_value_max"])
    if a is None or isinstance(a, (float, Weights)):
        return None
    if not isinstance(low, float) or not isinstance(high, float) or low > high:
        return None
    return r.algebra.clip(a, low, high)


def _product(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, b = r.term(given["a"]), r.term(given["b"])
    if a is None or b is None or given["transpose_a"] or given["transpose_b"]:
        return None
    return r.algebra.matmul(a, b)


def _joined(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    parts = [r.term(value) for value in given["values"]]
    if any(part is None or isinstance(part, (float, Weights)) for part in parts):
        return None
    return r.algebra.make(Joined, tuple(parts)) if _integers(given["axis"]) in ([1], [-1]) else None


def _split(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> list[Found]:
    """Split into equal parts, or into those of SplitV, one of which may have the remaining size."""
    a, axes = r.term(given["value"]), _integers(given["split_dim"])
    if a is None or isinstance(a, float) or axes is None or len(axes) != 1:
        return []
    rank = len(a.shape) if isinstance(a, Weights) else 2
    axis = axes[0] % rank
    size = a.shape[axis] if isinstance(a, Weights) else width_of(a)
    if size is None or (axis == 0 and not isinstance(a, Weights)):
        return []
    sizes = [size // len(node.outputs)] * len(node.outputs)
    if node.op_type == "SplitV":
        stated = _integers(given["size_splits"]) or []
        sizes = [size - sum(stated) - 1 if each == -1 else each for each in stated]
    if sum(sizes) != size or min(sizes) <= 0:
        return []
    ends = list(itertools.accumulate(sizes))
    ranges = zip([0, *ends], ends, strict=False)
    if isinstance(a, Weights):
        return [a.part(axis, *each) for each in ranges]
    return [r.algebra.columns(a, *each) for each in ranges]


def _unpacked(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> list[Found]:
    a = r.term(given["value"])
    if not isinstance(a, Weights):
        return []
    axis = given["axis"] % len(a.shape)
    if a.shape[axis] != len(node.outputs) or len(a.shape) != 2:
        return []
    return [a.part(axis, place, place + 1).without(axis) for place in range(len(node.outputs))]


def _squeezed(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    a, dims = r.term(given["input"]), given["squeeze_dims"]
    if not isinstance(a, Weights) or len(a.shape) != 2 or not dims or len(dims) != 1:
        return None
    axis = dims[0] % 2
    return a.without(axis) if a.shape[axis] == 1 else None


def _sliced(r: _Reader, given: Mapping[str, Any], node: ir.Node) -> Found:
    """Consecutive elements along each axis; of an expression, all rows."""
    a = r.term(given["input"])
    if a is None or isinstance(a, float):
        return None
    bounds = [_integers(given[name]) for name in ("begin", "end", "strides")]
    if any(given[name] for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")):
        return None
    sizes: list[int | None] = list(a.shape) if isinstance(a, Weights) else [None, width_of(a)]
    begins, ends, strides = bounds
    if begins is None or ends is None or strides is None or len(begins) > len(sizes):
        return None
    for axis, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        size = sizes[axis]
        from_first, to_last = given["begin_mask"] >> axis & 1, given["end_mask"] >> axis & 1
        if stride == 1 and size is None and from_first and to_last:
            continue
        if stride != 1 or size is None:
            return None
        first, last, _ = slice(None if from_first else begin, None if to_last else end).indices(size)
        if first >= last:
            return None
        found = a.part(axis, first, last) if isinstance(a, Weights) else r.algebra.columns(a, first, last)
        if found is None or isinstance(found, float):
            return None
        a = found
    return a


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient", "Snapshot"), _identity),
    **dict.fromkeys(READS, _element),
    **dict.fromkeys((*_ACTIVATIONS, "LeakyRelu", "Relu6"), _activation),
    **dict.fromkeys(("Add", "AddV2"), _add),
    "BiasAdd": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "RealDiv": _divide,
    **dict.fromkeys(("Maximum", "Minimum"), _bounded),
    "ClipByValue": _clipped,
    "MatMul": _product,
    "ConcatV2": _joined,
    **dict.fromkeys(("Split", "SplitV"), _split),
    "Unpack": _unpacked,
    "Squeeze": _squeezed,
    "StridedSlice": _sliced,
}
