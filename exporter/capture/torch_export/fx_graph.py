"""From a `torch.fx` graph of ATen operators, as torch.export leaves it, to a source graph.

The training IR is taken as it is: nothing is decomposed, in-place operators and views stay what they
are. Assertions about sizes are left out, for they say nothing about values; wrappers that only switch
gradients are opened.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx
from onnx_ir import DataType, tensor_adapters

from ....registration import (
    ALIAS,
    KIND,
    LINE,
    MODULE,
    NUMBER,
    CaptureError,
    Device,
    Layout,
    MemoryFormat,
    Names,
)
from ....registration.arguments import source_node
from ...torch_boundary import pytree
from ...torch_boundary.fake_tensors import is_without_data
from ...torch_boundary.higher_order import has_no_result
from ...torch_boundary.operators import HigherOrderOperator, OpOverload, schema_of
from ..weights import share_memory
from .higher_order import append_with_new_values, import_higher_order, placeholders, written
from .retracing import begins_vmap, import_vmap, vmap_region

ASSERTIONS = frozenset(
    {
        "aten::_assert_async",
        "aten::_assert_scalar",
        "aten::_assert_tensor_metadata",
        "aten::sym_constrain_range",
        "aten::sym_constrain_range_for_size",
    }
)
_NUMBERS: dict[type, tuple[str, DataType]] = {
    torch.SymInt: ("int", DataType.INT64),
    torch.SymFloat: ("float", DataType.DOUBLE),
    torch.SymBool: ("bool", DataType.BOOL),
}
_UNKNOWN_DIM = ir.SymbolicDim(None)


class Dimensions:
    """Symbolic sizes of torch as named dimensions; each expression is written out once.

    Attributes:
        names: the name of each torch symbol.
        closed: whether a size with any other symbol in it is unknown, rather than called by torch's name.
        unproven: axes whose sizes are unknown, whatever the fake tensor has there, by the name of the value.
    """

    def __init__(
        self,
        names: Mapping[Any, str] | None = None,
        *,
        closed: bool = False,
        unproven: Mapping[str, Container[int]] | None = None,
    ):
        self.names: dict[Any, str] = dict(names or {})
        self.closed = closed
        self.unproven = dict(unproven or {})
        self._known: dict[Any, int | ir.SymbolicDim] = {}

    def shape(self, name: str, sizes: Sequence[Any]) -> ir.Shape:
        """The shape of a value by its name in the captured graph."""
        unproven = self.unproven.get(name, ())
        return ir.Shape([_UNKNOWN_DIM if i in unproven else self(size) for i, size in enumerate(sizes)])

    def __call__(self, size: Any) -> int | ir.SymbolicDim:
        """The size as a number or a named dimension."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._written(expression)
        return known

    def _written(self, expression: Any) -> int | ir.SymbolicDim:
        if expression.is_Integer:
            return int(expression)
        if self.closed and not expression.free_symbols <= self.names.keys():
            return _UNKNOWN_DIM
        import sympy

        renamed = {
            symbol: sympy.Symbol(self.names[symbol], integer=True, positive=True)
            for symbol in expression.free_symbols
            if symbol in self.names
        }
        return ir.SymbolicDim(str(expression.xreplace(renamed)))


def tensor_type(value: torch.Tensor) -> ir.TensorType:
    """The element type of a tensor.

    Raises:
        CaptureError: ONNX has no such element type.
    """
    return ir.TensorType(element_type(value.dtype))


def element_type(dtype: torch.dtype) -> DataType:
    """ONNX's element type for one of torch.

    Raises:
        CaptureError: it has none.
    """
    try:
        return tensor_adapters.from_torch_dtype(dtype)
    except TypeError as error:
        raise CaptureError(f"{dtype} has no ONNX element type") from error


def describe(value: ir.Value, example: Any, dimensions: Dimensions, name: str = "") -> ir.Value:
    """Give a source value the element type and shape of its fake tensor or symbolic number.

    Args:
        name: its name in the captured graph, where it has one.
    """
    if isinstance(example, torch.Tensor):
        value.type = tensor_type(example)
        value.shape = dimensions.shape(name, example.shape)
    elif type(example) in _NUMBERS:
        name, dtype = _NUMBERS[type(example)]
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(())
        value.metadata_props[NUMBER] = name
    return value


