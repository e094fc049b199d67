"""Finds the number in a tensor that recorded calls compute from sizes: `torch.div(x.shape[1], 4).item()`.

The computation is repeated on Python's numbers, symbolic ones included, so that the number stays known as an
expression of the sizes. Only arithmetic of integers is repeated, which is exact, and quotients that are
rounded, such as `torch.ceil((x.shape[1] - 7) / 4 + 1)` and `torch.as_tensor(x.shape[1] / 4).long()`. In torch
these are floats, which round alike as long as the dividend is less than 2**23.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.fx

from ..fake_tensors import is_without_data
from ..operators.overloads import OpOverload, schema_of
from ..symbolic_numbers import Size, holds_always
from .replay import NotReplayable

_INTEGERS = (torch.int64, torch.int32)
_LONGEST = 64
"""The largest number of elements of a constant, and of nodes that wait; a shape has fewer elements."""


class Quotient:
    """The exact quotient of an integer and a positive number, before it is rounded."""

    def __init__(self, dividend: Any, divisor: int):
        self._dividend = dividend
        self._divisor = divisor

    def __add__(self, other: Any) -> Quotient:
        if isinstance(other, (Quotient, float)):
            raise NotReplayable("quotients are only added to integers")
        return Quotient(self._dividend + other * self._divisor, self._divisor)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Quotient:
        return self.__add__(other * -1)

    def __mul__(self, other: object) -> Quotient:
        # A sum multiplies by its argument `alpha`, which is 1 by default.
        if type(other) is int and other == 1:
            return self
        raise NotReplayable("a quotient is multiplied before it is rounded")

    __rmul__ = __mul__

    def floor(self) -> Any:
        """The quotient rounded down."""
        return self._dividend // self._divisor

    def ceil(self) -> Any:
        """The quotient rounded up."""
        return (self._dividend + (self._divisor - 1)) // self._divisor

    def truncate(self) -> Any:
        """The quotient without its fraction, as a conversion to an integer type leaves it."""
        if not holds_always(self._dividend >= 0):
            raise NotReplayable("the dividend may be less than 0")
        return self.floor()


def number_in(
    node: torch.fx.Node, root: torch.nn.Module, elements_of: Callable[[torch.fx.Node], object]
) -> tuple[Size | torch.SymBool, set[torch.fx.Node]]:
    """Return the number or bool in a tensor that is computed from sizes, and the nodes that compute it.

    Args:
        node: the tensor's node.
        root: the module whose attributes the `get_attr` nodes name.
        elements_of: takes the node of a weight and returns its elements; raises NotReplayable for an input.

    Raises:
        NotReplayable: the number depends on something else, or on an operator that is not repeated here.
    """
    values: dict[torch.fx.Node, np.ndarray] = {}
    waiting = [node]
    while waiting:
        current = waiting[-1]
        missing = [] if _is_number(current) else [n for n in current.all_input_nodes if n not in values]
        if missing:
            waiting += missing
            if len(waiting) > _LONGEST:
                raise NotReplayable("it is computed in many steps")
            continue
        waiting.pop()
        if current not in values:
            values[current] = _value(current, values, root, elements_of)
    elements = values[node]
    if elements.size != 1 or isinstance(elements.item(), Quotient):
        raise NotReplayable("it is not one integer")
    # A number that depends on weights alone is read from them when the program runs.
    if any(item.op == "placeholder" for item in values) and not any(map(_is_number, values)):
        raise NotReplayable("it depends on no size")
    return elements.item(), set(values)


def _is_number(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (int, torch.SymInt)) and node.op == "call_function"


def _value(
    node: torch.fx.Node,
    values: dict[torch.fx.Node, np.ndarray],
    root: torch.nn.Module,
    elements_of: Callable[[torch.fx.Node], object],
) -> np.ndarray:
    """Compute the elements of a node as an object array of Python numbers."""
    example = node.meta.get("val")
    if _is_number(node):
        return _array(example)
    if node.target is operator.truediv:
        dividend, divisor = (values[n].item() if isinstance(n, torch.fx.Node) else n for n in node.args)
        if not isinstance(dividend, (int, torch.SymInt)):
            raise NotReplayable("the dividend is no integer")
        return _array(_divide(dividend, divisor))
    if node.op == "get_attr":
        example = getattr(root, str(node.target))
    schema = schema_of(node.target) if isinstance(node.target, OpOverload) else None
    apply: Callable[..., object] | None = None
    if schema is not None:
        apply = _FUNCTIONS.get(schema.name) or _COMPARISONS.get(schema.name)
    dtypes = _INTEGERS if schema is None or schema.name not in _RATIONAL else (*_INTEGERS, *_FLOATS)
    dtypes = dtypes if schema is None or schema.name not in _COMPARISONS else (*dtypes, torch.bool)
    if not isinstance(example, torch.Tensor) or example.dtype not in dtypes:
        raise NotReplayable("it is not a tensor of integers")
    if node.op == "get_attr":
        return _array(_constant(example))
    if node.op == "placeholder" and example.numel() == 1:
        return _array(elements_of(node))
    if schema is None or apply is None:
        raise NotReplayable(f"it depends on {node.target}")
    names = [argument.name for argument in schema.arguments]
    arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
    value_of: Callable[[torch.fx.Node], Any] = values.__getitem__
    settings = {name: item for name, item in arguments.items() if name not in _OF_STORAGE}
    try:
        result = _array(apply(**torch.fx.map_arg(settings, value_of)))
    except TypeError:
        # `Quotient` has only the arithmetic that comes before rounding.
        raise NotReplayable("it computes with quotients") from None
    if schema.name in _CONVERSIONS and not example.dtype.is_floating_point:
        result = _round(result, "truncate")
    fractions = float if example.dtype.is_floating_point else (float, Quotient)
    if any(isinstance(item, fractions) for item in result.reshape(-1)):
        raise NotReplayable("it depends on fractions")
    return result


def _array(item: object) -> np.ndarray:
    if isinstance(item, np.ndarray):
        return item
    array = np.empty(np.shape(item) if isinstance(item, list) else (), object)
    array[...] = item
    return array


def _constant(tensor: torch.Tensor) -> object:
    """Return the elements of a constant of the model as nested lists."""
    if is_without_data(tensor) or tensor.is_meta or tensor.numel() > _LONGEST:
        raise NotReplayable("it depends on a large tensor")
    return tensor.tolist()


def _divide(self: Any, other: Any, rounding_mode: str | None = None) -> object:
    """Divide by positive numbers; truncation is allowed only if it equals floor division."""
    if not all(type(divisor) is int and divisor > 0 for divisor in _array(other).reshape(-1)):
        raise NotReplayable("the divisor may be 0 or less")
    if rounding_mode is None:
        return np.frompyfunc(Quotient, 2, 1)(_array(self), other)
    # Truncation equals floor division only if the dividend is not negative.
    if rounding_mode != "floor" and not all(holds_always(n >= 0) for n in _array(self).reshape(-1)):
        raise NotReplayable("the dividend may be less than 0")
    return self // other


def _round(self: np.ndarray, method: str) -> np.ndarray:
    """Round the elements by a method of `Quotient`; integers stay unchanged."""
    return _array(
        np.frompyfunc(lambda item: getattr(item, method)() if isinstance(item, Quotient) else item, 1, 1)(
            self
        )
    )


def _compare(self: Any, other: Any, comparison: Callable[[Any, Any], Any]) -> object:
    if any(isinstance(item, Quotient) for array in (self, other) for item in _array(array).reshape(-1)):
        raise NotReplayable("quotients are not compared")
    return np.frompyfunc(comparison, 2, 1)(self, other)


def _product(self: np.ndarray, dim: int | None = None, keepdim: bool = False) -> object:
    if dim is not None:
        raise NotReplayable("products along an axis are not repeated")
    return functools.reduce(operator.mul, self.reshape(-1).tolist(), 1)


def _select(self: np.ndarray, dim: int, index: int) -> object:
    return np.take(self, index, dim)


_FUNCTIONS: dict[str, Callable[..., object]] = {
    "aten::_to_copy": lambda self: self,
    "aten::add": lambda self, other, alpha=1: self + alpha * other,
    "aten::alias": lambda self: self,
    "aten::ceil": functools.partial(_round, method="ceil"),
    "aten::clone": lambda self: self,
    "aten::detach": lambda self: self,
    "aten::detach_": lambda self: self,
    "aten::div": _divide,
    "aten::floor": functools.partial(_round, method="floor"),
    "aten::floor_divide": functools.partial(_divide, rounding_mode="floor"),
    "aten::lift_fresh": lambda self: self,
    "aten::lift_fresh_copy": lambda self: self,
    "aten::maximum": lambda self, other: np.frompyfunc(torch.sym_max, 2, 1)(self, other),
    "aten::minimum": lambda self, other: np.frompyfunc(torch.sym_min, 2, 1)(self, other),
    "aten::mul": lambda self, other: self * other,
    "aten::prod": _product,
    "aten::rsub": lambda self, other, alpha=1: other - alpha * self,
    "aten::scalar_tensor": lambda s: s,
    "aten::select": _select,
    "aten::stack": lambda tensors, dim=0: np.stack(tensors, dim),
    "aten::sub": lambda self, other, alpha=1: self - alpha * other,
    "aten::to": lambda self, other=None: self,
}
"""By schema name, a function that computes the operator on object arrays of Python numbers."""
_COMPARISONS = {
    f"aten::{name}": functools.partial(_compare, comparison=getattr(operator, name))
    for name in "eq ne lt le gt ge".split()
}
_CONVERSIONS = frozenset({"aten::to", "aten::_to_copy"})
"""Operators that convert to another element type."""
_COPIES = frozenset(f"aten::{name}" for name in "alias clone detach detach_ lift_fresh scalar_tensor".split())
_RATIONAL = (
    frozenset({"aten::div", "aten::add", "aten::sub", "aten::ceil", "aten::floor"}) | _CONVERSIONS | _COPIES
)
"""Operators whose result may be a float: a quotient, or a quotient that was rounded."""
_FLOATS = (torch.float32, torch.float64)
_OF_STORAGE = frozenset({"dtype", "device", "layout", "pin_memory", "non_blocking", "copy", "memory_format"})
"""Arguments that are ignored, because they do not change elements that are integers."""
