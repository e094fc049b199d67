"""Replaces parsers of serialized `tf.train.Example` messages by inputs: the features that they read.

ONNX has no operator that parses messages, so the caller parses them. A feature is an input of its name:

- dense: `name`, [batch, *dense_shape];
- sparse: `name/indices` [count, 2], `name/values` [count], `name/dense_shape` [2], as in `tf.SparseTensor`;
- ragged: `name/values` [count] and `name/row_splits` [batch + 1], as in `tf.RaggedTensor`.

Source of the semantics: TensorFlow's OpDefs of ParseExample, ParseExampleV2 and ParseSingleExample.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from .....registration import KIND, CaptureError, ModelFileError
from .....registration.warning import warn
from .attributes import shape_of, text_of
from .nodes import Edge, GraphNode
from .scope import GraphScope, Unit

PARSERS = frozenset({"ParseExample", "ParseExampleV2", "ParseSingleExample"})
_MAXIMUM_SHOWN = 20
_SHAPE_KEEPING = frozenset({"Identity", "StopGradient", "EnsureShape"})
_RESHAPING = frozenset({"Identity", "Reshape", "ExpandDims", "Squeeze"})
"""Operators that return all elements of their first input."""


@dataclasses.dataclass(frozen=True)
class ParsedFeature:
    """One result of a parser.

    Attributes:
        key: the feature's name in the messages.
        part: "", or the part of a sparse or ragged feature: "/indices", "/values", ….
        order: the position among all results: features in order, the parts of each together.
        default: the index of the default among the node's inputs; None if there is none.
        sizes: -1 for an unknown size; None stands for the batch size, and text for a size that parts share.
    """

    key: str
    part: str
    order: tuple[int, int]
    default: int | None
    sizes: Sequence[int | str | None]

    @property
    def name(self) -> str:
        """The name of the input."""
        return self.key + self.part


@dataclasses.dataclass
class ParsedFeatures:
    """The inputs that replace parsers.

    Attributes:
        inputs: the inputs with their features, by the messages that are parsed, names and types.
        messages: the values of serialized messages.
    """

    inputs: dict[tuple[ir.Value, str, ir.DataType], tuple[ir.Value, ParsedFeature]] = dataclasses.field(
        default_factory=dict
    )
    messages: dict[ir.Value, GraphNode] = dataclasses.field(default_factory=dict)
    defaults: dict[ir.Value, str] = dataclasses.field(default_factory=dict)

    def begin(self, scope: GraphScope, edge: Edge) -> Unit:
        """Begin to make the input for a result of a parser."""
        # Each result that is read becomes an input, so each is a unit of its own.
        return Unit(edge, edge.node.inputs, lambda: self._add_input(scope, edge))

    def close(self, graph: ir.Graph) -> list[ir.Value]:
        """The inputs in the order of their features, after removing the messages that no node reads.

        The user is told which inputs the model has instead.
        """
        # A call needs all results of its function, of which the outputs may need few.
        for key, (value, _) in list(self.inputs.items()):
            if not value.uses() and not value.is_graph_output():
                del self.inputs[key]
                graph.initializers.pop(value.name or "", None)
        order = sorted(self.inputs, key=lambda key: self.inputs[key][1].order)
        for message, node in self.messages.items():
            lines = [self._describe(self.inputs[key][0]) for key in order if key[0] is message]
            if message in graph.inputs and not message.uses() and not message.is_graph_output():
                graph.inputs.remove(message)
            if not lines:
                continue
            hidden = len(lines) - _MAXIMUM_SHOWN
            more = [f"and {hidden} more"] if hidden > 0 else []
            warn(
                f"{node.label} parses serialized tf.train.Example messages, which ONNX cannot: the features "
                "that it reads are inputs of the model instead: "
                + "; ".join([*lines[:_MAXIMUM_SHOWN], *more])
            )
        return [self.inputs[key][0] for message in self.messages for key in order if key[0] is message]

    def _describe(self, value: ir.Value) -> str:
        dtype = value.dtype.name if value.dtype is not None else ""
        sizes = ", ".join(str(dim) for dim in value.shape or ())
        default = self.defaults.get(value)
        return f"'{value.name}' {dtype} [{sizes}]" + (f" (its default is {default})" if default else "")

    def _add_input(self, scope: GraphScope, edge: Edge) -> None:
        node = edge.node
        if scope.graph is not scope.emitter.graph:
            raise CaptureError(
                f"{node.label} parses messages within a loop or a branch; only parsers outside of them "
                "become inputs"
            )
        names = node.definition.input_arg if node.definition is not None else ()
        serialized = scope.values[node.inputs[[argument.name for argument in names].index("serialized")]]
        message, rank = _trace_message(serialized)
        if node.op == "ParseExample":
            rank = 1
        elif node.op == "ParseSingleExample":
            rank = 0
        if rank not in (0, 1):
            raise CaptureError(
                f"{node.label} parses messages of {'an unknown rank' if rank is None else f'rank {rank}'}; "
                "give the shape of the input, such as --inputs examples[-1]"
            )
        feature = _feature_of(scope, edge, is_batch=rank == 1)
        element_type = node.result_type(edge.output)
        if not isinstance(element_type, ir.DataType):
            raise ModelFileError(f"{node.label} has the feature '{feature.key}' of the type {element_type}")
        key = message, feature.name, element_type
        if key not in self.inputs:
            self.messages.setdefault(message, node)
            self.inputs[key] = self._make_input(scope, node, message, feature, element_type), feature
        scope.values[edge] = self.inputs[key][0]

    def _make_input(
        self,
        scope: GraphScope,
        node: GraphNode,
        message: ir.Value,
        feature: ParsedFeature,
        element_type: ir.DataType,
    ) -> ir.Value:
        value = ir.Value(
            name=scope.emitter.names.unique(feature.name),
            type=ir.TensorType(element_type),
            metadata_props={KIND: "user"},
        )
        number = list(self.messages).index(message)
        batch: int | str = f"batch_{number}" if number else "batch"
        if message.shape is not None and len(message.shape) == 1 and isinstance(message.shape[0], int):
            batch = message.shape[0]
        stem = "".join(letter if letter.isalnum() else "_" for letter in feature.key)
        dims: list[int | str] = []
        for position, size in enumerate(feature.sizes):
            if size == "row_splits" and isinstance(batch, int):
                dims.append(batch + 1)
            elif isinstance(size, str):
                dims.append(f"{stem}_{size}")
            else:
                dims.append(batch if size is None else size if size >= 0 else f"{stem}_{position}")
        value.shape = ir.Shape(dims)
        default = (
            None if feature.default is None else _constant_of(scope.values[node.inputs[feature.default]])
        )
        if default is not None and default.size:
            default_rank = sum(size is not None for size in feature.sizes)
            self._set_default(scope, value, default, dims, default_rank)
        return value

    def _set_default(
        self,
        scope: GraphScope,
        value: ir.Value,
        default: np.ndarray,
        dims: Sequence[int | str],
        default_rank: int,
    ) -> None:
        """Record the default of a dense feature; where all sizes are known, a caller may leave it out."""
        items = default.reshape(-1)[:4]
        text = ", ".join(repr(text_of(item)) if isinstance(item, bytes) else str(item) for item in items)
        self.defaults[value] = (
            f"[{text}, …]" if default.size > 4 else f"[{text}]" if default.size > 1 else text
        )
        sizes = [size for size in dims if isinstance(size, int)]
        # One example has no batch; the default is that of one example.
        of_example = sizes[len(dims) - default_rank :]
        if len(sizes) < len(dims) or np.prod(of_example, dtype=int) != default.size:
            return
        array = np.broadcast_to(default.reshape(of_example), sizes)
        if default.dtype.hasobject:
            value.const_value = ir.StringTensor(np.ascontiguousarray(array), name=value.name)
        else:
            value.const_value = ir.Tensor(np.ascontiguousarray(array), name=value.name)
        scope.emitter.graph.initializers.add(value)


def _trace_message(serialized: ir.Value) -> tuple[ir.Value, int | None]:
    """The value that messages come from, and the rank of the parsed tensor; None if it is unknown."""
    rank = None if serialized.shape is None else len(serialized.shape)
    value = serialized
    while (node := value.producer()) is not None and node.op_type in _SHAPE_KEEPING and node.inputs[0]:
        value = node.inputs[0]
        if rank is None and value.shape is not None:
            rank = len(value.shape)
    return value, rank


def _constant_of(value: ir.Value) -> np.ndarray | None:
    """The elements of a constant; None if they are computed, other than by a reshape."""
    while (node := value.producer()) is not None and node.op_type in _RESHAPING and node.inputs[0]:
        value = node.inputs[0]
    return None if value.const_value is None else value.const_value.numpy()


def _feature_of(scope: GraphScope, edge: Edge, *, is_batch: bool) -> ParsedFeature:
    """The feature of a result."""
    node = edge.node
    # An argument that is a list stands at several positions.
    offsets: dict[str, range] = {}
    first = 0
    for argument in node.definition.input_arg if node.definition is not None else ():
        count = len(node.types(argument))
        offsets[argument.name] = range(first, first + count)
        first += count
    sparse, dense = _keys(scope, node, offsets, "sparse_keys"), _keys(scope, node, offsets, "dense_keys")
    ragged = _keys(scope, node, offsets, "ragged_keys") if node.op == "ParseExampleV2" else []
    lead: list[int | str | None] = [None] if is_batch else []
    groups: list[tuple[Sequence[str], str, int, Sequence[int | str | None] | None]] = [
        (sparse, "/indices", 0, ["count", 1 + len(lead)]),
        (sparse, "/values", 1, ["count"]),
        (sparse, "/dense_shape", 2, [1 + len(lead)]),
        (dense, "", 0, None),
        (ragged, "/values", 0, ["count"]),
        (ragged, "/row_splits", 1, ["row_splits"]),
    ]
    position = edge.output
    for keys, part, part_number, sizes in groups:
        if position >= len(keys):
            position -= len(keys)
            continue
        before = 0 if keys is sparse else len(sparse) if keys is dense else len(sparse) + len(dense)
        if part == "/row_splits" and not is_batch:
            raise CaptureError(f"{node.label} parses one message; its ragged features are not supported")
        default = None
        if sizes is None:
            shapes = node.attribute("dense_shapes").list.shape
            shape = shape_of(shapes[position]) if position < len(shapes) else None
            if shape is None:
                raise ModelFileError(f"{node.label} states no shape of the feature '{keys[position]}'")
            sizes = [*lead, *shape]
            default = next(iter(offsets["dense_defaults"][position : position + 1]), None)
        # The parts of one feature belong together, other than in the order of results.
        return ParsedFeature(keys[position], part, (before + position, part_number), default, sizes)
    raise ModelFileError(f"{node.label} has no result {edge.output}")


def _keys(scope: GraphScope, node: GraphNode, offsets: dict[str, range], name: str) -> list[str]:
    """The names of features: an attribute of ParseSingleExample, a vector of V2, and scalars of V1."""
    if name not in offsets:
        return [text_of(key) for key in node.attribute(name).list.s]
    arrays: Iterable[np.ndarray | None] = (
        _constant_of(scope.values[node.inputs[position]]) for position in offsets[name]
    )
    keys: list[str] = []
    for array in arrays:
        if array is None:
            raise CaptureError(f"{node.label} computes the names of its features, which is not supported")
        keys += [text_of(key) if isinstance(key, bytes) else str(key) for key in array.reshape(-1)]
    return keys
