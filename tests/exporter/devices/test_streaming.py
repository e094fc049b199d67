"""Streamed weights: the outputs of plain onnxruntime, with few segments in memory."""

import dataclasses
import errno
import json
import pathlib
import shutil
import sys
import threading

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opsetta
from opsetta import (
    DimensionError,
    ModelFileError,
    PlanError,
    StreamingSession,
    UsageError,
    run_streaming,
    save_streaming,
)
from opsetta.exporter.command_line import cli
from opsetta.exporter.devices.file_records import FileRecord
from opsetta.exporter.devices.memory_amounts import memory_amount
from opsetta.exporter.devices.streaming import mapped_weights, segmentation
from opsetta.exporter.devices.streaming.folder import INDEX, Index, WeightRecord
from tests.exporter.devices.models import image, in_new_process, program

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WIDTH, LAYERS = 64, 6
LAYER = 2 * WIDTH * WIDTH * 2 * 4
"""Bytes of the weights of a layer."""


class Builder:
    """Nodes and weights of a model under construction."""

    def __init__(self):
        self.random = np.random.default_rng(0)
        self.nodes, self.initializers, self.made = [], [], 0

    def weight(self, *shape, name=None, kind=np.float32):
        name = name or f"w{len(self.initializers)}"
        values = (self.random.standard_normal(shape) * 0.2).astype(kind)
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind, *inputs, name=None, **attributes):
        self.made += 1
        name = name or f"h{self.made}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def layer(self, x):
        """Two matrix products with a residual connection; each has its own small bias."""
        y = self.node("MatMul", x, self.weight(WIDTH, 2 * WIDTH))
        y = self.node("Relu", self.node("Add", y, self.weight(2 * WIDTH)))
        return self.node("Add", self.node("MatMul", y, self.weight(2 * WIDTH, WIDTH)), x)

    def model(self, inputs, outputs, opset=17, ir_version=8):
        declared = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
        if ir_version < 4:
            declared += [
                helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in self.initializers
            ]
        graph = helper.make_graph(
            self.nodes,
            "g",
            declared,
            [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
            initializer=self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def layered(opset=17, ir_version=8, dims=("n", WIDTH)):
    build = Builder()
    last = "x"
    for _ in range(LAYERS):
        last = build.layer(last)
    return build.model({"x": (FLOAT, dims)}, {last: (FLOAT, dims)}, opset, ir_version)


def rows(count=3, width=WIDTH):
    return np.random.default_rng(1).standard_normal((count, width)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("streaming")
    onnx.save(layered(), place / "plain.onnx")
    save_streaming(opsetta.load(place / "plain.onnx"), place / "model")
    return place / "model"


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def plain(path, *inputs):
    session = onnxruntime.InferenceSession(path)
    names = [item.name for item in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=False)))


def saved(model, tmp_path, external=True):
    """The model in a file, with its weights beside it."""
    path = tmp_path / "model.onnx"
    kept = onnx.ModelProto.FromString(model.SerializeToString())
    onnx.save(kept, path, save_as_external_data=external, location="weights.bin", size_threshold=100)
    return path


def agrees(path, *inputs, tolerance=1e-6, **options):
    """Compare with plain onnxruntime, and return the session."""
    with StreamingSession(path, **options) as session:
        for actual, expected in zip(session.run(*inputs), plain(path, *inputs), strict=True):
            if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
                np.testing.assert_allclose(actual, expected, rtol=10 * tolerance, atol=tolerance)
            else:
                np.testing.assert_equal(actual, expected)
    return session


def check_trace(session):
    """At most `lookahead + 1` segments in memory, each loaded before it runs and released after it."""
    resident, loaded, most = set(), set(), 0
    for event in session.events:
        if event.kind == "load":
            resident.add(event.segment)
        elif event.kind == "loaded":
            loaded.add(event.segment)
        elif event.kind == "run":
            assert event.segment in loaded & resident
        elif event.kind == "release":
            resident.remove(event.segment)
        most = max(most, len(resident))
    ran = [event.segment for event in session.events if event.kind == "run"]
    assert ran == list(range(len(session.segments)))
    assert not resident
    assert loaded == set(ran)
    return most


@pytest.mark.parametrize("lookahead", [0, 1, 2, 50])
def test_segments_in_memory_are_bounded_by_the_lookahead(folder, lookahead):
    session = agrees(folder / "model.onnx", rows(), lookahead=lookahead)
    assert check_trace(session) == min(lookahead + 1, LAYERS)
    assert session.lookahead == min(lookahead, LAYERS - 1)


def test_equal_layers_share_a_session(folder):
    with StreamingSession(folder) as session:
        assert len(session.segments) == LAYERS
        assert {segment.session for segment in session.segments} == {0}
        assert {segment.nodes for segment in session.segments} == {5}
        assert session.largest_segment == LAYER
        # The small biases differ, and are inputs of the session that are not streamed.
        assert all(len(segment.constants) == 1 for segment in session.segments)


def test_without_arguments_one_segment_is_read_ahead(folder):
    with StreamingSession(folder) as session:
        assert session.lookahead == 1
        assert session.run(rows())[0].shape == (3, WIDTH)


@pytest.mark.parametrize(("opset", "ir_version"), [(7, 3), (9, 4), (13, 7), (28, 13)])
def test_every_opset_is_streamed(tmp_path, opset, ir_version):
    path = saved(layered(opset, ir_version), tmp_path)
    session = agrees(path, rows(), lookahead=1)
    assert len({segment.session for segment in session.segments}) == 1
    assert session.input_names == ["x"]


def test_weights_in_the_file_itself_are_written_aside(tmp_path):
    path = saved(layered(), tmp_path, external=False)
    assert len(agrees(path, rows()).segments) == LAYERS
    assert [item.name for item in tmp_path.iterdir()] == ["model.onnx"]


@pytest.fixture(scope="module")
def large_path(tmp_path_factory):
    """A file above 64 MiB with its weights inside, which another process writes aside."""
    path = tmp_path_factory.mktemp("large") / "model.onnx"
    build, numbers = Builder(), np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    for name, shape in (("wide", (WIDTH, 270_000)), ("narrow", (270_000, 1))):
        build.initializers.append(numpy_helper.from_array(np.resize(numbers, shape), name))
    last = build.node("MatMul", build.node("MatMul", "x", "wide"), "narrow")
    onnx.save(build.model({"x": (FLOAT, ("n", WIDTH))}, {last: (FLOAT, ("n", 1))}), path)
    assert path.stat().st_size > 2**26
    return path


@pytest.mark.parametrize("executable", [None, "/bin/false"])
def test_a_large_file_is_streamed_whether_or_not_another_process_can_help(
    large_path, monkeypatch, executable
):
    if executable is not None:
        monkeypatch.setattr(sys, "executable", executable)
    agrees(large_path, rows(), tolerance=1e-3)


def test_a_large_file_that_is_damaged_is_refused_with_the_reason(large_path, tmp_path):
    model = onnx.load(large_path)
    model.graph.node[0].input[0] = "nothing"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelFileError, match="no node before it computes"):
        StreamingSession(tmp_path / "model.onnx")


