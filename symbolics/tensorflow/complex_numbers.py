"""Operators on complex numbers, which are real pairs in a last dimension of two, and Fourier transforms.

The source pass `real_pairs` moves every TensorFlow node with a complex operand or result to the domain
`tf_complex`. Operators that treat both parts alike work on each part.
"""

from __future__ import annotations

import inspect
from typing import Any

from ...registration import DataType, GraphContext, Value, default_registry, onnx_symbolic
from ...registration.functions.results import as_list
from ..complex.real_and_imaginary import Parts, split
from ..compositions.matrices import transpose
from ..compositions.size_arithmetic import Size
from . import creation, passthrough
from ._common import elements
from .elementwise import binary_arithmetic, comparison, unary_functions
from .indexing import gathering, scattering
from .reductions import cumulative, reduction, segments
from .shapes import joining, padding, shape, slicing

_MODULES_BY_PARTS = (
    binary_arithmetic,
    comparison,
    creation,
    cumulative,
    gathering,
    joining,
    padding,
    passthrough,
    reduction,
    scattering,
    segments,
    shape,
    slicing,
    unary_functions,
)
"""The modules that register the functions which then work on each part: they must be imported first."""

# The complex operands of operators that treat the real and the imaginary part alike.
_BY_PARTS = {
    "Add": "x y",
    "AddN": "inputs",
    "AddV2": "x y",
    "BroadcastTo": "input",
    "Concat": "values",
    "ConcatV2": "values",
    "Cumsum": "x",
    "ExpandDims": "input",
    "Fill": "value",
    "Gather": "params",
    "GatherNd": "params",
    "GatherV2": "params",
    "Identity": "input",
    "IdentityN": "input",
    "Mean": "input",
    "Neg": "x",
    "Pack": "values",
    "Pad": "input",
    "PadV2": "input constant_values",
    "Reshape": "tensor",
    "ReverseV2": "tensor",
    "Roll": "input",
    "ScatterNd": "updates",
    "Select": "t e",
    "SelectV2": "t e",
    "Slice": "input",
    "Split": "value",
    "SplitV": "value",
    "Squeeze": "input",
    "StopGradient": "input",
    "StridedSlice": "input",
    "Sub": "x y",
    "Sum": "input",
    "TensorScatterAdd": "tensor updates",
    "TensorScatterUpdate": "tensor updates",
    "Tile": "input",
    "Transpose": "x",
    "Unpack": "value",
    "UnsortedSegmentSum": "data",
    "ZerosLike": "x",
}

# The function on real pairs that computes an operator.
_PAIR_FUNCTIONS = {
    "Conj": "conj",
    "Cos": "cos",
    "Exp": "exp",
    "FFT": "fft_fft",
    "FFT2D": "fft_fft2",
    "IFFT": "fft_ifft",
    "IFFT2D": "fft_ifft2",
    "Imag": "imag",
    "Inv": "reciprocal",
    "Log": "log",
    "Real": "real",
    "Reciprocal": "reciprocal",
    "Rsqrt": "rsqrt",
    "Sin": "sin",
    "Sqrt": "sqrt",
    "Square": "square",
    "Tanh": "tanh",
}
_NAMED_INPUT = frozenset({"Conj", "FFT", "FFT2D", "IFFT", "IFFT2D", "Imag", "Real"})
"""Operators whose operand is called `input`; the operand of the others is called `x`."""


def _register_by_parts(name: str, operands: list[str]) -> None:
    # Opset 9 is the base, which later opsets inherit.
    original = default_registry.versions(f"tf::{name}")[9].function

    def by_parts(g: GraphContext, **arguments: Any) -> Any:
        arguments_of_parts: list[dict[str, Any]] = [dict(arguments), dict(arguments)]
        for operand in operands:
            operand_value = arguments[operand]
            pairs = [split(g, value) for value in as_list(operand_value)]
            for part_arguments, part_values in zip(
                arguments_of_parts, ([p.re for p in pairs], [p.imaginary for p in pairs]), strict=True
            ):
                part_arguments[operand] = part_values if isinstance(operand_value, list) else part_values[0]
        re, im = (g.call(f"tf::{name}", **part_arguments) for part_arguments in arguments_of_parts)
        if isinstance(re, list):
            return [Parts(g, *pair).pair() for pair in zip(re, im, strict=True)]
        return Parts(g, re, im).pair()

    # The dispatcher binds and converts arguments by the signature of the function for real numbers.
    by_parts.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    onnx_symbolic(f"tf_complex::{name}")(by_parts)


for _name, _operands in _BY_PARTS.items():
    _register_by_parts(_name, _operands.split())


