"""Pairs of nets as source graphs: blobs, inputs and outputs, and nets that cannot run."""

import json
import re
import subprocess
import sys
import warnings

import numpy as np
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.capture.caffe2.messages import message_type
from opsetta.registration.arguments import arguments

from .nets import Net, converted, operators, run, write


def chain(*kinds, name="data"):
    """Operators one after the other, all in place on one blob."""
    net = Net()
    for kind in kinds:
        net.add(kind, name, name)
    return net


def test_blobs_written_in_place_are_values_of_their_own(tmp_path):
    net = Net()
    net.add("Relu", "data", "data")
    net.add("Exp", "data", "other")
    net.add("Negative", "data", "data")
    net.add("Add", ["data", "other"], "data")
    model = converted(tmp_path, net.finish(["data"], ["data"]), shapes={"data": [3]})
    names = [value.name for node in model.source.graph for value in node.outputs]
    assert len(set(names)) == 4
    x = np.array([-1, 0, 2], np.float32)
    [found] = run(model.lower(13), {"data": x})
    np.testing.assert_allclose(found, np.exp(np.maximum(x, 0)) - np.maximum(x, 0), rtol=1e-6)
    assert model.input_names == ["data"]


def test_source_nodes_have_the_names_of_the_schema(tmp_path):
    predict, init = Net(), Net()
    init.fill("w", np.ones((2, 1, 3, 3), np.float32))
    predict.add(
        "Conv", ["data", "w"], "y", kernel_h=3, kernel_w=2, pad=1, cudnn_exhaustive_search=1, order="NCHW"
    )
    predict.add("Concat", ["y", "y"], ["z", "_z_dims"], axis=1)
    model = converted(tmp_path, predict.finish(["data", "w"], ["z"]), init.message)
    conv, concat = model.source.graph
    assert (conv.domain, conv.op_type) == ("caffe2", "Conv")
    found = arguments(conv)
    assert [value.name for value in (found.pop("X"), found.pop("filter"))] == ["data", "w"]
    assert found == {"kernels": [3, 2], "pads": [1, 1, 1, 1], "order": "NCHW"}
    assert arguments(concat) == {"inputs": [conv.outputs[0]] * 2, "axis": 1}
    assert list(model.source.graph.initializers) == ["w"]
    assert model.input_names == ["data"]


@pytest.mark.parametrize("opset", [9, 13, 21])
def test_a_net_that_draws_numbers_draws_them_in_each_run(tmp_path, opset):
    net = Net()
    net.add("Shape", "data", "sizes")
    net.add("UniformFill", "data", "like", min=2.0, max=3.0, extra_shape=[5])
    net.add("GaussianFill", "sizes", "normal", input_as_shape=1, mean=4.0, std=0.001)
    net.add("UniformIntFill", [], "integers", shape=[50], min=3, max=4)
    net.add("XavierFill", [], "xavier", shape=[30, 3])
    net.add("MSRAFill", "data", "msra", extra_shape=[40])
    outputs = ["like", "normal", "integers", "xavier", "msra"]
    model = converted(tmp_path, net.finish(["data"], outputs), shapes={"data": ("n", 3)}).lower(opset)
    like, normal, integers, xavier, msra = run(model, {"data": np.zeros((7, 3), np.float32)})
    assert like.shape == (7, 3, 5)
    assert like.min() >= 2
    assert like.max() <= 3
    assert like.std() > 0.2
    assert normal.shape == (7, 3)
    np.testing.assert_allclose(normal, 4, atol=0.01)
    # The bounds are the square roots of 3 / 3, and of 2 / (7 * 40).
    assert xavier.shape == (30, 3)
    assert 0.9 < np.abs(xavier).max() <= 1
    assert msra.shape == (7, 3, 40)
    np.testing.assert_allclose(msra.std(), 0.0845, rtol=0.15)
    assert (integers.dtype, set(integers.tolist())) == (np.int32, {3, 4})


