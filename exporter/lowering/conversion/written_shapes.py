"""Checks by onnx's strict inference that the shapes of a converted model do not contradict each other.

A copied node is as valid as it was in the file. There are two ways in which a valid file becomes an invalid
model:

1. The operands of a node do not fit each other, which onnx does not see for its operator, but does for the
   nodes that replace it. They are checked once for each combination of attributes and shapes, unless emission
   has checked them.
2. A shape becomes known that onnx does not infer for the file, and contradicts what the file says of it. Then
   the whole model is checked.

Most conversions need neither. A model that onnx refuses is an error only if onnx takes its file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir
from onnx_ir import AttributeType, Value, serde

from ....registration import InvalidNode, InvalidNodesError, UnsupportedError, UnsupportedOperatorsError
from ....registration.arguments import blocks, every_node, graphs_of
from ....registration.inference.shape_inference import checks_operands
from ....registration.metadata import MODULE
from ....registration.validity.ranks import VECTORS
from ....registration.validity.sizes import COMPLETE
from ....registration.warning import warn
from ...files.reading import Bounds
from ...files.reading.subgraphs import with_subgraphs
from ..inference import InferenceError, infer_shapes
from .file_nodes.binding import type_message
from .prepared_models.preparation import copy_constants_inside, copy_of, message_without_weights

_FEW = 64
_SIZE_TYPES = (ir.DataType.INT32, ir.DataType.INT64)
"""Constants with more elements, or of other types, are not sizes or axes."""
_NODE = re.compile(r"\(op_type:(\w+)(?:, node name: ([^)]*))?\)")
_MARK = re.compile(
    r"\[\w+Error\] |Inference error\(s\): |Graph attribute inferencing failed: |\(op_type:[^)]*\): "
)

_PROPAGATION_OF_MATRIX = re.compile(r"Invalid rank for (Add|Sub|Mul) broadcasting")
"""An error to ignore: onnx propagates small integer matrices as vectors, which do not broadcast."""


class WrittenShapes:
    """Checks the shapes of one conversion.

    Not checked are nodes that are emitted as the same operator, and operators whose operands emission checks.

    Attributes:
        have_grown: whether a shape or size is known that the file does not tell.
    """

    def __init__(self, model: ir.Model, opset: int, bounds: Bounds):
        self._model = model
        self._opset = opset
        self._bounds = bounds
        self._checked: set[tuple[object, ...]] = set()
        self._watched: list[tuple[ir.Node, int]] = []
        self._file_is_valid: dict[bool, bool] = {}
        self.have_grown = False

    def compare(self, stated: ir.Shape | None, inferred: ir.Shape | None) -> None:
        """Record whether an inferred shape tells more than the file does, or contradicts it."""
        if self.have_grown or inferred is None or stated is inferred:
            return
        if stated is None or len(stated) != len(inferred):
            self.have_grown = True
            return
        pairs = zip(stated.dims, inferred.dims, strict=True)
        self.have_grown = any(isinstance(new, int) and old != new for old, new in pairs)

    def watch(self, node: ir.Node, nodes: Iterable[ir.Node]) -> None:
        """Record new nodes with computed sizes or axes that may become constant.

        Args:
            node: the node of the file.
            nodes: the copy of the node, or the nodes that replace it.
        """
        if self.have_grown:
            return
        for new in nodes:
            positions = () if new.domain else VECTORS.get(new.op_type, ())
            # If the file states all sizes of the results, new knowledge cannot contradict them.
            if not positions or _is_settled(node.outputs):
                continue
            for position in positions:
                vector, stated = _input(new, position), _input(node, position)
                if vector is not None and not _is_constant(vector):
                    self._watched.append((new, position))
                elif new.op_type == node.op_type and stated is not None and not _is_constant(stated):
                    # The input has become constant, or an attribute.
                    self.have_grown = True

    def check_replacement(self, node: ir.Node, nodes: Sequence[ir.Node], results: Sequence[object]) -> None:
        """Check the nodes that replace one node of the file.

        Raises:
            UnsupportedError: the nodes do not accept the operands, although the file is valid.
        """
        self.watch(node, nodes)
        is_same = len(nodes) == 1 and nodes[0].op_type == node.op_type
        if is_same or node.op_type in COMPLETE or all(map(_is_checked, nodes)):
            return
        signature = _signature(node, nodes)
        if signature in self._checked:
            return
        # Equal nodes have equal replacements: a model of a thousand layers is checked once.
        self._checked.add(signature)
        message = _fragment(node, nodes, results, self._opset)
        # Sizes that passes will fold are known by propagation.
        reason = None if message is None else self._reason(message, data_prop=True)
        if reason is not None and self._is_file_valid():
            raise UnsupportedError(f"it does not take its operands: {_clause(reason)}")

    @contextlib.contextmanager
    def faults_of_file(self, source_opset: int) -> Iterator[None]:
        """Turn an UnsupportedOperatorsError within the context into InvalidNodesError if the file is invalid.

        Raises:
            InvalidNodesError: no opset can express a node, and onnx finds contradicting shapes in the file.
        """
        try:
            yield
        except UnsupportedOperatorsError as error:
            if all(operator.first_opset is not None for operator in error.operators):
                raise
            message = _name_nodes(copy_constants_inside(message_without_weights(copy_of(self._model))))
            reason = self._reason(message) or self._reason(message, data_prop=True)
            if reason is None:
                raise
            text = f"the file is not valid at its opset {source_opset}, and cannot be written at another:"
            raise InvalidNodesError(text, [self._locate_node(self._model, reason)]) from error

    def check_model(self, model: ir.Model) -> None:
        """Check a whole model, if shapes have become known.

        Outputs that only the file declares otherwise get the shapes that their nodes compute, with a warning:
        runtimes take such files.

        Raises:
            InvalidNodesError: onnx refuses the model, but not its file.
        """
        # Sizes or axes that the file computes may be constant in the new model.
        if not self.have_grown and not any(
            node.graph is None or _is_constant(node.inputs[position]) for node, position in self._watched
        ):
            return
        message = _name_nodes(copy_constants_inside(message_without_weights(model)))
        # onnxruntime propagates sizes when it loads a file, and onnx's checker does not.
        for data_prop in (False, True):
            reason = self._reason(message, data_prop)
            if reason is None:
                continue
            if not self._is_file_valid(data_prop):
                # Both are refused with propagated sizes too.
                return
            if restate_outputs(model, message, data_prop, self._bounds):
                return
            text = "the model would have shapes that contradict each other:"
            raise InvalidNodesError(text, [self._locate_node(model, reason)])

    def _reason(self, message: onnx.ModelProto, data_prop: bool = False) -> str | None:
        """Return why strict inference refuses a model; None if it does not."""
        try:
            infer_shapes(message, data_prop=data_prop, strict=True, bounds=self._bounds)
        except (InferenceError, ValueError) as error:
            if data_prop and _PROPAGATION_OF_MATRIX.search(str(error)):
                return self._reason(message)
            return str(error)
        return None

    def _is_file_valid(self, data_prop: bool = False) -> bool:
        """Whether strict inference accepts the file's model."""
        if data_prop not in self._file_is_valid:
            message = copy_constants_inside(message_without_weights(copy_of(self._model)))
            self._file_is_valid[data_prop] = self._reason(message, data_prop) is None
        return self._file_is_valid[data_prop]

    def _locate_node(self, model: ir.Model, reason: str) -> InvalidNode:
        """Return the node that onnx's message names, with the value of the file that it computes."""
        # onnx lists enclosing nodes first.
        *_, (op_type, name) = [("model", ""), *_NODE.findall(_first_line(reason))]
        clause = _clause(reason)
        nodes = (node for node in every_node(model.graph) if node.op_type == op_type)
        node = next((node for node in nodes if name in (node.name, *_names(node.outputs))), None)
        if node is None:
            return InvalidNode(clause, name or "", "", op_type)
        own_result = next(iter(_names(node.outputs)), "")
        result = self._value_of_file(node)
        if result not in ("", own_result):
            clause += f"; it is one of the nodes that compute '{result}'"
        return InvalidNode(clause, node.name or "", own_result, op_type, node.metadata_props.get(MODULE, ""))

    def _value_of_file(self, node: ir.Node) -> str:
        """Return the name of the nearest value of the file that depends on a node's results; "" if none."""
        names = {
            name
            for graph in graphs_of(self._model.graph)
            for inner in graph
            for name in _names(inner.outputs)
        }
        # The list grows while it is walked: breadth first, so that the nearest value is named.
        waiting, seen = [node], {node}
        for following in waiting:
            for value in following.outputs:
                if value.name in names:
                    return value.name
                users = [user for user in value.consumers() if user not in seen]
                seen.update(users)
                waiting += users
        return ""


