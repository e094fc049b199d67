"""Sizes, names, parts and element types of ONNX models, compared in onnxruntime with the original."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.running.model_inputs import inputs_of_model
from opsetta.exporter.running.random_inputs import random_inputs

GRAPH = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[batch, 3, h, w] images) => (float[batch, n, 4] boxes, float[batch, 4] mean)
<float[4, 3, 1, 1] weight = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[3] flat = {0, 4, -1}>
{
  conv = Conv(images, weight)
  active = Relu(conv)
  rows = Reshape(active, flat)
  boxes = Transpose<perm = [0, 2, 1]>(rows)
  mean = ReduceMean<axes = [2, 3], keepdims = 0>(active)
}
"""
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)


def load(tmp_path, text=GRAPH):
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return opsetta.load(tmp_path / "m.onnx")


@pytest.fixture
def model(tmp_path):
    return load(tmp_path)


def shapes(model):
    return [list(map(str, value.shape)) for value in (*model.model.graph.inputs, *model.model.graph.outputs)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dims": {"batch": 2, "h": 4, "w": 6}}, [["2", "3", "4", "6"], ["2", "24", "4"], ["2", "4"]]),
        ({"shapes": {"images": (2, 3, 4, 6)}}, [["2", "3", "4", "6"], ["2", "24", "4"], ["2", "4"]]),
        ({"shapes": {"images": ("b", 3, 4, 6)}}, [["b", "3", "4", "6"], ["b", "24", "4"], ["b", "4"]]),
    ],
)
@pytest.mark.parametrize("opset", [9, 13, 18])
def test_sizes_reach_every_shape(model, changes, expected, opset):
    changed = model.lower(opset, **changes)
    assert shapes(changed) == expected
    changed.verify([IMAGES])


def test_texts_and_numbers_become_constants(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 13]>
    net (string[2] x) => (string[2] y) { y = Identity(x) }"""
    model = load(tmp_path, text)
    model.lower(17).verify(kwargs=random_inputs(inputs_of_model(model.model)))
    assert model.edit(constants={"x": ["a", "b"]})().tolist() == ["a", "b"]
    sum_of_inputs = load(
        tmp_path,
        """<ir_version: 8, opset_import: ["" : 13]>
    net (float x, float[1] y) => (float[1] z) { z = Add(x, y) }""",
    )
    fixed = sum_of_inputs.edit(constants={"x": 2})
    fixed.save(tmp_path / "fixed.onnx")
    assert opsetta.load(tmp_path / "fixed.onnx")(np.ones(1, np.float32)).tolist() == [3]
    with pytest.raises(
        opsetta.UsageError, match="1 is not a text or an array of STRING, which input 'x' has"
    ):
        model.edit(constants={"x": 1})


def test_a_part_that_ends_at_an_unknown_type_is_refused(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1]>
    net (float[2] x) => (float[2] y) { g = com.microsoft.QuickGelu(x) y = Relu(g) }"""
    with pytest.raises(opsetta.GraphError, match="type of 'g' is unknown, so it cannot be an output"):
        load(tmp_path, text).extract((), ["g"])


def test_formulas_and_conditions_keep_the_other_dimensions(model):
    model.model.metadata_props["opsetta.dimensions"] = (
        '[{"condition": "h + batch <= 8", "reason": "r", "line": ""}, '
        '{"condition": "batch >= 1", "reason": "r", "line": ""}]'
    )
    changed = model.lower(13, dims={"batch": 2})
    assert "h + 2 <= 8" in changed.model.metadata_props["opsetta.dimensions"]
    assert "batch" not in changed.model.metadata_props["opsetta.dimensions"]
    with pytest.raises(opsetta.OpsettaError, match="not valid for these sizes: it needs batch >= 1"):
        model.lower(13, dims={"batch": 0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": {"depth": 1}}, "no dynamic dimension 'depth': their dynamic dimensions are batch, h, w"),
        ({"dims": {"batch": -1}}, "must be 0 or more"),
        ({"shapes": {"image": (1,)}}, "no input 'image': its inputs are images"),
        ({"shapes": {"images": (1, 3)}}, "has 4 dimensions"),
        ({"dims": {"h": 4}, "shapes": {"images": (1, 3, 5, 6)}}, "several sizes"),
        ({"rename": {"foo": "bar"}}, "no input or output 'foo'"),
        ({"rename": {"images": "boxes"}}, "taken"),
    ],
)
def test_names_and_sizes_that_do_not_fit_are_refused(model, changes, message):
    with pytest.raises(opsetta.UsageError, match=message):
        model.lower(13, **changes)


