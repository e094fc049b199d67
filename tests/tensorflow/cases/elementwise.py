"""Elementwise operators."""

from __future__ import annotations

import numpy as np

from ..records import Record, array_of, bools, const, floats, integers, positive, record

NAN, INF = float("nan"), float("inf")
SPECIAL = array_of([NAN, INF, -INF, -0.0, 0.0, 1.5, -2.5, 0.5, -0.5, 3.7])
ZEROS = array_of([0.0, -0.0, 0.0, 2.0, -3.0, NAN])
TOPS = array_of([1.0, NAN, INF, 3.0, 0.0, 2.0])

_INTEGERS = (np.int32, np.int64)
_NARROW = (np.int8, np.uint8, np.int16)


def _binary_of_floats():
    for op in ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "Div"):
        yield record(op, "broadcast", x=floats(2, 3, 1), y=floats(3, 4, seed=1))
        yield record(op, "constant", x=floats(2, 3), y=const(2.5))
    for op in ("AddV2", "Mul", "RealDiv", "Maximum", "SquaredDifference"):
        yield record(op, "double", x=floats(3, dtype=np.float64), y=floats(3, seed=1, dtype=np.float64))
        yield record(op, "half", x=floats(3, dtype=np.float16), y=floats(3, seed=1, dtype=np.float16))
        yield record(op, "scalars", x=floats(), y=floats(seed=1))
        yield record(op, "empty", x=floats(0, 3), y=floats(3, seed=1))
    for op in ("Maximum", "Minimum"):
        yield record(op, "nan", x=array_of([NAN, 1.0, NAN]), y=array_of([0.0, NAN, NAN]))
        yield record(op, "infinite", x=array_of([INF, -INF, 1.0]), y=array_of([0.0, 0.0, INF]))
    for op in ("DivNoNan", "MulNoNan", "Xdivy", "Xlogy", "Xlog1py"):
        yield record(op, "zeros", x=TOPS, y=ZEROS)
        yield record(op, "zeros_first", x=ZEROS, y=TOPS)
        yield record(op, "broadcast", x=positive(2, 1), y=positive(3, seed=1, dtype=np.float32))
    yield record("DivNoNan", "double", x=floats(3, dtype=np.float64), y=const([0.0, 1.0, 2.0], np.float64))
    yield record("FloorDiv", "floats", x=floats(2, 8, scale=9), y=floats(8, seed=1))
    yield record("FloorMod", "floats", x=floats(2, 8, scale=9), y=floats(8, seed=1), atol=1e-5)
    yield record("Mod", "floats", x=floats(2, 8, scale=9), y=floats(8, seed=1), atol=1e-5)
    yield record("TruncateMod", "floats", x=floats(2, 8, scale=9), y=floats(8, seed=1), atol=1e-5)
    yield record("Pow", "floats", x=positive(2, 3), y=floats(3, seed=1))
    yield record("Pow", "square", x=floats(2, 3), y=const(2.0))
    yield record("Pow", "double", x=positive(3, dtype=np.float64), y=floats(3, seed=1, dtype=np.float64))
    yield record(
        "Atan2",
        "quadrants",
        y=array_of([1.0, 1.0, -1.0, -1.0, 0.0, -0.0]),
        x=array_of([1.0, -1.0, 1.0, -1.0, -1.0, -1.0]),
    )
    yield record("Atan2", "broadcast", y=floats(3, 1), x=floats(4, seed=1))
    yield record("NextAfter", "", x1=floats(4), x2=array_of([2.0, -2.0, 0.0, INF]))