def _register_of_pairs(name: str, function: str) -> None:
    if name in _NAMED_INPUT:

        @onnx_symbolic(f"tf_complex::{name}")
        def of_input(g: GraphContext, input: Value) -> Value:
            return g.call(f"complex::{function}", input)

    else:

        @onnx_symbolic(f"tf_complex::{name}")
        def of_x(g: GraphContext, x: Value) -> Value:
            return g.call(f"complex::{function}", x)


for _name, _function in _PAIR_FUNCTIONS.items():
    _register_of_pairs(_name, _function)


def _register_binary(names: list[str], function: str) -> None:
    @onnx_symbolic([f"tf_complex::{name}" for name in names])
    def binary(g: GraphContext, x: Value, y: Value) -> Value:
        return g.call(f"complex::{function}", x, y)


_register_binary(["Mul"], "mul")
_register_binary(["Div", "RealDiv"], "div")
_register_binary(["Pow"], "pow")


@onnx_symbolic("tf_complex::Equal")
def equal(g: GraphContext, x: Value, y: Value, incompatible_shape_error: bool = True) -> Value:
    return g.call("complex::eq", x, y)


@onnx_symbolic("tf_complex::NotEqual")
def not_equal(g: GraphContext, x: Value, y: Value, incompatible_shape_error: bool = True) -> Value:
    return g.call("complex::ne", x, y)


@onnx_symbolic("tf_complex::Complex")
def complex_(g: GraphContext, real: Value, imag: Value) -> Value:
    return g.call("complex::complex", real, imag)


@onnx_symbolic("tf_complex::ComplexAbs")
def complex_abs(g: GraphContext, x: Value) -> Value:
    return g.call("complex::abs", x)


@onnx_symbolic("tf_complex::Angle")
def angle(g: GraphContext, input: Value) -> Value:
    return g.call("complex::angle", input)


_PART = {DataType.COMPLEX64: DataType.FLOAT, DataType.COMPLEX128: DataType.DOUBLE}


@onnx_symbolic("tf_complex::Cast")
def cast(g: GraphContext, x: Value, SrcT: DataType, DstT: DataType, Truncate: bool = False) -> Value:
    """A cast from complex to real keeps the real part."""
    if DstT not in _PART:
        return g.call("tf::Cast", split(g, x).re, DstT, Truncate)
    # Both parts are cast at once.
    if SrcT in _PART:
        return g.cast(x, _PART[DstT])
    return Parts(g, g.cast(x, _PART[DstT])).pair()


@onnx_symbolic("tf_complex::Shape")
def shape_(g: GraphContext, input: Value, out_type: DataType = DataType.INT32) -> Value:
    return g.call("tf::Shape", split(g, input).re, out_type)


@onnx_symbolic("tf_complex::ConjugateTranspose")
def conjugate_transpose(g: GraphContext, x: Value, perm: Value) -> Value:
    return g.call("tf_complex::Transpose", x=g.call("complex::conj", x), perm=perm)


@onnx_symbolic(["tf_complex::BatchMatMul", "tf_complex::BatchMatMulV2"])
def batch_matmul(g: GraphContext, x: Value, y: Value, adj_x: bool = False, adj_y: bool = False) -> Value:
    """An adjoint matrix is also conjugated."""
    factors = (
        split(g, value).conj().map(lambda part: transpose(g, part)) if adjoint else split(g, value)
        for value, adjoint in ((x, adj_x), (y, adj_y))
    )
    first, second = factors
    return first.matmul(second).pair()


@onnx_symbolic("tf_complex::MatMul")
def matmul(
    g: GraphContext, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False
) -> Value:
    first, second = split(g, a), split(g, b)
    if transpose_a:
        first = first.map(lambda part: g.op("Transpose", part, perm=[1, 0]))
    if transpose_b:
        second = second.map(lambda part: g.op("Transpose", part, perm=[1, 0]))
    return first.matmul(second).pair()


def _lengths(g: GraphContext, fft_length: Value, count: int) -> list[Size]:
    lengths = elements(g, fft_length, count)
    assert lengths is not None
    return lengths


def _register_over_three(name: str, function: str) -> None:
    @onnx_symbolic(f"tf_complex::{name}")
    def over_three(g: GraphContext, input: Value) -> Value:
        return g.call(f"complex::{function}", input, dim=[-3, -2, -1])


def _register_real(name: str, function: str, count: int) -> None:
    @onnx_symbolic(f"tf_complex::{name}")
    def of_real(g: GraphContext, input: Value, fft_length: Value) -> Value:
        """Crop the last dimensions to the lengths, or pad them with zeros."""
        sizes = _lengths(g, fft_length, count)
        return g.call(f"complex::{function}", input, sizes, list(range(-count, 0)))


_register_over_three("FFT3D", "fft_fftn")
_register_over_three("IFFT3D", "fft_ifftn")
for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _register_real(f"RFFT{_suffix}", "fft_rfftn", _count)
    _register_real(f"IRFFT{_suffix}", "fft_irfftn", _count)
