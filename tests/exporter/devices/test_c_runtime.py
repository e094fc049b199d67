"""The runtime in C: compiled with warnings as errors, it agrees with onnxruntime."""

import re
import struct
import subprocess
from importlib.resources import files

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static
from torch import nn

import opsetta
from opsetta.exporter.command_line.cli import main
from opsetta.exporter.devices.plan.c_program.application import SOURCES
from opsetta.exporter.devices.plan.c_program.device_operators import FORMS, operator_rows
from opsetta.exporter.devices.plan.options import PlanOptions
from opsetta.exporter.devices.plan.plan import make_plan
from opsetta.registration import PlanError
from tests.conversion.cases import all_cases
from tests.exporter.training.models import Block, Perceptron

from .c_programs import COMPILER, needs_compiler, run


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.forward_layer = nn.LSTM(6, 5, batch_first=True)
        self.both_layer = nn.LSTM(5, 4, bidirectional=True, batch_first=True)

    def forward(self, x):
        states, (last, _) = self.both_layer(self.forward_layer(self.words(x))[0])
        return states.log_softmax(-1), last.exp()


class Residual(nn.Module):
    """Strided, grouped and dilated convolutions, pooling, splits and concatenations."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4, bias=False)
        self.norm, self.line = nn.BatchNorm2d(8), nn.Conv1d(8, 4, 3)
        self.norm.running_mean.uniform_()

    def forward(self, x):
        x = nn.functional.hardswish(self.first(x))
        y = self.norm(self.second(x)) + x
        left, right = y.split([3, 5], 1)
        y = torch.cat([right.clamp(-0.5, 0.5), nn.functional.leaky_relu(left)], 1)
        pooled = nn.functional.max_pool2d(y, 3, 2, 1) - nn.functional.avg_pool2d(y, 3, 2, 1)
        rows = self.line(pooled.flatten(2)[:, :, 1::2])
        return rows.transpose(1, 2), nn.functional.adaptive_avg_pool2d(y, 1), pooled.amax(-1)


class Masks(nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x, x.T.reshape(3, 4) * 2.0).softmax(0), x[:, [2, 0]].expand(2, 3, 2)


class Text(nn.Module):
    """What text models compute with words, masks and positions."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.gated, self.simple = nn.GRU(6, 5, bidirectional=True), nn.RNN(10, 4, nonlinearity="relu")

    def forward(self, x):
        known = (x != 1) & ~(x > 8)
        positions = (known.cumsum(1) * known).long()
        states, last = self.gated(self.words(positions % 11).masked_fill(~known[..., None], 0.5))
        values, indices = self.simple(states)[0].topk(3)
        mask = torch.ones(7, 7).tril().bool() | (known[0][:, None] == known[1])
        return (
            values,
            indices,
            last,
            states.argmax(-1),
            torch.gather(x, 1, positions.clamp(max=6)),
            mask.float(),
        )


