"""The known properties of a value of a TorchScript program: a tensor, a number, or an element type."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import sympy
import torch

from ...torch_boundary.symbolic_sizes import floor_quotient, remainder

SAMPLES = 6
"""How many samples there are of the dynamic sizes."""

EXACT_ARITHMETIC: dict[str, Callable[..., sympy.Expr]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": floor_quotient,
    "floor_divide": floor_quotient,
    "remainder": remainder,
}
"""Operators whose result is an expression of their operands."""


# An enumeration, because type checkers know that it has one member.
class _Unknown(enum.Enum):
    """Marks a value without known properties."""

    UNKNOWN = enum.auto()


UNKNOWN: Final = _Unknown.UNKNOWN

Size: TypeAlias = int | sympy.Expr


@dataclasses.dataclass(frozen=True)
class UnrankedTensor:
    """A tensor of known element type and unknown rank."""

    dtype: torch.dtype


@dataclasses.dataclass(eq=False)
class Tensor:
    """The known properties of a tensor.

    Attributes:
        samples: a fake tensor for each sample of the sizes, or a single one if no size is dynamic; None if
            torch refuses the sample.
        shape: its sizes.
        example: the tensor itself, if it is an argument of integers, which may be indices.
    """

    samples: list[torch.Tensor | None]
    shape: list[Size]
    example: torch.Tensor | None = None

    @property
    def any(self) -> torch.Tensor:
        """One of the samples."""
        return next(sample for sample in self.samples if sample is not None)

    @property
    def dtype(self) -> torch.dtype:
        """Its element type."""
        return self.any.dtype

    def dim(self) -> int:
        """Its rank."""
        return len(self.shape)


@dataclasses.dataclass(eq=False)
class Number:
    """The known properties of a Python number that the program computes.

    Attributes:
        number_type: `int`, `float` or `bool`.
        samples: its value for each sample of the sizes.
        expression: an int's value as an expression of sizes and other numbers, if known.
    """

    number_type: str
    samples: list[float]
    expression: sympy.Expr | None = None


Fake: TypeAlias = Tensor | Number | UnrankedTensor | _Unknown
FakeResult: TypeAlias = "Fake | list[FakeResult] | tuple[FakeResult, ...]"
"""The known properties of the result of an operator."""


def symbols_of(item: object) -> set[sympy.Symbol]:
    """The symbols in the known properties of an operand, or in one size."""
    sizes = item.shape if isinstance(item, Tensor) else [getattr(item, "expression", item)]
    return {symbol for size in sizes if isinstance(size, sympy.Expr) for symbol in size.free_symbols}


def candidate_sizes(operands: Sequence[object]) -> list[sympy.Expr]:
    """Expressions that a size may be: the varying sizes of the operands, numbers, and products of two."""
    expressions: dict[sympy.Expr, None] = {}
    for leaf in operands:
        if isinstance(leaf, Tensor):
            expressions.update(dict.fromkeys(size for size in leaf.shape if not isinstance(size, int)))
        elif isinstance(leaf, Number) and leaf.expression is not None and not leaf.expression.is_number:
            expressions[leaf.expression] = None
    single = list(expressions)
    if len(single) <= 6:
        expressions.update(dict.fromkeys(a * b for a, b in itertools.combinations(single, 2)))
        expressions.update(dict.fromkeys(a + b for a, b in itertools.combinations(single, 2)))
    return list(expressions)


def repeated_samples(samples: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The samples, once for each sample of the sizes where there is one for all."""
    return [*samples] if len(samples) > 1 else [*samples] * SAMPLES


def operand_sample(leaf: object, k: int) -> object:
    """An operand at a sample of the sizes."""
    if isinstance(leaf, Tensor):
        return leaf.samples[k if len(leaf.samples) > 1 else 0]
    return leaf.samples[k] if isinstance(leaf, Number) else leaf


def has_symbolic_sizes(member: torch.Tensor) -> bool:
    """Whether torch could not compute a size of a fake tensor."""
    return any(isinstance(size, torch.SymInt) for size in member.shape)
