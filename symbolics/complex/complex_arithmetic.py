"""Arithmetic and comparison of complex numbers, and conversions from and to real numbers."""

from collections.abc import Callable

from ...registration import GraphContext, Number, Value, onnx_symbolic
from ..compositions.operands import floating
from ..compositions.size_arithmetic import known_rank
from .real_and_imaginary import Operand, Parts, number, operands, split


@onnx_symbolic("complex::from_real")
def from_real(g: GraphContext, self: Value) -> Value:
    """Convert a real tensor to complex numbers."""
    return Parts(g, floating(g, self)).pair()


@onnx_symbolic("complex::complex")
def complex_(g: GraphContext, real: Value, imag: Value) -> Value:
    return _broadcast(g, real, imag).pair()


@onnx_symbolic("complex::polar")
def polar(g: GraphContext, abs: Value, angle: Value) -> Value:
    parts = _broadcast(
        g, g.op("Mul", abs, g.call("aten::cos", angle)), g.op("Mul", abs, g.call("aten::sin", angle))
    )
    return parts.pair()


def _broadcast(g: GraphContext, real: Value, imag: Value) -> Parts:
    """Two parts, broadcast to the same shape."""
    if g.shape(real) == g.shape(imag) and all(isinstance(size, int) for size in g.shape(real) or (None,)):
        return Parts(g, real, imag)
    # The product of zeros has the common shape, whatever the ranks are.
    zeros = g.op("Mul", g.call("aten::zeros_like", real), g.call("aten::zeros_like", imag))
    return Parts(g, g.op("Add", real, zeros), g.op("Add", imag, zeros))


_REAL: dict[str, Callable[[Parts], Value]] = {
    "abs": Parts.modulus,
    "absolute": Parts.modulus,
    "angle": Parts.argument,
    "imag": lambda z: z.imaginary,
    "isreal": lambda z: z.g.call("aten::eq", z.imaginary, 0),
    "real": lambda z: z.re,
}
"""Functions whose results are no complex numbers."""


def _register_real(name: str, function: Callable[[Parts], Value]) -> None:
    @onnx_symbolic(f"complex::{name}")
    def real(g: GraphContext, self: Value) -> Value:
        return function(split(g, self))


for _name, _function in _REAL.items():
    _register_real(_name, _function)


@onnx_symbolic("complex::is_nonzero")
def is_nonzero(g: GraphContext, self: Value) -> Value:
    """Whether each complex number is nonzero."""
    return ne(g, self, 0)


@onnx_symbolic(["complex::neg", "complex::negative", "complex::_neg_view"])
def neg(g: GraphContext, self: Value) -> Value:
    return g.op("Neg", self)


@onnx_symbolic("complex::add")
def add(g: GraphContext, self: Operand, other: Operand, alpha: Operand = 1) -> Value:
    a, b, factor = operands(g, self, other, alpha)
    return (a + (b if alpha == 1 else b * factor)).pair()


@onnx_symbolic(["complex::sub", "complex::subtract"])
def sub(g: GraphContext, self: Operand, other: Operand, alpha: Operand = 1) -> Value:
    a, b, factor = operands(g, self, other, alpha)
    return (a - (b if alpha == 1 else b * factor)).pair()


@onnx_symbolic("complex::rsub")
def rsub(g: GraphContext, self: Operand, other: Operand, alpha: Operand = 1) -> Value:
    return sub(g, other, self, alpha)


@onnx_symbolic(["complex::mul", "complex::multiply"])
def mul(g: GraphContext, self: Operand, other: Operand) -> Value:
    a, b = operands(g, self, other)
    return (a * b).pair()


