"""Inserts source nodes at a chosen position of a source graph, for the passes that add nodes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ..registration import LINE, MODULE, NUMBER
from ..registration.arguments import overloaded_name, source_node

Size = int | Value


def where(node: ir.Node) -> str:
    """A source node and its module, for messages: `aten::copy_.default in 'layer1.conv'`."""
    return f"{overloaded_name(node)} in '{node.metadata_props.get(MODULE) or '<root>'}'"


def sizes_of(value: Value) -> list[int] | None:
    """The sizes of a value if all of them are known, else None."""
    if value.shape is None:
        return None
    sizes = [size for size in value.shape.dims if isinstance(size, int)]
    return sizes if len(sizes) == len(value.shape) else None


def same_shape(a: Value, b: Value) -> bool:
    """Whether two values certainly have one shape."""
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(
        x == y and (isinstance(x, int) or x.value is not None) for x, y in zip(a.shape, b.shape, strict=True)
    )


def shapes_differ(a: Value, b: Value) -> bool:
    """Whether two values certainly have different shapes."""
    if a.shape is None or b.shape is None:
        return False
    return len(a.shape) != len(b.shape) or any(
        isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a.shape, b.shape, strict=True)
    )


class SourceBuilder:
    """Inserts source nodes before or after a node or at the end of a graph, under a node's module path.

    Attributes:
        inserted_nodes: every node inserted so far, in order.
    """

    __slots__ = ("_after", "_anchor", "_graph", "_metadata", "inserted_nodes")

    def __init__(self, graph: ir.Graph):
        self._graph = graph
        self._anchor: ir.Node | None = None
        self._after = False
        self._metadata: dict[str, str] = {}
        self.inserted_nodes: list[ir.Node] = []

    @contextlib.contextmanager
    def at_end(self, graph: ir.Graph) -> Iterator[None]:
        """Insert at the end of a graph or sub-block, and afterwards at the previous position."""
        previous_position = self._graph, self._anchor, self._after, self._metadata
        self._graph, self._anchor = graph, None
        try:
            yield
        finally:
            self._graph, self._anchor, self._after, self._metadata = previous_position

    def before(self, node: ir.Node) -> None:
        """Insert the following nodes before this node, in order."""
        assert node.graph is not None
        self._graph = node.graph
        self._anchor, self._after = node, False
        self._metadata = {
            key: node.metadata_props[key] for key in (MODULE, LINE) if key in node.metadata_props
        }

    def after(self, node: ir.Node) -> None:
        """Insert the following nodes after this node, in order."""
        self.before(node)
        self._after = True

    def emit(
        self,
        name: str,
        arguments: Mapping[str, Any],
        overload: str = "default",
        *,
        dtype: DataType | None = None,
        shape: ir.Shape | None = None,
        like: Value | None = None,
    ) -> Value:
        """Insert a node with one output.

        Args:
            dtype, shape: those of the output, or None.
            like: a value with the output's element type and shape, instead of both.
        """
        if like is not None:
            dtype, shape = like.dtype, like.shape
        value = Value(type=None if dtype is None else ir.TensorType(dtype), shape=shape)
        node = source_node(
            name, arguments, overload=overload, outputs=[value], metadata_props=dict(self._metadata)
        )
        self.insert(node)
        return value

    def insert(self, node: ir.Node) -> None:
        """Insert an existing node."""
        if self._anchor is None:
            self._graph.append(node)
        elif self._after:
            self._graph.insert_after(self._anchor, node)
            # The next node comes after this one, so that nodes keep the order of their insertion.
            self._anchor = node
        else:
            self._graph.insert_before(self._anchor, node)
        self.inserted_nodes.append(node)

    def branch(self, condition: Value) -> tuple[ir.Node, ir.Graph, ir.Graph]:
        """Insert a `prim::If` without outputs, whose branches are empty."""
        blocks = [ir.Graph([], [], nodes=[], name=name) for name in ("then_branch", "else_branch")]
        node = source_node(
            "prim::If",
            {"condition": condition},
            attributes=[ir.AttrGraph(block.name or "", block) for block in blocks],
            outputs=[],
            metadata_props=dict(self._metadata),
        )
        self.insert(node)
        return node, *blocks  # type: ignore[return-value]

    def constant(self, number: bool | int) -> Value:
        """A Python number as a value."""
        dtype = DataType.BOOL if isinstance(number, bool) else DataType.INT64
        value = self.emit("prim::Constant", {"value": number}, dtype=dtype, shape=ir.Shape(()))
        value.metadata_props[NUMBER] = type(number).__name__
        return value

    def positions(self, value: Value) -> Value:
        """The row-major position of every element of a value, in the shape of the value."""
        sizes = sizes_of(value)
        end: Size = (
            math.prod(sizes) if sizes is not None else self._number("aten::numel", {"self": value}, "default")
        )
        shape = ir.Shape([end if isinstance(end, int) else None])
        flat = self.emit(
            "aten::arange", {"end": end, "dtype": DataType.INT64}, dtype=DataType.INT64, shape=shape
        )
        return self.reshape(flat, value)

    def cast(self, value: Value, dtype: DataType) -> Value:
        """The value as a tensor of another element type."""
        return self.emit("aten::to", {"self": value, "dtype": dtype}, "dtype", dtype=dtype, shape=value.shape)

    def size(self, value: Value, dim: int) -> Size:
        """One size of a value: an int where it is known, else a symbolic int."""
        if value.shape is not None and isinstance(value.shape[dim], int):
            return int(value.shape[dim])  # type: ignore[arg-type]
        return self._number("aten::sym_size", {"self": value, "dim": dim}, "int")

    def add(self, a: Size, b: Size) -> Size:
        """The sum of two ints, either of which may be symbolic."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        # Leaves out a node for the most common start, 0.
        if a == 0 or b == 0:
            return b if isinstance(a, int) else a
        return self._number("sym::add", {"a": a, "b": b}, "")

    def wrap_position(self, position: Value, size: Size) -> Size:
        """A position that may be negative, counted from the front."""
        # Symbolic integers are INT64, while TorchScript may index with an INT32 tensor.
        if position.dtype is not None and position.dtype != DataType.INT64:
            position = self.cast(position, DataType.INT64)
        return self._number("sym::mod", {"a": position, "b": size}, "")

    def reshape(self, value: Value, like: Value) -> Value:
        """The value in the shape of another one with the same number of elements."""
        if same_shape(value, like):
            return value
        return self._resize("reshape", "shape", value, like)

    def conform(self, value: Value, like: Value) -> Value:
        """The value cast and broadcast to the element type and shape of another one, as far as needed."""
        if like.dtype is None:
            value = self.emit("aten::type_as", {"self": value, "other": like}, shape=value.shape)
        elif value.dtype != like.dtype:
            value = self.cast(value, like.dtype)
        return value if same_shape(value, like) else self._resize("expand", "size", value, like)

    def _resize(self, operator: str, argument: str, value: Value, like: Value) -> Value:
        """The result of `reshape` or `expand` to the shape of another value."""
        sizes = sizes_of(like)
        # Only `reshape_as` and `expand_as` take the sizes from another tensor at run time.
        name = f"aten::{operator}_as" if sizes is None else f"aten::{operator}"
        arguments = {"self": value, "other": like} if sizes is None else {"self": value, argument: sizes}
        return self.emit(name, arguments, dtype=value.dtype, shape=like.shape)

    def _number(self, name: str, arguments: Mapping[str, object], overload: str) -> Value:
        value = self.emit(name, arguments, overload, dtype=DataType.INT64, shape=ir.Shape(()))
        value.metadata_props[NUMBER] = "int"
        return value


def detach_node(node: ir.Node) -> None:
    """Remove a node that no node of a graph reads; nodes outside of any graph may still read it."""
    assert node.graph is not None
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    node.graph.remove(node)


def is_unused(node: ir.Node) -> bool:
    """Whether nothing reads any output of the node."""
    return all(not value.uses() and not value.is_graph_output() for value in node.outputs)
