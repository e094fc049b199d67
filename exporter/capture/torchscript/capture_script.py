"""Capture of a TorchScript module, function or file as a source graph."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import Value

from ....registration import NUMBER, CaptureError, Names
from ....registration.warning import warn
from ...captured_graph import dimensions
from ...captured_graph.capture import Capture, Interface, graph_outputs
from ...torch_boundary import probe, torchscript
from ...torch_boundary.capture_patches import grouped_products
from ...torch_boundary.containers import pytree
from ...torch_boundary.process.silence import suppress_logs
from ..capture_options import CaptureOptions
from ..descriptions import describe_input
from ..sizes import dynamic_shapes as shapes
from ..tensor_kinds import check_arguments, without_data
from . import operators
from .builder import ScriptGraphBuilder
from .example_run import check_example, is_suspect
from .fake_values import Tensor
from .fakes import Fakes
from .interpreter import Interpreter
from .kernel_checks import KernelChecks
from .modules import Hierarchy, State
from .objects import Dict, List, Object, Optional, Raised, Shared, WrittenConstant, is_constant, same

_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)


def is_torchscript(model: Any) -> bool:
    """Whether a model is TorchScript, or the path of a TorchScript file."""
    return isinstance(model, (*_SCRIPTED, str, os.PathLike))


def capture_torchscript(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    *,
    has_run: bool = False,
) -> Capture:
    """Capture a TorchScript model as a source graph.

    Sizes are static unless `dynamic_shapes` makes them dynamic. Numbers among the arguments become inputs,
    unless `dynamic_shapes` has None for them or the program needs their value at capture.

    Args:
        model: a `ScriptModule` (scripted, traced or loaded) or a `ScriptFunction`.
        args, kwargs: example arguments. The model runs on them once, and is restored, if that is quick or if
            shapes alone may hide an error.
        has_run: the model is known to run on the example.

    Raises:
        CaptureError: the model fails on the example, or a source graph cannot express the program.
    """
    probe.require(probe.TORCHSCRIPT)
    signature = _signature(model)
    bound = shapes.bind(signature, args, kwargs)
    check_arguments(bound)
    if not has_run and is_suspect(model, args, kwargs):
        check_example(model, bound, args, kwargs)
        has_run = True
    leaves = shapes.resolve(signature, args, kwargs, options, numbers=True)
    dynamic_shapes = options.dynamic_shapes
    static = {
        name
        for name, dimensions_of_argument in (
            dynamic_shapes.items() if isinstance(dynamic_shapes, Mapping) else ()
        )
        if dimensions_of_argument is None and isinstance(bound.get(name), (bool, int, float))
    }
    numbers = any(isinstance(leaf, (bool, int, float)) for leaf in leaves.values)

    def attempt(constant_numbers: bool) -> Capture:
        order = shapes.call_order(bound, kwargs)

        def read_program(opaque: bool) -> Capture:
            reader = _ScriptReader(model, leaves, static, constant_numbers, options.source_lines, opaque)
            if not has_run:
                reader.check_kernels()
            with suppress_logs(), grouped_products():
                capture = reader.run(signature, bound, order, args, kwargs)
            # torch refused operands while only their shapes were known: the example may be wrong.
            if reader.has_refused and not has_run:
                check_example(model, bound, args, kwargs)
            return capture

        try:
            return read_program(False)
        except WrittenConstant:
            # Read again without folding constant tensors, because the program writes to one.
            return read_program(True)

    try:
        return attempt(False)
    except CaptureError as error:
        if not has_run:
            check_example(model, bound, args, kwargs)
        if not numbers:
            raise
        try:
            result = attempt(True)
        except CaptureError:
            raise error from None
        warn(
            "the numbers among the arguments are constants in this export, because they cannot be "
            f"inputs: {error}",
        )
        return result


def _signature(model: Any) -> Callable[..., Any]:
    """A function with the signature of the program.

    Raises:
        CaptureError: the module has no forward.
    """
    if isinstance(model, torch.jit.ScriptFunction):
        arguments = model.schema.arguments  # type: ignore[attr-defined]
    elif torchscript.method(torchscript.handle_of(model), "forward") is None:
        methods = ", ".join(torchscript.method_names(torchscript.handle_of(model)))
        raise CaptureError(
            f"the TorchScript module has no forward (it has {methods or 'no method'}): script a module that "
            "calls it instead, as for the overloaded forward of LSTM, GRU and RNN"
        )
    else:
        arguments = model.forward.schema.arguments[1:]
    names, parameters = Names(), []
    for argument in arguments:
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        parameter_kind = (
            inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        # A trace may give two arguments the same name.
        parameters.append(inspect.Parameter(names.unique(argument.name), parameter_kind, default=default))

    def program(*args: Any, **kwargs: Any) -> None:
        """A function that has the program's signature."""

    program.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return program


