"""Models quantized by calibration, compared with their float models and onnxruntime's own result."""

import json

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import opsetta
from opsetta.exporter.command_line import cli

GRAPH = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[batch, 3, 8, 8] x) => (float[batch, 5] scores) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  n = BatchNormalization(c, scale, bias, mean, variance)
  r = Relu(n)
  pooled = GlobalAveragePool(r)
  flat = Flatten(pooled)
  scores = Gemm(flat, head)
}
"""
RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "w": RANDOM.standard_normal((8, 3, 3, 3)),
    "scale": RANDOM.uniform(0.5, 2, 8),
    "bias": RANDOM.standard_normal(8),
    "mean": RANDOM.standard_normal(8),
    "variance": RANDOM.uniform(0.5, 2, 8),
    "head": RANDOM.standard_normal((8, 5)),
}
SAMPLES = RANDOM.standard_normal((20, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantize")
    model = onnx.parser.parse_model(GRAPH)
    for name, array in WEIGHTS.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path / "m.onnx")
    np.savez(path / "data.npz", x=SAMPLES, labels=np.zeros(20))
    (path / "arrays").mkdir()
    for index in range(2):
        np.save(path / "arrays" / f"{index}.npy", SAMPLES[10 * index :][:10])
    (path / "broken").mkdir()
    (path / "broken" / "a.png").write_text("no image")
    (path / "data.py").write_text(
        "import numpy\ndef batches():\n    yield from ({'x': x[None]} for x in numpy.load('data.npz')['x'])\n"
        "def fails():\n    yield {}['missing']\n"
    )
    return path


def operators(model):
    return [node.op_type for node in model.model.graph]


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("scheme", [{}, {"per_channel": True}, {"activations": "uint8", "symmetric": True}])
def test_the_opset_stays_and_the_error_is_small(folder, opset, scheme):
    model = opsetta.load(folder / "m.onnx").lower(opset)
    quantized = model.quantize(folder / "data.npz", **scheme)
    assert (quantized.opset, dict(quantized.model.graph.opset_imports)) == (opset, {"": opset})
    assert "BatchNormalization" not in operators(quantized)
    accuracy = quantized.accuracy
    assert (accuracy.calibrated, accuracy.measured, accuracy.outputs[0].name) == (16, 4, "scores")
    assert accuracy.outputs[0].relative_error < 0.03
    expected, actual = model(SAMPLES), quantized(SAMPLES)
    assert np.linalg.norm(actual - expected) < 0.03 * np.linalg.norm(expected)
    losses = [loss.own_decibels for loss in accuracy.tensors]
    assert losses == sorted(losses)
    assert {"Conv", "Relu"} & {loss.operator for loss in accuracy.tensors}


def test_integer_operators_around_where(tmp_path):
    """onnxruntime's quantizer alone writes no value for the operand of Where."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        net (float[batch, 4, 4] x, bool[batch, 4, 4] mask) => (float[batch, 4, 4] y) {
          squares = MatMul(x, x)
          y = Where(mask, squares, x)
        }""")
    samples = np.random.default_rng(0).standard_normal((20, 1, 4, 4)).astype(np.float32)
    batches = [{"x": sample, "mask": sample > 0} for sample in samples]
    onnx.save(model, tmp_path / "m.onnx")
    quantized = opsetta.load(tmp_path / "m.onnx").quantize(batches, form="qoperator")
    assert {"QLinearMatMul", "Where"} <= {*operators(quantized)}
    assert "Identity" not in operators(quantized)
    assert quantized.accuracy.outputs[0].relative_error < 0.03


def test_arithmetic_before_a_cast_to_integers_stays_in_float(tmp_path):
    """With 8 bits, 16 times 3/16 is 2.99, and the index 2."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        net (float[batch] x) => (float[batch, 4] y, int64[batch] levels)
            <float count = {16}> {
          scaled = Mul(x, count)
          tokens = Cast<to = 7>(scaled)
          rows = Gather(table, tokens)
          y = MatMul(rows, w)
          values = ReduceSum<keepdims = 0>(y, axis)
          doubled = Add(values, values)
          levels = Cast<to = 7>(doubled)
        }""")
    arrays = {"table": WEIGHTS["w"].reshape(-1, 4)[:17], "w": WEIGHTS["w"].reshape(-1, 4)[:4]}
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axis"))
    onnx.save(model, tmp_path / "m.onnx")
    samples = (np.random.default_rng(0).integers(0, 17, (10, 40)) / 16).astype(np.float32)
    quantized = opsetta.load(tmp_path / "m.onnx").quantize([{"x": sample} for sample in samples])
    assert quantized.accuracy.outputs[0].relative_error < 0.03
    readers = {
        node.inputs[0].name: node.op_type for node in quantized.model.graph if node.inputs[0] is not None
    }
    assert readers["x"] == "Mul"
    # The product before the other cast is quantized.
    assert "MatMul" in operators(quantized)
    assert operators(quantized).count("QuantizeLinear") >= 2


def test_infinite_results_are_reported(tmp_path):
    """A lower bound of the logarithm's operand is 0 in 8 bits."""
    text = """<ir_version: 8, opset_import: ["": 13]> net (float[n, 4] x) => (float[n, 4] y)
    <float low = {1e-9}> { sums = MatMul(x, w) bounded = Clip(sums, low) y = Log(bounded) }"""
    model = onnx.parser.parse_model(text)
    weight = np.diag([1e-8, 1, 1, 1]).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    rows = np.random.default_rng(0).uniform(1, 100, (20, 4)).astype(np.float32)
    loaded, batches = opsetta.load(tmp_path / "m.onnx"), [{"x": rows[i : i + 1]} for i in range(20)]
    with pytest.warns(UserWarning, match="gives numbers that are not finite in 'y'.*loss='error'"):
        loaded.quantize(batches)
    assert np.isfinite(loaded.quantize(batches, exclude=["Clip"])(rows)).all()


