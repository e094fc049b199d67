"""Element-wise operators against eager PyTorch: values at the edges, element types, refusals."""

import math

import torch

from .records import BASE, EVERYWHERE, HIGHEST, Record, check, floats, integers, parametrized

INF, NAN = math.inf, math.nan
X = floats(2, 3, 4)
Y = floats(2, 3, 4, seed=1)
POSITIVE = X.abs() + 0.1
UNIT = X.clamp(-0.99, 0.99)
SPECIAL = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e-10, 3e38])
I = integers(2, 3, 4)  # noqa: E741
J = integers(2, 3, 4, low=1, seed=1) * torch.tensor([1, -1, 1, -1])
LEAST = (
    torch.tensor([-128, -128, -127, 127, -1], dtype=torch.int8),
    torch.tensor([3, 2, 5, -128, -128], dtype=torch.int8),
)
B = X > 0
C = Y > 0

_UNARY = {
    "abs": X,
    "neg": X,
    "exp": X,
    "log": POSITIVE,
    "sqrt": POSITIVE,
    "reciprocal": POSITIVE,
    "rsqrt": POSITIVE,
    "square": X,
    "sigmoid": X,
    "tanh": X,
    "sin": X,
    "cos": X,
    "tan": X,
    "asin": UNIT,
    "acos": UNIT,
    "atan": X,
    "floor": SPECIAL,
    "ceil": SPECIAL,
    "trunc": SPECIAL,
    "frac": X,
    "round": SPECIAL,
    "sign": SPECIAL,
    "sgn": SPECIAL,
    "erf": X * 2,
    "erfc": X,
    "expm1": torch.tensor([-100.0, -1.0, -1e-6, 0.0, 1e-7, 2.0, INF, -INF, NAN]),
    "log1p": torch.tensor([-1.0, -0.9999, -0.5, -1e-6, 0.0, 1e-9, 1e-4, 0.7, 5.0, 1e20, INF, NAN]),
    "exp2": X,
    "log2": POSITIVE,
    "log10": POSITIVE,
    "isnan": SPECIAL,
    "isinf": SPECIAL,
    "isfinite": SPECIAL,
    "isposinf": SPECIAL,
    "isneginf": SPECIAL,
    "signbit": SPECIAL[1:],
    "deg2rad": X,
    "rad2deg": X,
    "positive": X,
    "logical_not": SPECIAL,
    "logit": torch.sigmoid(X),
    "sinh": X,
    "cosh": X,
    "asinh": X,
    "acosh": POSITIVE + 1,
    "atanh": UNIT,
    "nan_to_num": SPECIAL,
    "sinc": torch.tensor([0.0, 0.5, -1.0, 2.3]),
}
_TIGHT = {"expm1", "log1p", "round", "erf"}


def _unary() -> list[Record]:
    records = []
    for name, data in _UNARY.items():
        opsets = tuple(sorted({*EVERYWHERE, *{"round": (11,), "isinf": (10, 20)}.get(name, ())}))
        tolerance = {"rtol": 1e-6, "atol": 1e-30 if name != "erf" else 3e-7} if name in _TIGHT else {}
        records.append(Record(name, getattr(torch, name), (data,), opsets, **tolerance))
    for name in ("sin", "exp", "sigmoid", "erf", "sqrt", "reciprocal", "expm1", "log1p"):
        records.append(Record(f"{name} of int", getattr(torch, name), (integers(5, low=1),)))
    for name in (
        "abs",
        "neg",
        "floor",
        "ceil",
        "trunc",
        "round",
        "sign",
        "square",
        "isnan",
        "isinf",
        "isfinite",
    ):
        records.append(Record(f"{name} of int", getattr(torch, name), (I,)))
    records += [
        Record("round decimals", lambda x: torch.round(x, decimals=2), (X,), (9, 11, 13)),
        Record("round negative decimals", lambda x: torch.round(x, decimals=-1), (X * 100,), (9, 11, 13)),
        Record("neg of uint8", torch.neg, (integers(5, low=1, dtype=torch.uint8),), (13,)),
        Record("logit eps", lambda x: torch.logit(x, 0.1), (torch.sigmoid(X),)),
        Record("nan_to_num given", lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0), (SPECIAL,)),
        Record("sign of double", torch.sign, (SPECIAL.double(),), EVERYWHERE),
        Record("sign of half", torch.sign, (SPECIAL.half(),), EVERYWHERE),
        Record("sin of scalar", torch.sin, (torch.tensor(0.5),)),
        Record("exp of double", torch.exp, (X.double(),)),
        Record("abs of half", torch.abs, (X.half(),)),
    ]
    return records


