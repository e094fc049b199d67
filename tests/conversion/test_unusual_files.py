"""Files that are invalid, and valid ones with forms that few exporters write."""

import dataclasses
import warnings

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import opsetta
from opsetta import InvalidNodesError
from opsetta.exporter.files.reading import BOUNDS
from opsetta.exporter.lowering.conversion.source_validity import invalid_nodes_of_file
from opsetta.exporter.lowering.conversion.written_shapes import WrittenShapes
from opsetta.exporter.lowering.inference import infer_shapes

from ..onnxruntime_sessions import open_session

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
X = np.random.default_rng(0).standard_normal((2, 1, 3)).astype(np.float32)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def stored(name, data, dtype=np.int64):
    return numpy_helper.from_array(np.array(data, dtype), name)


def model_of(nodes, inputs, outputs, constants=(), opset=11):
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(constants))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def lowered(model, path, opset, **options):
    onnx.save(model, path)
    return opsetta.load(path).lower(opset, **options).model_proto


def results(model, feed):
    return open_session(model).run(None, feed)


def check_conversions(model, path, feed, opsets=(7, 9, 10, 13, 17), expected=None):
    """Each conversion is valid, and gives what onnxruntime makes of the file, or what is expected."""
    expected = results(model, feed) if expected is None else [expected]
    for opset in opsets:
        converted = lowered(model, path, opset)
        onnx.checker.check_model(converted, full_check=True)
        for found, due in zip(results(converted, feed), expected, strict=True):
            assert found.dtype == due.dtype
            np.testing.assert_allclose(found, due, rtol=1e-5, atol=1e-6)
    return converted


