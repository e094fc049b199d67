"""Targets: their files, what export and conversion write for them, and what is refused."""

import pathlib
import warnings

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import opsetta
from opsetta.exporter.devices.model_check import check_everywhere
from opsetta.exporter.devices.targets.load_target import load_target, parse_target, target_names
from opsetta.exporter.devices.targets.target_problems import find_problems
from opsetta.exporter.files.reading import ModelFolder, read_model, to_ir
from opsetta.registration import TargetError, UsageError
from tests.call_counts import count_calls

HEAD = 'title = "A device 2.1"\nsources = ["its manual, version 2.1"]\n'


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = torch.nn.Softsign()
        self.register_buffer("mask", torch.tensor([True, False, True, False]))

    def forward(self, x):
        return torch.where(self.mask, self.block(x), x)


def model_of(nodes, shape=(1, 4), initializers=(), opset=13, kind=TensorProto.FLOAT) -> opsetta.OnnxModel:
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", kind, [None] * len(shape))
    graph = helper.make_graph(nodes, "g", [x], [y], list(initializers))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def loaded(tmp_path, *args, **kwargs) -> opsetta.OnnxModel:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(*args, **kwargs), path)
    return opsetta.load(path)


@pytest.mark.parametrize("name", target_names())
def test_a_target_of_the_package_is_complete_and_short(name):
    target = load_target(name)
    assert target.title
    assert target.sources
    assert all(len(source) > 20 for source in target.sources)
    assert target.default_opset in target.opsets
    text = (
        pathlib.Path(opsetta.__file__).parent / "exporter/devices/targets/files" / f"{name}.toml"
    ).read_text()
    assert len(text.splitlines()) <= 170


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + '[quantization]\nactivations = "int7"', "no 'int7' \\(did you mean 'int8'"),
        (HEAD + "[opset]\nminimum = 9", "unknown key 'opset' \\(did you mean 'opsets'\\?\\)"),
        (HEAD + "[opsets]\nmaximun = 9", "unknown key 'opsets.maximun' \\(did you mean 'maximum'\\?\\)"),
        (HEAD + "[opsets]\nminimum = 12\nmaximum = 9", "minimum that is at most the maximum"),
        (HEAD + "[opsets]\nmaximum = 12\ndefault = 13", "opsets.default is in the range, up to 12"),
        (HEAD + "[opsets]\nmaximum = true", "maximum is a positive integer"),
        (HEAD + '[operators]\ntaken = ["Convv"]', "no 'Convv' \\(did you mean 'Conv'\\?\\)"),
        (HEAD + '[operators]\ntaken = ["Conv"]\nrefused = ["Conv"]', "takes and refuses"),
        (HEAD + '[types]\ntaken = ["float23"]', "types has no 'float23' \\(did you mean 'float"),
        (HEAD + '[conventions]\nresize = "size"', "no 'size' \\(did you mean 'sizes'"),
        (HEAD + '[conventions]\nexplicit_attributes = ["Resize.made"]', "did you mean 'Resize.mode'"),
        (HEAD + "static_shapes = 1", "static_shapes is true or false"),
        (HEAD + '[[restrictions]]\noperator = "Resize"\nattribute = "mode"', "attribute and its values"),
        (
            HEAD + '[[restrictions]]\noperator = "Conv"\nattribute = "pads"\nvalues = [[0.5]]',
            "values is a list of integers, strings, and lists of them",
        ),
        (HEAD + "opsets = [", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_key(text, message):
    with pytest.raises(UsageError, match=message):
        parse_target("device", text)


def test_title_and_sources_of_ones_own_target_are_optional():
    target = parse_target("device", '[quantization]\nactivations = "uint8"\nsymmetric = false\n')
    assert (target.title, target.sources) == ("device", ())
    assert (target.quantization.activations, target.quantization.per_channel) == ("uint8", None)


def test_an_unknown_name_is_refused_with_the_closest(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'rknn'"):
        load_target("rkn")
    with pytest.raises(UsageError, match="cannot be read"):
        load_target(tmp_path / "absent.toml")


def test_the_target_chooses_the_opset_and_refuses_others():
    model, args = torch.nn.Linear(4, 3).eval(), (torch.ones(1, 4),)
    program = opsetta.export(model, args, target="onnx2torch")
    assert program.opset == 13
    assert program.target.name == "onnx2torch"
    assert opsetta.export(model, args, target="onnx2torch", opset=11).opset == 11
    assert program.lower(target="rknn").opset == 17
    with pytest.raises(TargetError, match="'rknn' supports opset up to 19, not 20"):
        program.lower(20, target="rknn")
    with pytest.raises(opsetta.OpsetError):
        opsetta.export(model, args, target="tvm", opset=40)


def test_everything_that_is_not_taken_is_listed_with_modules(tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(
        HEAD + 'static_shapes = true\n[operators]\nrefused = ["Abs", "Div", "Max", "Pow", "Relu"]\n'
    )
    with pytest.raises(TargetError) as caught:
        opsetta.export(
            Branches().eval(),
            (torch.ones(2, 4),),
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
            target=path,
        )
    found = {(problem.operator, problem.module) for problem in caught.value.problems}
    assert found == {("", ""), ("Abs", "block"), ("Div", "block")}
    assert "input 'x' has dynamic dimensions, 0 (batch)" in str(caught.value)


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_conventions_keep_results(tmp_path, opset):
    path = tmp_path / "device.toml"
    path.write_text(
        HEAD + '[conventions]\nconstants = "initializers"\nbool_constants = "float"\nresize = "sizes"\n'
        'int64_constants = "int32"\nfloat_exponents = true\nrecurrent_outputs = "all"\n'
    )
    program = opsetta.export(
        Branches().eval(), (torch.ones(2, 4),), opset=opset, target=path, optimize="none"
    )
    program.verify()
    kinds = {value.dtype.name for value in program.model.graph.initializers.values()}
    assert "BOOL" not in kinds
    program.save(tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    assert find_problems(opsetta.load(tmp_path / "model.onnx").model, load_target(path), is_file=True) == []


def test_a_constant_of_a_wrong_type_is_checked(tmp_path):
    (tmp_path / "device.toml").write_text(HEAD + '[conventions]\nbool_constants = "float"\n')
    text = '<ir_version: 8, opset_import: ["": 13]> g () => (y) { y = Constant<value = 5>() }'
    model = ir.from_proto(onnx.parser.parse_model(text))
    [problem] = find_problems(model, load_target(tmp_path / "device.toml"), is_file=True)
    assert "its attribute 'value' is of type INT, not TENSOR" in problem.reason


class Sequence(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize(
    ("kind", "outputs", "target"),
    [
        *(("LSTM", 3, target) for target in ("mnn", "ncnn", "opencv")),
        *(("GRU", 2, target) for target in ("mnn", "ncnn", "opencv")),
        *(("RNN", 2, target) for target in ("mnn", "ncnn")),  # OpenCV has no RNN, which is unrolled.
    ],
)
def test_recurrent_nodes_for_a_target_have_all_outputs(tmp_path, kind, outputs, target):
    model = Sequence(getattr(torch.nn, kind)(4, 3)).eval()
    program = opsetta.export(model, (torch.ones(5, 1, 4),), target=target, opset=17)
    program.verify()
    if kind == "RNN" and target == "opencv":
        # It has no layer, and is written as the operators of each step.
        assert kind not in {node.op_type for node in program.model.graph}
        return
    assert [len(node.outputs) for node in program.model.graph if node.op_type == kind] == [outputs]
    opsetta.export(model, (torch.ones(5, 1, 4),), opset=14).save(tmp_path / "other.onnx")
    converted = opsetta.load(tmp_path / "other.onnx").lower(17, target=target)
    assert [len(node.outputs) for node in converted.model.graph if node.op_type == kind] == [outputs]


@pytest.mark.parametrize("target", ["tvm", "onnx2torch"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_operators_that_a_target_lacks_are_unrolled(tmp_path, kind, target):
    model = Sequence(getattr(torch.nn, kind)(4, 3, bidirectional=True, num_layers=2)).eval()
    args = (torch.randn(5, 1, 4),)
    opsetta.export(model, args, target=target).verify()
    opsetta.export(model, args, opset=14).save(tmp_path / "other.onnx")
    converted = opsetta.load(tmp_path / "other.onnx").lower(target=target)
    converted.save(tmp_path / "converted.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "converted.onnx")
    [found] = session.run(None, {session.get_inputs()[0].name: args[0].numpy()})
    assert abs(found - model(*args).detach().numpy()).max() < 1e-5


def test_recurrent_operators_of_unknown_lengths_are_refused_by_name():
    model, args = Sequence(torch.nn.LSTM(4, 3)).eval(), (torch.randn(5, 1, 4),)
    with pytest.raises(TargetError) as caught:
        opsetta.export(model, args, input_names=["x"], dynamic_axes={"x": {0: "length"}}, target="tvm")
    assert {problem.operator for problem in caught.value.problems} == {"LSTM"}


def test_recurrent_operators_stay_for_a_target_that_lacks_those_of_the_steps(tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(HEAD + '[operators]\nrefused = ["LSTM", "Split"]\n')
    with pytest.raises(TargetError) as caught:
        opsetta.export(Sequence(torch.nn.LSTM(4, 3)).eval(), (torch.randn(5, 1, 4),), target=path)
    assert {problem.operator for problem in caught.value.problems} == {"LSTM"}


def test_weights_of_a_program_for_a_target_stay_where_they_are(tmp_path):
    program = opsetta.export(torch.nn.Linear(4, 3).eval(), (torch.ones(1, 4),), target="opencv")
    before = program.model_proto.SerializeToString()
    assert program.lower(target="opencv").model_proto.SerializeToString() == before


@pytest.mark.parametrize(("opset", "name"), [(9, "Upsample"), (10, "Resize")])
def test_resize_without_sizes_is_a_warning_for_a_target_that_reads_them(tmp_path, opset, name):
    corner = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], **corner)]
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 2])
    source = loaded(tmp_path, nodes, (1, 1, 2, 2), [scales])
    with pytest.warns(UserWarning, match=f"'opencv' has resize = \"sizes\", but {name} of opset {opset}"):
        source.lower(opset, target="opencv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source.lower(11, target="opencv")
        source.lower(opset, target="mnn")


def test_a_file_with_the_targets_opset_is_rewritten_and_its_source_is_not(tmp_path):
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"])]
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 2])
    source = loaded(tmp_path, nodes, (1, 1, 2, 2), [scales])
    [node] = source.lower(13, target="opencv").model.graph
    assert node.attributes["mode"].as_string() == "nearest"
    assert node.inputs[3].const_value.numpy().tolist() == [1, 1, 4, 4]
    [kept] = source.model.graph
    assert "mode" not in kept.attributes
    assert len(kept.inputs) == 3


def restricted(tmp_path, rule: str, *args, **kwargs) -> list[str]:
    target = parse_target("device", f"{HEAD}[[restrictions]]\n{rule}")
    return [problem.reason for problem in find_problems(loaded(tmp_path, *args, **kwargs).model, target)]


def test_restrictions_see_defaults_outputs_and_constants(tmp_path):
    scales = helper.make_tensor("s", TensorProto.FLOAT, [4], [1, 1, 2, 2])
    resize = [helper.make_node("Resize", ["x", "", "s"], ["y"])]
    rule = 'operator = "Resize"\nattribute = "mode"\nvalues = ["linear"]'
    assert restricted(tmp_path, rule, resize, (1, 1, 2, 2), [scales]) == [
        "mode='nearest' is not supported, but 'linear'"
    ]
    rule = 'operator = "Resize"\nopsets = { maximum = 11 }'
    assert "opset up to 11, not at 13" in restricted(tmp_path, rule, resize, (1, 1, 2, 2), [scales])[0]
    pool = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])
    cast = helper.make_node("Cast", ["i"], ["unused"], to=TensorProto.FLOAT)
    rule = 'operator = "MaxPool"\nattribute = "kernel_shape"\nvalues = [[2], [2, 2]]'
    assert restricted(tmp_path, rule, [pool, cast], (1, 1, 4, 4)) == []
    reasons = restricted(tmp_path, rule.replace("2, 2", "3, 2"), [pool, cast], (1, 1, 4, 4))
    assert reasons == ["kernel_shape=[2, 2] is not supported, but [2], [3, 2]"]
    rule = 'operator = "MaxPool"\noutputs = 1'
    assert len(restricted(tmp_path, rule, [pool, cast], (1, 1, 4, 4))) == 1
    top = [
        helper.make_node("Shape", ["x"], ["k4"]),
        helper.make_node("ReduceMax", ["k4"], ["k"], keepdims=1),
        helper.make_node("TopK", ["x", "k"], ["y", "i"]),
    ]
    rule = 'operator = "TopK"\nconstant_inputs = ["K"]'
    assert restricted(tmp_path, rule, top) == ["its input K, 'k', must be a constant"]


def test_nodes_of_sub_graphs_and_other_domains_are_checked(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, [1, 4])]
    )
    same = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z2"])],
        "c",
        [],
        [helper.make_tensor_value_info("z2", 1, [1, 4])],
    )
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=same)
    model = loaded(tmp_path, [node], initializers=[condition]).model
    target = parse_target("device", HEAD + '[operators]\nrefused = ["Neg"]\n[types]\nrefused = ["bool"]')
    assert [p.operator or p.reason for p in find_problems(model, target)] == [
        "initializer 'c' of element type bool",
        "Neg",
    ]