def test_a_result_of_strings_is_written(tmp_path):
    net = Net()
    net.add("ConstantFill", [], "label", shape=[2], value="a", dtype=4)
    net.add("Relu", "data", "y")
    model = converted(tmp_path, net.finish(["data"], ["label", "y"]), shapes={"data": [1]}).lower(13)
    label, _ = run(model, {"data": np.ones(1, np.float32)})
    assert label.tolist() == ["a", "a"]


def test_unknown_operators_are_all_named(tmp_path):
    net = Net()
    net.add("Relu", "data", "a")
    net.add("Swirl", ["a"], "b", pre_nms_topN=6000)
    net.add("Twist", ["b", "a"], ["c", "d"])
    net.add("Swirl", ["c"], "e")
    net.message.op[1].name = "rpn"
    model = converted(tmp_path, net.finish(["data"], ["e"]))
    with pytest.raises(opsetta.UnsupportedOperatorsError) as error:
        model.lower(13)
    assert {each.name for each in error.value.operators} == {
        "caffe2::Swirl",
        "caffe2::Twist",
    }
    assert "caffe2::Swirl (2 times, in rpn, e)" in str(error.value)


def test_a_symbolic_function_of_ones_own(tmp_path):
    net = Net()
    net.add("Swirl", ["data", "data"], "y", degree=2.0)
    model = converted(tmp_path, net.finish(["data"], ["y"]), shapes={"data": [2]})
    registry = opsetta.default_registry.fork()

    @opsetta.onnx_symbolic("caffe2::Swirl", registry=registry)
    def swirl(g, inputs: list[opsetta.Value], degree: float):
        return g.op("Mul", g.op("Add", *inputs), degree)

    [found] = run(model.lower(9, registry=registry), {"data": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(found, [4, 8])


def test_operators_of_another_library_are_not_caffe2s(tmp_path):
    net = chain("Relu")
    net.message.op[0].domain = "aten"
    model = converted(tmp_path, net.finish(["data"], ["data"]))
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=re.escape("caffe2.aten::Relu")):
        model.lower(13)


def test_without_lists_of_blobs_what_is_read_and_what_is_left_count(tmp_path):
    net = Net()
    net.add("Add", ["a", "b"], "c")
    net.add("Relu", "c", "d")
    net.add("Concat", ["d", "a"], ["e", "_dims"], axis=0)
    model = converted(tmp_path, net.message, shapes={"a": [2], "b": [2]})
    assert (model.input_names, model.output_names) == (["a", "b"], ["e"])


def test_external_inputs_may_stand_twice(tmp_path):
    predict, init = Net(), Net()
    init.fill("b", np.ones(2, np.float32))
    predict.add("Add", ["a", "b"], "c")
    model = converted(tmp_path, predict.finish(["a", "b", "a", "b"], ["c", "c"]), init.message)
    assert (model.input_names, model.output_names) == (["a"], ["c"])


def test_the_init_net_may_compute(tmp_path):
    predict, init = Net(), Net()
    init.fill("raw", np.arange(6, dtype=np.float32))
    init.add("Reshape", "raw", ["w", "_old"], shape=[2, 3])
    init.add("Scale", "w", "w", scale=0.5)
    init.fill("b", np.zeros(2, np.float32))
    predict.add("FC", ["data", "w", "b"], "y")
    model = converted(tmp_path, predict.finish(["data", "w", "b"], ["y"]), init.message)
    x = np.array([[1, 2, 3]], np.float32)
    [found] = run(model.lower(9), {"data": x})
    np.testing.assert_allclose(found, x @ (np.arange(6).reshape(2, 3) * 0.5).T)


def test_an_input_and_a_weight_may_be_outputs(tmp_path):
    predict, init = Net(), Net()
    init.fill("w", np.ones(2, np.float32))
    predict.add("Relu", "data", "y")
    model = converted(tmp_path, predict.finish(["data", "w"], ["data", "w", "y"]), init.message)
    program = model.lower(13)
    x = np.array([-1, 2], np.float32)
    found = run(program, {program.input_names[0]: x})
    for result, expected in zip(found, [x, np.ones(2), [0, 2]], strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("operators", "inputs", "outputs", "message"),
    [
        (
            [("Relu", ["x"], ["y"])],
            ["data"],
            ["y"],
            "Relu 'y' .* reads blob 'x', which no operator before it writes",
        ),
        ([("Add", ["data", "z"], ["y"]), ("Relu", ["y"], ["z"])], ["data"], ["z"], "reads blob 'z'"),
        ([("Relu", ["data"], ["y"])], ["data"], ["z"], "output 'z' .* written by no operator"),
    ],
)
def test_nets_that_cannot_run(operators, inputs, outputs, message, tmp_path):
    net = Net()
    for operator in operators:
        net.add(*operator)
    with pytest.raises(opsetta.CaptureError, match=message):
        converted(tmp_path, net.finish(inputs, outputs))


@pytest.mark.parametrize(
    ("kind", "inputs", "given", "message"),
    [
        ("MaxPool", ["data"], {"kernel": 3, "kernels": [2, 2]}, "gives kernels twice"),
        ("Relu", ["data", "data"], {}, "2 inputs, more than 1"),
        ("Split", ["data", "data"], {"split": [1, 1]}, "'split' both as an input and as an argument"),
        ("Relu", [""], {}, "blob without a name"),
        ("Cast", ["data"], {"to": 77}, "element type 77"),
        ("Cast", ["data"], {"to": "quaternion"}, "element type 'quaternion'"),
        ("Clip", ["data"], {"min": [0.0] * 70_000}, "70000 elements"),
    ],
)
def test_arguments_that_contradict_each_other(kind, inputs, given, message, tmp_path):
    net = Net()
    net.add(kind, inputs, "y", **given)
    with pytest.raises(opsetta.ModelFileError, match=message):
        converted(tmp_path, net.finish(["data"], ["y"]))


def test_an_argument_may_stand_twice_if_it_is_the_same(tmp_path):
    net = Net()
    net.add("LeakyRelu", "data", "y", alpha=0.5)
    net.message.op[0].arg.add(name="alpha", f=0.5)
    assert converted(tmp_path, net.finish(["data"], ["y"])).lower(13)
    net.message.op[0].arg[1].f = 0.25
    with pytest.raises(opsetta.ModelFileError, match="two arguments named 'alpha'"):
        converted(tmp_path, net.message)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("Dropout", {}, "training net"),
        ("MaxPool", {}, "no kernel size"),
        ("MaxPool", {"kernel": 2, "pad": 2}, "pads must be smaller"),
        ("MaxPool", {"kernel": 2, "legacy_pad": 2, "pad": 1}, "pads together with legacy_pad"),
        ("MaxPool", {"kernel": 1, "stride": 2, "legacy_pad": 3}, "empty windows"),
        ("AveragePool", {"kernel": 2, "order": "CHWN"}, "order"),
        ("LRN", {"size": 4}, "must be odd"),
        ("LRN", {"size": 3, "alpha": 1.0, "beta": -0.5}, "beta -0.5"),
        ("Relu6", {}, "no symbolic function"),
        ("LeakyRelu", {"alpha": "much"}, "alpha"),
    ],
)
def test_what_caffe2_does_not_run_either(kind, given, message, tmp_path):
    net = Net()
    net.add(kind, "data", "y", **given)
    model = converted(tmp_path, net.finish(["data"], ["y"]), shapes={"data": [1, 4, 8, 8]})
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=message):
        model.lower(13)


