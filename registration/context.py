"""`GraphContext`: the interface that a symbolic function gets to the graph under construction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from . import arguments as convention
from . import runtimes, schemas
from .construction.constant_pool import to_array
from .construction.graph import Construction
from .dtypes import Number
from .emission import binding, ladder
from .emission.operand_checks import axis_from_front, outside_error
from .errors import GraphError, UnsupportedError
from .functions.registry import Registry, split_name
from .inference.size_vectors import filled_size
from .kinds import has_value, is_value


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A sub-block of the source node being lowered.

    Attributes:
        graph: its source graph. Its nodes may read values of the enclosing graphs.
    """

    graph: ir.Graph
    _context: GraphContext

    def inline(self, *arguments: Value | Number) -> list[Value]:
        """Lower the block at the current position; may be called several times.

        Args:
            arguments: one for each of the block's inputs.

        Returns:
            A value for each of the block's outputs.

        Raises:
            GraphError: the number of arguments differs from the number of the block's inputs.
        """
        g, formal = self._context, self.graph.inputs
        if len(arguments) != len(formal):
            raise GraphError(
                f"block '{self.graph.name}' has {len(formal)} inputs, but was called with {len(arguments)} "
                "arguments"
            )
        position = g.construction.position
        assert position.lower_block is not None, "the source node was entered without its blocks"
        values = [g.constant(a, f.dtype) for a, f in zip(arguments, formal, strict=True)]
        try:
            return position.lower_block(self.graph, values)
        finally:
            # Nodes emitted after the block belong to the outer source node again.
            g.construction.position = position