def _arithmetic() -> list[Record]:
    zero_nan = torch.tensor([0.0, 0.0, 0.0, 2.0])
    zero_nan_other = torch.tensor([NAN, 0.0, -1.0, INF])
    records = [
        Record("add", torch.add, (X, Y), EVERYWHERE),
        Record("add number", lambda x: x + 2.5, (X,), EVERYWHERE),
        Record("add broadcast", torch.add, (X, Y[0, :1]), EVERYWHERE),
        Record("add alpha", lambda x, y: torch.add(x, y, alpha=2.5), (X, Y), EVERYWHERE),
        Record("add alpha number", lambda x: torch.add(x, 2, alpha=3), (X,), EVERYWHERE),
        Record("add int", torch.add, (I, J), EVERYWHERE),
        Record("add int float number", lambda x: x + 1.5, (I,), EVERYWHERE),
        Record("add bool", torch.add, (B, C), EVERYWHERE),
        Record("add int8 wraps", torch.add, (torch.tensor([100], dtype=torch.int8),) * 2),
        Record("sub", lambda x, y: torch.sub(x, y, alpha=2), (X, Y), EVERYWHERE),
        Record("rsub number", lambda x: torch.rsub(x, 2.0, alpha=3), (X,), EVERYWHERE),
        Record("number minus tensor", lambda x: 1 - x, (X,), EVERYWHERE),
        Record("mul", torch.mul, (X, Y), EVERYWHERE),
        Record("mul bool", torch.mul, (B, C), EVERYWHERE),
        Record("mul bool and float", torch.mul, (B, Y), EVERYWHERE),
        Record("div", torch.div, (X, Y), EVERYWHERE),
        Record("div int", torch.div, (I, J), EVERYWHERE),
        Record("number over tensor", lambda x: 2 / x, (X,), EVERYWHERE),
        Record("div trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X * 9, Y), EVERYWHERE),
        Record("div trunc int", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (I, J), EVERYWHERE),
        Record("div floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), (X * 9, Y), EVERYWHERE),
        Record(
            "div floor int",
            lambda x, y: torch.div(x, y, rounding_mode="floor"),
            (I, J),
            (*EVERYWHERE, 10),
        ),
        Record("addcmul", lambda x, y: torch.addcmul(x, x, y, value=0.5), (X, Y), EVERYWHERE),
        Record("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=0.5), (X, POSITIVE), EVERYWHERE),
        Record("lerp", lambda x, y: torch.lerp(x, y, 0.3), (X, Y), EVERYWHERE),
        Record("lerp tensor", torch.lerp, (X, Y, UNIT), EVERYWHERE),
        Record("hypot", torch.hypot, (X, Y), EVERYWHERE),
        Record("hypot large", torch.hypot, (X * 1e30, Y * 1e30), (9, HIGHEST)),
        Record("hypot small", torch.hypot, (X.half() * 1e-3, Y.half() * 1e-3), (9, HIGHEST), rtol=3e-3),
        Record("atan2", torch.atan2, (X, Y), (9, 11, 13)),
        Record(
            "atan2 edges",
            torch.atan2,
            (
                torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, INF, -INF]),
                torch.tensor([0.0, -0.0, -1.0, 1.0, 0.0, INF, 1.0]),
            ),
            (9, 11, 13),
        ),
        Record("logaddexp", torch.logaddexp, (X * 50, Y), (9, 13)),
        Record("logaddexp infinite", torch.logaddexp, (torch.tensor([INF, -INF, 1.0]),) * 2, (9, 13)),
        Record("logaddexp2", torch.logaddexp2, (X, Y), (13,)),
        Record("xlogy", torch.xlogy, (zero_nan, zero_nan_other), (9, 13)),
        Record("xlogy number", lambda x: torch.xlogy(2, x), (POSITIVE,), (9, 13)),
        Record("xlog1py", torch.special.xlog1py, (zero_nan, POSITIVE[0, 0]), (9, 13)),
        Record("heaviside of bool", torch.heaviside, (B, ~B), (9, 13, HIGHEST)),
        Record("square of bool", torch.square, (B,), (9, 13, HIGHEST)),
        Record("heaviside", torch.heaviside, (SPECIAL, torch.tensor(0.5)), (9, 13)),
        Record("copysign", torch.copysign, (SPECIAL[3:], floats(12)), (9, 13)),
        Record("copysign zero", torch.copysign, (X[0, 0], torch.tensor([0.0, -0.0, 1.0, -1.0])), (9, 13)),
        Record("copysign number", lambda x: torch.copysign(x, -2.0), (X,), EVERYWHERE),
        Record(
            "signs of zeros",
            lambda x, y: [
                f.reciprocal() for f in (torch.copysign(x * 0, y), torch.atan2(y * 0, x), torch.trunc(y / 4))
            ],
            (torch.ones(6), torch.tensor([1.0, -1.0, 0.0, -0.0, 3.0, -3.0])),
            EVERYWHERE,
        ),
        Record(
            "extremes of 16 bits",
            lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(-2, 3), x.argmax(0), y.argmin()),
            (integers(4, 3, dtype=torch.int16), integers(4, 3, seed=1, dtype=torch.int16)),
            (9, 11, 12, HIGHEST),
        ),
    ]
    tricky = (
        torch.tensor([1.0, 0.3, 7.0, -7.0, 7.0, -7.0, 0.6, 1e6]),
        torch.tensor([0.1, 0.1, 3, 3, -3, -3, 0.2, 0.3]),
    )
    doubles = torch.arange(-50, 50).double() / 10, torch.tensor(0.1).double()
    records += [
        Record("floor_divide doubles", torch.floor_divide, doubles, (10, 13, HIGHEST), rtol=0, atol=0),
        Record(
            "floor_divide double by number", lambda x: x // -0.1, doubles[:1], (10, HIGHEST), rtol=0, atol=0
        ),
    ]
    for name in ("floor_divide", "remainder", "fmod"):
        function = getattr(torch, name)
        ints = (7, 9, 10, 13, HIGHEST)
        records += [
            Record(name, function, (X * 9, Y), (*EVERYWHERE, 10)),
            Record(f"{name} near whole", function, tricky, (*EVERYWHERE, 10), rtol=1e-6, atol=1e-7),
            Record(f"{name} number", lambda x, f=function: f(x, 0.3), (X,), (*EVERYWHERE, 10)),
            Record(f"{name} power of two", lambda x, f=function: f(x, 2), (X * 9,), (*EVERYWHERE, 10)),
            Record(f"{name} int", function, (I, J), ints),
            Record(f"{name} int number", lambda x, f=function: f(x, 3), (I,), ints),
            Record(f"{name} int negative number", lambda x, f=function: f(x, -4), (I,), ints),
            Record(f"{name} int32", function, (I.int(), J.int()), ints),
            Record(f"{name} uint8", function, (I.abs().byte(), J.abs().byte()), ints),
            Record(f"{name} least int8", function, LEAST, ints),
            Record(f"{name} least int16", function, tuple(x.short() * 256 for x in LEAST), ints),
            Record(f"{name} least int32", function, tuple(x.int() << 24 for x in LEAST), ints),
            Record(f"{name} least int64", function, tuple(x.long() << 56 for x in LEAST), ints),
            Record(
                f"{name} least int64 number", lambda x, f=function: f(x, 3), (LEAST[0].long() << 56,), ints
            ),
        ]
    return records


