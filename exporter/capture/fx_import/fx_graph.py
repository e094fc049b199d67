"""Converts torch.export's `torch.fx` graph of ATen operators to a source graph.

The training IR is imported unchanged: nothing is decomposed, and in-place operators and views stay.
Assertions about sizes are left out, because they do not affect values; wrappers that only switch gradients
are inlined.
"""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx
from onnx_ir import DataType, tensor_adapters

from ....registration import ALIAS, KIND, LINE, MODULE, NUMBER, CaptureError, Names
from ....registration.arguments import source_node
from ...captured_graph.code_lines import shown_frame
from ...torch_boundary import probe
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import is_without_data
from ...torch_boundary.operators.higher_order import has_no_result, vmap_nesting
from ...torch_boundary.operators.overloads import HigherOrderOperator, OpOverload, schema_of
from ..weights import share_memory
from .higher_order_signatures import placeholders, written_operands
from .source_values import Imported, NamedDimensions, constant, describe, share_memory_by_schema

NUMBERS = {bool: ("bool", DataType.BOOL), int: ("int", DataType.INT64), float: ("float", DataType.DOUBLE)}
"""Python's numbers: how metadata names them, and their element types."""
ASSERTIONS = frozenset(
    "aten::_assert_async aten::_assert_scalar aten::_assert_tensor_metadata aten::sym_constrain_range "
    "aten::sym_constrain_range_for_size".split()
)
_NO_STACK = "_empty_nn_module_stack_from_metadata_hook"
_BY_STRIDES = {"aten::as_strided": 3, "aten::as_strided_copy": 3, "aten::as_strided_scatter": 4}
"""Operators that read a storage, and the position of their offset argument."""


def _begins_its_storage(node: torch.fx.Node, position: int) -> bool:
    """Whether the storage read by a strided view begins with the elements of its tensor, in order.

    Without an offset argument the view begins where the tensor does.
    """
    first = node.args[0]
    tensor = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
    if not isinstance(tensor, torch.Tensor):
        return True
    offset = node.args[position] if len(node.args) > position else node.kwargs.get("storage_offset")
    return tensor.is_contiguous() and (offset is None or tensor.storage_offset() == 0)


def _order_in_storage(node: torch.fx.Node, position: int) -> list[int] | None:
    """The order of axes in which the tensor of a strided view is contiguous and begins the view's storage."""
    tensor = node.args[0].meta["val"]  # type: ignore[union-attr]
    offset = node.args[position] if len(node.args) > position else node.kwargs.get("storage_offset")
    if any(isinstance(number, torch.SymInt) for number in (*tensor.shape, *tensor.stride())):
        if not probe.has(probe.DIRECT_CAPTURE):
            return None
        from ...torch_boundary.symbolic_numbers import order_in_storage

        return order_in_storage(tensor, from_begin=offset is not None)
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    begins = offset is None or tensor.storage_offset() == 0
    return order if begins and tensor.permute(order).is_contiguous() else None


@functools.cache
def _read_schema(operator: OpOverload) -> tuple[str, str, tuple[str, ...], bool]:
    """The name and overload of an operator, its parameters, and whether it writes to one of them.

    torch makes new objects each time that a schema is read.
    """
    schema = schema_of(operator)
    formals = tuple(formal.name for formal in schema.arguments)
    return schema.name, schema.overload_name or "default", formals, schema.is_mutable


