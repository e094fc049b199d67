"""Frozen graphs return TensorFlow's results for the graph and its checkpoint, without superfluous nodes."""

import io
import pathlib
import re

import numpy as np
import pytest
from google.protobuf import text_format

from opsetta import CaptureError, ModelFileError, UsageError
from opsetta.exporter.capture.tensorflow.checkpoints import open_checkpoint
from opsetta.exporter.capture.tensorflow.freezing import freeze, frozen_graph
from opsetta.exporter.capture.tensorflow.graph_reading import read_graph
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.tensor_protos import array_of
from tests import tensorflow_checkpoints as files
from tests.tensorflow_interpreter import Interpreter

DATA = pathlib.Path(__file__).parents[4] / "data" / "tensorflow" / "freezing"
TRAINING = re.compile(
    r"Assign.*|.*Apply.*|Save.*|Restore.*|.*Grad.*|.*Summary.*|Assert|Print.*|.*Initialized.*|Var.*Op|Variable.*"
    r"|ReadVariableOp|Resource.*|Random.*|.*WithDefault"
)
CASES = {
    "adam": ("model.ckpt-5", "prob", 1e-6),
    "training": ("model.ckpt", "net/logits", 1e-6),
    "training_resources": ("model.ckpt", "net/logits", 1e-6),
    "loop": ("model.ckpt", "y", 1e-6),
    "loop_resources": ("model.ckpt", "y", 1e-6),
    "average": ("model.ckpt", "y", 1e-6),
}


def operators(graph):
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return {node.op for node in nodes}


def values_of(name, kind):
    held = np.load(DATA / name / "io.npz")
    return {key.split(":")[1]: held[key] for key in held.files if key.startswith(f"{kind}:")}


@pytest.mark.parametrize("name", CASES)
def test_a_frozen_graph_computes_what_tensorflow_computed(name):
    checkpoint, output, tolerance = CASES[name]
    graph = freeze(DATA / name / "graph.pb", DATA / name / checkpoint, output)
    assert not list(filter(TRAINING.fullmatch, operators(graph)))
    assert operators(graph) <= operators(
        message_type("GraphDef").FromString((DATA / name / "graph.pb").read_bytes())
    )
    [found] = Interpreter(graph).run([output], values_of(name, "in"))
    np.testing.assert_allclose(found, values_of(name, "out")[output], atol=tolerance)


def test_a_saved_model_is_frozen_by_its_signature():
    frozen = frozen_graph(DATA / "saved_model")
    graph = frozen.message()
    assert not list(filter(TRAINING.fullmatch, operators(graph)))
    types = [
        a.type for f in graph.library.function for a in (*f.signature.input_arg, *f.signature.output_arg)
    ]
    assert 20 not in types
    fed = {"serving_default_indices": values_of("saved_model", "in")["indices"]}
    n, y = Interpreter(graph).run(frozen.outputs, fed)
    expected = values_of("saved_model", "out")
    np.testing.assert_allclose(y, expected["y"], atol=1e-6)
    assert n == expected["n"]
    # Both variables are called "w"; the functions of the saver tell which is which.
    arrays = [array_of(node.attr["value"].tensor, "") for node in graph.node if node.op == "Const"]
    held = np.load(DATA / "saved_model" / "io.npz")
    for name in ("first", "second", "table", "steps"):
        assert any(array.shape == held[name].shape and (array == held[name]).all() for array in arrays)


@pytest.mark.parametrize("graph", ["graph.pb", "model.ckpt-5.meta"])
def test_weights_are_exact_and_dropout_is_gone(graph):
    frozen = frozen_graph(DATA / "adam" / graph, DATA / "adam", "prob")
    variables = np.load(DATA / "adam" / "vars.npz")
    assert set(frozen.weights) == {name for name in variables.files if not re.search("Adam|step|power", name)}
    for name, weight in frozen.weights.items():
        assert weight.read().tobytes() == variables[name].tobytes()
    assert "SelectV2" not in operators(frozen.graph_def)
    assert len(frozen.graph_def.node) < 35


def test_a_metagraph_knows_its_checkpoint_and_objects_are_not_changed():
    file = read_graph(DATA / "adam" / "model.ckpt-5.meta", need_signature=False)
    before = file.graph_def.SerializeToString(deterministic=True)
    frozen = frozen_graph(file, outputs=["prob:0"])
    assert frozen.outputs == ["prob"]
    assert file.graph_def.SerializeToString(deterministic=True) == before
    assert freeze(file.graph_def, DATA / "adam", "prob") == frozen.message()


