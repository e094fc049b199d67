"""Special functions, parts of floats, and bits against eager PyTorch, at poles and ends of their range."""

import math
from collections.abc import Callable
from typing import Any

import torch

import opsetta

from .records import HIGHEST, Record, check, floats, integers, parametrized

INF, NAN = math.inf, math.nan
ENDS = (7, HIGHEST)
S = torch.special

EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 5.0, 8.0, -8.0, INF, -INF, NAN, 1e-30, -1e-30, 1e-6, 1e30])
LINE = torch.linspace(-12.3, 12.3, 84)
POINTS = torch.cat([LINE, EDGES, torch.tensor([20.5, 60.0, -35.5, 104.0, -60.0])])
UNIT = torch.cat(
    [torch.linspace(-1.1, 1.1, 67), torch.tensor([1.0, -1.0, 0.0, NAN, 1e-30, 1e-3, 1 - 2**-20, INF])]
)
POSITIVE = torch.cat([torch.linspace(0.0, 30.0, 61), EDGES[8:].abs()])

# Functions of one tensor: name, argument, absolute tolerance for FLOAT (where values cross 0), largest
# relative error for DOUBLE.
_UNARY: list[tuple[Callable[..., Any], torch.Tensor, float, float]] = [
    *((function, POINTS, 0.0, 1e-13) for function in (torch.i0, S.i0e, S.i1, S.i1e)),
    *((function, POINTS, 0.0, 1e-13) for function in (S.modified_bessel_i0, S.modified_bessel_i1)),
    *((function, POINTS, 0.0, 1e-13) for function in (S.modified_bessel_k0, S.modified_bessel_k1)),
    *(
        (function, POINTS, 0.0, 1e-13)
        for function in (S.scaled_modified_bessel_k0, S.scaled_modified_bessel_k1)
    ),
    *((function, POINTS, 1e-6, 1e-12) for function in (S.bessel_j0, S.bessel_j1, S.bessel_y0, S.bessel_y1)),
    (S.spherical_bessel_j0, POINTS, 1e-6, 1e-12),
    (S.airy_ai, POINTS, 1e-5, 1e-12),
    (torch.lgamma, POINTS, 2e-6, 1e-12),
    (torch.digamma, torch.cat([POINTS, torch.tensor([-3.0, 10.0, 1.4616321])]), 1e-5, 1e-12),
    (torch.erf, POINTS, 2e-7, 1e-14),
    (torch.erfc, POINTS, 0.0, 1e-13),
    (S.erfcx, POINTS, 0.0, 1e-12),
    (S.ndtr, POINTS, 1e-7, 1e-12),
    (S.log_ndtr, POINTS, 0.0, 1e-12),
    (torch.erfinv, UNIT, 0.0, 1e-13),
    (S.ndtri, torch.cat([UNIT, torch.tensor([1e-38, 0.135, 0.136, 0.864, 0.865])]), 1e-7, 1e-13),
    (S.entr, POSITIVE, 1e-7, 1e-13),
    (torch.angle, POINTS, 0.0, 1e-14),
]

_HYPERBOLIC: list[tuple[Callable[..., Any], torch.Tensor]] = [
    *((function, POINTS) for function in (torch.sinh, torch.cosh, torch.asinh, torch.acosh, torch.atan)),
    *((function, UNIT) for function in (torch.asin, torch.acos, torch.atanh)),
    (torch.tan, LINE),
]


def _unary() -> list[Record]:
    records = []
    for function, data, atol, exact in _UNARY:
        name = function.__name__
        records.append(Record(name, function, (data,), ENDS, rtol=1e-5, atol=atol))
        wide = data.double()
        records.append(Record(f"{name} of double", function, (wide,), (13,), rtol=exact, atol=1e-14))
    for function, data in _HYPERBOLIC:
        name = function.__name__
        wide = data.double()
        records.append(
            Record(
                f"{name} of double",
                function,
                (wide,),
                (13,),
                rtol=1e-11 if name == "tan" else 1e-13,
                atol=1e-15,
            )
        )
        if name not in ("atan", "asin", "acos", "tan"):
            records.append(Record(name, function, (data,), ENDS, rtol=2e-6, atol=0.0))
    records += [
        Record("i0 of int", torch.i0, (integers(5),), (13,)),
        Record("lgamma of half", torch.lgamma, (floats(9).abs().half(),), (13,)),
        Record("erfinv of scalar", torch.erfinv, (torch.tensor(0.3),), (13,)),
        Record(
            "digamma dynamic", torch.digamma, (floats(3, 4),), (7, 13), rtol=1e-4, dynamic=({0: "a", 1: "b"},)
        ),
    ]
    return records