def _powers() -> list[Record]:
    records = [
        Record(f"pow {exponent}", lambda x, e=exponent: torch.pow(x, e), (POSITIVE,), EVERYWHERE)
        for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.7)
    ]
    records += [
        Record(f"pow int {exponent}", lambda x, e=exponent: torch.pow(x, e), (I,), EVERYWHERE)
        for exponent in (0, 1, 2, 3, 7)
    ]
    records += [
        Record(
            "pow large int", lambda x: torch.pow(x, 3), (torch.tensor([2_000_001, -2_000_001]),), EVERYWHERE
        ),
        Record("pow int by float number", lambda x: torch.pow(x, 0.5), (I.abs(),), EVERYWHERE),
        Record("pow tensor", torch.pow, (POSITIVE, Y), EVERYWHERE),
        Record(
            "pow int tensor",
            torch.pow,
            (J, integers(2, 3, 4, low=0, high=4)),
            EVERYWHERE,
        ),
        Record(
            "pow int tensor beyond the bits of floats",
            lambda x, e: (x**e, x ** e[:1], x.int() ** e.int()),
            (
                torch.tensor([3, 7, -3, 10, 2, 2, -1, 3, 0]),
                torch.tensor([39, 22, 39, 18, 63, 64, 101, 90, 0]),
            ),
            (*EVERYWHERE, 12),
        ),
        Record(
            "pow int tensor of negative exponents",
            lambda x, e: (torch.pow(x, e), torch.pow(0, e), torch.pow(-3, e), torch.pow(x.int(), e.int())),
            (torch.tensor([[0], [1], [-1], [2], [-7]]), torch.arange(-3, 4)),
            (*EVERYWHERE, 12),
        ),
        Record(
            "pow of whole numbers",
            lambda e: (2**e, (-2) ** e, 3**e, 0**e, 1**e, (-1) ** e, 10 ** e.int(), 3 ** e[:4].byte()),
            (torch.tensor([-2, 0, 1, 3, 37, 39, 63, 64, 70]).abs() * torch.tensor([-1, *[1] * 8]),),
            (*EVERYWHERE, 12),
        ),
        Record("pow of number", lambda x: torch.pow(2, x), (X,), EVERYWHERE),
        Record("float_power", lambda x: torch.float_power(x, 2), (X,), (7, 9, 13)),
    ]
    return records


