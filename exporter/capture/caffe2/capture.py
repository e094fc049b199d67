"""Converts an init_net and a predict_net to a source graph.

A net is a list of operators on named blobs, and may write a blob several times; each write becomes a new
value. The init_net runs first. What its fillers make are the weights; its other operators become nodes in
front of those of the predict_net.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir

from ....registration import KIND, MODULE, UNSHAPED, CaptureError, ModelFileError, Names, UsageError
from ....registration.arguments import source_node
from ....registration.warning import warn
from ...files.reading import Bounds
from ...source.capture import Capture, Interface
from .arguments import arguments_of, by_name, text_of, value_of
from .fillers import Fillers
from .operators import BOOL_INPUTS, EQUAL_QUANTIZATION, INTEGER_INPUTS, WINDOWS, table
from .reading import read_net
from .shapes import Description, Given, parse_descriptions, read_value_info

INIT_NET, PREDICT_NET = "init_net", "predict_net"
_SUFFIXES = (".pb", ".pbtxt", ".prototxt")
_SMALL = 4096
"""Integers of up to this many elements may be sizes."""
_OWN_DOMAINS = ("", "caffe2")
_WEIGHTS = frozenset("filter bias W b scale mean var gamma beta Slope".split())
"""Inputs of operators that are weights."""
_QUANTIZATION = ("Y_scale", "Y_zero_point")


def load_nets(
    path: str | os.PathLike,
    init_net: str | os.PathLike | None,
    shapes: Mapping[str, Given] | None,
    bounds: Bounds,
) -> Capture:
    """Capture the predict_net in a file.

    Args:
        path: the file of the predict_net.
        init_net: the file of the init_net. By default the one beside a predict_net, which is named like it:
            init_net.pb beside predict_net.pb.
        shapes: the shapes of inputs, see `shapes.parse_descriptions`.
        bounds: what the files may take.

    Raises:
        ModelFileError: a file cannot be read, holds no net, or contradicts itself.
        CaptureError: the nets cannot run: a blob is read before it is written.
        UsageError: `shapes` has another form, or names no input.
    """
    given = parse_descriptions(shapes)
    predict = read_net(path, bounds)
    file = init_net if init_net is not None else _find_init_net(path)
    init = read_net(file, bounds, may_be_empty=True) if file is not None else None
    described_inputs = {**read_value_info(path), **given}
    net = _Net(Fillers(bounds), described_inputs)
    if init is not None:
        net.initialize(init, _placeholders(init, predict, described_inputs))
    return net.capture(predict, given)


def _find_init_net(path: str | os.PathLike) -> pathlib.Path | None:
    """Find the init_net in the folder of a predict_net, binary or text; None if there is none."""
    file = pathlib.Path(os.fsdecode(path))
    before, name, after = file.name.rpartition(PREDICT_NET)
    if not name:
        return None
    candidates = [file.with_name(f"{before}{INIT_NET}{suffix}") for suffix in (after, *_SUFFIXES)]
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

    def initialize(self, init: Any, placeholders: set[str]) -> None:
        """Add the operators of the init_net, except those that only allocate inputs."""
        for index, operator in enumerate(init.op):
            if not operator.input and set(operator.output) and set(operator.output) <= placeholders:
                continue
            self._add(operator, f"operator {index} of the init_net", random=True)

    def capture(self, predict: Any, given: Mapping[str, Description]) -> Capture:
        """Add the operators of the predict_net, and finish."""
        operators = list(predict.op)
        inputs = self._declare_inputs(predict, operators)
        _warn_of_weights(operators, inputs, has_weights=bool(self._graph.initializers))
        unknown = [name for name in given if name not in inputs]
        if unknown:
            known = ", ".join(inputs) or "none"
            raise UsageError(
                f"shapes names '{unknown[0]}', which is not an input of the net; its inputs are {known}"
            )
        for index, operator in enumerate(operators):
            self._add(operator, f"operator {index} of the predict_net", random=False)
        outputs = self._outputs(predict, operators)
        if self._fillers.random:
            filled = ", ".join(f"{blob} ({kind})" for blob, kind in self._fillers.random.items())
            text = "the init_net fills blobs with random numbers, which are not those that Caffe2 would draw"
            warn(f"{text}: {filled}"[:1000])
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

    def _declare_inputs(self, predict: Any, operators: list[Any]) -> list[str]:
        """Declare the external inputs that the init_net does not write.

        In a net without a list of external inputs, they are the blobs that are read before they are written.
        """
        declared = _blob_names(predict.external_input, "external_input")
        if not declared:
            written: set[str] = set()
            for operator in operators:
                read = [name for name in operator.input if name not in written]
                declared += _blob_names(read, f"operator {operator.type}")
                written.update(operator.output)
        names = [name for name in dict.fromkeys(declared) if name not in self._blobs]
        readers = _first_readers(operators)
        for name in names:
            self._blobs[name] = self._input(name, readers.get(name))
        return names

    def _input(self, name: str, reader: tuple[Any, int] | None) -> ir.Value:
        """Make a graph input; its first reader implies an unstated element type and rank."""
        known = self._descriptions.get(name)
        dtype = known.dtype if known is not None else None
        shape = None if known is None else ir.Shape(known.shape)
        if dtype is None:
            dtype = _read_as(*reader) if reader is not None else ir.DataType.FLOAT
        if shape is None and reader is not None and reader[1] == 0:
            rank = _rank_read(reader[0])
            shape = None if rank is None else ir.Shape([None] * rank)
        value = ir.Value(name=self._names.unique(name), type=ir.TensorType(dtype), shape=shape)
        self._graph.inputs.append(value)
        return value

    def _outputs(self, predict: Any, operators: list[Any]) -> list[str]:
        """Return the external outputs; without a list of them, the unread first results of operators."""
        declared = _blob_names(predict.external_output, "external_output")
        if not declared:
            read = {name for operator in operators for name in operator.input}
            declared = [op.output[0] for op in operators if len(op.output) and op.output[0] not in read]
        names = list(dict.fromkeys(declared))
        missing = [name for name in names if name not in self._blobs]
        if missing:
            raise CaptureError(f"output '{missing[0]}' of the predict_net is written by no operator")
        if not names:
            raise CaptureError("the predict_net has no outputs")
        quantized = next((name for name in names if self._blobs[name] in self._quantization), None)
        if quantized is not None:
            scale, zero_point = self._quantization[self._blobs[quantized]]
            text = f"the result is its integers, with the scale {scale} and the zero point {zero_point}"
            warn(f"output '{quantized}' is Int8: {text}")
        return names

    def _add(self, operator: Any, place: str, *, random: bool) -> None:
        """Add one operator: a weight for a filler, else a node."""
        kind = text_of(operator.type, place)
        inputs, outputs = _blob_names(operator.input, place), _blob_names(operator.output, place)
        operator_name = text_of(operator.name, place) or (outputs[0] if outputs else kind)
        label = f"{kind} '{operator_name}' ({place})"
        tensor = self._fillers.tensor(operator, label, random=random)
        if tensor is not None:
            self._blobs[outputs[0]] = self._weight(outputs[0], tensor)
            if kind.startswith("Int8"):
                messages = by_name(operator, label)
                own = {name: value_of(messages[name], label) for name in _QUANTIZATION if name in messages}
                self._quantize(self._blobs[outputs[0]], own, None)
            return
        values = []
        for name in inputs:
            if name not in self._blobs:
                raise CaptureError(f"{label} reads blob '{name}', which no operator before it writes")
            values.append(self._blobs[name])
        arguments = self._arguments(operator, values, label)
        results = [ir.Value(name=self._names.unique(name)) for name in outputs]
        domain = text_of(operator.domain, place)
        domain = "caffe2" if domain in _OWN_DOMAINS else f"caffe2.{domain}"
        self._graph.append(
            source_node(
                f"{domain}::{kind}",
                arguments,
                outputs=results,
                node_name=self._names.unique(f"{operator_name}/{kind}"),
                metadata_props={MODULE: operator_name},
            )
        )
        if kind.startswith("Int8") and kind != "Int8Dequantize" and results:
            first = self._quantization.get(values[0]) if values and kind in EQUAL_QUANTIZATION else None
            self._quantize(results[0], arguments, first)
        self._blobs.update(zip(outputs, results, strict=True))

    def _weight(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.Value(
            name=self._names.unique(name),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        if tensor.dtype in (ir.DataType.INT32, ir.DataType.INT64) and tensor.size <= _SMALL:
            value.metadata_props[KIND] = "constant"
        self._graph.initializers.add(value)
        return value

    def _arguments(self, operator: Any, values: list[ir.Value], label: str) -> dict[str, Any]:
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
        twice = next((name for name in bound if name in arguments), None)
        if twice is not None:
            raise ModelFileError(f"{label} has '{twice}' both as an input and as an argument")
        bound |= arguments
        self._bind_quantization(operator.type, schema.inputs, values, bound, label)
        return bound

    def _bind_quantization(
        self, kind: str, names: tuple[str, ...], values: list[ir.Value], bound: dict[str, Any], label: str
    ) -> None:
        """Write the scales and zero points of Int8 inputs and results on the node.

        Raises:
            CaptureError: an operator reads an Int8 blob that it does not take, or another one where it does.
        """
        found = [self._quantization.get(value) for value in values]
        if not kind.startswith("Int8") or kind == "Int8Quantize":
            odd = next((value for value, each in zip(values, found, strict=True) if each is not None), None)
            if odd is not None:
                raise CaptureError(
                    f"{label} reads blob '{odd.name}', which is Int8; it needs floating-point numbers"
                )
            return
        plain = INTEGER_INPUTS.get(kind, ())
        for index, (value, each) in enumerate(zip(values, found, strict=True)):
            if each is None and names[min(index, len(names) - 1)] not in plain:
                raise CaptureError(f"{label} reads blob '{value.name}', which is not Int8")
        pairs = [each if each is not None else (1.0, 0) for each in found]
        bound["input_scales"] = [scale for scale, _ in pairs]
        bound["input_zero_points"] = [zero_point for _, zero_point in pairs]
        if kind in EQUAL_QUANTIZATION and pairs:
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


def _placeholders(init: Any, predict: Any, described_inputs: Iterable[str]) -> set[str]:
    """The inputs that the init_net fills so that they exist, as Caffe2's exporter for mobiles writes it.

    They are those with a description. If a net has no description and would have no inputs, they are the
    external inputs that hold a single zero, of which it warns.
    """
    external = set(predict.external_input)
    named = external.intersection(described_inputs)
    filled = {name: operator for operator in init.op for name in operator.output}
    if named or not external or external - filled.keys():
        return named
    found = {name for name in external if _is_single_zero(filled[name])}
    if found:
        text = "the init_net fills these inputs with a single zero, which is taken as a placeholder"
        warn(f"{text}: {', '.join(sorted(found))}"[:1000])
    return found


def _is_single_zero(operator: Any) -> bool:
    """Whether a filler without inputs makes one zero of rank 1 or more."""
    if operator.input or operator.type not in ("GivenTensorFill", "ConstantFill"):
        return False
    arguments = {argument.name: argument for argument in operator.arg}
    shape = list(arguments["shape"].ints) if "shape" in arguments else []
    value = arguments.get("values" if operator.type == "GivenTensorFill" else "value")
    held = [] if value is None else [*value.floats, value.f]
    return bool(shape) and set(shape) == {1} and not any(held)


def _blob_names(names: Iterable[str], label: str) -> list[str]:
    """The names of blobs.

    Raises:
        ModelFileError: one is empty, or not UTF-8.
    """
    found = [text_of(name, label) for name in names]
    if "" in found:
        raise ModelFileError(f"{label} has a blob without a name")
    return found


def _warn_of_weights(operators: list[Any], inputs: list[str], *, has_weights: bool) -> None:
    """Warn of inputs that seem to be weights: without an init_net every input but an operator's first."""
    readers = _first_readers(operators)
    weights = []
    for name in inputs:
        operator, index = readers.get(name, (None, 0))
        if index and (not has_weights or _input_name(operator, index) in _WEIGHTS):
            weights.append(name)
    if weights:
        reason = "the init_net does not fill all weights" if has_weights else "there is no init_net"
        text = f"{reason}, so these blobs stay inputs: {', '.join(weights)}"
        warn(text if len(text) < 1000 else f"{text[:1000]}…")