def test_what_is_written_is_the_message():
    frozen = frozen_graph(DATA / "adam" / "graph.pb", DATA / "adam", "prob")
    file = io.BytesIO()
    frozen.write(file)
    assert len(file.getvalue()) == frozen.size()
    assert message_type("GraphDef").FromString(file.getvalue()) == frozen.message()
    again = io.BytesIO()
    frozen_graph(DATA / "adam" / "graph.pb", DATA / "adam", "prob").write(again)
    assert again.getvalue() == file.getvalue()


def test_a_frozen_graph_is_frozen_already():
    graph = freeze(DATA / "loop" / "graph.pb", DATA / "loop" / "model.ckpt", "y")
    assert freeze(graph, outputs="y") == graph
    assert freeze(graph) == graph


def test_flags_that_are_set_keep_what_training_does():
    values = {"net/training": True, "net/keep_prob": 0.5}
    graph = freeze(
        DATA / "training" / "graph.pb", DATA / "training" / "model.ckpt", "net/logits", values=values
    )
    assert {"RandomUniform", "SelectV2", "Mean"} <= operators(graph)
    assert not {"Switch", "Merge", "Assign"} & operators(graph)


def test_keys_choose_between_values_of_a_variable():
    graph, checkpoint = DATA / "average" / "graph.pb", DATA / "average" / "model.ckpt"
    averaged = frozen_graph(graph, checkpoint, "y", keys={"w": "w/ExponentialMovingAverage"})
    expected = np.load(DATA / "average" / "io.npz")["average"]
    assert averaged.weights["w"].read().tobytes() == expected.tobytes()
    with pytest.raises(CaptureError, match="no variable 'none', the key of 'w'"):
        frozen_graph(graph, checkpoint, "y", keys={"w": "none"})


HEAD = 'node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } } '


def parsed(text):
    return text_format.Parse(text, message_type("GraphDef")())


def node(name, op, *inputs, **types):
    read = " ".join(f'input: "{text}"' for text in inputs)
    attributes = " ".join(f'attr {{ key: "{key}" value {{ {value} }} }}' for key, value in types.items())
    return f'node {{ name: "{name}" op: "{op}" {read} {attributes} }}\n'


FLOAT, BOOL = "type: DT_FLOAT", "type: DT_BOOL"
X = node("x", "Placeholder", dtype=FLOAT)
V = node("v", "VariableV2", dtype="type: DT_FLOAT", shape="shape { dim { size: 2 } }")
HANDLE = node("v", "VarHandleOp", dtype=FLOAT, shape="shape { dim { size: 2 } }", shared_name='s: "v"')
FALSE = node("no", "Const", dtype=BOOL, value="tensor { dtype: DT_BOOL tensor_shape { } bool_val: false }")


@pytest.fixture
def checkpoint(tmp_path):
    tensors = {
        "v": np.array([1, 2], np.float32),
        "other": np.ones(3, np.float32),
        "n": np.int64(3).reshape(()),
    }
    files.write_bundle(tmp_path / "c", tensors)
    return open_checkpoint(tmp_path / "c")


def test_handles_pass_through_branches_and_gathers(checkpoint):
    index = node("i", "Const", value="tensor { dtype: DT_INT32 tensor_shape { dim { size: 3 } } int_val: 1 }")
    text = (
        HANDLE
        + FALSE
        + index
        + node("s", "Switch", "v", "no", T="type: DT_RESOURCE")
        + node("r", "Identity", "s", T="type: DT_RESOURCE")
        + node("g", "ResourceGather", "r", "i", dtype=FLOAT, Tindices="type: DT_INT32")
        + node("h", "VariableShape", "v")
        + node("t", "VarIsInitializedOp", "s:1")
        + node("m", "Merge", "t", "u", T=BOOL, N="i: 2")
        + node("u", "VarIsInitializedOp", "s")
    )
    graph = freeze(parsed(text), checkpoint, "g,h,m:1,m")
    g, h, which, m = Interpreter(graph).run(["g", "h", "m/value_index", "m"], {})
    assert (g.tolist(), h.tolist(), which, m) == ([2, 2, 2], [2], 1, True)
    assert not {"Switch", "Merge"} & operators(graph)


