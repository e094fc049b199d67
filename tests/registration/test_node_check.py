"""Nodes against the schemas of their operators."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from opsetta import InvalidNodesError
from opsetta.registration.attribute_words import WORDS, words_of
from opsetta.registration.validity.equations import equation_problem
from opsetta.registration.validity.node_check import check_nodes, invalid_nodes

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
FREE_TEXT = frozenset(
    "default_string locale delimiter pattern stopwords value_string value_strings pool_strings cats_strings "
    "classes_strings values_strings keys_strings classlabels_strings string_vocabulary equation y xs "
    "zs".split()
)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(node, opset, inputs, initializers=(), functions=()):
    """A model of one node, with inputs by name and shape, or shape and element type."""
    declared = [
        value(name, *(about if isinstance(about, tuple) else (about,))) for name, about in inputs.items()
    ]
    outputs = [value(name, None) for name in node.output if name]
    stored = [onnx.numpy_helper.from_array(np.array(data), name) for name, data in initializers]
    for entry in outputs:
        entry.type.tensor_type.ClearField("elem_type")
    graph = helper.make_graph([node], "graph", declared, outputs, stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("custom", 1)]
    return ir.from_proto(helper.make_model(graph, opset_imports=imports, functions=functions))


def branch(name, inputs=(), outputs=1):
    nodes = [helper.make_node("Abs", ["x"], [f"{name}{i}"]) for i in range(outputs)]
    results = [value(f"{name}{i}", None) for i in range(outputs)]
    return helper.make_graph(nodes, name, [value(each, [2]) for each in inputs], results)


def node(op_type, inputs="x", outputs="y", **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


X4 = {"x": [1, 2, 4, 4]}
PAIR = {"x": [2, 3], "w": [3, 4]}
INVALID = [
    ("no such operator", 17, node("Reluu"), X4, "no such operator"),
    ("later operator", 12, node("HardSwish"), X4, "it begins at 14"),
    ("removed operator", 11, node("Upsample", "x s", mode="nearest"), X4 | {"s": [4]}, "deprecated"),
    ("unknown attribute", 13, node("Softmax", beta=1.0), X4, "no attribute 'beta'"),
    ("attribute of another version", 18, node("ReduceMean", axes=[1]), X4, "no attribute 'axes'"),
    ("type of an attribute", 13, node("Softmax", axis=1.0), X4, "FLOAT, not INT"),
    ("required attribute", 13, node("Cast"), X4, "needs the attribute 'to'"),
    (
        "negative output shape",
        11,
        node("ConvTranspose", "x w", output_shape=[-(2**63), 4]),
        X4 | {"w": [2, 2, 1, 1]},
        "output_shape must be 0 or more",
    ),
    (
        "scanned inputs",
        17,
        node("Scan", body=branch("b", ["v"]), num_scan_inputs=-5),
        X4,
        "num_scan_inputs is -5, and it has 1 input",
    ),
    ("element type", 13, node("Cast", to=99), X4, "to is 99"),
    (
        "type of a window",
        17,
        node("HannWindow", output_datatype=-5),
        {"x": ([], INT64)},
        "output_datatype is -5",
    ),
    ("too many inputs", 13, node("Relu", "x x"), X4, "2 inputs, not 1"),
    ("too few inputs", 13, node("MatMul"), X4, "1 input, not 2"),
    ("too many outputs", 13, node("Relu", "x", "y z"), X4, "2 outputs, not 1"),
    ("omitted input", 13, helper.make_node("Clip", ["", "x"], ["y"]), X4, "needs its input 'input'"),
    ("element type of an input", 9, node("MatMul", "x w"), {"x": ([2], BOOL), "w": ([2], BOOL)}, "BOOL"),
    (
        "types of one variable",
        13,
        node("Add", "x w"),
        {"x": [2], "w": ([2], INT64)},
        "must be FLOAT",
    ),
    ("axis", 13, node("Concat", "x x", axis=4), X4, "axis 4 is outside"),
    ("default axis", 11, node("Softmax"), {"x": [3]}, "axis 1 is outside"),
    ("axis of Flatten", 13, node("Flatten", axis=5), X4, "axis 5 is outside"),
    ("order", 13, node("Transpose", perm=[0, 2, 2, 1]), X4, "no permutation"),
    ("length of an order", 13, node("Transpose", perm=[1, 0]), X4, "rank 4"),
    ("rank", 13, node("Gemm", "x w"), {"x": [1, 2, 3], "w": [3, 4]}, "rank 3, not 2"),
    ("ranks", 13, node("Conv", "x w"), {"x": [1, 2, 4, 4], "w": [2, 2, 3]}, "ranks 3 and 4"),
    ("strides", 13, node("MaxPool", kernel_shape=[2, 2], strides=[2]), X4, "strides have 1 numbers"),
    ("equation", 13, node("Einsum", "x w", equation="ij,jk->il"), PAIR, "'l', which no operand has"),
    ("ellipses", 13, node("Einsum", "x", equation="......->i"), X4, "at most one ellipsis"),
    ("two constants", 13, node("Constant", "", value_int=1, value_float=1.0), {}, "2 attributes"),
    (
        "inputs of a branch",
        13,
        node("If", "c", then_branch=branch("a", ["q"]), else_branch=branch("b")),
        {"c": ([], BOOL), "x": [2]},
        "then_branch has 1 input, not 0",
    ),
    (
        "outputs of a branch",
        13,
        node("If", "c", then_branch=branch("a"), else_branch=branch("b", outputs=2)),
        {"c": ([], BOOL), "x": [2]},
        "else_branch has 2 outputs, not 1",
    ),
]


@pytest.mark.parametrize(
    ("opset", "made", "inputs", "reason"), [c[1:] for c in INVALID], ids=[c[0] for c in INVALID]
)
def test_an_invalid_node_is_found(opset, made, inputs, reason):
    model = model_of(made, opset, inputs)
    [found] = invalid_nodes(model)
    assert reason in found.reason
    assert found.operator == made.op_type
    with pytest.raises(InvalidNodesError, match=f"{made.op_type} "):
        check_nodes(model)
    check_nodes(model, already_invalid=[found])


def test_constant_axes_are_checked_and_computed_ones_are_not():
    made = node("ReduceSum", "x axes")
    assert "axis 7" in invalid_nodes(model_of(made, 13, X4, [("axes", [7])]))[0].reason
    assert "twice" in invalid_nodes(model_of(made, 13, X4, [("axes", [1, -3])]))[0].reason
    assert not invalid_nodes(model_of(made, 13, X4, [("axes", [1, -1])]))
    assert not invalid_nodes(model_of(made, 13, X4 | {"axes": ([1], INT64)}))


def test_nodes_in_sub_graphs_and_functions_are_checked():
    inner = helper.make_graph([node("Gelu", "x", "a")], "then", [], [value("a", None)])
    made = node("If", "c", then_branch=inner, else_branch=branch("b"))
    inputs = {"c": ([], BOOL), "x": [2]}
    assert [each.operator for each in invalid_nodes(model_of(made, 13, inputs))] == ["Gelu"]
    body = [node("Elu", "x", "y", slope=1.0)]
    function = helper.make_function("custom", "Mine", ["x"], ["y"], body, [helper.make_opsetid("", 13)])
    call = helper.make_node("Mine", ["x"], ["y"], domain="custom")
    assert [each.operator for each in invalid_nodes(model_of(call, 17, X4, functions=[function]))] == ["Elu"]


def test_what_has_no_schema_is_left_alone():
    made = helper.make_node("Print", ["x"], [], domain="custom", anything="goes")
    assert not invalid_nodes(model_of(made, 13, X4))
    assert not invalid_nodes(model_of(node("Relu", __note="kept"), 13, X4))


@pytest.mark.parametrize(("op_type", "attribute"), WORDS)
def test_a_word_that_no_version_has_is_found(op_type, attribute):
    domain = next(s.domain for s in onnx.defs.get_all_schemas_with_history() if s.name == op_type)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name != op_type or attribute not in schema.attributes or schema.deprecated:
            continue
        words = words_of(op_type, attribute, schema.since_version)
        is_list = schema.attributes[attribute].type.name == "STRINGS"
        for word in (*sorted(words), "bogus"):
            attributes = {attribute: [word] if is_list else word}
            made = helper.make_node(op_type, ["x"] * schema.min_input, ["y"], domain=domain, **attributes)
            graph = ir.Graph(
                [], [], nodes=[ir.from_proto(made)], opset_imports={domain: schema.since_version}
            )
            reasons = [each.reason for each in invalid_nodes(ir.Model(graph, ir_version=10))]
            assert any("bogus" in reason for reason in reasons) == (word == "bogus")


def test_every_string_attribute_has_words_or_is_free_text():
    """The words are those of the text; the text of an attribute that is no free text has each of them."""
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, formal in schema.attributes.items():
            if formal.type.name not in ("STRING", "STRINGS") or name in FREE_TEXT or schema.deprecated:
                continue
            if (schema.name, name) == ("Cast", "to"):
                continue
            words = words_of(schema.name, name, schema.since_version)
            assert words, f"{schema.name}.{name} has no words"
            text = (formal.description or "") + schema.doc
            lenient = {"tf_half_pixel_for_nn"} | {word for word in words if name == "activations"}
            assert all(word in text for word in words - lenient), f"{schema.name}.{name}"
            default = helper.get_attribute_value(formal.default_value) if formal.default_value.name else None
            if isinstance(default, bytes) and default != b"foward":
                assert default.decode() in words


@pytest.mark.parametrize(
    ("equation", "ranks", "is_valid"),
    [
        ("ij,jk->ik", (2, 2), True),
        ("i j , j k -> i k", (2, None), True),
        ("...ij,...jk", (4, 3), True),
        ("bij,bjk->b...", (3, 3), True),
        ("ii->i", (2,), True),
        ("->", (0,), True),
        (",->", (0, 0), True),
        ("ij,jk", (2,), False),
        ("ij", (3,), False),
        ("...ijk", (2,), False),
        ("i..j", (2,), False),
        ("i.j->i", (2,), False),
        ("i1->i", (2,), False),
        ("ij->ii", (2,), False),
        ("ij->i->j", (2,), False),
    ],
)
def test_equations(equation, ranks, is_valid):
    assert (equation_problem(equation, ranks) is None) == is_valid


AXES = {"front": 0, "far": 7}
PAIRS = [
    ("order", 13, node("Transpose", perm=[1, 0]), node("Transpose", "x", "z", perm=[0, 0])),
    ("axis", 13, node("Softmax", axis=1), node("Softmax", "x", "z", axis=2)),
    ("axes in a constant", 13, node("Unsqueeze", "x front"), node("Unsqueeze", "x far", "z")),
    ("axes of a reduction", 18, node("ReduceMean", "x front"), node("ReduceMean", "x far", "z")),
    ("word", 18, node("ScatterElements", "x i x"), node("ScatterElements", "x i x", "z", reduction="bad")),
    ("name of an attribute", 13, node("Softmax", axis=1), node("Softmax", "x", "z", axes=1)),
    ("type of an attribute", 13, node("Softmax", axis=1), node("Softmax", "x", "z", axis=1.0)),
    ("element type", 13, node("Sqrt", "x"), node("Sqrt", "i", "z")),
    ("rank", 13, node("Gemm", "x x"), node("Gemm", "x cube", "z")),
    ("omitted input", 13, node("Clip", "x"), helper.make_node("Clip", ["", "x"], ["z"])),
    ("omitted result", 13, node("Split", "x", "y v"), helper.make_node("Dropout", ["x"], ["", "z"])),
    ("number of inputs", 13, node("Add", "x x"), node("Add", "x x x", "z")),
    ("sizes", 13, node("DequantizeLinear", "b one", axis=9), node("DequantizeLinear", "b two", "z", axis=9)),
]


@pytest.mark.parametrize(("opset", "valid", "invalid"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])
def test_a_node_that_differs_from_a_valid_one_is_checked(opset, valid, invalid):
    """Equal nodes are checked once, and no two that differ in anything that is checked are equal."""
    shapes = {"x": [2, 2], "cube": [2, 2, 2], "one": [1], "two": [2]}
    declared = [value(name, shape) for name, shape in shapes.items()]
    declared += [value("i", [2, 2], INT64), value("b", [2, 2], TensorProto.INT8)]
    stored = [onnx.numpy_helper.from_array(np.array([axis]), name) for name, axis in AXES.items()]
    again = helper.make_node(invalid.op_type, invalid.input, [name and "again" for name in invalid.output])
    again.attribute.extend(invalid.attribute)
    graph = helper.make_graph([valid, invalid, again], "graph", declared, [], stored)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
    first, second = invalid_nodes(model)
    assert first.reason == second.reason
    assert (first.result, second.result) == ("z", "again")
