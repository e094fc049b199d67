"""Stores weights in one floating-point type and computes in another, with casts at the seams.

`FP16-FP32` stores weights as FLOAT16 and computes in FLOAT; `FP16` does both in FLOAT16.

1. FLOAT, FLOAT16 and BFLOAT16 are converted; other types stay, DOUBLE among them.
2. Inputs and outputs of the model keep their types, unless the caller wants them converted; inputs are
   followed by casts, outputs preceded by them.
3. An operator whose schema does not take the type of the activations at the model's opset computes in FLOAT
   between casts, and so does one of another domain, and one with sub-graphs.
4. Weights are the initializers of more than one element; others are stored as activations. Finite numbers
   that a type cannot hold become its largest ones.
5. Excluded operators and nodes keep their types between casts, and so do the weights that only they read;
   likewise nodes that divide by a weight with such numbers, because their results would be too large.
6. An input of an operator that takes FLOAT only, such as the scales of Resize, keeps it.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphError, UsageError
from ....registration.arguments import blocks
from ....registration.schemas import OperatorSchema, Parameter, operator_schema
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, is_onnx, title

TYPES = {"FP32": DataType.FLOAT, "FP16": DataType.FLOAT16, "BF16": DataType.BFLOAT16}
_FLOATS = frozenset(TYPES.values())
_CAST_AT_ONCE = (
    _FLOATS
    | {DataType.BOOL, DataType.DOUBLE}
    | {dtype for dtype in DataType if dtype.is_integer() and dtype.bitwidth >= 8}
)
"""Types from which one Cast gives what a Cast to FLOAT and another one give."""
_DIVISORS = {"BatchNormalization": 4, "Div": 1}
"""The input by which an operator divides."""


class ConvertElementTypes(ir.passes.InPlacePass):
    """Converts the weights and activations of the main graph.

    Args:
        types: `FP32`, `FP16` or `BF16` for both, or a pair such as `FP16-FP32`: weights, then activations.
        converts_interface: whether inputs and outputs of the model get the type of the activations, too.
        excluded: operators and nodes to leave as they are, by name.

    Attributes:
        types: as above.
        limited: for each weight with numbers beyond the range of its new type, how many became its largest.
        unused: the names in `excluded` that no node has.
    """

    def __init__(self, types: str, *, converts_interface: bool = False, excluded: Collection[str] = ()):
        names = types.upper().split("-")
        if len(names) > 2 or any(name not in TYPES for name in names):
            raise UsageError(
                "types must be FP16, BF16 or FP32, or a pair such as FP16-FP32 (weights, then activations), "
                f"not '{types}'; realize also takes INT8, INT4 and Q4_0 for weights (Q4_0-FP32)"
            )
        self.types = types
        self._weights, self._activations = TYPES[names[0]], TYPES[names[-1]]
        self._converts_interface = converts_interface
        self._excluded = frozenset(excluded)
        self.limited: dict[str, int] = {}
        self.unused: set[str] = set()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and report whether anything changed.

        Raises:
            GraphError: the opset cannot cast to a type, or the type of a value is unknown.
        """
        names = {name for node in model.graph for name in (node.name, node.op_type)}
        self.unused = {name for name in self._excluded if name not in names}
        conversion = _TypeConversion(
            model, self._weights, self._activations, self._converts_interface, self._excluded
        )
        is_modified = conversion.run()
        self.limited = conversion.limited
        return ir.passes.PassResult(model, is_modified)


