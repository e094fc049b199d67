"""Checks axes, permutations and sizes of a new node against the ranks that are known.

Every symbolic function of every dialect emits through these checks, so that an axis outside of a tensor is an
error that names the source operator. The ranges are those of the operators' texts in ONNX's specification.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from ..errors import UnsupportedError
from ..inference.constant_integers import integers

Arguments = Mapping[str, list[int]]
"""The constant integers of a node's arguments by name, whether attributes or inputs."""
Shape = ir.Shape | None


def axis_from_front(axis: int, rank: int) -> int:
    """An axis of a tensor, counted from its first dimension.

    Args:
        axis: from -rank to rank - 1; a negative one counts from the last dimension.
        rank: the number of dimensions; for an axis that a result gains, that of the result.

    Raises:
        UnsupportedError: the tensor does not have the axis.
    """
    if not -rank <= axis < rank:
        raise outside_error(axis, rank)
    return axis + rank if axis < 0 else axis


def outside_error(axis: int, rank: int) -> UnsupportedError:
    """The error for an axis that a tensor does not have."""
    dimensions = "1 dimension" if rank == 1 else f"{rank} dimensions"
    return UnsupportedError(f"axis {axis} is outside of a tensor with {dimensions}")


def _check_within(axes: Sequence[int], rank: int) -> None:
    for axis in axes:
        if not -rank <= axis < rank:
            raise outside_error(axis, rank)


def _check_distinct(axes: Sequence[int], rank: int) -> None:
    if len({axis_from_front(axis, rank) for axis in axes}) != len(axes):
        raise UnsupportedError(f"an axis occurs twice in {list(axes)}")


def _check_new(axes: Sequence[int], rank: int) -> None:
    _check_distinct(axes, rank + len(axes))


def _check_flattened(axes: Sequence[int], rank: int) -> None:
    if not -rank <= axes[0] <= rank:
        raise outside_error(axes[0], rank)


def _check_permutation(perm: Sequence[int], rank: int) -> None:
    if sorted(perm) != list(range(rank)):
        raise UnsupportedError(f"{list(perm)} is not a permutation of {rank} dimensions")


_AxisCheck = Callable[[Sequence[int], int], None]
_AXIS_CHECKS: dict[str, tuple[str, _AxisCheck]] = {
    "CenterCropPad": ("axes", _check_distinct),
    "Flatten": ("axis", _check_flattened),
    "MeanVarianceNormalization": ("axes", _check_within),
    "OneHot": ("axis", _check_new),
    "Slice": ("axes", _check_distinct),
    "Squeeze": ("axes", _check_within),
    "Transpose": ("perm", _check_permutation),
    "Unsqueeze": ("axes", _check_new),
}
_AXIS_CHECKS |= dict.fromkeys(
    "ArgMax ArgMin Compress Concat CumProd CumSum DFT Gather GatherElements Hardmax LayerNormalization "
    "LogSoftmax LpNormalization RMSNormalization Scatter ScatterElements Softmax Split SplitToSequence TopK "
    "Unique".split(),
    ("axis", _check_within),
)
_WITH_KEEPDIMS = frozenset(
    "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare".split()
)
_AXIS_CHECKS |= dict.fromkeys(
    "Pad ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare Resize".split(),
    ("axes", _check_within),
)


def _check_reshape(arguments: Arguments, shape: Shape) -> None:
    sizes = arguments.get("shape")
    if sizes is None:
        return
    # Only -1 has a meaning among negative sizes.
    if min(sizes, default=0) < -1:
        raise UnsupportedError(f"the shape {sizes} has a negative size")
    if sizes.count(-1) > 1:
        raise UnsupportedError(f"the shape {sizes} has more than one size of -1")
    if 0 in sizes and not arguments.get("allowzero", [0])[0]:
        rank = None if shape is None else len(shape)
        if rank is not None and any(size == 0 and axis >= rank for axis, size in enumerate(sizes)):
            raise UnsupportedError(f"a size of 0 in {sizes} copies a dimension that the tensor does not have")
        return
    if -1 in sizes and shape is not None and shape.is_static():
        count, sized_count = math.prod(shape.numpy()), -math.prod(sizes)
        # The product of the sizes is negative by its -1.
        if not sized_count or count % sized_count:
            raise UnsupportedError(f"{count} elements cannot have the shape {sizes}")


def _check_sizes(name: str) -> Callable[[Arguments, Shape], None]:
    def check(arguments: Arguments, shape: Shape) -> None:
        sizes = arguments.get(name)
        if sizes is not None and any(size < 0 for size in sizes):
            raise UnsupportedError(f"the shape {sizes} has a negative size")

    return check


