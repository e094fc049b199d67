"""Traces the operators that a captured graph runs at given sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ....registration import GraphError
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensor, layout_of, storage_key
from ...torch_boundary.operators.overloads import OpOverload, kernel_run, schema_of
from ..fx_import.fx_graph import ASSERTIONS
from .operator_trace import WITHOUT_ONES, Recorder, Step, Trace

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass
class TracedTensor:
    """A tensor of the run.

    Attributes:
        kind: element type, device, requires_grad, shape and strides.
        origin: its origin in the run.
        made: the tensor itself; None until it is needed.
        is_kind_all: whether operators depend only on its kind: it has no constant data and no data-dependent
            size.
    """

    kind: tuple[Any, ...]
    origin: Any
    made: torch.Tensor | None = None
    is_kind_all: bool = True

    @property
    def shape(self) -> Sequence[Any]:
        """Its sizes."""
        result: Sequence[Any] = self.kind[3]
        return result

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    def of(self, origin: Any) -> TracedTensor:
        """The same tensor with another origin."""
        return TracedTensor(self.kind, origin, self.made, self.is_kind_all)

    def make(self) -> torch.Tensor:
        """The fake tensor."""
        if self.made is None:
            dtype, device, requires_grad, shape, strides = self.kind
            made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
            self.made = made.requires_grad_(requires_grad)
        return self.made


@dataclasses.dataclass(frozen=True)
class _Argument:
    """The origin of a tensor that an operator of the graph takes: its position among the tensor arguments."""

    position: int


@dataclasses.dataclass
class _Kernel:
    """The operators that an operator of the graph runs for arguments of certain kinds.

    Attributes:
        steps: the operators that it runs; their results are numbered from 0.
        results: its results: tensors by kind and origin, other values unchanged.
        structure: the tree structure of its results.
    """

    steps: list[Step]
    results: list[Any]
    structure: Any


Kernels = dict[Hashable, _Kernel]
"""Kernels by operator and kinds of arguments, shared by all runs of a tracer."""


class _Arguments:
    """The arguments of an operator.

    Attributes:
        args, kwargs: the arguments, with tensors as `TracedTensor`.
        parts: what they consist of, flat: the length of a list stands before its members.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]):
        self.args = args
        self.kwargs = kwargs
        self.parts: list[Any] = []
        _append_parts(args, self.parts)
        for name, item in kwargs.items():
            _append_parts((name, item), self.parts)

    @property
    def tensors(self) -> list[TracedTensor]:
        """All tensors in order."""
        return [part for part in self.parts if isinstance(part, TracedTensor)]


def _append_parts(items: Sequence[Any], parts: list[Any]) -> None:
    for item in items:
        if isinstance(item, (list, tuple)):
            parts.append((len(item),))
            _append_parts(item, parts)
        else:
            parts.append(item)


class GraphTrace:
    """Traces a captured graph, and compares the sizes of its values with those in the graph.

    An operator runs once for arguments of the same kinds, because models repeat their layers.

    Args:
        module: the graph, with the attributes that it names.
        kernels: results to reuse in further runs; None if results depend on more than the kinds of arguments.
        copies: the calls that must copy if they do so in the graph, and not if they do not; without kernels.
    """

    def __init__(self, module: Any, kernels: Kernels | None, copies: Container[torch.fx.Node] = ()):
        self._module = module
        self._nodes = list(module.graph.nodes)
        self._kernels = kernels
        self._copies = copies

    def trace(self, inputs: Sequence[Any], recorder: Recorder, sizes: PromisedSizes) -> None:
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
            given = [described(value, recorder) for value in inputs]
            results = self._walk(given, recorder, sizes)
        leaves = pytree.tree_leaves(results)
        recorder.trace.results = [
            leaf.origin if isinstance(leaf, TracedTensor) else recorder.origin(leaf) for leaf in leaves
        ]

    def _walk(self, inputs: Sequence[Any], recorder: Recorder, sizes: PromisedSizes) -> Any:
        """Run all nodes except assertions, and compare their results with the graph."""
        values: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                found = functools.reduce(getattr, node.target.split("."), self._module)
                values[node] = found if self._kernels is None else described(found, recorder)
            elif node.op == "call_function":
                if isinstance(node.target, OpOverload) and schema_of(node.target).name in ASSERTIONS:
                    values[node] = None
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

    def _call(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], recorder: Recorder) -> Any:
        """Run an operator, or reuse its results for such arguments."""
        target: Any = node.target
        if self._kernels is None or not isinstance(target, OpOverload):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            return kernel_run(target, args, kwargs)
        given = _Arguments(
            [argument(item, values) for item in node.args],
            {name: argument(item, values) for name, item in node.kwargs.items()},
        )
        origins = list(dict.fromkeys(tensor.origin for tensor in given.tensors))
        key = _key(target, given, origins)
        kernel = None if key is None else self._kernels.get(key)
        if kernel is None:
            kernel = _run(target, given, origins, recorder)
            if key is not None and all(r.is_kind_all for r in kernel.results if isinstance(r, TracedTensor)):
                self._kernels[key] = dataclasses.replace(kernel, results=[_unmade(r) for r in kernel.results])
        return _replay(kernel, origins, recorder.trace)


