"""Ragged and sparse tensors, and sets."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, floats, integers, record

SPLITS = np.array([0, 2, 2, 5, 6], np.int64)
INNER = np.array([0, 1, 3, 3, 4, 6, 6], np.int64)
VALUES = floats(6)
ROWS = np.array([0, 0, 2, 2, 2, 3], np.int64)


def _int64(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


def _ragged():
    def to_tensor(case, shape, types, tensors, values=VALUES, **options):
        return record(
            "RaggedTensorToTensor",
            case,
            shape=shape,
            values=values,
            default_value=np.float32(-1),
            row_partition_tensors=tensors,
            row_partition_types=types,
            needs_rank=True,
            **options,
        )

    free = const(np.array([-1, -1], np.int64))
    yield to_tensor("splits", free, ["ROW_SPLITS"], [SPLITS])
    yield to_tensor("rows", free, ["FIRST_DIM_SIZE", "VALUE_ROWIDS"], [np.int64(5), ROWS])
    yield to_tensor("cut", const(np.array([3, 2], np.int64)), ["ROW_SPLITS"], [SPLITS])
    yield to_tensor("padded", const(np.array([-1, 4], np.int64)), ["ROW_SPLITS"], [SPLITS.astype(np.int32)])
    yield to_tensor(
        "deep", const(np.array([-1, -1, -1], np.int64)), ["ROW_SPLITS", "ROW_SPLITS"], [SPLITS, INNER]
    )
    yield to_tensor(
        "deep_rows",
        const(np.array([-1, -1, 2], np.int64)),
        ["FIRST_DIM_SIZE", "VALUE_ROWIDS", "VALUE_ROWIDS"],
        [np.int64(4), ROWS, _int64(1, 2, 2, 4, 5, 5)],
    )
    yield to_tensor("inner", const(np.array([-1, -1, 3], np.int64)), ["ROW_SPLITS"], [SPLITS], floats(6, 3))
    yield record(
        "RaggedTensorToSparse", "", rt_nested_splits=[SPLITS], rt_dense_values=VALUES, needs_rank=True
    )
    yield record(
        "RaggedTensorToSparse",
        "deep",
        rt_nested_splits=[SPLITS, INNER],
        rt_dense_values=VALUES,
        needs_rank=True,
    )
    yield record(
        "RaggedGather",
        "",
        params_nested_splits=[SPLITS],
        params_dense_values=VALUES,
        indices=array_of([2, 0, 2]),
        needs_rank=True,
        OUTPUT_RAGGED_RANK=1,
    )
    yield record(
        "RaggedGather",
        "deep",
        params_nested_splits=[SPLITS, INNER],
        params_dense_values=VALUES,
        indices=_int64(2, 1, 0),
        needs_rank=True,
        OUTPUT_RAGGED_RANK=2,
    )
    yield record(
        "RaggedGather",
        "matrix",
        params_nested_splits=[SPLITS.astype(np.int32)],
        params_dense_values=VALUES,
        indices=array_of([[3, 1], [0, 2]]),
        needs_rank=True,
        OUTPUT_RAGGED_RANK=2,
    )
    yield record(
        "RaggedRange",
        "",
        starts=array_of([0, 5, 8, 3]),
        limits=array_of([3, 5, 2, 8]),
        deltas=array_of([1, 1, -3, 2]),
    )
    yield record(
        "RaggedRange",
        "broadcast",
        starts=array_of(1.0),
        limits=array_of([3.5, 0.5, 2.0]),
        deltas=array_of(0.5),
        Tsplits=np.dtype("int32"),
    )
    bincount = {"splits": SPLITS, "values": array_of([1, 3, 0, 7, 1, 2])}
    none = np.empty(0, np.float32)
    yield record("RaggedBincount", "", **bincount, size=const(4), weights=none, needs_sizes=True)
    yield record("RaggedBincount", "weights", **bincount, size=const(9), weights=VALUES, needs_sizes=True)
    yield record(
        "RaggedBincount",
        "binary",
        **bincount,
        size=const(4),
        weights=none,
        binary_output=True,
        needs_sizes=True,
    )


INDICES = np.array([[0, 1], [0, 3], [2, 0], [3, 2], [3, 3]], np.int64)
SHAPE = np.array([5, 4], np.int64)
SPARSE_VALUES = floats(5, seed=3)


def _sparse():
    yield record(
        "SparseReshape",
        "",
        input_indices=INDICES,
        input_shape=SHAPE,
        new_shape=const(np.array([2, -1], np.int64)),
        needs_sizes=True,
    )
    yield record(
        "SparseReshape",
        "computed",
        input_indices=INDICES,
        input_shape=SHAPE,
        new_shape=np.array([-1, 5, 2], np.int64),
        needs_sizes=True,
    )
    fill = {"dense_shape": SHAPE, "default_value": np.float32(9), "needs_sizes": True}
    unordered = INDICES[[3, 0, 4, 2, 1]]
    yield record("SparseFillEmptyRows", "", indices=INDICES, values=SPARSE_VALUES, **fill)
    yield record("SparseFillEmptyRows", "unordered", indices=unordered, values=SPARSE_VALUES, **fill)
    yield record(
        "SparseFillEmptyRows",
        "full",
        indices=np.array([[0, 1], [1, 0]], np.int64),
        values=array_of(["x", "y"]),
        dense_shape=np.array([2, 3], np.int64),
        default_value=np.array("", object),
        needs_sizes=True,
    )
    yield record(
        "SparseReorder",
        "",
        input_indices=unordered,
        input_values=SPARSE_VALUES,
        input_shape=SHAPE,
        needs_sizes=True,
    )
    yield record(
        "SparseConcat",
        "",
        indices=[INDICES, INDICES[:3]],
        values=[SPARSE_VALUES, SPARSE_VALUES[:3]],
        shapes=[SHAPE, SHAPE],
        concat_dim=-1,
        needs_sizes=True,
    )
    yield record(
        "SparseSlice",
        "",
        indices=INDICES,
        values=SPARSE_VALUES,
        shape=SHAPE,
        start=_int64(0, 1),
        size=_int64(4, 9),
        needs_sizes=True,
    )
    dense = {"sp_indices": INDICES, "sp_values": SPARSE_VALUES, "sp_shape": SHAPE}
    yield record("SparseDenseCwiseAdd", "", **dense, dense=floats(5, 4), needs_sizes=True)
    yield record("SparseDenseCwiseMul", "broadcast", **dense, dense=floats(4), needs_sizes=True)
    yield record("SparseDenseCwiseDiv", "", **dense, dense=floats(5, 1), needs_sizes=True)
    tensor = {"a_indices": INDICES, "a_values": SPARSE_VALUES, "a_shape": SHAPE}
    yield record("SparseTensorDenseAdd", "", **tensor, b=floats(5, 4), needs_sizes=True)
    reduced = {
        "input_indices": INDICES,
        "input_values": SPARSE_VALUES,
        "input_shape": SHAPE,
    }
    yield record("SparseReduceSum", "", **reduced, reduction_axes=const([1]), needs_sizes=True)
    yield record(
        "SparseReduceSum", "keep", **reduced, reduction_axes=const([0]), keep_dims=True, needs_sizes=True
    )
    lowest = {**reduced, "input_values": -np.abs(SPARSE_VALUES), "needs_sizes": True}
    yield record("SparseReduceMax", "", **lowest, reduction_axes=const([1]))
    yield record("SparseReduceMax", "keep", **lowest, reduction_axes=const([0]), keep_dims=True)
    added = {"a_indices": INDICES[:-1], "a_values": SPARSE_VALUES[:-1], "a_shape": SHAPE}
    added |= {"b_indices": INDICES[1:], "b_values": 0.5 * SPARSE_VALUES[1:], "b_shape": SHAPE}
    for case, limit in (("", 0.0), ("threshold", 1.0)):
        yield record("SparseAdd", case, **added, thresh=const(limit), needs_sizes=True)
    softmax = {"sp_indices": INDICES, "sp_values": SPARSE_VALUES, "sp_shape": SHAPE, "needs_sizes": True}
    yield record("SparseSoftmax", "", **softmax)
    yield record(
        "SparseBincount",
        "",
        indices=INDICES,
        values=array_of([1, 1, 0, 2, 5]),
        dense_shape=SHAPE,
        size=const(4),
        weights=np.empty(0, np.float32),
        needs_sizes=True,
    )


def _sets():
    first = integers(2, 3, 4, high=3, low=0, seed=1)
    second = integers(2, 3, 5, high=5, low=1, seed=2)
    for name in ("a-b", "b-a", "intersection", "union"):
        yield record(
            "DenseToDenseSetOperation", name, set1=first, set2=second, set_operation=name, needs_rank=True
        )
    yield record(
        "SetSize",
        "",
        set_indices=INDICES,
        set_values=_int64(*[4, 4, 0, 1, 1][: len(INDICES)]),
        set_shape=SHAPE,
        needs_sizes=True,
    )


_VARIANTS = (
    "a session does not return variants; ragged_rows of tests/exporter/capture/tensorflow/test_models.py"
)
WITHOUT_RECORDS = dict.fromkeys(("RaggedTensorToVariant", "RaggedTensorFromVariant"), _VARIANTS)


def _crosses():
    first, second = np.array([[1, -2], [3, 2**40]]), np.array([[5], [0]])
    options = {
        "indices": [],
        "values": [],
        "shapes": [],
        "out_type": "int64",
        "internal_type": "int64",
        "hashed_output": True,
        "hash_key": 956888297470,
    }
    yield record(
        "SparseCross",
        "",
        dense_inputs=[first, second, first + 7],
        num_buckets=100,
        needs_rank=True,
        **options,
    )
    yield record(
        "SparseCross", "no_buckets", dense_inputs=[first, second], num_buckets=0, needs_rank=True, **options
    )


RECORDS = [*_ragged(), *_sparse(), *_sets(), *_crosses()]