def test_problems_are_listed_in_the_order_of_the_nodes():
    operators = ["Neg", "Abs", "Neg", "Relu", "Abs"]
    nodes = [helper.make_node(op, [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i, op in enumerate(operators)]
    model = ir.from_proto(model_of([*nodes, helper.make_node("Identity", ["v5"], ["y"])]))
    target = parse_target("device", HEAD + '[operators]\nrefused = ["Neg", "Abs"]')
    assert [problem.operator for problem in find_problems(model, target)] == ["Neg", "Abs", "Neg", "Abs"]


def test_a_check_against_all_targets_costs_little_more_for_repeated_nodes():
    def checked(length):
        nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(length)]
        model = ir.from_proto(model_of([*nodes, helper.make_node("Identity", [f"v{length}"], ["y"])]))
        return lambda: check_everywhere(model, ())

    for check in (checked(1), checked(200)):
        check()  # Caches of schemas are filled once.
    # Asking each of the targets about each node takes a hundred calls a node.
    assert count_calls(checked(200)) - count_calls(checked(1)) < 200 * 100


def test_external_data_and_size(tmp_path):
    target = tmp_path / "device.toml"
    target.write_text(HEAD + "external_data = false\nmaximum_bytes = 100\n")
    model = torch.nn.Linear(4, 3).eval()
    program = opsetta.export(model, (torch.ones(1, 4),), target=target)
    with pytest.raises(TargetError, match="does not support external data"):
        program.save(tmp_path / "m.onnx", external_data=True)
    assert not (tmp_path / "m.onnx").exists()
    large = torch.nn.Linear(64, 64).eval()
    opsetta.export(large, (torch.ones(1, 64),)).save(tmp_path / "e.onnx", external_data=True)
    path = tmp_path / "e.onnx"
    read = to_ir(read_model(path), ModelFolder.of(path))
    found = [p.reason for p in find_problems(read, load_target(target), is_file=True)]
    assert any(reason.startswith("external data") for reason in found)
    with pytest.raises(TargetError, match="weights of 1040 bytes are not supported, but up to 100"):
        opsetta.export(torch.nn.Linear(64, 4).eval(), (torch.ones(1, 64),), target=target)


def test_files_for_onnxruntime_load_there(tmp_path):
    program = opsetta.export(torch.nn.LSTM(4, 3).eval(), (torch.ones(2, 1, 4),), target="onnxruntime")
    program.save(tmp_path / "m.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize("opset", [9, 17, 22])
def test_an_operator_that_the_target_lacks_is_composed(tmp_path, opset):
    nodes = [helper.make_node("IsNaN", ["x"], ["lost"]), helper.make_node("Not", ["lost"], ["kept"])]
    nodes.append(helper.make_node("Cast", ["kept"], ["y"], to=TensorProto.FLOAT))
    target = parse_target("device", HEAD + '[operators]\nrefused = ["IsNaN"]')
    lowered = loaded(tmp_path, nodes, opset=opset).lower(opset, target=target)
    assert "IsNaN" not in {node.op_type for node in lowered.model.graph}
    session = onnxruntime.InferenceSession(lowered.model_proto.SerializeToString())
    [found] = session.run(None, {"x": torch.tensor([[0.0, torch.nan, torch.inf, -torch.inf]]).numpy()})
    assert found.tolist() == [[1, 0, 1, 1]]
    narrow = parse_target("device", HEAD + '[operators]\nrefused = ["IsNaN", "Or"]')
    with pytest.raises(TargetError, match="IsNaN"):
        loaded(tmp_path, nodes, opset=opset).lower(opset, target=narrow)


def test_operators_that_the_accelerator_lacks_are_a_warning(tmp_path):
    path = tmp_path / "gpu.toml"
    path.write_text(HEAD + 'accelerated_operators = ["Relu"]\n')
    model = loaded(tmp_path, [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Erf", ["h"], ["y"])])
    with pytest.warns(UserWarning, match="runs on the CPU instead of the accelerator") as caught:
        model.lower(13, target=path)
    assert "Erf" in str(caught[0].message)
    assert "Relu" not in str(caught[0].message)
    with pytest.raises(UsageError, match="accelerated_operators has no 'Rulu' .did you mean 'Relu'"):
        parse_target("gpu", HEAD + 'accelerated_operators = ["Rulu"]\n')


def test_a_target_has_the_name_that_its_users_know():
    assert load_target("litert") == load_target("tflite")
    assert load_target("directml").name == "dml"


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        ("tensorrt7", 11),
        ("tensorrt10", 17),
        ("coreml", 17),
        ("dml", 17),
        ("webgpu", 17),
        ("genai", 17),
        ("ort-mobile", 13),
        ("tflite", 17),
        ("hailo", 13),
        ("esp-dl", 13),
        ("st-edge", 17),
        ("hls4ml", 17),
    ],
)
def test_a_network_is_written_for_each_device(name, opset, tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 5),
        torch.nn.Softmax(-1),
    ).eval()
    program = opsetta.export(model, (torch.randn(1, 3, 8, 8),), target=name)
    assert program.opset == opset
    program.verify()


@pytest.mark.parametrize(
    ("name", "operator"),
    [("tensorrt7", "NonZero"), ("esp-dl", "Erf"), ("hls4ml", "Erf"), ("tflite", "DFT")],
)
def test_what_a_device_lacks_is_named(name, operator, tmp_path):
    opset = 17 if operator == "DFT" else 11
    node = helper.make_node(operator, ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 2])],
        [onnx.ValueInfoProto(name="y")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8),
        tmp_path / "m.onnx",
    )
    problems = opsetta.load(tmp_path / "m.onnx").lower(opset).model
    assert any(problem.operator == operator for problem in find_problems(problems, load_target(name)))
