"""The number in a tensor that recorded calls compute from sizes: `torch.div(x.shape[1], 4).item()`.

The computation is repeated on Python's numbers, symbolic ones included, so that the number stays known as an
expression of the sizes. Only arithmetic of integers is repeated, which is exact.
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
"""Elements of a tensor at most; the shape of a tensor has fewer."""


def number_in(node: torch.fx.Node, root: torch.nn.Module) -> tuple[Size, set[torch.fx.Node]]:
    """The integer in a tensor that is computed from sizes, and the nodes that compute it.

    Args:
        node: the tensor's node.
        root: has what `get_attr` nodes name.

    Raises:
        NotReplayable: it is computed from something else, or by other operators.
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
            values[current] = _value(current, values, root)
    elements = values[node]
    if elements.size != 1:
        raise NotReplayable("it has several elements")
    return elements.item(), set(values)


def _is_number(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (int, torch.SymInt)) and node.op == "call_function"


def _value(node: torch.fx.Node, values: dict[torch.fx.Node, np.ndarray], root: torch.nn.Module) -> np.ndarray:
    """The elements of a node, as an array of Python's numbers."""
    example = node.meta.get("val")
    if _is_number(node):
        return _array(example)
    if node.op == "get_attr":
        example = getattr(root, str(node.target))
    if not isinstance(example, torch.Tensor) or example.dtype not in _INTEGERS:
        raise NotReplayable("it is not a tensor of integers")
    if node.op == "get_attr":
        return _array(_constant(example))
    schema = schema_of(node.target) if isinstance(node.target, OpOverload) else None
    apply = None if schema is None else _FUNCTIONS.get(schema.name)
    if schema is None or apply is None:
        raise NotReplayable(f"it depends on {node.target}")
    names = [argument.name for argument in schema.arguments]
    arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
    value_of: Callable[[torch.fx.Node], Any] = values.__getitem__
    settings = {name: item for name, item in arguments.items() if name not in _OF_STORAGE}
    return _array(apply(**torch.fx.map_arg(settings, value_of)))


def _array(item: object) -> np.ndarray:
    if isinstance(item, np.ndarray):
        return item
    array = np.empty(np.shape(item) if isinstance(item, list) else (), object)
    array[...] = item
    return array


def _constant(tensor: torch.Tensor) -> object:
    """The elements of a real tensor that the model holds."""
    if is_without_data(tensor) or tensor.is_meta or tensor.numel() > _LONGEST:
        raise NotReplayable("it depends on a large tensor")
    return tensor.tolist()


def _divide(self: Any, other: Any, rounding_mode: str | None = None) -> object:
    """Integer division by a positive number, where both ways to round agree."""
    if not all(type(divisor) is int and divisor > 0 for divisor in _array(other).reshape(-1)):
        raise NotReplayable("the divisor may be 0 or less")
    # Truncation equals floor division only if the dividend is not negative.
    if rounding_mode != "floor" and not all(holds_always(n >= 0) for n in _array(self).reshape(-1)):
        raise NotReplayable("the dividend may be less than 0")
    return self // other


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
    "aten::clone": lambda self: self,
    "aten::detach": lambda self: self,
    "aten::detach_": lambda self: self,
    "aten::div": _divide,
    "aten::floor_divide": functools.partial(_divide, rounding_mode="floor"),
    "aten::lift_fresh": lambda self: self,
    "aten::lift_fresh_copy": lambda self: self,
    "aten::mul": lambda self, other: self * other,
    "aten::prod": _product,
    "aten::scalar_tensor": lambda s: s,
    "aten::select": _select,
    "aten::stack": lambda tensors, dim=0: np.stack(tensors, dim),
    "aten::sub": lambda self, other, alpha=1: self - alpha * other,
    "aten::to": lambda self, other=None: self,
}
"""The operators on arrays of Python's numbers, by the names of their schemas."""
_OF_STORAGE = frozenset({"dtype", "device", "layout", "pin_memory", "non_blocking", "copy", "memory_format"})
"""Arguments that do not change the elements: all tensors have integers."""
