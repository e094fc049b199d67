"""Random programs of chained operators over tensors, zero-dim tensors, Python numbers and symbolic sizes."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
SHAPES = [(), (3,), (2, 3), (1, 3)]
NUMBERS = [True, 2, -1, 3, 0.5, 2.0, 1.5]
SIZE = 5
"""The size, symbolic in the exported program, that programs calculate with."""

_LARGEST = 1000.0
_EPSILON = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2e-6, torch.float64: 1e-12}


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operator as a program calls it.

    Attributes:
        function: of `arity` operands, any of which may be a number unless the operator refuses that.
        tensors: all its operands are tensors.
        steep: small differences of its operands may become large ones of its result.
    """

    name: str
    function: Callable[..., Any]
    arity: int
    steep: bool = False
    tensors: bool = False


_EVEN = torch.tensor([True, False, True])
_INDEX = torch.tensor([0, 2])


_INFIX: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, "==": operator.eq,
    "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def _written(kind: str) -> Callable[[torch.Tensor, Any], torch.Tensor]:
    def write(a: torch.Tensor, b: Any) -> torch.Tensor:
        return getattr(a.clone(), kind)(b)

    return write


def _is_bool(item: Any) -> bool:
    return isinstance(item, bool) or (isinstance(item, torch.Tensor) and item.dtype == torch.bool)


def _is_sound(name: str, given: list[Any]) -> bool:
    """Whether eager torch, torch.export and C agree on what an operation is."""
    if name in ("<<", ">>"):
        # torch.export refuses a shift of booleans; one by less than nothing C leaves open.
        return not any(map(_is_bool, given)) and not bool((torch.as_tensor(given[1]) < 0).any())
    if name == "clamp":
        # With one bound a number, eager torch takes the other one's item.
        return len({isinstance(bound, torch.Tensor) for bound in given[1:]}) == 1
    if name in ("**", "pow"):
        # Eager torch has a power of booleans for the exponent 1 alone, torch.export gives that another type.
        if all(map(_is_bool, given)):
            return False
        # onnxruntime has no power of narrow integers, the reference evaluator none with negative exponents.
        joint = torch.result_type(*given)
        narrow = joint in (torch.uint8, torch.int8, torch.int16)
        return not (narrow and bool((torch.as_tensor(given[1]) < 0).any()))
    return True


def _assigned(a: torch.Tensor, b: Any) -> torch.Tensor:
    copy = a.clone()
    copy[..., :2] = b
    return copy


_SMOOTH: dict[str, Callable[..., Any]] = {
    **{symbol: _INFIX[symbol] for symbol in ("+", "-", "*")},
    "add alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub alpha": lambda a, b: torch.sub(a, b, alpha=0.5),
    "rsub": lambda a, b: torch.rsub(a, b),
    "maximum": torch.maximum, "minimum": torch.minimum, "max": torch.max, "fmin": torch.fmin,
    "where": lambda a, b: torch.where(_EVEN, a, b),
    "clamp min": lambda a, b: torch.clamp(a, min=b),
    "clamp max": lambda a, b: torch.clamp(a, max=b),
    "masked fill": lambda a, b: torch.masked_fill(a, _EVEN, b),
    "copysign": torch.copysign,
    "cat": lambda a, b: torch.cat([torch.atleast_1d(a)[..., :2], torch.atleast_1d(b)[..., :2]], -1),
    "stack": lambda a, b: torch.stack(torch.broadcast_tensors(a, b)),
    "hstack": lambda a, b: torch.hstack([a, b]),
    "vstack": lambda a, b: torch.vstack([a, b]),
    "column stack": lambda a, b: torch.column_stack([a, b]),
    "outer": lambda a, b: torch.outer(a, b),
    "mse loss": lambda a, b: torch.nn.functional.mse_loss(*torch.broadcast_tensors(a, b), reduction="none"),
    "inner": torch.inner,
    "add_": _written("add_"), "mul_": _written("mul_"), "copy_": _written("copy_"),
    "assigned": _assigned,
    "index fill": lambda a, b: torch.index_fill(a, -1, _INDEX, b),
    "hypot": torch.hypot, "logaddexp": torch.logaddexp,
}  # fmt: skip

_STEEP: dict[str, Callable[..., Any]] = {
    **{symbol: _INFIX[symbol] for symbol in
       ("/", "//", "%", "**", "<<", ">>", "<", "<=", "==", "!=", ">", ">=", "&", "|", "^")},
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "fmod": torch.fmod, "remainder": torch.remainder, "floor divide": torch.floor_divide,
    "atan2": torch.atan2, "xlogy": torch.xlogy, "float power": torch.float_power,
    "logical and": torch.logical_and, "logical or": torch.logical_or, "isclose": torch.isclose,
    "heaviside": torch.heaviside, "div_": _written("div_"),
    "bucketize": lambda a, b: torch.bucketize(a, torch.tensor([0.5, 1.5, 2.0])),
}  # fmt: skip