def _constant(item: Any) -> Any:
    """A constant argument in the form in which source nodes keep it."""
    if item is None or isinstance(item, (bool, int, float, str, complex)):
        return item
    if isinstance(item, torch.dtype):
        return element_type(item)
    if isinstance(item, torch.device):
        return Device(item)
    if isinstance(item, torch.layout):
        return Layout(str(item).removeprefix("torch."))
    if isinstance(item, torch.memory_format):
        return MemoryFormat(str(item).removeprefix("torch."))
    raise CaptureError(f"an argument of type {type(item).__name__} cannot be captured: {item!r}")


_BY_STRIDES = {"aten::as_strided": 3, "aten::as_strided_copy": 3, "aten::as_strided_scatter": 4}
"""Operators that read a storage, and the place of their offset among their arguments."""


def _begins_its_storage(node: torch.fx.Node, position: int) -> bool:
    """Whether the storage that a view by strides reads begins with the elements of its tensor, in order.

    Without an offset of its own the view begins where the tensor does.
    """
    first = node.args[0]
    tensor = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
    if not isinstance(tensor, torch.Tensor):
        return True
    given = node.args[position] if len(node.args) > position else node.kwargs.get("storage_offset")
    return tensor.is_contiguous() and (given is None or tensor.storage_offset() == 0)


