"""ONNX models at other opsets: what is copied, what is said otherwise, and what is refused."""

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from opsetta import OpsetError, UnsupportedOperatorsError
from opsetta.exporter.lowering.conversion import convert
from opsetta.exporter.onnx_model import OnnxModel

from ..default_attributes import written_defaults
from ..onnxruntime_sessions import open_session
from ..opsets import HIGHEST
from .cases import all_cases, chosen_cases
from .judge import REFUSED, RIGHT, UNRUN, judge, ours

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
IMAGE = (2, 3, 4, 4)
X = np.random.default_rng(0).normal(size=IMAGE).astype(np.float32)
B = np.arange(3, dtype=np.float32)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(opset, nodes, inputs, outputs, weights=(), functions=(), imports=(), ir_version=8):
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    inputs = list(inputs)
    if ir_version < 4:
        inputs += [value(tensor.name, list(tensor.dims), tensor.data_type) for tensor in stored]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*pair) for pair in imports)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=ir_version)


def converted(proto, opset):
    model = convert(ir.from_proto(proto), opset)
    assert not written_defaults(model)
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    assert {entry.domain: entry.version for entry in result.opset_import}[""] == opset
    return result


def run(proto, **feeds):
    return open_session(proto).run(None, feeds)


def operators(proto):
    return [node.op_type for node in proto.graph.node]


SOME = range(0, 1884, 37)


@pytest.mark.parametrize("index", SOME)
def test_a_backend_case_is_right_or_refused(index):
    case = all_cases()[index]
    for opset in (9, 13, 18, 23):
        outcome = judge(case, ours, opset)
        assert outcome.status in (RIGHT, REFUSED, UNRUN), f"{case.name} at {opset}: {outcome}"


@pytest.mark.parametrize(("name", "opset"), chosen_cases())
def test_each_line_of_the_version_ladder_is_right(name, opset):
    case = next(case for case in all_cases() if case.name == name)
    outcome = judge(case, ours, opset)
    assert outcome.status in (RIGHT, UNRUN), outcome


EARLY = {
    "broadcast from an axis": (
        model(6, [helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)],
              [value("x", IMAGE)], [value("y", IMAGE)], {"b": B}, ir_version=3),
        X + B[:, None, None],
    ),
    "a type by name": (
        model(1, [helper.make_node("Cast", ["x"], ["y"], to="INT32")],
              [value("x", IMAGE)], [value("y", IMAGE, TensorProto.INT32)], ir_version=3),
        X.astype(np.int32),
    ),
    "a shape as an attribute": (
        model(1, [helper.make_node("Reshape", ["x"], ["y"], shape=[2, -1])],
              [value("x", IMAGE)], [value("y", (2, 48))], ir_version=3),
        X.reshape(2, -1),
    ),
    "an axis left out": (
        model(1, [helper.make_node("Concat", ["x", "x"], ["y"])],
              [value("x", IMAGE)], [value("y", (2, 6, 4, 4))], ir_version=3),
        np.concatenate([X, X], 1),
    ),
    "paddings": (
        model(1, [helper.make_node("Pad", ["x"], ["y"], paddings=[0, 0, 1, 1] * 2, value=2.0)],
              [value("x", IMAGE)], [value("y", (2, 3, 6, 6))], ir_version=3),
        np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=2),
    ),
    "dropout that infers": (
        model(6, [helper.make_node("Dropout", ["x"], ["y"], ratio=0.3, is_test=1)],
              [value("x", IMAGE)], [value("y", IMAGE)], ir_version=3),
        X,
    ),
    "enlarged images": (
        model(7, [helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])],
              [value("x", IMAGE)], [value("y", (2, 3, 8, 8))], ir_version=3),
        X.repeat(2, 2).repeat(2, 3),
    ),
    "softmax over what follows an axis": (
        model(8, [helper.make_node("Softmax", ["x"], ["y"], axis=2)],
              [value("x", IMAGE)], [value("y", IMAGE)], ir_version=3),
        (lambda e: e / e.sum(-1, keepdims=True))(np.exp(X.reshape(6, 16))).reshape(IMAGE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18, HIGHEST])
