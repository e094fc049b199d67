"""Computes numbers that do not depend on dynamic sizes, such as `torch.ones(n, n).bool().all()`.

A model that makes its own masks may branch on their elements. For each tensor, the set of its possible
elements is computed by running its operator on the few possible elements of its operands.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ..containers import pytree
from ..fake_tensors import is_without_data
from ..operators.overloads import OpOverload, schema_of

_MOST_VALUES = 16
_MOST_NODES = 200
_LARGEST_CONSTANT = 1 << 16
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer type with the same number of bytes as an element."""
_FILLED = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}
_FILLED_BY_ARGUMENT = frozenset({"full", "new_full", "full_like"})
_MOVED = frozenset(
    "_unsafe_view alias chunk clone contiguous detach expand expand_as flatten flip gather index "
    "index_select lift_fresh lift_fresh_copy narrow permute repeat reshape roll select slice split "
    "split_with_sizes squeeze t tile transpose unbind unflatten unsqueeze view view_as".split()
)
"""Operators whose results contain only elements of their first argument."""
_CONVERTED = frozenset({"to", "_to_copy", "type_as"})
_JOINED = frozenset({"cat", "concat", "stack"})
_OVERWRITING = {"copy_": "src", "fill_": "value", "index_put_": "values", "masked_fill_": "value"}
"""Operators that replace elements, and the name of the argument with the new elements."""
_COMPOSED_OF_POINTWISE = frozenset({"__and__", "__or__", "__xor__", "where"})
_ABOVE = frozenset({"ge", "gt"})
_READ = frozenset({"item", "_local_scalar_dense"})


class NotKnown(Exception):
    """The elements of a tensor depend on an input, or on an operator that is not supported here."""


def only_value(
    node: torch.fx.Node, root: torch.nn.Module, writers: Callable[[torch.fx.Node], Sequence[torch.fx.Node]]
) -> bool | int | float:
    """Return the number that a node reads from a tensor, if it is the same for all sizes and inputs.

    Args:
        node: the recorded call of `item` or `_local_scalar_dense`.
        root: the module whose attributes the `get_attr` nodes name.
        writers: finds the recorded calls that write to the memory of a node's tensors.

    Raises:
        NotKnown: the number may depend on sizes or inputs.
    """
    if not isinstance(node.target, OpOverload) or _name(node) not in _READ:
        raise NotKnown(str(node.target))
    values = _PossibleElements(root, writers).of(node.args[0])
    if values.numel() != 1:
        raise NotKnown("several values")
    return values.item()