def _gamma() -> list[Record]:
    x = torch.cat([LINE, torch.tensor([NAN, 1e-3, 0.5, 1.0, 30.0, 1e3])])
    a = torch.tensor([0.0, 1e-3, 0.5, 1.0, 5.0, 20.5, 30.0, 150.0, 250.0, 1e4, INF, NAN, -1.0])[:, None]
    near = a * torch.tensor([0.0, 0.01, 0.5, 0.72, 0.99, 1.0, 1.01, 1.28, 1.5, 5.0])
    far = torch.tensor([0.0, 0.05, 0.55, 1.05, 3.0, 100.0, INF, NAN, -1.0]).expand(len(a), -1)
    b = torch.cat([near, far], 1)
    a = a.expand_as(b).contiguous()
    order = torch.tensor([1.0, 1.5, 2.0, 3.0, 20.0, -1.0, 0.5])[:, None]
    at = torch.tensor([-3.0, -2.5, -0.5, 0.0, 1e-3, 0.5, 1.0, 9.0, 30.0, 1e4, NAN])
    records = [
        Record(f"polygamma {n}", lambda x, n=n: S.polygamma(n, x), (x,), ENDS, rtol=2e-5) for n in range(5)
    ]
    records += [
        Record("zeta", S.zeta, (order, at), ENDS, rtol=1e-5),
        Record("zeta of double", S.zeta, (order.double(), at.double()), (13,), rtol=1e-13),
        Record("zeta number", lambda q: S.zeta(2, q), (at,), (13,), rtol=1e-5),
        Record("zeta at number", lambda x: S.zeta(x, 1.5), (order,), (13,), rtol=1e-5),
        Record(
            "mvlgamma", lambda x: torch.mvlgamma(x, 3), (floats(9).abs() + 1.1,), ENDS, rtol=1e-5, atol=2e-6
        ),
        Record("igamma", torch.igamma, (a, b), ENDS, rtol=3e-4, atol=1e-6),
        Record("igammac", torch.igammac, (a, b), ENDS, rtol=3e-4, atol=3e-5),
        # ATen's expansion of double takes pi from float.
        Record("igamma of double", torch.igamma, (a.double(), b.double()), (13,), rtol=3e-9, atol=1e-9),
        Record("igammac of double", torch.igammac, (a.double(), b.double()), (13,), rtol=3e-9, atol=1e-9),
        Record("igamma broadcast", torch.igamma, (a[4:7, :1], b[5, :9]), (13,), rtol=1e-4),
    ]
    return records


def _polynomials() -> list[Record]:
    # NaN in the argument is left out: ATen's result is an uninitialised variable there.
    x = torch.cat([torch.linspace(-2.9, 2.9, 30), torch.tensor([0.0, 1.0, -1.0, 0.9999, -0.9999])])[:, None]
    n = torch.tensor([0.0, 1.0, 2.0, 3.0, 5.5, 6.0, 7.0, 9.0, 20.0, -1.0, -0.5, NAN, INF])
    families = [f"{s}chebyshev_polynomial_{kind}" for s in ("", "shifted_") for kind in "tuvw"]
    families += ["hermite_polynomial_h", "hermite_polynomial_he"]
    families += ["laguerre_polynomial_l", "legendre_polynomial_p"]
    records = []
    for name in families:
        function = getattr(S, name)
        records.append(Record(name, function, (x, n), ENDS, rtol=1e-4, atol=2e-4))
        wide = (x.double(), n.double())
        records.append(Record(f"{name} of double", function, wide, (13,), rtol=1e-10, atol=1e-11))
    # So near an end that the divisor of the closed form vanishes, of even and odd degrees.
    degrees = torch.tensor([[9.0], [10.0], [21.0]])
    records += [
        Record(f"{name} beside an end", getattr(S, name), (torch.tensor(ends), degrees), (13,), rtol=1e-4)
        for prefix, ends in (("", [2**-24 - 1, 1 - 2**-24]), ("shifted_", [2**-25, 1 - 2**-24]))
        for name in (f"{prefix}chebyshev_polynomial_v", f"{prefix}chebyshev_polynomial_w")
    ]
    hermite, legendre = S.hermite_polynomial_h, S.legendre_polynomial_p
    records += [
        Record("hermite beyond its limit", hermite, (x[:3], torch.tensor([127.0, 129.0])), (13,)),
        Record("legendre degree", lambda x: legendre(x, 4), (x,), ENDS, rtol=1e-4, atol=1e-5),
        Record("legendre argument", lambda n: legendre(0.3, n), (n,), (13,), rtol=1e-4, atol=1e-5),
        Record("legendre of int", legendre, (integers(4), integers(4, low=0, seed=1)), (13,)),
    ]
    return records


