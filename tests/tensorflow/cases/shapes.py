"""Shapes, joins, slices, padding, blocks, creation, and operators that pass tensors on."""

from __future__ import annotations

import numpy as np

from ..records import array_of, bools, const, floats, integers, record

X = floats(2, 3, 4)


def _shape():
    yield record("Shape", "", input=X)
    yield record("Shape", "int64", input=X, out_type="int64")
    yield record("ShapeN", "", input=[X, floats(5)])
    yield record("Size", "", input=X)
    yield record("Size", "int64", input=X, out_type="int64")
    yield record("Rank", "", input=X)
    yield record("Reshape", "", tensor=X, shape=const([4, 6]))
    yield record("Reshape", "rest", tensor=X, shape=const([-1, 8]))
    yield record("Reshape", "flat", tensor=X, shape=const([-1], np.int64))
    yield record("Reshape", "scalar", tensor=floats(1), shape=const([]))
    yield record("Reshape", "computed", tensor=X, shape=array_of([4, -1]), loses_rank=True)
    yield record("Reshape", "empty", tensor=floats(0, 3), shape=const([3, 0]))
    yield record("Squeeze", "all", input=floats(1, 3, 1), loses_rank=True)
    yield record("Squeeze", "axes", input=floats(1, 3, 1), squeeze_dims=[0])
    yield record("Squeeze", "negative", input=floats(1, 3, 1), squeeze_dims=[-1], needs_rank=True)
    for axis in (0, 1, 3):
        yield record("ExpandDims", f"axis{axis}", input=X, dim=const(axis))
    yield record("ExpandDims", "last", input=X, dim=const(-1), needs_rank=True)
    yield record("Transpose", "", x=X, perm=const([2, 0, 1]))
    yield record("Transpose", "strings", x=array_of([["a", "b"], ["c", "d"]]), perm=const([1, 0]))
    yield record("ConjugateTranspose", "", x=X, perm=const([1, 0, 2]))
    yield record("InvertPermutation", "constant", x=const([2, 0, 1]))
    yield record("InvertPermutation", "computed", x=array_of([2, 0, 3, 1]))
    yield record("BroadcastTo", "", input=floats(3, 1), shape=const([2, 3, 4]))
    yield record("BroadcastTo", "computed", input=floats(3, 1), shape=array_of([2, 3, 4]), loses_rank=True)
    yield record("BroadcastTo", "ints", input=integers(1), shape=const([3]))
    yield record("BroadcastArgs", "constant", s0=const([3, 1]), s1=const([2, 1, 4]))
    yield record("BroadcastArgs", "computed", s0=array_of([3, 1]), s1=array_of([2, 1, 4]), loses_rank=True)
    yield record("Tile", "", input=X, multiples=const([1, 2, 3]))
    yield record("Tile", "ones", input=X, multiples=const([1, 1, 1]))
    yield record("Tile", "computed", input=integers(2, 3), multiples=array_of([2, 1]))
    yield record("ReverseV2", "", tensor=X, axis=const([0, -1]), needs_rank=True)
    yield record("ReverseV2", "one", tensor=X, axis=const([1]))
    yield record("ReverseV2", "none", tensor=X, axis=const([]))
    yield record("ReverseV2", "computed_axes", tensor=X, axis=array_of([0, -1]), needs_sizes=True)
    yield record("Reverse", "", tensor=X, dims=const([True, False, True]))
    yield record(
        "ReverseSequence",
        "time_first",
        input=floats(4, 3, 2),
        seq_lengths=array_of([2, 4, 1]),
        seq_dim=0,
        batch_dim=1,
        needs_rank=True,
    )
    yield record(
        "ReverseSequence",
        "batch_first",
        input=floats(3, 4, 2),
        seq_lengths=array_of([2, 4, 1]).astype(np.int64),
        seq_dim=1,
        batch_dim=0,
        needs_rank=True,
    )
    yield record(
        "ReverseSequence",
        "later_axes",
        input=floats(2, 3, 4),
        seq_lengths=array_of([2, 4, 1]),
        seq_dim=2,
        batch_dim=1,
        needs_rank=True,
    )
    yield record("Roll", "", input=X, shift=const([1, -2]), axis=const([0, 2]), needs_rank=True)
    yield record("Roll", "scalar", input=X, shift=const(2), axis=const(1), needs_rank=True)
    yield record("Roll", "computed", input=X, shift=array_of([3]), axis=const([1]), needs_rank=True)
    yield record("Roll", "computed_axis", input=X, shift=array_of(3), axis=array_of(-2), needs_rank=True)