@onnx_symbolic(["complex::div", "complex::divide", "complex::true_divide"])
def div(g: GraphContext, self: Operand, other: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode is not None:
        raise g.refuse("rounding_mode is not defined for complex numbers")
    a, b = operands(g, self, other)
    return (a / b).pair()


@onnx_symbolic("complex::reciprocal")
def reciprocal(g: GraphContext, self: Value) -> Value:
    return div(g, 1, self)


@onnx_symbolic("complex::square")
def square(g: GraphContext, self: Value) -> Value:
    return mul(g, self, self)


@onnx_symbolic("complex::sgn")
def sgn(g: GraphContext, self: Value) -> Value:
    """`z / |z|`, and zero for zero."""
    parts = split(g, self)
    modulus = parts.modulus()
    # Avoids 0 / 0, which is NaN.
    safe = g.op("Where", g.call("aten::eq", modulus, 0), g.constant(1.0, g.dtype(self)), modulus)
    return parts.map(lambda part: g.op("Div", part, safe)).pair()


@onnx_symbolic("complex::eq")
def eq(g: GraphContext, self: Operand, other: Operand) -> Value:
    a, b = operands(g, self, other)
    return g.op("And", g.call("aten::eq", a.re, b.re), g.call("aten::eq", a.imaginary, b.imaginary))


@onnx_symbolic(["complex::ne", "complex::not_equal"])
def ne(g: GraphContext, self: Operand, other: Operand) -> Value:
    return g.op("Not", eq(g, self, other))


@onnx_symbolic("complex::isclose")
def isclose(
    g: GraphContext,
    self: Value,
    other: Value,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Value:
    """`|a - b| <= atol + rtol |b|`, or equal; infinite distances are not close."""
    a, b = operands(g, self, other)
    distance = (a - b).modulus()
    allowed = g.op("Add", g.op("Mul", b.modulus(), rtol), atol)
    # `inf <= inf` holds, but an infinite distance is never close.
    close = g.op("And", g.call("aten::le", distance, allowed), g.call("aten::isfinite", distance))
    close = g.op("Or", close, eq(g, self, other))
    if not equal_nan:
        return close
    both_nan = g.op("And", g.call("complex::isnan", self), g.call("complex::isnan", other))
    return g.op("Or", close, both_nan)


@onnx_symbolic("complex::lerp")
def lerp(g: GraphContext, self: Value, end: Value, weight: Operand) -> Value:
    start, stop, factor = operands(g, self, end, weight)
    return (start + (stop - start) * factor).pair()


@onnx_symbolic("complex::addbmm")
def addbmm(
    g: GraphContext, self: Value, batch1: Value, batch2: Value, beta: Operand = 1, alpha: Operand = 1
) -> Value:
    added, first, second, weight, factor = operands(g, self, batch1, batch2, beta, alpha)
    product = first.matmul(second).sum([0]) * factor
    return (product if beta == 0 else added * weight + product).pair()


def _register_test_of_parts(name: str, combine: str) -> None:
    """A test of complex numbers that is true if it is true for both parts, or for either."""

    @onnx_symbolic(f"complex::{name}")
    def test(g: GraphContext, self: Value) -> Value:
        parts = split(g, self)
        return g.op(combine, g.call(f"aten::{name}", parts.re), g.call(f"aten::{name}", parts.imaginary))


for _name, _combine in {"isfinite": "And", "isinf": "Or", "isnan": "Or"}.items():
    _register_test_of_parts(_name, _combine)


@onnx_symbolic("complex::where")
def where(g: GraphContext, condition: Value, self: Operand, other: Operand) -> Value:
    dtype = next((g.dtype(operand) for operand in (self, other) if isinstance(operand, Value)), None)
    a, b = (
        operand if isinstance(operand, Value) else number(g, operand, dtype).pair()
        for operand in (self, other)
    )
    # The condition has no dimension for the parts, and both are chosen alike.
    return g.call("aten::where", g.op("Unsqueeze", condition, axes=[known_rank(g, condition)]), a, b)


@onnx_symbolic("complex::prod")
def prod(g: GraphContext, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The product: its modulus is the product of the moduli, its angle the sum of the angles."""
    parts = split(g, self)
    if dim is None:
        return polar(g, g.call("aten::prod", parts.modulus()), g.call("aten::sum", parts.argument()))
    modulus = g.call("aten::prod", parts.modulus(), dim=dim, keepdim=keepdim)
    return polar(g, modulus, g.call("aten::sum", parts.argument(), dim=[dim], keepdim=keepdim))


@onnx_symbolic("complex::cumprod")
def cumprod(g: GraphContext, self: Value, dim: int) -> Value:
    parts = split(g, self)
    modulus = g.call("aten::cumprod", parts.modulus(), dim)
    return polar(g, modulus, g.call("aten::cumsum", parts.argument(), dim))


def _register_variance(name: str, root: bool, with_mean: bool) -> None:
    """The sum of the variances of both parts."""

    @onnx_symbolic(f"complex::{name}")
    def variance(
        g: GraphContext,
        self: Value,
        dim: list[int] | None = None,
        unbiased: bool | None = None,
        correction: Number | None = None,
        keepdim: bool = False,
    ) -> Value | tuple[Value, Value]:
        correction = correction if unbiased is None else int(unbiased)
        parts = split(g, self)
        real_parts = (parts.re, parts.imaginary)
        total = g.op(
            "Add",
            *(
                g.call("aten::var", part, dim=dim, correction=correction, keepdim=keepdim)
                for part in real_parts
            ),
        )
        total = g.op("Sqrt", total) if root else total
        if not with_mean:
            return total
        dims = dim or list(range(known_rank(g, parts.re)))
        # The mean of a complex number is that of its parts.
        mean = parts.map(lambda part: g.call("aten::mean.dim", part, dim=dims, keepdim=keepdim))
        return total, mean.pair()


for _name, _root in (("var", False), ("std", True)):
    _register_variance(_name, _root, with_mean=False)
    _register_variance(f"{_name}_mean", _root, with_mean=True)


@onnx_symbolic("complex::logsumexp")
def logsumexp(g: GraphContext, self: Value, dim: list[int], keepdim: bool = False) -> Value:
    """`log sum e^z`, with the largest real part subtracted first and added again."""
    z = split(g, self)
    # Powers of differences are at most 1 in size, so the sum does not overflow.
    largest = Parts(g, g.call("aten::amax", z.re, dim=dim, keepdim=True))
    powers = split(g, g.call("complex::exp", (z - largest).pair())).sum(dim, True)
    result = split(g, g.call("complex::log", powers.pair())) + largest
    return result.pair() if keepdim else result.sum(dim).pair()
