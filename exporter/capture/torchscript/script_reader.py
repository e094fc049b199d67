"""Reads a TorchScript program into a source graph."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import onnx_ir as ir
import sympy
import torch
from onnx_ir import Value

from ....registration import NUMBER, CaptureError
from ....registration.warning import warn
from ...captured_graph import dimensions
from ...captured_graph.capture import Capture, Interface, graph_outputs
from ...torch_boundary import torchscript
from ...torch_boundary.containers import pytree
from ..descriptions import describe_input
from ..sizes.requests.dynamic_shapes import Leaves, call_order
from ..tensor_kinds import without_data
from . import operators
from .builder import ScriptGraphBuilder
from .fake_values import Size, Tensor
from .fakes import Fakes
from .interpreter import Interpreter
from .kernel_checks import KernelChecks
from .modules import Hierarchy, State
from .objects import (
    Dict,
    Item,
    List,
    Object,
    Optional,
    Raised,
    Shared,
    is_constant,
    rebuild_tuple,
    same,
)
from .script_graph import Program, ScriptBlock, StoredItem, function_of


@dataclasses.dataclass(frozen=True)
class ScriptCall:
    """A program and its example call.

    Attributes:
        signature: a function with the program's parameters.
        bound: the arguments by parameter.
        leaves: the leaves of the arguments, with their dynamic dimensions.
        static: the parameters whose numbers are constants.
        source_lines: whether nodes get the line of the program that they come from.
    """

    program: Program
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    signature: Callable[..., None]
    bound: Mapping[str, StoredItem]
    leaves: Leaves
    static: frozenset[str]
    source_lines: bool


class ScriptReader:
    """Reads one program into a source graph."""

    def __init__(self, call: ScriptCall, *, constant_numbers: bool, opaque: bool, check_kernels: bool):
        self._call = call
        self._constant_numbers = constant_numbers
        self._opaque = opaque
        program = call.program
        is_module = isinstance(program, torch.jit.ScriptModule)
        handle = torchscript.handle_of(program) if isinstance(program, torch.jit.ScriptModule) else None
        self._build = ScriptGraphBuilder(Fakes(), source_lines=call.source_lines)
        self._build.kernel_checks = KernelChecks() if check_kernels else None
        hierarchy = Hierarchy(handle, is_traced=isinstance(program, torch.jit.TopLevelTracedModule))  # type: ignore[attr-defined]
        state = State(program)
        # Initializers keep their state_dict names, whatever else the program calls so.
        self._build.reserve(state.names)
        self._machine = Interpreter(self._build, state, hierarchy, operators.find, opaque=opaque)
        self._root = Object(handle, "") if is_module else None
        self._names = call.leaves.dimension_names()
        self._inputs: list[Value] = []
        self._sizes: dict[str, sympy.Symbol] = {}
        self._entries: list[str | None] = []
        self._constants: list[object] = []

    def run(self) -> Capture:
        """Read the program.

        Raises:
            CaptureError: the program cannot be captured, or raises for all inputs.
            WrittenConstant: the program writes to a constant tensor, which only an opaque reading allows.
        """
        call = self._call
        arguments = {
            name: self._argument(call.bound[name], name) for name in call_order(dict(call.bound), call.kwargs)
        }
        parameters = inspect.signature(call.signature).parameters
        operands = [
            arguments[name] if name in arguments else self._machine.import_item(parameter.default, name)
            for name, parameter in parameters.items()
        ]
        graph = function_of(call.program).inlined_graph
        self._build.writes = not self._opaque and _writes(graph)
        try:
            [result] = self._machine.run(graph, operands if self._root is None else [self._root, *operands])
        except Raised as error:
            raise CaptureError(f"the program raises an error for these arguments: {error}") from error
        # What follows belongs to no node of the program.
        self._build.module = self._build.line = ""
        if self._root is not None:
            self._write_attributes(self._root)
        return self._finish(result, list(parameters))

    @property
    def has_refused(self) -> bool:
        """Whether torch may refuse the operands of an operator: the example may not fit the program."""
        return self._build.fakes.has_refused

    def _argument(self, item: object, path: str) -> Item:
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
            return rebuild_tuple(item if isinstance(item, tuple) else (), inner)
        value = self._leaf(item, path)
        self._entries.append(value.name if isinstance(value, Value) else None)
        self._constants.append(None if isinstance(value, Value) else item)
        if isinstance(value, Value):
            describe_input(value.metadata_props, item)
            self._inputs.append(value)
        return value

    def _leaf(self, item: object, path: str) -> Item:
        # Leaves are visited in the order of torch's pytree.
        leaf = len(self._entries)
        if isinstance(item, torch.Tensor):
            dynamic = {axis for index, axis, _ in self._call.leaves.dynamic() if index == leaf}
            shape: list[Size] = [
                self._size(leaf, axis, size, path) if axis in dynamic else size
                for axis, size in enumerate(item.shape)
            ]
            fake = self._build.fakes.tensor(shape, item.dtype)
            # Integers may be indices, whose range the checks of kernels need.
            if not item.is_floating_point() and not item.is_complex() and without_data(item) is None:
                fake.example = item
            return self._build.value(path, fake)
        if (
            isinstance(item, (bool, int, float))
            and not self._constant_numbers
            and path not in self._call.static
        ):
            return self._build.number(type(item).__name__, stem=path)
        # Other arguments, like texts and None, are constants.
        return self._machine.import_item(cast("StoredItem", item), path)

    def _size(self, leaf: int, axis: int, example: int, path: str) -> sympy.Symbol:
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
        # A list or dict may have been changed in place, without an assignment to the attribute.
        for name in sorted(owner.read_items.keys() - owner.changed):
            path = owner.path_of(name)
            before = self._machine.import_item(owner.read_stored(name), path)
            if not _is_unchanged(owner.read_items[name], before):
                _warn_of_dropped(path)

    def _write_attribute(self, owner: Object, name: str, item: Item) -> None:
        path = owner.path_of(name)
        old = owner.read_stored(name)
        if not isinstance(old, torch.Tensor):
            _warn_of_dropped(path)
            return
        state = self._machine.state.value(self._build, path, old)
        new = self._machine.fake(item)
        keeps = isinstance(new, Tensor) and list(new.shape) == list(old.shape) and new.dtype == old.dtype
        written = self._build.value(name, new)
        arguments = {"self": state, "src": item, "non_blocking": False}
        self._build.append("aten::copy_", arguments, [written], "default" if keeps else "attribute")

    def _finish(self, result: Item, parameters: list[str]) -> Capture:
        example = (self._call.args, dict(self._call.kwargs))
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
            input_specification=pytree.tree_flatten(example)[1],
            output_specification=specification,
            inputs=self._entries,
            constants=self._constants,
            outputs=entries,
            numbers=[i for i, value in enumerate(outputs) if NUMBER in value.metadata_props],
            parameter_names=parameters,
        )
        capture = Capture(ir.Model(graph, ir_version=10, producer_name="opsetta"), interface)
        dimensions.write_restrictions(capture.source.metadata_props, self._build.restrictions)
        capture.example = example
        return capture

    def _to_python(self, item: Item) -> object:
        """Convert the program's result to Python containers."""
        # Its contents are those of one name, while the program may have changed it through the other.
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
            return rebuild_tuple(item, map(self._to_python, item))
        if isinstance(item, (Object, Optional)):
            raise CaptureError(
                f"the program returns {type(item).__name__.lower()}, which ONNX does not support"
            )
        return item


def _warn_of_dropped(path: str) -> None:
    warn(
        f"the program changes attribute '{path}', which is not a tensor; its new value is dropped",
    )


def _is_unchanged(item: Item, before: Item) -> bool:
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


def _are_unchanged(items: Sequence[Item], before: Sequence[Item]) -> bool:
    return len(items) == len(before) and all(map(_is_unchanged, items, before))


def _writes(block: ScriptBlock) -> bool:
    """Whether a program or one of its blocks has an operator that writes to its arguments."""
    return any("!" in node.schema() or any(map(_writes, node.blocks())) for node in block.nodes())
