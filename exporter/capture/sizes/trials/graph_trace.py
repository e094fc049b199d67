"""Traces the operators that a captured graph runs at given sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from .....registration import GraphError
from ....torch_boundary.containers import pytree
from ....torch_boundary.fake_tensors import FakeTensor, storage_of
from ....torch_boundary.operators.overloads import OpOverload, kernel_run, schema_of
from ....torch_boundary.recording.layouts.layout import layout_of
from ....torch_boundary.symbolic_numbers import Size
from ...fx_import.fx_graph import ASSERTIONS
from .operator_trace import READS, WITHOUT_ONES, OperatorRecorder, Step, Trace
from .tensors_of_sizes import TensorsOfSizes

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass
class TracedTensor:
    """A tensor of the run.

    Attributes:
        properties: element type, device, requires_grad, shape and strides.
        origin: its origin in the run.
        tensor: the fake tensor; None until it is needed.
        is_determined: whether the results of operators on it depend only on its properties: it has no
            constant data and no data-dependent size.
    """

    properties: tuple[Any, ...]
    origin: object
    tensor: torch.Tensor | None = None
    is_determined: bool = True

    @property
    def shape(self) -> Sequence[Size]:
        """Its sizes."""
        result: Sequence[Size] = self.properties[3]
        return result

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    def with_origin(self, origin: object) -> TracedTensor:
        """The same tensor with another origin."""
        return TracedTensor(self.properties, origin, self.tensor, self.is_determined)

    def make(self) -> torch.Tensor:
        """The fake tensor."""
        if self.tensor is None:
            dtype, device, requires_grad, shape, strides = self.properties
            tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device)
            self.tensor = tensor.requires_grad_(requires_grad)
        return self.tensor


@dataclasses.dataclass(frozen=True)
class _Argument:
    """The origin of a tensor that an operator of the graph takes: its position among the tensor arguments."""

    position: int


@dataclasses.dataclass
class _TracedKernel:
    """The operators that an operator of the graph runs for arguments of certain properties.

    Attributes:
        steps: the operators that it runs; their results are numbered from 0.
        results: its results: tensors by properties and origin, other values unchanged.
        structure: the tree structure of its results.
    """

    steps: list[Step]
    results: list[object]
    structure: Any


Kernels = dict[Hashable, _TracedKernel]
"""Kernels by operator and properties of arguments, shared by all runs of a tracer."""


class _Arguments:
    """The arguments of an operator.

    Attributes:
        args, kwargs: the arguments, with tensors as `TracedTensor`.
        members: the flattened arguments; the length of a list precedes its members.
    """

    def __init__(self, args: Sequence[object], kwargs: Mapping[str, object]):
        self.args = args
        self.kwargs = kwargs
        self.members: list[object] = []
        _append_parts(args, self.members)
        for name, item in kwargs.items():
            _append_parts((name, item), self.members)

    @property
    def tensors(self) -> list[TracedTensor]:
        """All tensors in order."""
        return [member for member in self.members if isinstance(member, TracedTensor)]


def _append_parts(items: Sequence[object], parts: list[object]) -> None:
    for item in items:
        if isinstance(item, (list, tuple)):
            parts.append((len(item),))
            _append_parts(item, parts)
        else:
            parts.append(item)


class GraphTrace:
    """Traces a captured graph, and compares the sizes of its values with those in the graph.

    An operator runs once for arguments with the same properties, because models repeat their layers.

    Args:
        module: the graph, with the attributes that it names.
        kernels: results to reuse in further runs; None if results depend on other than these properties.
        copies: the calls that must copy exactly if they copy in the graph; without kernels.
        written: the nodes with values to whose memory the graph writes.

    Attributes:
        of_sizes: the tensors that the model makes of sizes.
    """

    def __init__(
        self,
        module: Any,
        kernels: Kernels | None,
        copies: Container[torch.fx.Node] = (),
        written: Container[torch.fx.Node] = (),
    ):
        self._module = module
        self._written = written
        self._nodes = list(module.graph.nodes)
        self._kernels = kernels
        self._copies = copies
        self.of_sizes = TensorsOfSizes(module.graph)

    def trace(self, inputs: Sequence[object], recorder: OperatorRecorder, sizes: PromisedSizes) -> None:
        """Run the graph on tensors, and record its operators and results.

        Args:
            inputs: the values of its placeholders.
            recorder: records the operators.
            sizes: the sizes that the graph promises in this run.
        """
        if self._kernels is None:
            with recorder:
                results = self._walk(inputs, recorder, sizes)
        else:
            traced_inputs = [describe_value(value, recorder) for value in inputs]
            results = self._walk(traced_inputs, recorder, sizes)
        leaves = pytree.tree_leaves(results)
        recorder.trace.shapes = shapes_of(leaves)
        recorder.trace.results = [
            leaf.origin if isinstance(leaf, TracedTensor) else recorder.origin(leaf) for leaf in leaves
        ]

    def _walk(self, inputs: Sequence[object], recorder: OperatorRecorder, sizes: PromisedSizes) -> object:
        """Run all nodes except assertions, and compare their results with the graph."""
        values: dict[torch.fx.Node, Any] = {}
        remaining_inputs = iter(inputs)
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = next(remaining_inputs)
            elif node.op == "get_attr":
                attribute = functools.reduce(getattr, node.target.split("."), self._module)
                values[node] = attribute if self._kernels is None else describe_value(attribute, recorder)
            elif node.op == "call_function":
                if isinstance(node.target, OpOverload) and schema_of(node.target).name in ASSERTIONS:
                    values[node] = None
                    continue
                if node in self.of_sizes.parts:
                    continue
                values[node] = self._call(node, values, recorder)
                if node in self._copies:
                    _check_copy(node, values)
                compare(node, values[node], recorder.trace, sizes)
            elif node.op == "output":
                return torch.fx.node.map_arg(node.args[0], values.__getitem__)
            elif node.users:
                # A node without users checks the guards.
                raise GraphError(f"{node.format_node()} does not call an operator")
        return None

    def _call(
        self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], recorder: OperatorRecorder
    ) -> object:
        """Run an operator, or reuse its results for arguments with the same properties."""
        target: Any = node.target
        if node in self.of_sizes:
            with recorder if self._kernels is not None else contextlib.nullcontext():
                tensor = self.of_sizes.make(node, values)
            return tensor if self._kernels is None else describe_value(tensor, recorder)
        if self._kernels is None or not isinstance(target, OpOverload):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            return _run_operator(target, args, kwargs, node in self._written)
        arguments = _Arguments(
            [argument(item, values) for item in node.args],
            {name: argument(item, values) for name, item in node.kwargs.items()},
        )
        origins = list(dict.fromkeys(tensor.origin for tensor in arguments.tensors))
        # A read makes the number known for operators that follow, which a cached result would not.
        key = None if schema_of(target).name in READS else _key(target, arguments, origins)
        kernel = None if key is None else self._kernels.get(key)
        if kernel is None:
            kernel = _run(target, arguments, origins, recorder, node in self._written)
            if key is not None and all(
                r.is_determined for r in kernel.results if isinstance(r, TracedTensor)
            ):
                self._kernels[key] = dataclasses.replace(
                    kernel,
                    results=[
                        dataclasses.replace(r, tensor=None) if isinstance(r, TracedTensor) else r
                        for r in kernel.results
                    ],
                )
        return _replay(kernel, origins, recorder.trace)


def shapes_of(leaves: Sequence[Any]) -> list[tuple[Any, ...] | None]:
    """The shapes of the results of a run; None for results that are not tensors."""
    return [tuple(leaf.shape) if isinstance(leaf, (torch.Tensor, TracedTensor)) else None for leaf in leaves]


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


def _make_tensors(item: object) -> object:
    """An argument with fake tensors."""
    if isinstance(item, TracedTensor):
        return item.make()
    return [_make_tensors(member) for member in item] if isinstance(item, (list, tuple)) else item


def _run(
    target: OpOverload, arguments: _Arguments, origins: list[object], run: OperatorRecorder, is_written: bool
) -> _TracedKernel:
    """Run an operator, and record the operators that it runs, by positions of its arguments."""
    args = [_make_tensors(item) for item in arguments.args]
    kwargs = {name: _make_tensors(item) for name, item in arguments.kwargs.items()}
    origins_by_id = {
        id(tensor.tensor): _Argument(origins.index(tensor.origin)) for tensor in arguments.tensors
    }
    trace = Trace()
    recorder = run.of_operator(trace, origins_by_id)
    kernel = _TracedKernel(trace.steps, [], None)
    try:
        with recorder:
            result = _run_operator(target, tuple(args), kwargs, is_written)
    except Exception:
        _replay(kernel, origins, run.trace)
        raise
    results, kernel.structure = pytree.tree_flatten(result)
    kernel.results = [describe_value(leaf, recorder) for leaf in results]
    return kernel


def _run_operator(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_written: bool) -> object:
    """Run an operator.

    Args:
        is_written: whether the graph writes to the memory of the result.
    """
    try:
        return kernel_run(target, args, kwargs)
    except (RuntimeError, ValueError):
        if target is not torch.ops.aten.view.default or is_written:
            raise
    # `contiguous` copies at some sizes only, so the graph may lack the copy that the view needs at these. In
    # the file a view is a Reshape, which takes any tensor.
    return kernel_run(target, (args[0].clone(memory_format=torch.contiguous_format), *args[1:]), kwargs)


def _replay(kernel: _TracedKernel, origins: list[object], trace: Trace) -> object:
    """Record the steps of an earlier run as steps of this run, and return its results."""
    first = len(trace.steps)

    def renumber(item: object) -> object:
        if isinstance(item, _Argument):
            return origins[item.position]
        if isinstance(item, tuple) and item and item[0] == "result":
            return "result", first + item[1], item[2]
        if isinstance(item, tuple) and item and item[0] == WITHOUT_ONES:
            return WITHOUT_ONES, renumber(item[1]), item[2]
        return item

    for name, *step_arguments, kinds in kernel.steps:
        trace.steps.append((name, *map(renumber, step_arguments), kinds))
    if kernel.structure is None:
        return None
    results = [
        leaf.with_origin(renumber(leaf.origin)) if isinstance(leaf, TracedTensor) else leaf
        for leaf in kernel.results
    ]
    return pytree.tree_unflatten(results, kernel.structure)


def describe_value(value: object, recorder: OperatorRecorder) -> object:
    """A value of the run, with a tensor represented by its properties and origin."""
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = tuple(value.shape), tuple(value.stride())
    is_determined = (
        isinstance(value, FakeTensor)
        and value.constant is None
        and all(isinstance(size, int) for size in (*shape, *strides))
    )
    properties = (value.dtype, value.device, value.requires_grad, shape, strides)
    return TracedTensor(properties, recorder.origin(value), value, is_determined)


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
    if isinstance(promised, torch.Tensor) and isinstance(result, (torch.Tensor, TracedTensor)):
        promised_tensors, tensors = [promised], [result]
    else:
        promised_tensors, tensors = pytree.tree_leaves(promised), pytree.tree_leaves(result)
    if len(promised_tensors) != len(tensors):
        trace.other_rank = trace.other_rank or len(trace.steps)
        return
    for i, (promised_tensor, tensor) in enumerate(zip(promised_tensors, tensors, strict=True)):
        if not isinstance(promised_tensor, torch.Tensor) or not isinstance(
            tensor, (torch.Tensor, TracedTensor)
        ):
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


def _key(target: object, arguments: _Arguments, origins: list[object]) -> Hashable | None:
    """The key that determines a kernel's steps and results; None if its arguments do not allow reuse."""
    key: list[object] = [target, len(arguments.args)]
    for member in arguments.members:
        if isinstance(member, TracedTensor):
            if not member.is_determined:
                return None
            key += (origins.index(member.origin), member.properties)
        elif isinstance(member, _SYMBOLIC):
            return None
        else:
            key += (type(member), member)
    return tuple(key)