def test_results_in_a_branch_that_is_not_taken_are_refused(checkpoint):
    text = V + FALSE + node("s", "Switch", "v", "no", T=FLOAT) + node("y", "Neg", "s:1", T=FLOAT)
    with pytest.raises(CaptureError, match="'y' of the graph is in a branch that never runs"):
        freeze(parsed(text), checkpoint, "y")


def test_a_variable_that_is_read_after_it_is_changed_is_refused(checkpoint):
    for variable, read, change in (
        (V, "Identity", "AssignAdd"),
        (HANDLE, "ReadVariableOp", "AssignAddVariableOp"),
    ):
        text = variable + X + node("w", change, "v", "x", T=FLOAT) + node("y", read, "v", "^w", T=FLOAT)
        with pytest.raises(CaptureError, match="reads the variable 'v' after the graph has changed it"):
            freeze(parsed(text), checkpoint, "y")
        text = variable + X + node("y", read, "v", T=FLOAT) + node("w", change, "v", "x", "^y", T=FLOAT)
        text += node("z", "Identity", "y", "^w", T=FLOAT)
        assert operators(freeze(parsed(text), checkpoint, "z")) == {"Const", "Identity"}
    text = V + X + node("w", "AssignAdd", "v", "x", T=FLOAT) + node("y", "Neg", "w", T=FLOAT)
    with pytest.raises(CaptureError, match=r"node 'w' \(AssignAdd\) changes a variable"):
        freeze(parsed(text), checkpoint, "y")


def test_all_that_cannot_be_frozen_is_named():
    text = (
        node("table", "HashTableV2")
        + node("found", "LookupTableFindV2", "table", "x", "x")
        + node("next", "IteratorGetNext", "x")
        + X
        + node("y", "AddN", "found", "next:1", T=FLOAT)
    )
    with pytest.raises(CaptureError) as caught:
        freeze(parsed(text), None, "y")
    assert "'found' (LookupTableFindV2)" in str(caught.value)
    assert "'next' (IteratorGetNext)" in str(caught.value)


def test_inputs_stand_for_what_comes_from_outside():
    types = "list { type: DT_FLOAT type: DT_INT32 }"
    shapes = "list { shape { dim { size: 2 } } shape { dim { size: 3 } } }"
    text = node("next", "IteratorGetNext", output_types=types, output_shapes=shapes)
    text += node("y", "Neg", "next", T=FLOAT) + node("z", "Neg", "next:1", T="type: DT_INT32")
    graph = freeze(parsed(text), None, ["y", "z"], inputs="next, next:1")
    placeholders = {
        n.name: (n.attr["dtype"].type, n.attr["shape"].shape.dim[0].size) for n in graph.node if not n.input
    }
    assert placeholders == {"next": (1, 2), "next_1": (3, 3)}
    assert Interpreter(graph).run(["y", "z"], {"next": 1.0, "next_1": 2}) == [-1.0, -2]
    with pytest.raises(UsageError, match="inputs names 'next:2'"):
        freeze(parsed(text), None, ["y"], inputs="next:2")


def test_a_default_that_is_a_number_is_taken_and_others_stay():
    text = FALSE + X + node("flag", "PlaceholderWithDefault", "no", dtype=BOOL)
    text += node("wide", "PlaceholderWithDefault", "many", dtype=FLOAT)
    text += node("many", "Const", value="tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } }")
    text += node("s", "Switch", "wide", "flag", T=FLOAT)
    text += (
        node("a", "Neg", "s", T=FLOAT)
        + node("b", "Identity", "s:1", T=FLOAT)
        + node("y", "Merge", "a", "b", T=FLOAT)
    )
    graph = freeze(parsed(text), None, "y")
    assert operators(graph) == {"Const", "PlaceholderWithDefault", "Identity", "Neg"}
    graph = freeze(parsed(text), None, "y", inputs=["flag", "wide"])
    assert {"Switch", "Merge", "Placeholder"} <= operators(graph)
    graph = freeze(parsed(text), None, "y", values={"flag": True})
    assert "Neg" not in operators(graph)
    with pytest.raises(UsageError, match="given for 'none'"):
        freeze(parsed(text), None, "y", values={"none": 1})
    with pytest.raises(UsageError, match="'x' is DT_FLOAT and cannot be set to 'a'"):
        freeze(parsed(text), None, "y", values={"x": "a"})


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        (
            node("other", "VariableV2", dtype=FLOAT, shape="shape { dim { size: 2 } }"),
            r"the shape \[2\] in the graph, but \[3\] in",
        ),
        (
            node("n", "VariableV2", dtype=FLOAT, shape="shape { }"),
            "is DT_FLOAT in the graph, but DT_INT64 in",
        ),
        (
            node("scope/v", "VariableV2", dtype=FLOAT, shape="shape { }"),
            "has no variable 'scope/v'; it has 'v'",
        ),
        (node("none", "VariableV2", dtype=FLOAT, shape="shape { }"), "has no variable 'none'"),
    ],
)
def test_variables_that_do_not_fit_the_checkpoint_are_named(variable, reason, checkpoint):
    name = re.search(r'name: "([^"]*)"', variable)[1]
    with pytest.raises(CaptureError, match=reason):
        freeze(parsed(variable + node("y", "Neg", name, T=FLOAT)), checkpoint, "y")


