"""Which nodes of a quantized model stay in float, so that no more than a limit is lost."""

import json
import re

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import opsetta
from opsetta.exporter.command_line import cli

GRAPH = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[batch, 16] x) => (float[batch, 4] scores) {
  a = Gemm(x, w0)
  b = Mul(a, sizes)
  c = Gemm(b, w1)
  d = Relu(c)
  e = Gemm(d, w2)
  f = Relu(e)
  scores = Gemm(f, w3)
}
"""
RANDOM = np.random.default_rng(0)
# With one scale for all channels of `b`, the small ones are lost.
SIZES = np.where(np.arange(16) % 8 == 0, 1000, 1)
WEIGHTS = {
    "w0": RANDOM.standard_normal((16, 16)),
    "sizes": SIZES,
    "w1": RANDOM.standard_normal((16, 16)) / SIZES[:, None],
    "w2": RANDOM.standard_normal((16, 64)),
    "w3": RANDOM.standard_normal((64, 4)),
}
BATCHES = [RANDOM.standard_normal((10, 16)).astype(np.float32) for _ in range(10)]


@pytest.fixture
def model(tmp_path):
    proto = onnx.parser.parse_model(GRAPH)
    for name, array in WEIGHTS.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(proto, tmp_path / "m.onnx")
    return opsetta.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_the_nodes_around_the_worst_tensor_stay_in_float(model, form):
    everything = model.quantize(BATCHES, form=form, per_channel=True, reduce_range=True).accuracy
    assert everything.outputs[0].relative_error > 0.5
    assert not everything.float_nodes
    options = {"per_channel": True, "reduce_range": True, "max_loss": 0.05, "loss": "error"}
    quantized = model.quantize(BATCHES, form=form, **options)
    accuracy = quantized.accuracy
    assert accuracy.outputs[0].relative_error < 0.05
    # Gemm, Mul and Gemm: `b` is between them.
    assert len(accuracy.float_nodes) == 3
    assert everything.weight_bytes == accuracy.smallest_weight_bytes < accuracy.weight_bytes
    operators = [node.op_type for node in quantized.model.graph]
    assert operators.count("Gemm") == (4 if form == "qdq" else 2)
    expected = np.concatenate([model(batch) for batch in BATCHES])
    actual = np.concatenate([quantized(batch) for batch in BATCHES])
    assert np.linalg.norm(actual - expected) < 0.05 * np.linalg.norm(expected)


def test_labels_are_compared_by_default(model):
    options = {"per_channel": True, "reduce_range": True}
    assert model.quantize(BATCHES, **options).accuracy.outputs[0].agreement < 0.9
    accuracy = model.quantize(BATCHES, **options, max_loss=0.1).accuracy
    assert accuracy.outputs[0].agreement >= 0.9
    assert 0 < len(accuracy.float_nodes) <= 3


def test_a_limit_that_the_model_keeps_changes_nothing(model):
    accuracy = model.quantize(BATCHES, max_loss=2, loss="error").accuracy
    assert (accuracy.float_nodes, accuracy.weight_bytes) == ((), accuracy.smallest_weight_bytes)


def test_a_limit_that_needs_all_nodes_in_float_is_refused(model):
    with pytest.raises(opsetta.UsageError, match=r"loss of 1e-06 cannot be reached: .* of 7 nodes in float"):
        model.quantize(BATCHES, max_loss=1e-6, loss="error")
    with pytest.raises(opsetta.UsageError, match="max_loss must be 0 or more, not -1"):
        model.quantize(BATCHES, max_loss=-1)
    with pytest.raises(opsetta.UsageError, match="loss must be labels or error, not 'mean'"):
        model.quantize(BATCHES, max_loss=1, loss="mean")


def test_the_command_prints_the_nodes_in_float(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.concatenate(BATCHES))
    arguments = ["quantize", "m.onnx", "--calibrate", "data.npz", "-o", "q.onnx", "--per-channel"]
    for flags in ([], ["--json"]):
        with pytest.raises(SystemExit) as caught:
            cli.main([*arguments, "--reduce-range", "--max-loss", "0.05", "--loss", "error", *flags])
        assert caught.value.code in (0, None)
        printed = capsys.readouterr().out
        if not flags:
            assert re.search(r"[34] nodes in float, \d.\d kB more weights\nGemm_0", printed)
    assert {"Gemm_0", "Mul_1", "Gemm_2"} <= {*json.loads(printed)["float_nodes"]}