def test_names_are_changed_and_swapped(model):
    renamed = model.lower(13, rename={"images": "x", "boxes": "mean", "mean": "boxes"})
    assert (renamed.input_names, renamed.output_names) == (["x"], ["mean", "boxes"])
    np.testing.assert_array_equal(renamed.run({"x": IMAGES})[1], model(IMAGES)[1])


FIXED = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[2, 3] x) => (float[2, 1, 3] y)
<int64[3] shape = {2, 1, 3}> { z = Reshape(x, shape) y = OPERATOR(z) }
"""


def test_a_batch_is_made_dynamic(tmp_path):
    batched = load(tmp_path, FIXED.replace("OPERATOR", "Relu")).lower(13, dynamic="n")
    assert shapes(batched) == [["n", "3"], ["n", "1", "3"]]
    assert batched(np.ones((5, 3), np.float32)).shape == (5, 1, 3)


def test_a_model_that_mixes_its_batch_keeps_it(tmp_path):
    with pytest.raises(opsetta.OpsettaError, match="cannot be dynamic: output 'y'"):
        load(tmp_path, FIXED.replace("OPERATOR", "Softmax<axis = 0>")).lower(13, dynamic="n")


def test_a_question_mark_is_no_name_of_a_size(tmp_path):
    """Paddle2ONNX writes it for every unknown size."""
    text = "g (float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Relu(x) }"
    onnx_model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> {text}')
    for info in (*onnx_model.graph.input, *onnx_model.graph.output):
        for position in (0, 2, 3):
            info.type.tensor_type.shape.dim[position].dim_param = "?"
    onnx.save(onnx_model, tmp_path / "m.onnx")
    sized = opsetta.load(tmp_path / "m.onnx").lower(13, shapes={"x": (1, 3, 4, 5)})
    assert shapes(sized) == [["1", "3", "4", "5"], ["1", "3", "4", "5"]]


def test_an_output_that_the_file_declares_wrongly_has_the_shape_that_its_nodes_compute(tmp_path):
    """onnxruntime takes such files. The wrong rank is seen only when the sizes are known."""
    text = """<ir_version: 8, opset_import: ["": 13]>
    g (float[n, 4] x) => (float[n, m] y) <int64[2] two = {2, 2}, int64[1] first = {0}> {
        sizes = Shape(x)
        rows = Gather<axis = 0>(sizes, first)
        shape = Concat<axis = 0>(rows, two)
        y = Reshape(x, shape)
    }"""
    with pytest.warns(UserWarning, match=r"'y' has the shape \[3,m\], but its nodes compute \[3,2,2\]"):
        sized = load(tmp_path, text).lower(target="openvino", shapes={"x": (3, 4)})
    assert shapes(sized) == [["3", "4"], ["3", "2", "2"]]
    assert sized(np.ones((3, 4), np.float32)).shape == (3, 2, 2)


def test_a_size_that_a_constant_shape_excludes_is_refused(tmp_path):
    with pytest.raises(opsetta.OpsettaError, match=r"Reshape \(the node of 'z'\).* \[2, 1, 3\], .* \[3, 3\]"):
        load(tmp_path, FIXED.replace("OPERATOR", "Relu")).lower(13, shapes={"x": (3, 3)})


def test_a_size_that_a_weight_excludes_is_refused(model):
    with pytest.raises(opsetta.GraphError, match="does not take these sizes: Conv .* not 4"):
        model.lower(13, shapes={"images": ("n", 4, 8, 8)})


def test_a_target_that_takes_fixed_sizes_names_the_option(model):
    with pytest.raises(opsetta.TargetError, match=r"--dim batch=1 --dim h=… --dim w=… or lower\(dims=…\)"):
        model.lower(target="rknn")


@pytest.mark.parametrize("cut", ["conv", "active"])
def test_parts_joined_again_are_the_model(model, cut):
    first, second = model.extract(outputs=[cut]), model.extract(inputs=[cut])
    assert (first.input_names, second.output_names) == (["images"], ["boxes", "mean"])
    joined = first.join(second, {cut: cut}, keep_outputs=True)
    assert joined.output_names == [cut, "boxes", "mean"]
    for result, expected in zip(joined(IMAGES)[1:], model(IMAGES), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_part_returns_only_what_it_computes_or_takes(model):
    with pytest.raises(opsetta.UsageError, match="no node computes 'images'"):
        model.extract(inputs=["conv"], outputs=["images"])
    with pytest.raises(opsetta.UsageError, match="the part also depends on images"):
        model.extract(inputs=["mean"], outputs=["boxes"])
    assert model.extract(inputs=["images"], outputs=["images"]).output_names == ["images"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["extract", "m.onnx", "--to", "conv"],
        ["edit", "m.onnx", "--drop-output", "mean"],
        ["simplify", "m.onnx"],
        ["reduce", "m.onnx", "--keep-failing", "false"],
        ["quantize", "m.onnx", "--calibrate", "data.npz"],
    ],
)
def test_a_command_does_not_replace_its_model(model, tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    content = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "-o", f"../{tmp_path.name}/m.onnx"])
    assert caught.value.code == 2
    assert "is the model itself: pass another -o" in capsys.readouterr().err
    assert (tmp_path / "m.onnx").read_bytes() == content


def test_equal_names_of_joined_models_are_told_apart(model):
    # Every name of the first model occurs in the second, too.
    relu = model.extract(inputs=["conv"], outputs=["active"]).lower(
        13, shapes={"conv": (2, 3, 4, 6)}, rename={"conv": "images"}
    )
    joined = relu.join(model, {"active": "images"})
    for result, expected in zip(joined(IMAGES), model(np.maximum(IMAGES, 0)), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_models_of_unequal_opsets_get_a_common_one(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = model.extract(outputs=["active"]), model.extract(inputs=["active"])
    first.lower(10).save("first.onnx")
    second.lower(15).save("second.onnx")
    for options, opset in (([], 15), (["--opset", "12"], 12)):
        with pytest.raises(SystemExit):
            cli.main(["join", "first.onnx", "second.onnx", "-o", "joined.onnx", *options])
        joined = opsetta.load("joined.onnx")
        assert joined.opset == opset
        for result, expected in zip(joined(IMAGES), model(IMAGES), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("version", "body", "message"),
    [(2, "Add(a, a)", "version 1 of the domain 'own', and the second version 2"), (1, "Mul(a, a)", "differ")],
)
def test_models_with_other_definitions_are_not_joined(tmp_path, version, body, message):
    def with_function(version, body):
        return load(
            tmp_path,
            f"""<ir_version: 8, opset_import: ["" : 13, "own" : {version}]>
            net (float[2] x) => (float[2] y) {{ y = own.twice(x) }}
            <opset_import: ["" : 13], domain: "own"> twice (a) => (b) {{ b = {body} }}""",
        )

    model = with_function(1, "Add(a, a)")
    twice = model.join(with_function(1, "Add(a, a)"), {"y": "x"})
    np.testing.assert_array_equal(twice(np.ones(2, np.float32)), [4, 4])
    with pytest.raises(opsetta.UsageError, match=message):
        model.join(with_function(version, body), {"y": "x"})


def test_models_that_do_not_fit_are_not_joined(model):
    with pytest.raises(opsetta.UsageError, match="no output 'foo': it has boxes, mean"):
        model.join(model, {"foo": "images"})
    with pytest.raises(opsetta.UsageError, match=r"shape \[batch,n,4\], and input 'images'"):
        model.join(model, {"boxes": "images"})


def test_inputs_are_fixed_and_outputs_removed(model):
    sized = model.lower(13, shapes={"images": (2, 3, 4, 6)})
    for contents in (1, np.ones((2, 3, 4, 6)).tolist()):
        fixed = sized.edit(constants={"images": contents}, drop_outputs=["boxes"])
        assert (fixed.input_names, fixed.output_names) == ([], ["mean"])
        expected = model(np.ones((2, 3, 4, 6), np.float32))[1]
        np.testing.assert_allclose(fixed.run({})[0], expected, rtol=1e-6)
    with pytest.raises(opsetta.UsageError, match="^input 'images' .*or give it a size first"):
        model.edit(constants={"images": 0})
    # An array has the sizes that dynamic dimensions then have.
    from_array = model.edit(constants={"images": np.ones((2, 3, 4, 6))})
    assert shapes(from_array) == [["2", "n", "4"], ["2", "4"]]
    np.testing.assert_allclose(from_array.run({})[1], expected, rtol=1e-6)
    with pytest.raises(opsetta.UsageError, match="has the shape .2, 5, 4, 6.; the input has"):
        model.edit(constants={"images": np.ones((2, 5, 4, 6))})
    with pytest.raises(opsetta.UsageError, match="at least one output"):
        model.edit(drop_outputs=["boxes", "mean"])


@pytest.mark.parametrize("options", [{}, {"keep_io": False}, {"exclude": ["Conv"]}])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_keeps_or_converts_the_interface(model, dtype, options):
    half = model.convert_types(dtype, **options)
    interface = {str(v.dtype) for v in (*half.model.graph.inputs, *half.model.graph.outputs)}
    name = {"fp16": "FLOAT16", "bf16": "BFLOAT16"}[dtype]
    assert interface == ({name} if options.get("keep_io") is False else {"FLOAT"})
    weights = half.model.graph.initializers["weight"].const_value.dtype
    assert str(weights) == ("FLOAT" if "exclude" in options else name)
    if dtype == "fp16":
        images = IMAGES if interface == {"FLOAT"} else IMAGES.astype(np.float16)
        np.testing.assert_allclose(half(images)[1], model(IMAGES)[1], atol=0.2)


def test_numbers_beyond_half_precision_are_reported(tmp_path):
    model = load(tmp_path, GRAPH.replace("{1, 2,", "{100000, -100000,"))
    with pytest.warns(UserWarning, match=r"beyond the range of fp16 .*'weight' \(2\)"):
        model.convert_types("fp16")
    with pytest.raises(opsetta.UsageError, match="no operator or node Softmax"):
        model.convert_types("fp16", exclude=["Softmax"])


PIXELS = np.random.default_rng(1).integers(0, 256, (2, 4, 6, 3), np.uint8)


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 18])
def test_pixels_are_transposed_resized_and_normalized(model, opset):
    sized = model.lower(opset, shapes={"images": (2, 3, 4, 6)})
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
    images = (PIXELS / 255 - np.array(mean)) / np.array(std)
    expected = sized(images.transpose(0, 3, 1, 2).astype(np.float32))[1]
    with_pixels = sized.preprocess(mean=mean, std=std)
    assert (with_pixels.input_names, with_pixels.opset) == (["images"], opset)
    np.testing.assert_allclose(with_pixels(PIXELS)[1], expected, rtol=1e-4, atol=1e-4)
    resized = sized.preprocess(mean=mean, std=std, resizes=True)
    # An image of the model's own size stays as it is.
    np.testing.assert_allclose(resized(PIXELS)[1], expected, rtol=1e-4, atol=1e-4)
    assert resized(np.zeros((2, 9, 5, 3), np.uint8))[1].shape == (2, 4)
    # The sizes behind the resized image are those of the model.
    assert shapes(resized)[1] == shapes(sized)[1]
    with pytest.raises(opsetta.OpsettaError, match="no fixed height and width"):
        model.preprocess(resizes=True)
    dynamic = model.lower(opset).preprocess(mean=mean, std=std, size=(4, 6))
    np.testing.assert_allclose(dynamic(PIXELS)[1], expected, rtol=1e-4, atol=1e-4)
    assert dynamic(np.zeros((2, 9, 5, 3), np.uint8))[1].shape == (2, 4)
    with pytest.raises(opsetta.OpsettaError, match="are not resized to"):
        sized.preprocess(size=(4, 7))


def test_pixels_are_not_divided_by_zero(model):
    with pytest.raises(opsetta.UsageError, match="std, which must not be 0"):
        model.preprocess(std=(1, 0, 1))
    with pytest.raises(opsetta.UsageError, match="std, which must not be 0"):
        model.quantize([IMAGES], std=(0,))


@pytest.mark.parametrize("opset", [9, 11, 13])
def test_scores_become_probabilities_classes_or_the_largest(model, opset):
    lowered = model.lower(opset)
    scores = lowered(IMAGES)[0]
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    probabilities = lowered.postprocess("softmax")
    assert probabilities.output_names == ["probabilities", "mean"]
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities(IMAGES)[0], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(lowered.postprocess("argmax")(IMAGES)[0], scores.argmax(-1))
    largest = lowered.postprocess("topk", 2)
    assert largest.output_names == ["scores", "classes", "mean"]
    np.testing.assert_array_equal(largest(IMAGES)[0], -np.sort(-scores)[..., :2])
    every = lowered.postprocess("topk")
    np.testing.assert_array_equal(every(IMAGES)[0], -np.sort(-scores)[..., :5])
    with pytest.raises(opsetta.OpsettaError, match=f"has {scores.shape[-1]} classes: topk cannot return 99"):
        lowered.postprocess("topk", 99)
    with pytest.raises(opsetta.UsageError, match="softmax, argmax, topk"):
        lowered.postprocess("median")
    with pytest.raises(opsetta.UsageError, match="'topk' takes no iou"):
        lowered.postprocess("topk", 2, iou=0.5)
    with pytest.raises(opsetta.OpsettaError, match="second output with scores"):
        lowered.postprocess("nms")


# Centre, size, objectness, and the scores of two classes.
ROWS = [
    [10, 10, 8, 8, 0.9, 0.9, 0.1],
    [11, 10, 8, 8, 0.9, 0.8, 0.1],
    [10, 10, 8, 8, 0.5, 0.1, 0.9],
    [40, 40, 8, 8, 0.1, 0.9, 0.1],
    [30, 10, 4, 6, 1.0, 0.4, 0.2],
]


def detector(path, outputs, opset=17):
    """A model that returns constants, each with a batch of its input."""
    nodes, initializers, returned = [helper.make_node("ReduceSum", ["images"], ["zero"], keepdims=0)], [], []
    for name, array in outputs.items():
        initializers.append(numpy_helper.from_array(np.array(array, np.float32)[None], f"{name}_0"))
        nodes.append(helper.make_node("Add", [f"{name}_0", "zero"], [name]))
        returned.append(helper.make_tensor_value_info(name, 1, initializers[-1].dims))
    images = helper.make_tensor_value_info("images", 1, [1, 3, 4, 4])
    graph = helper.make_graph(nodes, "detector", [images], returned, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return opsetta.load(path)


EMPTY = np.zeros((1, 3, 4, 4), np.float32)


@pytest.mark.parametrize("opset", [10, *(pytest.param(n, marks=pytest.mark.sweep) for n in (11, 13)), 18])
def test_raw_boxes_become_detections(tmp_path, opset):
    rows = np.array(ROWS)
    fields = np.concatenate([rows[:, :4], rows[:, 5:] * rows[:, 4:5]], 1)
    corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)
    models = {
        "objectness": (detector(tmp_path / "a.onnx", {"raw": ROWS + ROWS[3:4] * 4}), {"objectness": True}),
        "transposed": (detector(tmp_path / "b.onnx", {"raw": np.r_[fields, fields[3:4], fields[3:4]].T}), {}),
        "two outputs": (
            detector(tmp_path / "c.onnx", {"boxes": corners, "scores": fields[:, 4:], "other": [[0.0]]}),
            {"coordinates": "xyxy"},
        ),
    }
    for loaded, options in models.values():
        detections = loaded.lower(opset).postprocess("nms", score=0.3, iou=0.5, **options)
        assert detections.output_names[:4] == ["boxes", "scores", "classes", "image_indices"]
        assert shapes(detections)[1:5] == [["detections", "4"], *[["detections"]] * 3]
        boxes, scores, classes, images = detections(EMPTY)[:4]
        np.testing.assert_allclose(boxes, [[6, 6, 14, 14], [28, 7, 32, 13], [6, 6, 14, 14]], atol=1e-5)
        np.testing.assert_allclose(scores, [0.81, 0.4, 0.45], atol=1e-6)
        assert classes.tolist() == [0, 0, 1]
        assert images.tolist() == [0, 0, 0]
    assert loaded.postprocess("nms", coordinates="xyxy").output_names[4:] == ["other"]
    assert loaded.postprocess("nms", 1, coordinates="xyxy", score=0.3)(EMPTY)[1].size == 2
    assert loaded.postprocess("nms", coordinates="xyxy", score=0.99)(EMPTY)[0].shape == (0, 4)


def test_what_is_no_detector_is_refused(tmp_path):
    square = detector(tmp_path / "a.onnx", {"raw": np.zeros((6, 6))})
    with pytest.raises(opsetta.OpsettaError, match="which axis of 'raw' has the fields"):
        square.postprocess("nms")
    with pytest.raises(opsetta.OpsettaError, match="second output with scores"):
        detector(tmp_path / "b.onnx", {"raw": np.zeros((6, 4))}).postprocess("nms")
    with pytest.raises(opsetta.UsageError, match="cxcywh or xyxy"):
        square.postprocess("nms", coordinates="yxhw")
    with pytest.raises(opsetta.OpsettaError, match="NonMaxSuppression does not exist at opset 9"):
        detector(tmp_path / "c.onnx", {"raw": ROWS}).lower(9).postprocess("nms")


def test_sizes_of_a_spectrum(tmp_path):
    """onnx infers the sizes of a two-sided STFT where the attribute has its default, which is one-sided."""
    text = """<ir_version: 8, opset_import: ["": 17]> net (float[n, length, 1] x) => (float[n, t, 2] y)
        <int64 step = {4}, float[16] window = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         float[9, 1] bands = {1, 1, 1, 1, 1, 1, 1, 1, 1}>
        { spectrum = STFT(x, step, window) rows = Transpose<perm = [0, 1, 3, 2]>(spectrum)
          products = MatMul(rows, bands) y = ReduceMax<axes = [3], keepdims = 0>(products) }"""
    changed = load(tmp_path, text).lower(17, shapes={"x": (2, 40, 1)})
    assert changed(np.ones((2, 40, 1), np.float32)).shape == (2, 7, 2)


@pytest.mark.parametrize("opset", [13, 18])
def test_sizes_that_folding_finds_choose_branches(tmp_path, opset):
    """Voice detectors of TorchScript ask for sizes behind computed paddings, and squeeze if one is 1."""
    text = """<ir_version: 8, opset_import: ["": 16]>
    net (float[n, length] x, int64 rate) => (float[n, m] y)
    <int64 wide = {16000}, int64 one = {1}, int64[1] first = {0}, int64[1] last = {1}, int64[1] axes = {2},
     int64[1] four = {4}, float[2, 1, 4] filters = {1, 2, 3, 4, 5, 6, 7, 8}>
    {
      is_wide = Equal(rate, wide)
      y = If (is_wide) <
        then_branch = wide_graph () => (float[n, m] chosen) {
          zeros = ConstantOfShape<value = int64[1] {0}>(four)
          end = Mul(zeros, zeros)
          padded = Pad(x, end)
          rows = Unsqueeze(padded, last)
          filtered = Conv<strides = [4]>(rows, filters)
          shape = Shape(filtered)
          two = Add(one, one)
          third = Gather(shape, two)
          is_one = Equal(third, one)
          squeezed = If (is_one) <
            then_branch = squeeze_graph () => (a) { a = Squeeze(filtered, axes) },
            else_branch = keep_graph () => (b) { b = Identity(filtered) }
          >
          chosen = Flatten(squeezed)
        },
        else_branch = narrow_graph () => (float[n, m] other) { other = Identity(x) }
      >
    }"""
    model = load(tmp_path, text).edit(constants={"rate": 16000})
    fixed = model.lower(opset, shapes={"x": (2, 4)})
    assert "If" not in {node.op_type for node in fixed.model.graph}
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(fixed(x), model(x), atol=1e-5)


@pytest.mark.parametrize("opset", [13, 17])
def test_an_output_that_is_declared_wrongly_gets_the_computed_size(tmp_path, opset):
    text = """<ir_version: 8, opset_import: ["" : 13]> net (float[n, 4] x) => (float[n, 4] y)
    { y = Concat<axis = 0>(x, x) }"""
    model = load(tmp_path, text)
    with pytest.warns(UserWarning, match=r"output 'y' has the shape \[1,4\], but its nodes compute \[2,4\]"):
        fixed = model.lower(opset, shapes={"x": (1, 4)})
    assert shapes(fixed) == [["1", "4"], ["2", "4"]]