def _first_readers(operators: list[Any]) -> dict[str, tuple[Any, int]]:
    """Return the first operator that reads each blob, and the index of its input."""
    found: dict[str, tuple[Any, int]] = {}
    for operator in operators:
        for index, name in enumerate(operator.input):
            found.setdefault(name, (operator, index))
    return found


def _input_name(operator: Any, index: int) -> str:
    """The name of an input in the operator's schema, "" if there is none."""
    schema = table().get(operator.type)
    return schema.inputs[index] if schema is not None and index < len(schema.inputs) else ""


def _read_as(operator: Any, index: int) -> ir.DataType:
    """The default element type of an input: FLOAT, unless its reader needs another one."""
    name = _input_name(operator, index)
    if name in INTEGER_INPUTS.get(operator.type, ()):
        return ir.DataType.INT64
    return ir.DataType.BOOL if name in BOOL_INPUTS.get(operator.type, ()) else ir.DataType.FLOAT


def _rank_read(operator: Any) -> int | None:
    """The rank of the first input of an operator, if the operator implies it."""
    if operator.type in ("LRN", "NHWC2NCHW", "NCHW2NHWC", "ResizeNearest", "UpsampleBilinear"):
        return 4
    if operator.type not in WINDOWS:
        return None
    arguments = arguments_of(operator, operator.type)
    lists = [arguments.get(name) for name in ("kernels", "strides")]
    lists += [arguments["pads"][::2]] if isinstance(arguments.get("pads"), list) else []
    count = next((len(found) for found in lists if isinstance(found, list) and found), 2)
    return count + 2