@pytest.mark.parametrize("second", [[1, 2], [1, 3]])
def test_objects_of_one_name_are_one_variable_if_they_are_copies(second, tmp_path):
    objects = message_type("TrackableObjectGraph")()
    keys = ["a/.ATTRIBUTES/VARIABLE_VALUE", "b/.ATTRIBUTES/VARIABLE_VALUE"]
    for key in keys:
        objects.nodes.add().attributes.add(name="VARIABLE_VALUE", full_name="v", checkpoint_key=key)
    tensors = {key: np.array(value, np.float32) for key, value in zip(keys, ([1, 2], second), strict=True)}
    tensors["_CHECKPOINTABLE_OBJECT_GRAPH"] = np.array(objects.SerializeToString(), object)
    files.write_bundle(tmp_path / "c", tensors)
    text = HANDLE + node("y", "ReadVariableOp", "v", dtype=FLOAT)
    if second == [1, 2]:
        [y] = Interpreter(freeze(parsed(text), tmp_path / "c", "y")).run(["y"], {})
        assert y.tolist() == second
    else:
        with pytest.raises(CaptureError, match="2 variables are called 'v'.*; choose one"):
            freeze(parsed(text), tmp_path / "c", "y")


def test_a_variable_has_the_key_of_its_copy(tmp_path):
    """The savers of Keras 3 restore copies of the variables that the signatures read."""
    files.write_bundle(tmp_path / "c", {"a": np.array([1, 2], np.float32), "b": np.array([3, 4], np.float32)})
    key = 'tensor { dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: "b" }'
    text = HANDLE + HANDLE.replace('"v"', '"copy"')
    text += node("original", "ReadVariableOp", "v", dtype=FLOAT)
    text += node("initial", "AssignVariableOp", "copy", "original", dtype=FLOAT)
    text += node("keys", "Const", dtype="type: DT_STRING", value=key)
    text += node("slices", "Const", dtype="type: DT_STRING", value=key.replace('"b"', '""'))
    text += node("read", "RestoreV2", "prefix", "keys", "slices", dtypes="list { type: DT_FLOAT }")
    text += node("prefix", "Placeholder", dtype="type: DT_STRING")
    text += node("restored", "AssignVariableOp", "copy", "read", dtype=FLOAT)
    text += node("y", "ReadVariableOp", "v", dtype=FLOAT)
    [y] = Interpreter(freeze(parsed(text), tmp_path / "c", "y")).run(["y"], {})
    assert y.tolist() == [3, 4]


def test_a_graph_with_variables_needs_a_checkpoint():
    with pytest.raises(CaptureError, match=r"no checkpoint \(checkpoint= or --checkpoint\): 'v'"):
        freeze(parsed(V + node("y", "Neg", "v", T=FLOAT)), None, "y")


