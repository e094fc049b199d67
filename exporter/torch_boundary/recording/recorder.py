"""Records the operators that a model runs on fake tensors, as torch.export does before its clean-up passes.

torch's tracer records the rare calls: higher-order operators, `vmap`, switches of autocast and gradients,
values read from constants, symbolic sizes. Plain operators, nearly all of a model, are recorded directly,
because torch's bookkeeping takes longer than running them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from .. import export_internals as of_export
from ..capture_patches import redirection
from ..containers import pytree
from ..dispatch import (
    DispatchKey,
    enable_python_dispatcher,
    functionality_of,
    is_excluded,
    mode_stack_state_for_pre_dispatch,
    set_included,
)
from ..fake_tensors import FakeTensor, FakeTensorMode
from ..operators.overloads import Args, Kwargs, OpOverload
from ..process.process_state import disable_backends, replace_attribute
from ..state.module_tree import ModuleTree
from ..symbolic_numbers import number_hash, truth_equals
from . import gradients as gradient_operators
from .float_extremes import keep_extremes
from .function_mode import FunctionMode
from .gradients import InnerCall, SavedResults
from .known_results import KnownResults
from .layouts.layout import forget_layout
from .layouts.views import VIEWS_OF_SIZE, with_resolved_size
from .module_paths import ModulePaths, Root
from .size_nodes import SizeNodes
from .tensor_nodes import TensorNodes

_PLAIN = (FakeTensor, torch.Tensor, torch.nn.Parameter)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_VALUES = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
_RARE_TAGS = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
)
_RARE = frozenset({"aten::is_nonzero", "aten::lift_fresh", "aten::sym_numel", "prim::device"})
_JOINS = frozenset({torch.ops.aten.stack.default, torch.ops.aten.cat.default})
READS_OF_NUMBERS = frozenset(
    {
        torch.ops.aten.item.default,
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.is_nonzero.default,
    }
)
"""Operators that read a number from a tensor."""


class _Holder(torch.nn.Module):
    """The module whose attributes are the tensors and sub-graphs that `get_attr` nodes name.

    torch reads these two attributes at each change of a node; class attributes avoid `Module.__getattr__`.
    """

    _create_node_hooks = _replace_hooks = ()


class _NeedsTorchTracer(Exception):
    """torch's tracer must record the call, because an argument has no node in the graph."""