def _name_nodes(message: onnx.ModelProto) -> onnx.ModelProto:
    """Name all nodes of a message, because onnx's errors contain the names."""
    for graph in with_subgraphs(message.graph):
        for node in graph.node:
            node.name = node.name or (node.output[0] if node.output else "")
    return message


def _names(values: Iterable[Value]) -> list[str]:
    return [value.name for value in values if value.name]


def _is_settled(values: Iterable[Value]) -> bool:
    """Whether every size of values is a number or has a name."""
    for value in values:
        if value.shape is None:
            return False
        for size in value.shape.dims:
            if not isinstance(size, int) and _name(size) is None:
                return False
    return True


def _name(size: int | ir.SymbolicDim) -> int | str | None:
    """Return a size or its name; None if unknown, or if the name is a number of onnx's inference (unk__1)."""
    if isinstance(size, int):
        return size
    name = size.value
    return None if name is None or name.startswith("unk__") else name


def _is_constant(value: Value | None) -> bool:
    """Whether a value is a constant of a graph, or the result of a Constant."""
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    return value.const_value is not None or (producer is not None and producer.op_type == "Constant")


def _input(node: ir.Node, position: int) -> Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _is_checked(node: ir.Node) -> bool:
    """Whether emission has checked that the operands of a node fit each other."""
    return not node.domain and checks_operands(node.op_type) and _is_settled(node.outputs)


