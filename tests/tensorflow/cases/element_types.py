"""Operators that take every element type, with each of them; and operators of tensors without elements.

They run in full runs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..records import Array, Record, array_of, bools, const, floats, integers, record

_TYPES = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int64,
    np.uint32,
    np.uint64,
    np.float16,
    np.float64,
    np.bool_,
)
_OPTIONS = {"full_runs_only": True, "needs_shapes": True}

Calls = Iterator[tuple[str, dict[str, Any]]]


def _example(dtype: Any) -> Array:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return floats(2, 3, dtype=dtype)
    return integers(2, 3, low=-5 if kind == "i" else 0, high=9).astype(dtype)


def _of_any_type(x: Array) -> Calls:
    flat = x.reshape(-1)
    yield "Reshape", {"tensor": x, "shape": const([3, 2])}
    yield "Transpose", {"x": x, "perm": const([1, 0])}
    yield "ConcatV2", {"values": [x, x], "axis": const(-1)}
    yield "Pack", {"values": [x, x], "axis": 1}
    yield "Unpack", {"value": x, "num": 2, "axis": 0}
    yield "Split", {"split_dim": const(1), "value": x, "num_split": 3}
    yield (
        "StridedSlice",
        {"input": x, "begin": const([0, 2]), "end": const([2, 0]), "strides": const([1, -1])},
    )
    yield "Slice", {"input": x, "begin": const([0, 1]), "size": const([-1, 2])}
    yield "GatherV2", {"params": x, "indices": const([1, 0]), "axis": const(1)}
    yield "GatherNd", {"params": x, "indices": array_of([[0, 1], [1, 2]])}
    yield "ZerosLike", {"x": x}
    yield "OnesLike", {"x": x}
    yield "Fill", {"dims": array_of([2, 2]), "value": flat[0]}
    yield "ReverseV2", {"tensor": x, "axis": const([1])}
    yield "Roll", {"input": x, "shift": const([1]), "axis": const([1])}
    yield "BroadcastTo", {"input": x, "shape": const([2, 2, 3])}
    yield "Pad", {"input": x, "paddings": const([[1, 0], [0, 1]])}
    yield "MirrorPad", {"input": x, "paddings": const([[1, 0], [0, 1]]), "mode": "SYMMETRIC"}
    yield "SelectV2", {"condition": bools(2, 3), "t": x, "e": flat[0]}
    yield (
        "OneHot",
        {"indices": array_of([0, 1]), "depth": const(3), "on_value": flat[1], "off_value": flat[0]},
    )
    yield "Equal", {"x": x, "y": flat[0]}
    yield "MatrixBandPart", {"input": x, "num_lower": const(0), "num_upper": const(-1)}
    yield "MatrixDiagPart", {"input": x}
    yield "TensorScatterUpdate", {"tensor": x, "indices": array_of([[1]]), "updates": x[:1]}
    parts = array_of([0, 1, 0, 1, 0, 1])
    yield "DynamicPartition", {"data": flat, "partitions": parts, "num_partitions": 2}


def _of_numbers(x: Array) -> Calls:
    flat, row = x.reshape(-1), const(1)
    for op in ("Sum", "Max", "Min", "Prod", "Mean"):
        yield op, {"input": x, "reduction_indices": row}
    yield "ArgMax", {"input": x, "dimension": row}
    yield "Cumsum", {"x": x, "axis": row}
    yield "AddN", {"inputs": [x, x]}
    yield "Less", {"x": x, "y": flat[0]}
    yield "Minimum", {"x": x, "y": flat[0]}
    yield "Square", {"x": x}
    yield "TopKV2", {"input": x, "k": const(2)}
    yield "UniqueV2", {"x": flat, "axis": const([0])}
    ids = array_of([0, 1, 0, 1, 0, 1])
    for name in ("Sum", "Max"):
        yield f"UnsortedSegment{name}", {"data": flat, "segment_ids": ids, "num_segments": const(3)}
    yield "ScatterNd", {"indices": array_of([[1], [1]]), "updates": x, "shape": const([3, 3])}


def _of_nothing(empty: Array) -> Calls:
    places = empty.astype(np.int32)
    yield "Exp", {"x": empty}
    yield "AddV2", {"x": empty, "y": const(1.0)}
    yield "ConcatV2", {"values": [empty, empty], "axis": const(0)}
    yield "Pack", {"values": [empty, empty], "axis": 0}
    yield "Reshape", {"tensor": empty, "shape": const([0, 4])}
    yield "Tile", {"input": empty, "multiples": const([2] * empty.ndim)}
    yield "Sum", {"input": empty, "reduction_indices": const(0)}
    yield "Prod", {"input": empty, "reduction_indices": const(0)}
    yield "Cumsum", {"x": empty, "axis": const(0)}
    yield "Where", {"input": empty}
    yield "Shape", {"input": empty}
    yield "ReverseV2", {"tensor": empty, "axis": const([0])}
    yield "GatherV2", {"params": floats(4, 3), "indices": places, "axis": const(0)}
    yield "OneHot", {"indices": places, "depth": const(3), "on_value": const(1.0), "off_value": const(0.0)}
    yield "Select", {"condition": empty > 0, "t": empty, "e": empty}


def _all() -> Iterator[Record]:
    for dtype in _TYPES:
        x, name = _example(dtype), np.dtype(dtype).name
        for op, arguments in _of_any_type(x):
            yield record(op, f"of_{name}", **arguments, **_OPTIONS)
        if name != "bool":
            for op, arguments in _of_numbers(x):
                yield record(op, f"of_{name}", **arguments, **_OPTIONS)
    for shape in ((0,), (0, 3), (2, 0)):
        for op, arguments in _of_nothing(floats(*shape)):
            yield record(op, f"without_elements_{len(shape)}_{shape[0]}", **arguments, **_OPTIONS)


RECORDS = list(_all())
