"""Single operators with random parameters: a file is valid, or nothing is written.

Each base is one call of an operator that is right: the records of TensorFlow's, Caffe2's and PyTorch's
operators, and the node cases of ONNX. A case changes arguments, constants, ranks, sizes and element types of
a base, and lowers it. What is written must pass onnx's checker with full checks, and onnxruntime must load
it; what is not written must be refused by an error that is not a fault of a symbolic function.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import importlib
import pathlib
import random
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

import opsetta
from opsetta.exporter.lowering import conversion
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import FROZEN, UNSHAPED, default_registry
from opsetta.registration.arguments import arguments, blocks, overloaded_name, source_node

OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23)
"""The opsets that the installed onnxruntime loads."""
VALID, REFUSED, NO_KERNEL, INVALID, RAW = "valid", "refused", "no kernel", "invalid", "raw error"
NO_CALL = "refused by PyTorch"
COPIED = "invalid like its source"
"""A file of ONNX that had been invalid before it was converted: the conversion's last check judges these."""
FAILED = (INVALID, RAW)
_INTEGERS = (-3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 100)
_FLOATS = (0.0, -1.0, 0.5, 1.0, 3.0, 1e-6, float("inf"), float("nan"))
_WORDS = (
    "",
    "bad",
    "SAME",
    "VALID",
    "NCHW",
    "NHWC",
    "constant",
    "reflect",
    "linear",
    "nearest",
    "sum",
    "mean",
)
_DTYPES = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT32", "INT64", "INT8", "UINT8", "BOOL")
_SYMBOLIC = "lowering "
"""How the text of an error begins that wraps a fault of a symbolic function."""


@dataclasses.dataclass
class Base:
    """One call of an operator.

    Attributes:
        name: the operator and the record.
        make: makes a new model with the call: a source model, or an ONNX file.
    """

    name: str
    make: Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    number: int
    kind: str
    name: str
    opset: int
    changes: str
    detail: str = ""

    def __str__(self) -> str:
        return f"case {self.number}: {self.name} at {self.opset}, {self.changes}: {self.kind}: {self.detail}"


def _tensorflow() -> list[Base]:
    from ..tensorflow import checks, records

    def make(record: Any, stored: Any) -> ir.Model:
        model, _ = checks.source_model(record, stored, checks.KNOWN)
        model.metadata_props.update({UNSHAPED: "true", FROZEN: "true"})
        return model

    bases = []
    for subject, listed in sorted(records.subjects().items()):
        results = checks.stored(subject)
        for record in listed:
            if record.name in results:
                bases.append(
                    Base(f"tf::{record.name}", functools.partial(make, record, results[record.name]))
                )
    return bases


def _caffe2() -> list[Base]:
    from opsetta.exporter.capture.caffe2.net_capture import load_nets
    from opsetta.exporter.files.reading.bounds import BOUNDS

    from ..exporter.capture.caffe2 import nets, records

    def make(record: Any) -> ir.Model:
        init, predict = nets.Net("init"), nets.Net("predict")
        names = [f"x{index}" for index in range(len(record.inputs))]
        shapes = {}
        for index, (name, array) in enumerate(zip(names, record.inputs, strict=True)):
            if index in record.weights:
                init.fill(name, array)
            else:
                shapes[name] = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        outputs = [f"y{index}" for index in range(len(record.expected))]
        predict.add(record.kind, names, outputs, **record.arguments)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nets.write(pathlib.Path(folder), predict.finish(names, outputs), init.message)
            path = pathlib.Path(folder) / "predict_net.pb"
            return load_nets(path, None, shapes, BOUNDS).source

    return [Base(f"caffe2::{record.name}", functools.partial(make, record)) for record in records.RECORDS]


def _onnx() -> list[Base]:
    from ..conversion.cases import all_cases

    return [
        Base(f"onnx::{case.name}", functools.partial(copy.deepcopy, case.model))
        for case in all_cases()
        if case.model is not None and "sequence" not in case.name and "optional" not in case.name
    ]


def _pytorch() -> list[Base]:
    """Every node of the source graphs of the records that compare operators with eager PyTorch."""
    from ..parity import records

    bases: list[Base] = []
    seen: collections.Counter[str] = collections.Counter()
    for path in sorted(pathlib.Path(str(records.__file__)).parent.glob("test_*.py")):
        module = importlib.import_module(f"{records.__package__}.{path.stem}")
        for record in getattr(module, "RECORDS", ()):
            for node in _source_nodes(record):
                name = overloaded_name(node)
                seen[name] += 1
                if seen[name] <= _CALLS:
                    bases.append(Base(f"{name}-{record.name}", functools.partial(_alone, node)))
    return bases


_CALLS = 6
"""How many calls of one PyTorch operator are bases."""