def _layouts():
    yield record("DataFormatDimMap", "", x=array_of([0, 1, 3, -1, -3]))
    yield record("DataFormatVecPermute", "", x=array_of([1, 8, 9, 3]), needs_sizes=True)
    yield record("DataFormatVecPermute", "spatial", x=array_of([8, 9]), needs_sizes=True)
    yield record(
        "DataFormatVecPermute",
        "back",
        x=array_of([1, 3, 8, 9]),
        src_format="NCHW",
        dst_format="NHWC",
        needs_sizes=True,
    )
    yield record("ToBool", "scalar", input=array_of(2.5), needs_rank=True)
    yield record("ToBool", "empty", input=floats(0, 3), needs_rank=True)


def _joining():
    parts = [floats(2, 1), floats(2, 3, seed=1)]
    yield record("ConcatV2", "", values=parts, axis=const(1))
    yield record("ConcatV2", "negative", values=parts, axis=const(-1), needs_rank=True)
    yield record("ConcatV2", "with_constant", values=[floats(2, 3), const(floats(1, 3))], axis=const(0))
    yield record("ConcatV2", "strings", values=[array_of(["a"]), array_of(["b", "c"])], axis=const(0))
    yield record("ConcatV2", "computed_axis", values=parts, axis=array_of(-1), needs_rank=True)
    yield record("Concat", "", concat_dim=const(1), values=parts)
    yield record("ParallelConcat", "", values=[floats(1, 3), floats(1, 3, seed=1)], shape=[2, 3])
    yield record(
        "ConcatOffset", "", concat_dim=const(1), shape=[const([2, 2, 7]), const([2, 3, 7]), const([2, 9, 7])]
    )
    yield record("Pack", "", values=[floats(2, 3), floats(2, 3, seed=1)], axis=1)
    yield record("Pack", "scalars", values=[floats(), floats(seed=1), const(2.0)])
    yield record("Pack", "last", values=[floats(2, 3), floats(2, 3, seed=1)], axis=-1, needs_rank=True)
    yield record("Pack", "one", values=[integers(2)], axis=0)
    yield record("Unpack", "", value=X, num=3, axis=1)
    yield record("Unpack", "last", value=X, num=4, axis=-1, needs_rank=True)
    yield record("Unpack", "one", value=floats(1, 3), num=1, axis=0)
    yield record("Split", "", split_dim=const(2), value=X, num_split=2)
    yield record("Split", "negative", split_dim=const(-1), value=X, num_split=4, needs_rank=True)
    yield record(
        "Split", "computed_axis", split_dim=array_of(-2), value=floats(2, 4, 3), num_split=2, needs_rank=True
    )
    yield record("Split", "one", split_dim=const(0), value=X, num_split=1)
    yield record("Split", "ints", split_dim=const(0), value=integers(4), num_split=2)
    yield record(
        "SplitV", "", value=floats(6, 2), size_splits=const([1, 3, 2]), split_dim=const(0), num_split=3
    )
    yield record(
        "SplitV",
        "rest",
        value=floats(6, 2),
        size_splits=const([1, -1, 2], np.int64),
        split_dim=const(0),
        num_split=3,
    )
    yield record(
        "SplitV",
        "computed_axis",
        value=floats(6, 2),
        size_splits=const([1, -1]),
        split_dim=array_of(-2),
        num_split=2,
        needs_rank=True,
    )
    yield record(
        "SplitV",
        "computed",
        value=floats(6, 2),
        size_splits=array_of([1, -1, 2]),
        split_dim=const(0),
        num_split=3,
    )