def test_weights_at_odd_places_are_written_aside(tmp_path):
    model = layered()
    path = saved(model, tmp_path)
    data = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(b"\0" + data)
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                entry.value = str(int(entry.value) + 1)
    path.write_bytes(proto.SerializeToString())
    with StreamingSession(path) as session:
        expected = plain(tmp_path / "model.onnx", rows())
        np.testing.assert_allclose(session.run(rows())[0], expected[0], rtol=1e-5, atol=1e-6)


def test_a_program_is_streamed_and_stays_as_it_is():
    made = program()
    before = made.model_proto.SerializeToString(deterministic=True)
    [expected] = onnxruntime.InferenceSession(before).run(None, {made.input_names[0]: image()})
    [actual] = run_streaming(made, image(), budget="2MB")
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert made.model_proto.SerializeToString(deterministic=True) == before


class TestBudget:
    def test_decides_the_lookahead(self, folder):
        x = rows(1)
        for count in (1, 2, 3, LAYERS):
            with StreamingSession(folder, budget=count * LAYER) as session:
                assert session.lookahead == max(0, count - 1 if count > 1 else session.lookahead)
                assert (session.lookahead + 1) * session.largest_segment <= count * LAYER
        with StreamingSession(folder, budget=3 * LAYER + 4096) as session:
            assert session.lookahead == 2
            session.run(x)
            assert check_trace(session) == 3

    def test_cuts_layers_that_are_too_large(self, folder):
        with StreamingSession(folder, budget=LAYER) as session:
            assert session.largest_segment == LAYER // 2
            assert session.lookahead == 1
            assert len({segment.session for segment in session.segments}) == 2

    @pytest.mark.parametrize("lookahead", [None, 0, 1, 3])
    def test_that_is_too_small_names_one_that_is_not(self, folder, lookahead):
        with pytest.raises(PlanError, match="needs at least") as caught:
            StreamingSession(folder, budget=100, lookahead=lookahead)
        least = int(str(caught.value).partition("at least ")[2].partition(" bytes")[0])
        with StreamingSession(folder, budget=least, lookahead=lookahead) as session:
            assert session.lookahead == (lookahead or 0)
        with pytest.raises(PlanError):
            StreamingSession(folder, budget=least - 1, lookahead=lookahead)

    def test_counts_activations_of_inputs_that_come(self, folder):
        with StreamingSession(folder, budget=2 * LAYER + 500_000) as session:
            assert session.lookahead == 5
            session.run(rows(300))
            assert check_trace(session) <= 3
            with pytest.raises(PlanError, match="inputs of these sizes"):
                session.run(rows(2000))
            session.run(rows(1))
            assert check_trace(session) == session.lookahead + 1

    def test_counts_activations_of_known_sizes(self, tmp_path):
        path = saved(layered(dims=(100, WIDTH)), tmp_path)
        with StreamingSession(path, lookahead=0) as session:
            row = 100 * WIDTH * 4
            # The input, the residual, and two values of twice the width.
            assert session.activations == 6 * row

    @pytest.mark.parametrize(
        ("text", "size"),
        [(5, 5), ("5", 5), ("2 kB", 2000), ("200MB", 200_000_000), ("64 MiB", 2**26), ("1.5GiB", 3 << 29)],
    )
    def test_is_bytes_or_text(self, text, size):
        assert memory_amount(text) == size

    @pytest.mark.parametrize("text", [0, -1, True, "", "MB", "1 XB", "-1MB", 1.5, "0"])
    def test_of_another_form_is_refused(self, text, folder):
        with pytest.raises(UsageError, match="amount of memory"):
            StreamingSession(folder, budget=text)


