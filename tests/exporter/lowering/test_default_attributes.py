"""No file says what its operators do anyway: attributes equal to the schema's default are left out."""

import copy

import onnx
import onnx.defs
import onnx_ir as ir
import pytest
import torch
from onnx import helper
from torch import nn

import opsetta
from opsetta import UnsupportedOperatorsError
from opsetta.exporter.lowering.conversion import convert

from ...conversion.cases import all_cases
from ...default_attributes import written_defaults
from ...opsets import HIGHEST
from ...parity.records import floats

OPSETS = (7, 9, 11, 13, 14, 18, 22, HIGHEST)


class Squeeze(nn.Module):
    """The block of MobileNetV3: squeeze and excitation, with hard activations."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.depth = nn.Conv2d(8, 8, 3, 2, 1, groups=8)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.depth(self.expand(x))
        x = x * nn.functional.hardsigmoid(self.squeeze(x))
        return self.head(nn.functional.max_pool2d(x, 2).mean((2, 3))).softmax(-1)


class Layered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(12)

    def forward(self, x):
        x = self.norm(self.layer(x)[0])
        return nn.functional.gelu(x).sum(1).topk(3, dim=1)[0], x.flatten(1).argmax(1)


class Branching(nn.Module):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda x: nn.functional.leaky_relu(x, 0.01).softmax(1),
            lambda x: nn.functional.elu(x).flatten(1),
            (x,),
        )


MODELS = {
    "squeeze": (Squeeze, (floats(2, 3, 16, 16),), OPSETS),
    "layered": (Layered, (floats(2, 5, 4),), OPSETS[1:]),
    "branching": (Branching, (floats(2, 3),), OPSETS),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_writes_no_default(name):
    build, inputs, opsets = MODELS[name]
    program = opsetta.export(build().eval(), inputs, opset=18)
    program.verify(inputs)
    for opset in opsets:
        lowered = program.lower(opset=opset)
        assert not written_defaults(lowered.model)
        assert not written_defaults(convert(program.model, opset))


@pytest.mark.parametrize("opset", [9, 13, 22])
def test_a_hard_sigmoid_has_no_beta(opset):
    program = opsetta.export(nn.Hardsigmoid().eval(), (floats(4),), opset=opset)
    [node] = program.model.graph
    assert list(node.attributes) == ["alpha"]


def spelt_out(proto):
    """The model with every default of its operators written out, in sub-graphs too."""
    proto = copy.deepcopy(proto)
    opset = next(entry.version for entry in proto.opset_import if entry.domain == "")

    def spell(graph):
        for node in graph.node:
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    spell(inner)
            if node.domain or not onnx.defs.has(node.op_type, opset, ""):
                continue
            given = {attribute.name for attribute in node.attribute}
            for name, formal in onnx.defs.get_schema(node.op_type, opset, "").attributes.items():
                if formal.default_value.name and name not in given:
                    node.attribute.add().CopyFrom(formal.default_value)

    spell(proto.graph)
    return proto


def written(proto, opset):
    """The converted model's bytes, or None where it is refused."""
    try:
        model = convert(ir.from_proto(proto), opset)
    except UnsupportedOperatorsError:
        return None
    assert not written_defaults(model)
    return ir.to_proto(model).SerializeToString(deterministic=True)


@pytest.mark.parametrize("index", range(0, 1884, 67))
def test_a_file_that_spells_its_defaults_out_is_converted_like_one_that_does_not(index):
    case = all_cases()[index]
    if not any(entry.domain == "" for entry in case.model.opset_import):
        return
    spelt = spelt_out(case.model)
    opset = next(entry.version for entry in case.model.opset_import if entry.domain == "")
    for target in {9, 18} - {opset}:
        assert written(spelt, target) == written(case.model, target)


def test_attributes_of_other_domains_stay():
    node = helper.make_node("Anything", ["x"], ["y"], domain="com.example", axis=1, alpha=0.01)
    x, y = (helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)
    [found] = ir.to_proto(convert(ir.from_proto(proto), 9)).graph.node
    assert found == node


def test_defaults_are_those_of_the_version_in_force():
    x, y = (helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=1)], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    [below] = convert(ir.from_proto(proto), 11).graph
    [above] = convert(ir.from_proto(proto), 18).graph
    assert not below.attributes
    assert above.attributes["axis"].value == 1