def test_outputs_of_a_training_graph_must_be_named():
    with pytest.raises(UsageError, match="name its outputs.*'prob'"):
        freeze(DATA / "adam" / "graph.pb", DATA / "adam")
    with pytest.raises(UsageError, match="outputs names 'none'"):
        freeze(DATA / "adam" / "graph.pb", DATA / "adam", "none")
    with pytest.raises(UsageError, match="the graph must be a path or a GraphDef"):
        freeze(3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (X + X, "two nodes of the graph have the name 'x'"),
        (node("y", "Neg", "z"), "no node 'z'"),
        (node("y", "Neg", "z") + node("z", "Neg", "y"), "a cycle through"),
        (X + node("y", "PartitionedCall", "x", f='func { name: "f" }'), "'f' is called, but is not in"),
        (X + node("y", "MapDefun", "x", f='func { name: "f" }'), "calls a function"),
    ],
)
def test_graphs_that_contradict_themselves_are_refused(text, reason):
    with pytest.raises((ModelFileError, CaptureError), match=reason):
        freeze(parsed(text), None, "y")


def function(name, *nodes, result="n:y:0", argument="a"):
    body = " ".join(n.replace("node {", "node_def {", 1) for n in nodes)
    signature = f'name: "{name}" input_arg {{ name: "{argument}" type: DT_FLOAT }}'
    signature += ' output_arg { name: "r" type: DT_FLOAT }'
    return f'function {{ signature {{ {signature} }} {body} ret {{ key: "r" value: "{result}" }} }} '


def library(*functions):
    return f"library {{ {' '.join(functions)} }}"


CALL = {"f": 'func { name: "f" }', "Tin": "list { type: DT_FLOAT }", "Tout": "list { type: DT_FLOAT }"}


def test_a_function_that_calls_itself_is_refused():
    call = function("f", node("n", "PartitionedCall", "a", **CALL), result="n:output:0")
    with pytest.raises(CaptureError, match="calls itself"):
        freeze(parsed(X + node("y", "PartitionedCall", "x", **CALL) + library(call)), None, "y")


def test_a_long_chain_of_calls_is_refused():
    text = X + node("y", "PartitionedCall", "x", **{**CALL, "f": 'func { name: "f0" }'})
    functions = [function("f200", node("n", "Neg", "a", T=FLOAT))]
    for number in range(200):
        call = {**CALL, "f": f'func {{ name: "f{number + 1}" }}'}
        functions.append(
            function(f"f{number}", node("n", "PartitionedCall", "a", **call), result="n:output:0")
        )
    with pytest.raises(CaptureError, match="nested more than"):
        freeze(parsed(text + library(*functions)), None, "y")


def test_arguments_without_a_use_are_dropped():
    body = node("n", "Const", value="tensor { dtype: DT_FLOAT tensor_shape { } float_val: 2 }")
    text = X + node("p", "Neg", "x", T=FLOAT) + node("y", "PartitionedCall", "p", **CALL)
    graph = freeze(parsed(text + library(function("f", body, result="n:output:0"))), None, "y")
    assert [n.op for n in graph.node] == ["PartitionedCall"]
    assert list(graph.node[0].attr["Tin"].list.type) == []
    assert Interpreter(graph).run(["y"], {}) == [2.0]


def mask(keep, shape_of="x", extra=""):
    scalar = "dtype: DT_FLOAT tensor_shape { } float_val"
    text = X + node("keep", "Const", dtype=FLOAT, value=f"tensor {{ {scalar}: {keep} }}")
    text += node("shape", "Shape", shape_of, T=FLOAT, out_type="type: DT_INT32")
    text += node("u", "RandomUniform", "shape", T="type: DT_INT32", dtype=FLOAT)
    return text + node("sum", "AddV2", "u", "keep", T=FLOAT) + node("mask", "Floor", "sum", T=FLOAT) + extra


def test_dropout_that_keeps_everything_goes():
    scaled = node("d", "RealDiv", "x", "keep", T=FLOAT) + node("y", "Mul", "d", "mask", T=FLOAT)
    assert operators(freeze(parsed(mask(1.0) + scaled), None, "y")) == {"Placeholder", "Identity"}
    assert "RandomUniform" in operators(freeze(parsed(mask(0.9) + scaled), None, "y"))


def test_a_mask_of_another_shape_still_broadcasts():
    other = node("z", "Placeholder", dtype=FLOAT)
    text = mask(1.0, "z") + other + node("y", "Mul", "x", "mask", T=FLOAT)
    graph = freeze(parsed(text), None, "y")
    assert "Fill" in operators(graph)
    assert "RandomUniform" not in operators(graph)
    [found] = Interpreter(graph).run(["y"], {"x": np.float32(3), "z": np.zeros((2, 2), np.float32)})
    assert found.tolist() == [[3, 3], [3, 3]]