def _signature(node: ir.Node, nodes: Sequence[ir.Node]) -> tuple[object, ...]:
    """Return a key of everything that decides the shapes in a replacement."""
    inputs: list[object] = []
    for value in node.inputs:
        if value is None:
            inputs.append(None)
            continue
        tensor, contents = value.const_value, None
        if tensor is not None and tensor.dtype in _SIZE_TYPES and tensor.size <= _FEW:
            contents = tensor.tobytes()
        shape = None if value.shape is None else tuple(map(_name, value.shape.dims))
        inputs.append((value.dtype, shape, contents))
    attributes = tuple((name, _comparable(item)) for name, item in sorted(node.attributes.items()))
    return (node.domain, node.op_type, len(nodes), tuple(inputs), attributes)


def _comparable(attribute: ir.Attr) -> object:
    value = attribute.value
    if attribute.type in (AttributeType.INT, AttributeType.FLOAT, AttributeType.STRING):
        return value
    if attribute.type in (AttributeType.INTS, AttributeType.FLOATS, AttributeType.STRINGS):
        return tuple(value)
    # Graphs and tensors are compared by identity, which never merges different ones.
    return id(value)


def _fragment(
    node: ir.Node, nodes: Sequence[ir.Node], results: Sequence[object], opset: int
) -> onnx.ModelProto | None:
    """Make a model of some nodes, with the values that they read as inputs; None if a type is unknown."""
    message = onnx.ModelProto(ir_version=10, opset_import=[onnx.helper.make_opsetid("", opset)])
    graph = message.graph
    graph.name = "replacement"
    results_of_nodes = {value for inner in nodes for value in inner.outputs}
    for value in _outer_values(nodes, results_of_nodes):
        tensor = value.const_value
        if tensor is not None and tensor.size <= _FEW and not value.is_graph_input():
            graph.initializer.append(serde.serialize_tensor(tensor))
            graph.initializer[-1].name = str(value.name)
            continue
        if value.type is None:
            return None
        graph.input.add(name=str(value.name)).type.ParseFromString(type_message(value))
    graph.node.extend(map(serde.serialize_node, nodes))
    # onnx infers no type for the results of some operators, such as GroupNormalization.
    for value in results_of_nodes:
        if value.name and isinstance(value.type, ir.TensorType) and value not in results:
            graph.value_info.add(name=value.name).type.tensor_type.elem_type = int(value.type.dtype)
    for output, result in zip(node.outputs, results, strict=False):
        if result is not None and result in results_of_nodes and output.type is not None:
            graph.output.add(name=str(result.name)).type.ParseFromString(type_message(output))
    return message


def _outer_values(nodes: Iterable[ir.Node], inside: set[Value]) -> dict[Value, None]:
    """Return the values that nodes and their sub-graphs read from outside, in order."""
    read: dict[Value, None] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in inside:
                read[value] = None
        for block in blocks(node):
            within = {*inside, *block.inputs, *block.initializers.values()}
            within.update(value for inner in block for value in inner.outputs)
            read.update(_outer_values(block, within))
            read.update((value, None) for value in block.outputs if value not in within)
    return read


def _first_line(reason: str) -> str:
    """Return the first error in a message of onnx."""
    return reason.strip().partition("\n")[0]


def _clause(reason: str) -> str:
    """Return the first error in a message of onnx, without its markers, at most 200 characters."""
    return _MARK.sub("", " ".join(_first_line(reason).split())).strip()[:200]


def restate_outputs(model: ir.Model, message: onnx.ModelProto, data_prop: bool, bounds: Bounds) -> bool:
    """Give the outputs the shapes that their nodes compute; return whether nothing contradicts these.

    Args:
        message: the serialized model; it loses the shapes of its outputs.
    """
    for info in message.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    try:
        inferred = infer_shapes(message, data_prop=data_prop, strict=True, bounds=bounds)
    except (InferenceError, ValueError):
        return False
    for value, info in zip(model.graph.outputs, inferred.graph.output, strict=True):
        shape = serde.deserialize_type_proto_for_shape(info.type)
        if shape is not None and not _can_be_equal(value.shape, shape):
            warn(
                f"the file declares that output '{value.name}' has the shape {value.shape}, but its "
                f"nodes compute {shape}, which the new file declares"
            )
            value.shape = shape
    return True


def _can_be_equal(stated: ir.Shape | None, computed: ir.Shape) -> bool:
    """Whether two shapes have equal ranks and no different numbers."""
    if stated is None or len(stated) != len(computed):
        return stated is None
    pairs = zip(stated.dims, computed.dims, strict=True)
    return not any(isinstance(old, int) and isinstance(new, int) and old != new for old, new in pairs)