class Images(nn.Module):
    """Upsampling, normalization by groups, and padding."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 4, 3, 2, 1, 1, groups=2)
        self.groups, self.instances = nn.GroupNorm(2, 8), nn.InstanceNorm2d(4, affine=True)

    def forward(self, x):
        y = nn.functional.silu(self.groups(self.down(x)))
        larger = nn.functional.interpolate(y, scale_factor=1.5, mode="bilinear")
        nearest = nn.functional.interpolate(y, size=(5, 9), mode="nearest")
        padded = nn.functional.pad(x, (1, 2, 2, 1), mode="reflect")
        return (
            self.instances(self.up(y)),
            larger,
            nearest,
            padded,
            nn.functional.pixel_shuffle(y, 2).std((2, 3)),
        )


MODELS = {
    "text": (Text, (torch.arange(14).reshape(2, 7) % 11,)),
    "images": (Images, (torch.linspace(-2, 2, 3 * 8 * 10).sin().reshape(1, 3, 8, 10),)),
    "mlp": (Perceptron, (torch.linspace(-1, 1, 18).reshape(3, 6),)),
    "cnn": (Residual, (torch.linspace(-1, 1, 3 * 17 * 14).sin().reshape(1, 3, 17, 14),)),
    "lstm": (Tagger, (torch.arange(14).reshape(2, 7) % 11,)),
    "transformer": (lambda: Block(8, 2), (torch.linspace(-2, 2, 80).cos().reshape(2, 5, 8),)),
    "masks": (
        Masks,
        (torch.linspace(-2, 2, 12).reshape(3, 4), torch.tensor([[True], [False], [True]])),
    ),
}


def test_the_runtime_is_small() -> None:
    """At most 1,500 lines of code, without comments and blank lines, which a user can read in an hour."""
    folder = files("opsetta.exporter.devices.plan.c_program") / "runtime"
    text = "\n".join((folder / name).read_text() for name in SOURCES)
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 1500


@needs_compiler
@pytest.mark.parametrize("opset", [13, 17, opsetta.MAXIMUM_OPSET])
@pytest.mark.parametrize("name", MODELS)
def test_the_program_agrees_with_onnxruntime(name, opset, runner, tmp_path):
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    model = build().eval()
    program = opsetta.export(model, inputs, opset=opset)
    feed = [tensor.numpy() for tensor in inputs]
    expected = program(*inputs)
    expected = [
        np.asarray(item) for item in (expected if isinstance(expected, (list, tuple)) else [expected])
    ]
    for in_place in (True, False):
        program.plan(in_place=in_place).build(tmp_path)
        for actual, due in zip(run(runner, tmp_path, feed, expected), expected, strict=True):
            np.testing.assert_allclose(actual, due, rtol=1e-5, atol=2e-6)


@needs_compiler
def test_the_command_and_its_makefile(tmp_path):
    opsetta.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),)).save(tmp_path / "model.onnx")
    with pytest.raises(SystemExit, match="0"):
        main(["build", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "app")])
    make = ["make", "-C", str(tmp_path / "app"), f"CC={COMPILER}"]
    assert "-O3" in subprocess.run([*make, "-n"], capture_output=True, text=True, check=True).stdout
    # Compilers find uninitialized variables only where they optimize.
    subprocess.run([*make, "CFLAGS=-O1 -Werror"], check=True, timeout=120)
    done = subprocess.run([str(tmp_path / "app" / "app")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_sizes_that_the_graph_computes_are_constants_once_they_are_given(tmp_path, capsys):
    text = """<ir_version: 8, opset_import: ["": 17]> main (float[n, 4] x) => (float[3, 4] y)
    <int64[1] zero = {0}, int64[1] two = {2}> {
        shape = Shape<end = 1>(x) rows = Div(shape, two) y = Slice(x, zero, rows)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with pytest.raises(PlanError, match="computed, unless .* convert --dim fixes them"):
        opsetta.load(tmp_path / "model.onnx").plan(dimensions={"n": 6}).build(tmp_path / "app")
    with pytest.raises(SystemExit) as caught:
        main(["build", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "app"), "--dim", "n=6"])
    assert not caught.value.code
    assert "arena of" in capsys.readouterr().out


