"""LSTM, GRU and RNN are unrolled into the operators of their steps."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta.passes.realizers import UnrollRecurrent
from opsetta.registration import GraphError

from .checks import OPSETS, model_of, numbers, operators, realized, run

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTH, BATCH, INPUTS, HIDDEN = 3, 2, 4, 5


def recurrent(
    op_type: str,
    opset: int = 17,
    direction: str = "forward",
    bias: bool = True,
    state: bool = True,
    peepholes: bool = False,
    x: tuple = (LENGTH, BATCH, INPUTS),
    outputs: tuple = ("Y", "Y_h", "Y_c"),
    **attributes,
) -> tuple[ir.Model, dict[str, np.ndarray]]:
    directions = 2 if direction == "bidirectional" else 1
    width = GATES[op_type] * HIDDEN
    weights = {
        "W": numbers(directions, width, INPUTS, seed=1),
        "R": numbers(directions, width, HIDDEN, seed=2),
    }
    feed = {"X": numbers(LENGTH, BATCH, INPUTS)}
    inputs = {"X": x}
    names = ["X", "W", "R", "", "", "", "", ""]
    if bias:
        weights["B"] = numbers(directions, 2 * width, seed=3)
        names[3] = "B"
    for place, name in ((5, "h"), (6, "c")):
        if state and (name == "h" or op_type == "LSTM"):
            names[place] = name
            inputs[name] = (directions, x[1], HIDDEN)
            feed[name] = numbers(directions, BATCH, HIDDEN, seed=place)
    if peepholes:
        weights["P"] = numbers(directions, 3 * HIDDEN, seed=9)
        names[7] = "P"
    while not names[-1]:
        names.pop()
    outputs = outputs if op_type == "LSTM" else outputs[:2]
    node = helper.make_node(
        op_type, names, list(outputs), "r", direction=direction, hidden_size=HIDDEN, **attributes
    )
    return model_of(opset, [node], inputs, [name for name in outputs if name], weights), feed


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_steps_compute_what_the_operator_computes(op_type, direction):
    model, feed = recurrent(op_type, direction=direction)
    found = realized(model, UnrollRecurrent(), feed, 1e-5)
    assert op_type not in found
    assert found.count("Gather") >= LENGTH * (2 if direction == "bidirectional" else 1)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("op_type", GATES)
def test_at_each_opset(op_type, opset):
    model, feed = recurrent(op_type, opset, bias=False, state=False)
    realized(model, UnrollRecurrent(), feed, 1e-5)


@pytest.mark.parametrize(
    ("op_type", "changes"),
    [
        ("LSTM", {"peepholes": True, "direction": "bidirectional"}),
        ("LSTM", {"activations": ["Relu", "Tanh", "Sigmoid"]}),
        ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
        ("GRU", {"linear_before_reset": 0, "bias": False}),
        ("RNN", {"activations": ["Relu", "Softsign"], "direction": "bidirectional"}),
        ("LSTM", {"clip": 0.3, "peepholes": True}),
        ("GRU", {"clip": 0.3, "activations": ["HardSigmoid", "Elu"]}),
        ("RNN", {"clip": 0.3, "activations": ["LeakyRelu"]}),
        ("LSTM", {"outputs": ("", "Y_h", "")}),
        ("LSTM", {"x": (LENGTH, "batch", INPUTS), "state": False}),
    ],
)
def test_variants(op_type, changes):
    model, feed = recurrent(op_type, **changes)
    realized(model, UnrollRecurrent(), feed, 1e-5)


def test_the_steps_are_these():
    model, feed = recurrent("RNN", outputs=("", "Y_h"))
    found = realized(model, UnrollRecurrent(), feed, 1e-5)
    step = ["Gather", "Gemm", "Gemm", "Add", "Tanh"]
    assert found == ["Gather", *step * LENGTH, "Unsqueeze"]
    weights = [v.shape.numpy() for v in model.graph.initializers.values() if v.dtype == ir.DataType.FLOAT]
    assert sorted(weights) == [(HIDDEN,), (HIDDEN,), (HIDDEN, INPUTS), (HIDDEN, HIDDEN)]


def test_two_layers_that_share_weights_share_the_unrolled_ones():
    weights = {"W": numbers(1, HIDDEN, HIDDEN), "R": numbers(1, HIDDEN, HIDDEN), "B": numbers(1, 2 * HIDDEN)}
    nodes = [
        helper.make_node("RNN", ["X", "W", "R", "B"], ["Y"], "a", hidden_size=HIDDEN),
        helper.make_node("Squeeze", ["Y", "one"], ["Z"]),
        helper.make_node("RNN", ["Z", "W", "R", "B"], ["", "H"], "b", hidden_size=HIDDEN),
    ]
    weights["one"] = np.array([1])
    model = model_of(17, nodes, {"X": (LENGTH, BATCH, HIDDEN)}, ["H"], weights)
    realized(model, UnrollRecurrent(), {"X": numbers(LENGTH, BATCH, HIDDEN)}, 1e-5)
    products = [node for node in model.graph if node.op_type == "Gemm"]
    assert len({node.inputs[1] for node in products}) == 2


def test_computed_weights():
    weights = {"half": np.float32(0.5), "R": numbers(1, 4 * HIDDEN, HIDDEN), "B": numbers(1, 8 * HIDDEN)}
    nodes = [
        helper.make_node("Mul", ["V", "half"], ["W"]),
        helper.make_node("Mul", ["R", "half"], ["S"]),
        helper.make_node("Mul", ["B", "half"], ["C"]),
        helper.make_node("LSTM", ["X", "W", "S", "C"], ["", "H"], "r", hidden_size=HIDDEN),
    ]
    shapes = {"X": (LENGTH, BATCH, INPUTS), "V": (1, 4 * HIDDEN, INPUTS)}
    feed = {name: numbers(*shape) for name, shape in shapes.items()}
    for opset in (9, 17):
        model = model_of(opset, nodes, shapes, ["H"], weights)
        realized(model, UnrollRecurrent(), feed, 1e-5)


def test_batches_first():
    """onnxruntime has no kernels of this layout; the steps are those of the other one."""
    from onnx.reference import ReferenceEvaluator

    swapped, feed = recurrent("RNN", x=(BATCH, LENGTH, INPUTS), state=False, layout=1)
    plain, _ = recurrent("RNN", state=False)
    y, h = run(plain, feed)
    assert UnrollRecurrent()(swapped).modified
    found = ReferenceEvaluator(ir.to_proto(swapped)).run(None, {"X": feed["X"].transpose(1, 0, 2)})
    np.testing.assert_allclose(found[0], y.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], h.transpose(1, 0, 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": ("time", BATCH, INPUTS)}, "sequence length of LSTM 'r' is 'time'"),
        ({"input_forget": 1}, "'input_forget'"),
        ({"activations": ["Affine", "Tanh", "Tanh"]}, "'Affine'"),
    ],
)
def test_what_is_refused(changes, message):
    model, _ = recurrent("LSTM", **changes)
    with pytest.raises(GraphError, match=message):
        UnrollRecurrent()(model)


def test_a_long_sequence_is_refused_before_it_is_made():
    model, _ = recurrent("LSTM", x=(10**6, BATCH, INPUTS))
    with pytest.raises(GraphError, match="nodes"):
        UnrollRecurrent()(model)
    assert operators(model) == ["LSTM"]
