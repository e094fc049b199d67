"""Plans of models: executed in one block of memory, in their files, and what they refuse."""

import json
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import parser

import opsetta
from opsetta.exporter.captured_graph.size_expressions import evaluate
from opsetta.exporter.devices.plan.forms import c_form, json_form
from opsetta.exporter.devices.plan.value_bytes import Dimensions, bytes_of
from opsetta.passes.planning import Interval, overlap
from opsetta.registration import PlanError, UsageError
from tests.onnxruntime_sessions import run_onnxruntime


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.recurrent = torch.nn.LSTM(8, 16, batch_first=True)
        self.linear = torch.nn.Linear(16, 4)

    def forward(self, x):
        y = torch.relu(self.convolution(x)) + 1
        z, _ = self.recurrent(y.flatten(2).transpose(1, 2))
        return self.linear(torch.tanh(z[:, -1])), y.mean()


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    return opsetta.export(Small().eval(), (x,), opset=17, dynamic_shapes={"x": {0: "batch"}})


def plain(program, feed) -> list[np.ndarray]:
    """The outputs of onnxruntime without optimizations, as each node computes them by itself."""
    return run_onnxruntime(program.model_proto, feed, optimized=False)


def is_overlap_free(plan) -> bool:
    buffers = [b for b in plan.buffers if b.within is None]
    found = [Interval(b.size, *b.lifetime) for b in buffers]
    return overlap(found, [b.offset for b in buffers]) is None


def image(batch: int) -> np.ndarray:
    return np.sin(np.arange(batch * 192, dtype=np.float32)).reshape(batch, 3, 8, 8)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_plan_runs_in_one_block(program, batch):
    plan = program.plan(dimensions={"batch": batch})
    assert is_overlap_free(plan)
    assert plan.peak == plan.lower_bound
    assert any(node.in_place for node in plan.nodes)
    feed = {program.input_names[0]: image(batch)}
    for actual, expected in zip(opsetta.run_in_arena(plan, feed), plain(program, feed), strict=True):
        assert np.array_equal(actual, expected)


def test_a_wrong_lifetime_gives_a_wrong_result(program):
    import dataclasses

    plan = program.plan(dimensions={"batch": 2})
    feed = {program.input_names[0]: image(2)}
    wrong = 0
    for index, buffer in enumerate(plan.buffers):
        first, last = buffer.lifetime
        if buffer.kind == "output" or last == first:
            continue
        shorter = dataclasses.replace(buffer, lifetime=(first, last - 1))
        buffers = (*plan.buffers[:index], shorter, *plan.buffers[index + 1 :])
        outputs = opsetta.run_in_arena(dataclasses.replace(plan, buffers=buffers), feed)
        wrong += not all(map(np.array_equal, outputs, plain(program, feed)))
    assert wrong


@pytest.mark.parametrize(
    ("shape", "dtype", "formula"),
    [
        (["batch + 1", 4], ir.DataType.FLOAT, "16*batch + 16"),
        (["batch", "width", 3], ir.DataType.FLOAT16, "6*batch*width"),
        (["width", "width", "batch"], ir.DataType.UINT8, "batch*width**2"),
        (["batch//2", 2], ir.DataType.INT64, "16*(batch//2)"),
        (["batch", 3], ir.DataType.INT4, "(12*batch + 7)//8"),
        (["batch", 0], ir.DataType.FLOAT, 0),
    ],
)
def test_formulas_are_polynomials(shape, dtype, formula):
    dimensions = Dimensions({}, frozenset({"batch", "width"}))
    value = ir.Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape(shape))
    assert bytes_of(value, dimensions) == formula
    sized = Dimensions({"batch": 6, "width": 4}, dimensions.names)
    assert evaluate(str(formula), sized.sizes) == bytes_of(value, sized)


def test_sizes_stay_formulas_without_dimensions(program):
    plan = program.plan()
    assert plan.peak is plan.lower_bound is None
    assert plan.buffers[0].size == "768*batch"
    assert plan.buffers[0].offset is None
    with pytest.raises(PlanError, match="formulas instead of sizes"):
        c_form.binary(plan)
    with pytest.raises(PlanError, match="sizes of all dimensions"):
        opsetta.run_in_arena(plan, {})
    # Without sizes the nodes stay as they are, in their order.
    known = program.plan(dimensions={"batch": 5}, reorder=False, split=False)
    assert known.buffers[0].size == 768 * 5
    assert [node.name for node in known.nodes] == [node.name for node in plan.nodes]


def test_the_json_form_has_its_schema(program):
    for dimensions in ({}, {"batch": 2}):
        text = program.plan(dimensions=dimensions, budget=10**6).to_json()
        jsonschema.validate(json.loads(text), json.loads(json_form.schema()))
        assert opsetta.Plan.from_json(text).to_json() == text
    for wrong in ("", "[]", "{}", '{"format": 2}', '{"format": 1, "mode": 3}'):
        with pytest.raises(PlanError):
            opsetta.Plan.from_json(wrong)