class GraphContext:
    """The graph under construction, the target opset, and the source node being lowered.

    Attributes:
        registry: where `call` looks up symbolic functions.
        construction: the graph's names, constants and limits, for emission and the driver.
    """

    __slots__ = ("construction", "registry")

    def __init__(self, graph: ir.Graph, opset: int, registry: Registry):
        self.registry = registry
        self.construction = Construction(graph, opset)

    @property
    def opset(self) -> int:
        """The ONNX opset of the graph."""
        return self.construction.opset

    @property
    def graph(self) -> ir.Graph:
        """The graph that nodes are appended to; inside `subgraph`, that sub-graph."""
        return self.construction.graph

    @property
    def node(self) -> ir.Node | None:
        """The source node being lowered, with its overload and expected outputs."""
        return self.construction.position.node

    @property
    def expected(self) -> Sequence[Value]:
        """The outputs of the source node being lowered, with their element types and shapes."""
        return self.node.outputs if self.node is not None else ()

    def owner(self, block: ir.Graph) -> ir.Node | None:
        """The source node that a sub-block belongs to; None for the model's graph."""
        return self.construction.owners.get(block)

    @property
    def blocks(self) -> list[Block]:
        """The sub-blocks of the source node being lowered, in the order of its attributes."""
        return [Block(graph, self) for graph in convention.blocks(self.node)] if self.node is not None else []

    def subgraph(
        self, build: Callable[..., Sequence[Value]], inputs: Sequence[Value] = (), name: str = "body"
    ) -> ir.Graph:
        """Build an ONNX sub-graph, for an attribute such as If's `then_branch` or Loop's `body`.

        Args:
            build: emits the sub-graph's nodes through this context and returns its outputs. It receives the
                formal inputs, and may use values of the enclosing graphs.
            inputs: values whose element types and shapes the formal inputs have.
        """
        # ONNX does not allow a sub-graph to use a name of an enclosing graph for another value.
        unique = self.construction.names.unique
        graph = ir.Graph([], [], nodes=[], name=unique(name or "body"))
        for value in inputs:
            formal = Value(name=unique(value.name or "input"), type=value.type, shape=value.shape)
            graph.inputs.append(formal)
        self.extend(graph, build)
        return graph

    def extend(self, graph: ir.Graph, build: Callable[..., Sequence[Value]]) -> None:
        """Append nodes to a sub-graph made by `subgraph`, and the values that `build` returns to its outputs.

        Used when its outputs depend on other sub-graphs, such as the other branch.
        """
        outer, self.construction.graph = self.graph, graph
        try:
            for result in build(*graph.inputs):
                graph.outputs.append(self._as_output(self.constant(result), graph))
        finally:
            self.construction.graph = outer

    def _as_output(self, value: Value, graph: ir.Graph) -> Value:
        """The value, or a copy if it cannot be an output of the graph because another graph made it."""
        producer = value.producer()
        if producer is not None and producer.graph is graph and not value.is_graph_output():
            return value
        [copy] = self.construction.append("Identity", [value], (), [value.type])
        copy.shape = value.shape
        return copy

    @overload
    def op(self, op_type: str, /, *inputs: object, outputs: Literal[1] = 1, **arguments: Any) -> Value: ...
    @overload
    def op(self, op_type: str, /, *inputs: object, outputs: int, **arguments: Any) -> list[Value]: ...
    def op(self, op_type: str, /, *inputs: object, outputs: int = 1, **arguments: Any) -> Any:
        """Emit an ONNX operator with the meaning of its newest version, at any opset.

        Arguments are bound by name to the operator's schema at this opset. If this opset's version refuses
        the arguments or means something else, the version ladder (`symbolics/onnx`) replaces the operator.

        Args:
            op_type: `Squeeze`, or `domain::Op` for an operator of another domain.
            inputs: its first inputs, in order; None omits one. Python numbers and lists become constants of
                the schema's type.
            outputs: the number of results.
            arguments: the others by schema name, whether an attribute or an input at this opset; None omits
                one.

        Returns:
            The result, or a list of them when `outputs` is more than one.

        Raises:
            EmissionError: this opset does not have the operator, an argument or an element type.
        """
        domain, _, name = op_type.rpartition("::")
        domain = "" if domain in ("onnx", "ai.onnx") else domain
        results = binding.emit(self, name, domain, inputs, arguments, outputs)
        return results[0] if outputs == 1 else results

    def _single_result(self, op_type: str, *inputs: object, **arguments: Any) -> Value:
        """The result of an ONNX operator that has one."""
        [result] = binding.emit(self, op_type, "", inputs, arguments, 1)
        return result

    def call(self, name: str, /, *positional: object, **named: Any) -> Value:
        """Call another symbolic function at this opset, and return its result.

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
                f"{name} has no symbolic function at opset {self.opset}", first_opset=first
            )
        result: Value = symbolic.call(self, positional, named)
        return result

    def call_outputs(self, name: str, /, *positional: object, **named: Any) -> list[Value]:
        """Like `call`, for a symbolic function that returns several results."""
        results: Any = self.call(name, *positional, **named)
        return list(results)

    @overload
    def op_of_any_data(
        self, op_type: str, /, *inputs: object, outputs: Literal[1] = 1, **arguments: Any
    ) -> Value: ...
    @overload
    def op_of_any_data(
        self, op_type: str, /, *inputs: object, outputs: int, **arguments: Any
    ) -> list[Value]: ...
    def op_of_any_data(self, op_type: str, /, *inputs: object, outputs: int = 1, **arguments: Any) -> Any:
        """Like `op`, for arbitrary data: indices may be negative, and sizes unknown.

        Below opset 11, Gather and similar operators take no negative indices. `op` cannot check computed
        indices, so its caller must know that they are not negative. Below opset 22, onnx's inference
        counts too many windows of a pooling with `ceil_mode`; this writes pads instead.
        """
        results = ladder.emit_of_any_data(self, op_type, inputs, arguments, outputs)
        return results[0] if outputs == 1 else results

    @overload
    def op_of_target(
        self, op_type: str, /, *inputs: object, outputs: Literal[1] = 1, **arguments: Any
    ) -> Value: ...
    @overload
    def op_of_target(
        self, op_type: str, /, *inputs: object, outputs: int, **arguments: Any
    ) -> list[Value]: ...
    def op_of_target(self, op_type: str, /, *inputs: object, outputs: int = 1, **arguments: Any) -> Any:
        """Emit an ONNX operator with the meaning of this opset's version; see `op`."""
        with ladder.use_target_version(self, op_type):
            return self.op(op_type, *inputs, outputs=outputs, **arguments)

    def has(
        self,
        op_type: str,
        *arguments: str,
        dtype: DataType | None = None,
        result: Value | None = None,
        **values: str,
    ) -> bool:
        """Whether this opset's version of an ONNX operator takes arguments and an element type.

        Args:
            arguments: names of inputs or attributes.
            dtype: an element type of its first input.
            result: a value; the operator must return its element type, and a tensor or a sequence as it is.
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
        """Whether the consumer, or every known runtime, has a kernel of an operator for a value's type."""
        consumer_has_kernel = op_type in self.construction.kernels
        return consumer_has_kernel or runtimes.has_kernel(op_type, value.dtype, self.opset)

    def constant(self, value: object, dtype: DataType | None = None) -> Value:
        """A constant tensor of a Python number, nested list, or numpy array.

        Args:
            dtype: its element type; by default that of an array, and BOOL, INT64 or FLOAT for Python numbers.
        """
        if is_value(value):
            return self.cast(value, dtype) if dtype is not None else value
        if isinstance(value, (list, tuple)) and has_value(value):
            return self.cast(self.stack(value), dtype) if dtype is not None else self.stack(value)
        return self.construction.constant(to_array(value, dtype))

    def reserve(self, *sizes: int) -> None:
        """Check the size of a constant against the limits before it is made.

        Raises:
            UnsupportedError: it would be too large for a model from an untrusted source.
        """
        self.construction.reserve(*sizes)

    def is_free(self, elements: int) -> bool:
        """Whether constants of this many elements are allowed for untrusted models too."""
        return self.construction.is_free(elements)

    def cast(self, value: Value, dtype: DataType) -> Value:
        """The value cast to another element type; unchanged if it already has that type."""
        if value.dtype == dtype:
            return value
        return self._single_result("Cast", value, to=int(dtype))

    def stack(self, items: Sequence[int | Value]) -> Value:
        """Concatenate ints and symbolic ints (zero-dim values) to a one-dimensional INT64 tensor."""
        pieces: list[Value | list[int]] = []
        for item in items:
            if isinstance(item, Value):
                constant = self.constant_value(item) if self.is_foldable(item) else None
                if constant is None:
                    pieces.append(self._as_list(item))
                    continue
                item = int(constant.item())
            if pieces and isinstance(pieces[-1], list):
                pieces[-1].append(int(item))
            else:
                pieces.append([int(item)])
        if len(pieces) == 1 and isinstance(pieces[0], Value):
            return pieces[0]
        values = [piece if isinstance(piece, Value) else self.constant(piece) for piece in pieces]
        if not values:
            return self.constant([])
        return values[0] if len(values) == 1 else self._single_result("Concat", *values, axis=0)

    def _as_list(self, value: Value) -> Value:
        """A zero-dim value as a tensor of one element; a Squeeze that made it is undone."""
        producer = value.producer()
        if producer is not None and producer.op_type == "Squeeze" and producer.inputs[0] is not None:
            source = producer.inputs[0]
            if source.shape is not None and source.shape.dims == (1,):
                return self.cast(source, DataType.INT64)
        if value.shape is not None and len(value.shape) == 1:
            return self.cast(value, DataType.INT64)
        return self._single_result("Unsqueeze", self.cast(value, DataType.INT64), axes=[0])

    def size(self, value: Value, dim: int) -> int | Value:
        """One size of a value: an int if it is known, else a zero-dim INT64 value."""
        rank = self.rank(value)
        if dim < 0:
            if rank is None:
                # An index from the end finds the size without the rank.
                end = None if dim == -1 else dim + 1
                last = self._single_result(
                    "Slice",
                    self._single_result("Shape", value),
                    starts=[dim],
                    ends=[end if end is not None else np.iinfo(np.int64).max],
                    axes=[0],
                )
                return self._single_result("Squeeze", last, axes=[0])
            dim += rank
        if rank is not None and not 0 <= dim < rank:
            raise outside_error(dim, rank)
        if value.shape is not None and isinstance(value.shape[dim], int):
            return int(value.shape[dim])  # type: ignore[arg-type]
        filled = filled_size(value, dim)
        if filled is not None:
            return filled
        return self._single_result(
            "Squeeze",
            self._single_result("Gather", self._single_result("Shape", value), [dim], axis=0),
            axes=[0],
        )

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the first dimension.

        Args:
            axis: from -rank to rank - 1; a negative one counts from the last dimension.
            rank: the number of dimensions of the tensor that has the axis.

        Raises:
            UnsupportedError: the tensor does not have the axis.
        """
        return axis_from_front(axis, rank)

    def dtype(self, value: Value) -> DataType | None:
        """The element type of a value, None if unknown."""
        return value.dtype

    def rank(self, value: Value) -> int | None:
        """The number of dimensions of a value, None if unknown."""
        shape = value.shape
        return None if shape is None else len(shape)

    def shape(self, value: Value) -> tuple[int | ir.SymbolicDim, ...] | None:
        """The sizes of a value, ints and symbolic dimensions; None if the rank is unknown."""
        shape = value.shape
        return None if shape is None else shape.dims

    def constant_value(self, value: Value) -> np.ndarray | None:
        """The contents of a constant or an initializer, None for anything computed."""
        return None if value.const_value is None else value.const_value.numpy()

    def is_foldable(self, value: Value) -> bool:
        """Whether arithmetic on the value may be folded: yes for constants made here, no for model state."""
        return self.construction.is_constant(value)

    def refuse(self, reason: str, first_opset: int | None = None) -> UnsupportedError:
        """An error to raise for what this opset cannot express; the driver adds the operator and module."""
        return UnsupportedError(reason, first_opset=first_opset)