def _comparisons() -> list[Record]:
    left = torch.tensor([1.0, 2.0, NAN, NAN, INF, -INF, INF, 0.0])
    right = torch.tensor([1.0, 3.0, 1.0, NAN, INF, INF, -INF, -0.0])
    records = []
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "greater_equal", "not_equal"):
        function = getattr(torch, name)
        everywhere = (*EVERYWHERE, 10, 11, 12)
        records += [
            Record(name, function, (left, right), everywhere),
            Record(f"{name} number", lambda x, f=function: f(x, 1), (left,), everywhere),
            Record(f"{name} int", function, (I, J), (9, 11, 12, 13)),
            Record(f"{name} int and float number", lambda x, f=function: f(x, 0.5), (I,), (9, 13)),
            Record(f"{name} bool", function, (B, C), EVERYWHERE),
            Record(f"{name} uint8", function, (I.abs().byte(), J.abs().byte()), EVERYWHERE),
        ]
    records += [
        Record("isclose", torch.isclose, (left, right), (9, 11, 13)),
        Record("isclose equal_nan", lambda x, y: torch.isclose(x, y, equal_nan=True), (left, right), (9, 13)),
    ]
    return records


def _selections() -> list[Record]:
    records = [
        Record("where", torch.where, (B, X, Y), EVERYWHERE),
        Record("where number", lambda c, x: torch.where(c, x, 0.0), (B, X)),
        Record("where numbers", lambda c: torch.where(c, 1.0, 0.0), (B,)),
        Record("where int numbers", lambda c: torch.where(c, 1, 0), (B,)),
        Record("where promotes", torch.where, (B, X, I)),
        Record("where bool", torch.where, (B, C, ~B), EVERYWHERE),
        Record("where bool number", lambda c, x: torch.where(c, x, True), (B, C), EVERYWHERE),
        Record("where int", torch.where, (B, I, J)),
        Record("clamp", lambda x: torch.clamp(x, -0.5, 0.5), (SPECIAL,), (*EVERYWHERE, 11, 12)),
        Record("clamp min", lambda x: torch.clamp(x, min=0.25), (SPECIAL,), EVERYWHERE),
        Record("clamp max", lambda x: torch.clamp(x, max=0.25), (SPECIAL,), EVERYWHERE),
        Record("clamp to NaN", lambda x: torch.clamp(x, max=NAN), (SPECIAL,), (*EVERYWHERE, 11)),
        Record("clamp crossed", lambda x: torch.clamp(x, 1.0, -1.0), (SPECIAL,), (*EVERYWHERE, 11)),
        Record("clamp tensors", torch.clamp, (X, Y - 1, Y), EVERYWHERE),
        Record("clamp broadcast", torch.clamp, (X, Y[0] - 1, Y[0]), (7, 8, 9, 13)),
        Record("clamp int", lambda x: torch.clamp(x, -2, 3), (I,), (7, 9, 11, 12, 13)),
        Record("clamp int float bound", lambda x: torch.clamp(x, -1.5, 3), (I,), (7, 9, 13)),
        Record("clamp int tensors", torch.clamp, (I, J - 1, J), (9, 12, 13)),
        Record(
            "clamp double at 7", lambda x: (x.clamp(-0.5, 0.5), x.clamp_min(0.1)), (SPECIAL.double(),), (7, 8)
        ),
        Record("clamp double", lambda x: torch.clamp(x, -0.5, 0.5), (X.double(),), (9, 11, 13)),
        Record("clamp_min", lambda x: torch.clamp_min(x, 0.1), (X,), EVERYWHERE),
        Record("clamp_max tensor", torch.clamp_max, (X, Y), EVERYWHERE),
        Record("clip", lambda x: torch.clip(x, 0, 1), (X,), EVERYWHERE),
    ]
    swapped = torch.cat([SPECIAL[3:], SPECIAL[:3]])
    for name in ("maximum", "minimum", "fmax", "fmin", "max", "min"):
        function = getattr(torch, name)
        opsets = BASE if name in ("fmax", "fmin") else (7, *BASE)
        records.append(Record(f"{name} of two", function, (SPECIAL, swapped), opsets))
        records.append(Record(f"{name} of two int", function, (I, J), (9, 12, 13)))
    records.append(Record("maximum bool", torch.maximum, (B, C), EVERYWHERE[1:]))
    return records


