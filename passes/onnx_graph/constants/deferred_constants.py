"""Nodes on weights whose computation can be deferred until the file is written.

1. The computation cannot fail: indices are checked here, and integers are neither divided nor cast.
2. The shape and the element type of the result are known.
3. Arithmetic and comparisons are those of floats, by numpy in the element type of the operands; for layers
   and other functions see `layer_computations`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ....registration.inference import shape_inference
from ....registration.inference.constant_integers import integers
from ....registration.inference.folding import evaluator
from ....registration.inference.tensor_sizes import element_count
from . import layer_computations as layers
from .initializers import Blocks, Initializers
from .reused_memory import BLOCK, empty

_MOVES = frozenset(
    "Concat Expand Flatten Gather GatherElements Identity Reshape Slice Squeeze Transpose Unsqueeze".split()
)
_ARITHMETIC = frozenset(
    "Abs Add Cos Div Exp Mul Neg Pow Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Sigmoid Sin "
    "Sqrt Sub Tanh Where".split()
)
_CHECKED_MOVES = frozenset("Concat Expand Flatten Gather GatherElements Squeeze Transpose Unsqueeze".split())
_COMPARISONS = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual".split())
_OPERATORS = _MOVES | _ARITHMETIC | _COMPARISONS | layers.OPERATORS
_BITS = 8
"""Elements of fewer bits are packed, several in a byte, and are not computed here."""
_FAST_BITS, _SLOWNESS = 32, 4
"""Floats of fewer bits take about four times as long to compute, because processors convert each."""


@dataclasses.dataclass(frozen=True)
class Deferred:
    """A node that is computed later.

    Attributes:
        sources: the constants, and results of other such nodes, that `compute` takes.
        compute: the contents of the result.
        blocks: the same in pieces, if that takes less memory.
        work: elements that are read and written; those of arithmetic on short floats count several times.
    """

    node: ir.Node
    sources: list[ir.Value]
    compute: Callable[..., np.ndarray]
    blocks: Blocks | None
    dtype: ir.DataType
    shape: tuple[int, ...]
    work: int

    @property
    def nbytes(self) -> int:
        """The size of the result."""
        return math.ceil(math.prod(self.shape) * self.dtype.itemsize)


def defer_node(
    node: ir.Node, is_available: Callable[[ir.Value], bool], opset: int
) -> list[tuple[ir.Value, Deferred]]:
    """The computations of the results of a node over constants; none if the node cannot be deferred.

    Args:
        is_available: whether a value is a constant or the result of a deferred node.
        opset: the opset of the model.
    """
    if node.op_type not in _OPERATORS and node.op_type != "Split":
        return []
    inputs = [value for value in node.inputs if value is not None]
    if len(inputs) != len(node.inputs) or not all(map(is_available, inputs)):
        return []
    attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
    if node.op_type == "Split":
        return _defer_split(node, inputs, attributes)
    step = _defer_single(node, inputs, attributes, opset) if len(node.outputs) == 1 else None
    return [] if step is None else [(node.outputs[0], step)]


def _defer_single(
    node: ir.Node, inputs: list[ir.Value], attributes: dict[str, object], opset: int
) -> Deferred | None:
    data = inputs[1] if node.op_type == "Where" else inputs[0]
    dtype, is_layer = data.dtype, node.op_type in layers.OPERATORS
    if is_layer:
        shape = layers.infer_result(node.op_type, opset, inputs, attributes)
    else:
        shape = _result_shape(node, inputs, attributes)
    if dtype is None or shape is None or dtype == ir.DataType.STRING or dtype.bitwidth < _BITS:
        return None
    if min(shape, default=0) < 0 or not _is_valid(node, inputs, attributes, shape):
        return None
    # Integer division may fail at run time, and a reduction over nothing has no result.
    if node.op_type not in _MOVES and (dtype not in FLOATS or 0 in shape):
        return None
    if node.op_type in _COMPARISONS:
        dtype = ir.DataType.BOOL
    if node.op_type in ("Gather", "GatherElements") and not _is_within(inputs, attributes):
        return None
    is_matrix = is_matrix_transpose(node)
    if is_layer:
        function = layers.layer_function(node.op_type, opset, len(inputs))
    else:
        function = _transpose if is_matrix else evaluator(node.op_type)

    def compute(*arrays: np.ndarray) -> np.ndarray:
        # Weights may overflow as they would in the runtime; a warning would only confuse.
        with np.errstate(all="ignore"):
            return np.asarray(function(attributes, *arrays)).astype(dtype.numpy(), copy=False)

    blocks = transposed_blocks if is_matrix else None
    if is_layer:
        work = layers.layer_work(
            node.op_type, [value.shape.numpy() for value in inputs if value.shape], shape
        )
    else:
        work = math.prod(shape) + sum(map(_element_count, inputs))
    if node.op_type not in _MOVES and data.dtype is not None and data.dtype.bitwidth < _FAST_BITS:
        work *= _SLOWNESS
    return Deferred(node, inputs, compute, blocks, dtype, shape, work)


def _defer_split(
    node: ir.Node, inputs: list[ir.Value], attributes: dict[str, Any]
) -> list[tuple[ir.Value, Deferred]]:
    """The parts of a tensor; none where their sizes do not add up."""
    data, count = inputs[0], len(node.outputs)
    if data.shape is None or not data.shape.is_static() or data.dtype is None or not count:
        return []
    if data.dtype == ir.DataType.STRING or data.dtype.bitwidth < _BITS:
        return []
    whole, axis = data.shape.numpy(), attributes.get("axis", 0)
    if not -len(whole) <= axis < len(whole):
        return []
    axis %= len(whole)
    lengths = attributes.get("split") if len(inputs) == 1 else integers(inputs[1])
    if lengths is None and len(inputs) == 1:
        # The last part is shorter if the length is not divisible.
        length = -(-whole[axis] // count)
        lengths = [length] * (count - 1) + [whole[axis] - length * (count - 1)]
    if lengths is None or len(lengths) != count or min(lengths) < 0 or sum(lengths) != whole[axis]:
        return []
    ends = [sum(lengths[: number + 1]) for number in range(count)]

    def part(start: int, end: int) -> Callable[..., np.ndarray]:
        region = (*[slice(None)] * axis, slice(start, end))
        return lambda array, *_: array[region]

    steps = []
    for output, length, end in zip(node.outputs, lengths, ends, strict=True):
        shape = (*whole[:axis], length, *whole[axis + 1 :])
        function = part(end - length, end)
        steps.append(
            (output, Deferred(node, inputs, function, None, data.dtype, shape, 2 * math.prod(shape)))
        )
    return steps


def _element_count(value: ir.Value) -> int:
    if value.const_value is not None:
        return element_count(value.const_value)
    return math.prod(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else 0


def is_matrix_transpose(node: ir.Node) -> bool:
    """Whether a node exchanges the dimensions of a matrix."""
    data = node.inputs[0]
    if node.op_type != "Transpose" or node.domain or data is None or data.shape is None:
        return False
    return len(data.shape) == 2 and [*node.attributes.get_ints("perm", (1, 0))] == [1, 0]


def _transpose(attributes: dict[str, object], matrix: np.ndarray) -> np.ndarray:
    return transposed_matrix(matrix)


def transposed_matrix(matrix: np.ndarray) -> np.ndarray:
    """The transposed copy of a matrix, by a few rows at a time: in one piece it takes four times as long."""
    result = empty(matrix.shape[::-1], matrix.dtype)
    rows = _ROWS if matrix.shape[1] > _FEW_COLUMNS else 2 * _ROWS
    for row in range(0, len(matrix), rows):
        result[:, row : row + rows] = matrix[row : row + rows].T
    return result


_ROWS, _FEW_COLUMNS = 16, 64
"""By measurement; with few columns, as in blocks of a vocabulary, more rows take two thirds of the time."""


def transposed_blocks(matrix: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of the transposed matrix, at most two megabytes at a time where rows are not longer."""
    columns = max(_ROWS, BLOCK // max(1, matrix.itemsize * len(matrix)))
    for column in range(0, matrix.shape[1], columns):
        yield transposed_matrix(matrix[:, column : column + columns])


def derive_transposed(initializers: Initializers, matrix: ir.Value) -> ir.Value:
    """The transposed copy of a constant matrix; a packed one is computed in one piece."""
    assert matrix.const_value is not None
    rows, columns = matrix.const_value.shape.numpy()
    dtype = matrix.const_value.dtype
    is_packed = dtype.bitwidth < 8
    return initializers.derive(
        [matrix],
        np.transpose if is_packed else transposed_matrix,
        dtype,
        (columns, rows),
        suffix="transposed",
        blocks=None if is_packed else transposed_blocks,
    )


def _result_shape(
    node: ir.Node, inputs: Sequence[ir.Value], attributes: dict[str, Any]
) -> tuple[int, ...] | None:
    """The shape of the result; None unless shape inference, or the numbers of a Slice, give every size."""
    first = inputs[0].shape
    if first is None or not first.is_static():
        return None
    if node.op_type == "Slice":
        return _sliced_shape(first.numpy(), inputs, attributes)
    if node.op_type == "Flatten":
        axis = attributes.get("axis", 1)
        sizes = first.numpy()
        axis = axis + len(sizes) if axis < 0 else axis
        return math.prod(sizes[:axis]), math.prod(sizes[axis:])
    inferred = shape_inference.infer(node.op_type, inputs, attributes)
    if inferred is None:
        return None
    known_sizes = [size for size in inferred if isinstance(size, int)]
    if node.op_type != "Reshape":
        return tuple(known_sizes) if len(known_sizes) == len(inferred) else None
    total, known_product = math.prod(first.numpy()), math.prod(known_sizes)
    # One size is -1 and follows from the number of elements.
    if len(known_sizes) + 1 == len(inferred) and known_product and total % known_product == 0:
        return tuple(size if isinstance(size, int) else total // known_product for size in inferred)
    return tuple(known_sizes) if len(known_sizes) == len(inferred) and known_product == total else None


def _sliced_shape(
    sizes: tuple[int, ...], inputs: Sequence[ir.Value], attributes: dict[str, object]
) -> tuple[int, ...] | None:
    if any(value.const_value is None for value in inputs[1:]):
        return None
    numbers = [value.const_value.numpy() for value in inputs[1:] if value.const_value is not None]
    try:
        # An array of the same shape that takes no memory.
        data = np.broadcast_to(np.zeros((), dtype=np.int8), sizes)
        result: np.ndarray = evaluator("Slice")(attributes, data, *numbers)
    except (ValueError, IndexError):
        return None
    return result.shape


def _is_valid(
    node: ir.Node, inputs: Sequence[ir.Value], attributes: dict[str, Any], shape: tuple[int, ...]
) -> bool:
    """Whether the operands fit together, so that the computation cannot fail; a file may be invalid."""
    op_type = node.op_type
    # Their result shape could only be inferred from valid operands.
    if op_type in _MOVES and op_type not in _CHECKED_MOVES:
        return True
    if op_type in layers.OPERATORS and not op_type.startswith("Reduce"):
        return True
    dims = [value.shape.numpy() for value in inputs if value.shape is not None and value.shape.is_static()]
    if op_type == "Expand":
        target = integers(inputs[1])
        return target is not None and _broadcast(dims[0], tuple(target)) == shape
    if len(dims) != len(inputs):
        return False
    rank = len(dims[0])
    if op_type == "Concat":
        axis = attributes["axis"]
        joined_shapes = {
            (*sizes[: axis % rank], *sizes[axis % rank + 1 :]) for sizes in dims if len(sizes) == rank
        }
        return -rank <= axis < rank and len(joined_shapes) == 1 and all(len(sizes) == rank for sizes in dims)
    if op_type == "Transpose":
        return sorted(attributes.get("perm") or range(rank)) == [*range(rank)]
    if op_type == "Flatten":
        return bool(-rank <= attributes.get("axis", 1) <= rank)
    if op_type in ("Gather", "GatherElements"):
        axis = attributes.get("axis", 0)
        common_dims = [] if op_type == "Gather" else [dim for dim in range(rank) if dim != axis % rank]
        fits = op_type == "Gather" or len(dims[1]) == rank
        return -rank <= axis < rank and fits and all(dims[1][dim] <= dims[0][dim] for dim in common_dims)
    if op_type.startswith("Reduce") or op_type in ("Squeeze", "Unsqueeze"):
        axes = integers(inputs[1]) if len(inputs) > 1 else attributes.get("axes")
        return _are_axes(op_type, [] if axes is None else list(axes), dims[0])
    return _broadcast(*dims) == shape


def _are_axes(op_type: str, axes: list[int], sizes: tuple[int, ...]) -> bool:
    rank = len(sizes) + (len(axes) if op_type == "Unsqueeze" else 0)
    if not all(-rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) < len(axes):
        return False
    if op_type == "Squeeze":
        return all(sizes[axis] == 1 for axis in axes)
    return op_type == "Unsqueeze" or 0 not in sizes


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _is_within(inputs: Sequence[ir.Value], attributes: dict[str, Any]) -> bool:
    """Whether all indices of a Gather are within the dimension."""
    data, indices = inputs
    if data.shape is None or indices.const_value is None:
        return False
    size, array = data.shape[attributes.get("axis", 0)], indices.const_value.numpy()
    if array.dtype.kind != "i" or not isinstance(size, int):
        return False
    return array.size == 0 or bool(array.min() >= -size and array.max() < size)