class GraphImporter(abc.ABC):
    """Imports the nodes of one fx graph, and of the graphs inside it, into a list of source nodes.

    Subclasses import the nodes of a `vmap`, and operators that take graphs.
    """

    def __init__(
        self,
        owner: torch.nn.Module,
        dimensions: NamedDimensions,
        names: Names,
        *,
        source_lines: bool = False,
        scope: str = "",
    ):
        self._owner = owner
        self._dimensions = dimensions
        self._names = names
        self._source_lines = source_lines
        self._scope = scope
        self._environment: dict[torch.fx.Node, Imported] = {}
        self._aliases_matter = False
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        """Tensors that are attributes of the graph's module."""
        self.origins: dict[torch.fx.Node, Imported] = self._environment
        """The result of each fx node: a value, a list of values, or a Python constant."""

    def bind(self, node: torch.fx.Node, value: Imported) -> None:
        """Set the value of a placeholder."""
        self._environment[node] = value

    def run(self, graph: torch.fx.Graph) -> Imported:
        """Import every node and return the graph's results, nested as they are."""
        self._aliases_matter = self._aliases_matter or any(mutates(node) for node in graph.nodes)
        imported_nodes: set[torch.fx.Node] = set()
        for node in graph.nodes:
            if node.op == "output":
                return self.argument(node.args[0])
            # A `vmap` imports all its nodes at its first.
            if imported_nodes and node in imported_nodes:
                continue
            # The importer of the program has bound what it reads from the state.
            if node in self._environment:
                continue
            if isinstance(node.target, OpOverload):
                self._environment[node] = self._operator(node, node.target)
            elif vmap_nesting(node.target) > 0:
                region, results = self.import_vmap(node)
                imported_nodes.update(region)
                self._environment |= results
            elif node.op == "get_attr":
                self._environment[node] = self._attribute(node)
            elif node.op == "call_function":
                self._environment[node] = self._call(node)
            elif node.op == "placeholder":
                if node not in self._environment:
                    raise CaptureError(f"input '{node.name}' of a captured graph has no value")
            elif node.op == "call_module" and not node.users:
                continue  # A module that only checks guards.
            else:
                raise CaptureError(f"'{node.op}' of {node.target} is not part of a captured graph")
        return None

    @abc.abstractmethod
    def import_vmap(self, first: torch.fx.Node) -> tuple[list[torch.fx.Node], dict[torch.fx.Node, Imported]]:
        """Import a `vmap` from its first node on; return its nodes, and the value of each of its results."""

    @abc.abstractmethod
    def import_higher_order(self, node: torch.fx.Node, target: HigherOrderOperator) -> Imported:
        """Import a node that takes graphs, and return its results, nested as its readers see them."""

    def module_attribute(self, node: torch.fx.Node) -> Imported:
        """The tensor or graph that a `get_attr` node reads."""
        item: Any = self._owner
        for part in str(node.target).split("."):
            item = getattr(item, part)
        return item

    def _attribute(self, node: torch.fx.Node) -> Imported:
        item = self.module_attribute(node)
        if not isinstance(item, torch.Tensor):
            return item
        if is_without_data(item):
            raise CaptureError(
                f"a function that is an argument of an operator uses tensor '{node.target}' from outside, of "
                "which torch.export keeps no data: pass the tensor to the operator, too"
            )
        name = self._names.unique(str(node.target))
        value = describe(ir.Value(name=name), item, self._dimensions)
        value.const_value = tensor_adapters.TorchTensor(item.detach(), name=name)
        value.metadata_props[KIND] = "constant"
        self.initializers.append(value)
        return value

    def argument(self, item: object) -> Imported:
        """Convert an argument of an fx node to its form on source nodes."""
        if isinstance(item, torch.fx.Node):
            return self._environment[item]
        if type(item) in NUMBERS or item is None:
            return item
        if isinstance(item, (list, tuple)):
            return [self.argument(member) for member in item]
        if isinstance(item, dict):
            return {key: self.argument(member) for key, member in item.items()}
        return constant(item)

    def _call(self, node: torch.fx.Node) -> Imported:
        target = node.target
        if target is operator.getitem:
            return self.argument(node.args[0])[node.args[1]]
        if isinstance(target, HigherOrderOperator):
            return self.import_higher_order(node, target)
        if has_no_result(target):
            return None
        return self._arithmetic(node, target)

    def _operator(self, node: torch.fx.Node, target: OpOverload) -> Imported:
        name, overload, formals, is_mutable = _read_schema(target)
        # ONNX has no assertions, and these change no value.
        if name in ASSERTIONS:
            return None
        if name == "aten::sym_stride":
            return self._stride(node)
        arguments = {formal: self.argument(a) for formal, a in zip(formals, node.args, strict=False)}
        if name in _BY_STRIDES and not _begins_its_storage(node, _BY_STRIDES[name]):
            arguments["self"] = self._as_in_storage(node, name, arguments["self"])
        for key, item in node.kwargs.items():
            arguments[key] = self.argument(item)
        # `remove_inplace` knows what ATen's operators write; of others only the schema says it.
        if is_mutable and target.namespace != "aten":
            targets = [self.argument(item) for item in written_operands(node)]
            results = self.append_with_new_values(node, name, overload, arguments, targets)
            return _share_memory(target, results, arguments)
        source = self.append(node, name, overload, arguments)
        if target.namespace != "aten":
            return _share_memory(target, self._result(node, source), arguments)
        # Only a graph with writes depends on which results are views. Some operators that may return a view
        # returned a copy here (`reshape`, `contiguous`).
        if self._aliases_matter and isinstance(node.meta.get("val"), torch.Tensor) and not mutates(node):
            first = node.args[0] if node.args else None
            if isinstance(first, torch.fx.Node) and not share_memory(
                first.meta.get("val"), node.meta.get("val")
            ):
                source.metadata_props[ALIAS] = "false"
        return self._result(node, source)

    def _stride(self, node: torch.fx.Node) -> Imported:
        """The stride of an axis: the product of the sizes of the axes that lie inside it in the storage."""
        tensor, axis = node.args[0].meta["val"], node.args[1]  # type: ignore[union-attr]
        order = None
        if probe.has(probe.DIRECT_CAPTURE):
            from ...torch_boundary.symbolic_numbers import order_in_storage

            order = order_in_storage(tensor, from_begin=False)
        if order is None:
            raise CaptureError(
                "the model reads a stride of a tensor that is not contiguous: an ONNX graph has no strides. "
                "Call .contiguous() on the tensor first"
            )
        value = self.argument(node.args[0])
        product, stride = None, 1
        for inner in order[order.index(axis % tensor.dim()) + 1 :]:
            size = tensor.shape[inner]
            stride = stride * size
            if not isinstance(size, int):
                size_value = self.number_or_value(f"{node.name}_size_{inner}", size)
                self.append(
                    node, "aten::sym_size", "int", {"self": value, "dim": inner}, outputs=[size_value]
                )
                size = size_value
            if product is not None:
                next_product = self.number_or_value(f"{node.name}_product_{inner}", stride)
                self.append(node, "sym::mul", "", {"a": product, "b": size}, outputs=[next_product])
                size = next_product
            product = size
        return 1 if product is None else product

    def _as_in_storage(self, node: torch.fx.Node, name: str, value: ir.Value) -> ir.Value:
        """The tensor of a strided view with its axes in the order in which they lie in the storage."""
        # The result of a scatter has the shape of its tensor.
        order = None if name.endswith("_scatter") else _order_in_storage(node, _BY_STRIDES[name])
        if order is None:
            raise CaptureError(
                f"{name} reads the storage of a tensor that is a view of it: ONNX has no storages. Call "
                ".clone(memory_format=torch.contiguous_format) on the tensor first"
            )
        example = node.args[0].meta["val"].permute(order)  # type: ignore[union-attr]
        ordered = self.value(f"{node.name}_storage", example)
        self.append(node, "aten::permute", "default", {"self": value, "dims": order}, outputs=[ordered])
        return ordered

    def _arithmetic(self, node: torch.fx.Node, target: Callable[..., object] | str) -> Imported:
        """Import Python arithmetic on symbolic numbers: `operator.mul`, `torch.sym_max`, `math.floor`."""
        name = getattr(target, "__name__", str(target)).strip("_").removeprefix("sym_")
        if not node.kwargs and len(node.args) <= 3:
            letters = ("cond", "a", "b") if name == "ite" else ("a", "b", "c")
            arguments = {key: self.argument(item) for key, item in zip(letters, node.args, strict=False)}
            return self._result(node, self.append(node, f"sym::{name}", "", arguments))
        raise CaptureError(f"function {name} is not part of a captured graph")

    def child(self, module: torch.nn.Module) -> GraphImporter:
        """An importer with a separate node list for a graph inside this one."""
        inner = type(self)(
            module, self._dimensions, self._names, source_lines=self._source_lines, scope=self._scope
        )
        inner._aliases_matter = self._aliases_matter
        # All graphs of a model have one list of initializers.
        inner.initializers = self.initializers
        return inner

    def value(self, stem: str, example: object = None) -> ir.Value:
        """A new value, with the element type and shape of an example if given."""
        return describe(ir.Value(name=self.unique(stem)), example, self._dimensions, stem)

    def unique(self, stem: str) -> str:
        """A name that no other value or graph has."""
        return self._names.unique(stem)

    def inline(self, module: torch.fx.GraphModule, operands: Sequence[Imported]) -> Imported:
        """Import the nodes of a graph into this one; return its results, nested as they are."""
        inner = self.child(module)
        inner.nodes = self.nodes
        for placeholder, operand in zip(placeholders(module), operands, strict=True):
            inner.bind(placeholder, operand)
        return inner.run(module.graph)

    def append(
        self,
        node: torch.fx.Node,
        name: str,
        overload: str,
        arguments: Mapping[str, Imported],
        attributes: Sequence[ir.Attr] = (),
        outputs: Sequence[ir.Value] | None = None,
    ) -> ir.Node:
        """Append a source node for an fx node, by default with its results."""
        if outputs is None:
            outputs = [self.value(stem, example) for stem, example in _results(node)]
        source = source_node(
            name,
            arguments,
            overload=overload,
            outputs=outputs,
            node_name=node.name,
            attributes=attributes,
            metadata_props=self._metadata(node),
        )
        self.nodes.append(source)
        return source

    def append_with_new_values(
        self,
        node: torch.fx.Node,
        name: str,
        overload: str,
        arguments: dict[str, Imported],
        targets: Sequence[ir.Value],
        graphs: Sequence[ir.Attr] = (),
    ) -> Imported:
        """Append a functional node for one that writes to tensors.

        Args:
            targets: the tensors that it writes to. Their new values are its last outputs, which `copy_` nodes
                write into them.

        Returns:
            Its own results, nested as its readers see them.
        """
        outputs = [*self.outputs(node), *map(self._copy_of, targets)]
        source = self.append(node, name, overload, arguments, graphs, outputs)
        for value, new in zip(targets, source.outputs[len(outputs) - len(targets) :], strict=True):
            copy = self.emit("aten::copy_", {"self": value, "src": new, "non_blocking": False}, value)
            copy.producer().metadata_props.update(source.metadata_props)  # type: ignore[union-attr]
        return nest_results(node.meta.get("val"), source.outputs)

    def emit(
        self,
        name: str,
        arguments: dict[str, Imported],
        like: ir.Value,
        *,
        overload: str = "default",
        dtype: DataType | None = None,
    ) -> ir.Value:
        """Append a node without a counterpart in the fx graph. Its result has the shape of another value."""
        source = source_node(
            name,
            arguments,
            overload=overload if name.startswith("aten::") else "",
            outputs=[self._copy_of(like)],
            node_name=self.unique(name.replace("::", "_")),
        )
        if dtype is not None:
            source.outputs[0].type = ir.TensorType(dtype)
        self.nodes.append(source)
        return source.outputs[0]

    def outputs(self, node: torch.fx.Node) -> list[ir.Value]:
        """A value for each result of a node that is not None, numbers included."""
        leaves = enumerate(pytree.tree_leaves(node.meta.get("val")))
        return [self.number_or_value(f"{node.name}_{i}", leaf) for i, leaf in leaves if leaf is not None]

    def number_or_value(self, stem: str, example: object) -> ir.Value:
        """A new value for an example, which is a tensor, a symbolic number or a number."""
        value = self.value(stem, example)
        if type(example) in NUMBERS:
            value.metadata_props[NUMBER], dtype = NUMBERS[type(example)]
            value.type, value.shape = ir.TensorType(dtype), ir.Shape(())
        return value

    def _copy_of(self, value: ir.Value) -> ir.Value:
        copy = self.value(value.name or "value")
        copy.type, copy.shape = value.type, value.shape
        if NUMBER in value.metadata_props:
            copy.metadata_props[NUMBER] = value.metadata_props[NUMBER]
        return copy

    def _metadata(self, node: torch.fx.Node) -> dict[str, str]:
        stack = node.meta.get("nn_module_stack")
        # torch marks an empty stack by a special key, whose path is not a module.
        path = next(reversed(stack.values()))[0] if stack and _NO_STACK not in stack else ""
        if self._scope:
            path = f"{self._scope}.{path}" if path else self._scope
        properties = {MODULE: path} if path else {}
        if self._source_lines and node.meta.get("stack_trace"):
            lines = [line.strip() for line in node.meta["stack_trace"].splitlines()]
            frames = [line for line in lines if line.startswith("File ")]
            properties[LINE] = shown_frame(frames[-1]) if frames else ""
        return properties

    @staticmethod
    def _result(node: torch.fx.Node, source: ir.Node) -> Imported:
        """The node's results in the form that readers expect: a value, or values nested in lists."""
        example = node.meta.get("val")
        if not isinstance(example, (list, tuple)):
            return None if example is None else source.outputs[0]
        return _nest_results(example, iter(source.outputs))