WRONG = {
    "word": (18, helper.make_node("ScatterElements", ["x", "i", "x"], ["y"], reduction="sum"), "'sum'"),
    "mode": (11, helper.make_node("Pad", ["x", "p"], ["y"], mode="zeros"), "'zeros'"),
    "direction": (
        14,
        helper.make_node("GRU", ["x", "x", "x"], ["y"], direction="both", hidden_size=1),
        "'both'",
    ),
    "attribute": (13, helper.make_node("Squeeze", ["x"], ["y"], axes=[1]), "'axes'"),
    "axis": (13, helper.make_node("Softmax", ["x"], ["y"], axis=3), "axis 3"),
    "operator": (13, helper.make_node("Gelu", ["x"], ["y"]), "begins at 20"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_file_is_not_converted_and_its_copy_is_warned_of(case, tmp_path):
    opset, node, text = WRONG[case]
    constants = [stored("i", [[[0, 0, 0]]]), stored("p", [1] * 6)]
    model = model_of([node], [value("x", [2, 1, 3])], [value("y", None)], constants, opset)
    path = tmp_path / "wrong.onnx"
    for other in {9, 15, 21} - {opset}:
        with pytest.raises(InvalidNodesError, match=f"not valid at its opset {opset}.*\n.*{text}"):
            lowered(model, path, other)
    for options in ({}, {"optimize": "full"}):
        with pytest.warns(UserWarning, match=text):
            copy = lowered(model, path, opset, **options)
        assert [each.op_type for each in copy.graph.node] == [node.op_type]


def squeeze_if(source, result, axis, tag):
    """What TorchScript's exporter writes for `squeeze(axis)`; the branches use the same names."""
    yes = helper.make_node("Squeeze", [source], ["inner"], axes=[axis])
    no = helper.make_node("Identity", [source], ["inner"])
    branches = [helper.make_graph([node], "branch", [], [value("inner", None)]) for node in (yes, no)]
    return [
        helper.make_node("Shape", [source], [f"shape{tag}"]),
        helper.make_node("Gather", [f"shape{tag}", f"at{axis}"], [f"size{tag}"]),
        helper.make_node("Equal", [f"size{tag}", "at1"], [f"condition{tag}"]),
        helper.make_node(
            "If", [f"condition{tag}"], [result], then_branch=branches[0], else_branch=branches[1]
        ),
    ]


AT = [stored(f"at{i}", i) for i in range(3)]


@pytest.mark.parametrize("sizes", [[2, 1, 3], ["n", 1, "m"]])
def test_ifs_with_conditions_that_follow_from_sizes_become_their_branches(sizes, tmp_path):
    nodes = [*squeeze_if("x", "a", 1, "A"), helper.make_node("Exp", ["a"], ["b"])]
    nodes += [*squeeze_if("b", "c", 1, "B"), helper.make_node("Flatten", ["c"], ["y"])]
    model = model_of(nodes, [value("x", sizes)], [value("y", ["p", "q"])], AT)
    converted = check_conversions(model, tmp_path / "m.onnx", {"x": X}, (7, 10, 13), np.exp(X[:, 0]))
    # Whether "m" is 1 is not known.
    assert [node.op_type for node in converted.graph.node].count("If") == (sizes[2] == "m")


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_nested_ifs_with_constant_conditions_become_their_branches(outer, inner, tmp_path):
    def branch(node, name):
        return helper.make_graph([node], "branch", [], [value(name, None)])

    squeeze = branch(helper.make_node("Squeeze", ["x"], ["r"], axes=[1]), "r")
    negate = branch(helper.make_node("Neg", ["x"], ["r"]), "r")
    choice = branch(helper.make_node("If", ["inner"], ["s"], then_branch=squeeze, else_branch=negate), "s")
    other = branch(helper.make_node("Abs", ["x"], ["s"]), "s")
    nodes = [helper.make_node("If", ["outer"], ["t"], then_branch=choice, else_branch=other)]
    nodes.append(helper.make_node("Flatten", ["t"], ["y"]))
    constants = [stored("outer", outer, bool), stored("inner", [inner], bool)]
    model = model_of(nodes, [value("x", [2, 1, 3])], [value("y", [2, 3])], constants)
    converted = check_conversions(model, tmp_path / "m.onnx", {"x": X}, (7, 9, 13))
    assert "If" not in [node.op_type for node in converted.graph.node]


def test_nodes_without_outputs_stay(tmp_path):
    def branch(name):
        nodes = [
            helper.make_node("Store", ["x"], [], domain="custom"),
            helper.make_node("Relu", ["x"], [name]),
        ]
        return helper.make_graph(nodes, name, [], [value(name, [2])])

    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"]),
        helper.make_node("Assert", ["sum"], [], domain="custom"),
        helper.make_node("Print", ["x"], [""], domain="custom"),
        helper.make_node("If", ["c"], ["unused"], then_branch=branch("a"), else_branch=branch("b")),
        helper.make_node("Neg", ["x"], ["dead"]),
        helper.make_node("Abs", ["x"], ["y"]),
    ]
    model = model_of(nodes, [value("x", [2]), value("c", [], BOOL)], [value("y", [2])], opset=13)
    for opset in (9, 13, 17):
        for level in ("none", "basic", "full"):
            converted = lowered(model, tmp_path / "m.onnx", opset, optimize=level)
            assert [n.op_type for n in converted.graph.node] == ["Add", "Assert", "Print", "If", "Abs"]
            inner = [[n.op_type for n in a.g.node] for a in converted.graph.node[3].attribute]
            assert inner == [["Store", "Relu"]] * 2
    rewritten = opsetta.realize(model, ["flatten-to-reshape"]).model_proto
    assert [node.op_type for node in rewritten.graph.node][:3] == ["Add", "Assert", "Print"]


NUMBERS = {
    "Expand": ([helper.make_node("Expand", ["x", "n"], ["y"])], 3, [1]),
    "Unsqueeze": ([helper.make_node("Unsqueeze", ["x", "n"], ["y"])], 1, [2, 3]),
}


@pytest.mark.parametrize("op_type", NUMBERS)
def test_numbers_are_taken_for_vectors(op_type, tmp_path):
    nodes, number, shape = NUMBERS[op_type]
    model = model_of(nodes, [value("x", shape)], [value("y", None)], [stored("n", number)], opset=13)
    model.graph.output[0].type.tensor_type.shape.SetInParent()
    rank = 1 if op_type == "Expand" else len(shape) + 1
    model.graph.output[0].CopyFrom(value("y", [f"d{i}" for i in range(rank)]))
    check_conversions(model, tmp_path / "m.onnx", {"x": np.ones(shape, np.float32)}, (7, 9, 11, 17))


@pytest.mark.parametrize("op_type", ["Slice", "Reshape", "ConstantOfShape", "ReduceSum", "TopK", "Squeeze"])
def test_numbers_become_vectors_that_onnxruntime_takes(op_type, tmp_path):
    """onnxruntime itself refuses these numbers."""
    inputs = {
        "Slice": ["x", "zero", "two", "zero", "one"],
        "Reshape": ["x", "six"],
        "ConstantOfShape": ["two"],
        "ReduceSum": ["x", "one"],
        "TopK": ["x", "two"],
        "Squeeze": ["x", "one"],
    }[op_type]
    node = helper.make_node(op_type, inputs, ["y", "i"] if op_type == "TopK" else ["y"])
    constants = [stored(name, number) for name, number in (("zero", 0), ("one", 1), ("two", 2), ("six", 6))]
    fed = [value("x", [2, 1, 3])] if "x" in inputs else []
    rank = {"Slice": 3, "ReduceSum": 3, "TopK": 3, "Squeeze": 2}.get(op_type, 1)
    outputs = [value("y", [f"d{i}" for i in range(rank)])]
    outputs += [value("i", ["e", "f", "g"], INT64)] if op_type == "TopK" else []
    model = model_of([node], fed, outputs, constants, opset=13)
    for opset in (7, 9, 11, 17):
        converted = lowered(model, tmp_path / "m.onnx", opset)
        assert results(converted, {"x": X} if fed else {})[0].size > 0


def test_a_loop_that_carries_nothing_is_written_below_11(tmp_path):
    nodes = [helper.make_node("Cast", ["i"], ["f"], to=FLOAT), helper.make_node("Add", ["f", "x"], ["u"])]
    nodes.append(helper.make_node("Identity", ["c"], ["d"]))
    body = helper.make_graph(
        nodes, "body", [value("i", [], INT64), value("c", [], BOOL)], [value("d", [], BOOL), value("u", [2])]
    )
    loop = helper.make_node("Loop", ["n", ""], ["y"], body=body)
    model = model_of([loop], [value("n", [], INT64), value("x", [2])], [value("y", ["k", 2])])
    feed = {"n": np.array(3), "x": np.ones(2, np.float32)}
    check_conversions(model, tmp_path / "m.onnx", feed, (7, 9, 10, 11, 13, 21))


@pytest.mark.parametrize("opset", [7, 9])
def test_results_of_batch_normalization_that_nothing_reads_mean_training(opset, tmp_path):
    outputs = ["y", "mean", "variance", "saved_mean", "saved_variance"]
    node = helper.make_node("BatchNormalization", ["x", "s", "s", "s", "s"], outputs, epsilon=1e-3)
    constants = [stored("s", [0.5, 2.0, 3.0], np.float32)]
    model = model_of([node], [value("x", [4, 3, 2])], [value("y", [4, 3, 2])], constants, opset)
    x = np.random.default_rng(1).standard_normal((4, 3, 2)).astype(np.float32)
    scale = np.array([0.5, 2.0, 3.0], np.float32)[:, None]
    apart = x - x.mean((0, 2), keepdims=True)
    expected = apart / np.sqrt((apart**2).mean((0, 2), keepdims=True) + 1e-3) * scale + scale
    # onnxruntime's kernels of versions 9 and 14 take another deviation.
    opsets = (8, 11, 13, 14, 17) if opset == 7 else (7, 14, 17)
    check_conversions(model, tmp_path / "m.onnx", {"x": x}, opsets, expected)


@pytest.mark.parametrize("axes", [None, [0, 2]])
def test_moments_of_half_precision_below_9(axes, tmp_path):
    """The body of ONNX mixes FLOAT and FLOAT16, and onnxruntime has no kernel."""
    attributes = {} if axes is None else {"axes": axes}
    half = TensorProto.FLOAT16
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], **attributes)
    model = model_of([node], [value("x", [2, 3, 4, 1], half)], [value("y", [2, 3, 4, 1], half)], opset=13)
    x = np.random.default_rng(3).standard_normal((2, 3, 4, 1)).astype(np.float16)
    wide, dims = x.astype(np.float32), (0, 2) if axes else (0, 2, 3)
    expected = (wide - wide.mean(dims, keepdims=True)) / wide.std(dims, keepdims=True)
    for opset in (7, 8):
        result = results(lowered(model, tmp_path / "m.onnx", opset), {"x": x})[0]
        np.testing.assert_allclose(result, expected, atol=4e-3)