class _TypeConversion:
    """One run over a graph."""

    def __init__(
        self,
        model: ir.Model,
        weights: DataType,
        activations: DataType,
        converts_interface: bool,
        excluded: frozenset[str],
    ):
        self._model = model
        self._converts_interface = converts_interface
        self._excluded = excluded
        self.limited: dict[str, int] = {}
        self._rewriter = Rewriter(model)
        self._weights = weights
        self._activations = activations
        self._casts: dict[tuple[ir.Value, DataType], ir.Value] = {}
        self._original: dict[ir.Value, DataType] = {}
        self._dividing: set[ir.Node] = set()
        self._modified = False

    def run(self) -> bool:
        """Convert the graph and report whether anything changed."""
        graph = self._model.graph
        nodes = list(graph)
        self._check(nodes)
        for value in (*graph.inputs, *graph.initializers.values(), *(v for n in nodes for v in n.outputs)):
            if value.dtype in _FLOATS and isinstance(value.type, ir.TensorType):
                self._original[value] = value.dtype
        for node in nodes:
            position = _DIVISORS.get(node.op_type, len(node.inputs))
            divisor = node.inputs[position] if position < len(node.inputs) else None
            if divisor in self._original and self._count_beyond_range(divisor):
                self._dividing.add(node)
        for value in list(graph.initializers.values()):
            self._convert_initializer(value)
        for value in graph.inputs if self._converts_interface else ():
            if value in self._original and value.const_value is None:
                value.type = ir.TensorType(self._activations)
                self._modified = True
        for node in nodes:
            self._convert_node(node)
        for output_index, value in enumerate(graph.outputs):
            if value in self._original:
                dtype = self._activations if self._converts_interface else self._original[value]
                self._restore_output_type(output_index, dtype)
        if self._modified:
            RemoveUnused()(self._model)
        return self._modified

    def _check(self, nodes: list[ir.Node]) -> None:
        schema = operator_schema("Cast", self._rewriter.opset)
        for dtype in (self._weights, self._activations):
            if schema is None or dtype not in schema.inputs[0].dtypes:
                raise GraphError(
                    f"opset {self._rewriter.opset} cannot cast to {dtype.name}; convert the model to a "
                    "higher opset first"
                )
        for node in nodes:
            for value in node.outputs:
                if value.type is None and (value.uses() or value.is_graph_output()):
                    remedy = (
                        ""
                        if is_onnx(node, node.op_type)
                        else "; lower(standard=True) (--standard) replaces operators of onnxruntime"
                    )
                    raise GraphError(
                        f"the element type of '{value.name}', which {title(node)} gives, is unknown{remedy}"
                    )

    def _convert_initializer(self, value: ir.Value) -> None:
        """Store an initializer in the type of weights, if a reader takes that."""
        tensor = value.const_value
        if value not in self._original or tensor is None or value.is_graph_input() or value.is_graph_output():
            return
        dtype = self._stored_type(tensor)
        readers = [
            None if self._is_excluded(node) else _parameter(node, input_index, self._rewriter.opset)
            for node, input_index in value.uses()
        ]
        if value.uses() and all(self._is_excluded(node) for node, _ in value.uses()):
            return
        if tensor.dtype == dtype or all(
            reader is not None and len(reader.dtypes & _FLOATS) == 1 for reader in readers
        ):
            return
        count = self._count_beyond_range(value)
        if count:
            self.limited[str(value.name)] = count
        value.const_value = _convert_tensor(tensor, dtype, value.name)
        value.type = ir.TensorType(dtype)
        self._modified = True

    def _stored_type(self, tensor: ir.TensorProtocol) -> DataType:
        return self._weights if tensor.size > 1 else self._activations

    def _count_beyond_range(self, value: ir.Value) -> int:
        """How many finite numbers of an initializer its new type cannot hold."""
        tensor = value.const_value
        if tensor is None or tensor.dtype.bitwidth <= (dtype := self._stored_type(tensor)).bitwidth:
            return 0
        array = tensor.numpy()
        return int((np.isfinite(array) & (np.abs(array) > np.float32(dtype.max))).sum())

    def _convert_node(self, node: ir.Node) -> None:
        schema = None if self._is_excluded(node) else _schema(node, self._rewriter.opset)
        # A Cast names its output type, which must stay.
        free = set() if schema is None or node.op_type == "Cast" else self._activation_variables(node, schema)
        for index, value in enumerate(node.inputs):
            if value is None or value not in self._original:
                continue
            parameter = None if schema is None else _formal_parameter(schema.inputs, index)
            if node.op_type == "Cast" and schema is not None:
                # A Cast reads any type: its input needs no further Cast.
                if node.outputs[0].dtype == value.dtype != self._original[value]:
                    self._rewriter.replace(node, [value])
                    return
                continue
            dtype = self._activations if parameter and parameter.variable in free else self._original[value]
            if value.dtype != dtype:
                node.replace_input_with(index, self._cast_once(value, dtype, node))
                self._modified = True
        for block in blocks(node):
            self._restore_types_inside(block, node)
        if schema is not None:
            for index, value in enumerate(node.outputs):
                parameter = _formal_parameter(schema.outputs, index)
                if value in self._original and parameter is not None and parameter.variable in free:
                    value.type = ir.TensorType(self._activations)

    def _is_excluded(self, node: ir.Node) -> bool:
        return node.op_type in self._excluded or node.name in self._excluded or node in self._dividing

    def _activation_variables(self, node: ir.Node, schema: OperatorSchema) -> set[str]:
        """The type variables of an operator that may be the type of the activations."""
        variables: set[str] = set()
        fixed_variables: set[str] = set()
        for formal, values in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
            for index, value in enumerate(values):
                parameter = _formal_parameter(formal, index)
                if value is None or value not in self._original or parameter is None:
                    continue
                takes = parameter.variable and self._activations in parameter.dtypes
                (variables if takes else fixed_variables).add(parameter.variable)
        # The type of an output follows the activations only if an input has the same variable.
        inputs = {
            p.variable for p in (_formal_parameter(schema.inputs, i) for i in range(len(node.inputs))) if p
        }
        # If one variable cannot change, none does: an operator of mixed types would mean something else.
        return set() if fixed_variables - {""} or not variables <= inputs else variables

    def _restore_types_inside(self, block: ir.Graph, node: ir.Node) -> None:
        """Let a sub-graph read outer values in the types that it was written for."""
        for inner in block:
            for index, value in enumerate(inner.inputs):
                if value in self._original and value.dtype != self._original[value]:
                    inner.replace_input_with(index, self._cast_once(value, self._original[value], node))
                    self._modified = True
            for nested in blocks(inner):
                self._restore_types_inside(nested, node)
        for index, value in enumerate(block.outputs):
            if value in self._original and value.dtype != self._original[value]:
                block.outputs[index] = self._cast_once(value, self._original[value], node)
                self._modified = True

    def _cast_once(self, value: ir.Value, dtype: DataType, reader: ir.Node) -> ir.Value:
        """The value in another type, cast in front of its first reader."""
        value = self._source_of_cast(value)
        if value.dtype == dtype:
            return value
        key = (value, dtype)
        if key not in self._casts:
            with self._rewriter.before(reader, value.name) as g:
                cast = g.op("Cast", value, to=int(dtype))
            cast.shape = value.shape
            self._casts[key] = cast
        return self._casts[key]

    def _source_of_cast(self, value: ir.Value) -> ir.Value:
        """The input of the Cast that computes a value if another Cast may read that input; else the value."""
        producer = value.producer()
        if producer is None or producer.op_type != "Cast" or producer.domain or self._is_excluded(producer):
            return value
        source = producer.inputs[0]
        # FLOAT has the numbers of these types, but for rounding.
        if value.dtype != DataType.FLOAT or source is None or source.dtype not in _CAST_AT_ONCE:
            return value
        return source

    def _restore_output_type(self, output_index: int, dtype: DataType) -> None:
        """Give an output of the model its type."""
        graph = self._model.graph
        value = graph.outputs[output_index]
        if value.dtype == dtype:
            return
        source, producer = self._source_of_cast(value), value.producer()
        if producer is not None and source.dtype == dtype and not value.uses():
            self._rewriter.replace(producer, [source])
            return
        node = ir.Node("", "Cast", [source], [ir.AttrInt64("to", int(dtype))], num_outputs=1)
        node.name = self._rewriter.unique(f"{value.name}/Cast")
        result = node.outputs[0]
        result.type, result.shape = ir.TensorType(dtype), value.shape
        graph.append(node)
        # Callers know the output by its name, so the new output takes it over.
        result.name, value.name = value.name, self._rewriter.unique(f"{value.name}_{value.dtype}".lower())
        graph.outputs[output_index] = result
        self._modified = True