def test_a_net_in_training(tmp_path):
    net = Net()
    blobs = ["data", "s", "b", "m", "v"]
    net.add("SpatialBN", blobs, ["y", "m", "v", "sm", "sv"], epsilon=1e-5)
    with pytest.warns(UserWarning, match="no init_net"):
        model = converted(tmp_path, net.finish(blobs, ["y"]))
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="training net"):
        model.lower(13)


def test_the_init_net_is_found_beside_the_predict_net(tmp_path):
    predict, init = Net(), Net()
    init.fill("w", np.full(3, 2, np.float32))
    predict.add("Mul", ["data", "w"], "y")
    path = write(tmp_path, predict.finish(["data", "w"], ["y"]), init.message)
    assert opsetta.load(path).input_names == ["data"]
    named = tmp_path / "squeeze_predict_net.pbtxt"
    path.rename(named)
    (tmp_path / "init_net.pb").rename(tmp_path / "squeeze_init_net.pb")
    assert opsetta.load(named).input_names == ["data"]
    other = tmp_path / "squeeze.pb"
    named.rename(other)
    with pytest.warns(UserWarning, match="no init_net.*: w"):
        assert opsetta.load(other).input_names == ["data", "w"]
    weights = tmp_path / "weights.pb"
    (tmp_path / "squeeze_init_net.pb").rename(weights)
    assert opsetta.load(other, init_net=weights).input_names == ["data"]
    with pytest.raises(opsetta.ModelFileError, match="cannot be read"):
        opsetta.load(other, init_net=tmp_path / "none.pb")


