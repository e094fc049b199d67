"""Reads, writes and searches by index."""

from __future__ import annotations

import numpy as np

from ..records import array_of, bools, const, floats, integers, record

X = floats(4, 3, 2)


def _reads():
    yield record("Gather", "", params=X, indices=array_of([[3, 0], [1, 1]]))
    yield record("Gather", "scalar", params=X, indices=array_of(2))
    yield record("GatherV2", "", params=X, indices=array_of([2, 0]), axis=const(1))
    yield record(
        "GatherV2",
        "last",
        params=X,
        indices=array_of([1, 0, 1]).astype(np.int64),
        axis=const(-1),
        needs_rank=True,
    )
    yield record("GatherV2", "constant", params=integers(5), indices=const([1, 3]), axis=const(0))
    yield record("GatherV2", "empty", params=X, indices=const([]), axis=const(0))
    yield record(
        "GatherV2",
        "batch",
        params=X,
        indices=array_of([[0, 2], [1, 1], [2, 2], [0, 1]]),
        axis=const(1),
        batch_dims=1,
        needs_rank=True,
    )
    yield record(
        "GatherV2",
        "batch_apart",
        params=floats(2, 3, 4, 5),
        indices=array_of([[0, 2, 1], [1, 3, 3]]),
        axis=const(2),
        batch_dims=1,
        needs_rank=True,
    )
    yield record(
        "GatherV2",
        "batch_deep",
        params=floats(2, 3, 4),
        indices=array_of([[[0], [1], [3]], [[2], [2], [0]]]),
        axis=const(2),
        batch_dims=2,
        needs_rank=True,
    )
    yield record(
        "GatherV2",
        "batch_negative",
        params=floats(2, 3, 4),
        indices=array_of([[0, 2], [1, 3]]),
        axis=const(-1),
        batch_dims=-1,
        needs_rank=True,
    )
    yield record("GatherNd", "rows", params=X, indices=array_of([[0], [3]]), needs_rank=True, loses_rank=True)
    yield record(
        "GatherNd",
        "elements",
        params=X,
        indices=array_of([[0, 1, 1], [3, 2, 0]]),
        needs_rank=True,
        loses_rank=True,
    )
    yield record(
        "GatherNd",
        "matrix",
        params=X,
        indices=array_of([[[0, 1]], [[3, 2]]]),
        needs_rank=True,
        loses_rank=True,
    )
    yield record("GatherNd", "empty_tuples", params=X, indices=np.zeros((2, 0), np.int32), needs_shapes=True)
    for position in (0, -1):
        yield record(
            "GatherV2",
            f"computed_axis_{position % 3}",
            params=X,
            indices=array_of([[1, 0], [1, 1]]),
            axis=array_of(position),
            needs_rank=True,
        )
    yield record("Where", "", input=bools(3, 4))
    yield record("Where", "vector", input=bools(5))
    yield record("Where", "floats", input=array_of([[0.0, 1.0], [-2.0, 0.0]]))


def _writes():
    places = array_of([[1], [3], [1]])
    rows = floats(3, 3, 2, seed=1)
    unique = array_of([[1], [3], [0]])
    # Below 11 the ranks must be known.
    options = {"needs_rank": True}
    yield record("ScatterNd", "", indices=places, updates=rows, shape=const([5, 3, 2]), **options)
    yield record(
        "ScatterNd",
        "elements",
        indices=array_of([[0, 1], [2, 2]]),
        updates=floats(2),
        shape=const([3, 3]),
        **options,
    )
    yield record(
        "ScatterNd",
        "int32",
        indices=places,
        updates=integers(3),
        shape=array_of([5]),
        loses_rank=True,
        needs_sizes=True,
    )
    yield record("TensorScatterUpdate", "", tensor=X, indices=unique, updates=rows, **options)
    yield record(
        "TensorScatterUpdate", "bools", tensor=bools(4), indices=unique, updates=bools(3, seed=1), **options
    )
    for name in ("Add", "Sub", "Max", "Min"):
        yield record(f"TensorScatter{name}", "", tensor=X, indices=places, updates=rows, **options)
        yield record(
            f"TensorScatter{name}",
            "int32",
            tensor=integers(4),
            indices=places,
            updates=integers(3, seed=1),
            **options,
        )


