"""Plans whose nodes are split into parts, and whose parts are views of wholes."""

import json

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.command_line.cli import main
from opsetta.exporter.devices.plan.plan import Plan
from tests.onnxruntime_sessions import run_onnxruntime

from .c_programs import needs_compiler, run
from .plan_checker import violations

HEAD = '<ir_version: 8, opset_import: ["": 17]> main '


class Residual(nn.Module):
    """A block whose sum is computed in the memory of its input, and a concatenation of three features."""

    def __init__(self):
        super().__init__()
        self.widen, self.filter = nn.Conv2d(4, 32, 1), nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.project, self.more = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 8, 1)

    def forward(self, x):
        y = self.widen(x)
        y = y + self.project(nn.functional.hardswish(self.filter(y)))
        z = self.more(y).relu()
        return torch.cat([y, z, z.tanh()], 1).sigmoid()


def check(model, plan, feed, tmp_path) -> None:
    """The files of a plan agree with themselves, and the plan with onnxruntime."""
    plan.save(tmp_path / "plan")
    form = json.loads((tmp_path / "plan" / "plan.json").read_text())
    saved = onnx.load(tmp_path / "plan" / "model.onnx")
    onnx.checker.check_model(saved, full_check=True)
    assert violations(form, saved) == []
    results = run_onnxruntime(model.model_proto, feed, optimized=False)
    for outputs in (opsetta.run_in_arena(plan, feed), run_onnxruntime(saved, feed, optimized=False)):
        for actual, expected in zip(outputs, results, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def loaded(text: str, tmp_path) -> opsetta.OnnxModel:
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "model.onnx")
    return opsetta.load(tmp_path / "model.onnx")


@pytest.fixture(scope="module")
def residual() -> opsetta.Program:
    torch.manual_seed(0)
    return opsetta.export(Residual().eval(), (torch.randn(1, 4, 16, 16),), opset=17)


def image(batch: int = 1) -> np.ndarray:
    return np.sin(np.arange(batch * 1024, dtype=np.float32)).reshape(batch, 4, 16, 16)


def test_split_nodes_need_less_memory(residual, tmp_path):
    plan, whole = residual.plan(), residual.plan(split=False)
    assert plan.peak < 0.9 * whole.peak
    assert len(plan.nodes) > len(whole.nodes) == len(residual.model.graph)
    assert sum(weight.size for weight in plan.weights) < 1.2 * whole.weight_bytes
    check(residual, plan, {"x": image()}, tmp_path)
    assert Plan.from_json(plan.to_json()).buffers == plan.buffers