def _schema(node: ir.Node, opset: int) -> OperatorSchema | None:
    if node.domain not in ("", "ai.onnx") or blocks(node):
        return None
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(value.type is not None and not isinstance(value.type, ir.TensorType) for value in values):
        return None
    return operator_schema(node.op_type, opset)


def _formal_parameter(parameters: tuple[Parameter, ...], index: int) -> Parameter | None:
    if index < len(parameters):
        return parameters[index]
    return parameters[-1] if parameters and parameters[-1].variadic else None


def _parameter(node: ir.Node, input_index: int, opset: int) -> Parameter | None:
    schema = _schema(node, opset)
    return None if schema is None else _formal_parameter(schema.inputs, input_index)


def _convert_tensor(tensor: ir.TensorProtocol, dtype: DataType, name: str | None) -> ir.TensorProtocol:
    """The tensor in another type, computed when it is needed."""

    def convert() -> ir.TensorProtocol:
        array = tensor.numpy().astype(np.float32)
        # A plain cast would turn large weights into infinities, such as the -1e9 of attention masks.
        largest = np.float32(dtype.max)
        clipped = np.where(np.isfinite(array), np.clip(array, -largest, largest), array)
        return ir.Tensor(clipped.astype(dtype.numpy()))

    return ir.LazyTensor(convert, dtype=dtype, shape=ir.Shape(tensor.shape.numpy()), name=name)
