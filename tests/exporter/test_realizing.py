"""`opsetta.realize` and its command: models of torch, in the order of the passes."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.realizing import PLAIN
from opsetta.passes.realizers import ExplicitFanOut
from opsetta.registration import GraphError, UsageError
from tests.models import zoo


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, groups=1, bias=False)
        self.normalization = torch.nn.BatchNorm2d(8)
        self.recurrent = torch.nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.gated = torch.nn.GRU(12, 5)
        self.linear = torch.nn.Linear(5, 4)

    def forward(self, x):
        y = torch.relu(self.normalization(self.convolution(x)))
        y = y + torch.sigmoid(y)
        z, _ = self.recurrent(y.mean(3).transpose(1, 2))
        z, h = self.gated(z)
        return self.linear(z), h


@pytest.fixture(scope="module")
def exported():
    torch.manual_seed(0)
    model = Model().eval()
    model.normalization.running_mean.normal_()
    x = torch.randn(2, 3, 6, 6)
    return {opset: opsetta.export(model, (x,), opset=opset) for opset in (9, 13, 21)}, x


@pytest.mark.parametrize("opset", [9, 13, 21])
@pytest.mark.parametrize(
    "passes",
    [
        ["unroll", "explicit-fan-out", "prefix=net/"],
        ["fold_batch_norm", "fuse-activations", "split-activations", "flatten-to-reshape"],
        ["unroll", "types=FP16-FP32"],
        ["strip-training", "reshape-to-flatten", "types=FP32", "unroll-recurrent"],
    ],
    ids=lambda passes: passes[0],
)
def test_a_model_of_torch_computes_the_same(exported, opset, passes):
    programs, x = exported
    program = programs[opset]
    before = program.model_proto.SerializeToString()
    found = opsetta.realize(program, passes)
    onnx.checker.check_model(found.model_proto, full_check=True)
    half = "FP16" in passes[-1]
    for mine, theirs in zip(found(x), program(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2 if half else 1e-4, atol=1e-2 if half else 1e-5)
    if "unroll" in passes:
        assert not {"LSTM", "GRU"} & {node.op_type for node in found.model.graph}
    assert program.model_proto.SerializeToString() == before


def test_each_pass_leaves_a_model_that_it_has_nothing_for():
    model = ir.from_proto(small())
    found = opsetta.realize(model, [name for name in PLAIN if name != "explicit-fan-out"])
    assert [node.op_type for node in found.model.graph] == ["Relu", "Neg"]


def small(**metadata) -> onnx.ModelProto:
    node = [helper.make_node("Relu", ["x"], ["h"], "a"), helper.make_node("Neg", ["h"], ["y"], "b")]
    for key, text in metadata.items():
        for each in node:
            each.metadata_props.add(key=key.replace("__", "."), value=text)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in "xy"]
    graph = helper.make_graph(node, "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_messages_models_and_passes_of_onnx_ir_are_taken():
    found = opsetta.realize(small(), ["slice=x:h", ExplicitFanOut()])
    assert found.output_names == ["h"]
    np.testing.assert_array_equal(found(np.full((2, 3), -1, np.float32)), np.zeros((2, 3)))


def test_a_plan_of_the_old_model_is_forgotten_and_annotations_are_made_anew():
    phase = {"opsetta.plan.phase": "forward"}
    proto = small(
        opsetta__plan__order="0",
        opsetta__may_overwrite="0:0",
        **{k.replace(".", "__"): v for k, v in phase.items()},
    )
    found = opsetta.realize(proto, ["slice=h:y"])
    [node] = found.model.graph
    assert dict(node.metadata_props) == phase


@pytest.mark.parametrize(
    "name",
    [
        "mobilenetv2",
        *(pytest.param(n, marks=pytest.mark.sweep) for n in ("convnext", "resnet50", "segformer")),
    ],
)
def test_real_models_of_images_take_either_layout(name):
    architecture = zoo.BY_NAME[name]
    inputs = architecture.inputs(2, 6)
    program = opsetta.export(architecture.build(), (), inputs, opset=17)
    last = opsetta.realize(program, ["channels-last"])
    first = opsetta.realize(last, ["channels-first"])
    counts = [
        sum(node.op_type == "Transpose" for node in each.model.graph) for each in (program, last, first)
    ]
    images = [v for values in (program.model.graph.inputs, program.model.graph.outputs) for v in values]
    assert counts[1] <= counts[0] + sum(len(value.shape) == 4 for value in images)
    assert counts[2] == counts[0]
    pixels = inputs["pixel_values"]
    for wanted, one, other in zip(
        _leaves(program(pixels)),
        _leaves(last(pixels.permute(0, 2, 3, 1))),
        _leaves(first(pixels)),
        strict=True,
    ):
        one = one.permute(0, 3, 1, 2) if one.ndim == 4 else one
        torch.testing.assert_close(one, wanted)
        torch.testing.assert_close(other, wanted)


def _leaves(outputs):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize(
    "passes",
    [["channels-last"], ["fold-batch-norm"], ["prefix=net/"], ["types=FP16-FP32"]],
    ids=lambda p: p[0],
)
def test_weights_stay_inputs_where_the_ir_version_demands_it(passes):
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Softsign()
    x = torch.randn(2, 3, 6, 5)
    program = opsetta.export(torch.nn.Sequential(*layers).eval(), (x,), opset=8)
    assert program.model_proto.ir_version == 3
    realized = opsetta.realize(program, passes)
    proto = realized.model_proto
    assert proto.ir_version == 3
    onnx.checker.check_model(proto)
    declared = [value.name for value in proto.graph.input]
    stored = {tensor.name for tensor in proto.graph.initializer}
    assert stored
    assert stored <= set(declared)
    assert [name for name in declared if name not in stored] == realized.input_names
    if passes == ["channels-last"]:
        found = realized(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    else:
        found = realized(x)
    half = "FP16" in passes[0]
    torch.testing.assert_close(found, program(x), rtol=1e-2 if half else 1e-4, atol=1e-2 if half else 1e-5)
    if passes == ["fold-batch-norm"]:
        assert "BatchNormalization" not in {node.op_type for node in realized.model.graph}


class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x, target):
        scores = self.linear(torch.nn.functional.dropout(x, 0.5, self.training))
        loss = torch.nn.functional.cross_entropy(scores, target)
        return loss, scores, 2 * loss


def test_a_loss_of_pytorch_is_stripped_by_name():
    model = Loss().train()
    example = (torch.randn(3, 8), torch.tensor([0, 1, 3]))
    with pytest.warns(UserWarning, match="training mode"):
        program = opsetta.export(model, example, opset=17)
    loss, scores, _ = program.output_names
    stripped = opsetta.realize(program, [f"strip-training={loss}"])
    assert [node.op_type for node in stripped.model.graph] == ["Gemm"]
    assert (stripped.input_names, stripped.output_names) == (["x"], [scores])
    torch.testing.assert_close(_leaves(stripped(example[0])), [model.eval()(*example)[1]])
    with pytest.raises(GraphError, match="no output 'loss'"):
        opsetta.realize(program, ["strip-training=loss"])
    with pytest.raises(GraphError, match="is the only output"):
        opsetta.realize(program, [f"strip-training={','.join(program.output_names)}"])


@pytest.mark.parametrize("given", ["unrolled", "unroll=3", "prefix", "slice=x", "types=FP7"])
def test_unknown_passes_are_refused(given):
    with pytest.raises(UsageError):
        opsetta.realize(small(), [given])


def test_a_pass_by_itself_is_refused():
    with pytest.raises(UsageError, match="list"):
        opsetta.realize(small(), "unroll")


def test_parts_that_no_pass_rewrites_are_refused(tmp_path):
    proto = small()
    proto.training_info.add()
    path = tmp_path / "training.onnx"
    onnx.save(proto, path)
    with pytest.raises(GraphError, match="training information"):
        opsetta.realize(opsetta.load(path), ["prefix=a/"])


def test_the_command_writes_the_model(tmp_path, capsys):
    onnx.save(small(), tmp_path / "model.onnx")
    target = tmp_path / "out.onnx"
    arguments = ["realize", str(tmp_path / "model.onnx"), "-o", str(target), "--json"]
    with pytest.raises(SystemExit) as left:
        cli.main([*arguments, "--pass", "prefix=m/", "--pass", "explicit-fan-out"])
    assert not left.value.code
    facts = json.loads(capsys.readouterr().out)
    assert facts["inputs"] == ["m/x"]
    assert facts["nodes"] == 2
    assert opsetta.load(target).output_names == ["m/y"]


def test_numbers_beyond_the_range_are_named():
    text = """<ir_version: 8, opset_import: ["": 13]> net (float[2] x) => (float[2] y)
        <float[2] mask = {0.0, -1e9}> { y = Add(x, mask) }"""
    with pytest.warns(UserWarning, match=r"beyond the range of FP16 became its largest number: 'mask' \(1\)"):
        opsetta.realize(onnx.parser.parse_model(text), ["types=FP16"])


@pytest.mark.parametrize("ir_version", [3, 8])
@pytest.mark.parametrize("types", ["INT8-FP32", "Q4_0-FP32", "FP16"])
def test_weights_in_constant_nodes_are_weights(types, ir_version):
    """Some programs write no initializers at all."""
    generator = np.random.default_rng(0)
    weight, rows = (generator.standard_normal(shape).astype(np.float32) for shape in ((64, 64), (3, 64)))
    bias = np.ones(64, np.float32)
    nodes = [
        helper.make_node("Constant", [], ["weight"], value=onnx.numpy_helper.from_array(weight)),
        helper.make_node("Constant", [], ["bias"], value=onnx.numpy_helper.from_array(bias)),
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y])
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    rewritten = opsetta.realize(model, [f"types={types}"])
    assert rewritten.model_proto.ByteSize() < 0.7 * model.ByteSize()
    assert len(rewritten.input_names) == 1
    np.testing.assert_allclose(rewritten(rows), rows @ weight + bias, atol=3)


def test_the_command_leaves_no_file_if_a_pass_refuses(tmp_path):
    onnx.save(small(), tmp_path / "model.onnx")
    target = tmp_path / "out.onnx"
    with pytest.raises(SystemExit) as left:
        cli.main(["realize", str(tmp_path / "model.onnx"), "-o", str(target), "--pass", "slice=q:y"])
    assert "no value 'q'" in str(left.value.code)
    assert not target.exists()
