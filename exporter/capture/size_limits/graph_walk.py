"""Compares a captured graph with the operators that the model called at given sizes, without running it."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ...torch_boundary.containers import pytree
from ...torch_boundary.operators.overloads import OpOverload, schema_of
from ..torch_export.fx_graph import ASSERTIONS
from .graph_trace import TracedTensor, argument, compare, described
from .operator_trace import ALIKE, VIEWS, Recorder, Trace, flattened, meaning


class OtherCalls(Exception):
    """The graph may not call the operators that the model called, or may fail where the model does not."""


def walk(
    module: Any,
    inputs: Sequence[Any],
    recorder: Recorder,
    same_value: Container[str],
    size_of: Callable[[Any], int | None],
) -> Trace:
    """The trace of a graph that calls the same operators as the model, and returns the same.

    Equal operators with equal arguments have equal results. So the results are those of the model.

    Args:
        module: the graph, with the attributes that it names.
        inputs: the values of its placeholders.
        recorder: has recorded the calls of the model.
        same_value: operators whose result counts as the same value as their argument.
        size_of: returns the size of a symbolic size in this run, or None.

    Raises:
        OtherCalls: this is not known to be so. The graph has to run.
    """
    return _Walk(module, recorder, same_value, size_of).run(inputs)


class _Walk:
    def __init__(
        self,
        module: Any,
        recorder: Recorder,
        same_value: Container[str],
        size_of: Callable[[Any], int | None],
    ):
        self._module = module
        self._recorder = recorder
        self._same_value = same_value
        self._size_of = size_of
        self._trace = Trace()
        self._trace.steps = recorder.trace.steps
        self._position = 0

    def run(self, inputs: Sequence[Any]) -> Trace:
        given = iter(inputs)
        values: dict[torch.fx.Node, Any] = {}
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                values[node] = described(next(given), self._recorder)
            elif node.op == "get_attr":
                values[node] = self._constant(node)
            elif node.op == "call_function":
                values[node] = self._call(node, values)
                compare(node, values[node], self._trace, self._size_of)
            elif node.op == "output":
                returned = pytree.tree_leaves(torch.fx.node.map_arg(node.args[0], values.__getitem__))
                self._trace.results = [self._origin(leaf) for leaf in returned]
            elif node.users:
                raise OtherCalls(f"{node.format_node()} does not call an operator")
        if self._position != len(self._trace.steps) or self._trace.other_rank is not None:
            raise OtherCalls("other operators, or another rank of a result")
        if self._trace.results != self._recorder.trace.results:
            raise OtherCalls("other results")
        return self._trace

    def _constant(self, node: torch.fx.Node) -> TracedTensor:
        found = functools.reduce(getattr, str(node.target).split("."), self._module)
        if not isinstance(found, torch.Tensor):
            raise OtherCalls(f"{node.target} is no tensor")
        return described(found, self._recorder)

    def _call(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
        target: Any = node.target
        args = [argument(item, values) for item in node.args]
        kwargs = {name: argument(item, values) for name, item in node.kwargs.items()}
        if not isinstance(target, OpOverload):
            return _computed(target, args, kwargs)
        name = schema_of(target).name
        if name in ASSERTIONS:
            return None
        if name == "aten::sym_size" and len(args) == 2:
            return args[0].shape[args[1]]
        if name in self._same_value or (name in VIEWS and _is_whole(name, args)):
            return args[0]
        return self._matched(name, target, args, kwargs)

    def _matched(self, name: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The results of the model's next call, which must be the same."""
        if self._position == len(self._trace.steps):
            raise OtherCalls(f"{target} after the model's last operator")
        given = [self._origin(leaf) for leaf in flattened((*args, *kwargs.values()))]
        called = (ALIKE.get(name, str(target)), *meaning(name, args, given))
        if self._trace.steps[self._position][:-1] != called:
            raise OtherCalls(f"{target} with other arguments")
        result = self._recorder.returned[self._position]
        self._position += 1
        return self._described(result)

    def _described(self, result: Any) -> Any:
        """A result with its tensors described."""
        if isinstance(result, (list, tuple)):
            return [self._described(member) for member in result]
        if not isinstance(result, torch.Tensor) or not all(type(size) is int for size in result.shape):
            raise OtherCalls("a result depends on data")
        return described(result, self._recorder)

    def _origin(self, leaf: Any) -> Any:
        return leaf.origin if isinstance(leaf, TracedTensor) else self._recorder.origin(leaf)


def _computed(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a function of Python's on numbers, or the member of a list."""
    if function is operator.getitem:
        return args[0][args[1]]
    leaves = flattened((*args, *kwargs.values()))
    if not all(isinstance(leaf, (int, float, bool)) for leaf in leaves):
        raise OtherCalls(f"{function} of something else than numbers")
    return function(*args, **kwargs)


def _is_whole(name: str, args: Sequence[Any]) -> bool:
    """Whether a view has the shape of its argument.

    Raises:
        OtherCalls: torch refuses such a view, or it is of another kind.
    """
    shape = args[0].shape
    if name == "aten::slice":
        spelt: tuple[Any, ...] = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        dim, start, end, step = spelt
        return len(range(shape[dim])[start:end:step]) == shape[dim]
    sizes = args[1]
    if not isinstance(sizes, (list, tuple)):
        raise OtherCalls(f"{name} in another type")
    unknown = sum(size == -1 for size in sizes)
    if name != "aten::expand" and (unknown > 1 or (unknown and math.prod(shape) == 0)):
        raise OtherCalls(f"{name} with sizes that are not determined")
    return len(sizes) == len(shape) and all(size in (-1, own) for size, own in zip(sizes, shape, strict=True))


def infers_sizes(graph: torch.fx.Graph) -> bool:
    """Whether a graph has views in shapes with -1, which torch refuses for tensors without elements."""
    return any(
        isinstance(node.target, OpOverload)
        and schema_of(node.target).name in ALIKE
        and isinstance(node.args[1], (list, tuple))
        and -1 in node.args[1]
        for node in graph.nodes
    )