@needs_compiler
def test_damaged_files_are_refused(runner, tmp_path):
    opsetta.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),)).plan().build(tmp_path)
    plan, weights = (tmp_path / name for name in ("model.plan", "model.weights"))
    intact, contents = plan.read_bytes(), weights.read_bytes()
    (tmp_path / "input0.bin").write_bytes(b"\0" * 12)

    def message() -> str:
        paths = [plan, weights, tmp_path / "input0.bin", tmp_path / "output0.bin"]
        done = subprocess.run([str(runner), *map(str, paths)], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr

    plan.write_bytes(b"OPDX" + intact[4:])
    assert "another format" in message()
    plan.write_bytes(intact[:-1])
    assert "is damaged" in message()
    # An offset beyond the arena.
    plan.write_bytes(intact[:32] + b"\1" + b"\0" * 7 + intact[40:])
    assert "outside of its memory" in message()
    plan.write_bytes(intact)
    weights.write_bytes(contents + b"\0")
    assert "belong to another plan" in message()
    weights.write_bytes(contents)
    (tmp_path / "input0.bin").write_bytes(b"\0" * 8)
    assert "another size than the input" in message()


LOOPS = {
    "swapped": """(float[2] a, float[2] b, int64 n, bool c) => (float[2] p, float[2] q, float[3,2] r) {
        p, q, r = Loop (n, c, a, b) <body = body (int64 i, bool k, float[2] x, float[2] y)
            => (bool k, float[2] y, float[2] z, float[2] s) { z = Mul(x, y) s = Add(x, y) }> }""",
    "until": """(float[2] a, float[2] b, int64 n, bool c) => (float[2] p) {
        limit = Constant<value = float {20.0}>()
        p = Loop (n, , a) <body = body (int64 i, bool k, float[2] x) => (bool goes, float[2] z) {
            z = Add(x, b) s = ReduceSum<keepdims=0>(z) goes = Less(s, limit) }> }""",
    # The carried condition is overwritten by the next iteration's one.
    "carried": """(float[2] a, float[2] b, int64 n, bool c) => (bool p, bool q) {
        t = Constant<value = bool {1}>() f = Constant<value = bool {0}>()
        p, q = Loop (n, , t, f) <body = body (int64 i, bool k, bool x, bool y) => (bool x, bool y, bool x) {
            z = Identity(x) }> }""",
    "nested": """(float[2] a, float[2] b, int64 n, bool c) => (float[2] p) {
        t = Relu(a) d = Not(c)
        p = If (c) <then_branch = first () => (float[2] y) {
            y = If (d) <then_branch = inner () => (float[2] v) { v = Neg(t) },
                        else_branch = other () => (float[2] w) { w = Identity(a) }> },
            else_branch = second () => (float[2] z) { z = Sub(t, b) }> }""",
}


def parse(text, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> agraph {text}')


def plan_of(proto):
    return make_plan(ir.from_proto(proto), PlanOptions())


@needs_compiler
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("condition", [True, False])
def test_sub_graphs_agree_with_onnxruntime(name, condition, runner, tmp_path):
    model = parse(LOOPS[name])
    names = ["a", "b", "n", "c"]
    feed = [np.float32([1, -2]), np.float32([3, 4]), np.array(3), np.array(condition or name == "swapped")]
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(
        None, dict(zip(names, feed, strict=True))
    )
    plan_of(model).build(tmp_path)
    for actual, due in zip(run(runner, tmp_path, feed, expected), expected, strict=True):
        np.testing.assert_array_equal(actual, due)


@needs_compiler
def test_a_loop_that_ends_early_is_an_error(runner, tmp_path):
    plan_of(parse(LOOPS["swapped"])).build(tmp_path)
    feed = [np.float32([1, 2]), np.float32([3, 4]), np.array(2), np.array(True)]
    with pytest.raises(subprocess.CalledProcessError):
        run(runner, tmp_path, feed, [np.zeros(2, np.float32)] * 3)


WINDOWS = {
    "convolution": """(float[1,4,5,4,6] x, float[6,2,3,2,2] w) => (float[1,6,2,3,3] y) {
        y = Conv<group=2, strides=[2,1,2], pads=[1,0,1,0,0,0], dilations=[1,1,2]>(x, w) }""",
    "largest": """(float[1,4,5,4,6] x) => (float[1,4,3,2,3] y, int64[1,4,3,2,3] z) {
        y, z = MaxPool<kernel_shape=[2,2,3], strides=[2,2,2], pads=[1,0,1,0,0,0], storage_order=1>(x) }""",
    "average": """(float[1,4,5,4,6] x) => (float[1,4,3,2,3] y) {
        y = AveragePool<kernel_shape=[2,2,3], strides=[2,2,2], pads=[1,0,1,0,0,0]>(x) }""",
    "transposed": """(float[1,4,5,4,6] x, float[4,3,3,3,3] w) => (float[1,3,9,4,12] y) {
        y = ConvTranspose<strides=[2,1,2], pads=[1,1,0,1,1,1]>(x, w) }""",
    # A plane is computed in parts of 3072 elements: bands of rows, or parts of rows.
    "bands": """(float[1,2,70,90] x, float[2,1,3,3] w) => (float[1,2,35,90] y) {
        y = Conv<group=2, strides=[2,1], pads=[1,1,0,1]>(x, w) }""",
    "columns": """(float[1,1,2,4000] x, float[1,1,2,5] w) => (float[1,1,1,1998] y) {
        y = Conv<strides=[1,2]>(x, w) }""",
    "transposed plane": """(float[1,2,5,4] x, float[2,1,3,2] w) => (float[1,2,13,8] y) {
        y = ConvTranspose<group=2, strides=[3,2], dilations=[1,2], pads=[1,1,1,0]>(x, w) }""",
    "largest window": """(float[1,1,64,61] x) => (float[1,1,3,2] y) {
        y = AveragePool<kernel_shape=[60,60], pads=[0,0,0,1], strides=[2,2]>(x) }""",
    "filter beyond a part": """(float[1,2,64,61] x, float[1,2,60,60] w) => (float[1,1,5,2] y) {
        y = Conv(x, w) }""",
}


@needs_compiler
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_agree_with_onnxruntime(name, runner, tmp_path):
    model = parse(WINDOWS[name])
    shapes = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in model.graph.input
    }
    generator = np.random.default_rng(0)
    feed = {key: generator.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    plan_of(model).build(tmp_path)
    for actual, due in zip(run(runner, tmp_path, list(feed.values()), expected), expected, strict=True):
        np.testing.assert_allclose(actual, due, rtol=1e-5, atol=1e-5)


class Batches(CalibrationDataReader):
    def __init__(self, name, arrays):
        self.batches = iter([{name: array} for array in arrays])

    def get_next(self):
        return next(self.batches, None)


@needs_compiler
@pytest.mark.parametrize("form", ["QDQ", "QOperator", "dynamic"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_models_agree_with_onnxruntime(form, per_channel, runner, tmp_path):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 4, 1)
    model = nn.Sequential(*layers, nn.Flatten(2), nn.Linear(35, 5, bias=False)).eval()
    image = torch.randn(1, 3, 13, 10)
    program = opsetta.export(model, (image,), opset=17)
    program.save(tmp_path / "model.onnx")
    paths = str(tmp_path / "model.onnx"), str(tmp_path / "quantized.onnx")
    # onnxruntime's products of 8-bit weights overflow on x86 without VNNI; those of 7 bits are exact.
    options = {"per_channel": per_channel, "reduce_range": True}
    if form == "dynamic":
        quantize_dynamic(*paths, **options)
    else:
        options["quant_format"] = QuantFormat[form]
        if form == "QOperator":
            options["op_types_to_quantize"] = ["Conv", "MatMul"]
        quantize_static(*paths, Batches(program.input_names[0], [image.numpy()]), **options)
    opsetta.load(paths[1]).plan().build(tmp_path)
    expected = onnxruntime.InferenceSession(paths[1]).run(None, {program.input_names[0]: image.numpy()})
    [actual] = run(runner, tmp_path, [image.numpy()], expected)
    np.testing.assert_allclose(actual, expected[0], rtol=1e-5, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "options"),
    [("int8", {"block_size": 16}), ("int4", {"block_size": 16, "symmetric": False}), ("q4_0", {})],
)
def test_weights_in_few_bits_agree_with_onnxruntime(dtype, options, runner, tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(3, 64)
    program = opsetta.export(model, (x,), opset=21)
    small = opsetta.quantize_weights(program, dtype, **options)
    small.plan().build(tmp_path)
    small.save(tmp_path / "small.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx")
    expected = session.run(None, {program.input_names[0]: x.numpy()})
    [actual] = run(runner, tmp_path, [x.numpy()], expected)
    np.testing.assert_allclose(actual, expected[0], rtol=1e-5, atol=1e-5)


@needs_compiler
def test_what_is_not_refused_agrees_with_the_cases_of_onnx(runner, tmp_path, subtests, sweep):
    cases = [
        case
        for case in all_cases()
        if all(
            isinstance(array, np.ndarray)
            for inputs_and_outputs in case.data_sets[0]
            for array in inputs_and_outputs
        )
    ]
    first_cases = {case.model.graph.node[-1].op_type: case for case in reversed(cases)}
    for case in cases if sweep else first_cases.values():
        with subtests.test(case.name):
            check_case(case, runner, tmp_path / case.name)


def check_case(case, runner, folder):
    """Build and run a node case of onnx, unless it is refused."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    [(arrays, expected)] = case.data_sets
    feed = []
    for info, array in zip(list(model.graph.input), arrays, strict=True):
        # Sizes depend on shapes and axes.
        if array.dtype.kind == "i" and array.ndim <= 1 and info.name != model.graph.input[0].name:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
        else:
            feed.append(array)
    del model.graph.input[:]
    constants = {tensor.name for tensor in model.graph.initializer}
    model.graph.input.extend(info for info in case.model.graph.input if info.name not in constants)
    try:
        plan_of(model).build(folder)
    except opsetta.OpsettaError:
        return
    for actual, due in zip(run(runner, folder, feed, expected), expected, strict=True):
        # The expected values of some cases have four digits.
        np.testing.assert_allclose(actual, due, rtol=1e-3, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("name", ["text", "cnn", "swapped"])
def test_hostile_plans_never_read_outside_of_their_memory(name, runner, tmp_path):
    """The sanitizers of the runner end the program if they do."""
    if name in LOOPS:
        plan = plan_of(parse(LOOPS[name]))
    else:
        plan = opsetta.export(MODELS[name][0]().eval(), MODELS[name][1]).plan()
    plan.build(tmp_path)
    intact, random = (tmp_path / "model.plan").read_bytes(), np.random.default_rng(0)
    _, _, values, nodes, inputs, outputs, pool, _ = struct.unpack_from("<4s7I", intact)
    sizes = [8, 8, 8, 1] if name in LOOPS else [array.numpy().nbytes for array in MODELS[name][1]]
    for index, size in enumerate(sizes):
        (tmp_path / f"input{index}.bin").write_bytes(bytes(size))
    arguments = [tmp_path / "model.plan", tmp_path / "model.weights"]
    arguments += [tmp_path / f"input{index}.bin" for index in range(inputs)]
    arguments += [tmp_path / f"output{index}.bin" for index in range(outputs)]
    numbers = [0, 1, 7, 255, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
    for _ in range(40):
        content = bytearray(intact)
        # A number of the pool, or a field of a value or a node.
        if random.random() < 0.5:
            struct.pack_into("<Q", content, 64 + 8 * int(random.integers(pool)), numbers[random.integers(9)])
        else:
            position = 64 + 8 * pool + 4 * int(random.integers(8 * values + 7 * nodes))
            struct.pack_into("<I", content, position, numbers[random.integers(9)] % 2**32)
        arguments[0].write_bytes(content)
        done = subprocess.run(
            [str(runner), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode in (0, 1), done.stderr
        assert "Sanitizer" not in done.stderr
        assert "runtime error" not in done.stderr


def test_nodes_share_scratch_memory(tmp_path):
    """The arena has what one Softmax needs beside the plan, and not what all of them need."""
    extra = []
    for count in (1, 3):
        nodes = " ".join(f"v{n + 1} = Softmax(v{n})" for n in range(count))
        plan = plan_of(parse(f"(float[8,16] v0) => (float[8,16] v{count}) {{ {nodes} }}"))
        plan.build(tmp_path)
        [arena] = struct.unpack_from("<Q", (tmp_path / "model.plan").read_bytes(), 32)
        extra.append(arena - plan.peak)
    assert extra[0] == extra[1] > 0


def test_operators_without_a_kernel_are_all_named(tmp_path):
    program = opsetta.export(lambda x: torch.linalg.det(x).double().exp(), (torch.eye(3)[None],), opset=17)
    with pytest.raises(PlanError, match=r"no kernels for Det \(1\), Exp \(1: input 0 is DOUBLE\)"):
        program.plan().build(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float16[2] x) => (float16[2] y) { y = Relu(x) }", r"Relu \(1: input 0 is FLOAT16\)"),
        (
            "(float[1,1,4,4,4,4] x) => (float[1,1,1,1,1,1] y) { y = GlobalMaxPool(x) }",
            r"input 0 has 6 dimensions",
        ),
        (
            "(float[2,4] x, float[4] s) => (float[2,4] y, float[2,1] m) { y, m = LayerNormalization(x, s) }",
            "output 1",
        ),
        ("(float[3,4] x) => (float[3,4] y) { y = LpNormalization(x) }", r"LpNormalization \(1\)"),
        (
            "(float[4] x, int64[1] s, int64[1] e) => (float[2] y) { y = Slice(x, s, e) }",
            "operands are computed",
        ),
        (
            "(float[2,1,3] x, float[1,8,3] w, float[1,8,2] r) => (float[2,1,1,2] y) "
            '{ y = LSTM<hidden_size=2, activations=["Relu", "Tanh", "Tanh"]>(x, w, r) }',
            "attribute 'activations'",
        ),
        (
            "(float[1,1,2,2] x) => (float[1,1,4,4] y) { s = Constant<value = float[4] {1.,1.,2.,2.}>() "
            'y = Resize<mode="cubic", antialias=1>(x, , s) }',
            "attribute 'antialias'",
        ),
    ],
)
def test_forms_without_a_kernel_are_refused_with_the_reason(text, reason, tmp_path):
    with pytest.raises(PlanError, match=reason):
        plan_of(parse(text, 18)).build(tmp_path)


def test_what_has_no_form_is_refused(tmp_path):
    relu = nn.ReLU().eval()
    with pytest.raises(PlanError, match="opset 13 or higher, not 9"):
        opsetta.export(relu, (torch.ones(2),), opset=9).plan().build(tmp_path)
    with pytest.raises(PlanError, match="sizes of all dimensions"):
        opsetta.export(relu, (torch.ones(2),), dynamic_shapes={"input": {0: "n"}}).plan().build(tmp_path)


def test_the_runtime_is_small_and_has_no_unknown_operator():
    assert all(map(onnx.defs.has, operator_rows()))
    assert operator_rows().keys() == FORMS.keys() | {"If", "Loop"}
    folder = files("opsetta.exporter.devices.plan.c_program").joinpath("runtime")
    sources = {name: folder.joinpath(name).read_text() for name in SOURCES}
    assert max(source.count("\n") for source in sources.values()) <= 400
    assert sum(source.count("\n") for source in sources.values()) <= 1700
    # Only the program around the runtime allocates.
    del sources["main.c"]
    assert not any(re.search(r"\b(malloc|calloc|realloc|alloca)\b", source) for source in sources.values())
