"""Converts an init_net and a predict_net to a source graph.

A net is a list of operators on named blobs, and may write a blob several times; each write becomes a new
value. The init_net runs first. The results of its fillers are the weights; its other operators become nodes
before those of the predict_net.
"""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir

from ....registration import KIND, MODULE, UNSHAPED, CaptureError, ModelFileError, Names, UsageError
from ....registration.arguments import source_node
from ....registration.warning import warn
from ...captured_graph.capture import Capture, Interface
from ...files.reading import Bounds
from .arguments import arguments_by_name, arguments_of, text_of, value_of
from .fillers import Fillers
from .input_descriptions import Description, ShapeArgument, parse_descriptions, read_value_info
from .messages import NetDef, OperatorDef
from .net_reading import read_net
from .operator_schemas import BOOL_INPUTS, EQUAL_QUANTIZATION, INTEGER_INPUTS, WINDOWS, table

INIT_NET, PREDICT_NET = "init_net", "predict_net"
_SUFFIXES = (".pb", ".pbtxt", ".prototxt")
_MAXIMUM_CONSTANT_SIZE = 4096
"""Integer weights of up to this many elements may be sizes, so they are constants."""
_CAFFE2_DOMAINS = ("", "caffe2")
_WEIGHTS = frozenset("filter bias W b scale mean var gamma beta Slope".split())
"""The names of operator inputs that are weights."""
_QUANTIZATION = ("Y_scale", "Y_zero_point")


def load_nets(
    path: str | os.PathLike[str],
    init_net: str | os.PathLike[str] | None,
    shapes: Mapping[str, ShapeArgument] | None,
    bounds: Bounds,
) -> Capture:
    """Capture the predict_net in a file.

    Args:
        path: the file of the predict_net.
        init_net: the file of the init_net. By default the one beside the predict_net with a similar name:
            init_net.pb beside predict_net.pb.
        shapes: the shapes of inputs, see `parse_descriptions`.
        bounds: bounds on memory and nodes.

    Raises:
        ModelFileError: a file cannot be read, is not a net, or contradicts itself.
        CaptureError: the nets cannot run: a blob is read before it is written.
        UsageError: `shapes` has another form, or names a blob that is not an input.
    """
    caller_descriptions = parse_descriptions(shapes)
    predict = read_net(path, bounds)
    file = init_net if init_net is not None else _find_init_net(path)
    init = read_net(file, bounds, may_be_empty=True) if file is not None else None
    described_inputs = {**read_value_info(path), **caller_descriptions}
    net = _Net(Fillers(bounds), described_inputs)
    if init is not None:
        net.initialize(init, _placeholders(init, predict, described_inputs))
    return net.capture(predict, caller_descriptions)


def _find_init_net(path: str | os.PathLike[str]) -> pathlib.Path | None:
    """Find the init_net in the folder of a predict_net, binary or text; None if there is none."""
    file = pathlib.Path(os.fsdecode(path))
    prefix, name, suffix_text = file.name.rpartition(PREDICT_NET)
    if not name:
        return None
    # The suffix of the predict_net first: the other encodings may be leftovers.
    candidates = [file.with_name(f"{prefix}{INIT_NET}{suffix}") for suffix in (suffix_text, *_SUFFIXES)]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