@pytest.mark.parametrize("name", EARLY)
def test_early_versions_mean_the_same_everywhere(name, opset):
    proto, expected = EARLY[name]
    [found] = run(converted(proto, opset), x=X)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def squeezed(opset=18):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("ReduceMean", ["r", "axes"], ["m"], name="mean", keepdims=0),
        helper.make_node("Sub", ["m", "m"], ["y"], name="last"),
    ]
    inputs, outputs = [value("x", IMAGE)], [value("y", (2, 3))]
    return model(opset, nodes, inputs, outputs, {"axes": np.array([-1, 2])})


def test_nodes_keep_their_names_and_inputs_become_attributes():
    found = converted(squeezed(), 11)
    assert [node.name for node in found.graph.node] == ["first", "mean", "last"]
    assert operators(found) == ["Relu", "ReduceMean", "Sub"]
    [mean] = [node for node in found.graph.node if node.op_type == "ReduceMean"]
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in mean.attribute}
    assert attributes == {"axes": [3, 2], "keepdims": 0}
    assert not found.graph.initializer


def test_the_model_is_left_as_it_is():
    source = ir.from_proto(squeezed())
    before = ir.to_proto(source).SerializeToString(deterministic=True)
    for opset in (7, 9, 13, 23):
        convert(source, opset)
    assert ir.to_proto(source).SerializeToString(deterministic=True) == before


def test_the_same_opset_gives_the_same_model():
    proto = squeezed()
    assert ir.to_proto(convert(ir.from_proto(proto), 18)) == ir.to_proto(ir.from_proto(proto))


def test_the_same_model_gives_the_same_bytes():
    first, second = (converted(squeezed(), 9).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_every_node_in_the_way_is_named():
    nodes = [
        helper.make_node("StringConcat", ["x", "x"], ["s"], name="joined"),
        helper.make_node("RegexFullMatch", ["s"], ["y"], name="matched", pattern="a"),
    ]
    proto = model(20, nodes, [value("x", [2], TensorProto.STRING)], [value("y", [2], TensorProto.BOOL)])
    with pytest.raises(UnsupportedOperatorsError) as error:
        convert(ir.from_proto(proto), 18)
    assert {entry.modules for entry in error.value.operators} == {("joined",), ("matched",)}
    assert {entry.first_opset for entry in error.value.operators} == {20}


def test_element_types_that_an_opset_lacks_are_named():
    inputs, outputs = ([value(name, [2], TensorProto.BFLOAT16)] for name in "xy")
    proto = model(13, [helper.make_node("Identity", ["x"], ["y"])], inputs, outputs)
    with pytest.raises(UnsupportedOperatorsError, match="'x' is BFLOAT16"):
        convert(ir.from_proto(proto), 12)


def test_an_opset_out_of_range_is_refused():
    with pytest.raises(OpsetError):
        convert(ir.from_proto(squeezed()), 6)


def test_other_domains_pass_through():
    nodes = [
        helper.make_node("Binarizer", ["x"], ["b"], domain="ai.onnx.ml", threshold=0.5, name="binary"),
        helper.make_node("Anything", ["b"], ["c"], domain="com.example", level=3, name="custom"),
        helper.make_node("ReduceMean", ["c", "axes"], ["y"], keepdims=0),
    ]
    proto = model(18, nodes, [value("x", IMAGE)], [value("y", None)],
                  {"axes": np.array([1])}, imports=[("ai.onnx.ml", 1), ("com.example", 4)])  # fmt: skip
    found = ir.to_proto(convert(ir.from_proto(proto), 9))
    assert {entry.domain: entry.version for entry in found.opset_import} == {
        "": 9,
        "ai.onnx.ml": 1,
        "com.example": 4,
    }
    assert [found.graph.node[i] for i in range(2)] == nodes[:2]


def own_graph(offset):
    """A node of another domain, whose sub-graph has initializers and, in a branch, an initializer more."""
    branch = helper.make_graph(
        [helper.make_node("ReduceSum", ["t", "axes"], ["r"])],
        "branch",
        [],
        [value("r", None, INT64)],
        [onnx.numpy_helper.from_array(np.array([0]), "axes")],
    )
    nodes = [
        helper.make_node("Cast", ["s"], ["i"], to=INT64),
        helper.make_node("Add", ["i", "offset"], ["t"]),
        helper.make_node("GreaterOrEqual", ["t", "offset"], ["m"]),
        helper.make_node("If", ["flag"], ["p"], then_branch=branch, else_branch=branch),
        helper.make_node("Where", ["m", "t", "p"], ["u"]),
    ]
    stored = {"offset": np.array(offset), "flag": np.array(True)}
    body = helper.make_graph(
        nodes,
        "body",
        [value("s", [4])],
        [value("u", [4], INT64)],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    node = helper.make_node("Apply", ["x"], ["y"], domain="com.example", body=body)
    return model(18, [node], [value("x", [4])], [value("y", [4])], imports=[("com.example", 1)])


@pytest.mark.parametrize("opset", [7, 8, 9, 13])
def test_a_sub_graph_of_another_domain_has_its_own_constants(opset):
    """Below 9, where initializers are inputs, they are Constant nodes, which are FLOAT, DOUBLE or FLOAT16."""
    found = converted(own_graph(7), opset)
    [body] = [attribute.g for attribute in found.graph.node[0].attribute]
    assert [entry.name for entry in found.graph.input] == ["x"]
    assert not found.graph.initializer
    alone = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)])
    alone.ir_version = found.ir_version
    numbers = np.array([-9, 0, 3, -1], dtype=np.float32)
    shifted = numbers.astype(np.int64) + 7
    expected = np.where(shifted >= 7, shifted, shifted.sum())
    np.testing.assert_array_equal(run(alone, s=numbers)[0], expected)


