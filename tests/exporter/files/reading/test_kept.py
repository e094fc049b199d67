"""What is kept, put right because it means one thing only, or left out with a warning."""

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

from opsetta import ModelFileError
from opsetta.exporter.files.reading import to_ir


def parsed(text: str, ir_version: int = 12) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": 18, "m": 1]> {text}')


def read(model: onnx.ModelProto, tmp_path) -> ir.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return to_ir(onnx.ModelProto.FromString(model.SerializeToString()), tmp_path)


LINE = "g (float[n] x) => (float[n] y) <float[1] w = {1}> { a = Add(x, w) y = Relu(a) }"


def test_nodes_out_of_order_are_sorted(tmp_path):
    model = parsed(
        "g (float[n] x, bool c) => (y) { y = Relu(b) "
        "b = If (c) <then_branch = t () => (r) { r = Neg(s) s = Abs(a) }, "
        "else_branch = e () => (q) { q = Neg(a) }>"
        " a = Exp(x) }"
    )
    found = read(model, tmp_path)
    assert [node.op_type for node in found.graph] == ["Exp", "If", "Relu"]
    assert [node.op_type for node in found.graph[1].attributes["then_branch"].value] == ["Abs", "Neg"]


def test_a_name_of_its_own_in_a_branch(tmp_path):
    model = parsed(
        "g (float[n] x, bool c) => (y) { a = Exp(x) y = If (c) <"
        "then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (r) { r = Neg(a) }> }"
    )
    found = read(model, tmp_path)
    inner = found.graph[1].attributes["then_branch"].value
    assert inner.outputs[0] is inner[0].outputs[0]
    assert found.graph[1].attributes["else_branch"].value[0].inputs[0] is found.graph[0].outputs[0]


@pytest.mark.parametrize(
    ("input_sizes", "output_sizes", "sizes"),
    [(["n", 4], ["m", 4], ["n", 4]), ([None, 4], ["m", 4], ["m", 4]), (["n", "k"], ["m", 4], ["n", "k"])],
)
def test_a_loop_returns_an_input_that_its_output_declares_with_other_names(
    input_sizes, output_sizes, sizes, tmp_path
):
    model = loop_that_returns_its_input(input_sizes, output_sizes)
    body = read(model, tmp_path).graph[0].attributes["body"].value
    assert body.outputs[1] is body.inputs[2]
    assert [getattr(size, "value", size) for size in body.inputs[2].shape] == sizes


@pytest.mark.parametrize("output_sizes", [["n", 5], ["n", 4, 1]])
def test_a_loop_returns_an_input_that_its_output_declares_with_another_shape(output_sizes, tmp_path):
    with pytest.raises(ModelFileError, match="value 'same' has two different declarations"):
        read(loop_that_returns_its_input(["n", 4], output_sizes), tmp_path)


def loop_that_returns_its_input(input_sizes, output_sizes):
    body = helper.make_graph(
        [helper.make_node("Identity", ["condition"], ["continued"])],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("same", TensorProto.FLOAT, input_sizes),
        ],
        [
            helper.make_tensor_value_info("continued", TensorProto.BOOL, []),
            helper.make_tensor_value_info("same", TensorProto.FLOAT, output_sizes),
        ],
    )
    model = parsed("g (float[n, 4] x, int64 steps, bool go) => (y) { y = Identity(x) }")
    loop = helper.make_node("Loop", ["steps", "go", "x"], ["y"], body=body)
    model.graph.node[0].CopyFrom(loop)
    return model


def test_both_names_of_the_standard_domain(tmp_path):
    model = parsed(LINE)
    model.graph.node[0].domain = "ai.onnx"
    model.opset_import.add(domain="ai.onnx", version=18)
    model.opset_import.add(domain="m", version=1)
    found = read(model, tmp_path)
    assert found.opset_imports == {"": 18, "m": 1}
    assert {node.domain for node in found.graph} == {""}


def test_files_before_opsets_and_attribute_types(tmp_path):
    model = parsed("g (float[n] x) => (float[n] y) { y = LeakyRelu <alpha = 0.25> (x) }", ir_version=1)
    model.ClearField("opset_import")
    model.graph.node[0].attribute[0].ClearField("type")
    found = read(model, tmp_path)
    assert found.opset_imports == {"": 1}
    assert found.graph[0].attributes["alpha"].as_float() == 0.25