def _source_nodes(record: Any) -> Iterator[ir.Node]:
    from ..parity.records import Record, _Call

    if not isinstance(record, Record):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = opsetta.export(_Call(record.function), record.inputs, opset=record.opsets[-1])
    except opsetta.OpsettaError:
        return
    for node in program.source.graph:
        if not blocks(node) and all(
            value is None or isinstance(value.type, ir.TensorType) for value in node.inputs
        ):
            yield node


def _alone(node: ir.Node) -> ir.Model:
    """A source model with one node."""
    inputs: list[ir.Value] = []
    constants: list[ir.Value] = []
    copies: dict[ir.Value, ir.Value] = {}

    def copied(item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [copied(part) for part in item]
        if not isinstance(item, ir.Value):
            return item
        if item not in copies:
            value = ir.Value(
                name=f"in{len(copies)}", type=item.type, shape=item.shape, const_value=item.const_value
            )
            value.metadata_props.update(item.metadata_props)
            (inputs if item.const_value is None else constants).append(value)
            copies[item] = value
        return copies[item]

    named = {name: copied(item) for name, item in arguments(node).items()}
    outputs = [ir.Value(name=f"out{i}", type=v.type) for i, v in enumerate(node.outputs)]
    name = f"{node.domain}::{node.op_type}"
    made = source_node(name, named, overload=node.overload, outputs=outputs, node_name="the_node")
    graph = ir.Graph(inputs, outputs, nodes=[made], initializers=constants, name="graph")
    return ir.Model(graph, ir_version=10)


_DIALECTS: dict[str, Callable[[], list[Base]]] = {
    "tensorflow": _tensorflow,
    "caffe2": _caffe2,
    "onnx": _onnx,
    "pytorch": _pytorch,
}
DIALECTS = tuple(_DIALECTS)


@functools.cache
def bases_of(dialect: str) -> list[Base]:
    """The calls that a dialect's cases change, in the same order in every process."""
    import opsetta.symbolics  # noqa: F401

    return _DIALECTS[dialect]()


def run_range(job: tuple[str, int, int]) -> list[Outcome]:
    """Run cases `first` to `last - 1` of a dialect."""
    dialect, first, last = job
    onnxruntime.set_default_logger_severity(4)
    return [run_case(dialect, number) for number in range(first, last)]


def run_case(dialect: str, number: int) -> Outcome:
    """Run one case, which its number determines."""
    bases = bases_of(dialect)
    base = bases[number % len(bases)]
    rng = random.Random(f"{dialect}:{number}")
    opset = rng.choice(OPSETS)
    model = base.make()
    edit = _change_file
    if not isinstance(model, onnx.ModelProto):
        # TensorFlow's graphs and captured models state element types twice, and must agree.
        edit = functools.partial(_change_source, changes_types=dialect == "caffe2")
    changes = "; ".join(edit(rng, model) for _ in range(rng.choice((1, 1, 2))))
    if dialect == "pytorch" and not _is_call(model.graph[-1]):
        return Outcome(number, NO_CALL, base.name, opset, changes)
    kind, detail = judge(model, opset)
    return Outcome(number, kind, base.name, opset, changes, detail)


def _is_call(node: ir.Node) -> bool:
    """Whether PyTorch accepts the arguments of a node, by its kernels without data."""
    import torch

    packet = getattr(getattr(torch.ops, node.domain), node.op_type, None)
    operator = None if packet is None else getattr(packet, node.overload or "default", None)
    if operator is None:
        return True

    def given(item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [given(part) for part in item]
        if isinstance(item, ir.DataType):
            return getattr(torch, item.numpy().name if item != ir.DataType.BFLOAT16 else "bfloat16")
        if not isinstance(item, ir.Value):
            return item
        if item.shape is None or not item.shape.is_static() or item.dtype is None:
            raise ValueError("unknown sizes")
        kind = "bfloat16" if item.dtype == ir.DataType.BFLOAT16 else item.dtype.numpy().name
        return torch.empty(item.shape.numpy(), dtype=getattr(torch, kind), device="meta")

    names = {argument.name for argument in operator._schema.arguments}
    try:
        operator(**{name: given(item) for name, item in arguments(node).items() if name in names})
    except Exception:
        # Whatever a kernel raises, the call is none.
        return False
    return True


def judge(model: Any, opset: int) -> tuple[str, str]:
    """Lower a model, and say what became of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(model, onnx.ModelProto):
                proto = ir.to_proto(conversion.convert(ir.from_proto(model), opset))
            else:
                proto = ir.to_proto(lower(model, opset, default_registry).model)
    except opsetta.OpsettaError as error:
        text = str(error)
        return (RAW if text.startswith(_SYMBOLIC) else REFUSED), text
    except Exception:
        return RAW, traceback.format_exc()[-1500:]
    kind, detail = judge_file(proto)
    if kind == INVALID and isinstance(model, onnx.ModelProto) and judge_file(model)[0] != VALID:
        return COPIED, detail
    return kind, detail


def judge_file(proto: onnx.ModelProto) -> tuple[str, str]:
    """Check a file with onnx, and load it with onnxruntime."""
    data = proto.SerializeToString()
    try:
        # What `full_check` does, for files whose inputs or outputs have no rank too.
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        for value in (*proto.graph.input, *proto.graph.output):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        return INVALID, f"onnx: {str(error)[:400]}"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        text = str(error)
        if re.search(r"NOT_IMPLEMENTED|Could not find an implementation|is not a registered function", text):
            return NO_KERNEL, ""
        return INVALID, f"onnxruntime: {text[:400]}"
    return VALID, ""


def _change_source(rng: random.Random, model: ir.Model, *, changes_types: bool) -> str:
    """Change something of the only node of a source model, or of what it reads."""
    node = model.graph[-1]
    values = [value for value in dict.fromkeys(node.inputs) if value is not None]
    constants = [value for value in values if value.const_value is not None]
    inputs = [value for value in values if value.const_value is None]
    named = {name: item for name, item in arguments(node).items() if _is_parameter(item, changes_types)}
    choices: list[Callable[[], str]] = []
    if named:
        choices += [lambda: _change_argument(rng, node, named)] * 3
    if constants:
        choices += [lambda: _change_constant(rng, rng.choice(constants))] * 3
    if inputs:
        choices += [lambda: _change_input(rng, rng.choice(inputs), changes_types)]
    return rng.choice(choices)() if choices else "unchanged"


def _is_parameter(item: Any, types: bool) -> bool:
    """Whether an argument has no values in it, and no element types unless they are wanted."""
    if isinstance(item, (list, tuple)):
        return all(_is_parameter(part, types) for part in item)
    return not isinstance(item, ir.Value) and (types or not isinstance(item, ir.DataType))


def _change_argument(rng: random.Random, node: ir.Node, named: dict[str, Any]) -> str:
    from opsetta.registration.arguments import replace_arguments

    name = rng.choice(sorted(named))
    changed = _changed(rng, named[name], _words(node, name))
    everything = arguments(node)
    everything[name] = changed
    replace_arguments(node, everything)
    return f"{name} = {changed!r}"


def _words(node: ir.Node, name: str) -> Sequence[str]:
    """The words for an argument; TensorFlow's captures have refused others."""
    if node.domain != "tf":
        return _WORDS
    from opsetta.exporter.capture.tensorflow.operator_definitions import definition

    stated = definition(node.op_type)
    attributes = [each for each in stated.attr if each.name == name] if stated is not None else []
    return [word.decode() for each in attributes for word in each.allowed_values.list.s] or _WORDS


def _changed(rng: random.Random, item: Any, words: Sequence[str] = _WORDS) -> Any:
    """Another value of the same type, or one that is not valid."""
    if isinstance(item, ir.DataType):
        return ir.DataType[rng.choice(_DTYPES)]
    if isinstance(item, bool):
        return not item
    if isinstance(item, int):
        return rng.choice((*_INTEGERS, item + 1, item - 1, -item))
    if isinstance(item, float):
        return rng.choice(_FLOATS)
    if isinstance(item, str):
        return rng.choice(words)
    if isinstance(item, (list, tuple)):
        return _changed_list(rng, list(item))
    return rng.choice((None, 0, 1, -1))


def _changed_list(rng: random.Random, items: list[Any]) -> list[Any]:
    action = rng.choice(("change", "change", "drop", "append", "empty", "double"))
    if not items:
        return [rng.choice(_INTEGERS)]
    position = rng.randrange(len(items))
    if action == "change":
        return [*items[:position], _changed(rng, items[position]), *items[position + 1 :]]
    if action == "drop":
        return items[:position] + items[position + 1 :]
    if action == "append":
        return [*items, _changed(rng, items[-1])]
    return [] if action == "empty" else items + items


def _changed_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """A constant with other numbers, another shape or another element type."""
    action = rng.choice(("value", "value", "value", "scalar", "vector", "rank", "empty", "shorter", "dtype"))
    if action == "value" and array.size and array.dtype.kind in "iuf":
        changed = np.array(array)
        flat = changed.reshape(-1)
        number = rng.choice(_INTEGERS if array.dtype.kind in "iu" else _FLOATS)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat[rng.randrange(flat.size)] = np.asarray(number).astype(array.dtype)
        return changed
    if action == "scalar" and array.size:
        return array.reshape(-1)[0].reshape(())
    if action == "vector":
        return array.reshape(-1)
    if action == "rank":
        return array[None]
    if action == "empty":
        return array.reshape(-1)[:0]
    if action == "shorter" and array.ndim:
        return array[:-1]
    if array.dtype.kind in "iu" and action == "dtype":
        return array.astype(rng.choice((np.int64, np.int32, np.float32, np.uint8)))
    return np.array(array)


def _change_constant(rng: random.Random, value: ir.Value) -> str:
    array = value.const_value.numpy()
    if array.dtype == object or value.dtype == ir.DataType.STRING:
        return "unchanged"
    changed = _changed_array(rng, array)
    tensor = ir.Tensor(changed, name=value.name)
    value.const_value, value.type, value.shape = tensor, ir.TensorType(tensor.dtype), tensor.shape
    return f"constant {value.name} = {changed.dtype}{list(changed.shape)} {changed.reshape(-1)[:8].tolist()}"


def _change_input(rng: random.Random, value: ir.Value, changes_types: bool = True) -> str:
    sizes = list(value.shape) if value.shape is not None else [2, 3]
    actions = ("drop", "add", "size", "size", "zero", "unknown", "rank", "scalar")
    action = rng.choice((*actions, "dtype") if changes_types else actions)
    if action == "dtype":
        value.type = ir.TensorType(ir.DataType[rng.choice(_DTYPES)])
        return f"{value.name} is {value.dtype}"
    position = rng.randrange(len(sizes)) if sizes else 0
    if action == "drop" and sizes:
        del sizes[position]
    elif action == "add":
        sizes.insert(position, rng.choice((1, 2)))
    elif action in ("size", "zero") and sizes:
        sizes[position] = 0 if action == "zero" else rng.choice((1, 2, 5))
    elif action == "unknown":
        sizes = [None] * len(sizes)
    elif action == "scalar":
        sizes = []
    value.shape = None if action == "rank" else ir.Shape(sizes)
    return f"{value.name} is {value.shape}"


def _change_file(rng: random.Random, model: onnx.ModelProto) -> str:
    """Change an attribute of a node of a file, a constant, or an input."""
    nodes = [node for node in model.graph.node if node.attribute]
    choices: list[Callable[[], str]] = [lambda: _change_described_input(rng, model)]
    if nodes:
        choices += [lambda: _change_attribute(rng, rng.choice(nodes))] * 3
    # The results may have other shapes after a change.
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    inputs = [value for value in model.graph.input if _may_be_constant(value)]
    if inputs:
        choices += [lambda: _make_constant(rng, model, rng.choice(inputs))] * 2
    return rng.choice(choices)()


def _change_attribute(rng: random.Random, node: onnx.NodeProto) -> str:
    attribute = rng.choice(list(node.attribute))
    if rng.random() < 0.15:
        node.attribute.remove(attribute)
        return f"without {attribute.name}"
    if attribute.type == onnx.AttributeProto.GRAPH:
        return "unchanged"
    item = onnx.helper.get_attribute_value(attribute)
    item = item.decode() if isinstance(item, bytes) else item
    if isinstance(item, onnx.TensorProto) or (isinstance(item, list) and item and isinstance(item[0], bytes)):
        return "unchanged"
    changed = _changed(rng, item)
    if changed == [] or changed is None:
        node.attribute.remove(attribute)
        return f"without {attribute.name}"
    attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, changed))
    return f"{attribute.name} = {changed!r}"


