"""Tensors that a model makes of sizes, as in `torch.tensor([height, width])` and `x[mask] = width`.

A capture records such a call as several operators. A run of the model at given sizes makes a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from ....torch_boundary.operators.overloads import OpOverload, schema_of

_Numbers = object
"""A node that is a number, a number, or a list of such items."""


class TensorsOfSizes:
    """The calls of `torch.tensor` with sizes in a captured graph, and the assignments of sizes to tensors.

    Attributes:
        parts: the nodes that a call consists of, but for the last.
    """

    def __init__(self, graph: torch.fx.Graph):
        self.parts: set[torch.fx.Node] = set()
        self._numbers: dict[torch.fx.Node, _Numbers] = {}
        for node in graph.nodes:
            # Only `torch.tensor` ends with this operator.
            if _name(node) == "aten::detach_":
                parts: set[torch.fx.Node] = set()
                numbers = _numbers_of(node.args[0], parts)
                if numbers is not None:
                    self._numbers[node] = numbers
                    self.parts |= parts
            elif _name(node) == "aten::scalar_tensor" and all(map(_is_assignment, node.users)):
                self._numbers[node] = node.args[0]

    def __contains__(self, node: torch.fx.Node) -> bool:
        """Whether a node is the result of a call."""
        return node in self._numbers

    def make(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, object]) -> torch.Tensor:
        """The tensor that a call makes.

        Args:
            values: the values of the nodes before.
        """
        return torch.tensor(_evaluate(self._numbers[node], values), dtype=node.meta["val"].dtype)


def _numbers_of(node: Any, parts: set[torch.fx.Node]) -> _Numbers:
    """What a tensor is made of; None for a tensor that is not made of numbers alone.

    Args:
        parts: gets the nodes of the operators.
    """
    name = _name(node)
    if name == "aten::scalar_tensor":
        parts.add(node)
        return node.args[0]
    if name == "aten::to":
        numbers = _numbers_of(node.args[0], parts)
    elif name == "aten::stack" and len(node.args) == 1:
        members = [_numbers_of(item, parts) for item in node.args[0]]
        numbers = None if None in members else members
    else:
        return None
    parts.add(node)
    return numbers


def _is_assignment(node: torch.fx.Node) -> bool:
    """Whether a node writes to a tensor; Python code makes a constant of a number that it assigns."""
    return _name(node) in ("aten::copy_", "aten::index_put_")


def _evaluate(numbers: _Numbers, values: Mapping[torch.fx.Node, object]) -> object:
    if isinstance(numbers, list):
        return [_evaluate(item, values) for item in numbers]
    value = values[numbers] if isinstance(numbers, torch.fx.Node) else numbers
    # PyTorch makes no tensor of a number that depends on data. A trial knows no elements of tensors.
    return 0 if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def _name(node: Any) -> str:
    is_operator = isinstance(node, torch.fx.Node) and isinstance(node.target, OpOverload)
    return schema_of(node.target).name if is_operator else ""
