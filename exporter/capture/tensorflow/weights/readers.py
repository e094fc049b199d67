"""Finds the operator that reads a weight, through identity nodes and function calls."""

import collections
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..freezing.calls import Functions
from ..messages import FunctionDef
from ..node_messages import MessageNode, MessageScope, ResultName
from ..tensor_protos import array_of
from .layouts import WeightLayout, layout_of

_LAYOUT_KEEPING = frozenset(
    "Identity ReadVariableOp Cast StopGradient Enter RefEnter Switch RefSwitch RefIdentity Merge Dequantize "
    "FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVarsPerChannel "
    "QuantizeAndDequantizeV2".split()
)
"""Operators that keep the dimensions of their first input."""
_MAXIMUM_STEPS, _MAXIMUM_STEPS_OF_ALL = 2_000, 5_000_000
"""Maximum number of results that the search for layouts follows, for one weight and for a whole graph."""


class _WeightResult(NamedTuple):
    """A result of the graph or a function that has the elements of a weight, with dimensions of 1 added."""

    function: str
    result: str
    expanded: tuple[int, ...]


class Readers:
    """The operators that read the results of a graph and of the functions in its library."""

    def __init__(self, graph: MessageScope, library: Iterable[FunctionDef]):
        library = list(library)
        self._functions = Functions(library)
        self._library = {function.signature.name: function for function in library}
        self._scopes = {"": graph}
        self._consumers: dict[str, dict[str, list[tuple[MessageNode, int]]]] = {}
        self._remaining_steps = _MAXIMUM_STEPS_OF_ALL

    def layout(self, node: str, shape: Sequence[int] | None) -> WeightLayout | None:
        """The layout of the weight in a node; None if no operator defines it."""
        if shape is None:
            return None
        # Breadth first: the nearest operator defines the layout.
        pending = collections.deque([_WeightResult("", node, ())])
        seen = set(pending)
        for _ in range(min(_MAXIMUM_STEPS, self._remaining_steps)):
            if not pending:
                break
            self._remaining_steps -= 1
            weight_result = pending.popleft()
            for reader, index in self._readers(weight_result):
                layout = layout_of(reader, index, len(shape), weight_result.expanded)
                if layout is not None:
                    return layout
                for next_result in self._results_after(weight_result, reader, index, shape):
                    if next_result not in seen:
                        seen.add(next_result)
                        pending.append(next_result)
        return None

    def _readers(self, weight_result: _WeightResult) -> list[tuple[MessageNode, int]]:
        """The nodes that read a result, with the index of the input."""
        if weight_result.function not in self._consumers:
            consumers: dict[str, list[tuple[MessageNode, int]]] = {}
            for node in self._scope(weight_result.function).nodes.values():
                for index, result in enumerate(node.inputs):
                    consumers.setdefault(result.node, []).append((node, index))
            self._consumers[weight_result.function] = consumers
        return self._consumers[weight_result.function].get(weight_result.result, [])

    def _scope(self, function: str) -> MessageScope:
        if function not in self._scopes:
            self._scopes[function] = MessageScope.of_function(self._library[function])
        return self._scopes[function]

    def _results_after(
        self, weight_result: _WeightResult, node: MessageNode, index: int, shape: Sequence[int]
    ) -> Iterable[_WeightResult]:
        """The results of a reader, and the arguments of a called function, that still are the weight."""
        for name, first in self._functions.callees(node):
            arguments = self._library[name].signature.input_arg if name in self._library else ()
            # `first` skips the predicate of an If, which its branches do not take.
            if 0 <= index - first < len(arguments):
                yield _WeightResult(name, arguments[index - first].name, weight_result.expanded)
        if index == 0 and (
            node.op in _LAYOUT_KEEPING
            or (node.op == "Reshape" and self._keeps_shape(weight_result, node, shape))
        ):
            yield weight_result._replace(result=node.name)
        # TensorFlow writes Conv1D as Conv2D of an expanded weight.
        elif node.op == "ExpandDims" and index == 0 and not weight_result.expanded:
            axis = self._constant_integers(weight_result, node.inputs[1])
            if axis is not None and len(axis) == 1 and -len(shape) - 1 <= axis[0] <= len(shape):
                yield _WeightResult(weight_result.function, node.name, (axis[0] % (len(shape) + 1),))
        elif node.op in ("ConcatV2", "Concat"):
            # A partitioned variable is a Concat of its parts, which have the same dimensions.
            yield weight_result._replace(result=node.name)

    def _keeps_shape(self, weight_result: _WeightResult, node: MessageNode, shape: Sequence[int]) -> bool:
        """Whether a Reshape keeps the shape of the weight."""
        numbers = self._constant_integers(weight_result, node.inputs[1]) if len(node.inputs) > 1 else None
        return (
            numbers is not None
            and len(numbers) == len(shape)
            and all(number in (-1, size) for number, size in zip(numbers, shape, strict=True))
        )

    def _constant_integers(self, weight_result: _WeightResult, result: ResultName) -> list[int] | None:
        """The integers of a small constant; None if the result is something else."""
        node = self._scope(weight_result.function).nodes.get(result.node)
        if node is None or node.op != "Const":
            return None
        tensor = node.attribute("value").tensor
        if sum(dim.size for dim in tensor.tensor_shape.dim) > 32:
            return None
        array = array_of(tensor, node.label)
        return array.reshape(-1).tolist() if np.issubdtype(array.dtype, np.integer) else None