class _ScriptReader:
    """Reads one program into a source graph."""

    def __init__(
        self,
        model: Any,
        leaves: shapes.Leaves,
        static: set[str],
        constant_numbers: bool,
        source_lines: bool,
        opaque: bool = False,
    ):
        self._model = model
        self._leaves = leaves
        self._static = static
        self._constant_numbers = constant_numbers
        self._names = leaves.dimension_names()
        handle = torchscript.handle_of(model) if isinstance(model, torch.jit.ScriptModule) else None
        self._build = ScriptGraphBuilder(Fakes(), source_lines=source_lines)
        hierarchy = Hierarchy(handle, is_traced=isinstance(model, torch.jit.TopLevelTracedModule))  # type: ignore[attr-defined]
        state = State(model)
        self._build.reserve(state.names)
        self._machine = Interpreter(self._build, state, hierarchy, operators.find, opaque=opaque)
        self._opaque = opaque
        self._root = Object(handle, "") if handle is not None else None
        self._inputs: list[Value] = []
        self._sizes: dict[str, Any] = {}
        self._position = 0
        self._entries: list[str | None] = []
        self._constants: list[Any] = []

    def check_kernels(self) -> None:
        """Note whether a kernel refuses operands that torch's shape functions accept."""
        self._build.kernel_checks = KernelChecks()

    def run(
        self,
        signature: Callable[..., Any],
        bound: Mapping[str, Any],
        order: Sequence[str],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Capture:
        arguments = {name: self._argument(bound[name], name) for name in order}
        parameters = inspect.signature(signature).parameters
        actual = [
            arguments[name] if name in arguments else self._machine.import_item(p.default, name)
            for name, p in parameters.items()
        ]
        program = self._model if self._root is None else self._model.forward
        graph = program.inlined_graph
        operands = actual if self._root is None else [self._root, *actual]
        self._build.writes = not self._opaque and _writes(graph)
        try:
            [result] = self._machine.run(graph, operands)
        except Raised as error:
            raise CaptureError(f"the program raises an error for these arguments: {error}") from error
        self._build.module = self._build.line = ""
        if self._root is not None:
            self._write_attributes(self._root)
        return self._finish(result, list(parameters), args, kwargs)

    @property
    def has_refused(self) -> bool:
        """Whether torch may refuse the operands of an operator: the example may not fit the program."""
        return self._build.fakes.has_refused

    def _argument(self, item: Any, path: str) -> Any:
        """Convert an argument of the call; its leaves become inputs."""
        members = pytree.children(item)
        if members is not None:
            inner = [self._argument(member, f"{path}_{i}") for i, member in enumerate(members)]
            if isinstance(item, dict):
                return self._machine.dict(dict(zip(item, inner, strict=True)))
            if isinstance(item, list):
                has_tensors = not members or any(isinstance(m, torch.Tensor) for m in members)
                element_type = "Tensor" if has_tensors else type(members[0]).__name__
                return self._machine.list(inner, element_type)
            return type(item)(*inner) if hasattr(item, "_fields") else tuple(inner)
        leaf = self._position
        self._position += 1
        value = self._leaf(item, path, leaf)
        self._entries.append(value.name if isinstance(value, Value) else None)
        self._constants.append(None if isinstance(value, Value) else item)
        if isinstance(value, Value):
            describe_input(value.metadata_props, item)
            self._inputs.append(value)
        return value

    def _leaf(self, item: Any, path: str, leaf: int) -> Any:
        if isinstance(item, torch.Tensor):
            dynamic = {
                axis: requested_dim
                for leaf_index, axis, requested_dim in self._leaves.dynamic()
                if leaf_index == leaf
            }
            shape = [
                self._size(leaf, axis, size, path) if axis in dynamic else size
                for axis, size in enumerate(item.shape)
            ]
            fake = self._build.fakes.tensor(shape, item.dtype)
            if not item.is_floating_point() and not item.is_complex() and without_data(item) is None:
                fake.example = item
            return self._build.value(path, fake)
        if isinstance(item, (bool, int, float)) and not self._constant_numbers and path not in self._static:
            return self._build.number(type(item).__name__, stem=path)
        return item

    def _size(self, leaf: int, axis: int, example: int, path: str) -> Any:
        """A dynamic size; equal names are the same size."""
        name = self._names.get((leaf, axis)) or f"{path}_dim_{axis}"
        if name not in self._sizes:
            self._sizes[name] = self._build.fakes.size(name, example)
        return self._sizes[name]

    def _write_attributes(self, owner: Object) -> None:
        """Handle attributes that the program set on modules: tensors are buffer writes, others dropped."""
        for item in list(owner.read_items.values()):
            if isinstance(item, Object):
                self._write_attributes(item)
        for name in sorted(owner.changed):
            self._write_attribute(owner, name, owner.attributes[name])
        for name in sorted(owner.read_items.keys() - owner.changed):
            path = f"{owner.path}.{name}" if owner.path else name
            if not _is_unchanged(
                owner.read_items[name], self._machine.import_item(owner.handle.getattr(name), path)
            ):
                _warn_of_dropped(path)

    def _write_attribute(self, owner: Object, name: str, item: Any) -> None:
        path = f"{owner.path}.{name}" if owner.path else name
        old = owner.handle.getattr(name)
        if not isinstance(old, torch.Tensor):
            _warn_of_dropped(path)
            return
        state = self._machine.state.value(self._build, path, old)
        new = self._machine.fake(item)
        keeps = isinstance(new, Tensor) and list(new.shape) == list(old.shape) and new.dtype == old.dtype
        written = self._build.value(name, new)
        arguments = {"self": state, "src": item, "non_blocking": False}
        self._build.append("aten::copy_", arguments, [written], "default" if keeps else "attribute")

    def _finish(
        self, result: Any, parameters: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Capture:
        structure = self._to_python(result)
        leaves, specification = pytree.tree_flatten(structure)
        outputs, entries = graph_outputs([self._build.argument(leaf) for leaf in leaves])
        nodes = self._build.nodes
        graph = ir.Graph(
            self._inputs,
            outputs,
            nodes=nodes,
            initializers=self._build.initializers,
            opset_imports={node.domain: 1 for node in nodes},
            name="source",
        )
        interface = Interface(
            input_specification=pytree.tree_flatten((args, dict(kwargs)))[1],
            output_specification=specification,
            inputs=self._entries,
            constants=self._constants,
            outputs=entries,
            numbers=[i for i, value in enumerate(outputs) if NUMBER in value.metadata_props],
            parameter_names=parameters,
        )
        capture = Capture(ir.Model(graph, ir_version=10, producer_name="opsetta"), interface)
        dimensions.write_restrictions(capture.source.metadata_props, self._build.restrictions)
        capture.example = (args, dict(kwargs))
        return capture

    def _to_python(self, item: Any) -> Any:
        """Convert the program's result to Python containers."""
        if isinstance(item, Shared) and item.stale:
            raise CaptureError(
                "the program returns a list or dict that another variable also refers to, depending on a "
                "computed condition; return a copy"
            )
        if isinstance(item, List):
            if item.items is None:
                raise CaptureError(
                    "the program returns a list whose length is computed: return torch.stack or "
                    "torch.cat of it"
                )
            return [self._to_python(member) for member in item.items]
        if isinstance(item, Dict):
            return {key: self._to_python(member) for key, member in item.entries.items()}
        if isinstance(item, tuple):
            members = [self._to_python(member) for member in item]
            return type(item)(*members) if hasattr(item, "_fields") else tuple(members)
        if isinstance(item, (Object, Optional)):
            raise CaptureError(
                f"the program returns {type(item).__name__.lower()}, which ONNX does not support"
            )
        return item


def _warn_of_dropped(path: str) -> None:
    warn(
        f"the program changes attribute '{path}', which is not a tensor; its new value is dropped",
    )


def _is_unchanged(item: Any, before: Any) -> bool:
    """Whether the value of an attribute is unchanged after the call, including lists and dicts."""
    if isinstance(item, Shared) and item.stale:
        return False
    if isinstance(item, List) and isinstance(before, List):
        return item.items is not None and _are_unchanged(item.items, before.items or ())
    if isinstance(item, Dict) and isinstance(before, Dict):
        entries, old = item.entries, before.entries
        return list(entries) == list(old) and _are_unchanged(list(entries.values()), list(old.values()))
    if isinstance(item, tuple) and isinstance(before, tuple):
        return _are_unchanged(item, before)
    if isinstance(item, Object) or same(item, before):
        return True
    return is_constant(item) and is_constant(before) and bool(item == before)


def _are_unchanged(items: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(items) == len(before) and all(map(_is_unchanged, items, before))


def _writes(block: Any) -> bool:
    """Whether a program or one of its blocks has an operator that writes to its arguments."""
    return any("!" in node.schema() or any(map(_writes, node.blocks())) for node in block.nodes())