_TERNARY: dict[str, Callable[..., Any]] = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=1.5),
    "lerp": torch.lerp, "clamp": torch.clamp,
    "where of": lambda a, b, c: torch.where(a > 1, b, c),
}  # fmt: skip

_UNARY: dict[str, Callable[..., Any]] = {
    "sqrt": torch.sqrt, "exp": torch.exp, "sin": torch.sin, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "neg": torch.neg, "abs": torch.abs, "square": torch.square, "log1p": torch.log1p,
    "relu": torch.relu, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
    "sum": lambda a: a.sum(-1), "sum half": lambda a: a.sum(-1, dtype=torch.float16),
    "sum narrow": lambda a: a.sum(-1, dtype=torch.int32), "mean": lambda a: a.mean(-1),
    "mean of": lambda a: a.mean(-1, dtype=torch.float64), "prod": lambda a: a.prod(-1),
    "cumsum": lambda a: a.cumsum(-1), "nansum": lambda a: a.nansum(-1), "amax": lambda a: a.amax(-1),
    "softmax": lambda a: a.softmax(-1, dtype=torch.float32), "softmax own": lambda a: a.softmax(-1),
    "logsumexp": lambda a: a.logsumexp(-1), "var": lambda a: a.var(-1), "norm": lambda a: a.norm(dim=-1),
}  # fmt: skip

_UNARY_STEEP: dict[str, Callable[..., Any]] = {
    "floor": torch.floor, "round": torch.round, "sign": torch.sign, "trunc": torch.trunc,
    "logical not": torch.logical_not, "bitwise not": torch.bitwise_not, "any": lambda a: a.any(-1),
    "to int": lambda a: a.to(torch.int32), "to bool": torch.Tensor.bool, "to half": torch.Tensor.half,
    "threshold": lambda a: torch.nn.functional.threshold(a, 1, 2.5), "isnan": torch.isnan,
    "count": lambda a: a.count_nonzero(-1),
}  # fmt: skip

_OF_TENSORS = {
    "maximum", "minimum", "fmin", "cat", "stack", "hstack", "vstack", "column stack", "outer", "inner",
    "hypot", "logaddexp", "atan2", "heaviside", "isclose", "addcmul", "lerp", "mse loss", "logical and",
    "logical or", "copy_",
}  # fmt: skip