@pytest.mark.parametrize("source_opset", [8, 9])
def test_an_operator_below_its_first_opset_has_its_body(source_opset, tmp_path):
    """onnxruntime's optimizer writes such nodes, which onnx.checker refuses."""
    node = helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=0.5)
    model = model_of([node], [value("x", [4])], [value("y", [4])], opset=source_opset)
    feed = {"x": np.array([-1, 0.25, 0.5, 2], np.float32)}
    for opset in (7, source_opset, 13):
        converted = lowered(model, tmp_path / "m.onnx", opset)
        onnx.checker.check_model(converted, full_check=True)
        np.testing.assert_array_equal(results(converted, feed)[0], [0, 0, 0, 2])


def test_the_length_of_computed_sizes_is_a_rank(tmp_path):
    """torch.onnx writes such targets for every transformer with dynamic sizes."""
    nodes = [
        helper.make_node("ReduceSum", ["n"], ["total"], keepdims=1, axes=[0]),
        helper.make_node("Mul", ["total", "total"], ["size"]),
        helper.make_node("Concat", ["size", "n", "size"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["a"]),
        helper.make_node("ReduceMean", ["a"], ["y"], axes=[-2]),
    ]
    inputs = [value("x", [1, 1, 1]), value("n", [1], INT64)]
    model = model_of(nodes, inputs, [value("y", None)], opset=11)
    feed = {"x": np.ones((1, 1, 1), np.float32), "n": np.array([1])}
    expected = results(model, feed)[0]
    # Before opset 11 an axis cannot count from the end.
    np.testing.assert_array_equal(results(lowered(model, tmp_path / "m.onnx", 9), feed)[0], expected)


def test_the_rank_of_a_weight_is_that_of_the_convolution(tmp_path):
    """A traced model with a scripted `squeeze`: the results of the branches have different ranks."""
    squeezed = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "first"], ["s"])], "then_branch", [], [value("s", None)]
    )
    same = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["i"])], "else_branch", [], [value("i", None)]
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["image"], then_branch=squeezed, else_branch=same),
        helper.make_node("Conv", ["image", "w"], ["c"]),
        helper.make_node("Slice", ["c", "first", "second", "axis"], ["y"]),
    ]
    outer = helper.make_graph(nodes, "outer", [], [value("y", None)])
    other = helper.make_graph([helper.make_node("Identity", ["z"], ["o"])], "other", [], [value("o", None)])
    weights = {"first": [0], "second": [1], "zero": 0, "one": 1, "axis": [-2]}
    weights["w"] = np.ones((3, 2, 4), np.float32)
    model = model_of(
        [helper.make_node("If", ["chosen"], ["r"], then_branch=outer, else_branch=other)],
        [value("x", ["a", "b", 2, "n"]), value("z", ["k", 3, "m"]), value("chosen", [], TensorProto.BOOL)],
        [value("r", None)],
        [numpy_helper.from_array(np.array(number), name) for name, number in weights.items()],
        opset=13,
    )
    feed = {
        "x": np.arange(24, dtype=np.float32).reshape(1, 2, 2, 6),
        "z": np.ones((1, 3, 1), np.float32),
        "chosen": np.array(True),
    }
    expected = results(model, feed)[0]
    for opset in (9, 10, 11):
        np.testing.assert_array_equal(results(lowered(model, tmp_path / "m.onnx", opset), feed)[0], expected)


