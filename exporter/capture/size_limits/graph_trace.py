"""Traces the operators that a captured graph runs at given sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
import torch.fx

from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.operators.overloads import OpOverload, schema_of
from ..torch_export.fx_graph import ASSERTIONS
from .operator_trace import Recorder, Step, Trace

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass
class _Tensor:
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
        return self.kind[3]

    def make(self) -> torch.Tensor:
        """The fake tensor."""
        if self.made is None:
            dtype, device, requires_grad, shape, strides = self.kind
            made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
            self.made = made.requires_grad_(requires_grad)
        return self.made


@dataclasses.dataclass(frozen=True)
class _Argument:
    """The origin of an operator's argument, as a position among its arguments."""

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


class GraphTrace(torch.fx.Interpreter):
    """Traces a captured graph, and compares the sizes of its values with those in the graph.

    An operator runs once for arguments of the same kinds, because models repeat their layers.

    Args:
        module: the graph.
        recorder: records the operators.
        size_of: returns the size of a symbolic size in this run, or None.
        kernels: earlier runs to reuse; None if results depend on more than the kinds of arguments.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        recorder: Recorder,
        size_of: Callable[[Any], int | None],
        kernels: Kernels | None,
    ):
        super().__init__(module)
        self._recorder = recorder
        self._trace = recorder.trace
        self._size_of = size_of
        self._kernels = kernels
        self.extra_traceback = False

    def trace(self, inputs: Sequence[Any]) -> None:
        """Run the graph on tensors, and record its results."""
        if self._kernels is None:
            with self._recorder:
                results = self.run(*inputs)
        else:
            results = self.run(*map(self._given, inputs))
        leaves = pytree.tree_leaves(results)
        self._trace.results = [
            leaf.origin if isinstance(leaf, _Tensor) else self._recorder.origin(leaf) for leaf in leaves
        ]

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node, except assertions, and compare its results with the graph."""
        target = n.target
        if isinstance(target, OpOverload) and schema_of(target).name in ASSERTIONS:
            return None
        if n.op == "call_module" and not n.users:
            return None
        result = super().run_node(n)
        if n.op == "call_function":
            self._compare(n, result)
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return an attribute of the graph in the form that operators take."""
        found = super().get_attr(target, args, kwargs)
        return found if self._kernels is None else self._given(found)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, or reuse its results for such arguments."""
        if self._kernels is None or not isinstance(target, OpOverload):
            return super().call_function(target, args, kwargs)
        leaves, structure = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, _Tensor)]
        origins = list(dict.fromkeys(tensor.origin for tensor in tensors))
        key = _key(target, leaves, structure, origins)
        kernel = None if key is None else self._kernels.get(key)
        if kernel is None:
            kernel = self._run(target, leaves, structure, origins)
            if key is not None and all(r.is_kind_all for r in kernel.results if isinstance(r, _Tensor)):
                self._kernels[key] = dataclasses.replace(kernel, results=[_unmade(r) for r in kernel.results])
        return self._replay(kernel, origins)

    def _run(self, target: Any, leaves: list[Any], structure: Any, origins: list[Any]) -> _Kernel:
        """Run an operator, and record the operators that it runs, by positions of its arguments."""
        args, kwargs = pytree.tree_unflatten(
            [leaf.make() if isinstance(leaf, _Tensor) else leaf for leaf in leaves], structure
        )
        given = [leaf for leaf in leaves if isinstance(leaf, _Tensor)]
        known = {id(leaf.made): _Argument(origins.index(leaf.origin)) for leaf in given}
        trace = Trace()
        recorder = self._recorder.of_operator(trace, known)
        kernel = _Kernel(trace.steps, [], None)
        try:
            with recorder:
                result = target(*args, **kwargs)
        except Exception:
            self._replay(kernel, origins)
            raise
        results, kernel.structure = pytree.tree_flatten(result)
        kernel.results = [self._described(leaf, recorder) for leaf in results]
        return kernel

    def _replay(self, kernel: _Kernel, origins: list[Any]) -> Any:
        """Record the steps of an earlier run as steps of this run, and return its results."""
        first = len(self._trace.steps)

        def here(item: Any) -> Any:
            if isinstance(item, _Argument):
                return origins[item.position]
            if isinstance(item, tuple) and item and item[0] == "result":
                return "result", first + item[1], item[2]
            return item

        for name, *given, kinds in kernel.steps:
            self._trace.steps.append((name, *map(here, given), kinds))
        if kernel.structure is None:
            return None
        results = [
            dataclasses.replace(leaf, origin=here(leaf.origin)) if isinstance(leaf, _Tensor) else leaf
            for leaf in kernel.results
        ]
        return pytree.tree_unflatten(results, kernel.structure)

    def _given(self, value: Any) -> Any:
        """An input or attribute of the graph."""
        return self._described(value, self._recorder)

    def _described(self, value: Any, recorder: Recorder) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        shape, strides = tuple(value.shape), tuple(value.stride())
        is_kind_all = (
            isinstance(value, FakeTensor)
            and value.constant is None
            and all(isinstance(size, int) for size in (*shape, *strides))
        )
        kind = (value.dtype, value.device, value.requires_grad, shape, strides)
        return _Tensor(kind, recorder.origin(value), value, is_kind_all)

    def _compare(self, node: torch.fx.Node, result: Any) -> None:
        promised = node.meta.get("val")
        several = isinstance(promised, (list, tuple))
        said, found = pytree.tree_leaves(promised), pytree.tree_leaves(result)
        trace = self._trace
        if len(said) != len(found):
            trace.other_rank = trace.other_rank or len(trace.steps)
            return
        for i, (claim, tensor) in enumerate(zip(said, found, strict=True)):
            if not isinstance(claim, torch.Tensor) or not isinstance(tensor, (torch.Tensor, _Tensor)):
                continue
            if len(claim.shape) != len(tensor.shape):
                trace.other_rank = trace.other_rank or len(trace.steps)
                continue
            sizes = [self._size_of(size) for size in claim.shape]
            wrong = {
                axis
                for axis, (size, actual) in enumerate(zip(sizes, tensor.shape, strict=True))
                if size is not None and isinstance(actual, int) and size != actual
            }
            if wrong:
                name = f"{node.name}_{i}" if several else node.name
                trace.claims.setdefault(name, set()).update(wrong)


def _key(target: Any, leaves: list[Any], structure: Any, origins: list[Any]) -> Hashable | None:
    """The key that determines a kernel's steps and results; None if its arguments do not allow reuse."""
    if any(
        not leaf.is_kind_all if isinstance(leaf, _Tensor) else isinstance(leaf, _SYMBOLIC) for leaf in leaves
    ):
        return None
    kinds = [
        (origins.index(leaf.origin), leaf.kind) if isinstance(leaf, _Tensor) else (type(leaf), leaf)
        for leaf in leaves
    ]
    return target, str(structure), *kinds


def _unmade(result: Any) -> Any:
    return dataclasses.replace(result, made=None) if isinstance(result, _Tensor) else result