def _searches():
    rows = np.sort(floats(2, 6), axis=1)
    for op in ("LowerBound", "UpperBound"):
        yield record(op, "", sorted_inputs=rows, values=floats(2, 4, seed=1), needs_rank=True)
        yield record(
            op,
            "ties",
            sorted_inputs=array_of([[1, 2, 2, 3]]),
            values=array_of([[2, 0, 9]]),
            out_type="int64",
            needs_rank=True,
        )
    yield record(
        "Bucketize",
        "",
        input=array_of([[-5.0, 10.0], [150.0, 5.0]]),
        boundaries=[0.0, 10.0, 100.0],
        needs_rank=True,
    )
    yield record(
        "Bucketize",
        "ints",
        input=array_of([-5, 10, 150, 100]),
        boundaries=[0.0, 10.0, 100.0],
        needs_rank=True,
    )
    yield record("ListDiff", "", x=array_of([1, 2, 3, 4, 5, 6, 2]), y=array_of([1, 3, 5]))
    yield record("ListDiff", "floats", x=array_of([1.0, 2.0]), y=array_of([2.0]), out_idx="int64")
    yield record(
        "DynamicPartition", "", data=X, partitions=array_of([1, 0, 1, 2]), num_partitions=3, needs_rank=True
    )
    yield record(
        "DynamicPartition",
        "matrix",
        data=X,
        partitions=array_of([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]]),
        num_partitions=2,
        needs_rank=True,
    )
    yield record(
        "DynamicStitch",
        "",
        indices=[array_of([0, 4]), array_of([[2, 1], [3, 0]])],
        data=[floats(2, 3), floats(2, 2, 3, seed=1)],
        needs_rank=True,
    )
    yield record(
        "ParallelDynamicStitch",
        "",
        indices=[array_of([2, 0]), array_of([1])],
        data=[floats(2), floats(1, seed=1)],
        needs_rank=True,
    )


def _sparse():
    places = array_of([[0, 1], [2, 0], [2, 3]])
    numbers = floats(3)
    zero = const(0.0)
    yield record(
        "SparseToDense",
        "",
        sparse_indices=places,
        output_shape=const([3, 4]),
        sparse_values=numbers,
        default_value=const(-1.0),
        needs_sizes=True,
    )
    yield record(
        "SparseToDense",
        "vector",
        sparse_indices=array_of([1, 4]),
        output_shape=const([6]),
        sparse_values=const(7.0),
        default_value=zero,
        needs_rank=True,
    )
    matrix = {"a_indices": places.astype(np.int64), "a_values": numbers, "a_shape": const([3, 4], np.int64)}
    yield record("SparseTensorDenseMatMul", "", **matrix, b=floats(4, 2, seed=1), needs_sizes=True)
    yield record(
        "SparseTensorDenseMatMul",
        "adjoint",
        **matrix,
        b=floats(2, 3, seed=1),
        adjoint_a=True,
        adjoint_b=True,
        needs_sizes=True,
    )
    for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
        yield record(
            op,
            "",
            x=floats(4, 2),
            i=array_of([2, 0]),
            v=floats(2, 2, seed=1),
            needs_rank=True,
        )
    yield record(
        "ScatterNdNonAliasingAdd",
        "",
        input=X,
        indices=array_of([[1], [1]]),
        updates=floats(2, 3, 2, seed=1),
        needs_rank=True,
    )
    yield record("UnravelIndex", "", indices=array_of([7, 0, 23]), dims=const([2, 3, 4]))


RECORDS = [*_reads(), *_writes(), *_searches(), *_sparse()]