def test_the_folder(program, tmp_path):
    plan = program.plan(dimensions={"batch": 2}, budget=10**6)
    plan.save(tmp_path / "plan", html=True)
    names = {path.name for path in (tmp_path / "plan").iterdir()}
    assert names == {
        "model.onnx",
        "plan.bin",
        "plan.h",
        "plan.html",
        "plan.json",
        "plan.schema.json",
        "plan.svg",
    }
    saved = onnx.load(tmp_path / "plan" / "model.onnx")
    onnx.checker.check_model(saved, full_check=True)
    of = {value: buffer for buffer in plan.buffers for value in buffer.values}
    for index, node in enumerate(saved.graph.node):
        facts = {entry.key: entry.value for entry in node.metadata_props}
        assert facts["opsetta.plan.order"] == str(index)
        assert facts["opsetta.plan.phase"] == "forward"
        offsets = json.loads(facts["opsetta.plan.offset"])
        lifetimes = json.loads(facts["opsetta.plan.lifetime"])
        for name, offset, lifetime in zip(node.output, offsets, lifetimes, strict=True):
            known = of.get(name)
            assert offset == (None if known is None else known.offset)
            assert lifetime == (None if known is None else list(known.lifetime))
    picture = xml.etree.ElementTree.parse(tmp_path / "plan" / "plan.svg")
    drawn = [e for e in picture.iter() if e.tag.endswith("rect")]
    assert len(drawn) == len(plan.buffers)
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_binary_and_the_header_agree(program, tmp_path):
    plan = program.plan(dimensions={"batch": 2})
    data = c_form.binary(plan)
    magic, version, nodes, buffers, peak, alignment = struct.unpack_from("<4sIIIQQ", data)
    assert (magic, version, nodes, buffers) == (b"OPLN", 1, len(plan.nodes), len(plan.buffers))
    assert (peak, alignment) == (plan.peak, 64)
    rows = [struct.unpack_from("<QQII", data, 32 + 24 * index) for index in range(buffers)]
    assert rows == [(b.offset, b.size, *b.lifetime) for b in plan.buffers]
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "plan.h").write_text(c_form.header(plan))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "plan.h"\nint main(void) { uint64_t top = 0; '
        "for (int i = 0; i < OPSETTA_BUFFER_COUNT; i++) { uint64_t end = opsetta_buffers[i].offset + "
        "opsetta_buffers[i].size; if (end > top) top = end; } "
        'printf("%llu %d %s", (unsigned long long)top, OPSETTA_NODE_COUNT, opsetta_nodes[0].op_type); '
        "return 0; }"
    )
    command = [compiler, "-Wall", "-Wno-unused-const-variable", "-Werror", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    top = max(b.offset + b.size for b in plan.buffers)
    assert printed == [str(top), str(len(plan.nodes)), plan.nodes[0].op_type]


def test_two_headers_in_one_program(program, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    plans = [program.plan(dimensions={"batch": size}) for size in (2, 3)]
    main = '#include "a/plan.h"\n#include "b/plan.h"\n#include "b/plan.h"\nint main(void) { return 0; }\n'
    (tmp_path / "main.c").write_text(main)
    command = [compiler, "-Wall", "-Wno-unused-const-variable", "-Werror", "main.c", "-o", "main"]
    for prefixes, error in (
        (("first", "second"), None),
        (("both", "both"), "two plans have the prefix both"),
    ):
        for plan, name, prefix in zip(plans, "ab", prefixes, strict=True):
            plan.save(tmp_path / name, prefix=prefix)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) == (error is None)
        assert error is None or error in done.stderr
    for prefix in ("", "1st", "a-b", "é", None):
        with pytest.raises(UsageError, match="prefix"):
            plans[0].save(tmp_path / "none", prefix=prefix)
    assert not (tmp_path / "none").exists()


_DECLARED = [
    ("float[64, 64] x", "float[2, 3] y", "y = Relu(x)", r"'y' is declared .*\[2, 3\].*\[64, 64\]"),
    ("float[64, 64] x", "float[1, 8] y", "y = Softmax(x)", r"\[1, 8\].*\[64, 64\]"),
    ("float[64, 64] x", "float[64] y", "y = Relu(x)", r"\[64\].*\[64, 64\]"),
    (
        "float[1, 3, 32, 32] x, float[8, 3, 3, 3] w",
        "float[1, 8, 10, 10] y",
        "y = Conv(x, w)",
        r"\[1, 8, 30, 30\]",
    ),
    ("float[2, 4] x, float[5, 3] w", "float[2, 3] y", "y = MatMul(x, w)", "MatMul.*contradict each other"),
    ("float[n, 4] x", "float[6, 4] y", "y = Relu(x)", r"\[6, 4\].*\[2, 4\]"),
    ("float[n, 4] x", "float[2*n] y", "m = int64[1] {-1} y = Reshape(x, m)", r"\[2\*n\].*\[8\]"),
    ("float[n, 4] x", "float[4*n] y", "m = int64[1] {-1} y = Reshape(x, m)", None),
    (
        "bool c, float[4] x",
        "float[4] y",
        "y = If(c)<then_branch=t() => (float[3] a) {a = Neg(x)},"
        " else_branch=e() => (float[4] b) {b = Abs(x)}>",
        r"'a' is declared with the shape \[3\]",
    ),
]


@pytest.mark.parametrize(("inputs", "output", "nodes", "message"), _DECLARED)
def test_declared_sizes_are_compared_with_computed_ones(inputs, output, nodes, message):
    nodes = nodes.replace("m = int64[1] {-1} ", "m = Constant<value = int64[1] {-1}>() ")
    text = f'<ir_version: 9, opset_import: ["": 17]> g({inputs}) => ({output}) {{{nodes}}}'
    model = opsetta.OnnxModel(
        ir.from_proto(parser.parse_model(text.replace("2*n", "d0").replace("4*n", "d1")))
    )
    [declared] = model.model.graph.outputs
    names = {"d0": "2*n", "d1": "4*n"}
    declared.shape = ir.Shape([names.get(getattr(dim, "value", ""), dim) for dim in declared.shape])
    dimensions = {"n": 2} if "n, " in inputs else None
    if message is None:
        assert model.plan(dimensions=dimensions).buffer_of("y").size == 32
        return
    with pytest.raises(PlanError, match=message):
        model.plan(dimensions=dimensions)


def test_an_edited_batch_is_refused(program):
    batches = opsetta.OnnxModel(program.lower(17).model).model.clone()
    batches.graph.inputs[0].shape = ir.Shape([4, 3, 8, 8])
    for node in batches.graph:
        for value in node.outputs:
            if value.shape is not None:
                value.shape = ir.Shape([dim if isinstance(dim, int) else 1 for dim in value.shape])
    with pytest.raises(PlanError, match="is declared with the shape"):
        opsetta.OnnxModel(batches).plan()


def test_the_model_is_not_changed(program):
    before = program.model_proto.SerializeToString(deterministic=True)
    plan = program.plan(dimensions={"batch": 2})
    plan.buffer_of(program.input_names[0])
    assert program.model_proto.SerializeToString(deterministic=True) == before


def load(body: str, tmp_path) -> opsetta.OnnxModel:
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {body}'), tmp_path / "m.onnx")
    return opsetta.load(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("g (float[4] x) => (int64[2] y) { n = NonZero(x) y = Shape(n) }", "size of 'n' is unknown"),
        (
            "g (float[2] x, int64 i) => (float[2] y) { s = SequenceConstruct(x) y = SequenceAt(s, i) }",
            "'s' is Sequence",
        ),
        ("g (string[2] x) => (string[2] y) { y = Identity(x) }", "element type STRING"),
    ],
)
def test_what_has_no_size_is_named(body, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        load(body, tmp_path).plan()


def test_a_size_that_follows_from_dimensions_asks_for_them(tmp_path):
    body = "g (float[1, 1, h, 8] x) => (float[1, 1, a, b] y) { y = MaxPool <kernel_shape = [2, 2]> (x) }"
    model = load(body, tmp_path)
    with pytest.raises(PlanError, match="may be known if sizes are given for h"):
        model.plan()
    assert model.plan(dimensions={"h": 6}).buffer_of("y").size == 5 * 7 * 4


def test_wrong_arguments(program):
    with pytest.raises(UsageError, match="no dimension 'n'"):
        program.plan(dimensions={"n": 1})
    with pytest.raises(UsageError, match="the size of dimension 'batch' must be a number"):
        program.plan(dimensions={"batch": "1"})
    with pytest.raises(UsageError, match="mode must be"):
        program.plan(mode="fast")
    with pytest.raises(UsageError, match="power of two"):
        program.plan(alignment=3)


def test_the_command(program, tmp_path):
    program.save(tmp_path / "m.onnx")
    command = [sys.executable, "-m", "opsetta.exporter.command_line.cli", "plan", tmp_path / "m.onnx"]
    options = ["-o", tmp_path / "plan", "--dim", "batch=2", "--html"]
    done = subprocess.run(
        [*command, *options, "--budget", "1MB"], capture_output=True, text=True, check=True, timeout=120
    )
    assert "together they fit into the budget of 976.6 KiB" in done.stdout
    assert (tmp_path / "plan" / "plan.html").is_file()
    done = subprocess.run(
        [*command, *options, "--budget", "8KB"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "do not fit" in done.stdout
    for wrong, message in ((["--dim", "batch"], "NAME=SIZE"), (["--budget", "much"], "amount of memory")):
        done = subprocess.run(
            [*command, *options, *wrong], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 2
        assert message in done.stderr


def test_sizes_beyond_64_bits_are_refused_before_a_file_is_written(tmp_path):
    shape = f"float[{2**62}, {2**62}]"
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({shape} x) => ({shape} y) {{ y = Relu(x) }}'
    onnx.save(parser.parse_model(text), tmp_path / "huge.onnx")
    with pytest.raises(PlanError, match="more than a plan can state"):
        opsetta.load(tmp_path / "huge.onnx").plan()
