"""Frozen recurrent layers become LSTM, GRU and RNN, and agree with TensorFlow; see `make_recurrent`."""

import collections
import functools
import pathlib

import numpy as np
import onnx
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph
from opsetta.exporter.capture.tensorflow.messages import message_type
from tests import opsets
from tests.opsets import is_full_run

from .recurrent_changes import CHANGED, changed

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "tensorflow"
NAMES = sorted(path.stem for path in (DATA / "recurrent").glob("*.npz"))
LOOPS = {
    "clipped_lstm_1": "ONNX clips the operands of activations, not the cells",
    "clipped_lstm_2": "ONNX clips the operands of activations, not the cells",
    "convolutional": "it convolves",
    "gru_half": "onnxruntime has no kernel",
    "lengths_1": "steps beyond the lengths select the states before them",
    "lengths_2": "steps beyond the lengths select the states before them",
    "lstm_double": "onnxruntime has no kernel",
    "masked": "masked steps select the states before them",
    "projected_lstm_1": "ONNX has no projection",
    "projected_lstm_2": "ONNX has no projection",
    "two_lstms": "one loop has two cells",
}
"""The layers that stay loops, and why."""
OPERATORS = {
    "bidirectional": ["LSTM", "LSTM"],
    "bidirectional_last": ["GRU", "GRU"],
    "bidirectional_lowered": ["LSTM", "LSTM"],
    "both_directions_1": ["GRU", "LSTM"],
    "both_directions_2": ["GRU", "LSTM"],
    "stacked": ["LSTM", "GRU", "RNN"],
    "unrolled": [],
}
"""The operators of the graphs that have not one layer."""
OPSETS = opsets.OPSETS if is_full_run() else (7, 22)
KINDS = ("LSTM", "GRU", "RNN", "Loop", "Scan")


@functools.cache
def stored(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / "recurrent" / f"{name}.npz") as file:
        return {key: file[key] for key in file}


def inputs(name: str, number: int = 0) -> dict[str, np.ndarray]:
    found = stored(name)
    return {
        key.split(":")[1]: found[key] for key in found if key.startswith("in:") and key[-1] == str(number)
    }


def graph(name: str):
    return message_type("GraphDef").FromString(stored(name)["graph"].tobytes())


def captured(name: str, message=None, shapes=None) -> opsetta.SourceModel:
    message = graph(name) if message is None else message
    given = shapes if shapes is not None else list(inputs(name))
    return opsetta.SourceModel(capture_graph(message, inputs=given, outputs=list(stored(name)["outputs"])))


@functools.cache
def source(name: str) -> opsetta.SourceModel:
    return captured(name)


def kinds(program: opsetta.Program) -> list[str]:
    return [node.op_type for node in program.model.graph.all_nodes() if node.op_type in KINDS]


def expected(name: str) -> list[str]:
    if name in LOOPS:
        return ["Loop"]
    if name in OPERATORS:
        return OPERATORS[name]
    return ["LSTM" if "lstm" in name or "time_major" in name else "GRU" if "gru" in name else "RNN"]