@pytest.mark.parametrize(
    ("op_type", "axes", "shape"),
    [
        ("Unsqueeze", [-1], (2, 3)),
        ("Unsqueeze", [-2], (2, 3)),
        ("Unsqueeze", [-1, -3], (4, 2, 3)),
        ("Unsqueeze", [-2, -1], ()),
        ("Squeeze", [-1], (2, 3, 1)),
        ("Squeeze", [-3, -1], (2, 1, 3, 1)),
    ],
)
def test_axes_from_the_end_of_a_tensor_of_unknown_rank(op_type, axes, shape, tmp_path):
    model = model_of(
        [helper.make_node(op_type, ["x", "axes"], ["y"])],
        [value("x", None)],
        [value("y", None)],
        [numpy_helper.from_array(np.array(axes), "axes")],
        opset=13,
    )
    feed = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
    expected = results(model, feed)[0]
    for opset in (7, 9, 10):
        result = results(lowered(model, tmp_path / "m.onnx", opset), feed)[0]
        np.testing.assert_array_equal(result, expected)
        assert result.shape == expected.shape


def test_an_axis_from_the_front_of_a_tensor_of_unknown_rank_beside_one_from_the_end(tmp_path):
    node = helper.make_node("Squeeze", ["x", "axes"], ["y"])
    axes = numpy_helper.from_array(np.array([0, -1]), "axes")
    model = model_of([node], [value("x", None)], [value("y", None)], [axes], opset=13)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="all axes must count from the end"):
        lowered(model, tmp_path / "m.onnx", 9)


