"""Operators on complex numbers, which are real pairs in a last dimension of two, and Fourier transforms.

The source pass `real_pairs` moves every TensorFlow node with a complex operand or result to the domain
`tf_complex`. Operators that treat both parts alike work on each part.
"""

import inspect
from typing import Any

from ...registration import DataType, GraphContext, Value, default_registry, onnx_symbolic
from ...registration.functions.results import as_list
from ..complex.real_and_imaginary import Parts, split
from ..compositions.matrices import transpose
from ..compositions.operator_tables import register_table
from . import creation, passthrough  # noqa: F401
from ._common import elements

# These modules register the functions that then work on each part, so they must be imported first.
from .elementwise import binary_arithmetic, comparison, unary_functions  # noqa: F401
from .indexing import gathering, scattering  # noqa: F401
from .reductions import cumulative, reduction, segments  # noqa: F401
from .shapes import joining, padding, shape, slicing  # noqa: F401

_BY_PARTS = """
x y: Add AddV2 Sub
x: Cumsum Neg Transpose ZerosLike
inputs: AddN
input: BroadcastTo ExpandDims Identity IdentityN Mean Pad Roll Slice Squeeze StopGradient
input: StridedSlice Sum Tile
input constant_values: PadV2
params: Gather GatherNd GatherV2
values: Concat ConcatV2 Pack
value: Fill Split SplitV Unpack
tensor: Reshape ReverseV2
tensor updates: TensorScatterAdd TensorScatterUpdate
updates: ScatterNd
t e: Select SelectV2
data: UnsortedSegmentSum
"""
"""The operators that treat the real and the imaginary part alike, by their complex operands."""


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


for _line in _BY_PARTS.strip().splitlines():
    _operands, _, _names = _line.partition(": ")
    for _name in _names.split():
        _register_by_parts(_name, _operands.split())
register_table(
    "tf_complex",
    """
input: Angle=complex::angle Conj=complex::conj Imag=complex::imag Real=complex::real
input: FFT=complex::fft_fft FFT2D=complex::fft_fft2 IFFT=complex::fft_ifft IFFT2D=complex::fft_ifft2
x: ComplexAbs=complex::abs Cos=complex::cos Exp=complex::exp Inv=complex::reciprocal Log=complex::log
x: Reciprocal=complex::reciprocal Rsqrt=complex::rsqrt Sin=complex::sin Sqrt=complex::sqrt
x: Square=complex::square Tanh=complex::tanh
x y: Mul=complex::mul Div=complex::div RealDiv=complex::div Pow=complex::pow
real imag: Complex=complex::complex
""",
)


def _register_comparison(name: str, function: str) -> None:
    @onnx_symbolic(f"tf_complex::{name}")
    def compare(g: GraphContext, x: Value, y: Value, incompatible_shape_error: bool = True) -> Value:
        return g.call(f"complex::{function}", x, y)


_register_comparison("Equal", "eq")
_register_comparison("NotEqual", "ne")
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
    first, second = (
        split(g, value).conj().map(lambda part: transpose(g, part)) if adjoint else split(g, value)
        for value, adjoint in ((x, adj_x), (y, adj_y))
    )
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


def _register_over_three(name: str, function: str) -> None:
    @onnx_symbolic(f"tf_complex::{name}")
    def over_three(g: GraphContext, input: Value) -> Value:
        return g.call(f"complex::{function}", input, dim=[-3, -2, -1])


def _register_real(name: str, function: str, count: int) -> None:
    @onnx_symbolic(f"tf_complex::{name}")
    def of_real(g: GraphContext, input: Value, fft_length: Value) -> Value:
        """Crop the last dimensions to the lengths, or pad them with zeros."""
        sizes = elements(g, fft_length, count)
        return g.call(f"complex::{function}", input, sizes, list(range(-count, 0)))


_register_over_three("FFT3D", "fft_fftn")
_register_over_three("IFFT3D", "fft_ifftn")
for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _register_real(f"RFFT{_suffix}", "fft_rfftn", _count)
    _register_real(f"IRFFT{_suffix}", "fft_irfftn", _count)
