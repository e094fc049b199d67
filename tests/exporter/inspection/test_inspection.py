"""Costs of nodes, differences, layers side by side, and the smallest part that fails."""

import json
import re
import sys

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.lowering.conversion import size

GRAPH = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[batch, 3, 8, 8] x) => (float[batch, 5] scores) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  r = Relu(c)
  pooled = GlobalAveragePool(r)
  flat = Flatten(pooled)
  scores = Gemm(flat, head)
}
"""
WEIGHTS = {"w": np.ones((8, 3, 3, 3), np.float32), "head": np.full((8, 5), 0.5, np.float32)}


def store(path, text=GRAPH, **weights):
    model = onnx.parser.parse_model(text)
    for name, array in {**WEIGHTS, **weights}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return opsetta.load(path)


@pytest.fixture
def model(tmp_path):
    return store(tmp_path / "m.onnx")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        return caught.value.code or 0, capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("batch", "conv", "total"), [(None, "13824*batch", "13864*batch"), (2, 27648, 27728)]
)
def test_multiplications_are_numbers_or_formulas(model, batch, conv, total):
    sized = model if batch is None else model.lower(13, dims={"batch": batch})
    costs = sized.costs()
    assert (costs.nodes[0].operator, costs.nodes[0].macs, costs.macs) == ("Conv", conv, total)
    assert costs.parameters == 8 * 27 + 40
    assert costs.weight_bytes_by("operator") == {"Conv": 4 * 216, "Gemm": 160}


OPERATORS = [
    ("(float[2, 3] x, float[3, 4] w) => (y) { y = MatMul(x, w) }", 24),
    ("(float[3, 2] x, float[3, 4] w) => (y) { y = Gemm<transA = 1>(x, w) }", 24),
    ("(float[1, 2, 4] x, float[2, 3, 2] w) => (y) { y = ConvTranspose(x, w) }", 1 * 2 * 4 * 3 * 2),
    (
        "(float[5, 2, 3] x, float[1, 4, 3] w, float[1, 4, 4] r) => (y) { y = RNN<hidden_size = 4>(x, w, r) }",
        280,
    ),
    ("(float[5, 2] x) => (y) { y = Relu(x) }", 0),
]


@pytest.mark.parametrize(("text", "macs"), OPERATORS)
def test_multiplications_follow_the_operator(tmp_path, text, macs):
    text = '<ir_version: 8, opset_import: ["" : 13]>\nnet ' + text.replace("(y)", "(float[] y)")
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "m.onnx")
    assert opsetta.load(tmp_path / "m.onnx").costs().macs == macs


def test_differences_of_nodes_weights_and_names(model, tmp_path, run):
    assert not model.differences(opsetta.load(tmp_path / "m.onnx"))
    other = store(
        tmp_path / "o.onnx", GRAPH.replace("Relu(c)", "LeakyRelu<alpha = 0.5>(c)"), w=WEIGHTS["w"] * 2
    )
    differences = model.differences(other)
    assert [line[:12] for line in differences.lines if line[0] in "+-"] == ["-Relu[] (flo", "+LeakyRelu[a"]
    assert differences.weights == {"w": "differs by 1 at most"}
    renamed = model.lower(13, rename={"scores": "logits"})
    assert [line for line in model.differences(renamed).lines if line[0] == "+"] == [
        "+output logits: float[batch,5]"
    ]
    assert run("diff", "m.onnx", "m.onnx") == (0, "no differences\n")
    code, out = run("diff", "m.onnx", "o.onnx", "--json")
    assert (code, json.loads(out)["weights"]) == (1, differences.weights)


def test_layers_show_where_two_files_part(model, tmp_path, run):
    other = store(
        tmp_path / "o.onnx", GRAPH.replace("Relu(c)", "LeakyRelu<alpha = 0.5>(c)"), head=WEIGHTS["head"]
    )
    feed = {"x": np.full((1, 3, 8, 8), -1, np.float32)}
    reports = model.compare_layers(other, feed)
    assert [(report.name, report.within_tolerance) for report in reports][:2] == [("c", True), ("r", False)]
    half = model.compare_layers(model.convert_types("fp16", keep_io=False), feed)
    assert {report.name for report in half} >= {"c", "scores"}
    assert all(report.within_tolerance for report in half)
    code, out = run("compare", "m.onnx", "o.onnx", "--layers", "--json")
    assert (code, json.loads(out)["first_outside_tolerance"]) == (1, "r")
    assert run("compare", "m.onnx", "m.onnx", "--layers")[0] == 0


EMPTY = '<ir_version: 8, opset_import: ["" : 13]> net (float[2] x) => (float[2] x) { }'


def test_an_input_that_is_an_output_is_compared(tmp_path, run):
    store(tmp_path / "e.onnx", EMPTY)
    assert run("compare", "e.onnx", "e.onnx", "--layers")[0] == 0
    assert run("convert", "e.onnx", "--opset", "13", "--fp16", "--verify", "-o", "half.onnx")[0] == 0


@pytest.mark.parametrize(("other", "text"), [(1.0, ""), (3.0, "differs by 2 at most"), (np.nan, "inf|nan")])
def test_weights_of_nan_and_infinity(tmp_path, other, text):
    first, second = (
        store(tmp_path / f"{number}.onnx", w=np.array([np.nan, np.inf, number], np.float32))
        for number in (1.0, other)
    )
    assert re.fullmatch(f".*({text}).*" if text else "", first.differences(second).weights.get("w", ""))


RUNTIMES = """
<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1]>
net (float[n, 3] x) => (float[n, 3] scores) {
  r = Relu(x)
  noise = RandomNormal<seed = 1.0, shape = [3]>()
  scores = OPERATOR(r, noise)
}
"""


def test_layers_of_a_quantized_file_are_compared_as_their_readers_see_them(tmp_path):
    """A quantizer folds a Relu into the range, so that the tensor of its name is the one before it."""
    float_text = """
    <ir_version: 8, opset_import: ["" : 13]>
    net (float[4] x) => (float[4] y) { c = Neg(x)  r = Relu(c)  y = Abs(r) }
    """
    quantized_text = """
    <ir_version: 8, opset_import: ["" : 13]>
    net (float[4] x) => (float[4] y)
    <float scale = {0.5}, uint8 zero = {0}>
    {
      r = Neg(x)
      q = QuantizeLinear(r, scale, zero)
      d = DequantizeLinear(q, scale, zero)
      y = Abs(d)
    }
    """
    first, second = (
        store(tmp_path / f"{i}.onnx", text) for i, text in enumerate((float_text, quantized_text))
    )
    reports = first.compare_layers(second, {"x": np.array([-1, 2, -3, 4], np.float32)})
    assert [(report.name, report.max_absolute_error) for report in reports] == [("r", 0), ("y", 0)]


def test_layers_show_where_two_runtimes_part(tmp_path, run, monkeypatch):
    """Each runtime has random numbers of its own."""
    store(tmp_path / "r.onnx", RUNTIMES.replace("OPERATOR", "Add"))
    code, out = run("compare", "r.onnx", "--layers", "--runtime", "reference", "--json")
    assert code == 1
    report = json.loads(out)
    assert report["runtimes"] == ["onnxruntime", "reference"]
    assert [tensor["name"] for tensor in report["tensors"]] == ["r", "noise", "scores"]
    assert report["first_outside_tolerance"] == "noise"
    for names in (["reference"], ["onnxruntime", "onnxruntime"]):
        options = [text for name in names for text in ("--runtime", name)]
        assert run("compare", "r.onnx", "r.onnx", "--layers", *options)[0] == 0
    monkeypatch.setitem(sys.modules, "openvino", None)
    model = store(tmp_path / "b.onnx", RUNTIMES.replace("OPERATOR", "com.microsoft.BiasGelu"))
    feed = {"x": np.ones((2, 3), np.float32)}
    for name, message in [("reference", "reference could not run"), ("openvino", "pip install openvino")]:
        with pytest.raises(opsetta.InferenceError, match=message):
            model.compare_layers(model, feed, runtimes=("onnxruntime", name))
    with pytest.raises(opsetta.UsageError, match="one of onnxruntime, reference, openvino"):
        model.compare_layers(model, feed, runtimes=("onnxruntime", "tract"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runtime", "reference"], "needs --layers"),
        ([], "pass the file to compare with"),
        (["--layers", "--runtime", "onnxruntime"], "pass a second file"),
        (["--layers", *["--runtime", "reference"] * 3], "twice at most"),
    ],
)
def test_runtimes_that_are_not_two(tmp_path, capsys, arguments, message):
    store(tmp_path / "m.onnx")
    with pytest.raises(SystemExit):
        cli.main(["compare", str(tmp_path / "m.onnx"), *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ({"Relu"}, ["Relu"]),
        ({"GlobalAveragePool"}, ["GlobalAveragePool"]),
        ({"Relu", "Flatten"}, ["Relu", "GlobalAveragePool", "Flatten"]),
        ({"Conv", "Gemm"}, ["Conv", "Relu", "GlobalAveragePool", "Flatten", "Gemm"]),
    ],
)
def test_the_smallest_part_that_fails(model, operators, expected):
    reduced = model.reduce(lambda part: operators <= {node.op_type for node in part.model.graph})
    assert [node.op_type for node in reduced.model.graph] == expected
    with pytest.raises(opsetta.UsageError, match="does not fail"):
        model.reduce(lambda part: False)


def test_commands_reduce_simplify_and_list_nodes(model, tmp_path, run):
    (tmp_path / "fail.py").write_text(
        "import sys\nsys.exit(3 if b'GlobalAveragePool' in open(sys.argv[1], 'rb').read() else 0)\n"
    )
    command = f"{sys.executable} fail.py {{}}"
    code, out = run("reduce", "m.onnx", "--keep-failing", command, "-o", "r.onnx")
    assert (code, out.split(", ")[1]) == (0, "1 node")
    assert run("reduce", "m.onnx", "--keep-failing", f"{sys.executable} -c 0", "-o", "r.onnx")[0] != 0
    code, out = run("simplify", "m.onnx", "--json")
    assert (code, json.loads(out)["opset"], json.loads(out)["file"]) == (0, 13, "m.simplified.onnx")
    code, out = run("info", "m.onnx", "--nodes", "--json")
    assert (code, json.loads(out)["macs"]) == (0, "13864*batch")
    assert "13824*batch" in run("info", "m.onnx", "--nodes")[1]
    code, out = run("info", "m.onnx", "--json")
    assert (json.loads(out)["macs"], json.loads(out)["peak_bytes"]) == ("13864*batch", None)
    code, out = run("info", "m.onnx", "--dim", "batch=2")
    assert "(MACs): 27,728\n" in out
    assert "memory of results, planned: " in out
    assert "weights by operator: Conv " in out
    assert run("info", "m.onnx", "--dim", "bach=2")[0] == 2


def test_large_untrusted_files_are_described_without_what_takes_long(tmp_path, run, monkeypatch):
    nodes = " ".join(f"v{i + 1} = Relu(v{i})" for i in range(100))
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[2] v0) => (float[2] v100) {{ {nodes} }}'
    store(tmp_path / "m.onnx", text)
    limits = [
        (100_000, "planned: 128 bytes\n"),
        (4_000, "planned: 128 bytes in the order of the file\n"),
        (500, "planned: not for so many nodes, except with --trusted\n"),
        (50, "parameters and MACs: unknown, because the costs of so many nodes are not computed"),
    ]
    for units, message in limits:
        monkeypatch.setattr(size, "_UNITS", units)
        out = run("info", "m.onnx")[1]
        assert message in out
        assert ("in the order of the file" in out) == (units == 4_000)
    assert "so many nodes" in run("info", "m.onnx", "--nodes")[0]
    assert "planned: 128 bytes\n" in run("info", "m.onnx", "--trusted")[1]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("Gemm<transA = 1.0>(a, a)", "'transA' is of type FLOAT, not INT"),
        ('MaxPool<kernel_shape = "two">(x)', "'kernel_shape' is of type STRING, not INTS"),
        ("Concat(a, a)", "it needs the attribute 'axis'"),
        ("Conv<group = 1>(x)", "it has 1 input, but takes 2 to 3"),
    ],
)
def test_nodes_that_no_analysis_can_read_are_named(node, message, tmp_path, run):
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[4, 4] a, float[1, 1, 4, 4] x) => (y)'
    model = store(tmp_path / "m.onnx", f"{head} {{ y = {node} }}")
    code, out = run("info", "m.onnx")
    assert code == 0
    assert f"unknown, because the file has nodes that are not valid: - {node[:4]}" in out
    assert message in out
    for analyse in (model.costs, model.plan):
        with pytest.raises(opsetta.InvalidNodesError, match=message):
            analyse()
