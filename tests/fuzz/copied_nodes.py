"""Random changes of valid nodes, converted to other opsets: what is written is valid, or nothing is written.

The nodes are those of onnx's backend tests. A case changes attributes, their words and types, inputs,
outputs, ranks, element types or the operator of one node. A file at another opset must pass onnx's checker
with full checks; at its own opset, where the nodes are copied, it must if it did before. It must load in
onnxruntime if it did before.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from typing import Any

import onnx
import onnx_ir as ir
from onnx import AttributeProto, helper

from opsetta import OpsettaError
from opsetta.exporter.lowering.conversion.convert_model import convert
from opsetta.exporter.lowering.inference_risks import is_risky
from opsetta.registration.attribute_words import WORDS
from opsetta.registration.schemas import operator_schemas

from ..conversion.cases import TARGETS, all_cases
from ..opsets import OPSETS

WRITTEN, REFUSED, INVALID, UNLOADABLE, CRASHED = "written", "refused", "invalid", "not loadable", "crashed"
FAILURES = (INVALID, UNLOADABLE, CRASHED)
_ALL_WORDS = sorted({word for words in WORDS.values() for word in words} | {"", "bogus", "NEAREST", "i->i"})
_NUMBERS = (-9, -5, -3, -2, -1, 0, 1, 2, 3, 4, 5, 10, 11, 16, 99)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    number: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"case {self.number}: {self.kind}: {self.text}"


def run_range(numbers: tuple[int, int]) -> list[Outcome]:
    """Run the cases with the numbers from the first to before the last."""
    return [run_case(number) for number in range(*numbers)]


def run_case(number: int) -> Outcome:
    """Change a node, convert its model, and check what is written."""
    pick = random.Random(number)
    model = onnx.ModelProto()
    model.CopyFrom(pick.choice(all_cases()).model)
    changes = [_change(model, pick) for _ in range(pick.choice((1, 1, 1, 2)))]
    source = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    opset = (
        pick.choice([*TARGETS, source]) if source is not None and source in OPSETS else pick.choice(TARGETS)
    )
    title = f"{model.graph.node[0].op_type} {source} to {opset}, {'; '.join(changes)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            written = ir.to_proto(convert(ir.from_proto(model), opset))
        except (OpsettaError, ir.serde.SerdeError) as error:
            return Outcome(number, REFUSED, f"{title}: {error}")
        except Exception as error:
            return Outcome(number, CRASHED, f"{title}: {type(error).__name__}: {error}")
        problem = _invalidity(written)
        is_copy = source is None or opset == source
        # Sizes that do not fit are found by whoever runs the file, as they were before.
        if problem and (is_copy or "ShapeInferenceError" in problem) and _invalidity(model):
            problem = ""
        if problem:
            return Outcome(number, INVALID, f"{title}: {problem}")
        problem = _load_error(written)
        if problem and not _load_error(model):
            return Outcome(number, UNLOADABLE, f"{title}: {problem}")
    return Outcome(number, WRITTEN, title)


def _invalidity(model: onnx.ModelProto) -> str:
    try:
        if is_risky(model):
            return "onnx's checker may crash"
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return " ".join(str(error).split())
    return ""


def _load_error(model: onnx.ModelProto) -> str:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return " ".join(str(error).split())
    return ""


def _change(model: onnx.ModelProto, pick: random.Random) -> str:
    """Change a node of the model or what is declared of an input; return what was changed."""
    node = pick.choice(model.graph.node)
    return pick.choice(_CHANGES)(model, node, pick)


def _change_attribute(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    versions = operator_schemas(node.op_type, node.domain)
    formal = list(versions[-1].attributes) if versions else []
    name = pick.choice([*(a.name for a in node.attribute), *formal] or ["extra"])
    [*present] = [a for a in node.attribute if a.name == name]
    value = helper.get_attribute_value(present[0]) if present else None
    made: Any
    if isinstance(value, (bytes, str)) or (name.endswith("mode") and value is None):
        made = pick.choice(_ALL_WORDS)
    elif isinstance(value, list) and value and isinstance(value[0], int):
        made = list(value)
        made[pick.randrange(len(made))] = pick.choice(_NUMBERS)
        made = pick.choice((made, [*made, 1], made[1:] or made))
    elif isinstance(value, float):
        made = pick.choice((0.0, -1.0, 1e30, float("nan"), 0.5))
    elif isinstance(value, (onnx.GraphProto, onnx.TensorProto)):
        made = 1
    else:
        made = pick.choice(_NUMBERS)
    for attribute in present:
        node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, made))
    return f"{name}={made!r}"


def _change_type(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    name = pick.choice([a.name for a in node.attribute] or ["axis"])
    for attribute in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(attribute)
    made = pick.choice((1, 1.0, "nearest", [1, 1], [0.5]))
    node.attribute.append(helper.make_attribute(name, made))
    return f"{name}={made!r}"


def _add_attribute(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    name = pick.choice(("axis", "axes", "mode", "alpha", "group", "keepdims", "reduction", "invented"))
    if all(attribute.name != name for attribute in node.attribute):
        node.attribute.append(helper.make_attribute(name, pick.choice(([1], 1, "none", 0.5))))
    return f"with {name}"


def _drop_attribute(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    if not node.attribute:
        return "nothing"
    gone: AttributeProto = pick.choice(node.attribute)
    name = gone.name
    node.attribute.remove(gone)
    return f"without {name}"


def _change_inputs(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    inputs = list(node.input)
    if not inputs:
        return "nothing"
    at = pick.randrange(len(inputs))
    how = pick.choice(("dropped", "omitted", "doubled", "exchanged"))
    if how == "dropped":
        del inputs[at]
    elif how == "omitted":
        inputs[at] = ""
    elif how == "doubled":
        inputs.append(inputs[at])
    else:
        pick.shuffle(inputs)
    del node.input[:]
    node.input.extend(inputs)
    return f"input {at} {how}"


def _add_output(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    node.output.append("one_more")
    return "one output more"


def _change_rank(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    entries = [entry for entry in model.graph.input if entry.type.HasField("tensor_type")]
    if not entries:
        return "nothing"
    entry = pick.choice(entries)
    dims = entry.type.tensor_type.shape.dim
    if len(dims) and pick.random() < 0.5:
        del dims[pick.randrange(len(dims))]
    else:
        dims.add().dim_value = pick.choice((1, 2, 3))
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            for place, dim in enumerate(output.type.tensor_type.shape.dim):
                dim.dim_param = f"d{place}_{output.name}"
    return f"rank {len(dims)} of {entry.name}"


def _change_element_type(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    entries = [entry for entry in model.graph.input if entry.type.HasField("tensor_type")]
    if not entries:
        return "nothing"
    entry, kind = pick.choice(entries), pick.choice((1, 6, 7, 9, 10, 11, 8))
    entry.type.tensor_type.elem_type = kind
    return f"{entry.name} of type {kind}"


def _change_operator(model: onnx.ModelProto, node: onnx.NodeProto, pick: random.Random) -> str:
    other = pick.choice(all_cases()).model.graph.node[0]
    if node.domain == other.domain:
        node.op_type = other.op_type
    return f"now {node.op_type}"


_CHANGES = (
    *[_change_attribute] * 6,
    *[_change_inputs] * 2,
    *[_change_rank] * 2,
    _change_type,
    _add_attribute,
    _drop_attribute,
    _add_output,
    _change_element_type,
    _change_operator,
)
