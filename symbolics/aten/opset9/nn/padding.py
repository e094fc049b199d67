"""Padding: constant, reflected, replicated and circular; negative amounts crop."""

from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.size_arithmetic import Size, fold_size, known_rank, static_size

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@onnx_symbolic("aten::pad")
def pad(
    g: GraphContext, self: Value, pad: list[int | Value], mode: str = "constant", value: float | None = None
) -> Value:
    amounts = [fold_size(g, amount) for amount in pad]
    rank = known_rank(g, self)
    begins: list[Size] = [0] * rank
    ends: list[Size] = [0] * rank
    # ATen's pairs begin with the last dimension.
    for pair in range(len(amounts) // 2):
        begins[rank - 1 - pair], ends[rank - 1 - pair] = amounts[2 * pair], amounts[2 * pair + 1]
    if mode == "circular":
        for dim in range(rank):
            self = _pad_circularly(g, self, dim, begins[dim], ends[dim])
        return self
    if mode not in _MODES:
        raise g.refuse(f"padding mode '{mode}' is not supported")
    if mode != "constant":
        self, begins, ends = _pad_cropped_dims(g, self, mode, begins, ends)
    self = _crop_negative(g, self, begins, ends)
    begins = [max(amount, 0) if isinstance(amount, int) else amount for amount in begins]
    ends = [max(amount, 0) if isinstance(amount, int) else amount for amount in ends]
    if all(isinstance(amount, int) and amount == 0 for amount in (*begins, *ends)):
        return self
    dtype = g.dtype(self)
    if dtype is not None and not g.has_kernel("Pad", self):
        # INT32 represents the integer types without a kernel.
        wide = g.cast(self, DataType.INT32)
        return g.cast(_pad_outwards(g, wide, begins, ends, mode, value), dtype)
    return _pad_outwards(g, self, begins, ends, mode, value)


def _pad_outwards(
    g: GraphContext, self: Value, begins: list[Size], ends: list[Size], mode: str, value: float | None
) -> Value:
    if mode == "constant":
        filler = 0 if value is None else value
        return g.call("composed::pad", self=self, begins=begins, ends=ends, value=filler)
    return g.op("Pad", self, mode=_MODES[mode], pads=[*begins, *ends])


def _crop_negative(g: GraphContext, self: Value, begins: Sequence[Size], ends: Sequence[Size]) -> Value:
    """Crop the tensor by negative amounts."""
    for dim, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        start = -begin if isinstance(begin, int) and begin < 0 else 0
        stop = end if isinstance(end, int) and end < 0 else None
        if start or stop is not None:
            self = g.call("aten::slice", self=self, dim=dim, start=start, end=stop)
    return self


def _pad_cropped_dims(
    g: GraphContext, self: Value, mode: str, begins: Sequence[Size], ends: Sequence[Size]
) -> tuple[Value, list[Size], list[Size]]:
    """Pad dimensions that are cropped at the other end; ATen also reads the cropped part as padding."""
    begins, ends = list(begins), list(ends)
    for dim, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        size = static_size(g, self, dim)
        if not isinstance(begin, int) or not isinstance(end, int) or size is None:
            continue
        # Only one end cropped and the other padded needs this; other cases crop first.
        if min(begin, end) >= 0 or max(begin, end) <= 0:
            continue
        g.reserve(max(0, begin + size + end))
        positions = np.arange(-begin, size + end, dtype=np.int64)
        if mode == "reflect":
            positions = np.abs(positions)
            positions = size - 1 - np.abs(size - 1 - positions)
        else:
            positions = positions.clip(0, size - 1)
        self = g.op("Gather", self, positions, axis=dim)
        begins[dim] = ends[dim] = 0
    return self, begins, ends


def _pad_circularly(g: GraphContext, self: Value, dim: int, begin: Size, end: Size) -> Value:
    """Circular padding of one dimension; Pad's mode `wrap` begins at opset 19."""
    if not isinstance(begin, int) or not isinstance(end, int):
        raise g.refuse("circular padding must have constant amounts")
    cropped = _crop_negative(g, self, [0] * dim + [begin], [0] * dim + [end])
    pieces = [cropped]
    if begin > 0:
        pieces.insert(0, g.call("aten::slice", self=cropped, dim=dim, start=-begin))
    if end > 0:
        pieces.append(g.call("aten::slice", self=cropped, dim=dim, start=0, end=end))
    return cropped if len(pieces) == 1 else g.op("Concat", *pieces, axis=dim)


@onnx_symbolic("composed::pad")
def constant_pad(
    g: GraphContext,
    self: Value,
    begins: list[int | Value],
    ends: list[int | Value],
    value: float | int | bool,
) -> Value:
    number = int(value) if g.dtype(self) in dtypes.INTEGERS else value
    return g.op("Pad", self, mode="constant", pads=[*begins, *ends], constant_value=number)


@onnx_symbolic("aten::constant_pad_nd")
def constant_pad_nd(
    g: GraphContext, self: Value, pad: list[int | Value], value: float | int | bool = 0
) -> Value:
    return g.call("aten::pad", self=self, pad=pad, mode="constant", value=float(value))


def _register_mode(name: str, mode: str) -> None:
    def symbolic(g: GraphContext, self: Value, padding: list[int | Value]) -> Value:
        return g.call("aten::pad", self=self, pad=padding, mode=mode)

    onnx_symbolic(f"aten::{name}")(symbolic)


for _rank in (1, 2, 3):
    _register_mode(f"reflection_pad{_rank}d", "reflect")
    _register_mode(f"replication_pad{_rank}d", "replicate")


@onnx_symbolic("aten::_pad_circular")
def _pad_circular(g: GraphContext, self: Value, pad: list[int | Value]) -> Value:
    return g.call("aten::pad", self=self, pad=pad, mode="circular")
