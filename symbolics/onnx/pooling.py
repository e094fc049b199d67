"""Pooling with windows that an opset cannot say: dilated, rounded up, or beginning in the padding."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes, schemas
from ..compositions.sizes import known_rank
from .support import below


@dataclasses.dataclass(frozen=True)
class Axis:
    """Windows along one spatial axis of a known size."""

    size: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    ceil: bool

    @property
    def count(self) -> int:
        """How many windows there are; one that would begin behind the input and its left padding is none."""
        room = self.size + self.begin + self.end - self.dilation * (self.kernel - 1) - 1
        number = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        if self.ceil and (number - 1) * self.stride >= self.size + self.begin:
            number -= 1
        return number

    @property
    def plain_count(self) -> int:
        """How many there are by versions below 22, which count such a window."""
        room = self.size + self.begin + self.end - self.dilation * (self.kernel - 1) - 1
        return (-(-room // self.stride) if self.ceil else room // self.stride) + 1

    @property
    def positions(self) -> np.ndarray:
        """Where the elements of each window stand, [count, kernel]."""
        starts = np.arange(self.count, dtype=np.int64) * self.stride - self.begin
        return starts[:, None] + np.arange(self.kernel, dtype=np.int64) * self.dilation


def windows(g: GraphContext, X: Value, named: dict[str, Any]) -> list[Axis]:
    """The windows along each spatial axis.

    Raises:
        UnsupportedError: a size is unknown.
    """
    rank = known_rank(g, X)
    shape = g.shape(X)
    assert shape is not None
    kernel = named["kernel_shape"]
    count = rank - 2
    strides = named.get("strides") or [1] * count
    dilations = named.get("dilations") or [1] * count
    pads = named.get("pads") or [0] * (2 * count)
    automatic = named.get("auto_pad") or "NOTSET"
    found = []
    for at in range(count):
        size = shape[at + 2]
        if not isinstance(size, int):
            raise g.refuse("the size of an image is unknown, and its windows are not what this opset has")
        begin, end = pads[at], pads[at + count]
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            extent = dilations[at] * (kernel[at] - 1) + 1
            total = max((-(-size // strides[at]) - 1) * strides[at] + extent - size, 0)
            begin = total // 2 if automatic == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif automatic == "VALID":
            begin = end = 0
        ceil = bool(named.get("ceil_mode")) and automatic in ("NOTSET", "VALID")
        found.append(Axis(size, kernel[at], strides[at], dilations[at], begin, end, ceil))
    return found


def gathered(g: GraphContext, X: Value, axes: Sequence[Axis]) -> tuple[Value, list[int]]:
    """The windows as `[N, C, count, kernel, count, kernel…]`, and the dimensions of what is in them."""
    for at, axis in enumerate(axes):
        g.reserve(axis.count, axis.kernel)
        inside = np.clip(axis.positions, 0, axis.size - 1)
        X = g.op("Gather", X, inside, axis=2 + 2 * at)
    return X, [3 + 2 * at for at in range(len(axes))]


def _mask(axes: Sequence[Axis], padded: bool) -> np.ndarray:
    """Whether each place is inside of the input (or of its padding), in the shape of `gathered`."""
    mask = np.ones((), dtype=bool)
    for axis in axes:
        positions = axis.positions
        low, high = (-axis.begin, axis.size + axis.end) if padded else (0, axis.size)
        inside = (positions >= low) & (positions < high)
        mask = mask[..., None, None] & inside
    return mask


def _says(g: GraphContext, op_type: str, axes: list[Axis], named: dict[str, Any]) -> bool:
    """Whether the opset's operator takes these arguments, and counts the same windows."""
    schema = schemas.operator_schema(op_type, g.opset)
    if schema is None or any(axis.count != axis.plain_count for axis in axes):
        return False
    wanted = {name for name in ("ceil_mode", "dilations") if _matters(name, named)}
    return wanted <= set(schema.attributes)


def _matters(name: str, named: dict[str, Any]) -> bool:
    value = named.get(name)
    return any(number != 1 for number in value or []) if name == "dilations" else bool(value)


def _register(op_type: str) -> None:
    def symbolic(
        g: GraphContext,
        X: Value,
        kernel_shape: list[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int | None = None,
        dilations: list[int] | None = None,
        pads: list[int] | None = None,
        strides: list[int] | None = None,
        storage_order: int | None = None,
        p: int | None = None,
        outputs: int = 1,
    ) -> Any:
        """Below 22, where the operator does not say it: of gathered windows."""
        named = {
            "kernel_shape": kernel_shape,
            "auto_pad": auto_pad if auto_pad != "NOTSET" else None,
            "ceil_mode": ceil_mode or None,
            "count_include_pad": count_include_pad or None,
            "dilations": dilations if any(item != 1 for item in dilations or []) else None,
            "pads": pads,
            "strides": strides,
            "storage_order": storage_order or None,
            "p": p,
        }
        plain = not ceil_mode and named["dilations"] is None
        axes = [] if plain else windows(g, X, named)
        wide = op_type != "MaxPool" or g.dtype(X) in _pooled(g, op_type)
        if wide and (plain or _says(g, op_type, axes, named)):
            return g.op(op_type, X, outputs=outputs, **named)
        if outputs > 1:
            raise g.refuse("positions of the largest elements of windows that this opset does not have")
        return _composed(g, op_type, X, axes or windows(g, X, named), named)

    below(op_type, 22, any_data=True)(symbolic)


def _pooled(g: GraphContext, op_type: str) -> frozenset[DataType]:
    schema = schemas.operator_schema(op_type, g.opset)
    return frozenset() if schema is None else schema.inputs[0].dtypes


def _composed(g: GraphContext, op_type: str, X: Value, axes: list[Axis], named: dict[str, Any]) -> Value:
    dtype = g.dtype(X)
    if dtype is None:
        raise g.refuse("the element type of its input is unknown")
    taken, inner = gathered(g, X, axes)
    g.reserve(*(axis.count * axis.kernel for axis in axes))
    inside = g.constant(_mask(axes, padded=False))
    if op_type == "MaxPool":
        held = g.cast(taken, DataType.INT32) if dtype in (DataType.INT8, DataType.UINT8) else taken
        kind = g.dtype(held) or DataType.FLOAT
        lowest = dtypes.limits(kind)[0] if kind in dtypes.INTEGERS else float("-inf")
        masked = g.op("Where", inside, held, g.constant(lowest, kind))
        return g.cast(g.op("ReduceMax", masked, axes=inner, keepdims=0), dtype)
    masked = g.op("Where", inside, taken, g.constant(0, dtype))
    if op_type == "LpPool":
        power = named.get("p") or 2
        raised = g.op("Pow", g.op("Abs", masked), g.constant(power, dtype))
        total = g.op("ReduceSum", raised, axes=inner, keepdims=0)
        return g.op("Pow", total, g.constant(1.0 / power, dtype))
    counted = _mask(axes, padded=bool(named.get("count_include_pad")))
    sizes = np.broadcast_to(counted, _mask(axes, padded=False).shape)
    count = sizes.sum(axis=tuple(place - 2 for place in inner))
    total = g.op("ReduceSum", masked, axes=inner, keepdims=0)
    return g.op("Div", total, g.constant(count, dtype))


for _op_type in ("AveragePool", "MaxPool", "LpPool"):
    _register(_op_type)