def test_weights_that_the_init_net_lacks(tmp_path):
    predict, init = Net(), Net()
    init.fill("b", np.zeros(2, np.float32))
    predict.add("FC", ["data", "w", "b"], "y")
    predict.add("Add", ["y", "more"], "y")
    with pytest.warns(UserWarning, match="does not fill all weights, so these blobs stay inputs: w$"):
        model = converted(tmp_path, predict.finish(["data", "w", "b", "more"], ["y"]), init.message)
    assert model.input_names == ["data", "w", "more"]


def placeholder_nets(fill):
    """A pair whose init_net fills the input, too."""
    predict, init = Net(), Net()
    init.fill("w", np.full((1, 3), 2, np.float32))
    fill(init)
    predict.add("Mul", ["data", "w"], "y")
    return predict.finish(["data", "w"], ["y"]), init.message


@pytest.mark.parametrize(
    "fill",
    [
        lambda init: init.fill("data", np.zeros((1, 1), np.float32)),
        lambda init: init.add("ConstantFill", [], "data", shape=[1]),
    ],
)
def test_placeholders_in_the_init_net(fill, tmp_path):
    predict, init = placeholder_nets(fill)
    with pytest.warns(UserWarning, match="placeholder: data"):
        model = converted(tmp_path, predict, init)
    assert model.input_names == ["data"]
    [found] = run(model.lower(13), {"data": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(found, np.full((2, 3), 2))


def test_described_inputs_are_inputs_whatever_the_init_net_fills(tmp_path):
    predict, init = placeholder_nets(lambda net: net.fill("data", np.ones((2, 3), np.float32)))
    assert converted(tmp_path, predict, init).input_names == []
    assert converted(tmp_path, predict, init, shapes={"data": [2, 3]}).input_names == ["data"]


def test_shapes(tmp_path):
    net = chain("Relu")
    path = write(tmp_path, net.finish(["data"], ["data"]))

    def described(**options):
        [value] = opsetta.load(path, **options).lower(13).model.graph.inputs
        return value.dtype, None if value.shape is None else [str(size) for size in value.shape]

    assert described() == (ir.DataType.FLOAT, None)
    assert described(shapes={"data": (2, "n", None)}) == (ir.DataType.FLOAT, ["2", "n", "None"])
    assert described(shapes={"data": "2,n,-1"}) == (ir.DataType.FLOAT, ["2", "n", "None"])
    assert described(shapes={"data": "float64[2]"}) == (ir.DataType.DOUBLE, ["2"])
    assert described(shapes={"data": "float32[]"}) == (ir.DataType.FLOAT, [])
    (tmp_path / "value_info.json").write_text(json.dumps({"data": [1, [1, 3, 8, 8]], "more": [7, [1]]}))
    assert described() == (ir.DataType.FLOAT, ["1", "3", "8", "8"])
    assert described(shapes={"data": [7]}) == (ir.DataType.FLOAT, ["7"])
    for wrong in ({"data": "quad[2]"}, {"data": "2,3]"}, {"data": 7}, {"data": [-3]}, {"other": [1]}, [1]):
        with pytest.raises(opsetta.UsageError):
            described(shapes=wrong)
    for text in ("{", "[1]", '{"data": 7}', '{"data": [99, [1]]}', '{"data": [1, [-7]]}', "[" * 100_000):
        (tmp_path / "value_info.json").write_text(text)
        with pytest.raises(opsetta.ModelFileError, match="value_info.json"):
            described()


def test_the_first_reader_tells_ranks_and_element_types(tmp_path):
    net = Net()
    net.add("Conv", ["image", "w"], "a", kernels=[3])
    net.add("LRN", "photo", "b", size=3)
    net.add("Gather", ["table", "ids"], "c")
    net.add("Where", ["mask", "table", "table"], "d")
    inputs = ["image", "w", "photo", "table", "ids", "mask"]
    with pytest.warns(UserWarning, match="no init_net"):
        model = converted(tmp_path, net.finish(inputs, ["a", "b", "c", "d"]))
    found = {value.name: value for value in model.source.graph.inputs}
    assert [len(found[name].shape) for name in ("image", "photo")] == [3, 4]
    assert found["ids"].dtype == ir.DataType.INT64
    assert found["mask"].dtype == ir.DataType.BOOL
    assert found["table"].shape is None


def test_options_of_other_files(tmp_path):
    path = tmp_path / "x.onnx"
    path.write_bytes(b"\x08\x07")
    with pytest.raises(opsetta.UsageError, match="shapes"):
        opsetta.load(path, shapes={"x": [1]})
    with pytest.raises(opsetta.ModelFileError, match="not a Caffe2 net"):
        opsetta.load(path, init_net=path)


def weighted_net():
    predict, init = Net(), Net()
    init.fill("w", np.ones(3, np.float32))
    predict.add("Mul", ["data", "w"], "y")
    return predict.finish(["data", "w"], ["y"]), init.message


def test_no_warning_where_nothing_is_odd(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = converted(tmp_path, *weighted_net())
        assert operators(model.lower(7)) == ["Mul"]


def test_torch_is_not_imported(tmp_path):
    path = write(tmp_path, *weighted_net())
    program = f"""
import sys, opsetta
opsetta.load({str(path)!r}).lower(11).save({str(tmp_path / "out.onnx")!r})
assert not {{"torch", "caffe2", "onnxruntime"}} & {{*sys.modules}}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert (tmp_path / "out.onnx").exists()


def test_a_net_survives_as_a_source_file(tmp_path):
    predict, init = Net(), Net()
    init.fill("w", np.ones((2, 3), np.float32))
    init.fill("b", np.ones(2, np.float32))
    predict.add("FC", ["data", "w", "b"], "y")
    predict.add("Softmax", "y", "y")
    model = converted(tmp_path, predict.finish(["data", "w", "b"], ["y"]), init.message)
    model.save_source(tmp_path / "net.source.onnx")
    again = opsetta.load(tmp_path / "net.source.onnx")
    assert again.lower(9).model_proto == model.lower(9).model_proto


def test_the_same_nets_give_the_same_bytes(tmp_path):
    predict, init = Net(), Net()
    init.add("XavierFill", [], "w", shape=[4, 3])
    predict.add("Mul", ["data", "w"], "y")
    path = write(tmp_path, predict.finish(["data", "w"], ["y"]), init.message)
    with pytest.warns(UserWarning, match="random"):
        first, second = (opsetta.load(path).lower(11).model_proto.SerializeToString() for _ in range(2))
    assert first == second


def test_nets_in_arguments_are_not_silently_dropped(tmp_path):
    net = Net()
    net.add("If", "data", "y")
    net.message.op[0].arg.add(name="then_net").n.CopyFrom(message_type("NetDef")(name="then"))
    model = converted(tmp_path, net.finish(["data"], ["y"]))
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="caffe2::If"):
        model.lower(13)