@pytest.mark.parametrize("source", ["npz", "folder", "function", "batches", "arrays"])
def test_data_comes_from_files_functions_and_arrays(folder, source):
    batches = [{"x": sample[None]} for sample in SAMPLES]
    data = {
        "npz": folder / "data.npz",
        "folder": folder / "arrays",
        "function": lambda: iter(batches),
        "batches": batches,
        "arrays": [batch["x"] for batch in batches],
    }[source]
    quantized = opsetta.load(folder / "m.onnx").quantize(data)
    assert (quantized.accuracy.calibrated, quantized.accuracy.measured) == (16, 4)


@pytest.mark.parametrize("sizes", [["--dim", "batch=2"], ["--input-shape", "x=2,3,8,8"]])
def test_the_command_fixes_sizes(folder, sizes, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    arguments = ["quantize", "m.onnx", "--calibrate", "data.npz", "-o", "fixed.onnx", *sizes]
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code in (0, None), capsys.readouterr().err
    quantized = opsetta.load("fixed.onnx").model
    assert list(quantized.graph.inputs[0].shape) == [2, 3, 8, 8]
    assert list(quantized.graph.outputs[0].shape) == [2, 5]


def test_integer_operators_and_excluded_ones(folder):
    model = opsetta.load(folder / "m.onnx")
    integers = model.quantize(folder / "data.npz", form="qoperator")
    assert "QLinearConv" in operators(integers)
    # The report says which layers lose most, as for the format qdq.
    assert "Gemm" in {loss.operator for loss in integers.accuracy.tensors}
    quantized = model.quantize(folder / "data.npz", exclude=["Conv"])
    conv = next(node for node in quantized.model.graph if node.op_type == "Conv")
    assert conv.inputs[1].is_initializer()
    with pytest.raises(opsetta.UsageError, match="no operator or node Foo"):
        model.quantize(folder / "data.npz", exclude=["Foo"])
    with pytest.raises(
        opsetta.UsageError, match="quantized already, by QuantizeLinear: pass the float model"
    ):
        quantized.quantize(folder / "data.npz")


@pytest.mark.parametrize("activations", ["int16", "uint16"])
def test_16_bits_lose_less_and_need_the_operators_of_onnxruntime_below_21(folder, activations):
    for opset in (13, 21):
        model = opsetta.load(folder / "m.onnx").lower(opset, target="qnn", dims={"batch": 1})
        quantized = model.quantize(folder / "data.npz", activations=activations, weights="int8")
        assert quantized.opset == opset
        domains = {node.domain for node in quantized.model.graph if "Quantize" in node.op_type}
        assert domains == ({"com.microsoft"} if opset == 13 else {""})
        assert quantized.accuracy.outputs[0].relative_error < 0.02
        assert "Relu" in {loss.operator for loss in quantized.accuracy.tensors}
    model = opsetta.load(folder / "m.onnx").lower(13, target="tensorrt8")
    with pytest.raises(opsetta.TargetError, match="com.microsoft::.*its domain is not supported"):
        model.quantize(folder / "data.npz", activations=activations)


@pytest.mark.parametrize(
    ("opset", "scheme", "message"),
    [
        (9, {}, "needs opset 11 or higher"),
        (12, {"per_channel": True}, "per channel need opset 13"),
        (13, {"form": "qoperator", "activations": "int16"}, "no activations of 16 bits"),
        (13, {"form": "int8"}, "format must be qdq or qoperator"),
        (13, {"rounding": 1}, "no argument rounding"),
        (13, {"weight_rounding": "up"}, "weight_rounding must be calibrated or nearest"),
    ],
)
def test_a_scheme_that_the_opset_lacks_is_refused(folder, opset, scheme, message):
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.load(folder / "m.onnx").lower(opset).quantize(folder / "data.npz", **scheme)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no calibration data"),
        ("missing.npz", "no calibration data at 'missing.npz'"),
        ([{"y": SAMPLES}], "no array for input 'x', only for y"),
        (lambda: 3, "a function that returns them, not int"),
        ([{"x": [[1], [1, 2]]}], "no array for input 'x'"),
        ("broken", "broken.a.png' cannot be read as an image"),
    ],
)
def test_data_that_does_not_fit_is_refused(folder, data, message, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.load(folder / "m.onnx").quantize(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [("data.py", "name the function in 'data.py'"), ("data.py:fails", "'data.py:fails' raised KeyError")],
)
def test_the_command_says_what_is_wrong_with_a_function(folder, data, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as caught:
        cli.main(["quantize", "m.onnx", "--calibrate", data, "-o", "q.onnx"])
    assert message in f"{caught.value} {capsys.readouterr().err}"


def test_half_precision_needs_an_opset_that_quantizes_it(folder):
    model = opsetta.load(folder / "m.onnx").lower(17).convert_types("fp16")
    with pytest.raises(opsetta.UsageError, match="half precision.* from opset 19 on"):
        model.quantize(folder / "data.npz")


def test_a_model_of_which_nothing_is_quantized_is_refused(folder, tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1]>
    net (float[batch, 3, 8, 8] x) => (float[batch, 3, 8, 8] y) { y = com.microsoft.QuickGelu(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(opsetta.UsageError, match="quantizes no operator of the model.*convert --standard"):
        opsetta.load(tmp_path / "m.onnx").quantize(folder / "data.npz")


def test_images_are_resized_and_normalized(folder, tmp_path):
    images = pytest.importorskip("PIL.Image")
    for index in range(3):
        images.new("RGB", (20, 10), (255, 0, 128)).save(tmp_path / f"{index}.png")
    model = opsetta.load(folder / "m.onnx")
    quantized = model.quantize(tmp_path, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    assert quantized.accuracy.measured == 1
    with pytest.raises(opsetta.UsageError, match="one for each of 3 channels"):
        model.quantize(tmp_path, mean=(0.5, 0.5))


@pytest.mark.parametrize("data", ["data.npz", "data.py:batches"])
def test_the_command_follows_the_wishes_of_the_target(folder, data, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    arguments = ["quantize", "m.onnx", "--calibrate", data, "-o", "q.onnx", "--target", "tensorrt", "--json"]
    arguments.append("--reduce-range")
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code in (0, None)
    facts = json.loads(capsys.readouterr().out)
    assert facts["outputs"][0]["relative_error"] < 0.03
    zero_points = [
        entry.inputs[2].const_value.numpy()
        for entry in opsetta.load("q.onnx").model.graph
        if entry.op_type == "QuantizeLinear"
    ]
    weight = next(node for node in opsetta.load("q.onnx").model.graph if node.op_type == "Conv").inputs[1]
    # Weights of 7 bits.
    assert np.abs(weight.producer().inputs[0].const_value.numpy().astype(int)).max() == 64
    # TensorRT wants symmetric int8.
    assert {str(array.dtype) for array in zero_points} == {"int8"}
    assert not any(array.any() for array in zero_points)