class TestGraphs:
    """Graphs that are not a plain sequence of layers."""

    def test_a_weight_of_several_segments(self, tmp_path):
        build = Builder()
        table = build.weight(100, WIDTH, name="table")
        last = build.node("Gather", table, "ids")
        for _ in range(4):
            last = build.layer(last)
        build.node("MatMul", last, build.node("Transpose", table, perm=[1, 0]), name="y")
        model = build.model({"ids": (INT64, ["n"])}, {"y": (FLOAT, ["n", 100])})
        path = saved(model, tmp_path)
        for lookahead in (0, 5):
            check_trace(agrees(path, np.array([3, 99, 0]), lookahead=lookahead))

    def test_sub_graphs_that_read_outer_values_and_weights(self, tmp_path):
        build = Builder()
        last = "x"
        for _ in range(3):
            outer, hidden = build.weight(WIDTH, WIDTH), last
            branches = []
            for kind in ("MatMul", "Sub"):
                own = numpy_helper.from_array(build.random.standard_normal((WIDTH, WIDTH)).astype("f"), "own")
                nodes = [
                    helper.make_node("MatMul", [hidden, outer], ["a"]),
                    helper.make_node("MatMul", ["a", "own"], ["b"]),
                    helper.make_node(kind, ["b", outer if kind == "MatMul" else hidden], ["c"]),
                    helper.make_node("Tanh", ["c"], ["d"]),
                ]
                result = helper.make_tensor_value_info("d", FLOAT, None)
                branches.append(helper.make_graph(nodes, kind, [], [result], initializer=[own]))
            last = build.node("If", "flag", then_branch=branches[0], else_branch=branches[1])
        model = build.model(
            {"x": (FLOAT, ["n", WIDTH]), "flag": (TensorProto.BOOL, [])}, {last: (FLOAT, None)}
        )
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        for flag in (True, False):
            session = agrees(path, rows(), np.array(flag), lookahead=1)
        assert len(session.segments) == 3
        assert {segment.session for segment in session.segments} == {0}

    def test_a_loop_around_a_weight(self, tmp_path):
        build = Builder()
        build.weight(WIDTH, WIDTH, name="w")
        for name, value in {"count": np.array(3), "true": np.array(True)}.items():
            build.initializers.append(numpy_helper.from_array(value, name))
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["go"], ["on"]),
                helper.make_node("MatMul", ["state", "w"], ["m"]),
                helper.make_node("Tanh", ["m"], ["next"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("step", INT64, []),
                helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                helper.make_tensor_value_info("state", FLOAT, None),
            ],
            [
                helper.make_tensor_value_info("on", TensorProto.BOOL, []),
                helper.make_tensor_value_info("next", FLOAT, None),
            ],
        )
        last = build.layer(build.node("Loop", "count", "true", build.layer("x"), body=body))
        path = saved(build.model({"x": (FLOAT, ["n", WIDTH])}, {last: (FLOAT, None)}), tmp_path)
        session = agrees(path, rows(), lookahead=0, budget=120_000)
        assert len(session.segments) > 2

    def test_constants_large_and_small(self, tmp_path):
        build = Builder()
        last = "x"
        for index in range(4):
            values = numpy_helper.from_array(build.random.standard_normal((WIDTH, WIDTH)).astype("f"), "")
            weight = build.node("Constant", value=values)
            shape = build.node("Constant", value_ints=[-1, WIDTH])
            factor = build.node("Constant", value_float=0.1 * index)
            last = build.node("Reshape", build.node("MatMul", last, weight), shape)
            last = build.node("Mul", build.node("Tanh", last), factor)
        path = tmp_path / "model.onnx"
        onnx.save(build.model({"x": (FLOAT, ["n", WIDTH])}, {last: (FLOAT, None)}), path)
        session = agrees(path, rows())
        assert len(session.segments) == 4
        assert {segment.session for segment in session.segments} == {0}

    def test_weights_of_transposes_are_stored_transposed(self, tmp_path):
        build = Builder()
        shared, last = build.weight(WIDTH, WIDTH), "x"
        for _ in range(3):
            kept = build.node("Transpose", shared)
            moved = build.node("Transpose", build.weight(WIDTH, 1, WIDTH), perm=[2, 1, 0])
            last = build.node("MatMul", build.node("MatMul", last, kept), build.node("Squeeze", moved, "one"))
            last = build.node("Tanh", last)
        build.initializers.append(numpy_helper.from_array(np.array([1]), "one"))
        path = tmp_path / "model.onnx"
        onnx.save(build.model({"x": (FLOAT, ["n", WIDTH])}, {last: (FLOAT, ["n", WIDTH])}), path)
        agrees(path, rows(), lookahead=0)
        save_streaming(opsetta.load(path), tmp_path / "folder")
        proto = onnx.load(tmp_path / "folder" / "model.onnx")
        assert [node.op_type for node in proto.graph.node].count("Transpose") == 3
        onnx.checker.check_model(proto)
        with StreamingSession(tmp_path / "folder") as session:
            np.testing.assert_allclose(session.run(rows())[0], plain(path, rows())[0], rtol=1e-5, atol=1e-6)

    def test_sequences_do_not_pass_between_segments(self, tmp_path):
        build = Builder()
        first = build.layer("x")
        held = build.node("SequenceConstruct", first, "x")
        second = build.layer(first)
        third = build.node("SequenceAt", held, build.node("Constant", value_int=0))
        last = build.node("Add", build.layer(second), third)
        model = build.model({"x": (FLOAT, ["n", WIDTH])}, {last: (FLOAT, None)})
        strings = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
        model.graph.output.append(helper.make_value_info("both", strings))
        model.graph.node.append(helper.make_node("SequenceConstruct", ["x", last], ["both"]))
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        session = agrees(path, rows(), lookahead=0)
        assert len(session.segments) > 1

    def test_outputs_that_are_inputs_weights_or_intermediate(self, tmp_path):
        build = Builder()
        first = build.layer("x")
        last = build.layer(first)
        kind = (FLOAT, ["n", WIDTH])
        outputs = {first: kind, last: kind, "x": kind, "w0": (FLOAT, [WIDTH, 2 * WIDTH]), "w1": (FLOAT, None)}
        model = build.model({"x": kind, "unused": (FLOAT, [2])}, outputs)
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        agrees(path, rows(), np.ones(2, np.float32), lookahead=0)

    def test_a_model_without_weights(self, tmp_path):
        build = Builder()
        build.node("Relu", "x", name="y")
        path = saved(build.model({"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])}), tmp_path)
        assert agrees(path, rows(1)[0], budget=10**6).largest_segment == 0

    def test_weights_of_small_and_packed_element_types(self, tmp_path):
        build = Builder()
        last = "x"
        for _ in range(3):
            packed = build.random.integers(-8, 8, (WIDTH, WIDTH))
            build.initializers.append(
                helper.make_tensor(f"q{last}", TensorProto.INT4, packed.shape, packed.flatten())
            )
            scale = build.weight(1, name=f"s{last}")
            weight = build.node("DequantizeLinear", f"q{last}", build.node("Abs", scale))
            last = build.node("MatMul", last, weight)
            for kind in (np.float16, ml_dtypes.bfloat16):
                half = build.node("Cast", build.weight(WIDTH, WIDTH, kind=kind), to=FLOAT)
                last = build.node("Tanh", build.node("MatMul", last, half))
        path = saved(build.model({"x": (FLOAT, ["n", WIDTH])}, {last: (FLOAT, None)}, 21, 10), tmp_path)
        save_streaming(opsetta.load(path), tmp_path / "folder")
        agrees(tmp_path / "folder" / "model.onnx", rows(), lookahead=0)

    def test_strings_and_maps_of_the_caller(self, tmp_path):
        build = Builder()
        text = helper.make_tensor("text", TensorProto.STRING, [1], [b"cat"])
        build.initializers.append(text)
        found = build.node("Cast", build.node("Equal", "names", "text"), to=FLOAT)
        for _ in range(2):
            last = build.layer(build.node("Mul", found, "x"))
        build.node("ZipMap", build.node("Tanh", last), domain="ai.onnx.ml", classlabels_int64s=range(WIDTH))
        key = helper.make_tensor_type_proto(FLOAT, [])
        maps = helper.make_sequence_type_proto(helper.make_map_type_proto(INT64, key))
        model = build.model(
            {"x": (FLOAT, ["n", WIDTH]), "names": (TensorProto.STRING, ["n", 1])}, {found: (FLOAT, None)}, 19
        )
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
        model.graph.output.append(helper.make_value_info(build.nodes[-1].output[0], maps))
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        names = np.array([["cat"], ["dog"], ["cat"]], object)
        with StreamingSession(path, lookahead=0) as session:
            actual, expected = session.run(rows(), names), plain(path, rows(), names)
        np.testing.assert_array_equal(actual[0], expected[0])
        assert [list(one) for one in actual[1]] == [list(one) for one in expected[1]]
        values = [[list(one.values()) for one in result[1]] for result in (actual, expected)]
        np.testing.assert_allclose(*values, rtol=1e-5)

    def test_functions_and_sparse_initializers(self, tmp_path):
        build = Builder()
        last = "x"
        for index in range(3):
            values = numpy_helper.from_array(build.random.standard_normal(9).astype("f"), f"sparse{index}")
            places = numpy_helper.from_array(np.arange(0, 9 * 7, 7), f"places{index}")
            sparse = helper.make_sparse_tensor(values, places, [WIDTH])
            weight = build.weight(WIDTH, WIDTH)
            last = build.node("Twice", last, weight, f"sparse{index}", domain="own")
            build.sparse = [*getattr(build, "sparse", []), sparse]
        model = build.model({"x": (FLOAT, ["n", WIDTH])}, {last: (FLOAT, None)})
        model.graph.sparse_initializer.extend(build.sparse)
        model.opset_import.append(helper.make_opsetid("own", 1))
        body = [
            helper.make_node("MatMul", ["a", "b"], ["once"]),
            helper.make_node("Add", ["once", "c"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["d"]),
        ]
        imports = [helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("own", "Twice", ["a", "b", "c"], ["d"], body, imports))
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        assert len(agrees(path, rows(), lookahead=0).segments) == 3

    def test_a_convolutional_network_without_repeated_blocks(self, tmp_path):
        build = Builder()
        last, channels = "x", 3
        for width in (16, 24, 32, 40, 48):
            last = build.node("Relu", build.node("Conv", last, build.weight(width, channels, 3, 3)))
            channels = width
        path = saved(build.model({"x": (FLOAT, [1, 3, 16, 16])}, {last: (FLOAT, None)}), tmp_path)
        image = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
        # onnxruntime has another layout for convolutions whose weights are constants.
        session = agrees(path, image, lookahead=0, tolerance=1e-4)
        assert len(session.segments) >= 3
        assert session.largest_segment < session.weight_bytes / 2


class TestInputs:
    def test_by_position_and_by_name(self, folder):
        x = rows()
        with StreamingSession(folder) as session:
            np.testing.assert_array_equal(session.run(x)[0], session.run({"x": x})[0])
            np.testing.assert_array_equal(session.run(x.tolist())[0], session.run(x)[0])
            value = onnxruntime.OrtValue.ortvalue_from_numpy(x)
            np.testing.assert_array_equal(session.run(value)[0], session.run(x)[0])

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ((), "'x' is missing"),
            ((rows(), rows()), "2 arguments are passed"),
            (({"x": rows(), "w0": rows()},), "there is no input 'w0'"),
            ((rows().astype(np.float64),), "must have elements of float32, not float64"),
            (("text",), "input 'x'"),
            (([[1.0], [1.0, 2.0]],), "cannot be made an array"),
        ],
        ids=str,
    )
    def test_that_do_not_fit_are_refused(self, folder, inputs, message):
        with StreamingSession(folder) as session:
            with pytest.raises(UsageError, match=message):
                session.run(*inputs)
            session.run(rows())

    def test_of_another_shape_are_refused(self, folder):
        with StreamingSession(folder) as session:
            for wrong in (rows(width=3), rows()[0]):
                with pytest.raises(DimensionError, match=r"'x' must have the shape \[n, 64\]"):
                    session.run(wrong)

    def test_after_the_end_are_refused(self, folder):
        session = StreamingSession(folder)
        session.close()
        with pytest.raises(UsageError, match="closed"):
            session.run(rows())

    @pytest.mark.parametrize(
        "options", [{"lookahead": -1}, {"lookahead": True}, {"threads": 0}, {"verify": "no"}]
    )
    def test_options_of_other_values_are_refused(self, folder, options):
        with pytest.raises(UsageError):
            StreamingSession(folder, **options)

    def test_models_of_other_kinds_are_refused(self):
        with pytest.raises(UsageError, match="not a dict"):
            StreamingSession({})


class TestFolder:
    def test_has_an_index_of_aligned_weights(self, folder):
        index = Index.from_folder(folder)
        assert len(index.weights) == 2 * LAYERS
        assert all(weight.offset % 4096 == 0 for weight in index.weights)
        proto = onnx.load(folder / "model.onnx")
        named = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
        with open(folder / index.data, "rb") as file:
            for weight in index.weights:
                file.seek(weight.offset)
                assert file.read(weight.size) == named[weight.name].tobytes()
        # The order of use.
        assert [weight.name for weight in index.weights] == [f"w{n}" for n in range(3 * LAYERS) if n % 3 != 1]

    def test_is_the_same_each_time(self, folder, tmp_path):
        save_streaming(opsetta.load(folder.parent / "plain.onnx"), tmp_path)
        assert (tmp_path / INDEX).read_bytes() == (folder / INDEX).read_bytes()

    @pytest.mark.parametrize("verify", ["full", "size"])
    def test_with_a_shorter_file_is_refused(self, copy, verify):
        data = copy / Index.from_folder(copy).data
        data.write_bytes(data.read_bytes()[:-1])
        with pytest.raises(ModelFileError, match="bytes instead of"):
            StreamingSession(copy, verify=verify)

    def test_with_a_changed_weight_is_refused(self, copy):
        index = Index.from_folder(copy)
        content = bytearray((copy / index.data).read_bytes())
        content[index.weights[3].offset] ^= 1
        (copy / index.data).write_bytes(content)
        with pytest.raises(ModelFileError, match=f"weight '{index.weights[3].name}'"):
            StreamingSession(copy)

    def test_with_another_graph_is_refused(self, copy):
        content = (copy / "model.onnx").read_bytes()
        (copy / "model.onnx").write_bytes(content.replace(b"Relu", b"Tanh"))
        with pytest.raises(ModelFileError, match="does not have the contents"):
            StreamingSession(copy)

    @pytest.mark.parametrize(
        "change",
        [
            lambda body: body.update(size=body["size"] + 1),
            lambda body: body.update(format=99),
            lambda body: body.pop("weights"),
            lambda body: body.clear(),
        ],
    )
    def test_with_a_changed_index_is_refused(self, copy, change):
        body = json.loads((copy / INDEX).read_bytes())
        change(body)
        (copy / INDEX).write_text(json.dumps(body))
        with pytest.raises(ModelFileError, match=INDEX):
            StreamingSession(copy)

    @pytest.mark.parametrize(
        "changes",
        [
            {"data": "../data"},
            {"data": 3},
            {"weights": (WeightRecord("w", "0", 1, ""),)},
            {"weights": (WeightRecord("w", -5, 1, ""),)},
            {"model": FileRecord("../model.onnx", 1, "")},
        ],
        ids=str,
    )
    def test_with_a_hostile_index_is_refused(self, copy, changes):
        (copy / INDEX).write_bytes(dataclasses.replace(Index.from_folder(copy), **changes).to_bytes())
        with pytest.raises(ModelFileError, match="is damaged"):
            StreamingSession(copy)

    def test_without_its_files_is_refused(self, copy):
        (copy / Index.from_folder(copy).data).unlink()
        with pytest.raises(ModelFileError, match="cannot be read"):
            StreamingSession(copy)
        (copy / INDEX).unlink()
        with pytest.raises(ModelFileError, match=r"opsetta stream MODEL -o FOLDER"):
            StreamingSession(copy)


def test_a_read_that_fails_ends_the_run_and_releases_all(copy):
    data = copy / Index.from_folder(copy).data
    content = data.read_bytes()
    with StreamingSession(copy, lookahead=2) as session:
        expected = session.run(rows())
        with open(data, "r+b") as file:
            file.truncate(len(content) // 2)
        with pytest.raises(ModelFileError, match="cannot be read from its file"):
            session.run(rows())
        loads = [event.segment for event in session.events if event.kind == "load"]
        assert sorted(loads) == sorted(event.segment for event in session.events if event.kind == "release")
        with open(data, "r+b") as file:
            file.write(content)
        np.testing.assert_array_equal(session.run(rows())[0], expected[0])
        check_trace(session)


@pytest.mark.parametrize("answer", [None, errno.EINVAL])
def test_systems_without_the_advice_compute_the_same(folder, monkeypatch, answer):
    monkeypatch.setattr(mapped_weights, "advise", lambda begin, size, advice: answer)
    check_trace(agrees(folder / "model.onnx", rows()))


def test_a_file_that_became_shorter_is_an_error_where_the_system_says_so(copy):
    data = copy / Index.from_folder(copy).data
    with StreamingSession(copy, lookahead=0) as session:
        with open(data, "r+b") as file:
            file.truncate(4096)
        with pytest.raises(ModelFileError, match="cannot be read from its file"):
            session.run(rows())


def test_threads_take_turns(folder):
    with StreamingSession(folder) as session:
        expected = session.run(rows())[0]
        found = []
        threads = [threading.Thread(target=lambda: found.append(session.run(rows())[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        for actual in found:
            np.testing.assert_array_equal(actual, expected)


def sequential(kinds, sizes, widths):
    names = [frozenset({f"w{index}"}) if size else frozenset() for index, size in enumerate(sizes)]
    bytes_of = {f"w{index}": size for index, size in enumerate(sizes)}
    return segmentation.Sequential(kinds, names, bytes_of, widths)


def test_blocks_are_cut_where_fewest_values_pass():
    kinds = "e" + "abcd" * 5 + "h"
    sizes = [3] + [4, 0, 4, 1] * 5 + [2]
    widths = [0, 1] + [3, 2, 3, 1] * 5 + [0]
    nodes = sequential(kinds, sizes, widths)
    assert segmentation.blocks(nodes) == [0, 1, 5, 9, 13, 17, 21, 22]
    widths[1] = widths[5] = None
    assert set(segmentation.blocks(nodes)).isdisjoint({1, 5})


def test_weights_that_stay_together_stay_together():
    nodes = sequential("abcd", [5, 5, 5, 5], [0, None, 1, None, 0])
    assert segmentation.split(nodes, [0, 4], 1) == [0, 2, 4]


def test_memory_of_the_run_is_bounded(tmp_path):
    """Sixteen layers of 4 MB: 64 MB of weights in a few segments of memory."""
    build = Builder()
    last = "x"
    for _ in range(16):
        last = build.node("Tanh", build.node("MatMul", last, build.weight(1024, 1024)))
    path = saved(build.model({"x": (FLOAT, [1, 1024])}, {last: (FLOAT, [1, 1024])}), tmp_path)
    peak = in_new_process(PEAK, path)
    assert peak <= 2 * 4 + 0.1 + 20


PEAK = """
import json, sys, numpy, onnxruntime, opsetta
opsetta.StreamingSession
def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key + ":"))
bare = memory("VmRSS")
with opsetta.StreamingSession(sys.argv[1], lookahead=1) as session:
    session.run(numpy.ones((1, 1024), numpy.float32))
    assert len(session.segments) == 16 and session.weight_bytes == 64 << 20
print(json.dumps(memory("VmHWM") - bare))
"""


class TestCommand:
    def test_writes_a_folder_and_shows_the_segments(self, folder, tmp_path, capsys):
        target = tmp_path / "streamed"
        arguments = ["stream", str(folder.parent / "plain.onnx"), "-o", str(target)]
        assert command(*arguments, "--budget", "200KB", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["segments"] == LAYERS
        assert shown["lookahead"] == 200_000 // shown["largest_segment"] - 1
        assert shown["weight_bytes"] == LAYERS * LAYER
        agrees(target / "model.onnx", rows())
        assert command(*arguments, "--opset", "11", "--lookahead", "2") == 0
        assert "lookahead 2" in capsys.readouterr().out
        assert onnx.load(target / "model.onnx").opset_import[0].version == 11

    @pytest.mark.parametrize("wrong", [["--budget", "much"], ["--budget", "1KB"], ["--lookahead", "-1"]])
    def test_refuses_what_cannot_be(self, folder, tmp_path, wrong, capsys):
        arguments = ["stream", str(folder.parent / "plain.onnx"), "-o", str(tmp_path / "streamed")]
        end = command(*arguments, *wrong)
        # Wrong usage ends with 2, after its message.
        message = capsys.readouterr().err if end == 2 else str(end)
        assert message.startswith(("opsetta: ", "Usage: opsetta stream "))


def command(*arguments):
    """The exit code of the command line, or its message."""
    with pytest.raises(SystemExit) as exited:
        cli.main(arguments)
    return exited.value.code or 0


def test_the_model_of_a_path_stays_as_it_is(tmp_path):
    path = saved(layered(), tmp_path)
    before = {item.name: item.read_bytes() for item in pathlib.Path(tmp_path).iterdir()}
    run_streaming(path, rows(), budget="300KB")
    assert {item.name: item.read_bytes() for item in pathlib.Path(tmp_path).iterdir()} == before