def test_a_default_that_is_not_written_out(tmp_path):
    model = parsed("g (float[n] x) => (y) { y = Cast <to = 1, saturate = 0> (x) }")
    model.graph.node[0].attribute[1].ClearField("i")
    assert read(model, tmp_path).graph[0].attributes["saturate"].as_int() == 0


def test_sizes_below_zero_and_names_without_letters_are_unknown(tmp_path):
    model = parsed(LINE)
    shape = model.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_value = -1
    shape.dim.add().dim_param = ""
    dims = read(model, tmp_path).graph.inputs[0].shape
    assert [dim.value for dim in dims] == [None, None]


def test_a_shape_without_an_element_type(tmp_path):
    model = parsed(LINE)
    model.graph.value_info.add(name="a").type.tensor_type.shape.dim.add(dim_value=3)
    written = ir.to_proto(read(model, tmp_path))
    [info] = [info for info in written.graph.value_info if info.name == "a"]
    assert info.type.tensor_type.shape.dim[0].dim_value == 3


def test_what_is_said_twice_is_said_once(tmp_path):
    model = parsed(LINE)
    for _ in range(2):
        model.metadata_props.add(key="k", value="v")
        model.graph.node[0].metadata_props.add(key="k", value="v")
        model.graph.value_info.append(helper.make_tensor_value_info("a", 1, ["n"]))
    found = read(model, tmp_path)
    assert found.metadata_props == {"k": "v"}
    assert found.graph[0].metadata_props == {"k": "v"}
    assert found.graph[0].outputs[0].shape == ir.Shape(["n"])


def test_what_is_said_of_inputs_and_outputs_elsewhere(tmp_path):
    model = parsed("g (x) => (float[n] y) { y = Relu(x) }")
    model.graph.input[0].ClearField("type")
    for name in ("x", "y"):
        info = helper.make_tensor_value_info(name, 1, [3], doc_string=f"of {name}")
        info.metadata_props.add(key="k", value=name)
        model.graph.value_info.append(info)
    graph = read(model, tmp_path).graph
    for value in (graph.inputs[0], graph.outputs[0]):
        assert value.metadata_props == {"k": value.name}
        assert value.doc_string == f"of {value.name}"
        assert value.dtype == ir.DataType.FLOAT
    assert graph.inputs[0].shape == ir.Shape([3])
    assert graph.outputs[0].shape == ir.Shape(["n"])


def test_metadata_of_a_tensor_goes_to_its_value(tmp_path):
    model = parsed(LINE)
    tensor = model.graph.initializer[0]
    tensor.metadata_props.add(key="k", value="v")
    tensor.doc_string = "the weight"
    found = read(model, tmp_path)
    for _ in range(2):
        value = found.graph.initializers["w"]
        assert (value.metadata_props, value.doc_string) == ({"k": "v"}, "the weight")
        assert not value.const_value.metadata_props
        found = read(ir.to_proto(found), tmp_path)
    info = helper.make_tensor_value_info("w", 1, [1])
    info.metadata_props.add(key="k", value="other")
    model.graph.value_info.append(info)
    with pytest.raises(ModelFileError, match="initializer 'w' has two values of the metadata key 'k'"):
        read(model, tmp_path)


def test_metadata_of_a_tensor_in_an_attribute_is_written_once(tmp_path):
    model = parsed("g () => (y) { y = Constant <value = float {1}> () }")
    model.graph.node[0].attribute[0].t.metadata_props.add(key="k", value="v")
    for _ in range(3):
        model = ir.to_proto(read(model, tmp_path))
    assert len(model.graph.node[0].attribute[0].t.metadata_props) == 1


@pytest.mark.parametrize("ir_version", [8, 12])
def test_types_within_functions(tmp_path, ir_version):
    """Before IR version 10 the main graph states them; what is stated of an input is kept as well."""
    model = parsed(
        "g (float[n] x) => (y) { y = m.F (x) }"
        '<domain: "m", opset_import: ["": 18]> F (f) => (r) { t = Neg (f) r = Abs (t) }',
        ir_version,
    )
    for name in "ft":
        info = helper.make_tensor_value_info(name if ir_version > 9 else f"m::F/{name}", 1, ["n"])
        (model.functions[0] if ir_version > 9 else model.graph).value_info.append(info)
    found = read(model, tmp_path)
    function = next(iter(found.functions.values()))
    for value in (function.inputs[0], function[0].outputs[0]):
        assert (value.dtype, value.shape) == (ir.DataType.FLOAT, ir.Shape(["n"]))
    assert read(ir.to_proto(found), tmp_path).functions[function.identifier()].inputs[0].shape == ir.Shape(
        ["n"]
    )