class GraphRecorder:
    """Records into a graph the operators that a model runs within `running`.

    Args:
        tree: the model's modules and tensors; its parameters and buffers are fake tensors already.
        mode: the mode of the fake tensors.
        source_lines: whether to record the Python stack of each call.
        gradients: whether to record the operators of gradients that the model computes.

    Attributes:
        graph: the recorded graph; the caller adds placeholders first, and the output last.
        root: holds the constants and sub-graphs that `get_attr` nodes name.
        constant_of: takes the node of a tensor; returns its number, None if it is no constant of the model.
        number_of_sizes: takes the node of a tensor; returns its number if it is computed from sizes, or None.
        elements_of: takes a tensor that the model converts to an array; returns the array, None to refuse.
        join_results: takes a call of `stack` or `cat`; returns its result if the tensors come from a
            recorded loop, else None.
        slices_of: see `FunctionMode`.
        assigned: the tensors to whose `data` the model assigned, by `id`.
    """

    def __init__(
        self, tree: ModuleTree, mode: FakeTensorMode, *, source_lines: bool = False, gradients: bool = False
    ):
        self._fake_mode = mode
        assert mode.shape_env is not None, "recordings have symbolic sizes"
        self._environment = mode.shape_env
        self._maker = proxy_tensor._MakefxTracer(None, "real", False, True, True, False, True)
        self._root = Root(tree)
        self._lines = source_lines
        self._saved = SavedResults(lambda tensor: self._nodes.node_of(tensor)) if gradients else None
        self._track_others = proxy_tensor.track_tensor
        self._modes_before_dispatch = mode_stack_state_for_pre_dispatch()
        self.graph = torch.fx.Graph()
        self.root: torch.nn.Module = _Holder()
        self.graph.owning_module = self.root  # type: ignore[assignment]
        self._known_results = KnownResults(mode)
        self.constant_of: Callable[[torch.fx.Node], bool | int | float | None] | None = None
        self.number_of_sizes: Callable[[torch.fx.Node], object] = lambda node: None
        self.elements_of: Callable[[torch.Tensor], np.ndarray | None] = lambda tensor: None
        self.join_results: Callable[[OpOverload, Args], torch.Tensor | None] = lambda func, args: None
        self.slices_of: Callable[..., object] = lambda *args, **kwargs: None
        self.assigned: dict[int, torch.Tensor] = {}
        self._known_traits: dict[OpOverload, tuple[bool, bool, str]] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Record every operator that runs within the context."""

        def model_function(*args: object) -> object:
            raise AssertionError("the maker only takes the modules from this function")

        model_function._orig_mod = self._root  # type: ignore[attr-defined]
        with self._maker._init_modes_from_inputs(model_function, ()):
            tracer: Any = self._maker.fx_tracer
            self._tracer = tracer
            tracer.root, tracer.graph, tracer.tensor_attrs = self.root, self.graph, {}
            tracer.record_stack_traces = self._lines
            tracer.tensor_tracker = self._nodes = TensorNodes(tracer)
            tracer.symnode_tracker = self._sizes = SizeNodes(tracer)
            self._paths = ModulePaths(tracer)
            self._functions = FunctionMode(
                tracer,
                redirection(),
                lambda tensor: self.elements_of(tensor),
                self._assign,
                differentiates=self._saved is not None,
            )
            self._functions.slices_of = self.slices_of
            self._maker.proxy_function_mode = self._functions
            mode: Any = self._maker.proxy_mode
            self._torch_dispatch = mode.__torch_dispatch__
            if not self._lines:
                # torch looks the method up on the mode; its class must stay, for it selects the rules of
                # higher-order operators.
                mode.__torch_dispatch__ = self._dispatch
            yield

    @property
    def replaced_calls(self) -> list[Callable[..., Any] | None]:
        """For each call of a function that may fix a size, the function called instead, or None."""
        return self._functions.replaced_calls

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        """Enter the modes and patches under which torch.export runs a model."""
        with contextlib.ExitStack() as stack:
            enter: Callable[[contextlib.AbstractContextManager[object]], object] = stack.enter_context
            enter(self._fake_mode)
            if self._saved is not None:
                enter(self._saved)
            enter(of_export.tracing(of_export.TracingContext(self._fake_mode)))
            # torch.export traces the functions of higher-order operators by TorchDynamo, with these settings.
            settings = {**of_export.DYNAMO_SETTINGS, "do_not_emit_runtime_asserts": False}
            enter(of_export.dynamo_config.patch(settings))
            enter(keep_extremes())
            enter(disable_backends())
            enter(of_export.compiling_state())
            enter(enable_python_dispatcher())
            enter(self._maker.proxy_function_mode)
            enter(self._maker.proxy_mode)
            enter(proxy_tensor.disable_autocast_cache())
            enter(proxy_tensor._set_make_fx_tracer(self._maker))
            enter(self._paths.follow_modules())
            enter(replace_attribute(proxy_tensor, "track_tensor", self._track))
            enter(replace_attribute(torch.SymInt, "__hash__", number_hash))
            enter(replace_attribute(torch.SymBool, "__eq__", truth_equals))
            if not self._lines:
                find_function = self._make_finder(OpOverload._get_dispatch)
                enter(replace_attribute(OpOverload, "_get_dispatch", find_function))
            yield

    def _make_finder(self, find: Callable[..., object]) -> Callable[..., object]:
        """Make a faster `OpOverload._get_dispatch`, which finds the function to run for an operator."""
        state, mode = self._modes_before_dispatch, self._maker.proxy_mode
        is_before_dispatch = functools.cache(_is_before_dispatch)

        def find_function(func: OpOverload, key: DispatchKey) -> object:
            is_alone = state.get(0) is mode and state.get(1) is None
            if is_alone and is_before_dispatch(key) and not is_excluded(DispatchKey.Python):
                return functools.partial(self._record_alone, func)
            return find(func, key)

        return find_function

    def _record_alone(self, func: OpOverload, /, *args: object, **kwargs: Kwargs | None) -> object:
        """Record a call; only this recorder's mode is active, and off meanwhile, to skip inner calls."""
        state, mode = self._modes_before_dispatch, self._maker.proxy_mode
        state.set(0, None)
        set_included(DispatchKey.PreDispatch, False)
        try:
            return self._dispatch(func, (), args, kwargs)
        finally:
            state.set(0, mode)
            set_included(DispatchKey.PreDispatch, True)

    def run(self, leaves: Sequence[object], structure: pytree.TreeSpec) -> object:
        """Run the model on the flattened call `(args, kwargs)`, whose leaves the caller has bound to nodes.

        The containers are built here, because building them may run operators. Switches off the garbage
        collector, which the caller restores. Returns the model's result.
        """
        # The objects of a recording live until its end, so collecting garbage is slow and frees nothing.
        gc.disable()
        with self._modes(), proxy_tensor.maybe_disable_thunkify():
            args, kwargs = pytree.tree_unflatten(leaves, structure)
            return self._root._export_root(*args, **kwargs)

    def bind(self, value: object, node: torch.fx.Node) -> None:
        """Map a value to its placeholder; the last one wins."""
        node.meta["val"] = value
        if isinstance(value, torch.Tensor):
            self._map_results(value, node)
        elif isinstance(value, _SYMBOLIC):
            proxy_tensor.track_tensor_tree(
                value, torch.fx.Proxy(node, self._tracer), constant=None, tracer=self._tracer
            )

    def node_of(self, item: Any) -> Any:
        """Return the node of a leaf of the model's result; constants have none and are returned."""
        with proxy_tensor.disable_proxy_modes_tracing():
            if type(item) in _PLAIN:
                self._node_of(item)
            proxy = self._tracer.unwrap_proxy(item)
            return self._tracer.create_arg(proxy)

    def empty(self, shape: Any, dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
        """Make an uninitialized fake tensor without recording a node."""
        with proxy_tensor.disable_proxy_modes_tracing(), self._fake_mode:
            return torch.empty(tuple(shape), dtype=dtype, device=device)

    def _dispatch(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Record a call of an operator; replaces `__torch_dispatch__` of torch's mode."""
        if self._saved is not None and gradient_operators.hides_operators(func, args, kwargs):
            with self._record_inner():
                return gradient_operators.parts_of(func)(*args, **(kwargs or {}))
        if func in _JOINS:
            joined = self.join_results(func, args)
            if joined is not None:
                return joined
        args = with_resolved_size(args) if func in VIEWS_OF_SIZE else args
        traits = self._known_traits.get(func) or self._known_traits.setdefault(func, self._traits(func))
        is_rare, creates, name = traits
        # Indexing by positions has a known result size, unlike indexing by masks.
        if is_rare and not (func is torch.ops.aten.index.Tensor and _has_positions(args[1])):
            return self._record_by_tracer(func, types, args, kwargs)
        try:
            node_args, node_kwargs = self._arguments(args, kwargs)
        except _NeedsTorchTracer:
            if not self._may_take_constants(func, args, kwargs):
                return self._record_by_tracer(func, types, args, kwargs)
            node_args, node_kwargs = self._arguments(args, kwargs, takes_constants=True)
        if creates:
            created_pair = self._known_results.make_created(func, args, kwargs)
            if created_pair is None:
                result = self._record_by_tracer(func, types, args, kwargs)
                self._known_results.keep_created(func, args, kwargs, result)
                return result
            node = self._call(func, node_args, node_kwargs, name, created_pair[1])
            proxy = torch.fx.Proxy(node, self._tracer)
            self._nodes[created_pair[0]] = proxy_tensor._ProxyTensor(proxy, None)
            if created_pair[0]._has_symbolic_sizes_strides:
                self._sizes.track(created_pair[0], proxy)
            return created_pair[0]
        tracer = self._tracer
        thunkifies, tracer.enable_thunkify = tracer.enable_thunkify, True
        try:
            result = self._known_results.run(func, args, kwargs)
        finally:
            tracer.enable_thunkify = thunkifies
        node = self._call(func, node_args, node_kwargs, name, result)
        if self._environment.pending_fresh_unbacked_symbols:
            # torch checks that sizes that depend on values are sizes of the result.
            proxy = torch.fx.Proxy(node, tracer)
            return proxy_tensor.track_tensor_tree(result, proxy, constant=None, tracer=tracer)
        self._map_results(result, node)
        return result

    def _call(
        self, func: OpOverload, args: Args, kwargs: dict[str, Any], name: str, result: object
    ) -> torch.fx.Node:
        """Add a node for a call to the graph."""
        node = self.graph.create_node("call_function", func, (), {}, name)
        # Set afterwards, because `create_node` would search the arguments for symbolic numbers.
        node._update_args_kwargs(args, kwargs)
        node.meta["nn_module_stack"] = self._paths.current
        node.meta["val"] = result
        if self._saved is not None:
            self._saved.finish(node)
        return node

    def _traits(self, func: OpOverload) -> tuple[bool, bool, str]:
        """Return (whether torch's tracer must record an operator, whether it creates a tensor, node name)."""
        schema = func._schema
        is_rare = not _RARE_TAGS.isdisjoint(func.tags) or schema.name in _RARE
        # Functions that create tensors return a copy and need a second tensor; methods such as `to` do not.
        is_method = schema.name.startswith(("aten::to", "aten::new_"))
        creates = not is_method and any(argument.name == "pin_memory" for argument in schema.arguments)
        return is_rare, creates, self.graph._target_to_str(func.overloadpacket.__name__)

    def _may_take_constants(self, func: OpOverload, args: Args, kwargs: Kwargs | None) -> bool:
        """Whether a call's result is no constant although it takes constants: with others, or to move them.

        For example, each layer of a key-value cache joins an empty constant and the first keys.
        """
        if func._schema.is_mutable:
            return False
        leaves = pytree.tree_leaves((args, kwargs or {}))
        # torch's tracer would move the constant to the new device, which this machine may lack.
        is_moved = any(isinstance(leaf, torch.device) and leaf.type != "cpu" for leaf in leaves)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        constants = [self._nodes.constant_of(tensor) for tensor in tensors if type(tensor) in _PLAIN]
        variable_count = constants.count(None)
        return (
            (is_moved or variable_count > 0)
            and variable_count < len(tensors) == len(constants)
            and variable_count == sum(self._node_of(tensor) is not None for tensor in tensors)
            and not any(isinstance(leaf, torch.ScriptObject) for leaf in leaves)
        )

    def _arguments(
        self, args: Args, kwargs: Kwargs | None, takes_constants: bool = False
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Convert the arguments of a call to arguments of a node."""
        node_args = tuple([self._argument(item, takes_constants) for item in args])
        named = kwargs.items() if kwargs else ()
        return node_args, {key: self._argument(item, takes_constants) for key, item in named}

    def _argument(self, item: Any, takes_constants: bool) -> Any:
        """Convert an argument of a call to that of a node; raises _NeedsTorchTracer if a tensor has none."""
        item_class = type(item)
        if item_class in _VALUES:
            return item
        if item_class in _PLAIN:
            node = self._node_of(item)
            if node is None and takes_constants:
                node = self._nodes.constant_of(item)
            if node is None:
                raise _NeedsTorchTracer
            return node
        if isinstance(item, (tuple, list)):
            members = [self._argument(member, takes_constants) for member in item]
            return members if item_class is list else tuple(members)
        if item_class in _SYMBOLIC:
            proxy = proxy_tensor.fetch_sym_proxy(self._tracer)(item)
            return proxy.node if isinstance(proxy, torch.fx.Proxy) else proxy
        if isinstance(item, (torch.Tensor, torch.ScriptObject, dict)):
            raise _NeedsTorchTracer
        return item

    def _node_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """Return the node of a tensor, or None; adds a node for a result that autograd saved before."""
        node = self._nodes.node_of(tensor)
        if node is not None or tensor in self._nodes:
            return node
        gradient_operators.check_level(tensor)
        if self._saved is None:
            return None
        saved = self._saved.node_of(tensor)
        if saved is None:
            inner = self._saved.inner_call(tensor)
            return None if inner is None else self._node_of_inner(inner)
        func = torch.ops.aten.detach.default
        node = self._call(func, (saved,), {}, self._traits(func)[2], tensor)
        self._map_results(tensor, node)
        return node

    def _node_of_inner(self, call: InnerCall) -> torch.fx.Node:
        """Insert a node for an inner call before the outer node, which may write to the same arguments."""
        args, kwargs = pytree.tree_map_only(InnerCall, self._node_of_inner, call.args)
        node = self._nodes.node_of(call.result)
        if node is None:
            with self.graph.inserting_before(call.before):
                node = self._call(call.func, args, kwargs, self._traits(call.func)[2], call.result)
            self._map_results(call.result, node)
        return node

    @contextlib.contextmanager
    def _record_inner(self) -> Iterator[None]:
        """Record the operators that run within an operator, in the context."""
        state, mode = self._modes_before_dispatch, self._maker.proxy_mode
        state.set(0, mode)
        set_included(DispatchKey.PreDispatch, True)
        try:
            yield
        finally:
            state.set(0, None)
            set_included(DispatchKey.PreDispatch, False)

    def _map_results(self, result: Any, node: torch.fx.Node) -> None:
        """Map the results of an operator to its node."""
        if type(result) in _PLAIN:
            self._nodes.keep(result, node)
            if self._saved is not None:
                self._saved.keep(result, node)
            if result._has_symbolic_sizes_strides:
                self._sizes.track(result, torch.fx.Proxy(node, self._tracer))
        elif isinstance(result, (tuple, list)) and all(type(item) in _PLAIN for item in result):
            for index, item in enumerate(result):
                part = self.graph.create_node("call_function", operator.getitem, (node, index), {}, "getitem")
                part.meta["nn_module_stack"] = self._paths.current
                part.meta["val"] = item
                self._map_results(item, part)
        elif result is not None:
            proxy = torch.fx.Proxy(node, self._tracer)
            if isinstance(result, torch.Tensor):
                proxy_tensor.track_tensor(result, proxy, constant=None, tracer=self._tracer)
            else:
                proxy_tensor.track_tensor_tree(result, proxy, constant=None, tracer=self._tracer)

    def _track(
        self,
        tensor: torch.Tensor,
        proxy: torch.fx.Proxy,
        *,
        constant: torch.Tensor | None,
        tracer: PythonKeyTracer,
    ) -> None:
        """Map a tensor and its sizes to a node; replaces `proxy_tensor.track_tensor`."""
        if tracer is not self._tracer or tensor.layout != torch.strided:
            self._track_others(tensor, proxy, constant=constant, tracer=tracer)
            return
        self._sizes.track(tensor, proxy)
        proxy_tensor.set_proxy_slot(tensor, tracer, proxy_tensor._ProxyTensor(proxy, constant))

    def _record_by_tracer(self, func: OpOverload, types: object, args: Args, kwargs: Kwargs | None) -> object:
        """Record a call by torch's tracer; a number that can be computed is returned without a node."""
        if torch.Tag.inplace_view in func.tags:
            self._keep_shape(args[0])
        if func in READS_OF_NUMBERS:
            number = self._number_in(args[0])
            if number is not None:
                return bool(number) if func is torch.ops.aten.is_nonzero.default else number
        return self._torch_dispatch(func, types, args, kwargs)

    def _number_in(self, tensor: torch.Tensor) -> object:
        """Return the number in a tensor if it is a constant or computed from sizes; else None."""
        node = self._nodes.node_of(tensor)
        if node is None:
            return None
        constant = None if self.constant_of is None else self.constant_of(node)
        if constant is not None or self._functions.needs_number:
            return constant
        state = self._modes_before_dispatch
        mode = state.get(0)
        # The arithmetic on sizes must be recorded as nodes too, so the mode is on meanwhile.
        state.set(0, self._maker.proxy_mode)
        try:
            return self.number_of_sizes(node)
        finally:
            state.set(0, mode)

    def _assign(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Assign to the `data` of a tensor; earlier views of it keep their memory."""
        value = value.detach()
        self._keep_shape(tensor)
        tensor.data = value
        self.assigned[id(tensor)] = tensor
        node = self._nodes.node_of(value)
        assert node is not None, "detach has been recorded"
        self._nodes.keep(tensor, node)

    def _keep_shape(self, tensor: torch.Tensor) -> None:
        """Store a copy of a tensor in the metadata of its nodes before an operator changes its shape."""
        for node in self._nodes.nodes_of(tensor):
            if node.meta.get("val") is tensor:
                node.meta["val"] = proxy_tensor.snapshot_fake(tensor)
        forget_layout(tensor)


def _is_before_dispatch(key: DispatchKey) -> bool:
    functionality: DispatchKey = functionality_of(key)
    return functionality == DispatchKey.PreDispatch


def _has_positions(indices: Sequence[torch.Tensor | None]) -> bool:
    """Whether all indices are positions; with masks, the size of the result would depend on their values."""
    return all(index is None or index.dtype in (torch.int64, torch.int32) for index in indices)