@pytest.mark.parametrize("alpha", [0.0, -0.5, 2.0])
def test_celu_of_any_slope(alpha, tmp_path):
    model = model_of(
        [helper.make_node("Celu", ["x"], ["y"], alpha=alpha)], [value("x", [4])], [value("y", [4])], opset=13
    )
    check_conversions(model, tmp_path / "m.onnx", {"x": np.array([-3, -1, 0, 2], np.float32)}, (7, 9, 11))


@pytest.mark.parametrize("kind", [INT32, INT64])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_grid_sample_of_integers(kind, padding, tmp_path):
    """onnxruntime has no kernel; onnx's evaluator is the reference."""
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="nearest", padding_mode=padding)
    inputs = [value("x", [2, 1, 3, 4], kind), value("g", [2, 5, 5, 2])]
    model = model_of([node], inputs, [value("y", [2, 1, 5, 5], kind)], opset=16)
    random = np.random.default_rng(2)
    x = random.integers(-9, 9, (2, 1, 3, 4)).astype(helper.tensor_dtype_to_np_dtype(kind))
    feed = {"x": x, "g": random.uniform(-1.3, 1.3, (2, 5, 5, 2)).astype(np.float32)}
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feed)[0]
    for opset in (7, 9, 13):
        np.testing.assert_array_equal(results(lowered(model, tmp_path / "m.onnx", opset), feed)[0], expected)


def test_nothing_is_logged_of_values_without_a_type(tmp_path, caplog):
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"], domain="com.microsoft"),
        helper.make_node("Own", ["g"], ["o"], domain="custom"),
        helper.make_node("Reshape", ["o", "s"], ["y"]),
        helper.make_node("Own", ["y"], ["z"], domain="custom"),
    ]
    model = model_of(nodes, [value("x", [2, 3])], [value("z", None)], [stored("s", [3, 2])], opset=13)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    lowered(model, tmp_path / "m.onnx", 17, standard=True)
    assert not caplog.messages


def test_valid_files_are_copied_without_a_warning(tmp_path):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered(model, tmp_path / "m.onnx", 11)