def test_a_constant_of_another_domains_sub_graph_may_need_initializers():
    with pytest.raises(UnsupportedOperatorsError, match="9"):
        convert(ir.from_proto(own_graph(2**53 + 1)), 8)


@pytest.mark.parametrize("own_opset", [18, 15])
def test_functions_are_inlined_with_their_own_opset(own_opset):
    scaled = helper.make_node("Mul", ["a", "f"], ["m"])
    picked = helper.make_node("Constant", [], ["f"])
    picked.attribute.append(onnx.AttributeProto(name="value_float", ref_attr_name="by", type=1))
    softened = helper.make_node("Softmax", ["m"], ["r"])
    function = helper.make_function(
        "local", "Scaled", ["a"], ["r"], [picked, scaled, softened],
        [helper.make_opsetid("", own_opset)], attributes=["by"],
    )  # fmt: skip
    call = helper.make_node("Scaled", ["x"], ["y"], domain="local", by=3.0)
    proto = model(18, [call], [value("x", (2, 3))], [value("y", (2, 3))],
                  functions=[function], imports=[("local", 1)])  # fmt: skip
    found = converted(proto, 9)
    assert not found.functions
    data = X[:, :, 0, 0]
    exponents = np.exp(3 * data)
    np.testing.assert_allclose(run(found, x=data)[0], exponents / exponents.sum(-1, keepdims=True), rtol=1e-5)


def test_sub_graphs_are_converted_and_read_what_is_around_them():
    def branch(op_type, name):
        nodes = [
            helper.make_node("ReduceSum", ["x", "axes"], [f"{name}_sum"], keepdims=0),
            helper.make_node(op_type, [f"{name}_sum"], [f"{name}_out"]),
        ]
        return helper.make_graph(nodes, name, [], [value(f"{name}_out", (2, 4, 4))])

    chosen = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Neg", "then"), else_branch=branch("Abs", "else")
    )
    inputs = [value("x", IMAGE), value("c", (), TensorProto.BOOL)]
    proto = model(18, [chosen], inputs, [value("y", (2, 4, 4))], {"axes": np.array([1])})
    for opset in (9, 11, 13, 23):
        found = converted(proto, opset)
        for flag, function in ((True, np.negative), (False, np.abs)):
            [result] = run(found, x=X, c=np.array(flag))
            np.testing.assert_allclose(result, function(X.sum(1)), rtol=1e-5)


