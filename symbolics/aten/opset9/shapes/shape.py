"""Operators that change the shape and keep the elements: reshape, permute, squeeze, expand, repeat."""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from .....registration.functions.results import as_list
from ....compositions.bits import reinterpret_bits
from ....compositions.size_arithmetic import (
    UNKNOWN,
    Dim,
    Size,
    axis,
    compute,
    depends_on_data,
    dimension,
    fold_size,
    known_rank,
    origin,
    product,
    same_size,
    sizes_of,
)

_RESHAPES = frozenset({"view", "view_copy", "_unsafe_view", "reshape"})


def _declared_dims(g: GraphContext, names: frozenset[str], rank: int) -> Sequence[Dim] | None:
    """The shape of the source node's output, if the node is one of these operators."""
    if g.node is None or g.node.domain != "aten" or g.node.op_type not in names:
        return None
    shape = g.expected[0].shape
    return shape.dims if shape is not None and len(shape) == rank else None


def _is_copy(input_dims: Sequence[Dim] | None, x: Value, position: int, size: Size, dim: Dim) -> bool:
    """Whether a size of the result equals the input's size at the same position."""
    if input_dims is None or position >= len(input_dims):
        return False
    return same_size(input_dims[position], dim) or (
        not isinstance(size, int) and origin(size) == (x, position)
    )


@onnx_symbolic(["aten::view", "aten::view_copy", "aten::_unsafe_view"])
def view(g: GraphContext, self: Value, size: list[int | Value] | Value) -> Value:
    return g.call("aten::reshape", self=self, shape=size)


@onnx_symbolic(["aten::view.dtype", "aten::view_copy.dtype"])
def view_dtype(g: GraphContext, self: Value, dtype: DataType) -> Value:
    """The bits as another type; the last size is scaled by the quotient of the widths."""
    source = g.dtype(self)
    if source == dtype:
        return self
    if source is None:
        raise g.refuse("the element type of its input must be known")
    if {source, dtype} <= {DataType.BOOL, DataType.INT8, DataType.UINT8}:
        return g.cast(self, dtype)
    if source.bitwidth < dtype.bitwidth:
        *sizes, last = sizes_of(g, self)
        parts = dtype.bitwidth // source.bitwidth
        self = g.call("aten::reshape", self=self, shape=[*sizes, compute(g, "floordiv", last, parts), parts])
    result = reinterpret_bits(g, self, dtype)
    if source.bitwidth > dtype.bitwidth:
        *sizes, last, count = sizes_of(g, result)
        result = g.call("aten::reshape", self=result, shape=[*sizes, compute(g, "mul", last, count)])
    return result


@onnx_symbolic("aten::reshape")
def reshape(g: GraphContext, self: Value, shape: list[int | Value] | Value) -> Value:
    """The target is constant if possible: 0 copies a dimension at its position, -1 is the remaining size.

    An empty result is created new, because ONNX reads 0 in the target as a copy, and refuses -1 in the same
    target. A list of unknown length is one value.
    """
    if not isinstance(shape, list):
        return g.call("composed::reshape", self=self, shape=shape, target=shape)
    sizes = [fold_size(g, size) for size in shape]
    input_dims = g.shape(self)
    declared = _declared_dims(g, _RESHAPES, len(sizes)) or [UNKNOWN] * len(sizes)
    dims = [_dimension(size, dim) for size, dim in zip(sizes, declared, strict=True)]
    dims = _resolve_dimensions(input_dims, sizes, dims)
    copied = [
        _is_copy(input_dims, self, i, size, dim)
        for i, (size, dim) in enumerate(zip(sizes, dims, strict=True))
    ]
    if input_dims is not None and len(input_dims) == len(sizes) and all(copied):
        return self
    if 0 in dims and not _copies_zeros(dims, copied):
        real = [dim if isinstance(dim, int) else size for size, dim in zip(sizes, dims, strict=True)]
        return g.call("aten::zeros", size=real, dtype=g.dtype(self))
    target: list[Size | None] = [
        0 if copy and not (isinstance(dim, int) and dim) else dim if isinstance(dim, int) else None
        for dim, copy in zip(dims, copied, strict=True)
    ]
    missing = target.count(None)
    # Reshape infers one size by itself, but not beside a size of 0, such as that of rows of which none is
    # left.
    of_data = [i for i, dim in enumerate(dims) if depends_on_data(dim)]
    is_inferred = -1 in sizes or not any(copied[i] for i in of_data)
    if missing == 0 or (missing == 1 and is_inferred):
        result = g.op("Reshape", self, [-1 if target_size is None else target_size for target_size in target])
    else:
        real_target = [
            size if target_size is None else target_size
            for size, target_size in zip(sizes, target, strict=True)
        ]
        # Below opset 14 a computed 0 would copy a size, and a size that is inferred may be 0.
        if len(of_data) == 1 and is_inferred and -1 not in real_target:
            real_target[of_data[0]] = -1
        result = g.call("composed::reshape", self=self, shape=sizes, target=real_target)
    if result.producer() is not None and g.shape(result) != tuple(dims):
        result.shape = ir.Shape(dims)
    return result