class GraphImporter:
    """Imports the nodes of one fx graph, and of the graphs inside it, into a list of source nodes."""

    def __init__(
        self,
        owner: torch.nn.Module,
        dimensions: Dimensions,
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
        self._environment: dict[torch.fx.Node, Any] = {}
        self._aliases_matter = False
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        """Tensors that stand in the graph as attributes of its module."""
        self.origins: dict[torch.fx.Node, Any] = self._environment
        """What each fx node became: a value, a list of values, or a Python constant."""

    def bind(self, node: torch.fx.Node, value: Any) -> None:
        """Say what a placeholder is."""
        self._environment[node] = value

    def run(self, graph: torch.fx.Graph) -> Any:
        """Import every node and return what the graph returns, nested as it is."""
        self._aliases_matter = self._aliases_matter or any(_mutates(node) for node in graph.nodes)
        done: set[torch.fx.Node] = set()
        for node in graph.nodes:
            if node.op == "output":
                return self.argument(node.args[0])
            if node in done:
                continue
            if begins_vmap(node):
                region = vmap_region(node)
                done.update(region)
                self._environment |= import_vmap(self, region, self._held)
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

    def _held(self, node: torch.fx.Node) -> Any:
        item: Any = self._owner
        for part in str(node.target).split("."):
            item = getattr(item, part)
        return item

    def _attribute(self, node: torch.fx.Node) -> Any:
        item = self._held(node)
        if not isinstance(item, torch.Tensor):
            return item
        if is_without_data(item):
            raise CaptureError(
                f"torch.export kept no data of tensor '{node.target}', which a function given to an operator "
                "reads from around it: pass it to the operator"
            )
        name = self._names.unique(str(node.target))
        value = describe(ir.Value(name=name), item, self._dimensions)
        value.const_value = tensor_adapters.TorchTensor(item.detach(), name=name)
        value.metadata_props[KIND] = "constant"
        self.initializers.append(value)
        return value

    def argument(self, item: Any) -> Any:
        """An argument of an fx node in the form in which source nodes keep it."""
        if isinstance(item, torch.fx.Node):
            return self._environment[item]
        if isinstance(item, (list, tuple)):
            return [self.argument(member) for member in item]
        if isinstance(item, dict):
            return {key: self.argument(member) for key, member in item.items()}
        return _constant(item)

    def _call(self, node: torch.fx.Node) -> Any:
        target = node.target
        if target is operator.getitem:
            return self.argument(node.args[0])[node.args[1]]
        if isinstance(target, OpOverload):
            return self._operator(node, target)
        if isinstance(target, HigherOrderOperator):
            return import_higher_order(self, node, target)
        if has_no_result(target):
            return None
        return self._arithmetic(node, target)

    def _operator(self, node: torch.fx.Node, target: OpOverload) -> Any:
        schema = schema_of(target)
        name, overload = schema.name, schema.overload_name or "default"
        if name in ASSERTIONS:
            return None
        if name in _BY_STRIDES and not _begins_its_storage(node, _BY_STRIDES[name]):
            raise CaptureError(
                f"{name} reads the storage of a tensor that is a view of it: an ONNX graph has no storages. "
                "Call .clone(memory_format=torch.contiguous_format) on the tensor first"
            )
        arguments = {p.name: self.argument(a) for p, a in zip(schema.arguments, node.args, strict=False)}
        for key, item in node.kwargs.items():
            arguments[key] = self.argument(item)
        if schema.is_mutable and target.namespace != "aten" and not name.endswith("_"):
            targets = [self.argument(item) for item in written(node)]
            return append_with_new_values(self, node, name, overload, arguments, targets)
        made = self.append(node, name, overload, arguments)
        if self._aliases_matter and isinstance(node.meta.get("val"), torch.Tensor) and not _mutates(node):
            first = node.args[0] if node.args else None
            if isinstance(first, torch.fx.Node) and not _same_storage(first, node):
                made.metadata_props[ALIAS] = "false"
        return self._result(node, made)

    def _arithmetic(self, node: torch.fx.Node, target: Callable[..., Any] | str) -> Any:
        """Python arithmetic over symbolic numbers: `operator.mul`, `torch.sym_max`, `math.floor`."""
        name = getattr(target, "__name__", str(target)).strip("_").removeprefix("sym_")
        if not node.kwargs and len(node.args) <= 3:
            letters = ("cond", "a", "b") if name == "ite" else ("a", "b", "c")
            arguments = {key: self.argument(item) for key, item in zip(letters, node.args, strict=False)}
            return self._result(node, self.append(node, f"sym::{name}", "", arguments))
        raise CaptureError(f"function {name} is not part of a captured graph")

    def child(self, module: torch.nn.Module) -> GraphImporter:
        """An importer for a graph inside this one, whose nodes are its own."""
        inner = GraphImporter(
            module, self._dimensions, self._names, source_lines=self._source_lines, scope=self._scope
        )
        inner._aliases_matter = self._aliases_matter
        inner.initializers = self.initializers
        return inner

    def value(self, stem: str, example: Any = None) -> ir.Value:
        """A fresh value, with the element type and shape of an example where there is one."""
        return describe(ir.Value(name=self.unique(stem)), example, self._dimensions, stem)

    def unique(self, stem: str) -> str:
        """A name that no other value or graph has."""
        return self._names.unique(stem)

    def inline(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> Any:
        """Import the nodes of a graph here; from its operands to what it returns, nested as it is."""
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
        arguments: Mapping[str, Any],
        attributes: Sequence[ir.Attr] = (),
        outputs: Sequence[ir.Value] | None = None,
    ) -> ir.Node:
        """Append a source node in place of an fx node, with its results unless others are given."""
        if outputs is None:
            outputs = [self.value(stem, example) for stem, example in _results(node)]
        made = source_node(
            name,
            arguments,
            overload=overload,
            outputs=outputs,
            node_name=node.name,
            attributes=attributes,
            metadata_props=self._metadata(node),
        )
        self.nodes.append(made)
        return made

    def _metadata(self, node: torch.fx.Node) -> dict[str, str]:
        stack = node.meta.get("nn_module_stack")
        path = next(reversed(stack.values()))[0] if stack else ""
        if self._scope:
            path = f"{self._scope}.{path}" if path else self._scope
        properties = {MODULE: path} if path else {}
        if self._source_lines and node.meta.get("stack_trace"):
            properties[LINE] = _last_line(node.meta["stack_trace"])
        return properties

    @staticmethod
    def _result(node: torch.fx.Node, made: ir.Node) -> Any:
        """The node's results as its readers see them: a value, or values nested in lists."""
        values = iter(made.outputs)

        def place(example: Any) -> Any:
            if isinstance(example, (list, tuple)):
                return [place(member) for member in example]
            return None if example is None else next(values)

        return place(node.meta.get("val"))


def _results(node: torch.fx.Node) -> list[tuple[str, Any]]:
    """The name stem and fake value of each result of a node; a result that is None has none."""
    example = node.meta.get("val")
    if not isinstance(example, (list, tuple)):
        return [] if example is None else [(node.name, example)]
    leaves = pytree.tree_leaves(example)
    return [(f"{node.name}_{i}", leaf) for i, leaf in enumerate(leaves) if leaf is not None]


def _mutates(node: torch.fx.Node) -> bool:
    if isinstance(node.target, OpOverload):
        return schema_of(node.target).is_mutable
    return isinstance(node.target, HigherOrderOperator) and bool(written(node))


def _same_storage(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    return share_memory(a.meta.get("val"), b.meta.get("val"))


def _last_line(stack_trace: str) -> str:
    """`model.py:12` of the innermost frame of a stack trace."""
    frames = [line.strip() for line in stack_trace.splitlines() if line.strip().startswith("File ")]
    if not frames:
        return ""
    return line_of_frame(frames[-1])


def line_of_frame(frame: str) -> str:
    """`model.py:12` of `File "model.py", line 12, in forward`."""
    path, _, rest = frame.removeprefix('File "').partition('", line ')
    return f"{path}:{rest.partition(',')[0]}"
