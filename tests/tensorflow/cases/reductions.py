"""Reductions, cumulative operators, order, unique elements, segments."""

from __future__ import annotations

import numpy as np

from ..records import array_of, bools, const, floats, integers, positive, record

NAN, INF = float("nan"), float("inf")
X = floats(2, 3, 4)


def _reductions():
    for op in ("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"):
        yield record(op, "axis", input=X, reduction_indices=const(1))
        yield record(op, "axes_kept", input=X, reduction_indices=const([-1, 0]), keep_dims=True)
        yield record(op, "all", input=X, reduction_indices=const([0, 1, 2]))
        yield record(op, "none", input=X, reduction_indices=const([]))
        yield record(op, "int64_axes", input=X, reduction_indices=const([2], np.int64))
        yield record(
            op,
            "computed_axes",
            input=X,
            reduction_indices=array_of([2, 0]),
            loses_rank=True,
            lowest=18 if op != "Sum" else 13,
        )
    for op in ("Sum", "Mean", "Max", "Min", "Prod"):
        needs_rank = op in ("Prod",)
        yield record(op, "int32", input=integers(2, 3), reduction_indices=const(1), needs_rank=needs_rank)
        yield record(
            op,
            "int64",
            input=integers(2, 3, dtype=np.int64),
            reduction_indices=const([0, 1]),
            needs_rank=needs_rank,
        )
        yield record(op, "double", input=floats(2, 3, dtype=np.float64), reduction_indices=const(0))
        yield record(op, "half", input=floats(2, 3, dtype=np.float16), reduction_indices=const(0))
    for op in ("Sum", "Max"):
        yield record(op, "int8", input=integers(2, 3, dtype=np.int8), reduction_indices=const(1))
        yield record(op, "uint8", input=integers(2, 3, low=0, dtype=np.uint8), reduction_indices=const(1))
    yield record(
        "Prod", "wraps", input=array_of([65536, 65536, 3]), reduction_indices=const(0), needs_rank=True
    )
    yield record("Sum", "empty", input=floats(0, 3), reduction_indices=const(0))
    yield record("Mean", "empty", input=floats(0, 3), reduction_indices=const(0), needs_shapes=True)
    yield record("Sum", "scalar", input=floats(), reduction_indices=const([]))
    for op in ("Any", "All"):
        yield record(op, "axis", input=bools(3, 4), reduction_indices=const(1))
        yield record(op, "all_kept", input=bools(3, 4), reduction_indices=const([0, 1]), keep_dims=True)
        yield record(op, "empty", input=bools(0, 3), reduction_indices=const(0))
        yield record(op, "none", input=bools(2, 3), reduction_indices=const([]))
    for op in ("ArgMax", "ArgMin"):
        yield record(op, "axis", input=X, dimension=const(1))
        yield record(op, "last", input=X, dimension=const(-1), output_type="int32")
        yield record(op, "ties", input=array_of([[1.0, 3.0, 3.0, 1.0]]), dimension=const(1, np.int64))
        yield record(op, "int32", input=integers(3, 4), dimension=const(0))
        yield record(op, "int64", input=integers(3, 4, dtype=np.int64), dimension=const(0), needs_rank=True)
        yield record(op, "uint8", input=integers(3, 4, low=0, dtype=np.uint8), dimension=const(0))
        yield record(op, "half", input=floats(3, 4, dtype=np.float16), dimension=const(0))
        yield record(op, "computed_axis", input=floats(3, 4, 2), dimension=array_of(-2), needs_rank=True)
    yield record("ArgMax", "bools", input=bools(3, 4), dimension=const(1))


def _counts():
    numbers = array_of([0, 3, 1, 3, 7, 2])
    yield record("Bincount", "plain", arr=numbers, size=const(5), weights=const([], np.int32))
    yield record("Bincount", "weights", arr=numbers, size=const(5), weights=positive(6))
    yield record("Bincount", "empty", arr=numbers, size=const(5), weights=array_of([]).astype(np.float32))
    yield record("Bincount", "computed_size", arr=numbers, size=array_of(8), weights=const([], np.float32))
    yield record(
        "DenseBincount", "vector", input=numbers, size=const(5), weights=const([], np.int32), needs_rank=True
    )
    yield record(
        "DenseBincount",
        "rows",
        input=numbers.reshape(2, 3),
        size=const(5),
        weights=const([], np.int64),
        needs_rank=True,
    )
    yield record(
        "DenseBincount",
        "binary",
        input=numbers.reshape(2, 3),
        size=const(5),
        weights=const([], np.int32),
        binary_output=True,
        needs_rank=True,
    )
    yield record(
        "HistogramFixedWidth", "", values=floats(20, scale=3), value_range=const([-4.0, 4.0]), nbins=const(5)
    )


