"""Small graphs of TensorFlow and nets of Caffe2 that ask for constants, nodes and results of any size.

Each entry of `FILES` writes one text file, as those of `hostile` do.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

HUGE = 400_000_000
Builder = Callable[[pathlib.Path], None]


def _constant(name: str, *numbers: float, kind: str = "INT32", shape: str = "") -> str:
    field = {"INT32": "int_val", "FLOAT": "float_val", "BOOL": "bool_val"}[kind]
    values = " ".join(f"{field}: {number}" for number in numbers)
    return (
        f"node {{ name: '{name}' op: 'Const' attr {{ key: 'dtype' value {{ type: DT_{kind} }} }} "
        f"attr {{ key: 'value' "
        f"value {{ tensor {{ dtype: DT_{kind} tensor_shape {{ {shape} }} {values} }} }} }} }}\n"
    )


def _vector(name: str, *numbers: float, kind: str = "INT32") -> str:
    return _constant(name, *numbers, kind=kind, shape=f"dim {{ size: {len(numbers)} }}")


def _node(name: str, op_type: str, inputs: str, **attributes: str) -> str:
    read = " ".join(f"input: '{each}'" for each in inputs.split())
    held = " ".join(f"attr {{ key: '{key}' value {{ {value} }} }}" for key, value in attributes.items())
    return f"node {{ name: '{name}' op: '{op_type}' {read} {held} }}\n"


FLOAT, INT = "type: DT_FLOAT", "type: DT_INT32"
_IMAGE = "shape { dim { size: 1 } dim { size: 3 } dim { size: 3 } dim { size: 2 } }"
_X = _node("x", "Placeholder", "", dtype=FLOAT, shape=_IMAGE)
_ONE = _constant("one", 1.5, kind="FLOAT")
_PAIR = _vector("pair", 1.5, 2.5, kind="FLOAT")
_REPEATED = _constant("r", 1.5, kind="FLOAT", shape="dim { size: 20000 } dim { size: 2000 }")
TENSORFLOW = {
    "Range": _constant("a", 0)
    + _constant("b", HUGE)
    + _constant("d", 1)
    + _node("y", "Range", "a b d", Tidx=INT),
    "Range backwards": _constant("a", HUGE)
    + _constant("b", -HUGE)
    + _constant("d", -3)
    + _node("y", "Range", "a b d", Tidx=INT),
    "Range without steps": _constant("a", 0)
    + _constant("b", 9)
    + _constant("d", 0)
    + _node("y", "Range", "a b d", Tidx=INT),
    "LinSpace": _ONE + _constant("n", HUGE) + _node("y", "LinSpace", "one one n", T=FLOAT, Tidx=INT),
    "Fill": _ONE
    + _vector("s", 40_000, 40_000)
    + _node("f", "Fill", "s one", T=FLOAT)
    + _node("y", "Neg", "f", T=FLOAT),
    "Fill and sum": _ONE
    + _vector("s", 40_000, 40_000)
    + _node("f", "Fill", "s one", T=FLOAT)
    + _vector("k", 0, 1)
    + _node("y", "Sum", "f k", T=FLOAT, Tidx=INT),
    "Tile": _PAIR
    + _vector("s", HUGE)
    + _node("t", "Tile", "pair s", T=FLOAT)
    + _node("y", "Exp", "t", T=FLOAT),
    "BroadcastTo": _ONE
    + _vector("s", 40_000, 40_000)
    + _node("y", "BroadcastTo", "one s", T=FLOAT, Tidx=INT),
    "OneHot": _vector("i", 1, 2)
    + _constant("k", HUGE)
    + _ONE
    + _node("y", "OneHot", "i k one one", T=FLOAT, TI=INT),
    "Pad": _PAIR
    + _constant("s", 0, HUGE, shape="dim { size: 1 } dim { size: 2 }")
    + _node("y", "Pad", "pair s", T=FLOAT),
    "MirrorPad": _X
    + _constant("s", 0, 0, 0, 2, 0, 2, 0, HUGE, shape="dim { size: 4 } dim { size: 2 }")
    + _node("y", "MirrorPad", "x s", T=FLOAT, mode="s: 'SYMMETRIC'"),
    "MatrixDiag": _ONE
    + _vector("s", 50_000)
    + _node("f", "Fill", "s one", T=FLOAT)
    + _node("y", "MatrixDiag", "f", T=FLOAT),
    "MatrixDiagV3": _PAIR
    + _constant("k", 0)
    + _constant("n", 60_000)
    + _ONE
    + _node("y", "MatrixDiagV3", "pair k n n one", T=FLOAT),
    "MatrixDiagPartV3": _X
    + _vector("k", -2_000_000_000, 2_000_000_000)
    + _ONE
    + _node("y", "MatrixDiagPartV3", "x k one", T=FLOAT),
    "ResizeNearestNeighbor": _X
    + _vector("s", HUGE, 3)
    + _node("y", "ResizeNearestNeighbor", "x s", T=FLOAT, align_corners="b: true"),
    "ResizeBilinear": _X + _vector("s", HUGE, 3) + _node("y", "ResizeBilinear", "x s", T=FLOAT),
    "ResizeBicubic": _X + _vector("s", 3, HUGE) + _node("y", "ResizeBicubic", "x s", T=FLOAT),
    "Split": _X + _constant("a", 3) + _node("y", "Split", "a x", T=FLOAT, num_split="i: 2000000000"),
    "Unpack": _X + _node("y", "Unpack", "x", T=FLOAT, num="i: 2000000000", axis="i: 1"),
    "Cumsum": _ONE
    + _vector("s", HUGE)
    + _node("f", "Fill", "s one", T=FLOAT)
    + _constant("a", 0)
    + _node("y", "Cumsum", "f a", T=FLOAT, Tidx=INT),
    "outer sum": _constant("a", 0)
    + _constant("b", 20_000)
    + _constant("d", 1)
    + _node("q", "Range", "a b d", Tidx=INT)
    + _constant("m", -1)
    + _node("e", "ExpandDims", "q m", T=INT, Tdim=INT)
    + _node("y", "Add", "q e", T=INT),
    "a repeated constant": _REPEATED + _node("y", "Tanh", "r", T=FLOAT),
    "repeated constants": _REPEATED
    + _vector("p", 1, 0)
    + _node("t", "Transpose", "r p", T=FLOAT)
    + _node("u", "Mul", "r r", T=FLOAT)
    + _node("y", "MatMul", "u t", T=FLOAT),
    "repeated sums": _REPEATED
    + "".join(_node(f"n{i}", "Sin", f"n{i - 1}" if i else "r", T=FLOAT) for i in range(60))
    + _vector("k", 0, 1)
    + _node("y", "Sum", "n59 k", T=FLOAT, Tidx=INT),
    "random": _vector("s", 40_000, 40_000) + _node("y", "RandomUniform", "s", T=INT, dtype=FLOAT),
    "SpaceToBatchND": _X
    + _vector("b", 1000, 1000)
    + _constant("p", *[0, HUGE] * 2, shape="dim { size: 2 } dim { size: 2 }")
    + _node("y", "SpaceToBatchND", "x b p", T=FLOAT, Tblock_shape=INT, Tpaddings=INT),
    "ExtractImagePatches": _X
    + _node(
        "y",
        "ExtractImagePatches",
        "x",
        T=FLOAT,
        padding="s: 'SAME'",
        ksizes="list { i: 1 i: 30000 i: 30000 i: 1 }",
        strides="list { i: 1 i: 1 i: 1 i: 1 }",
        rates="list { i: 1 i: 1 i: 1 i: 1 }",
    ),
    "DepthToSpace": _X + _node("y", "DepthToSpace", "x", T=FLOAT, block_size="i: 1000000000"),
    "Bincount": _vector("i", 1, 2)
    + _constant("k", HUGE)
    + _PAIR
    + _node("y", "Bincount", "i k pair", T=FLOAT),
    "TensorListReserve": _constant("n", HUGE)
    + _vector("s", 2)
    + _node("l", "TensorListReserve", "s n", element_dtype=FLOAT, shape_type=INT)
    + _node("y", "TensorListStack", "l s", element_dtype=FLOAT, num_elements="i: 400000000"),
    "FFT": _node("x", "Placeholder", "", dtype=FLOAT, shape="shape { dim { size: 1 } dim { size: 1000003 } }")
    + _vector("n", 1_000_003)
    + _node("y", "RFFT", "x n"),
}
CAFFE2 = {
    "ConstantFill": "op { output: 'y' type: 'ConstantFill' arg { name: 'shape' ints: 40000 ints: 40000 } }",
    "GaussianFill": "op { output: 'y' type: 'GaussianFill' arg { name: 'shape' ints: 40000 ints: 4000 } }",
    "UniformFill": "op { output: 'y' type: 'UniformFill' arg { name: 'shape' ints: 400000000 } }",
    "XavierFill": "op { output: 'y' type: 'XavierFill' arg { name: 'shape' ints: 30000 ints: 30000 } }",
    "Range": "op { output: 'y' type: 'Range' arg { name: 'stop' i: 400000000 } }",
    "Tile": "op { input: 'x' output: 'y' type: 'Tile' arg { name: 'tiles' i: 400000000 } "
    "arg { name: 'axis' i: 0 } }",
    "filled and tiled": "op { output: 'c' type: 'ConstantFill' arg { name: 'shape' ints: 3 } } "
    "op { input: 'c' output: 'y' type: 'Tile' arg { name: 'tiles' i: 400000000 } arg { name: 'axis' i: 0 } }",
    "Split": "op { input: 'x' output: 'y' type: 'Split' arg { name: 'axis' i: 2000000000 } }",
    "ResizeNearest": "op { input: 'x' output: 'y' type: 'ResizeNearest' arg { name: 'width_scale' f: 1e9 } "
    "arg { name: 'height_scale' f: 1e9 } }",
    "AveragePool": "op { input: 'x' output: 'y' type: 'AveragePool' arg { name: 'kernel' i: 2000000000 } "
    "arg { name: 'legacy_pad' i: 3 } }",
    "Conv": "op { output: 'w' type: 'ConstantFill' arg { name: 'shape' ints: 1 ints: 1 "
    "ints: 9000 ints: 9000 } } "
    "op { input: 'x' input: 'w' output: 'y' type: 'Conv' arg { name: 'kernel' i: 9000 } }",
    "OneHot": "op { output: 'n' type: 'GivenTensorInt64Fill' arg { name: 'shape' ints: 1 } "
    "arg { name: 'values' ints: 400000000 } } op { input: 'i' input: 'n' output: 'y' type: 'OneHot' }",
    "many fills": "".join(
        f"op {{ output: 'c{i}' type: 'ConstantFill' arg {{ name: 'shape' ints: 40000000 }} }} "
        for i in range(40)
    )
    + "op { "
    + " ".join(f"input: 'c{i}'" for i in range(40))
    + " output: 'y' type: 'Sum' }",
}


def _text(text: str) -> Builder:
    return lambda path: path.write_text(text) and None


FILES: dict[str, Builder] = {
    **{f"TensorFlow {name}": _text(text) for name, text in TENSORFLOW.items()},
    **{
        f"Caffe2 {name}": _text(f"name: 'predict' {text} external_input: 'x' external_output: 'y'")
        for name, text in CAFFE2.items()
    },
}