def _may_be_constant(value: onnx.ValueInfoProto) -> bool:
    """Whether an input may be sizes, axes or bounds."""
    kind = value.type.tensor_type
    return kind.elem_type in (6, 7) and len(kind.shape.dim) <= 1


def _make_constant(rng: random.Random, model: onnx.ModelProto, value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    count = int(np.prod(sizes))
    array = np.array([rng.choice(_INTEGERS) for _ in range(count)], dtype).reshape(sizes)
    array = _changed_array(rng, array)
    name = value.name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    model.graph.input.remove(value)
    return f"constant {name} = {array.dtype}{list(array.shape)} {array.reshape(-1)[:8].tolist()}"


def _change_described_input(rng: random.Random, model: onnx.ModelProto) -> str:
    described = [value for value in model.graph.input if value.type.HasField("tensor_type")]
    if not described:
        return "unchanged"
    value = rng.choice(described)
    made = ir.Value(
        name=value.name,
        type=ir.TensorType(ir.DataType(value.type.tensor_type.elem_type)),
        shape=ir.Shape([dim.dim_value for dim in value.type.tensor_type.shape.dim]),
    )
    text = _change_input(rng, made)
    if made.shape is not None:
        sizes: Sequence[Any] = [size if isinstance(size, int) else None for size in made.shape]
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, int(made.dtype or 1), sizes))
    return text
