"""Traces the operators that a captured graph runs at given sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ....registration import GraphError
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import storage_of
from ...torch_boundary.operators.overloads import OpOverload, kernel_run, schema_of
from ...torch_boundary.recording.layouts.layout import layout_of
from ...torch_boundary.symbolic_numbers import Size
from ..fx_import.fx_graph import ASSERTIONS
from .operator_trace import OperatorRecorder, Trace
from .tensors_of_sizes import TensorsOfSizes


class GraphTrace:
    """Traces a captured graph, and compares the sizes of its values with those in the graph.

    Args:
        module: the graph, with the attributes that it names.
        copies: the calls that must copy exactly if they copy in the graph.
        written: the nodes with values to whose memory the graph writes.
    """

    def __init__(
        self,
        module: Any,
        copies: Container[torch.fx.Node] = (),
        written: Container[torch.fx.Node] = (),
    ):
        self._module = module
        self._written = written
        self._nodes = list(module.graph.nodes)
        self._copies = copies
        self._of_sizes = TensorsOfSizes(module.graph)

    def trace(self, inputs: Sequence[object], recorder: OperatorRecorder, sizes: PromisedSizes) -> None:
        """Run the graph on tensors, and record its operators and results.

        Args:
            inputs: the values of its placeholders.
            recorder: records the operators.
            sizes: the sizes that the graph promises in this run.
        """
        with recorder:
            leaves = pytree.tree_leaves(self._walk(inputs, recorder, sizes))
        recorder.trace.shapes = shapes_of(leaves)
        recorder.trace.results = [recorder.origin(leaf) for leaf in leaves]

    def _walk(self, inputs: Sequence[object], recorder: OperatorRecorder, sizes: PromisedSizes) -> object:
        """Run all nodes except assertions, and compare their results with the graph."""
        values: dict[torch.fx.Node, Any] = {}
        remaining_inputs = iter(inputs)
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = next(remaining_inputs)
            elif node.op == "get_attr":
                values[node] = functools.reduce(getattr, node.target.split("."), self._module)
            elif node.op == "call_function":
                if isinstance(node.target, OpOverload) and schema_of(node.target).name in ASSERTIONS:
                    values[node] = None
                    continue
                if node in self._of_sizes.parts:
                    continue
                values[node] = self._call(node, values)
                if node in self._copies:
                    _check_copy(node, values)
                compare(node, values[node], recorder.trace, sizes)
            elif node.op == "output":
                return torch.fx.node.map_arg(node.args[0], values.__getitem__)
            elif node.users:
                # A node without users checks the guards.
                raise GraphError(f"{node.format_node()} does not call an operator")
        return None

    def _call(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> object:
        """Run an operator."""
        if node in self._of_sizes:
            return self._of_sizes.make(node, values)
        target: Any = node.target
        call: Any = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        args, kwargs = call
        try:
            return kernel_run(target, args, kwargs)
        except (RuntimeError, ValueError):
            if target is not torch.ops.aten.view.default or node in self._written:
                raise
        # `contiguous` copies at some sizes only, so the graph may lack the copy that the view needs at these.
        # In the file a view is a Reshape, which takes any tensor.
        return kernel_run(target, (args[0].clone(memory_format=torch.contiguous_format), *args[1:]), kwargs)


def shapes_of(leaves: Sequence[Any]) -> list[tuple[Any, ...] | None]:
    """The shapes of the results of a run; None for results that are not tensors."""
    return [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]


def _check_copy(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> None:
    """Refuse sizes for which an operator copies where it does not in the graph, or the reverse."""
    source = node.args[0]
    # A join of tensors always copies. Empty tensors share no storage, so that a copy has no effect.
    if not isinstance(source, torch.fx.Node) or values[node].numel() == 0:
        return
    captured = storage_of(node.meta["val"]) == storage_of(source.meta["val"])
    if captured != (storage_of(values[node]) == storage_of(values[source])):
        raise GraphError(f"{node.target} copies for some sizes only, and what it returns is written to")


def argument(item: object, values: Mapping[torch.fx.Node, object]) -> Any:
    """An argument of a node, with values instead of nodes."""
    if isinstance(item, torch.fx.Node):
        return values[item]
    return [argument(member, values) for member in item] if isinstance(item, (list, tuple)) else item


class PromisedSizes:
    """The sizes of a graph's values in a run, as the graph promises them.

    Args:
        size_of: returns the value of a symbolic size in this run, or None.
    """

    def __init__(self, size_of: Callable[[Size], int | None]):
        self._size_of = size_of
        self._of_layouts: dict[int, list[int | None]] = {}

    def __call__(self, tensor: torch.Tensor) -> list[int | None]:
        """The sizes of a tensor of the graph; None for those that the run does not determine."""
        # Repeated layers share the layout of the first one, which the graph keeps alive: its id is unique.
        key = id(layout_of(tensor) or tensor)
        promised_sizes = self._of_layouts.get(key)
        if promised_sizes is None:
            promised_sizes = self._of_layouts[key] = [self._size_of(size) for size in tensor.shape]
        return promised_sizes


def compare(node: torch.fx.Node, result: object, trace: Trace, sizes: PromisedSizes) -> None:
    """Note where the sizes of a node's result differ from those that the graph promises."""
    promised = node.meta.get("val")
    several = isinstance(promised, (list, tuple))
    if isinstance(promised, torch.Tensor) and isinstance(result, torch.Tensor):
        promised_tensors, tensors = [promised], [result]
    else:
        promised_tensors, tensors = pytree.tree_leaves(promised), pytree.tree_leaves(result)
    if len(promised_tensors) != len(tensors):
        trace.other_rank = trace.other_rank or len(trace.steps)
        return
    for i, (promised_tensor, tensor) in enumerate(zip(promised_tensors, tensors, strict=True)):
        if not isinstance(promised_tensor, torch.Tensor) or not isinstance(tensor, torch.Tensor):
            continue
        if promised_tensor.dim() != len(tensor.shape):
            trace.other_rank = trace.other_rank or len(trace.steps)
            continue
        expected = sizes(promised_tensor)
        if expected == list(tensor.shape):
            continue
        wrong = {
            axis
            for axis, (size, actual) in enumerate(zip(expected, tensor.shape, strict=True))
            if size is not None and isinstance(actual, int) and size != actual
        }
        if wrong:
            name = f"{node.name}_{i}" if several else node.name
            trace.differing_axes.setdefault(name, set()).update(wrong)