def _slicing():
    yield record("Slice", "", input=X, begin=const([0, 1, 2]), size=const([2, 2, 1]))
    yield record(
        "Slice", "rest", input=X, begin=const([0, 1, 0], np.int64), size=const([-1, -1, 2], np.int64)
    )
    yield record("Slice", "computed_begin", input=X, begin=array_of([0, 1, 2]), size=const([2, 2, 1]))
    yield record(
        "Slice", "computed", input=X, begin=array_of([0, 1, 1]), size=array_of([1, -1, 2]), needs_rank=True
    )
    yield record("Slice", "empty", input=X, begin=const([0, 1, 2]), size=const([2, 0, 1]))
    big = floats(5, 6, 7)

    def strided(case, begin, end, strides, value=big, computed=False, needs_rank=False, **masks):
        put = array_of if computed else const
        return record(
            "StridedSlice",
            case,
            input=value,
            begin=put(begin),
            end=put(end),
            strides=const(strides),
            needs_rank=needs_rank,
            **masks,
        )

    yield strided("plain", [1, 0, 2], [4, 6, 5], [1, 1, 1])
    yield strided("steps", [0, 1, 0], [5, 6, 7], [2, 3, 1])
    yield strided("begin_mask", [3, 1, 2], [4, 6, 5], [1, 1, 1], begin_mask=5)
    yield strided("end_mask", [3, 1, 2], [4, 2, 3], [1, 2, 1], end_mask=6)
    yield strided("negative_bounds", [-3, -2, 0], [-1, 6, -2], [1, 1, 1])
    yield strided("beyond", [-9, 2, 0], [99, 1, 3], [1, 1, 1])
    yield strided("backwards", [4, 5, 6], [0, 1, 2], [-1, -2, -3])
    yield strided("backwards_whole", [0, 0], [0, 0], [-1, -2], begin_mask=3, end_mask=3)
    yield strided("backwards_negative", [-1, -2, -1], [-4, -6, -8], [-1, -1, -2])
    yield strided("backwards_beyond", [-9, 99, 2], [-10, 1, -99], [-1, -1, -1])
    yield strided("backwards_to_last", [4, 3, 2], [-1, 0, 0], [-1, -1, -1])
    yield strided("shrink", [1, 0, -1], [2, 6, 0], [1, 1, 1], shrink_axis_mask=5)
    yield strided("shrink_all", [1, 2, 3], [2, 3, 4], [1, 1, 1], shrink_axis_mask=7)
    yield strided("new_axis", [0, 0, 1], [0, 0, 3], [1, 1, 1], new_axis_mask=3)
    yield strided(
        "new_and_shrink", [0, 2, 0, 1], [0, 3, 0, 3], [1, 1, 1, 1], new_axis_mask=5, shrink_axis_mask=2
    )
    yield strided("new_wins", [0, 1], [0, 3], [1, 1], new_axis_mask=1, shrink_axis_mask=1)
    yield strided("ellipsis_first", [0, 1], [0, 3], [1, 1], ellipsis_mask=1, needs_rank=True)
    yield strided(
        "ellipsis_middle",
        [1, 0, -1],
        [2, 0, 0],
        [1, 1, 1],
        ellipsis_mask=2,
        shrink_axis_mask=5,
        needs_rank=True,
    )
    yield strided("ellipsis_last", [1, 0], [3, 0], [1, 1], ellipsis_mask=2)
    yield strided("ellipsis_new", [0, 0], [0, 0], [1, 1], ellipsis_mask=1, new_axis_mask=2, needs_rank=True)
    yield strided(
        "ellipsis_nothing", [0, 0, 0, 1], [2, 3, 0, 3], [1, 1, 1, 1], ellipsis_mask=4, needs_rank=True
    )
    yield strided("few", [1], [3], [1])
    yield strided("computed", [1, 0, 2], [4, 6, 5], [1, 1, 1], computed=True)
    yield strided("computed_negative", [-3, 0, 2], [-1, 6, -1], [1, 2, 1], computed=True)
    yield strided("computed_shrink", [-3, 2], [-2, 3], [1, 1], computed=True, shrink_axis_mask=3)
    yield strided("computed_backwards", [-1, 3], [1, 0], [-1, -2], computed=True)
    yield strided("ints", [1], [4], [2], value=integers(6))
    yield strided("vector_shrink", [2], [3], [1], value=integers(6), shrink_axis_mask=1)
    yield strided("bools", [1], [4], [1], value=bools(6))
    updated = {"input": floats(4, 5), "begin": const([1, 0]), "end": const([3, 5])}
    yield record(
        "TensorStridedSliceUpdate",
        "",
        **updated,
        strides=const([1, 2]),
        value=floats(2, 3, seed=1),
        needs_rank=True,
    )
    yield record(
        "TensorStridedSliceUpdate",
        "row",
        **updated,
        strides=const([1, 1]),
        value=floats(5, seed=1),
        shrink_axis_mask=1,
        needs_rank=True,
    )
    yield record(
        "TensorStridedSliceUpdate",
        "scalar",
        **updated,
        strides=const([1, 1]),
        value=const(7.0),
        end_mask=3,
        needs_rank=True,
    )


