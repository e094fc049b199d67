"""Distributes rows to several tensors, and merges them again."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import where_true


@onnx_symbolic("tf::DynamicPartition")
def dynamic_partition(g: GraphContext, data: Value, partitions: Value, num_partitions: int) -> list[Value]:
    """The rows of each partition."""
    if g.rank(partitions) != 1:
        rank, data_rank = g.rank(partitions), g.rank(data)
        if rank is not None and data_rank is not None and data_rank < rank:
            raise g.refuse(
                f"its data has {data_rank} dimensions, fewer than its partitions, which have {rank}"
            )
        if rank is None:
            raise g.refuse("the rank of the partitions is unknown")
        row_sizes = [g.size(data, dim) for dim in range(rank, g.rank(data) or rank)]
        data = g.call("aten::reshape", self=data, shape=[-1, *row_sizes])
        partitions = g.op("Reshape", partitions, [-1])
    masks = [g.op("Equal", partitions, number) for number in range(num_partitions)]
    positions = [where_true(g, mask) for mask in masks]
    return [g.op("Gather", data, row_positions, axis=0) for row_positions in positions]


@onnx_symbolic(["tf::DynamicStitch", "tf::ParallelDynamicStitch"])
def dynamic_stitch(g: GraphContext, indices: list[Value], data: list[Value]) -> Value:
    """Write rows to their positions; the last row for a position wins."""
    ranks = [g.rank(index) for index in indices]
    if None in ranks or g.rank(data[0]) is None:
        raise g.refuse("the ranks of the indices are unknown")
    for values, rank in zip(data, ranks, strict=True):
        data_rank = g.rank(values)
        if data_rank is not None and rank is not None and data_rank < rank:
            raise g.refuse(f"its data has {data_rank} dimensions, fewer than its indices, which have {rank}")
    flat, rows = [], []
    for index, values, rank in zip(indices, data, ranks, strict=True):
        row_sizes = [g.size(values, dim) for dim in range(rank or 0, g.rank(values) or 0)]
        flat.append(g.op("Reshape", g.cast(index, DataType.INT64), [-1]))
        rows.append(g.call("aten::reshape", self=values, shape=[-1, *row_sizes]))
    positions = flat[0] if len(flat) == 1 else g.op("Concat", *flat, axis=0)
    all_rows = rows[0] if len(rows) == 1 else g.op("Concat", *rows, axis=0)
    # The result has as many rows as the highest index needs.
    count = g.op("Add", g.op("ReduceMax", positions, axes=[0], keepdims=0), 1)
    zeros = g.call(
        "composed::full",
        size=[count, *[g.size(all_rows, dim) for dim in range(1, g.rank(all_rows) or 1)]],
        fill_value=0,
        dtype=g.dtype(data[0]) or DataType.FLOAT,
    )
    return g.call("composed::write_rows", self=zeros, index=positions, values=all_rows)