def _check_tile(arguments: Arguments, shape: Shape) -> None:
    repeats = arguments.get("repeats")
    if repeats is None:
        return
    if any(count < 0 for count in repeats):
        raise UnsupportedError(f"the numbers of repetitions {repeats} include a negative one")
    if shape is not None and len(shape) != len(repeats):
        raise UnsupportedError(f"{len(repeats)} numbers of repetitions for {len(shape)} dimensions")


def _check_divisor(arguments: Arguments, shape: Shape) -> None:
    divisors = arguments.get("B")
    # Floats divide by 0 without an error; integers end the process in some runtimes.
    if divisors is not None and 0 in divisors and all(isinstance(divisor, int) for divisor in divisors):
        raise UnsupportedError("it divides integers by a constant that is 0")


_SIZE_CHECKS: dict[str, tuple[tuple[str, ...], Callable[[Arguments, Shape], None]]] = {
    "Div": (("B",), _check_divisor),
    "Mod": (("B",), _check_divisor),
    "ConstantOfShape": (("input",), _check_sizes("input")),
    "Expand": (("shape",), _check_sizes("shape")),
    "Reshape": (("shape", "allowzero"), _check_reshape),
    "Tile": (("repeats",), _check_tile),
}


def check_scattered(data: ir.Value, indices: ir.Value, updates: ir.Value) -> None:
    """Check the shapes of the operands of ScatterND, where they are known.

    Raises:
        UnsupportedError: an index has more numbers than the data has dimensions, or the updates have another
            shape than the places that they are written to.
    """
    shapes = [None if value.shape is None else value.shape.dims for value in (data, indices, updates)]
    data_dims, index_dims, update_dims = shapes
    if index_dims is None:
        return
    if not index_dims:
        raise UnsupportedError("the indices of a scatter are a scalar")
    index_length = index_dims[-1]
    if not isinstance(index_length, int) or data_dims is None:
        return
    if index_length > len(data_dims):
        raise UnsupportedError(
            f"indices of {index_length} numbers are outside of a tensor with {len(data_dims)} dimensions"
        )
    expected_dims = (*index_dims[:-1], *data_dims[index_length:])
    fits = update_dims is None or len(update_dims) == len(expected_dims)
    for size, expected in zip(update_dims or (), expected_dims, strict=False):
        fits = fits and not (isinstance(size, int) and isinstance(expected, int) and size != expected)
    if not fits:
        raise UnsupportedError("the updates of a scatter do not have the shape of their places")


_CHECKED = frozenset({*_AXIS_CHECKS, *_SIZE_CHECKS, *_WITH_KEEPDIMS, "ScatterND"})


def check_operands(
    op_type: str,
    input_index: Mapping[str, int],
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
) -> None:
    """Check the axes or sizes of a node that is about to be emitted, where they and the rank are known.

    Args:
        input_index: the positions of the operator's inputs by name.

    Raises:
        UnsupportedError: an axis is outside of the tensor, or sizes cannot be sizes.
    """
    if op_type not in _CHECKED:
        return
    if op_type == "ScatterND" and None not in inputs:
        check_scattered(*inputs)  # type: ignore[arg-type]
    if op_type in _WITH_KEEPDIMS:
        for attribute in attributes:
            if attribute.name == "keepdims" and attribute.value not in (0, 1):
                raise UnsupportedError(f"keepdims must be 0 or 1, not {attribute.value}")
    axis_check = _AXIS_CHECKS.get(op_type)
    size_check = _SIZE_CHECKS.get(op_type) if axis_check is None else None
    if axis_check is not None:
        name, check_axes = axis_check
        data = inputs[0] if inputs else None
        shape = None if data is None else data.shape
        if shape is None or not isinstance(data.type, ir.TensorType | None):  # type: ignore[union-attr]
            return
        axes = _integers_of(name, input_index, inputs, attributes)
        if axes:
            check_axes(axes, len(shape))
    elif size_check is not None:
        names, check_sizes = size_check
        arguments = {}
        for name in names:
            numbers = _integers_of(name, input_index, inputs, attributes)
            if numbers is not None:
                arguments[name] = numbers
        data = inputs[0] if inputs else None
        check_sizes(arguments, None if data is None else data.shape)


def _integers_of(
    name: str,
    input_index: Mapping[str, int],
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
) -> list[int] | None:
    """The integers of a constant argument; None if it is computed or omitted."""
    for attribute in attributes:
        if attribute.name == name:
            content = attribute.value
            return list(content) if isinstance(content, (list, tuple)) else [content]
    index = input_index.get(name)
    return integers(inputs[index]) if index is not None and index < len(inputs) else None