class _Net:
    """The source graph of a pair of nets under construction."""

    def __init__(self, fillers: Fillers, descriptions: Mapping[str, Description]):
        self._fillers = fillers
        self._descriptions = descriptions
        self._graph = ir.Graph([], [], nodes=[], opset_imports={"caffe2": 1}, name="main_graph")
        self._names = Names()
        self._blobs: dict[str, ir.Value] = {}
        self._quantization: dict[ir.Value, tuple[float, int]] = {}

    def initialize(self, init: NetDef, placeholders: set[str]) -> None:
        """Add the operators of the init_net, except those that only fill placeholders."""
        for index, operator in enumerate(init.op):
            if not operator.input and set(operator.output) and set(operator.output) <= placeholders:
                continue
            self._add(operator, f"operator {index} of the init_net", random=True)

    def capture(self, predict: NetDef, caller_descriptions: Mapping[str, Description]) -> Capture:
        """Add the operators of the predict_net, and finish."""
        operators = list(predict.op)
        inputs = self._declare_inputs(predict, operators)
        _warn_of_weights(operators, inputs, has_weights=bool(self._graph.initializers))
        unknown_names = [name for name in caller_descriptions if name not in inputs]
        if unknown_names:
            input_names = ", ".join(inputs) or "none"
            raise UsageError(
                f"shapes names '{unknown_names[0]}', which is not an input of the net; its inputs are "
                f"{input_names}"
            )
        for index, operator in enumerate(operators):
            self._add(operator, f"operator {index} of the predict_net", random=False)
        outputs = self._find_outputs(predict, operators)
        if self._fillers.random:
            filled_blobs = ", ".join(f"{blob} ({filler})" for blob, filler in self._fillers.random.items())
            text = "the init_net fills blobs with random numbers, which are not those that Caffe2 would draw"
            warn(f"{text}: {filled_blobs}"[:1000])
        for name in outputs:
            self._graph.outputs.append(self._blobs[name])
        interface = Interface(
            input_specification=None,
            output_specification=None,
            inputs=list(inputs),
            constants=[None] * len(inputs),
            outputs=list(range(len(outputs))),
            parameter_names=list(inputs),
        )
        model = ir.Model(self._graph, ir_version=10, metadata_props={UNSHAPED: "true"})
        return Capture(model, interface, output_names=outputs)

    def _declare_inputs(self, predict: NetDef, operators: list[OperatorDef]) -> list[str]:
        """Declare the external inputs that the init_net does not write.

        In a net without a list of external inputs, they are the blobs that are read before they are written.
        """
        declared = _blob_names(predict.external_input, "external_input")
        if not declared:
            written: set[str] = set()
            for operator in operators:
                unwritten = [name for name in operator.input if name not in written]
                declared += _blob_names(unwritten, f"operator {operator.type}")
                written.update(operator.output)
        # `external_input` also lists the weights, which the init_net has written.
        names = [name for name in dict.fromkeys(declared) if name not in self._blobs]
        readers = _first_readers(operators)
        for name in names:
            self._blobs[name] = self._add_input(name, readers.get(name))
        return names

    def _add_input(self, name: str, reader: tuple[OperatorDef, int] | None) -> ir.Value:
        """Add a graph input; without a description, its first reader implies element type and rank."""
        description = self._descriptions.get(name)
        dtype = description.dtype if description is not None else None
        shape = None if description is None else ir.Shape(description.shape)
        if dtype is None:
            dtype = ir.DataType.FLOAT
            if reader is not None:
                operator, index = reader
                argument_name = _input_name(operator, index)
                if argument_name in INTEGER_INPUTS.get(operator.type, ()):
                    dtype = ir.DataType.INT64
                elif argument_name in BOOL_INPUTS.get(operator.type, ()):
                    dtype = ir.DataType.BOOL
        if shape is None and reader is not None and reader[1] == 0:
            rank = _implied_rank(reader[0])
            shape = None if rank is None else ir.Shape([None] * rank)
        value = ir.Value(name=self._names.unique(name), type=ir.TensorType(dtype), shape=shape)
        self._graph.inputs.append(value)
        if description is not None and description.quantization is not None:
            self._quantization[value] = description.quantization
        return value

    def _find_outputs(self, predict: NetDef, operators: list[OperatorDef]) -> list[str]:
        """The external outputs; if the net lists none, the first results of operators that nobody reads."""
        declared = _blob_names(predict.external_output, "external_output")
        if not declared:
            read_names = {name for operator in operators for name in operator.input}
            declared = [op.output[0] for op in operators if len(op.output) and op.output[0] not in read_names]
        names = list(dict.fromkeys(declared))
        missing = [name for name in names if name not in self._blobs]
        if missing:
            raise CaptureError(f"output '{missing[0]}' of the predict_net is written by no operator")
        if not names:
            raise CaptureError("the predict_net has no outputs")
        # The caller gets integers instead of numbers, which is easily overlooked.
        quantized = next((name for name in names if self._blobs[name] in self._quantization), None)
        if quantized is not None:
            scale, zero_point = self._quantization[self._blobs[quantized]]
            text = f"the result is its integers, with the scale {scale} and the zero point {zero_point}"
            warn(f"output '{quantized}' is Int8: {text}")
        return names

    def _add(self, operator: OperatorDef, position_text: str, *, random: bool) -> None:
        """Add one operator: a weight for a filler, else a node."""
        operator_type = text_of(operator.type, position_text)
        inputs = _blob_names(operator.input, position_text)
        outputs = _blob_names(operator.output, position_text)
        operator_name = text_of(operator.name, position_text) or (outputs[0] if outputs else operator_type)
        label = f"{operator_type} '{operator_name}' ({position_text})"
        tensor = self._fillers.tensor(operator, label, random=random)
        if tensor is not None:
            self._blobs[outputs[0]] = self._add_weight(outputs[0], tensor)
            if operator_type.startswith("Int8"):
                # The scale and zero point of an Int8 weight are arguments of its filler.
                messages = arguments_by_name(operator, label)
                quantization_arguments = {
                    name: value_of(messages[name], label) for name in _QUANTIZATION if name in messages
                }
                self._quantize(self._blobs[outputs[0]], quantization_arguments, None)
            return
        values = []
        for name in inputs:
            if name not in self._blobs:
                raise CaptureError(f"{label} reads blob '{name}', which no operator before it writes")
            values.append(self._blobs[name])
        arguments = self._bind_arguments(operator, values, label)
        results = [ir.Value(name=self._names.unique(name)) for name in outputs]
        domain = text_of(operator.domain, position_text)
        # An operator of another domain must not be mistaken for Caffe2's of the same name.
        domain = "caffe2" if domain in _CAFFE2_DOMAINS else f"caffe2.{domain}"
        self._graph.append(
            source_node(
                f"{domain}::{operator_type}",
                arguments,
                outputs=results,
                node_name=self._names.unique(f"{operator_name}/{operator_type}"),
                metadata_props={MODULE: operator_name},
            )
        )
        if operator_type.startswith("Int8") and operator_type != "Int8Dequantize" and results:
            inherited = (
                self._quantization.get(values[0]) if values and operator_type in EQUAL_QUANTIZATION else None
            )
            self._quantize(results[0], arguments, inherited)
        # After the node, because an operator may write a blob that it reads.
        self._blobs.update(zip(outputs, results, strict=True))

    def _add_weight(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.Value(
            name=self._names.unique(name),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        if tensor.dtype in (ir.DataType.INT32, ir.DataType.INT64) and tensor.size <= _MAXIMUM_CONSTANT_SIZE:
            value.metadata_props[KIND] = "constant"
        self._graph.initializers.add(value)
        return value

    def _bind_arguments(self, operator: OperatorDef, values: list[ir.Value], label: str) -> dict[str, Any]:
        """The inputs and arguments of a node, by name."""
        schema = table().get(operator.type)
        arguments = arguments_of(operator, label)
        if schema is None:
            return {"inputs": values, **arguments}
        bound: dict[str, Any] = {}
        for index, name in enumerate(schema.inputs):
            if schema.variadic and index == len(schema.inputs) - 1:
                bound[name] = values[index:]
            elif index < len(values):
                bound[name] = values[index]
        if len(values) > len(schema.inputs) and not schema.variadic:
            raise ModelFileError(f"{label} has {len(values)} inputs, more than {len(schema.inputs)}")
        duplicate = next((name for name in bound if name in arguments), None)
        if duplicate is not None:
            raise ModelFileError(f"{label} has '{duplicate}' both as an input and as an argument")
        bound |= arguments
        self._bind_quantization(operator.type, schema.inputs, values, bound, label)
        return bound

    def _bind_quantization(
        self,
        operator_type: str,
        names: tuple[str, ...],
        values: list[ir.Value],
        bound: dict[str, Any],
        label: str,
    ) -> None:
        """Add the scales and zero points of Int8 inputs and results to the bound arguments."""
        quantizations = [self._quantization.get(value) for value in values]
        if not operator_type.startswith("Int8") or operator_type == "Int8Quantize":
            int8_value = next((value for value in values if value in self._quantization), None)
            if int8_value is not None:
                raise CaptureError(
                    f"{label} reads blob '{int8_value.name}', which is Int8; it needs floating-point numbers"
                )
            return
        plain_inputs = INTEGER_INPUTS.get(operator_type, ())
        for index, (value, quantization) in enumerate(zip(values, quantizations, strict=True)):
            if quantization is None and names[min(index, len(names) - 1)] not in plain_inputs:
                hint = (
                    f"; if it is an Int8 input, give its scale and zero point: {value.name}=uint8[…]@0.05:128"
                    if value in self._graph.inputs
                    else ""
                )
                raise CaptureError(f"{label} reads blob '{value.name}', which is not Int8{hint}")
        # An input that is not quantized needs an entry, so that both lists match the inputs.
        pairs = [quantization if quantization is not None else (1.0, 0) for quantization in quantizations]
        bound["input_scales"] = [scale for scale, _ in pairs]
        bound["input_zero_points"] = [zero_point for _, zero_point in pairs]
        if operator_type in EQUAL_QUANTIZATION and pairs:
            bound.setdefault("Y_scale", pairs[0][0])
            bound.setdefault("Y_zero_point", pairs[0][1])

    def _quantize(
        self, value: ir.Value, arguments: Mapping[str, Any], inherited: tuple[float, int] | None
    ) -> None:
        """Record the scale and zero point of an Int8 value."""
        scale, zero_point = inherited or (1.0, 0)
        scale = arguments.get("Y_scale", scale)
        zero_point = arguments.get("Y_zero_point", zero_point)
        if not isinstance(scale, (int, float)) or not isinstance(zero_point, int) or not scale > 0:
            raise ModelFileError(
                f"blob '{value.name}' has the scale {scale!r} and the zero point {zero_point!r}"[:300]
            )
        self._quantization[value] = float(scale), zero_point


def _placeholders(init: NetDef, predict: NetDef, described_inputs: Iterable[str]) -> set[str]:
    """The inputs that the init_net fills only so that they exist, as Caffe2's mobile exporter does.

    They are the inputs with a description. If no input has one and all are filled, the external inputs that
    are filled with a single zero count as placeholders, with a warning.
    """
    external = set(predict.external_input)
    described = external.intersection(described_inputs)
    writers = {name: operator for operator in init.op for name in operator.output}
    if described or not external or external - writers.keys():
        return described
    placeholders = {name for name in external if _is_single_zero(writers[name])}
    if placeholders:
        text = "the init_net fills these inputs with a single zero, which is taken as a placeholder"
        warn(f"{text}: {', '.join(sorted(placeholders))}"[:1000])
    return placeholders


def _is_single_zero(operator: OperatorDef) -> bool:
    """Whether a filler without inputs makes a single zero, of rank 1 or higher."""
    if operator.input or operator.type not in ("GivenTensorFill", "ConstantFill"):
        return False
    arguments = {argument.name: argument for argument in operator.arg}
    shape = list(arguments["shape"].ints) if "shape" in arguments else []
    value = arguments.get("values" if operator.type == "GivenTensorFill" else "value")
    numbers = [] if value is None else [*value.floats, value.f]
    return bool(shape) and set(shape) == {1} and not any(numbers)


def _blob_names(names: Iterable[str], label: str) -> list[str]:
    """The names of blobs."""
    blob_names = [text_of(name, label) for name in names]
    if "" in blob_names:
        raise ModelFileError(f"{label} has a blob without a name")
    return blob_names


def _warn_of_weights(operators: list[OperatorDef], inputs: list[str], *, has_weights: bool) -> None:
    """Warn of inputs that seem to be weights, by the operator input that reads them first.

    Without an init_net, every input but an operator's first seems to be a weight.
    """
    readers = _first_readers(operators)
    weights = []
    for name in inputs:
        operator, index = readers.get(name, (None, 0))
        if index and (not has_weights or _input_name(operator, index) in _WEIGHTS):
            weights.append(name)
    if weights:
        reason = "the init_net does not fill all weights" if has_weights else "there is no init_net"
        text = f"{reason}, so these blobs stay inputs: {', '.join(weights)}"
        # A net may have thousands of weights.
        warn(text if len(text) < 1000 else f"{text[:1000]}…")


def _first_readers(operators: list[OperatorDef]) -> dict[str, tuple[OperatorDef, int]]:
    """The first operator that reads each blob, with the index of its input."""
    readers: dict[str, tuple[OperatorDef, int]] = {}
    for operator in operators:
        for index, name in enumerate(operator.input):
            readers.setdefault(name, (operator, index))
    return readers


def _input_name(operator: OperatorDef, index: int) -> str:
    """The name of an input in the operator's schema; "" if the operator is unknown."""
    schema = table().get(operator.type)
    return schema.inputs[index] if schema is not None and index < len(schema.inputs) else ""


def _implied_rank(operator: OperatorDef) -> int | None:
    """The rank of the first input of an operator, if the operator implies it."""
    if operator.type in ("LRN", "NHWC2NCHW", "NCHW2NHWC", "ResizeNearest", "UpsampleBilinear"):
        return 4
    if operator.type not in WINDOWS:
        return None
    arguments = arguments_of(operator, operator.type)
    lists = [arguments.get(name) for name in ("kernels", "strides")]
    lists += [arguments["pads"][::2]] if isinstance(arguments.get("pads"), list) else []
    # A single number describes windows over images.
    count = next((len(numbers) for numbers in lists if isinstance(numbers, list) and numbers), 2)
    return count + 2