def _dimension(size: Size, declared: Dim) -> Dim:
    """The dimension of a requested size; the source graph's dimension if the size is unknown."""
    if isinstance(size, int):
        return size if size >= 0 else declared
    size_dim = dimension(size)
    return size_dim if isinstance(size_dim, int) or size_dim.value is not None else declared


def _copies_zeros(dims: Sequence[Dim], copied: Sequence[bool]) -> bool:
    """Whether a Reshape can copy each size of 0 from the input; beside such a 0, -1 is not allowed."""
    pairs = list(zip(dims, copied, strict=True))
    is_whole = all(copy or isinstance(dim, int) for dim, copy in pairs)
    return is_whole and all(copy for dim, copy in pairs if dim == 0)


def _resolve_dimensions(
    input_dims: Sequence[Dim] | None, sizes: Sequence[Size], dims: list[Dim]
) -> list[Dim]:
    """The dimensions, with a single -1 replaced if all other sizes are known."""
    unknown = [i for i, dim in enumerate(dims) if not isinstance(dim, int)]
    if len(unknown) == 1 and sizes[unknown[0]] == -1 and input_dims is not None:
        known_product = math.prod(dim for dim in dims if isinstance(dim, int))
        known_dims = [dim for dim in input_dims if isinstance(dim, int)]
        if known_product and len(known_dims) == len(input_dims):
            dims[unknown[0]] = math.prod(known_dims) // known_product
    return dims


@onnx_symbolic("composed::reshape")
def computed_reshape(
    g: GraphContext, self: Value, shape: list[int | Value] | Value, target: list[int | Value] | Value
) -> Value:
    """Reshape to a computed `target`, in which 0 copies a dimension; `shape` has the real sizes."""
    free = isinstance(shape, list) and any(isinstance(size, int) and size == -1 for size in shape)
    if g.has("Reshape", "allowzero") and not free:
        return g.op("Reshape", self, shape, allowzero=1)
    return g.op("Reshape", self, target)


@onnx_symbolic(["aten::view_as", "aten::reshape_as"])
def view_as(g: GraphContext, self: Value, other: Value) -> Value:
    if g.rank(other) is None:
        return g.op("Reshape", self, g.op("Shape", other))
    return g.call("aten::reshape", self=self, shape=sizes_of(g, other))


@onnx_symbolic("aten::resize")
def resize(g: GraphContext, self: Value, size: list[int | Value]) -> Value:
    """The first elements of a contiguous tensor; PyTorch leaves the others undefined, and here they are 0."""
    zeros = g.call("aten::zeros", size=size, dtype=g.dtype(self))
    dims = g.shape(self)
    if dims is not None and 0 in dims:
        return zeros
    flat = [g.call("aten::reshape", self=value, shape=[-1]) for value in (self, zeros)]
    joined = g.op("Concat", *flat, axis=0)
    elements = g.call("aten::slice", self=joined, dim=0, start=0, end=g.size(flat[1], 0), step=1)
    return g.call("aten::reshape", self=elements, shape=size)