def compare(program: opsetta.Program, fed: dict, wanted: list[np.ndarray]) -> None:
    results = program(**fed)
    results = results if isinstance(results, tuple) else [results]
    for result, array in zip(results, wanted, strict=True):
        assert (result.dtype, result.shape) == (array.dtype, array.shape)
        tolerance = 2e-3 if array.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(result, array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", NAMES)
def test_layers_agree_with_tensorflow(name, opset):
    program = source(name).lower(opset)
    found = kinds(program)
    if opset < 9 and name not in LOOPS:
        # Sizes of graphs of TensorFlow 1, and reversed positions, are loops at opsets 7 and 8.
        found = [kind for kind in found if kind != "Loop"]
    assert set(found) == {"Loop"} if name in LOOPS else found == expected(name)
    onnx.checker.check_model(program.model_proto, full_check=True)
    for number in (0, 1):
        outputs = stored(name)["outputs"]
        compare(program, inputs(name, number), [stored(name)[f"out:{key}:{number}"] for key in outputs])


COUNTS = {
    "lstm": 4,
    "gru": 4,
    "gru_before": 3,
    "simple": 2,
    "basic_lstm_2": 5,
    "keras_2_lstm": 4,
    "peephole_lstm_2": 5,
}
"""How many changed copies are still layers of ONNX: with another bias, activation, or order of the gates."""


@pytest.mark.parametrize("name", CHANGED)
def test_cells_that_differ_in_one_operator_agree(name):
    found = collections.Counter()
    for change, message in changed(graph(name)):
        program = captured(name, message).lower(13)
        wanted = [stored(name)[f"{change}:{key}"] for key in stored(name)["outputs"]]
        compare(program, inputs(name), wanted)
        found += collections.Counter(kinds(program))
    assert set(found) == {"Loop", *expected(name)}
    assert found[expected(name)[0]] == COUNTS[name]


@pytest.mark.parametrize("opset", [11, 22])
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lstm", {"Transpose": 2, "LSTM": 1, "Squeeze": 3}),
        ("lstm_last", {"Transpose": 1, "LSTM": 1, "Gather": 1}),
        ("lstm_states", {"Transpose": 2, "Unsqueeze": 2, "LSTM": 1, "Squeeze": 3}),
        ("gru_lowered", {"Transpose": 2, "GRU": 1, "Squeeze": 2}),
        ("basic_lstm_1", {"Transpose": 2, "LSTM": 1, "Squeeze": 3}),
        ("keras_2_time_major", {"LSTM": 1, "Squeeze": 3}),
        ("bidirectional", {"Transpose": 2, "LSTM": 2, "Slice": 2, "Squeeze": 2, "Concat": 1}),
    ],
)
def test_little_else_is_left(name, count, opset):
    """Zeros for states, lists, counters and sizes disappear, also where time and batch vary."""
    program = source(name).lower(opset)
    assert collections.Counter(node.op_type for node in program.model.graph) == count


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("name", ["lstm_backwards", "simple_options"])
def test_a_reversed_sequence_is_a_direction(name, opset):
    [layer] = [node for node in source(name).lower(opset).model.graph if node.op_type in KINDS]
    assert layer.attributes["direction"].value == "reverse"
    assert layer.inputs[0].producer().op_type == "Transpose"


def test_gates_have_the_order_and_the_activations_of_onnx():
    [lstm] = [node for node in source("lstm_options").lower(13).model.graph if node.op_type == "LSTM"]
    kernel = next(
        value.const_value.numpy()
        for value in source("lstm_options").source.graph.initializers.values()
        if value.shape == [2, 12]
    )
    i, f, c, o = np.split(kernel, 4, axis=1)
    np.testing.assert_array_equal(lstm.inputs[1].const_value.numpy()[0], np.hstack([i, o, f, c]).T)
    assert list(lstm.attributes["activations"].value) == ["HardSigmoid", "Relu", "Relu"]
    np.testing.assert_allclose(lstm.attributes["activation_alpha"].value, [1 / 6], rtol=1e-6)
    np.testing.assert_allclose(lstm.attributes["activation_beta"].value, [0.5], rtol=1e-6)
    assert len(lstm.inputs) == 3


@pytest.mark.parametrize(("name", "after"), [("gru", 1), ("gru_before", 0), ("gru_cell_2", 0)])
def test_where_the_reset_gate_is_applied(name, after):
    [gru] = [node for node in source(name).lower(13).model.graph if node.op_type == "GRU"]
    found = gru.attributes.get("linear_before_reset")
    assert (0 if found is None else found.value) == after


@pytest.mark.parametrize(("states", "kind"), [([-1, 3], "LSTM"), ([2, 3], "LSTM"), ([1, 3], "Loop")])
def test_a_state_that_tensorflow_broadcasts_stays_in_a_loop(states, kind):
    """ONNX takes a row of the initial state for each sequence."""
    shapes = {"x": [-1, -1, 2], "h": states, "c": states}
    assert kinds(captured("lstm_states", shapes=shapes).lower(13)) == [kind]


@pytest.mark.parametrize("name", ["lstm", "lstm_lowered"])
def test_stacked_layers_of_a_model(name):
    program = opsetta.load(DATA / "graphs" / f"{name}.pb").lower(15)
    assert kinds(program) == ["LSTM", "GRU"]


def test_the_source_graph_keeps_the_loop():
    assert [node.op_type for node in source("lstm").source.graph].count("While") == 1


def test_a_layer_that_stays_a_loop_counts_its_iterations_before_and_stacks_its_outputs():
    """No condition, counter, weight or list is a carried variable."""
    [loop] = [node for node in source("clipped_lstm_2").lower(15).model.graph if node.op_type == "Loop"]
    trips, going, *carried = loop.inputs
    assert going is None
    assert trips.const_value.numpy() == 4
    assert [str(value.shape) for value in carried] == ["[x_0,3]"] * 2
    assert str(loop.outputs[-1].shape) == "[4,x_0,3]"
