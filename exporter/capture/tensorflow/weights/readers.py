"""Finds the operator that reads a weight, through identity nodes and function calls."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..freezing.calls import Functions
from ..freezing.scope import Node, Reference, Scope
from ..tensors import array_of
from .layouts import Layout, layout_of

_PASSING = frozenset(
    "Identity ReadVariableOp Cast StopGradient Enter RefEnter Switch RefSwitch RefIdentity Merge Dequantize "
    "FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVarsPerChannel "
    "QuantizeAndDequantizeV2".split()
)
"""Operators that keep the dimensions of their first input."""
_MOST_STEPS, _MOST_STEPS_OF_ALL = 2_000, 5_000_000
"""Results that are followed for one weight, and for all of a graph; a layout that takes more is not found."""


class _Place(NamedTuple):
    """A result in the graph, or in the function of this name, and the dimensions added to the weight."""

    function: str
    result: str
    expanded: tuple[int, ...]


class Readers:
    """The operators that read the results of a graph.

    Args:
        graph: the graph.
        library: the FunctionDefs.
    """

    def __init__(self, graph: Scope, library: Iterable[Any]):
        library = list(library)
        self._functions = Functions(library)
        self._library = {function.signature.name: function for function in library}
        self._scopes = {"": graph}
        self._consumers: dict[str, dict[str, list[tuple[Node, int]]]] = {}
        self._left = _MOST_STEPS_OF_ALL

    def layout(self, node: str, shape: Sequence[int] | None) -> Layout | None:
        """The layout of the weight in a node; None if no operator defines it."""
        if shape is None:
            return None
        pending = collections.deque([_Place("", node, ())])
        seen = set(pending)
        for _ in range(min(_MOST_STEPS, self._left)):
            if not pending:
                break
            self._left -= 1
            place = pending.popleft()
            for reader, index in self._readers(place):
                found = layout_of(reader, index, len(shape), place.expanded)
                if found is not None:
                    return found
                for following in self._following(place, reader, index, shape):
                    if following not in seen:
                        seen.add(following)
                        pending.append(following)
        return None

    def _readers(self, place: _Place) -> list[tuple[Node, int]]:
        """The nodes that read a result, with the index of the input."""
        if place.function not in self._consumers:
            found: dict[str, list[tuple[Node, int]]] = {}
            for node in self._scope(place.function).nodes.values():
                for index, result in enumerate(node.inputs):
                    found.setdefault(result.node, []).append((node, index))
            self._consumers[place.function] = found
        return self._consumers[place.function].get(place.result, [])

    def _scope(self, function: str) -> Scope:
        if function not in self._scopes:
            message = self._library[function]
            arguments = [argument.name for argument in message.signature.input_arg]
            self._scopes[function] = Scope(message.node_def, f"the function '{function}'", arguments)
        return self._scopes[function]

    def _following(self, place: _Place, node: Node, index: int, shape: Sequence[int]) -> Iterable[_Place]:
        """The results that are still the weight."""
        for name, first in self._functions.called(node):
            arguments = self._library[name].signature.input_arg if name in self._library else ()
            if 0 <= index - first < len(arguments):
                yield _Place(name, arguments[index - first].name, place.expanded)
        if index == 0 and (node.op in _PASSING or (node.op == "Reshape" and self._keeps(place, node, shape))):
            yield place._replace(result=node.name)
        elif node.op == "ExpandDims" and index == 0 and not place.expanded:
            axis = self._numbers(place, node.inputs[1])
            if axis is not None and len(axis) == 1 and -len(shape) - 1 <= axis[0] <= len(shape):
                yield _Place(place.function, node.name, (axis[0] % (len(shape) + 1),))
        elif node.op in ("ConcatV2", "Concat"):
            # The parts of a partitioned variable have its dimensions.
            yield place._replace(result=node.name)

    def _keeps(self, place: _Place, node: Node, shape: Sequence[int]) -> bool:
        """Whether a Reshape keeps the shape."""
        numbers = self._numbers(place, node.inputs[1]) if len(node.inputs) > 1 else None
        return (
            numbers is not None
            and len(numbers) == len(shape)
            and all(number in (-1, size) for number, size in zip(numbers, shape, strict=True))
        )

    def _numbers(self, place: _Place, result: Reference) -> list[int] | None:
        """The integers of a small constant."""
        node = self._scope(place.function).nodes.get(result.node)
        if node is None or node.op != "Const":
            return None
        tensor = node.attribute("value").tensor
        if sum(dim.size for dim in tensor.tensor_shape.dim) > 32:
            return None
        array = array_of(tensor, node.shown)
        return array.reshape(-1).tolist() if np.issubdtype(array.dtype, np.integer) else None