def _check_copy(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> None:
    """Refuse sizes for which an operator copies where it does not in the graph, or the reverse."""
    source: Any = node.args[0]
    if values[node].numel() == 0:
        return
    captured = storage_key(node.meta["val"]) == storage_key(source.meta["val"])
    if captured != (storage_key(values[node]) == storage_key(values[source])):
        raise GraphError(f"{node.target} copies for some sizes only, and what it returns is written to")


def argument(item: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    """An argument of a node, with values instead of nodes."""
    if isinstance(item, torch.fx.Node):
        return values[item]
    return [argument(member, values) for member in item] if isinstance(item, (list, tuple)) else item


def _made(item: Any) -> Any:
    """An argument with fake tensors."""
    if isinstance(item, TracedTensor):
        return item.make()
    return [_made(member) for member in item] if isinstance(item, (list, tuple)) else item


def _run(target: Any, given: _Arguments, origins: list[Any], run: Recorder) -> _Kernel:
    """Run an operator, and record the operators that it runs, by positions of its arguments."""
    args = [_made(item) for item in given.args]
    kwargs = {name: _made(item) for name, item in given.kwargs.items()}
    known = {id(tensor.made): _Argument(origins.index(tensor.origin)) for tensor in given.tensors}
    trace = Trace()
    recorder = run.of_operator(trace, known)
    kernel = _Kernel(trace.steps, [], None)
    try:
        with recorder:
            result = kernel_run(target, tuple(args), kwargs)
    except Exception:
        _replay(kernel, origins, run.trace)
        raise
    results, kernel.structure = pytree.tree_flatten(result)
    kernel.results = [described(leaf, recorder) for leaf in results]
    return kernel


def _replay(kernel: _Kernel, origins: list[Any], trace: Trace) -> Any:
    """Record the steps of an earlier run as steps of this run, and return its results."""
    first = len(trace.steps)

    def here(item: Any) -> Any:
        if isinstance(item, _Argument):
            return origins[item.position]
        if isinstance(item, tuple) and item and item[0] == "result":
            return "result", first + item[1], item[2]
        if isinstance(item, tuple) and item and item[0] == WITHOUT_ONES:
            return WITHOUT_ONES, here(item[1]), item[2]
        return item

    for name, *given, kinds in kernel.steps:
        trace.steps.append((name, *map(here, given), kinds))
    if kernel.structure is None:
        return None
    results = [
        leaf.of(here(leaf.origin)) if isinstance(leaf, TracedTensor) else leaf for leaf in kernel.results
    ]
    return pytree.tree_unflatten(results, kernel.structure)


def described(value: Any, recorder: Recorder) -> Any:
    """A value of the run, with a tensor by its kind and origin."""
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = tuple(value.shape), tuple(value.stride())
    is_kind_all = (
        isinstance(value, FakeTensor)
        and value.constant is None
        and all(isinstance(size, int) for size in (*shape, *strides))
    )
    kind = (value.dtype, value.device, value.requires_grad, shape, strides)
    return TracedTensor(kind, recorder.origin(value), value, is_kind_all)


class PromisedSizes:
    """The sizes of a graph's values in a run, as the graph promises them.

    Args:
        size_of: returns the size of a symbolic size in this run, or None.
    """

    def __init__(self, size_of: Callable[[Any], int | None]):
        self._size_of = size_of
        self._of_layouts: dict[int, list[int | None]] = {}

    def __call__(self, tensor: torch.Tensor) -> list[int | None]:
        """The sizes of a tensor of the graph; None for those that the run does not determine."""
        # Tensors of further layers have the layout of the first, which the graph keeps.
        key = id(layout_of(tensor) or tensor)
        found = self._of_layouts.get(key)
        if found is None:
            found = self._of_layouts[key] = [self._size_of(size) for size in tensor.shape]
        return found


def compare(node: torch.fx.Node, result: Any, trace: Trace, sizes: PromisedSizes) -> None:
    """Note where the sizes of a node's result differ from those that the graph promises."""
    promised = node.meta.get("val")
    several = isinstance(promised, (list, tuple))
    if isinstance(promised, torch.Tensor) and isinstance(result, (torch.Tensor, TracedTensor)):
        said, found = [promised], [result]
    else:
        said, found = pytree.tree_leaves(promised), pytree.tree_leaves(result)
    if len(said) != len(found):
        trace.other_rank = trace.other_rank or len(trace.steps)
        return
    for i, (claim, tensor) in enumerate(zip(said, found, strict=True)):
        if not isinstance(claim, torch.Tensor) or not isinstance(tensor, (torch.Tensor, TracedTensor)):
            continue
        if claim.dim() != len(tensor.shape):
            trace.other_rank = trace.other_rank or len(trace.steps)
            continue
        expected = sizes(claim)
        if expected == list(tensor.shape):
            continue
        wrong = {
            axis
            for axis, (size, actual) in enumerate(zip(expected, tensor.shape, strict=True))
            if size is not None and isinstance(actual, int) and size != actual
        }
        if wrong:
            name = f"{node.name}_{i}" if several else node.name
            trace.claims.setdefault(name, set()).update(wrong)


def _key(target: Any, given: _Arguments, origins: list[Any]) -> Hashable | None:
    """The key that determines a kernel's steps and results; None if its arguments do not allow reuse."""
    parts: list[Any] = [target, len(given.args)]
    for part in given.parts:
        if isinstance(part, TracedTensor):
            if not part.is_kind_all:
                return None
            parts += (origins.index(part.origin), part.kind)
        elif isinstance(part, _SYMBOLIC):
            return None
        else:
            parts += (type(part), part)
    return tuple(parts)


def _unmade(result: Any) -> Any:
    return dataclasses.replace(result, made=None) if isinstance(result, TracedTensor) else result
