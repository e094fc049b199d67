"""`GraphContext`: the interface that a symbolic function gets to the graph under construction."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from . import arguments as convention
from . import emission, ladder, runtimes, schemas, shape_inference
from .constants import ConstantPool, to_array
from .dtypes import Number
from .errors import GraphError, UnsupportedError
from .held import holder_of
from .metadata import LINE, MODULE, SOURCE
from .registry import Registry, split_name


class Names:
    """Unique names for the values and nodes of one graph, its sub-blocks included."""

    __slots__ = ("_counts", "_taken")

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> None:
        """Reserve a given name."""
        self._taken.add(name)

    def is_taken(self, name: str) -> bool:
        """Whether a name is in use or reserved."""
        return name in self._taken

    def unique(self, stem: str) -> str:
        """The stem, or the stem with the lowest number that makes it unique."""
        name = stem
        while name in self._taken:
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name


@dataclasses.dataclass
class Limits:
    """The remaining limits for a model from an untrusted source, whose sizes may be arbitrary.

    Attributes:
        elements: the remaining elements of constants.
        nodes: nodes of the new graph.
        remedy: the remedy in the error message.
    """

    elements: int
    nodes: int
    remedy: str = ""

    def beyond(self, text: str) -> str:
        """An error's text, with the remedy."""
        return f"{text}; {self.remedy}" if self.remedy else text


LowerBlock = Callable[[ir.Graph, Sequence[Value]], list[Value]]
"""Lowers the nodes of a source graph at the current position; maps values of its inputs to its outputs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A sub-block of the source node being lowered.

    Attributes:
        graph: its source graph. Its nodes may read values of the graphs around it.
    """

    graph: ir.Graph
    _context: GraphContext

    def inline(self, *arguments: Value | Number) -> list[Value]:
        """Lower the block at the current position; may be called several times.

        Args:
            arguments: one for each of the block's inputs.

        Returns:
            A value for each of the block's outputs.
        """
        return self._context.lower_block(self.graph, arguments)

    def subgraph(self) -> ir.Graph:
        """The block as an ONNX graph with the block's own inputs and outputs."""
        return self._context.subgraph(self.inline, self.graph.inputs, self.graph.name or "")


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """The current position: the source node, its module path, and the function that lowers its sub-blocks."""

    node: ir.Node | None = None
    scope: str = ""
    origin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lower_block: LowerBlock | None = None