def _binary_of_integers():
    for op in ("AddV2", "Sub", "Mul", "Maximum", "Minimum"):
        for dtype in (*_INTEGERS, *_NARROW):
            low = 0 if dtype == np.uint8 else -100
            yield record(
                op,
                np.dtype(dtype).name,
                x=integers(2, 3, low=low, high=100, dtype=dtype),
                y=integers(3, seed=1, low=low, high=100, dtype=dtype),
            )
    quotients = array_of([7, -7, 7, -7, 6, -6, 0, 1])
    divisors = array_of([2, 2, -2, -2, 3, 3, 5, -3])
    for op in ("Div", "TruncateDiv", "FloorDiv", "FloorMod", "Mod", "TruncateMod"):
        for dtype in _INTEGERS:
            yield record(op, np.dtype(dtype).name, x=quotients.astype(dtype), y=divisors.astype(dtype))
        yield record(op, "whole_constant", x=quotients, y=const(3))
    for op in ("TruncateDiv", "FloorDiv", "FloorMod"):
        yield record(
            op, "uint8", x=array_of([7, 200, 255]).astype(np.uint8), y=array_of([2, 3, 7]).astype(np.uint8)
        )
    yield record("FloorDiv", "int8", x=array_of([7, -7]).astype(np.int8), y=array_of([2, 2]).astype(np.int8))
    yield record("SquaredDifference", "int32", x=integers(3), y=integers(3, seed=1))
    for dtype in _INTEGERS:
        lowest = 12 if dtype == np.int64 else 9
        yield record(
            "Pow",
            np.dtype(dtype).name,
            lowest=lowest,
            x=integers(2, 3, dtype=dtype),
            y=integers(3, seed=1, low=0, high=5, dtype=dtype),
        )
    yield record("Pow", "int32_constant", x=integers(2, 3), y=const(3))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        for dtype in (np.int32, np.int64, np.uint8):
            x = integers(4, low=0 if dtype == np.uint8 else -99, high=99, dtype=dtype)
            yield record(
                op,
                np.dtype(dtype).name,
                x=x,
                y=integers(4, seed=1, low=0, high=99, dtype=dtype),
                needs_rank=True,
            )
    for op in ("LeftShift", "RightShift"):
        for dtype in (np.int32, np.uint8, np.int64):
            x = integers(4, low=0 if dtype == np.uint8 else -99, high=99, dtype=dtype)
            yield record(op, np.dtype(dtype).name, x=x, y=array_of([0, 1, 3, 6]).astype(dtype))
        powers = np.array([2**63 + 5, 7, 2**40], np.uint64)
        yield record(op, "uint64", x=powers, y=np.array([1, 0, 63], np.uint64))
    for dtype in (np.int32, np.uint8, np.int64):
        yield record(
            "PopulationCount",
            np.dtype(dtype).name,
            x=array_of([0, 1, 127, 77, 85]).astype(dtype),
            needs_rank=True,
        )
        yield record("Invert", np.dtype(dtype).name, x=array_of([0, 1, 127, 77]).astype(dtype))
    yield record("PopulationCount", "negative", x=array_of([-1, -2, -128]), needs_rank=True)


def _unary():
    for op in ("Exp", "Sin", "Cos", "Tanh", "Floor", "Ceil", "Atan", "Asinh", "Cosh", "Sinh", "Tan", "Expm1"):
        yield record(op, "floats", x=floats(2, 5), rtol=2e-5)
        yield record(op, "double", x=floats(3, dtype=np.float64))
    for op in ("Log", "Sqrt", "Rsqrt", "Log1p"):
        yield record(op, "floats", x=positive(2, 5))
        yield record(op, "double", x=positive(3, dtype=np.float64))
    for op in ("Acos", "Asin", "Atanh"):
        yield record(op, "floats", x=positive(2, 5, low=-0.9, high=0.9))
    yield record("Acosh", "floats", x=positive(2, 5, low=1.0))
    for op in ("Abs", "Neg", "Square"):
        yield record(op, "floats", x=SPECIAL)
        yield record(op, "int32", x=integers(2, 3))
        yield record(op, "int64", x=integers(2, 3, dtype=np.int64))
        yield record(op, "int8", x=integers(5, dtype=np.int8))
    yield record("Sign", "floats", x=SPECIAL)
    yield record("Sign", "int32", x=integers(9))
    for op in ("Inv", "Reciprocal"):
        yield record(op, "floats", x=floats(2, 3))
    for op in ("Rint", "Round"):
        yield record(op, "halves", x=array_of([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.3, -2.7, NAN, INF]))
    for op in ("IsNan", "IsInf", "IsFinite"):
        yield record(op, "special", x=SPECIAL)
        yield record(op, "double", x=SPECIAL.astype(np.float64))
        yield record(op, "half", x=SPECIAL.astype(np.float16))