def _cumulative():
    for op in ("Cumsum", "Cumprod"):
        for exclusive in (False, True):
            for reverse in (False, True):
                case = f"{'exclusive' if exclusive else 'inclusive'}_{'reverse' if reverse else 'forward'}"
                yield record(
                    op,
                    case,
                    x=X,
                    axis=const(1),
                    exclusive=exclusive,
                    reverse=reverse,
                    needs_rank=op == "Cumsum" or exclusive or reverse,
                )
        yield record(op, "negative_axis", x=X, axis=const(-1), needs_rank=True)
        yield record(op, "int32", x=integers(2, 5), axis=const(1), needs_rank=op == "Cumsum")
        yield record(op, "half", x=floats(2, 5, dtype=np.float16), axis=const(0), needs_rank=op == "Cumsum")
    yield record("Cumsum", "computed_axis", x=X, axis=array_of(1), lowest=11)
    yield record("CumulativeLogsumexp", "computed_axis", x=X, axis=array_of(-2), needs_rank=True)
    for exclusive in (False, True):
        for reverse in (False, True):
            yield record(
                "CumulativeLogsumexp",
                f"{'exclusive' if exclusive else 'inclusive'}_{'reverse' if reverse else 'forward'}",
                x=X,
                axis=const(1),
                exclusive=exclusive,
                reverse=reverse,
                needs_rank=True,
            )


def _order():
    yield record("TopKV2", "floats", input=X, k=const(3), needs_rank=True)
    yield record("TopKV2", "ties", input=array_of([[1.0, 2.0, 2.0, 1.0, 2.0]]), k=const(3), needs_rank=True)
    yield record("TopKV2", "int32", input=integers(2, 6), k=const(3), needs_rank=True)
    yield record("TopKV2", "int64", input=integers(2, 6, dtype=np.int64), k=const(3), needs_rank=True)
    yield record("TopKV2", "computed", input=X, k=array_of(2), needs_rank=True)
    yield record("ApproxTopK", "", input=X, k=3, needs_rank=True)
    yield record("TopKV2", "double", input=floats(5, dtype=np.float64), k=const(5), needs_rank=True)
    yield record("NthElement", "", input=X, n=const(1), needs_rank=True)
    yield record("NthElement", "reverse", input=X, n=const(0), reverse=True, needs_rank=True)
    predictions = array_of(
        [[0.1, 0.3, 0.3, 0.2], [0.9, 0.0, 0.05, 0.05], [NAN, 0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4]]
    )
    targets = array_of([2, 3, 1, 9])
    yield record("InTopK", "", predictions=predictions, targets=targets, k=1, needs_rank=True)
    yield record("InTopKV2", "", predictions=predictions, targets=targets, k=const(2), needs_rank=True)
    repeated = array_of([3, 1, 3, 2, 1, 7])
    for op in ("Unique", "UniqueWithCounts"):
        yield record(op, "int32", x=repeated, needs_rank=True)
        yield record(op, "floats", x=repeated.astype(np.float32), out_idx="int64", needs_rank=True)
    for op in ("UniqueV2", "UniqueWithCountsV2"):
        yield record(op, "vector", x=repeated.astype(np.int64), axis=const([0]), needs_rank=True)
        yield record(op, "no_axis", x=repeated, axis=const([], np.int64), needs_rank=True)
        yield record(op, "rows", x=array_of([[1, 2], [3, 4], [1, 2]]), axis=const([0]), lowest=11)


def _segments():
    rows = floats(5, 3)
    ids = array_of([0, 0, 1, 3, 3])
    shuffled = array_of([2, 0, -1, 2, 0])
    for name in ("Sum", "Mean", "Max", "Min", "Prod"):
        yield record(f"Segment{name}", "gap", data=rows, segment_ids=ids)
        yield record(f"Segment{name}", "vector", data=floats(5), segment_ids=ids.astype(np.int64))
    for name in ("Sum", "Max", "Min"):
        yield record(f"Segment{name}", "int32", data=integers(5, 2), segment_ids=ids)
    for name in ("Sum", "Max", "Min", "Prod"):
        yield record(
            f"UnsortedSegment{name}",
            "rows",
            data=rows,
            segment_ids=shuffled,
            num_segments=const(4),
        )
        yield record(
            f"UnsortedSegment{name}",
            "matrix",
            data=floats(2, 3, 2),
            segment_ids=array_of([[0, 1, 0], [2, 1, -1]]),
            num_segments=const(3),
        )
    yield record(
        "UnsortedSegmentSum",
        "int64",
        data=integers(5, dtype=np.int64),
        segment_ids=shuffled,
        num_segments=const(3),
    )
    yield record(
        "UnsortedSegmentSum",
        "computed",
        data=rows,
        segment_ids=shuffled,
        num_segments=array_of(5),
    )
    for name in ("Sum", "Mean", "SqrtN"):
        yield record(
            f"SparseSegment{name}",
            "",
            data=rows,
            indices=array_of([4, 0, 0, 2]),
            segment_ids=array_of([0, 0, 1, 3]),
        )
        yield record(
            f"SparseSegment{name}WithNumSegments",
            "",
            data=rows,
            indices=array_of([4, 0, 0, 2]),
            segment_ids=array_of([0, 0, 1, 3]),
            num_segments=const(5),
        )


RECORDS = [*_reductions(), *_counts(), *_cumulative(), *_order(), *_segments()]

_ONLY_XLA = "TensorFlow has kernels for XLA only; tests/tensorflow/test_without_kernels.py"
WITHOUT_RECORDS = {f"Segment{name}V2": _ONLY_XLA for name in ("Max", "Min", "Prod", "Sum")}