class GraphContext:
    """The graph under construction, the target opset, and the source node being lowered.

    Attributes:
        opset: the ONNX opset of the graph.
        graph: the `onnx_ir.Graph` that nodes are appended to; inside `subgraph`, that sub-graph.
        registry: where `call` looks up symbolic functions.
        composing: the ONNX operators that the version ladder is composing, outermost first.
    """

    __slots__ = (
        "_names",
        "_opset_imports",
        "_place",
        "_pool",
        "composing",
        "graph",
        "limits",
        "opset",
        "registry",
    )

    def __init__(self, graph: ir.Graph, opset: int, registry: Registry, names: Names | None = None):
        self.graph = graph
        self.opset = opset
        self.registry = registry
        self._names = names if names is not None else Names()
        self._pool = ConstantPool(graph, self._names.unique)
        self._opset_imports = graph.opset_imports
        self._place = _Place()
        self.composing: list[str] = []
        self.limits: Limits | None = None

    @property
    def node(self) -> ir.Node | None:
        """The source node being lowered, with its overload and expected outputs."""
        return self._place.node

    def enter(self, node: ir.Node, module: str = "", lower_block: LowerBlock | None = None) -> None:
        """Begin lowering a source node: nodes emitted from here on get its module path.

        Args:
            lower_block: lowers the node's sub-blocks.
        """
        origin = {SOURCE: convention.overloaded_name(node)}
        if module:
            origin[MODULE] = module
        if LINE in node.metadata_props:
            origin[LINE] = node.metadata_props[LINE]
        self._place = _Place(node, f"{module}/" if module else "", origin, lower_block)

    @property
    def blocks(self) -> list[Block]:
        """The sub-blocks of the source node being lowered, in the order of its attributes."""
        return [Block(graph, self) for graph in convention.blocks(self.node)] if self.node is not None else []

    def lower_block(self, block: ir.Graph, arguments: Sequence[Value | Number]) -> list[Value]:
        """Lower the nodes of a source graph here; see `Block.inline`.

        Raises:
            GraphError: the number of arguments differs from the number of the block's inputs.
        """
        if len(arguments) != len(block.inputs):
            raise GraphError(f"block '{block.name}' takes {len(block.inputs)} inputs, not {len(arguments)}")
        place = self._place
        assert place.lower_block is not None, "the source node was entered without its blocks"
        given = [self.constant(a, f.dtype) for a, f in zip(arguments, block.inputs, strict=True)]
        try:
            return place.lower_block(block, given)
        finally:
            self._place = place

    def subgraph(
        self, build: Callable[..., Sequence[Value]], inputs: Sequence[Value] = (), name: str = "body"
    ) -> ir.Graph:
        """Build an ONNX sub-graph, for an attribute such as If's `then_branch` or Loop's `body`.

        Args:
            build: emits the sub-graph's nodes through this context and returns its outputs. It is given
                the formal inputs, and may use values of the graphs around it.
            inputs: values whose element types and shapes the formal inputs have.
        """
        graph = ir.Graph([], [], nodes=[], name=self._names.unique(name or "body"))
        for value in inputs:
            formal = Value(name=self._names.unique(value.name or "input"), type=value.type, shape=value.shape)
            graph.inputs.append(formal)
        self.extend(graph, build)
        return graph

    def extend(self, graph: ir.Graph, build: Callable[..., Sequence[Value]]) -> None:
        """Emit more nodes into a sub-graph that `subgraph` made; what `build` returns joins its outputs.

        For outputs that depend on other sub-graphs, such as the other branch.
        """
        outer, self.graph = self.graph, graph
        try:
            for result in build(*graph.inputs):
                graph.outputs.append(self._own(self.constant(result), graph))
        finally:
            self.graph = outer

    def _own(self, value: Value, graph: ir.Graph) -> Value:
        """The value, or a copy if it cannot be an output of the graph because another graph made it."""
        producer = value.producer()
        if producer is not None and producer.graph is graph and not value.is_graph_output():
            return value
        [copy] = self.append(ir.Node("", "Identity", [value], num_outputs=1))
        copy.type, copy.shape = value.type, value.shape
        return copy

    def op(self, op_type: str, /, *inputs: Any, outputs: int = 1, **arguments: Any) -> Any:
        """Emit an ONNX operator as its newest version means it, whatever this opset has under its name.

        Arguments are bound by name to the operator's schema at this opset. What its version means in
        another way, or refuses, the version ladder says (`symbolics/onnx`).

        Args:
            op_type: `Squeeze`, or `domain::Op` for an operator of another domain.
            inputs: its first inputs, in order; None leaves one out. Python numbers and lists become
                constants of the type that the schema wants.
            outputs: how many results to make.
            arguments: the rest by schema name, attribute or input as this opset has it; None is left out.

        Returns:
            The result, or a list of them when `outputs` is more than one.

        Raises:
            EmissionError: this opset does not have the operator, an argument or an element type.
        """
        domain, _, name = op_type.rpartition("::")
        domain = "" if domain in ("onnx", "ai.onnx") else domain
        results = emission.emit(self, name, domain, inputs, arguments, outputs)
        return results[0] if outputs == 1 else results

    def _one(self, op_type: str, *inputs: Any, **arguments: Any) -> Value:
        """The result of an ONNX operator that has one."""
        [result] = emission.emit(self, op_type, "", inputs, arguments, 1)
        return result

    def call(self, name: str, /, *positional: Any, **named: Any) -> Any:
        """Call another symbolic function at this opset.

        Args:
            name: qualified operator name, optionally with its overload.
            positional: arguments in the order of the function's parameters.
            named: arguments by schema name.

        Raises:
            UnsupportedError: no function serves the operator at this opset.
        """
        qualified, overload = split_name(name)
        symbolic = self.registry.lookup(qualified, overload, self.opset)
        if symbolic is None:
            first = self.registry.first_opset(qualified, overload)
            raise UnsupportedError(
                f"{name} has no symbolic function at opset {self.opset}",
                first_opset=first,
            )
        return symbolic.call(self, positional, named)

    def op_of_any_data(self, op_type: str, /, *inputs: Any, outputs: int = 1, **arguments: Any) -> Any:
        """As `op`, of data of which nothing is known: positions may count from the end of a dimension.

        Below opset 11 Gather and its like take positions from the front only. `op` leaves it to its caller
        to know that they are such, for none of the many computed positions could be seen to be.
        """
        results = ladder.emit_of_any_data(self, op_type, inputs, arguments, outputs)
        return results[0] if outputs == 1 else results

    def op_of_target(self, op_type: str, /, *inputs: Any, outputs: int = 1, **arguments: Any) -> Any:
        """Emit an ONNX operator in the meaning of the target's own version; see `op`."""
        with ladder.at_work(self, op_type):
            return self.op(op_type, *inputs, outputs=outputs, **arguments)

    def has(
        self,
        op_type: str,
        *arguments: str,
        dtype: DataType | None = None,
        result: Value | None = None,
        **values: str,
    ) -> bool:
        """Whether the target's own version of an ONNX operator takes arguments and an element type.

        Args:
            arguments: names of inputs or attributes.
            dtype: an element type of its first input.
            result: a value whose kind, tensor or sequence, and element type the operator is to give.
            values: string attributes with their values.
        """
        schema = schemas.operator_schema(op_type, self.opset)
        named = () if schema is None else (*schema.input_index, *schema.attributes)
        if schema is None or not {*arguments, *values} <= {*named}:
            return False
        if any(schemas.first_opset_with_value(schema, name, value) for name, value in values.items()):
            return False
        if result is not None and not schemas.carries(schema, result):
            return False
        return dtype is None or dtype in schema.inputs[0].dtypes

    def has_kernel(self, op_type: str, value: Value) -> bool:
        """Whether runtimes have a kernel of an ONNX operator for a value's element type; see `runtimes`."""
        return runtimes.has_kernel(op_type, value.dtype)

    def constant(self, value: Any, dtype: DataType | None = None) -> Value:
        """A constant tensor of a Python number, nested list, or numpy array.

        Args:
            dtype: its element type; unless given, BOOL, INT64 or FLOAT for Python numbers and the
                array's own for arrays.
        """
        if isinstance(value, Value):
            return self.cast(value, dtype) if dtype is not None else value
        if isinstance(value, (list, tuple)) and any(isinstance(item, Value) for item in value):
            return self.cast(self.stack(value), dtype) if dtype is not None else self.stack(value)
        array = to_array(value, dtype)
        if self.limits is not None and array.size > _SMALL_CONSTANT:
            self.reserve(array.size)
            self.limits.elements -= array.size
        return self._pool.make(array)

    def reserve(self, *sizes: int) -> None:
        """Check that a constant of these sizes may be made, before it is.

        Raises:
            UnsupportedError: the constant would be too large.
        """
        if self.limits is not None and math.prod(sizes) > self.limits.elements:
            shown = " by ".join(map(str, sizes))
            text = f"it would take a constant of {shown} elements, more than are made of a file"
            raise self.refuse(self.limits.beyond(text))

    def cast(self, value: Value, dtype: DataType) -> Value:
        """The value cast to another element type; unchanged if it already has that type."""
        if value.dtype == dtype:
            return value
        return self._one("Cast", value, to=int(dtype))

    def stack(self, items: Sequence[int | Value]) -> Value:
        """A one-dimensional INT64 tensor of ints and symbolic ints (zero-dim values), in order."""
        parts: list[Value | list[int]] = []
        for item in items:
            if isinstance(item, Value):
                known = self.constant_value(item) if self.is_foldable(item) else None
                if known is None:
                    parts.append(self._as_list(item))
                    continue
                item = int(known.item())
            if parts and isinstance(parts[-1], list):
                parts[-1].append(int(item))
            else:
                parts.append([int(item)])
        if len(parts) == 1 and isinstance(parts[0], Value):
            return parts[0]
        values = [part if isinstance(part, Value) else self._pool.make(to_array(part)) for part in parts]
        if not values:
            return self._pool.make(np.empty(0, dtype=np.int64))
        return values[0] if len(values) == 1 else self._one("Concat", *values, axis=0)

    def _as_list(self, value: Value) -> Value:
        """A zero-dim value as a tensor of one element; a Squeeze that made it is undone."""
        producer = value.producer()
        if producer is not None and producer.op_type == "Squeeze" and producer.inputs[0] is not None:
            source = producer.inputs[0]
            if source.shape is not None and source.shape.dims == (1,):
                return self.cast(source, DataType.INT64)
        if value.shape is not None and len(value.shape) == 1:
            return self.cast(value, DataType.INT64)
        return self._one("Unsqueeze", self.cast(value, DataType.INT64), axes=[0])

    def size(self, value: Value, dim: int) -> int | Value:
        """One size of a value: an int if it is known, else a zero-dim INT64 value."""
        rank = self.rank(value)
        if dim < 0:
            if rank is None:
                end = None if dim == -1 else dim + 1
                last = self._one(
                    "Slice",
                    self._one("Shape", value),
                    starts=[dim],
                    ends=[end if end is not None else np.iinfo(np.int64).max],
                    axes=[0],
                )
                return self._one("Squeeze", last, axes=[0])
            dim += rank
        if value.shape is not None and isinstance(value.shape[dim], int):
            return int(value.shape[dim])  # type: ignore[arg-type]
        return self._one(
            "Squeeze",
            self._one("Gather", self._one("Shape", value), [dim], axis=0),
            axes=[0],
        )

    def dtype(self, value: Value) -> DataType | None:
        """The element type of a value, None if unknown."""
        return value.dtype

    def rank(self, value: Value) -> int | None:
        """The number of dimensions of a value, None if unknown."""
        return None if value.shape is None else len(value.shape)

    def shape(self, value: Value) -> tuple[int | ir.SymbolicDim, ...] | None:
        """The sizes of a value, ints and symbolic dimensions; None if the rank is unknown."""
        return None if value.shape is None else value.shape.dims

    def constant_value(self, value: Value) -> np.ndarray | None:
        """The contents of a constant or an initializer, None for anything computed."""
        return None if value.const_value is None else value.const_value.numpy()

    def is_foldable(self, value: Value) -> bool:
        """Whether arithmetic on the value may be folded: yes for constants made here, no for model state."""
        return value in self._pool

    def opset_import(self, domain: str) -> int:
        """The version of another domain that the graph imports; imported at its newest when first used."""
        version = self._opset_imports.get(domain)
        if version is None:
            version = _NEWEST.get(domain, 1)
            self._opset_imports[domain] = version
        return version

    def refuse(self, reason: str, first_opset: int | None = None) -> UnsupportedError:
        """An error to raise for what this opset cannot express; the driver adds the operator and module."""
        return UnsupportedError(reason, first_opset=first_opset)

    @property
    def expected(self) -> Sequence[Value]:
        """The outputs of the source node being lowered, with their element types and shapes."""
        return self.node.outputs if self.node is not None else ()

    def append(self, node: ir.Node) -> Sequence[Value]:
        """Append a finished node; set its name, and the names and known shapes of its outputs."""
        if self.limits is not None:
            self.limits.nodes -= 1
            if self.limits.nodes < 0:
                text = "the model would be more nodes at this opset than are made of a file"
                raise GraphError(self.limits.beyond(text))
        for value in node.inputs:
            if value is None:
                continue
            if holder_of(value) is not None:
                raise self._refuse_held(value, f"ONNX operator {node.op_type} does not take")
            self._pool.use(value)
        name = self._names.unique(f"{self._place.scope}{node.op_type}")
        node.name = name
        node.metadata_props.update(self._place.origin)
        for index, value in enumerate(node.outputs):
            value.name = self._names.unique(f"{name}_output_{index}")
        if node.domain == "":
            attributes: Mapping[str, Any] = {key: a.value for key, a in node.attributes.items()}
            node.outputs[0].shape = shape_inference.infer(node.op_type, node.inputs, attributes)
        self.graph.append(node)
        return node.outputs

    def _refuse_held(self, value: Value, reason: str) -> UnsupportedError:
        assert value.dtype is not None
        first = schemas.first_opset_with_dtype("Cast", 0, value.dtype)
        return self.refuse(f"{reason} {value.dtype.name} at opset {self.opset}", first)

    def use(self, value: Value) -> Value:
        """Keep a value that is a graph output: a constant becomes an initializer.

        Raises:
            UnsupportedError: no operator at this opset returns its element type.
        """
        if holder_of(value) is not None:
            raise self._refuse_held(value, "no ONNX operator gives")
        self._pool.use(value)
        return value


_SMALL_CONSTANT = 4096
"""Constants of up to this many elements are not counted."""

_NEWEST = {
    "ai.onnx.ml": 5,
    "ai.onnx.training": 1,
    "ai.onnx.preview.training": 1,
    "com.microsoft": 1,
}
