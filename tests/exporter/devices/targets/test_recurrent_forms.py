"""Recurrent layers with attributes and inputs that a program does not read."""

import numpy as np
import onnx
import pytest

import opsetta
from opsetta.exporter.devices.targets.load_target import load_target
from opsetta.exporter.devices.targets.target_report import report_on_target
from opsetta.registration import TargetError

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
STEPS, HIDDEN, INPUTS = 5, 3, 2


def _layer(path, operator, attributes="", lengths=None, steps=STEPS, extra=""):
    """Write a file of one layer with random weights."""
    gates, numbers = _GATES[operator], np.random.default_rng(0)
    directions = 2 if "bidirectional" in attributes else 1
    weights = {
        "W": (directions, gates * HIDDEN, INPUTS),
        "R": (directions, gates * HIDDEN, HIDDEN),
        "B": (directions, 2 * gates * HIDDEN),
        **({"P": (directions, 3 * HIDDEN)} if extra else {}),
    }
    name = "" if lengths is None else "L"
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{steps}, 2, {INPUTS}] x) => (float[{steps}, {directions}, 2, {HIDDEN}] y)
        {{ y = {operator} <hidden_size = {HIDDEN}{attributes}> (x, W, R, B, {name}{extra}) }}"""
    )
    for key, shape in weights.items():
        array = numbers.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
    if lengths is not None:
        array = np.array(lengths, np.int32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, "L"))
    onnx.save(model, path)
    return opsetta.load(path)


def _assert_same_results(written, plain, steps):
    feeds = {"x": np.random.default_rng(1).standard_normal((steps, 2, INPUTS)).astype(np.float32)}
    [result], [expected] = (program.run(feeds) for program in (written, plain.lower(17)))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


_REVERSE, _BOTH = ', direction = "reverse"', ', direction = "bidirectional"'


@pytest.mark.parametrize(
    ("target", "operator", "attributes"),
    [
        *(("mnn", operator, _REVERSE) for operator in _GATES),
        *(("tract", operator, _REVERSE) for operator in _GATES),
        ("openvino", "LSTM", _REVERSE),
        ("opencv5", "GRU", _REVERSE),
        ("mnn", "GRU", ", linear_before_reset = 0"),
        ("mnn", "GRU", _BOTH),
        ("opencv", "GRU", ", linear_before_reset = 0"),
        ("ncnn", "GRU", ", linear_before_reset = 0"),
        *((target, "LSTM", ", clip = 0.3") for target in ("mnn", "ncnn", "opencv", "opencv5", "tract")),
        ("tract", "RNN", ', activations = ["Sigmoid"]'),
        ("tract", "GRU", ', activations = ["HardSigmoid", "Tanh"]'),
        ("mnn", "RNN", ', activations = ["LeakyRelu"]'),
    ],
)
def test_layers_that_a_program_computes_wrongly_have_another_form(target, operator, attributes, tmp_path):
    plain = _layer(tmp_path / "layer.onnx", operator, attributes)
    problems = report_on_target(plain.model, load_target(target)).problems
    assert (operator, "wrong") in {(problem.operator, problem.outcome) for problem in problems}
    written = plain.lower(target=target)
    assert report_on_target(written.model, load_target(target)).problems == ()
    _assert_same_results(written, plain, STEPS)


@pytest.mark.parametrize("target", ["mnn", "ncnn", "opencv", "opencv5", "tract"])
def test_sequences_of_unequal_lengths_are_refused(target, tmp_path):
    model = _layer(tmp_path / "layer.onnx", "GRU", ", linear_before_reset = 1", lengths=[STEPS, 2])
    with pytest.raises(TargetError, match="sequence_lens"):
        model.lower(target=target)


def test_constant_lengths_of_whole_sequences_are_no_reason_to_refuse(tmp_path):
    plain = _layer(tmp_path / "layer.onnx", "GRU", lengths=[STEPS, STEPS])
    written = plain.lower(target="opencv")
    _assert_same_results(written, plain, STEPS)


def test_what_no_form_can_write_is_an_error_that_names_the_attribute(tmp_path):
    model = _layer(tmp_path / "layer.onnx", "LSTM", ", input_forget = 1, clip = 0.3")
    for name in ("mnn", "ncnn", "opencv", "opencv5", "tract"):
        problems = report_on_target(model.model, load_target(name)).problems
        [reason] = [problem.reason for problem in problems if "clip" in problem.reason]
        assert "(clip, input_forget)" in reason
        with pytest.raises(TargetError, match="input_forget"):
            model.lower(target=name)


def test_peepholes_become_steps(tmp_path):
    plain = _layer(tmp_path / "layer.onnx", "LSTM", extra=", , , P")
    written = plain.lower(target="openvino")
    assert "LSTM" not in {node.op_type for node in written.model.graph}
    _assert_same_results(written, plain, STEPS)


def test_steps_of_an_unknown_number_are_reversed_too(tmp_path):
    plain = _layer(tmp_path / "layer.onnx", "GRU", _REVERSE, steps="steps")
    written = plain.lower(target="opencv5")
    _assert_same_results(written, plain, STEPS - 1)