def _special():
    for op in ("Erf", "Erfc", "Digamma", "BesselI0e", "BesselI1e", "BesselJ0", "BesselJ1"):
        yield record(op, "floats", x=floats(2, 6, scale=2), rtol=1e-4, atol=1e-5)
    yield record("Erf", "double", x=floats(4, dtype=np.float64), rtol=1e-6, atol=1e-6)
    yield record("Erfc", "double", x=floats(4, dtype=np.float64), rtol=1e-6, atol=1e-6)
    for op in ("BesselI0", "BesselI1"):
        yield record(op, "floats", x=floats(6, scale=2), rtol=1e-5)
    for op in ("BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1", "Lgamma"):
        yield record(op, "floats", x=positive(2, 6, high=7.0), rtol=1e-4, atol=1e-5)
    yield record("Erfinv", "floats", x=positive(9, low=-0.95, high=0.95), rtol=1e-4, atol=1e-5)
    yield record("Ndtri", "floats", x=positive(9, low=0.05, high=0.95), rtol=1e-4, atol=1e-5)
    for op in ("Igamma", "Igammac"):
        yield record(op, "floats", a=positive(4), x=positive(4, seed=1), rtol=1e-4, atol=1e-5)
    yield record(
        "Zeta", "floats", x=positive(4, low=1.5, high=6.0), q=positive(4, seed=1), rtol=1e-4, atol=1e-5
    )
    yield record("Polygamma", "first", a=const(1.0), x=positive(4), rtol=1e-4)
    yield record("Polygamma", "third", a=const([3.0, 3.0, 3.0, 3.0]), x=positive(4), rtol=1e-4)
    orders = array_of([0.0, 1.0, 4.0, 0.5])
    yield record("Polygamma", "computed", a=orders, x=positive(4), rtol=1e-4)


def _comparisons():
    for op in ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"):
        yield record(op, "floats", x=array_of([1.0, 2.0, NAN, INF]), y=array_of([1.0, 3.0, NAN, INF]))
        yield record(op, "broadcast", x=integers(3, 1, low=0, high=3), y=integers(4, seed=1, low=0, high=3))
        yield record(op, "int64", x=integers(9, low=0, high=3, dtype=np.int64), y=const(1, np.int64))
        yield record(op, "uint8", x=integers(9, low=0, high=3, dtype=np.uint8), y=const(1, np.uint8))
        yield record(op, "double", x=floats(3, dtype=np.float64), y=const(0.0, np.float64))
    for op in ("Equal", "NotEqual"):
        yield record(op, "bools", x=bools(6), y=bools(6, seed=1))
        yield record(op, "strings", x=array_of(["a", "b", "c"]), y=const(["a", "x", "c"]), lowest=19)
        yield record(
            op, "unequal_shapes", x=floats(2), y=floats(3), incompatible_shape_error=False, needs_shapes=True
        )
        yield record(op, "lenient", x=floats(2), y=floats(2), incompatible_shape_error=False)
    yield record(
        "ApproximateEqual",
        "floats",
        x=array_of([1.0, 1.00001, 1.1]),
        y=array_of([1.0, 1.0, 1.0]),
        tolerance=0.001,
    )
    yield record("LogicalAnd", "", x=bools(2, 3), y=bools(3, seed=1))
    yield record("LogicalOr", "", x=bools(2, 3), y=bools(3, seed=1))
    yield record("LogicalNot", "", x=bools(2, 3))
    yield record("Select", "same", condition=bools(2, 3), t=floats(2, 3), e=floats(2, 3, seed=1))
    yield record("Select", "scalar", condition=array_of(True), t=floats(2, 3), e=floats(2, 3, seed=1))
    yield record(
        "Select", "rows", condition=bools(3, seed=2), t=floats(3, 3), e=floats(3, 3, seed=1), lowest=9
    )
    yield record("SelectV2", "broadcast", condition=bools(3), t=floats(2, 3), e=const(0.5))
    yield record("SelectV2", "int32", condition=bools(2, 1), t=integers(2, 3), e=integers(3, seed=1))
    yield record("SelectV2", "bools", condition=bools(4), t=bools(4, seed=1), e=bools(4, seed=2))
    yield record(
        "SelectV2", "uint8", condition=bools(4), t=integers(4, low=0, dtype=np.uint8), e=const(3, np.uint8)
    )
    yield record(
        "ClipByValue", "floats", t=floats(2, 3), clip_value_min=const(-0.5), clip_value_max=const(0.5)
    )
    yield record("ClipByValue", "int32", t=integers(2, 3), clip_value_min=const(-2), clip_value_max=const(3))
    yield record(
        "ClipByValue", "computed", t=floats(2, 3), clip_value_min=array_of(-0.5), clip_value_max=array_of(0.5)
    )