class Bands(nn.Module):
    """Wide layers between an image and a small result, with a residual and rows of other sizes."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 32, 1), nn.Hardswish()]
        self.first = nn.Sequential(*layers, nn.Conv2d(32, 32, 3, 1, 2, dilation=2, groups=32))
        self.filter, self.down = nn.Conv2d(32, 32, 3, padding=1), nn.MaxPool2d(3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(32, 8, 2, 2), nn.Conv2d(8, 4, 3, 2)

    def forward(self, x):
        y = self.first(x)
        y = self.down(y + self.filter(y).relu())
        return self.last(nn.functional.pad(self.up(y), (1, 0, 2, 1)))


@pytest.fixture(scope="module")
def bands() -> opsetta.Program:
    torch.manual_seed(0)
    return opsetta.export(Bands().eval(), (torch.randn(1, 3, 48, 48),), opset=17)


BANDS_IMAGE = np.sin(np.arange(3 * 48 * 48, dtype=np.float32)).reshape(1, 3, 48, 48)


def test_tiles_need_less_memory(bands, tmp_path):
    plan, parts = bands.plan(tile=True), bands.plan()
    assert plan.peak < 0.7 * parts.peak
    assert parts.extra_work == 0 < plan.extra_work <= 0.2
    check(bands, plan, {"x": BANDS_IMAGE}, tmp_path)
    assert bands.plan(tile=True, extra_work=0.0).extra_work == 0
    with pytest.raises(opsetta.UsageError, match="cannot be combined with split=False"):
        bands.plan(tile=True, split=False)


@pytest.mark.parametrize(
    ("window", "is_tiled"),
    [
        ("y = Conv<pads = [2, 0, 1, 0], strides = [3, 1], dilations = [2, 1], group = 16>(b, w)", True),
        ("y = AveragePool<kernel_shape = [3, 1], pads = [1, 0, 1, 0], strides = [2, 1]>(b)", True),
        ("y = AveragePool<kernel_shape = [3, 1], pads = [1, 0, 2, 0], count_include_pad = 1>(b)", True),
        ("c = Pad(b, pads) y = MaxPool<kernel_shape = [2, 1], strides = [2, 1]>(c)", True),
        ('y = Pad<mode = "reflect">(b, pads)', False),
        ("y = MaxPool<kernel_shape = [5, 1], strides = [4, 1], ceil_mode = 1>(b)", False),
    ],
)
def test_rows_around_a_band_are_computed_again(window, is_tiled, tmp_path):
    weights = ", ".join(str(np.sin(number)) for number in range(48))
    constants = f"float[16,1,3,1] w = {{{weights}}}, int64[8] pads = {{0, 0, 3, 0, 0, 0, -1, 0}}"
    wide = "a = Concat<axis = 1>(x, x, x, x, x, x, x, x) b = Exp(a)"
    text = f"(float[1,2,48,32] x) => (z) <{constants}> {{ {wide} {window} z = ReduceMax<axes = [1]>(y) }}"
    model = loaded(text, tmp_path)
    tiles = model.plan(tile=True, extra_work=0.5)
    assert (tiles.peak < 0.9 * model.plan().peak) == is_tiled
    feed = {"x": np.sin(np.arange(3072, dtype=np.float32)).reshape(1, 2, 48, 32)}
    check(model, tiles, feed, tmp_path)


@needs_compiler
@pytest.mark.parametrize("options", [{}, {"tile": True}])
def test_the_runtime_in_c_runs_split_nodes(bands, options, runner, tmp_path):
    plan = bands.plan(**options)
    plan.build(tmp_path)
    sources = {path.name: path.read_bytes() for path in tmp_path.glob("*.c")}
    assert sources == {path.name: path.read_bytes() for path in runner.parent.glob("*.c")}
    [expected] = run_onnxruntime(bands.model_proto, {"x": BANDS_IMAGE})
    [actual] = run(runner, tmp_path, [BANDS_IMAGE], [expected])
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_parts_of_a_batch_run_one_after_the_other(tmp_path):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.AdaptiveMaxPool2d(1))
    program = opsetta.export(layers.eval(), (torch.randn(4, 4, 16, 16),), opset=13)
    plan = program.plan(in_place=False)
    assert plan.peak < 0.5 * program.plan(in_place=False, split=False).peak
    assert not any(node.in_place for node in plan.nodes)
    check(program, plan, {program.input_names[0]: image(4)}, tmp_path)


@pytest.mark.parametrize(
    ("shape", "options", "dtype"),
    [
        ([32], "axis = 0", "INT8"),
        ([64], "axis = 1", "INT8"),
        ([4, 64], "axis = 0, block_size = 8", "INT8"),
        ([4, 64], "axis = 0, block_size = 8", "INT4"),
    ],
)
def test_weights_are_dequantized_in_parts(shape, options, dtype, tmp_path):
    numbers = [number % 15 - 7 for number in range(2048)]
    scales = ", ".join(str(0.5 + number % 7) for number in range(int(np.prod(shape))))
    declared = f"float{shape} s = {{{scales}}}".replace(" ]", "]")
    text = f"(float[2,32] x) => (y) <{declared}> {{ w = DequantizeLinear<{options}>(q, s) y = MatMul(x, w) }}"
    parsed = onnx.parser.parse_model(HEAD.replace("17", "21") + text)
    element_type = onnx.TensorProto.DataType.Value(dtype)
    parsed.graph.initializer.append(onnx.helper.make_tensor("q", element_type, [32, 64], numbers))
    onnx.save(parsed, tmp_path / "model.onnx")
    model = opsetta.load(tmp_path / "model.onnx")
    plan = model.plan()
    assert plan.peak < 0.6 * model.plan(split=False).peak
    check(model, plan, {"x": 0.01 * ROWS[:2, :32]}, tmp_path)


ROWS = np.linspace(-1, 1, 2048, dtype=np.float32).reshape(32, 64)


@pytest.mark.parametrize(
    ("body", "views"),
    [
        # The views; None where only the numbers matter.
        ("a = Exp(x) b = Sin(x) y = Concat<axis = 0>(a, b)", ["Concat"]),
        ("a = Exp(x) l, r = Split<axis = 0>(a) y = Sub(r, l)", ["Split"]),
        ("a = Exp(x) l, r = Split<axis = 1>(a) y = Sub(r, l)", []),
        ("a = Exp(x) b = Gather<axis = 0>(a, three) y = Tanh(b)", ["Gather"]),
        ("a = Exp(x) y = Concat<axis = 0>(a, a)", []),
        ("a = Exp(x) y = Concat<axis = 0>(a, x)", []),
        # The second concatenation has the memory of all, the first one is its beginning.
        (
            "a = Exp(x) b = Sin(x) c = Concat<axis = 0>(a, b) d = ReduceMax<axes = [0], keepdims = 1>(c) "
            "e = Relu(d) y = Concat<axis = 0>(a, b, e)",
            ["Concat", "Concat"],
        ),
        # Relu may not overwrite `c`: its first part is read later.
        (
            "a = Exp(x) b = Sin(x) c = Concat<axis = 0>(a, b) d = Relu(c) e = Neg(a) "
            "y = Concat<axis = 0>(d, e)",
            None,
        ),
    ],
)
def test_parts_are_views(body, views, tmp_path):
    model = loaded(f"(float[32,64] x) => (y) <int64 three = {{3}}> {{ {body} }}", tmp_path)
    for split in (False, True):
        plan = model.plan(reorder=False, split=split)
        if views is not None and not split:
            assert [node.op_type for node in plan.nodes if node.view] == views
        check(model, plan, {"x": ROWS}, tmp_path)


@pytest.mark.parametrize(
    ("opset", "body"),
    [
        (
            17,
            "b = Transpose<perm = [1, 0]>(a) c = Softmax<axis = 0>(b) y = ReduceSum<keepdims = 0>(c, zero)",
        ),
        (
            17,
            "b = Reshape(a, shape) c = Expand(b, wide) d = LayerNormalization<axis = -1>(c, scale) "
            "y = ReduceMean<axes = [2]>(d)",
        ),
        (20, "b = MatMul(a, square) c = Gelu(b) y = ReduceSum<keepdims = 0>(c, one)"),
        (
            17,
            "b = Gemm<transB = 1>(a, square, scale) c = Sin(b) d = Mul(c, b) "
            "y = ReduceMax<axes = [1], keepdims = 0>(d)",
        ),
        (17, "b = Gather<axis = 0>(square, rows) c = Tanh(b) d = Mul(c, a) y = ReduceMin<axes = [1]>(d)"),
        (
            17,
            "b = Unsqueeze(a, zero) c = Pow(b, top) d = Squeeze(c, zero) e = Where(mask, d, a) "
            "y = ReduceL1<axes = [-1], keepdims = 0>(e)",
        ),
    ],
)
def test_operators_compute_parts(opset, body, tmp_path):
    text = (
        "(float[32,64] x) => (y) <int64[1] one = {1}, int64[1] zero = {0}, int64[3] shape = {32, 1, 64}, "
        "int64[3] wide = {32, 2, 64}, float top = {2}, float[64] scale, float[64,64] square, "
        "int64[32] rows, bool[32,1] mask> { a = Relu(x) " + body + " }"
    )
    proto = onnx.parser.parse_model(HEAD.replace("17", str(opset)) + text)
    weights = {
        "scale": np.linspace(0, 1, 64, dtype=np.float32),
        "square": np.cos(np.arange(4096, dtype=np.float32)).reshape(64, 64),
        "rows": np.arange(32) % 7,
        "mask": (np.arange(32) % 3 == 0).reshape(32, 1),
    }
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in weights]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    onnx.save(proto, tmp_path / "model.onnx")
    model = opsetta.load(tmp_path / "model.onnx")
    plan = model.plan(in_place=False)
    assert len(plan.nodes) > len(model.model.graph)
    assert plan.peak < model.plan(in_place=False, split=False).peak
    check(model, plan, {"x": ROWS}, tmp_path)


def test_the_command_keeps_nodes_whole(residual, tmp_path):
    residual.save(tmp_path / "model.onnx")
    counts = []
    for options in ([], ["--no-split"]):
        with pytest.raises(SystemExit, match="0"):
            main(["plan", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "plan"), *options])
        counts.append(len(json.loads((tmp_path / "plan" / "plan.json").read_text())["nodes"]))
    assert counts[0] > counts[1]


def test_a_part_that_lies_is_caught(residual, tmp_path):
    plan = residual.plan()
    plan.save(tmp_path)
    model, text = onnx.load(tmp_path / "model.onnx"), (tmp_path / "plan.json").read_text()
    for change in ({"offset": 0}, {"lifetime": [0, 0]}, {"within": None}):
        form = json.loads(text)
        part = next(b for b in form["buffers"] if b["within"] is not None and b["offset"] > 0)
        part.update(change)
        assert violations(form, model)