def _padding():
    amounts = [[1, 0], [0, 2], [2, 1]]
    yield record("Pad", "", input=X, paddings=const(amounts), needs_rank=False)
    yield record("Pad", "none", input=X, paddings=const([[0, 0], [0, 0], [0, 0]]))
    yield record("Pad", "int32", input=integers(2, 3), paddings=const([[1, 1], [0, 2]]), needs_rank=True)
    yield record("Pad", "bools", input=bools(2, 3), paddings=const([[1, 1], [0, 2]]), needs_rank=True)
    yield record("Pad", "computed", input=X, paddings=array_of(amounts), needs_rank=True)
    yield record("PadV2", "", input=X, paddings=const(amounts, np.int64), constant_values=const(7.5))
    yield record(
        "PadV2",
        "computed_value",
        input=X,
        paddings=const(amounts),
        constant_values=array_of(2.5),
        needs_rank=True,
    )
    yield record(
        "PadV2",
        "int64",
        input=integers(2, 3, dtype=np.int64),
        paddings=const([[1, 1], [0, 2]]),
        constant_values=const(-1, np.int64),
        needs_rank=True,
    )
    for mode in ("REFLECT", "SYMMETRIC"):
        yield record(
            "MirrorPad",
            mode.lower(),
            input=X,
            paddings=const([[1, 0], [0, 2], [2, 1]]),
            mode=mode,
            needs_rank=mode == "SYMMETRIC",
        )
        yield record(
            "MirrorPad",
            f"{mode.lower()}_int32",
            input=integers(3, 4),
            paddings=const([[1, 1], [0, 2]]),
            mode=mode,
            needs_rank=True,
        )
        yield record(
            "MirrorPad",
            f"{mode.lower()}_computed",
            input=X,
            paddings=array_of([[1, 0], [0, 2], [2, 1]]),
            mode=mode,
            needs_rank=True,
        )
        yield record(
            "MirrorPadGrad",
            mode.lower(),
            input=floats(4, 5, 7),
            paddings=const([[1, 1], [0, 2], [2, 1]]),
            mode=mode,
            needs_rank=True,
        )


def _blocks():
    image = floats(2, 4, 6, 3)
    yield record(
        "SpaceToBatchND",
        "computed_block",
        input=image,
        block_shape=array_of([2, 3]),
        paddings=const([[0, 0], [0, 0]]),
        needs_sizes=True,
    )
    yield record(
        "SpaceToBatchND",
        "",
        input=image,
        block_shape=const([2, 3]),
        paddings=const([[0, 0], [0, 0]]),
        needs_rank=True,
    )
    yield record(
        "SpaceToBatchND",
        "padded",
        input=image,
        block_shape=const([2, 2]),
        paddings=const([[1, 1], [2, 0]]),
        needs_rank=True,
    )
    yield record(
        "SpaceToBatchND",
        "one",
        input=floats(2, 4, 3),
        block_shape=const([2]),
        paddings=const([[0, 0]]),
        needs_rank=True,
    )
    yield record(
        "SpaceToBatchND",
        "computed",
        input=image,
        block_shape=const([2, 2]),
        paddings=array_of([[1, 1], [2, 0]]),
        needs_rank=True,
    )
    yield record(
        "SpaceToBatch", "", input=image, paddings=const([[0, 0], [1, 1]]), block_size=2, needs_rank=True
    )
    batches = floats(8, 2, 3, 1)
    yield record(
        "BatchToSpaceND",
        "",
        input=batches,
        block_shape=const([2, 2]),
        crops=const([[0, 0], [0, 0]]),
        needs_rank=True,
    )
    yield record(
        "BatchToSpaceND",
        "cropped",
        input=batches,
        block_shape=const([2, 2]),
        crops=const([[1, 0], [0, 2]]),
        needs_rank=True,
    )
    yield record(
        "BatchToSpaceND",
        "computed",
        input=batches,
        block_shape=const([2, 2]),
        crops=array_of([[1, 0], [0, 2]]),
        needs_rank=True,
    )
    yield record(
        "BatchToSpace", "", input=batches, crops=const([[1, 0], [0, 1]]), block_size=2, needs_rank=True
    )
    for layout in ("NHWC",):
        yield record("SpaceToDepth", layout, input=image, block_size=2, data_format=layout)
        yield record("DepthToSpace", layout, input=floats(2, 3, 4, 8), block_size=2, data_format=layout)
    yield record("SpaceToDepth", "uint8", input=integers(1, 4, 4, 2, low=0, dtype=np.uint8), block_size=2)
    yield record("DepthToSpace", "int32", input=integers(1, 2, 2, 8), block_size=2)