def _conversions():
    values = array_of([0.0, 1.9, -1.9, 100.5, -0.0])
    for target in ("int32", "int64", "float16", "float64", "bool", "int8"):
        yield record("Cast", f"float_to_{target}", x=values, DstT=target)
    for target in ("float32", "int64", "bool", "uint8", "int8", "float64"):
        yield record("Cast", f"int_to_{target}", x=array_of([0, 1, 100, 3]), DstT=target)
    yield record("Cast", "wrap", x=array_of([300, -1, 128, -129]), DstT="int8")
    yield record("Cast", "bool_to_float", x=bools(4), DstT="float32")
    yield record("Cast", "half_to_int", x=values.astype(np.float16), DstT="int32")
    yield record("Cast", "same", x=values, DstT="float32")
    yield record("Bitcast", "unsigned", input=array_of([-1, 5, -(2**31)]), type="uint32")
    yield record("Bitcast", "same", input=floats(3), type="float32")
    yield record("Bitcast", "narrower", input=array_of([1, -2, 70000]), type="uint8", needs_rank=True)
    wide = np.array([[1, 2**16 - 2, 3, 2**15]], np.uint16)
    yield record("Bitcast", "wider", input=wide, type="int64", needs_rank=True)
    numbers = np.array(
        [0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 2.0**-126, 3.4e38, 0.1], np.float32
    )
    below = np.nextafter(2.0 ** np.arange(-125, 128, 12, dtype=np.float32), np.float32(0))
    numbers = np.concatenate([numbers, below]).astype(np.float32)
    yield record("Bitcast", "bits_of_float", input=numbers, type="int32", run_until=25)
    yield record("Bitcast", "float_of_bits", input=numbers.view(np.int32), type="float32", run_until=25)
    yield record(
        "Bitcast", "bits_of_half", input=numbers[:7].astype(np.float16), type="uint8", needs_rank=True
    )
    yield record("AddN", "three", inputs=[floats(2, 3), floats(2, 3, seed=1), floats(2, 3, seed=2)])
    yield record("AddN", "one", inputs=[floats(2, 3)])
    yield record("AddN", "int32", inputs=[integers(3), const([1, 2, 3])])
    yield record("AccumulateNV2", "", inputs=[floats(2, 3), floats(2, 3, seed=1)], shape=[2, 3])


def _gradients():
    # Both sides of all bounds, and infinite gradients.
    x = array_of([-2.5, -0.5, 0.0, 0.5, 5.5, 6.0, 7.0])
    gradients = array_of([np.inf, -2.0, 3.0, -4.0, 5.0, 6.0, np.inf])
    for name in ("Relu", "Relu6", "Softplus", "Softsign", "LeakyRelu"):
        yield record(f"{name}Grad", "", gradients=gradients, features=x)
    yield record("LeakyReluGrad", "steep", gradients=gradients, features=x, alpha=1.5)
    for name in ("Elu", "Selu"):
        # `outputs` would be the option of the record.
        yield Record(f"{name}Grad", "", {"gradients": gradients, "outputs": x}, {})
    for name in ("Tanh", "Sigmoid", "Sqrt", "Rsqrt", "Reciprocal", "Inv"):
        yield record(f"{name}Grad", "", y=array_of([0.5, -0.25, 2.0]), dy=array_of([1.0, -2.0, 3.0]))
    yield record("BiasAddGrad", "", out_backprop=floats(2, 3, 4))
    yield record("BiasAddGrad", "channels_first", out_backprop=floats(2, 3, 4), data_format="NCHW")
    yield record(
        "BroadcastGradientArgs", "", s0=array_of([3, 1, 1, 4]), s1=array_of([2, 1, 4]), needs_sizes=True
    )
    yield record("BroadcastGradientArgs", "int64", s0=np.array([1, 4]), s1=np.array([3, 4]), needs_sizes=True)


def _beta():
    a, b = positive(3, 4, low=0.2, high=40), positive(3, 4, seed=1, low=0.2, high=9)
    for dtype in (np.float32, np.float64):
        yield record(
            "Betainc",
            dtype.__name__,
            a=a.astype(dtype),
            b=b.astype(dtype),
            x=positive(3, 4, seed=2, low=0, high=1).astype(dtype),
            rtol=1e-4,
            atol=1e-6,
        )
    ends = np.array([0, 1, 0.5, -1, 0.3], np.float32)
    yield record("Betainc", "ends", a=np.float32([2, 2, 2, 2, -1]), b=np.float32([3] * 5), x=ends)


RECORDS = [
    *_beta(),
    *_binary_of_floats(),
    *_binary_of_integers(),
    *_unary(),
    *_special(),
    *_comparisons(),
    *_conversions(),
    *_gradients(),
]

WITHOUT_RECORDS = {
    "CompareAndBitpack": "TensorFlow 2.21 has removed it; tests/tensorflow/test_without_kernels.py"
}