@onnx_symbolic("aten::flatten")
def flatten(g: GraphContext, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if g.rank(self) is None and end_dim == -1 and start_dim in (0, 1):
        return g.op("Flatten", self, axis=1) if start_dim else g.op("Reshape", self, [-1])
    start, end = axis(g, self, start_dim), axis(g, self, end_dim)
    if known_rank(g, self) == 0:
        return g.op("Reshape", self, [1])
    sizes = sizes_of(g, self)
    return g.call(
        "aten::reshape",
        self=self,
        shape=[*sizes[:start], _merge_sizes(sizes[start : end + 1]), *sizes[end + 1 :]],
    )


def _merge_sizes(sizes: Sequence[Size]) -> Size:
    """The product of sizes; -1 if it is not constant."""
    if len(sizes) == 1:
        return sizes[0]
    # A product that is 0 for certain is known even if other sizes are not.
    static = [size for size in sizes if isinstance(size, int)]
    return math.prod(static) if 0 in static or len(static) == len(sizes) else -1


@onnx_symbolic("aten::unflatten")
def unflatten(g: GraphContext, self: Value, dim: int, sizes: list[int | Value]) -> Value:
    dimension_index = axis(g, self, dim)
    input_sizes = sizes_of(g, self)
    return g.call(
        "aten::reshape",
        self=self,
        shape=[*input_sizes[:dimension_index], *sizes, *input_sizes[dimension_index + 1 :]],
    )


@onnx_symbolic("aten::permute")
def permute(g: GraphContext, self: Value, dims: list[int]) -> Value:
    perm = [g.axis(dim, len(dims)) for dim in dims]
    if len({*perm}) != len(perm) or g.rank(self) not in (None, len(perm)):
        raise g.refuse(f"{dims} is not a permutation of the dimensions of its input")
    return self if perm == sorted(perm) else g.op("Transpose", self, perm=perm)


@onnx_symbolic(["aten::transpose", "aten::swapdims"])
def transpose(g: GraphContext, self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(known_rank(g, self)))
    a, b = axis(g, self, dim0), axis(g, self, dim1)
    if order:
        order[a], order[b] = order[b], order[a]
    return g.call("aten::permute", self=self, dims=order)


@onnx_symbolic("aten::swapaxes")
def swapaxes(g: GraphContext, self: Value, axis0: int, axis1: int) -> Value:
    return g.call("aten::transpose", self=self, dim0=axis0, dim1=axis1)


@onnx_symbolic(["aten::t", "aten::numpy_T"])
def t(g: GraphContext, self: Value) -> Value:
    return g.call("aten::permute", self=self, dims=list(range(known_rank(g, self)))[::-1])


@onnx_symbolic("aten::mT")
def mT(g: GraphContext, self: Value) -> Value:
    return g.call("aten::transpose", self=self, dim0=-2, dim1=-1)


@onnx_symbolic(["aten::movedim", "aten::moveaxis"])
def movedim(g: GraphContext, self: Value, source: int | list[int], destination: int | list[int]) -> Value:
    sources = [axis(g, self, dim) for dim in as_list(source)]
    destinations = [axis(g, self, dim) for dim in as_list(destination)]
    source_of = dict(zip(destinations, sources, strict=True))
    rank = known_rank(g, self)
    remaining = iter(dim for dim in range(rank) if dim not in sources)
    # Dimensions that are not moved fill the other places in their order.
    order = [source_of[position] if position in source_of else next(remaining) for position in range(rank)]
    return g.call("aten::permute", self=self, dims=order)


@onnx_symbolic("aten::unsqueeze")
def unsqueeze(g: GraphContext, self: Value, dim: int) -> Value:
    position = dim if dim >= 0 else dim + known_rank(g, self) + 1
    return g.op("Unsqueeze", self, axes=[position])


@onnx_symbolic("aten::squeeze")
def squeeze(g: GraphContext, self: Value, dim: int | list[int] | None = None) -> Value:
    """Removes only dimensions of size 1; for symbolic sizes the rank of the captured output decides."""
    rank = known_rank(g, self)
    dims = list(range(rank)) if dim is None else [dim] if isinstance(dim, int) else dim
    candidates = sorted({axis(g, self, axis_number) for axis_number in dims if rank})
    shape = g.shape(self) or ()
    removed = [axis_number for axis_number in candidates if shape[axis_number] == 1]
    computed = [axis_number for axis_number in candidates if not isinstance(shape[axis_number], int)]
    if computed and g.node is not None and g.node.op_type == "squeeze" and g.expected[0].shape is not None:
        removed_count = rank - len(g.expected[0].shape) - len(removed)
        if removed_count not in (0, len(computed)):
            raise g.refuse("the dimensions of size 1 must be known: name the dimensions to remove")
        removed += computed if removed_count else []
    elif computed and (dim is None or any(shape[axis_number].value is None for axis_number in computed)):  # type: ignore[union-attr]
        raise g.refuse("the dimensions of size 1 must be known: name the dimensions to remove")
    return g.op("Squeeze", self, axes=sorted(removed)) if removed else self


@onnx_symbolic(["aten::expand", "aten::broadcast_to"])
def expand(g: GraphContext, self: Value, size: list[int | Value] | Value, implicit: bool = False) -> Value:
    if not isinstance(size, list):
        # -1 keeps the input's size, and so does 1.
        return g.op("Expand", self, g.call("sym::max", a=size, b=g.call("sym::mul", a=size, b=-1)))
    target = _expansion(g, self, size)
    if all(target_size == 1 for target_size in target if isinstance(target_size, int)) and not _values(
        target
    ):
        return _add_leading_dims(g, self, len(target))
    return g.op("Expand", self, target)


def _values(sizes: Sequence[Size]) -> bool:
    return any(isinstance(size, Value) for size in sizes)


def _expansion(g: GraphContext, self: Value, size: Sequence[Size]) -> list[Size]:
    """The target of Expand: 1 for each dimension that keeps its size."""
    shape = g.shape(self)
    added = len(size) - known_rank(g, self)
    dims = _declared_dims(g, frozenset({"expand", "broadcast_to"}), len(size)) or [UNKNOWN] * len(size)
    target: list[Size] = []
    for position, (requested, dim) in enumerate(zip(size, dims, strict=True)):
        requested = fold_size(g, requested)
        if position < added:
            target.append(dim if isinstance(dim, int) else requested)
            continue
        input_position = position - added
        input_dim = shape[input_position]  # type: ignore[index]
        is_kept = (
            same_size(input_dim, dim)
            or same_size(input_dim, dimension(requested))
            or origin(requested) == (self, input_position)
        )
        target.append(1 if is_kept or (isinstance(requested, int) and requested == -1) else requested)
    return target


def _add_leading_dims(g: GraphContext, self: Value, rank: int) -> Value:
    """Add leading dimensions of size 1 up to a rank."""
    missing = rank - known_rank(g, self)
    return g.op("Unsqueeze", self, axes=list(range(missing))) if missing > 0 else self


@onnx_symbolic("aten::expand_as")
def expand_as(g: GraphContext, self: Value, other: Value) -> Value:
    input_shape, shape = g.shape(self), g.shape(other)
    if input_shape is not None and shape is not None:
        paired = list(zip(input_shape[::-1], shape[::-1], strict=False))
        if (
            all(isinstance(dim, int) or same_size(input_dim, dim) for input_dim, dim in paired)
            or len(input_shape) == len(shape) == 1
        ):
            return g.call("aten::expand", self=self, size=sizes_of(g, other))
    return g.op("Expand", self, g.op("Shape", other))


@onnx_symbolic("aten::broadcast_tensors")
def broadcast_tensors(g: GraphContext, tensors: list[Value]) -> list[Value]:
    sizes = broadcast_sizes(g, tensors)
    return [g.call("aten::expand", self=tensor, size=sizes) for tensor in tensors]


def broadcast_sizes(g: GraphContext, tensors: Sequence[Value]) -> list[Size]:
    """The sizes that tensors broadcast to; either of two symbolic sizes may be 1 at run time."""
    rank = max(known_rank(g, tensor) for tensor in tensors)
    result: list[Size] = [1] * rank
    dims: list[Dim] = [1] * rank
    for tensor in tensors:
        shape = g.shape(tensor) or ()
        for tensor_dim, dim in enumerate(shape):
            position = rank - len(shape) + tensor_dim
            current = dims[position]
            if dim == 1 or (isinstance(current, int) and current != 1) or same_size(current, dim):
                continue
            size = dim if isinstance(dim, int) else g.size(tensor, tensor_dim)
            if isinstance(dim, int) or current == 1:
                result[position], dims[position] = size, dim
            else:
                # Which of two symbolic sizes is 1 is known only at run time.
                is_one = g.call("sym::eq", a=result[position], b=1)
                result[position] = g.call("sym::ite", cond=is_one, a=size, b=result[position])
                dims[position] = UNKNOWN
    return result


@onnx_symbolic("aten::repeat")
def repeat(g: GraphContext, self: Value, repeats: list[int | Value] | Value) -> Value:
    if isinstance(repeats, Value):
        missing = g.op("Sub", g.op("Size", repeats), known_rank(g, self))
        leading_ones = g.call("aten::ones", size=[missing], dtype=DataType.INT64)
        expanded = g.op("Reshape", self, g.op("Concat", leading_ones, g.op("Shape", self), axis=0))
        return g.op("Tile", expanded, repeats)
    counts = [fold_size(g, count) for count in repeats]
    expanded = _add_leading_dims(g, self, len(counts))
    if all(isinstance(count, int) and count == 1 for count in counts):
        return expanded
    return g.op("Tile", expanded, g.stack(counts))


@onnx_symbolic("aten::tile")
def tile(g: GraphContext, self: Value, dims: list[int | Value]) -> Value:
    missing = known_rank(g, self) - len(dims)
    return g.call("aten::repeat", self=self, repeats=[*[1] * missing, *dims])


_GATHERED = 1024
"""Up to this many repeated slices of a known number, such as attention heads, are gathered by one node."""


@onnx_symbolic("aten::repeat_interleave.self_int")
def repeat_interleave(
    g: GraphContext,
    self: Value,
    repeats: int | Value,
    dim: int | None = None,
    output_size: int | Value | None = None,
) -> Value:
    if dim is None:
        self, dim = g.call("aten::flatten", self=self), 0
    position = axis(g, self, dim)
    sizes = sizes_of(g, self)
    length = sizes[position]
    if isinstance(length, int) and isinstance(repeats, int) and length * repeats <= _GATHERED:
        return g.op("Gather", self, np.repeat(np.arange(length), repeats), axis=position)
    spread = g.op("Unsqueeze", self, axes=[position + 1])
    spread = g.call(
        "aten::repeat",
        self=spread,
        repeats=[*[1] * (position + 1), repeats, *[1] * (len(sizes) - position - 1)],
    )
    return g.call(
        "aten::reshape",
        self=spread,
        shape=[*sizes[:position], compute(g, "mul", sizes[position], repeats), *sizes[position + 1 :]],
    )


@onnx_symbolic("aten::repeat_interleave.Tensor")
def repeated_positions(g: GraphContext, repeats: Value, output_size: int | Value | None = None) -> Value:
    """Repeat each position by its count: the number of cumulative sums not above a position in the result."""
    counts = g.cast(repeats, DataType.INT64)
    ends = g.call("aten::cumsum", self=counts, dim=0)
    total = g.op("ReduceSum", counts, axes=[0], keepdims=0)
    positions = g.op("Unsqueeze", g.call("sym::range", start=0, end=total), axes=[1])
    passed = g.call("aten::le", self=g.op("Unsqueeze", ends, axes=[0]), other=positions)
    counts_passed = g.op("ReduceSum", g.cast(passed, DataType.INT64), axes=[1], keepdims=0)
    return g.cast(counts_passed, g.dtype(repeats) or DataType.INT64)


@onnx_symbolic("aten::repeat_interleave.self_Tensor")
def repeat_interleave_by(
    g: GraphContext,
    self: Value,
    repeats: Value,
    dim: int | None = None,
    output_size: int | Value | None = None,
) -> Value:
    """Repeat each slice by its own count, or all slices by a single count."""
    if dim is None:
        self, dim = g.call("aten::flatten", self=self), 0
    if g.rank(self) == 0:
        self = g.op("Unsqueeze", self, axes=[0])
    position = axis(g, self, dim)
    counts = g.op("Reshape", repeats, [-1]) if g.rank(repeats) != 1 else repeats
    counts = g.call("aten::expand", self=counts, size=[g.size(self, position)])
    positions = g.call("aten::repeat_interleave.Tensor", repeats=counts)
    return g.op("Gather", self, positions, axis=position)


def _register_at_least(rank: int, axes: dict[int, list[int]]) -> None:
    def symbolic(
        g: GraphContext, self: Value | None = None, tensors: list[Value] | None = None
    ) -> Value | list[Value]:
        if self is None:
            return [g.call(f"aten::atleast_{rank}d", self=tensor) for tensor in tensors or []]
        added = axes.get(known_rank(g, self))
        return g.op("Unsqueeze", self, axes=added) if added else self

    onnx_symbolic(f"aten::atleast_{rank}d")(symbolic)


_register_at_least(1, {0: [0]})
_register_at_least(2, {0: [0, 1], 1: [0]})
_register_at_least(3, {0: [0, 1, 2], 1: [0, 2], 2: [2]})


@onnx_symbolic(["aten::sym_size", "aten::size"])
def sym_size(g: GraphContext, self: Value, dim: int | None = None) -> int | Value | list[int | Value]:
    return sizes_of(g, self) if dim is None else g.size(self, dim)


@onnx_symbolic(["aten::sym_numel", "aten::numel"])
def sym_numel(g: GraphContext, self: Value) -> int | Value:
    shape = g.shape(self)
    if shape is not None and all(isinstance(dim, int) for dim in shape):
        return product(g, shape)  # type: ignore[arg-type]
    return g.op("Size", self)