def _creation():
    yield record("Fill", "", dims=const([2, 3]), value=const(1.5))
    yield record("Fill", "computed", dims=array_of([2, 3]), loses_rank=True, value=array_of(7))
    yield record("Fill", "bools", dims=array_of([2, 3]), loses_rank=True, value=const(True))
    for op in ("ZerosLike", "OnesLike"):
        yield record(op, "", x=X)
        yield record(op, "int32", x=integers(3))
        yield record(op, "bools", x=bools(3))
    yield record("Empty", "", shape=const([2, 3]), dtype="float32", init=True)
    yield record("Range", "constant", start=const(1), limit=const(9), delta=const(3))
    yield record("Range", "computed", start=const(0), limit=array_of(5), delta=const(1))
    yield record("Range", "computed_start", start=array_of(-3), limit=const(5), delta=const(1))
    yield record("Range", "all_computed", start=array_of(9), limit=array_of(1), delta=array_of(-2))
    yield record(
        "Range",
        "int64",
        start=const(0, np.int64),
        limit=array_of(5).astype(np.int64),
        delta=const(2, np.int64),
    )
    yield record("Range", "floats", start=const(0.0), limit=array_of(1.0), delta=const(0.25))
    yield record("LinSpace", "", start=const(0.0), stop=const(1.0), num=const(5))
    yield record("LinSpace", "computed", start=array_of(-1.0), stop=array_of(2.0), num=array_of(7))
    yield record("LinSpace", "one", start=array_of(-1.0), stop=array_of(2.0), num=const(1))
    places = array_of([0, 2, -1, 5, 1])
    yield record(
        "OneHot",
        "",
        indices=places,
        depth=const(3),
        on_value=const(1.0),
        off_value=const(0.0),
        needs_rank=True,
    )
    yield record(
        "OneHot",
        "axis",
        indices=places.reshape(1, 5),
        depth=const(3),
        on_value=const(5.0),
        off_value=const(-1.0),
        axis=1,
        needs_rank=True,
    )
    yield record(
        "OneHot",
        "ints",
        indices=places.astype(np.int64),
        depth=const(4),
        on_value=const(3),
        off_value=const(1),
        axis=0,
        needs_rank=True,
    )
    yield record(
        "OneHot",
        "bools",
        indices=places,
        depth=const(4),
        on_value=const(True),
        off_value=const(False),
        needs_rank=True,
    )
    yield record(
        "OneHot",
        "computed",
        indices=places,
        depth=array_of(3),
        on_value=array_of(1.0),
        off_value=array_of(0.5),
        needs_rank=True,
    )
    yield record(
        "OneHot",
        "scalar",
        indices=array_of(2),
        depth=const(3),
        on_value=const(1.0),
        off_value=const(0.0),
        needs_rank=True,
    )


def _passed_on():
    yield record("Identity", "", input=X)
    yield record("Identity", "strings", input=array_of(["a", "b"]))
    for op in ("Snapshot", "GuaranteeConst", "StopGradient", "PreventGradient"):
        yield record(op, "", input=X)
    yield record("DeepCopy", "", x=X)
    yield record("IdentityN", "", input=[X, integers(2)])
    yield record("CheckNumerics", "", tensor=X, message="bad")
    yield record("CheckNumericsV2", "", tensor=X, message="bad")
    yield record("Print", "", input=X, data=[floats(1)])
    yield record("PlaceholderWithDefault", "", input=const(X), shape=[-1, 3, 4])
    yield record("EnsureShape", "", input=X, shape=[-1, 3, 4])


def _gradients_of_slices():
    yield record(
        "StridedSliceGrad",
        "",
        shape=array_of([4, 5]),
        begin=const([1, 0]),
        end=const([3, 0]),
        strides=const([1, 2]),
        dy=floats(2, 3),
        end_mask=2,
        needs_sizes=True,
    )


RECORDS = [
    *_shape(),
    *_layouts(),
    *_joining(),
    *_slicing(),
    *_padding(),
    *_blocks(),
    *_creation(),
    *_passed_on(),
    *_gradients_of_slices(),
]

WITHOUT_RECORDS = {
    "Assert": "has no result",
    "NoOp": "has no result",
    "PrintV2": "has no result",
    "RefIdentity": "takes a reference to a variable",
    "TopK": "TensorFlow reads it in old graphs only",
}