def test_quantization_annotations_and_denotations(tmp_path):
    model = parsed(LINE)
    for name in ("x", "w", "a", "y"):
        annotation = model.graph.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=f"scale of {name}")
    model.graph.input[0].type.denotation = "IMAGE"
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_CHANNEL"
    written = ir.to_proto(read(model, tmp_path))
    assert {a.tensor_name for a in written.graph.quantization_annotation} == {"x", "w", "a", "y"}
    assert written.graph.input[0] == model.graph.input[0]


def test_device_configurations(tmp_path):
    model = parsed(LINE)
    model.configuration.add(name="two", num_devices=2, device=["a", "b"])
    node = model.graph.node[0].device_configurations.add(configuration_id="two", pipeline_stage=1)
    spec = node.sharding_spec.add(tensor_name="x", device=[0, 1])
    spec.sharded_dim.add(axis=0).simple_sharding.add(dim_param="n", num_shards=2)
    written = ir.to_proto(read(model, tmp_path))
    assert written.configuration == model.configuration
    assert written.graph.node[0].device_configurations == model.graph.node[0].device_configurations


def test_what_nothing_makes_is_left_out_with_a_warning(tmp_path):
    model = parsed(LINE)
    for name in ("p", "q", "r", "s", "t", "u"):
        model.graph.value_info.append(helper.make_tensor_value_info(name, 1, None))
    model.graph.quantization_annotation.add(tensor_name="z")
    with pytest.warns(UserWarning, match="without parts that have no effect: .*; the declared types .*: 'p'"):
        found = to_ir(model, tmp_path)
    assert found.meta["left_out"] == (
        "the quantization annotations of values that no node computes: 'z'",
        "the declared types of values that no node computes: 'p', 'q', 'r', 's' and 2 more",
    )


TENSORS = [
    helper.make_tensor("t", TensorProto.INT4, [3], [1, -8, 7]),
    helper.make_tensor("t", TensorProto.UINT4, [0], []),
    helper.make_tensor("t", TensorProto.INT2, [5], [1, -2, 0, 1, -1]),
    helper.make_tensor("t", TensorProto.BFLOAT16, [2], [1.0, float("nan")]),
    helper.make_tensor("t", TensorProto.FLOAT8E4M3FN, [2], [1.0, -2.0]),
    helper.make_tensor("t", TensorProto.COMPLEX64, [2], [1 + 2j, -3j]),
    helper.make_tensor("t", TensorProto.STRING, [2], [b"a\0b", b"\xff"]),
    helper.make_tensor("t", TensorProto.BOOL, [2], [True, False]),
    helper.make_tensor("t", TensorProto.UINT32, [1], [2**32 - 1]),
    helper.make_tensor("t", TensorProto.INT8, [2], [-128, 127]),
    helper.make_tensor("t", TensorProto.DOUBLE, [], [1e300]),
    helper.make_tensor("t", TensorProto.INT16, [2], np.array([-1, 2], np.int16).tobytes(), raw=True),
    helper.make_tensor("t", TensorProto.FLOAT, [0, 5], []),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: TensorProto.DataType.Name(t.data_type))
def test_tensors_of_every_kind(tensor, tmp_path):
    model = parsed(LINE)
    model.graph.initializer.append(tensor)
    found = read(model, tmp_path)
    held = found.graph.initializers["t"].const_value.numpy()
    assert held.shape == tuple(tensor.dims)
    if tensor.data_type == TensorProto.STRING:
        assert list(held) == list(tensor.string_data)
    else:
        assert held.tobytes() == onnx.numpy_helper.to_array(tensor).tobytes()
    assert ir.to_proto(found).graph.initializer[1] == tensor


def test_names_of_any_kind(tmp_path):
    for name in ("a:b/c$d e", "\0", "\u202e\U0001f600", " ", "'\"\\"):
        model = parsed(LINE)
        model.graph.node[0].output[0] = model.graph.node[1].input[0] = name
        assert read(model, tmp_path).graph[0].outputs[0].name == name
