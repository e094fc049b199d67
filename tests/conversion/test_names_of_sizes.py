"""A file may name sizes falsely, and still runs: its results stay."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.running.sessions.session import session_options

FILES = {
    "two inputs of one name": """(float[N] x, float[N] y) => (int64[1] a, int64[1] b) <int64[1] first = {0}> {
        s = Shape(x) t = Shape(y) a0 = Gather(s, first) b0 = Gather(t, first)
        a = Mul(a0, a0) b = Mul(b0, b0) }""",
    "two shapes of one name": """(float[N] x, float[N] y) => (int64[1] a, int64[1] b) {
        s = Shape(x) t = Shape(y) a = Mul(s, s) b = Mul(t, t) }""",
    "a batch that was doubled": """(float[N] x, float[M] y) => (int64[1] a, int64[1] b)
        <int64[1] first = {0}, float[N] z> {
        z = Concat<axis=0>(x, y) s = Shape(x) t = Shape(z) a0 = Gather(s, first) b0 = Gather(t, first)
        a = Mul(a0, a0) b = Mul(b0, b0) }""",
    "positions that depend on values": """(float[N] x, float[M] y) => (int64[1] a, int64[1] b)
        <int64[1] first = {0}, float[N] z> {
        n = NonZero(y) m = Transpose(n) o = GatherND(y, m) z = Relu(o) s = Shape(x) t = Shape(z)
        a0 = Gather(s, first) b0 = Gather(t, first) a = Mul(a0, a0) b = Mul(b0, b0) }""",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("level", ["basic", "full"])
def test_sizes_of_one_name_may_differ(name: str, level: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> g {FILES[name]}')
    feed = {"x": np.ones(3, np.float32), "y": np.ones(5, np.float32)}

    def run(proto: onnx.ModelProto) -> list[list[int]]:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), session_options())
        return [result.tolist() for result in session.run(None, feed)]

    expected = run(model)
    assert expected[0] != expected[1]
    for opset in (9, 17, 23):
        assert (
            run(opsetta.OnnxModel(ir.from_proto(model)).lower(opset, optimize=level).model_proto) == expected
        )