def _parts() -> list[Record]:
    records = []
    for dtype in (torch.float32, torch.float64):
        info = torch.finfo(dtype)
        tiny = info.tiny
        numbers = [0.0, -0.0, 1.0, -1.0, 0.5, 3.7, info.max, -info.max, tiny, tiny / 2, -tiny * 1.5]
        numbers += [tiny * info.eps, tiny * 2.0**22, tiny * 2.0**24, INF, -INF, NAN, 1e-5]
        x = torch.tensor(numbers, dtype=dtype)
        to = torch.tensor([INF, -INF, 0.0, 1.0, NAN], dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        records += [
            Record(f"nextafter {name}", torch.nextafter, (x[:, None], to), ENDS, rtol=0.0, atol=0.0),
            Record(f"frexp {name}", lambda x: tuple(torch.frexp(x)), (x,), ENDS, rtol=0.0, atol=0.0),
        ]
    return records


def _bits() -> list[Record]:
    records = []
    for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
        info = torch.iinfo(dtype)
        low = max(info.min, -100)
        x = torch.cat([torch.tensor([info.min, info.max, 0, 1]).to(dtype), integers(9, low=low, dtype=dtype)])
        y = torch.tensor([info.min, info.max, 0, 1, 6, 77]).to(dtype)
        amounts = torch.tensor([0, 1, 3, 7, 8, 31, 32, 63, 64, -1][: 9 if low == 0 else 10]).to(dtype)
        name = str(dtype).removeprefix("torch.")
        opsets = (7, 9, 17, 18) if dtype == torch.int64 else (9, 18)
        pair, shifted = (x[:, None], y), (x[:, None], amounts)
        for operator in ("and", "or", "xor"):
            function = getattr(torch, f"bitwise_{operator}")
            records.append(Record(f"bitwise_{operator} {name}", function, pair, opsets))
        records += [
            Record(f"left shift {name}", torch.bitwise_left_shift, shifted, (7, 13)),
            Record(f"right shift {name}", torch.bitwise_right_shift, shifted, (7, 13)),
            Record(f"gcd {name}", torch.gcd, (x[1:, None], y[1:]), ENDS),
            Record(f"lcm {name}", torch.lcm, (x[1:, None], y[1:]), ENDS),
        ]
    x = integers(2, 3)
    records += [
        Record("bitwise_and number", lambda x: x & 6, (x,), (9, 18)),
        Record(
            "bitwise_xor dynamic",
            torch.bitwise_xor,
            (x, x + 5),
            (9, 18),
            dynamic=({0: "a", 1: "b"}, {0: "a", 1: "b"}),
        ),
        Record("left shift number", lambda x: x << 63, (x,), (13,)),
        Record("shift of number", lambda x: 5 << x, (x.abs(),), (13,)),
    ]
    return records


@parametrized(_unary())
def test_unary_function_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_gamma())
def test_gamma_function_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_polynomials())
def test_polynomial_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_parts())
def test_part_of_a_float_is_exact(record: Record) -> None:
    check(record)


@parametrized(_bits())
def test_bits_are_exact(record: Record) -> None:
    check(record)


def test_zeta_far_below_its_poles_ends_without_a_number() -> None:
    """ATen would sum one term for each whole number on the way up."""

    class Zeta(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return S.zeta(torch.full_like(q, 3.0), q)

    program = opsetta.export(Zeta().eval(), (torch.tensor([0.5]),), opset=13)
    result = program(torch.tensor([-1.5e6 - 0.5]))
    assert bool(torch.isnan(torch.as_tensor(result)).all())