@pytest.mark.parametrize("opset", [7, 10, 11, HIGHEST])
def test_branches_return_different_shapes_and_ranks(opset):
    """Below 11 onnxruntime refuses branches whose results are seen to differ."""
    axes = onnx.numpy_helper.from_array(np.array([0]), "axes")
    then = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Unsqueeze", ["x", "axes"], ["b"])]
    other = [
        helper.make_node("Concat", ["x", "x"], ["d"], axis=0),
        helper.make_node("Identity", ["x"], ["e"]),
    ]
    branches = {
        "then_branch": helper.make_graph(
            [*then, helper.make_node("Abs", ["x"], ["f"])],
            "then",
            [],
            [value("a", [3]), value("b", [1, 3]), value("f", [3])],
            [axes],
        ),
        "else_branch": helper.make_graph(
            [*other, helper.make_node("Exp", ["x"], ["h"])],
            "other",
            [],
            [value("d", [6]), value("e", [3]), value("h", [3])],
        ),
    }
    nodes = [
        helper.make_node("If", ["c"], ["longer", "raised", "alike"], **branches),
        helper.make_node("Shape", ["raised"], ["shape"]),
    ]
    outputs = [value("longer", [None]), value("shape", [None], TensorProto.INT64), value("alike", [3])]
    proto = model(13, nodes, [value("x", [3]), value("c", [], TensorProto.BOOL)], outputs)
    found = converted(proto, opset)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    for flag, expected in ((True, [-x, [1, 3], x]), (False, [np.concatenate([x, x]), [3], np.exp(x)])):
        for got, wanted in zip(run(found, x=x, c=np.array(flag)), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_an_initializer_that_callers_may_replace_is_no_constant():
    node = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    inputs = [value("x", (2, 3)), value("axes", (1,), INT64)]
    proto = model(13, [node], inputs, [value("y", (None, None, None))], {"axes": np.array([0])})
    found = converted(proto, 11)
    data = X[:, :, 0, 0]
    assert run(found, x=data)[0].shape == (1, 2, 3)
    assert run(found, x=data, axes=np.array([2]))[0].shape == (2, 3, 1)


def test_old_formats_have_their_initializers_among_the_inputs():
    nodes = [helper.make_node("Add", ["x", "b"], ["y"])]
    proto = model(13, nodes, [value("x", (2, 3))], [value("y", (2, 3))], {"b": B})
    old = converted(proto, 8)
    assert old.ir_version == 3
    assert [entry.name for entry in old.graph.input] == ["x", "b"]
    again = converted(old, 13)
    assert [entry.name for entry in again.graph.input] == ["x"]


@pytest.mark.parametrize("axis", [0, 1, 2, 4, -1])
def test_integers_are_flattened_where_flatten_takes_floats_only(axis):
    node = helper.make_node("Flatten", ["x"], ["y"], axis=axis)
    sizes = ("n", 3, 4, "m")
    found = converted(model(13, [node], [value("x", sizes, INT64)], [value("y", (None, None), INT64)]), 7)
    x = np.arange(24).reshape(1, 3, 4, 2)
    at = axis % 4 if axis < 4 else axis
    np.testing.assert_array_equal(run(found, x=x)[0], x.reshape(int(np.prod(x.shape[:at])), -1))


@pytest.mark.parametrize("exponent", [np.array(2), np.array([3]), np.array(0)])
def test_integers_have_constant_powers_where_pow_takes_floats_only(exponent):
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    proto = model(13, [node], [value("x", ("n",), INT64)], [value("y", ("n",), INT64)], {"e": exponent})
    x = np.array([-3, 0, 1, 2**31 + 1])
    np.testing.assert_array_equal(run(converted(proto, 11), x=x)[0], x**exponent)


def test_integers_have_computed_powers_where_pow_takes_floats_only():
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    inputs = [value("x", ("n",), INT64), value("e", ("n",), INT64)]
    proto = model(13, [node], inputs, [value("y", ("n",), INT64)])
    x, e = np.array([-3, 7, 1, 2]), np.array([39, 22, 0, 62])
    np.testing.assert_array_equal(run(converted(proto, 9), x=x, e=e)[0], x**e)


def test_a_result_that_is_listed_twice_stays_one_value():
    node = helper.make_node("Relu", ["x"], ["y"])
    proto = model(13, [node], [value("x", IMAGE)], [value("y", IMAGE), value("y", IMAGE)])
    for opset in (9, 13, 18):
        found = converted(proto, opset)
        assert [entry.name for entry in found.graph.output] == ["y", "y"]
        assert all(np.array_equal(result, np.maximum(X, 0)) for result in run(found, x=X))


def test_a_model_is_lowered_saved_and_run(tmp_path):
    import opsetta

    onnx.save(squeezed(), tmp_path / "model.onnx")
    source = opsetta.load(tmp_path / "model.onnx")
    assert isinstance(source, OnnxModel)
    assert source.opset == 18
    lowered = source.lower(opset=9)
    lowered.save(tmp_path / "lowered.onnx")
    assert opsetta.load(tmp_path / "lowered.onnx").opset == 9
    assert lowered.input_names == ["x"]
    np.testing.assert_array_equal(lowered.run({"x": X})[0], np.zeros((2, 3), dtype=np.float32))
    # What was lowered is lowered again from what was read.
    assert "ReduceMean" in [node.op_type for node in lowered.lower(opset=23).model.graph]


@pytest.mark.parametrize("opset", [9, 18])
def test_external_data_does_not_stay_where_it_was_read(opset, tmp_path):
    import opsetta

    weights = {"large": np.arange(1200, dtype=np.float32).reshape(3, 400), "small": B}
    branches = [
        helper.make_graph(
            [helper.make_node("Add", ["x", name], [f"{name}_sum"])],
            name,
            [],
            [value(f"{name}_sum", [3])],
            [onnx.numpy_helper.from_array(B + shift, name)],
        )
        for name, shift in (("one", 1), ("two", 2))
    ]
    nodes = [
        helper.make_node("If", ["which"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Add", ["chosen", "small"], ["sum"]),
        helper.make_node("MatMul", ["sum", "large"], ["y"]),
    ]
    inputs = [value("which", [], TensorProto.BOOL), value("x", [3])]
    made = model(18, nodes, inputs, [value("y", [400])], weights)
    apart = {"save_as_external_data": True, "location": "model.data", "size_threshold": 0}
    onnx.save(made, tmp_path / "model.onnx", **apart, convert_attribute=True)
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "out.onnx"
    opsetta.load(tmp_path / "model.onnx").lower(opset=opset).save(target)
    assert [path.name for path in target.parent.iterdir()] == ["out.onnx"]
    feeds = {"which": np.array(False), "x": B}
    [expected] = run(onnx.load(tmp_path / "model.onnx"), **feeds)
    np.testing.assert_allclose(run(onnx.load(target), **feeds)[0], expected, rtol=1e-6)


def test_the_command_converts_a_file(tmp_path, capsys):
    from opsetta.exporter.command_line.cli import main

    onnx.save(squeezed(), tmp_path / "model.onnx")
    with pytest.raises(SystemExit) as done:
        main(["convert", str(tmp_path / "model.onnx"), "--opset", "12", "-o", str(tmp_path / "out.onnx")])
    assert done.value.code == 0
    assert "opset 12" in capsys.readouterr().out
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)


def test_the_command_says_what_stands_in_the_way(tmp_path, capsys):
    from opsetta.exporter.command_line.cli import main

    node = helper.make_node("StringConcat", ["x", "x"], ["y"], name="joined")
    kinds = [value(name, [2], TensorProto.STRING) for name in "xy"]
    onnx.save(model(20, [node], kinds[:1], kinds[1:]), tmp_path / "model.onnx")
    with pytest.raises(SystemExit) as done:
        main(["convert", str(tmp_path / "model.onnx"), "--opset", "12", "-o", str(tmp_path / "out.onnx")])
    assert "joined" in str(done.value.code)
    assert not (tmp_path / "out.onnx").exists()