OPERATIONS = [
    Operation(name, function, arity, steep, name in _OF_TENSORS)
    for table, arity, steep in (
        (_SMOOTH, 2, False), (_STEEP, 2, True), (_TERNARY, 3, True),
        (_UNARY, 1, False), (_UNARY_STEEP, 1, True),
    )
    for name, function in table.items()
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Operand:
    """What an operation is given: a value of the program by its position, a number, or the symbolic size."""

    position: int | None = None
    number: bool | int | float | None = None

    def __repr__(self) -> str:
        if self.position is not None:
            return f"v{self.position}"
        return "size" if self.number is None else repr(self.number)

    def read(self, values: list[torch.Tensor], size: Any) -> Any:
        if self.position is not None:
            return values[self.position]
        return size if self.number is None else self.number


@dataclasses.dataclass
class _Accuracy:
    """How far a value may be off: not at all, or relative to the largest number that went into it."""

    epsilon: float = 0.0
    largest: float = 0.0
    depth: int = 0


class Program(torch.nn.Module):
    """Operations over inputs and earlier results; all results are outputs.

    Attributes:
        inputs: the example, first the tensor whose size is symbolic.
        tolerances: for each result how far it may be off, absolutely.
    """

    def __init__(self, inputs: list[torch.Tensor]):
        super().__init__()
        self.inputs = inputs
        self.steps: list[tuple[Operation, list[Operand]]] = []
        self.values = list(inputs)
        self.accuracies = [_Accuracy(largest=_magnitude(value)) for value in inputs]

    def __repr__(self) -> str:
        lines = [f"v{i} = {list(x.shape)} {x.dtype} {x.tolist()}" for i, x in enumerate(self.inputs)]
        for index, (operation, operands) in enumerate(self.steps, len(self.inputs)):
            lines.append(f"v{index} = {operation.name}{tuple(operands)}")
        return "\n".join(lines)

    @property
    def tolerances(self) -> list[float]:
        results = self.accuracies[len(self.inputs) :]
        return [64 * found.epsilon * max(1.0, found.largest) for found in results]

    def forward(self, sized: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        size = sized.shape[0]
        for operation, operands in self.steps:
            values.append(operation.function(*[operand.read(values, size) for operand in operands]))
        return tuple(values[len(inputs) :])

    def extend(self, operation: Operation, operands: list[Operand]) -> None:
        """Add an operation, unless eager torch refuses it or its result cannot be compared."""
        sources = [self.accuracies[o.position] for o in operands if o.position is not None]
        if operation.steep and any(source.epsilon for source in sources):
            return
        given = [operand.read(self.values, SIZE) for operand in operands]
        if not _is_sound(operation.name, given):
            return
        try:
            result = operation.function(*given)
        except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError, AttributeError):
            return
        if not isinstance(result, torch.Tensor) or not _is_comparable(operation, given, result):
            return
        accuracy = _accuracy(operation, given, result, sources)
        if accuracy.depth > 2:
            return
        self.steps.append((operation, operands))
        self.values.append(result)
        self.accuracies.append(accuracy)


def _magnitude(value: Any) -> float:
    if isinstance(value, torch.Tensor):
        return float(value.double().abs().max()) if value.numel() else 0.0
    return abs(float(value))


def _is_comparable(operation: Operation, given: list[Any], result: torch.Tensor) -> bool:
    if result.dtype not in DTYPES or result.numel() > 64 or result.numel() == 0:
        return False
    if result.is_floating_point() and not bool(result.isfinite().all()):
        return False
    if _magnitude(result) > _LARGEST:
        return False
    # What a negative or large float is as an unsigned or narrow integer, C leaves open.
    floats = [
        x for x in given if isinstance(x, float) or (isinstance(x, torch.Tensor) and x.is_floating_point())
    ]
    narrow = not result.is_floating_point() and result.dtype != torch.bool
    return not narrow or all(_magnitude(x) <= 100 and float(torch.as_tensor(x).min()) >= 0 for x in floats)


def _accuracy(
    operation: Operation, given: list[Any], result: torch.Tensor, sources: list[_Accuracy]
) -> _Accuracy:
    largest = max([_magnitude(result), *map(_magnitude, given), *(source.largest for source in sources)])
    inexact = max((source.depth for source in sources), default=0)
    if not result.is_floating_point():
        return _Accuracy(0.0, largest, 0) if not inexact else _Accuracy(1.0, largest, 99)
    if not inexact and _is_exact(operation, given, result):
        return _Accuracy(0.0, largest, 0)
    epsilon = max(
        [_EPSILON[result.dtype], *(source.epsilon for source in sources), *map(_own_epsilon, given)]
    )
    return _Accuracy(epsilon, largest, inexact + 1)


def _own_epsilon(item: Any) -> float:
    return _EPSILON.get(item.dtype, 0.0) if isinstance(item, torch.Tensor) else 0.0


def _is_exact(operation: Operation, given: list[Any], result: torch.Tensor) -> bool:
    """Whether nothing was rounded: double precision gives the same."""
    double = [item.double() if isinstance(item, torch.Tensor) else item for item in given]
    try:
        wide = operation.function(*double)
    except (RuntimeError, TypeError, ValueError):
        return False
    # Few binary digits: what double precision rounded too would not have them.
    short = torch.equal((result.double() * 64).round(), result.double() * 64)
    return short and bool(torch.equal(wide.double(), result.double()))


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], start: int, step: float) -> torch.Tensor:
    numbers = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) * step + start
    return (numbers.abs() if dtype in (torch.bool, torch.uint8) else numbers).to(dtype)


@st.composite
def programs(draw: st.DrawFn, most: int = 6) -> Program:
    """Programs of up to `most` operations that eager torch runs."""
    tensors = st.builds(
        _tensor,
        st.sampled_from(DTYPES),
        st.sampled_from(SHAPES),
        st.integers(-2, 3),
        st.sampled_from([1.0, 0.5, 2.0, -0.5]),
    )
    program = Program(draw(st.lists(tensors, min_size=2, max_size=4)))
    for _ in range(draw(st.integers(2, 2 * most))):
        if len(program.steps) == most:
            break
        operation = draw(st.sampled_from(OPERATIONS))
        value = st.integers(0, len(program.values) - 1).map(Operand)
        numbers = [*(Operand(number=number) for number in NUMBERS), Operand()]
        other = value if operation.tensors else st.one_of(value, st.sampled_from(numbers))
        operands = [draw(value), *(draw(other) for _ in range(operation.arity - 1))]
        if draw(st.booleans()):
            operands.reverse()
        program.extend(operation, operands)
    return program