def _nest_results(example: Sequence[object], values: Iterator[ir.Value]) -> list[Imported]:
    results: list[Imported] = []
    for member in example:
        if isinstance(member, (list, tuple)):
            results.append(_nest_results(member, values))
        else:
            results.append(None if member is None else next(values))
    return results


def nest_results(example: object, outputs: Sequence[ir.Value]) -> Imported:
    """The results of a node, nested as its readers see them; a number that torch fixed stays a number."""
    values = iter(outputs)

    def nest(item: object) -> Imported:
        if isinstance(item, (list, tuple)):
            return [nest(member) for member in item]
        if item is None:
            return None
        value = next(values)
        return item if type(item) in NUMBERS else value

    return nest(example)


def _share_memory(operator: OpOverload, result: Imported, arguments: Mapping[str, Imported]) -> Imported:
    """The result of another library's operator, nested as its readers see it."""
    schema = schema_of(operator)
    if len(schema.returns) == 1:
        return share_memory_by_schema(schema, [result], arguments)[0]
    return share_memory_by_schema(schema, result, arguments) if schema.returns else None


def _results(node: torch.fx.Node) -> list[tuple[str, object]]:
    """The name stem and fake value of each result of a node, without results that are None."""
    example = node.meta.get("val")
    if not isinstance(example, (list, tuple)):
        return [] if example is None else [(node.name, example)]
    leaves = pytree.tree_leaves(example)
    return [(f"{node.name}_{i}", leaf) for i, leaf in enumerate(leaves) if leaf is not None]


def mutates(node: torch.fx.Node) -> bool:
    """Whether a node calls an operator that writes to an argument."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, OpOverload):
        return _read_schema(node.target)[3]
    return isinstance(node.target, HigherOrderOperator) and bool(written_operands(node))