def test_operators_that_onnx_has_at_no_opset_are_kept_or_have_a_function(tmp_path):
    registry = opsetta.default_registry.fork()

    @opsetta.onnx_symbolic(["onnx::Glow_Twice", "custom::Twice"], registry=registry)
    def twice(g, x, times: int = 2):
        return g.op("Mul", x, float(times))

    for domain, op_type in (("", "Glow_Twice"), ("custom", "Twice")):
        node = helper.make_node(op_type, ["x"], ["y"], domain=domain, times=3)
        model = model_of([node], [value("x", [2])], [value("y", [2])])
        onnx.save(model, tmp_path / "m.onnx")
        loaded = opsetta.load(tmp_path / "m.onnx")
        assert [n.op_type for n in loaded.lower(13, registry=registry).model_proto.graph.node] == ["Mul"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [n.op_type for n in loaded.lower(13).model_proto.graph.node] == [op_type]
        assert any("no such operator" in str(each.message) for each in caught) == (not domain)


def test_own_functions_are_asked_at_the_opset_of_the_file_too(tmp_path):
    registry = opsetta.default_registry.fork()

    @opsetta.onnx_symbolic("onnx::Vendor_Double", registry=registry)
    def double(g, x):
        return g.op("Add", x, x)

    @opsetta.onnx_symbolic("custom::Half", registry=registry)
    def half(g, x):
        return g.op("Div", x, 2.0)

    nodes = [
        helper.make_node("Vendor_Double", ["x"], ["d"]),
        helper.make_node("Half", ["d"], ["y"], domain="custom"),
    ]
    model = model_of(nodes, [value("x", [2, 1, 3])], [value("y", [2, 1, 3])])
    for opset in (11, 13):
        converted = lowered(model, tmp_path / "vendor.onnx", opset, registry=registry)
        np.testing.assert_array_equal(results(converted, {"x": X})[0], X)


EXPERIMENTS = {
    "Affine": ({"alpha": 2.0, "beta": 0.5}, (2, 3, 4, 4)),
    "ParametricSoftplus": ({"alpha": 2.0, "beta": 0.5}, (2, 3, 4, 4)),
    "ScaledTanh": ({"alpha": 2.0, "beta": 0.5}, (2, 3, 4, 4)),
    "ImageScaler": ({"scale": 2.0, "bias": [1.0, 2.0, 3.0]}, (2, 3, 4, 4)),
    "Crop": ({"border": [1, 0, 0, 2]}, (2, 3, 2, 3)),
    "MemcpyFromHost": ({}, (2, 3, 4, 4)),
}


@pytest.mark.parametrize("op_type", EXPERIMENTS)
def test_operators_that_only_onnxruntime_has_mean_the_same(op_type, tmp_path):
    attributes, shape = EXPERIMENTS[op_type]
    node = helper.make_node(op_type, ["x"], ["y"], **attributes)
    model = model_of([node], [value("x", [2, 3, 4, 4])], [value("y", shape)], opset=8)
    image = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    converted = check_conversions(model, tmp_path / "m.onnx", {"x": image}, opsets=(7, 8, 13))
    assert op_type not in {n.op_type for n in converted.graph.node}


def test_a_crop_may_state_its_size(tmp_path):
    node = helper.make_node("Crop", ["x"], ["y"], border=[1, 0, 0, 0], scale=[2, 2])
    model = model_of([node], [value("x", [1, 1, 4, 4])], [value("y", [1, 1, 2, 2])], opset=8)
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    check_conversions(model, tmp_path / "m.onnx", {"x": image}, opsets=(7, 13))


def test_a_slice_by_inputs_of_old_files(tmp_path):
    node = helper.make_node("DynamicSlice", ["x", "s", "e"], ["y"])
    constants = [stored("s", [1, 0, 1]), stored("e", [2, 1, 3])]
    model = model_of([node], [value("x", [2, 1, 3])], [value("y", [1, 1, 2])], constants, opset=8)
    check_conversions(model, tmp_path / "m.onnx", {"x": X}, opsets=(9, 13), expected=X[1:, :, 1:])


def test_the_simplified_norm_of_onnxruntime_becomes_that_of_onnx(tmp_path):
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], epsilon=1e-6)
    scale = [stored("s", [1.0, 2.0, 3.0], np.float32)]
    model = model_of([node], [value("x", [2, 1, 3])], [value("y", [2, 1, 3])], scale, opset=14)
    converted = check_conversions(model, tmp_path / "m.onnx", {"x": X}, opsets=(9, 17, 23))
    assert [n.op_type for n in converted.graph.node] == ["RMSNormalization"]