def _logic() -> list[Record]:
    unsigned = integers(4, low=1, high=9, dtype=torch.uint8)
    records = []
    for name in ("and", "or", "xor"):
        bitwise = getattr(torch, f"bitwise_{name}")
        records += [
            Record(
                f"logical_{name}", getattr(torch, f"logical_{name}"), (SPECIAL, SPECIAL.flip(0)), EVERYWHERE
            ),
            Record(f"logical_{name} int", getattr(torch, f"logical_{name}"), (I, J), EVERYWHERE),
            Record(f"bitwise_{name} bool", bitwise, (B, C), EVERYWHERE),
            Record(f"bitwise_{name}", bitwise, (I, J), (*EVERYWHERE, 18)),
            Record(f"bitwise_{name} number", lambda x, f=bitwise: f(x, 6), (I,), (*EVERYWHERE, 18)),
        ]
    records += [
        Record("operator and", lambda x, y: x & y, (B, C), EVERYWHERE),
        Record("bitwise_not", torch.bitwise_not, (I,), (*EVERYWHERE, 18)),
        Record("bitwise_not bool", torch.bitwise_not, (B,), EVERYWHERE),
        Record("bitwise_not uint8", torch.bitwise_not, (unsigned,), (9, 18)),
        Record("left shift", lambda x: x << 3, (I,), EVERYWHERE),
        Record("left shift tensor", torch.bitwise_left_shift, (I, J.abs()), (12, 13)),
        Record("left shift unsigned", torch.bitwise_left_shift, (unsigned, unsigned // 4)),
        Record("right shift", lambda x: x >> 2, (I,), BASE),
        Record("right shift tensor", torch.bitwise_right_shift, (I, J.abs()), (12, 13)),
    ]
    return records


@parametrized(_unary())
def test_unary_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_arithmetic())
def test_arithmetic_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_powers())
def test_power_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_comparisons())
def test_comparison_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_selections())
def test_selection_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_logic())
def test_logic_agrees_with_eager(record: Record) -> None:
    check(record)