class _PossibleElements:
    def __init__(self, root: torch.nn.Module, writers: Callable[[torch.fx.Node], Sequence[torch.fx.Node]]):
        self._root = root
        self._writers = writers
        self._begun: set[torch.fx.Node] = set()
        self._known: dict[torch.fx.Node, torch.Tensor] = {}

    def of(self, item: object) -> torch.Tensor:
        """Return a vector of the distinct values that the elements of a node's tensors may have.

        Raises:
            NotKnown: they depend on an input, an unsupported operator, or are too many.
        """
        if not isinstance(item, torch.fx.Node):
            raise NotKnown("not a tensor")
        if item not in self._known:
            if len(self._begun) >= _MOST_NODES or item in self._begun:
                raise NotKnown("too many nodes, or one that is written with its own elements")
            self._begun.add(item)
            computed = self._compute(item)
            # Ignoring the order of writes is safe: written elements count as possible from the start.
            written = [self._written_elements(writer).to(computed.dtype) for writer in self._writers(item)]
            self._known[item] = _distinct(torch.cat([computed, *written]))
        return self._known[item]

    def _compute(self, node: torch.fx.Node) -> torch.Tensor:
        if node.target is operator.getitem:
            return self.of(node.args[0])
        value: Any = node.meta.get("val")
        if not all(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)):
            raise NotKnown("a number")
        if node.op == "get_attr":
            return _constant(operator.attrgetter(str(node.target))(self._root))
        if not isinstance(node.target, OpOverload):
            raise NotKnown(str(node.target))
        name = _name(node)
        if schema_of(node.target).is_mutable:
            if name not in _OVERWRITING:
                raise NotKnown(name)
            return self.of(node.args[0])
        if name in _FILLED:
            return torch.tensor([_FILLED[name]], dtype=value.dtype)
        if name in _FILLED_BY_ARGUMENT:
            return torch.tensor([_number(_argument(node, "fill_value"))], dtype=value.dtype)
        if name in _MOVED:
            return self.of(node.args[0])
        # Converting the possible values gives the possible values of the result.
        if name in _CONVERTED:
            return self.of(node.args[0]).to(value.dtype)
        if name in _JOINED:
            return torch.cat([self.of(member).to(value.dtype) for member in node.args[0]])  # type: ignore[union-attr]
        if name in ("pad", "constant_pad_nd"):
            return self._pad(node, value.dtype)
        if name in ("any", "all"):
            return self._reduce_truth(node)
        if name in _ABOVE and self._lowest(node.args[0]) is not None:
            return self._above(node)
        if torch.Tag.pointwise in node.target.tags or name in _COMPOSED_OF_POINTWISE:
            return self._pointwise(node, value.dtype)
        raise NotKnown(name)

    def _written_elements(self, node: torch.fx.Node) -> torch.Tensor:
        """Return the values that a call may write into its first argument."""
        name = _name(node) if isinstance(node.target, OpOverload) else str(node.target)
        if name not in _OVERWRITING or _argument(node, "accumulate"):
            raise NotKnown(name)
        masks = _argument(node, "indices") if name == "index_put_" else [_argument(node, "mask")]
        if any(isinstance(mask, torch.fx.Node) and self._is_empty(mask) for mask in masks):
            return torch.tensor([])
        new_elements = _argument(node, _OVERWRITING[name])
        return (
            self.of(new_elements)
            if isinstance(new_elements, torch.fx.Node)
            else torch.tensor([_number(new_elements)])
        )

    def _is_empty(self, mask: torch.fx.Node) -> bool:
        """Whether a mask selects nothing."""
        return mask.meta["val"].dtype == torch.bool and not self.of(mask).any()

    def _pad(self, node: torch.fx.Node, dtype: torch.dtype) -> torch.Tensor:
        # Reflection and replication repeat elements.
        if (_argument(node, "mode") or "constant") != "constant":
            return self.of(node.args[0])
        padding = torch.tensor([_number(_argument(node, "value") or 0)], dtype=dtype)
        return torch.cat([self.of(node.args[0]), padding])

    def _reduce_truth(self, node: torch.fx.Node) -> torch.Tensor:
        """Return the possible results of `any` or `all`; of an empty tensor they are False and True."""
        results = self.of(node.args[0]).bool()
        of_none = _name(node) == "all"
        count = node.args[0].meta["val"].numel()  # type: ignore[union-attr]
        is_filled = isinstance(count, int) and count > 0
        if len(node.args) > 1 or node.kwargs or not is_filled:
            results = torch.cat([results, torch.tensor([of_none])])
        return results

    def _lowest(self, node: object) -> int | None:
        """Return the smallest element of a tensor of positions, `arange(n) + k`; None for another tensor."""
        offset = 0
        while isinstance(node, torch.fx.Node) and isinstance(node.target, OpOverload):
            if self._writers(node) or node.meta["val"].dtype != torch.int64:
                return None
            name = _name(node)
            if name == "arange":
                start, step = _argument(node, "start") or 0, _argument(node, "step") or 1
                return start + offset if type(start) is type(step) is int and step > 0 else None
            if name == "add" and type(node.args[1]) is int and not node.kwargs:
                offset += node.args[1]
            elif name not in _MOVED:
                return None
            node = node.args[0]
        return None

    def _above(self, node: torch.fx.Node) -> torch.Tensor:
        """Return the possible results of comparing positions with a number by `ge` or `gt`."""
        lowest, threshold = self._lowest(node.args[0]), _number(node.args[1])
        assert lowest is not None
        holds = lowest >= threshold if _name(node) == "ge" else lowest > threshold
        return torch.tensor([True] if holds else [True, False])

    def _pointwise(self, node: torch.fx.Node, dtype: torch.dtype) -> torch.Tensor:
        """Return the results of an operator for all combinations of its operands' possible elements."""
        if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
            raise NotKnown("chance")
        operands = node.all_input_nodes
        # Type promotion depends on the rank, so elements get the rank of their tensor.
        choices = [self._elements(operand) for operand in operands]
        function: Callable[..., Any] = node.target  # type: ignore[assignment]
        if not isinstance(node.meta["val"], torch.Tensor):
            raise NotKnown("several results")
        # Every combination is computed, so their number is limited.
        if math.prod(map(len, choices)) > _MOST_VALUES**2:
            raise NotKnown("many combinations")
        results = []
        for chosen in itertools.product(*choices):
            values = dict(zip(operands, chosen, strict=True))
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            try:
                results.append(function(*args, **kwargs).reshape(1))
            except RuntimeError as error:  # Elements that never meet, such as a division by zero.
                raise NotKnown(str(error)) from None
        if not results or results[0].dtype != dtype:
            raise NotKnown("another element type")
        return torch.cat(results)

    def _elements(self, operand: torch.fx.Node) -> list[torch.Tensor]:
        shape = [1] * operand.meta["val"].dim() if isinstance(operand.meta.get("val"), torch.Tensor) else []
        return [element.reshape(shape) for element in self.of(operand)]


def _constant(tensor: object) -> torch.Tensor:
    """Return the elements of a constant of the model as a vector."""
    if not isinstance(tensor, torch.Tensor) or is_without_data(tensor) or tensor.is_meta:
        raise NotKnown("a constant without data")
    # Finding the distinct values sorts all elements.
    if tensor.numel() > _LARGEST_CONSTANT:
        raise NotKnown("a large constant")
    return tensor.detach().reshape(-1)


def _distinct(values: torch.Tensor) -> torch.Tensor:
    """Return the distinct values; 0.0 and -0.0 differ."""
    bits = _BITS.get(values.element_size())
    if bits is None or values.is_complex() or values.isnan().any():
        raise NotKnown("complex numbers, or NaN")
    distinct: torch.Tensor = torch.unique(values.view(bits)).view(values.dtype)
    if distinct.numel() > _MOST_VALUES:
        raise NotKnown("many values")
    return distinct


def _name(node: torch.fx.Node) -> str:
    return schema_of(node.target).name.removeprefix("aten::")  # type: ignore[arg-type]


def _argument(node: torch.fx.Node, name: str) -> Any:
    """Return an argument of a call by its name in the schema; None if the call leaves it out."""
    formals = schema_of(node.target).arguments  # type: ignore[arg-type]
    named = {formal.name: argument for formal, argument in zip(formals, node.args, strict=False)}
    return (named | node.kwargs).get(name)


def _number(item: object) -> bool | int | float:
    if not isinstance(item, (bool, int, float)):
        raise NotKnown("a computed number")
    return item