def test_the_node_that_declares_a_type_falsely_is_named_alone(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Abs", ["t"], ["y"])]
    model = model_of(nodes, [value("x", [2])], [value("y", [2])])
    model.graph.value_info.append(value("t", [2], INT64))
    with pytest.raises(
        InvalidNodesError, match="declares its result 't' as INT64; Relu gives FLOAT"
    ) as error:
        lowered(model, tmp_path / "m.onnx", 13)
    assert [node.operator for node in error.value.nodes] == ["Relu"]


def test_a_file_that_no_opset_can_express_is_refused_and_not_the_opset(tmp_path):
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = model_of([node], [value("x", [2, 1, 3])], [value("y", None)], [stored("s", [4, -1])])
    with pytest.raises(InvalidNodesError, match="the file is not valid at its opset 11.*\n.*Reshape"):
        lowered(model, tmp_path / "m.onnx", 17)


def test_an_attribute_of_another_opset_is_told_so(tmp_path):
    cases = (
        (11, helper.make_node("Clip", ["x"], ["y"], min=0.0), "it had one before opset 11"),
        (9, helper.make_node("BatchNormalization", ["x"] * 5, ["y"], training_mode=1), "from opset 14 on"),
    )
    for opset, node, text in cases:
        model = model_of([node], [value("x", [2])], [value("y", [2])], opset=opset)
        with pytest.raises(InvalidNodesError, match=text):
            lowered(model, tmp_path / "m.onnx", 13)


def sparse_constant(indices, shape=(3, 4)):
    values = numpy_helper.from_array(np.array([1, 2], np.float32))
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices)), shape)
    nodes = [
        helper.make_node("Constant", [], ["w"], sparse_value=sparse),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return model_of(nodes, [value("x", [2, 1, 3])], [value("y", [2, 1, 4])])


@pytest.mark.parametrize("indices", [[1, 6], [[0, 1], [1, 2]]])
def test_a_sparse_constant_becomes_a_dense_one(indices, tmp_path):
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[1, 2] = 1, 2
    check_conversions(sparse_constant(indices), tmp_path / "m.onnx", {"x": X}, (9, 13), X @ dense)


@pytest.mark.parametrize(("indices", "shape"), [([1, 12], (3, 4)), ([-1, 2], (3, 4)), ([1, 2], (2**40, 4))])
def test_a_sparse_constant_out_of_its_shape_is_refused(indices, shape, tmp_path):
    onnx.save(sparse_constant(indices, shape), tmp_path / "m.onnx")
    with pytest.raises(opsetta.ModelFileError, match="indices outside|more than 4194304 elements"):
        opsetta.load(tmp_path / "m.onnx")


@pytest.fixture
def inferences(monkeypatch):
    """The models that onnx's inference is asked about."""
    models = []

    def infer(model, **options):
        models.append(model)
        return infer_shapes(model, **options)

    monkeypatch.setattr(
        "opsetta.exporter.lowering.conversion.prepared_models.preparation.infer_shapes", infer
    )
    monkeypatch.setattr("opsetta.exporter.lowering.conversion.written_shapes.infer_shapes", infer)
    return models


def test_a_model_too_large_to_convert_is_checked_without_inference(inferences):
    nodes = [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("Concat", ["t"], ["y"], axis=7)]
    model = ir.from_proto(model_of(nodes, [value("x", [2])], [value("y", None)]))
    assert [node.operator for node in invalid_nodes_of_file(model, BOUNDS)] == ["Concat"]
    inferences.clear()
    with pytest.warns(UserWarning, match="that the file declares"):
        assert invalid_nodes_of_file(model, dataclasses.replace(BOUNDS, conversion=1)) == []
    assert inferences == []


def test_a_file_that_inference_refuses_is_not_inferred_again_with_propagated_sizes(inferences):
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    model = ir.from_proto(model_of(nodes, [value("x", [2]), value("z", [3])], [value("y", [2])]))
    shapes = WrittenShapes(model, 11, BOUNDS)
    shapes.have_grown = True
    shapes.check_model(model)
    # Once for the written model, and once for the file.
    assert len(inferences) == 2


@pytest.mark.parametrize("read", ["a result", "a function's result"])
def test_nodes_of_very_many_inputs_are_refused_before_work_in_their_square(tmp_path, read):
    nodes = [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("Sum", ["t"] * 5_000, ["y"])]
    model = model_of(nodes, [value("x", [2])], [value("y", [2])])
    if read == "a function's result":
        body = [helper.make_node("Identity", ["a"], ["r"]), helper.make_node("Sum", ["r"] * 5_000, ["b"])]
        inner = helper.make_function("custom", "Inner", ["a"], ["b"], body[:1], [helper.make_opsetid("", 11)])
        inner.output[0] = "r"
        body[0].op_type, body[0].domain = "Inner", "custom"
        imports = [helper.make_opsetid("", 11), helper.make_opsetid("custom", 1)]
        model.functions.extend([inner, helper.make_function("custom", "Outer", ["a"], ["b"], body, imports)])
        del model.graph.node[:]
        model.graph.node.append(helper.make_node("Outer", ["x"], ["y"], domain="custom"))
    with pytest.raises(opsetta.OpsettaError, match="too many inputs"):
        lowered(model, tmp_path / "model.onnx", 13)


def test_a_removed_operator_has_the_version_that_has_its_attributes(tmp_path):
    """Upsample has the attribute `scales` below opset 9, an input from there on, and ends at opset 10."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        net (float[1, 1, 2, 2] x) => (float[1, 1, 4, 6] y) {
          y = Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (x)
        }""")
    onnx.save(model, tmp_path / "m.onnx")
    image = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    for opset in (7, 9, 10, 17):
        converted = opsetta.load(tmp_path / "m.onnx").lower(opset)
        np.testing.assert_array_equal(converted(image), image.repeat(2, 2).repeat(3, 3))
    with pytest.raises(opsetta.InferenceError, match="the original does not run"):
        converted.verify((image,))
