"""Compares a captured graph with the operators that its model calls at given sizes, without running it."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from ....torch_boundary.containers import pytree
from ....torch_boundary.fake_tensors import FakeTensor, storage_of
from ....torch_boundary.operators.overloads import Kwargs, OpOverload, Run, kernel_run, schema_of
from ...fx_import.decision_marks import marks_decision
from ...fx_import.fx_graph import ASSERTIONS
from .graph_trace import PromisedSizes, argument, compare
from .neutral_calls import argument_of, is_neutral, may_be_neutral
from .operator_trace import (
    ALIKE,
    NO_VALUE,
    READ,
    VIEWS,
    Trace,
    contents,
    creates,
    flatten_values,
    has_shape_of,
    is_number_of_weights,
    is_same_memory,
    normalize_arguments,
    slice_arguments,
    written_arguments,
)
from .tensors_of_sizes import TensorsOfSizes
from .written_values import COPIES


class OtherCalls(Exception):
    """The graph may not call the operators that the model calls, or may fail where the model does not."""


class EndsRun(BaseException):
    """Ends the run of a model that differs from its graph. The model may catch an `Exception`."""


class GraphWalk:
    """Follows a captured graph while its model runs: each operator that is called must be the graph's next.

    Equal operators with equal arguments have equal results. So the graph's values are those of the model.

    Args:
        module: the graph, with the attributes that it names.
        inputs: the values of its placeholders.
        run: calls an operator with its arguments.
        same_value: operators whose result counts as the same value as their argument.
        sizes: the sizes that the graph promises in this run.
        of_sizes: the tensors that the model makes of sizes.

    Attributes:
        trace: the differences between the sizes of the graph's values and those that it promises; it has no
            operators.
        difference: the first difference between the model's operators and the graph's; None without one.
    """

    def __init__(
        self,
        module: Any,
        inputs: Sequence[object],
        run: Run,
        same_value: Container[str],
        sizes: PromisedSizes,
        of_sizes: TensorsOfSizes,
    ):
        self.trace = Trace()
        self._module = module
        self._nodes: Iterator[torch.fx.Node] = iter(module.graph.nodes)
        self._of_sizes = of_sizes
        self._inputs = iter(inputs)
        self._run = run
        self._same_value = same_value
        self._sizes = sizes
        self._values: dict[torch.fx.Node, Any] = {}
        self.difference: Exception | None = None
        # By the id of a copy or alias: the tensor with the same value, and the copy, which keeps its id.
        self._aliases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._created: dict[int | None, torch.Tensor] = {}
        self._copied: set[int | None] = set()

    def call(self, func: OpOverload, args: tuple[Any, ...], kwargs: Kwargs) -> object:
        """Call an operator of the model.

        Raises:
            EndsRun: the graph calls another one.
        """
        if func is torch.ops.prim.device.default:
            return args[0].device
        name = schema_of(func).name
        if name in NO_VALUE:
            return kernel_run(func, args, kwargs)
        result = self._run(func, args, kwargs)
        if self.difference is None:
            try:
                self._follow(func, name, args, kwargs, result)
            except Exception as error:
                self.difference = error
        if self.difference is not None:
            raise EndsRun
        return result

    def assign(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Record that the model assigns a value to the `data` of a tensor."""
        self._aliases[id(tensor)] = self._original(value), tensor

    def finish(self, results: Sequence[object]) -> Trace:
        """The trace of the graph, after the model has returned.

        Args:
            results: the leaves of what it returned.

        Raises:
            OtherCalls: the graph may not call the operators of the model, or not return the same. The caller
                must run the graph.
        """
        if self.difference is None:
            try:
                self._compare_results(results)
            except Exception as error:
                self.difference = error
        if self.difference is not None:
            raise self.difference
        return self.trace

    def _compare_results(self, results: Sequence[object]) -> None:
        """Raise `OtherCalls` unless the graph ends here, and returns the same."""
        node = self._next()
        if node.op != "output":
            raise OtherCalls(f"{node.target} after the model's last operator")
        returned = pytree.tree_leaves(argument(node.args[0], self._values))
        if len(returned) != len(results) or not all(map(self._is_same, results, returned)):
            raise OtherCalls("other results")
        if self.trace.other_rank is not None:
            raise OtherCalls("another rank of a result")

    def _follow(self, func: OpOverload, name: str, args: Sequence[Any], kwargs: Kwargs, result: Any) -> None:
        """Find the node of a call.

        Raises:
            OtherCalls: the graph's next operator is another, or has other arguments.
        """
        is_same = name in self._same_value or (name in VIEWS and has_shape_of(result, args[0]))
        if is_same or (may_be_neutral(name) and is_neutral(name, args)):
            original = self._original(args[0] if is_same else argument_of(args))
            self._aliases[id(result)] = original, result
            if name in COPIES or not is_same:
                self._copied |= {storage_of(original), storage_of(result)}
            return
        if self._copied and any(storage_of(leaf) in self._copied for leaf in written_arguments(func, args)):
            raise OtherCalls("the model writes to a copy, or to what it has copied")
        node = self._next()
        is_read = name == READ and isinstance(result, (int, float))
        is_number = is_read or is_number_of_weights(func, args, result)
        if node.target is not func and is_number:
            # The captured graph has the number of this constant tensor instead of the operator.
            self._nodes = itertools.chain((node,), self._nodes)
            return
        if node.op == "output":
            raise OtherCalls(f"{func} after the graph's last operator")
        self._match(node, func, name, args, kwargs)
        if creates(func):
            self._created[storage_of(result)] = result
        self._store(node, result)

    def _next(self) -> torch.fx.Node:
        """The next node that calls an operator, or the output."""
        for node in self._nodes:
            if node.op == "placeholder":
                self._values[node] = next(self._inputs)
            elif node.op == "get_attr":
                self._values[node] = functools.reduce(getattr, str(node.target).split("."), self._module)
            elif node.op == "call_function":
                if not self._compute(node):
                    result: torch.fx.Node = node
                    return result
            elif node.op == "output":
                result = node
                return result
            elif node.users:
                raise OtherCalls(f"{node.format_node()} does not call an operator")
        raise OtherCalls("the graph has ended")

    def _compute(self, node: torch.fx.Node) -> bool:
        """Store the value of a node that needs no operator of the model; False for other nodes."""
        target: Any = node.target
        values = self._values
        if marks_decision(node):
            values[node] = None
            return True
        if node in self._of_sizes.parts:
            return True
        if node in self._of_sizes:
            # The model makes a constant, which the fake mode wraps.
            tensor = self._of_sizes.make(node, values)
            self._store(node, getattr(tensor, "constant", None) if isinstance(tensor, FakeTensor) else tensor)
            return True
        if not isinstance(target, OpOverload):
            args = [argument(item, values) for item in node.args]
            kwargs = {name: argument(item, values) for name, item in node.kwargs.items()}
            try:
                value = _apply_function(target, args, kwargs)
            except LookupError:
                # The model may make fewer tensors at these sizes than the graph reads, as chunk does.
                raise OtherCalls(f"{node.format_node()} reads beyond the end") from None
            self._store(node, value)
            return True
        name = schema_of(target).name
        if name in ASSERTIONS:
            values[node] = None
            return True
        if name == "aten::sym_size" and len(node.args) == 2:
            self._store(node, argument(node.args[0], values).shape[node.args[1]])
            return True
        is_candidate = name in VIEWS or may_be_neutral(name)
        args = [argument(item, values) for item in node.args] if is_candidate else []
        is_skipped = may_be_neutral(name) and is_neutral(name, args)
        if name in self._same_value or (name in VIEWS and _is_whole(name, args)) or is_skipped:
            source = argument_of(args) if is_skipped else argument(node.args[0], values)
            if is_skipped:
                # The graph's value is a copy, the model's is not.
                self._copied.add(storage_of(source))
            self._store(node, source)
            return True
        return False

    def _store(self, node: torch.fx.Node, value: object) -> None:
        """Store the value of a node, and compare its sizes with those that the graph promises."""
        self._values[node] = value
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor) and not all(type(size) is int for size in item.shape):
                raise OtherCalls("a result depends on data")
        compare(node, value, self.trace, self._sizes)

    def _match(
        self, node: torch.fx.Node, func: OpOverload, name: str, args: Sequence[Any], kwargs: Kwargs
    ) -> None:
        target: Any = node.target
        if target is not func:
            common_name = ALIKE.get(name)
            if common_name is None or ALIKE.get(schema_of(target).name) != common_name:
                raise OtherCalls(f"{func} in the place of {target}")
        model_arguments = flatten_values((*args, *kwargs.values()))
        graph_args = [argument(item, self._values) for item in node.args]
        graph_arguments = flatten_values(
            (*graph_args, *(argument(item, self._values) for item in node.kwargs.values()))
        )
        if len(model_arguments) != len(graph_arguments) or not all(
            map(self._is_same, model_arguments, graph_arguments)
        ):
            model_arguments, graph_arguments = (
                normalize_arguments(name, args, model_arguments),
                normalize_arguments(name, graph_args, graph_arguments),
            )
            if len(model_arguments) != len(graph_arguments) or not all(
                map(self._is_same, model_arguments, graph_arguments)
            ):
                raise OtherCalls(f"{target} with other arguments")

    def _original(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor of which a tensor is a copy or an alias; the tensor itself if it is neither."""
        alias = self._aliases.get(id(tensor))
        if alias is not None:
            return alias[0]
        if isinstance(tensor, FakeTensor):
            # torch.zeros and others return an alias if something else refers to the new tensor.
            created = self._created.get(storage_of(tensor))
            if created is not None and created is not tensor and is_same_memory(tensor, created):
                self._aliases[id(tensor)] = created, tensor
                return created
        return tensor

    def _is_same(self, model_value: object, graph_value: object) -> bool:
        """Whether an argument or result of the model is that of the graph."""
        if model_value is graph_value:
            return True
        if isinstance(model_value, torch.Tensor) and isinstance(graph_value, torch.Tensor):
            model_value, graph_value = self._original(model_value), self._original(graph_value)
            if model_value is graph_value:
                return True
            if isinstance(model_value, FakeTensor) or isinstance(graph_value, FakeTensor):
                return False
            return bool(
                model_value.dtype == graph_value.dtype
                and model_value.shape == graph_value.shape
                and contents(model_value) == contents(graph_value)
            )
        if isinstance(model_value, int):
            return isinstance(graph_value, int) and model_value == graph_value
        return (
            type(model_value) is type(graph_value)
            and not isinstance(model_value, torch.SymInt)
            and str(model_value) == str(graph_value)
        )


def _apply_function(function: Callable[..., object], args: Sequence[Any], kwargs: Kwargs) -> object:
    """The result of a Python function on numbers, or the member of a list."""
    if function is operator.getitem:
        return args[0][args[1]]
    leaves = flatten_values((*args, *kwargs.values()))
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
        dim, start, end, step = slice_arguments(args)
        return bool(len(range(shape[dim])[start:end:step]) == shape[dim])
    sizes = args[1]
    if not isinstance(sizes, (list, tuple)):
        raise OtherCalls(f"{name} in another type")
    unknown = sum(size == -1 for size in sizes)
    if name != "aten::expand" and (unknown > 1 or (unknown and math.prod(shape) == 0)):
        raise OtherCalls(f"{name} with sizes that are not determined")
    return len(sizes) == len(shape) and all(
        size in (-1, size_before) for size, size_before in zip(sizes, shape, strict=True)
    )


def infers_sizes(graph: torch.fx.Graph) -> bool:
    """Whether a graph has views in shapes with -1, which torch refuses for tensors without elements."""
    return any(
        isinstance(node.target, OpOverload)
        and schema_of(node.target).name in ALIKE
        and isinstance(node.args[1], (list, tuple))
        and -1 in node.args[1]
        for node in graph.nodes
    )
