"""The bounds on size: what is beyond them, and files that are trusted."""

import dataclasses
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, parser

import opsetta
from opsetta import GraphError, ModelFileError
from opsetta.exporter.command_line import cli
from opsetta.exporter.files.reading import TRUSTED, Bounds, bounds, read_model, to_ir
from opsetta.exporter.files.summary import describe_file
from opsetta.exporter.lowering.conversion import convert_model, size, source_validity
from opsetta.registration import MAY_OVERWRITE, Limits, UnsupportedError
from opsetta.registration.construction.graph import Construction

SMALL = Bounds(parsed=100, memory=100, conversion=100)
"""Less than any model takes. Beyond the real bounds a trusted file takes hundreds of megabytes."""


@pytest.fixture
def path(tmp_path):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) '
        "{ h = Relu(x) y = Softmax(h) }"
    )
    model.graph.node[1].metadata_props.add(key=MAY_OVERWRITE, value="0:0")
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture(scope="module")
def expanding_path(tmp_path_factory):
    """A file of 15 kB whose functions have 34,000 nodes when they are inlined."""
    body = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(700)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Many", ["t0"], ["t700"], body, imports[:1])
    nodes = [helper.make_node("Many", [f"v{i}"], [f"v{i + 1}"], domain="own") for i in range(48)]
    values = [helper.make_tensor_value_info(name, 1, [2]) for name in ("v0", "v48")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    path = tmp_path_factory.mktemp("expanding") / "m.onnx"
    onnx.save(helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8), path)
    return path


def test_a_small_file_that_expands_is_loaded_where_it_is_trusted(expanding_path):
    with pytest.raises(ModelFileError, match="more than 8149 nodes .* pass trusted=True, or --trusted on"):
        opsetta.load(expanding_path)
    assert opsetta.load(expanding_path, trusted=True).lower(17).opset == 17


def test_a_small_file_that_expands_is_converted_where_it_is_trusted(expanding_path, tmp_path, capsys):
    arguments = ["convert", str(expanding_path), "-o", str(tmp_path / "o.onnx"), "--opset", "17"]
    with pytest.raises(SystemExit, match="--trusted"):
        cli.main(arguments)
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--trusted"])
    assert ended.value.code in (0, None)
    assert (tmp_path / "o.onnx").exists()
    capsys.readouterr()


READERS = {
    "load": opsetta.load,
    "check_inplace": opsetta.check_inplace,
    "describe_file": describe_file,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_beyond_a_bound_is_read_where_it_is_trusted(name, path, monkeypatch):
    monkeypatch.setattr(bounds, "BOUNDS", SMALL)
    with pytest.raises(ModelFileError, match="pass trusted=True, or --trusted on the command line"):
        READERS[name](path)
    READERS[name](path, trusted=True)


@pytest.mark.parametrize("opset", [9, 17])
def test_what_is_beyond_a_bound_is_converted_where_it_is_trusted(opset, path, monkeypatch):
    model = opsetta.load(path)
    by_hand = ir.from_proto(read_model(path))
    monkeypatch.setattr(bounds, "BOUNDS", SMALL)
    for untrusted in (model, opsetta.OnnxModel(by_hand)):
        with pytest.raises(GraphError, match="would take more than 0 MiB.* pass trusted=True"):
            untrusted.lower(opset)
    for trusted in (opsetta.load(path, trusted=True), opsetta.OnnxModel(by_hand, trusted=True)):
        lowered = trusted.lower(opset)
        assert lowered.opset == opset
        assert lowered.lower(11).opset == 11


def chain_of(op_type, dims):
    nodes = [helper.make_node(op_type, [f"v{i}"], [f"v{i + 1}"]) for i in range(8)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("v0", 1, dims)], [onnx.ValueInfoProto(name="v8")]
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_what_conversion_makes_is_bounded_unless_it_is_trusted(monkeypatch):
    model = chain_of("HardSwish", [2])
    monkeypatch.setattr(bounds, "BOUNDS", Bounds(made_nodes=22))
    with pytest.raises(GraphError, match="more nodes at this opset than the limit for its file; if you"):
        opsetta.OnnxModel(model).lower(7)
    assert opsetta.OnnxModel(model, trusted=True).lower(7).model.graph.num_nodes() == 16


def test_operators_on_constants_take_the_time_of_nodes(monkeypatch):
    text = "n = Constant<value_int = 3>() i = Constant<value_int = 1>() r = Range(i, n, i) y = Add(x, r)"
    graph = parser.parse_graph(f"g (int64[2] x) => (int64[2] y) {{ {text} }}")
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    monkeypatch.setattr(bounds, "BOUNDS", Bounds(made_nodes=20))
    with pytest.raises(GraphError, match="more nodes at this opset than the limit for its file; if you"):
        opsetta.OnnxModel(model).lower(7)  # Range becomes about 30 operators on constants there.
    trusted = opsetta.OnnxModel(model, trusted=True).lower(7).model
    assert trusted.graph.num_nodes() <= 2


def test_an_operator_that_is_refused_often_is_tried_no_more():
    nodes = [helper.make_node("StringNormalizer", [f"v{i}"], [f"v{i + 1}"]) for i in range(30)]
    inputs = [helper.make_tensor_value_info("v0", onnx.TensorProto.STRING, [2])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="v30")])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(opsetta.UnsupportedOperatorsError) as caught:
        opsetta.OnnxModel(model).lower(7)
    counts = {operator.reason: len(operator.modules) for operator in caught.value.operators}
    assert sum(counts.values()) == 30
    assert sum(count for reason, count in counts.items() if "not tried, because 20 nodes" in reason) == 10


def test_weights_pay_for_nodes():
    model = ir.from_proto(
        helper.make_model(
            parser.parse_graph("g (float[2] x) => (float[2] y) { y = Relu(x) }"),
            opset_imports=[helper.make_opsetid("", 17)],
        )
    )
    with pytest.raises(GraphError, match="a model with 0 bytes of weights"):
        size.limits_of(model, Bounds(conversion=10_000))
    size.limits_of(model, Bounds(conversion=30_000))
    model.graph[0].name = "n" * 5_000
    with pytest.raises(GraphError, match="a model with 0 bytes of weights"):
        size.limits_of(model, Bounds(conversion=30_000))
    model.graph[0].name = "relu"
    tensor = ir.tensor(np.zeros(60_000, np.float32), name="w")
    model.graph.initializers.add(ir.Value(name="w", const_value=tensor))
    weights, names = 240_000, len("relu" + "x" + "y")
    expected = 2 + (weights + names) // 200 - 1 * 5 // 4
    # One number for the conversion of a node, and the memory for it.
    assert size.limits_of(model, Bounds(conversion=2**30, made_nodes=2)).nodes == expected
    model.graph.outputs[0].shape = ir.Shape(["n"] * 32)
    assert size.limits_of(model, Bounds(conversion=2**30, made_nodes=2)).nodes == expected - 32 // 16


def test_weights_pay_for_nodes_of_other_frameworks():
    node = ir.Node("tf", "Neg", [])
    weight = ir.Value(name="w", const_value=ir.tensor(np.zeros(100, np.float32), name="w"))
    source = ir.Model(ir.Graph([], [], nodes=[node], initializers=[weight]), ir_version=10)
    limits = size.limits_of_source(source, Bounds(made_nodes=9))
    assert limits.nodes == (9 + 1) // 4 + 400 // 200
    # Of a graph with more nodes than it may make, no further node pays.
    source.graph.extend(ir.Node("tf", "Neg", []) for _ in range(90))
    assert size.limits_of_source(source, Bounds(made_nodes=9)).nodes == (9 + 3) // 4 + 400 // 200


def test_a_model_of_too_many_nodes_is_refused_before_it_is_prepared(monkeypatch):
    monkeypatch.setattr(bounds, "BOUNDS", Bounds(made_nodes=9))
    monkeypatch.setattr(convert_model, "source_of", None)
    with pytest.raises(GraphError, match="more nodes at this opset than the limit for its file; if you"):
        opsetta.OnnxModel(chain_of("Relu", [2])).lower(14)  # All its nodes are copied.


@pytest.mark.parametrize(("rank", "made_nodes"), [(7, 18), (32, 18 + 8 * 32 // 16 + 8 * 32 // 8)])
def test_many_dimensions_take_the_time_of_nodes(monkeypatch, rank, made_nodes):
    model = chain_of("Neg", ["n"] * rank)
    monkeypatch.setattr(bounds, "BOUNDS", Bounds(made_nodes=made_nodes + 8 * 7 // 16))
    assert opsetta.OnnxModel(model).lower(7).model.graph.num_nodes() == 8
    monkeypatch.setattr(bounds, "BOUNDS", Bounds(made_nodes=made_nodes - 4))
    with pytest.raises(GraphError, match="more nodes at this opset than the limit for its file; if you"):
        opsetta.OnnxModel(model).lower(7)


def test_many_small_constants_count_as_a_large_one():
    construction = Construction(ir.Graph([], [], nodes=[], opset_imports={"": 17}), 17)
    construction.limits = Limits(elements=250, nodes=10)
    for i in (1, 2, 2, 2):
        construction.constant(np.full(100, i))
    for i in range(9):
        construction.constant(np.full(64, i))
    with pytest.raises(UnsupportedError, match="a constant of 100 elements, more than are made"):
        construction.constant(np.full(100, 3))


def test_a_model_of_many_nodes_is_checked_without_an_inference(monkeypatch):
    model = chain_of("Relu", [2])
    monkeypatch.setattr(size, "_UNITS", 5)
    with monkeypatch.context() as untrusted:
        untrusted.setattr(source_validity, "source_of", None)
        with pytest.warns(UserWarning, match="without others: inferring those of so many nodes .* --trusted"):
            assert source_validity.invalid_nodes_of_file(model, bounds.BOUNDS) == []
    assert source_validity.invalid_nodes_of_file(model, TRUSTED) == []


NODE_WORK = {
    "plan": lambda model: model.plan(),
    "convert": lambda model: model.lower(9),
    "write": lambda model: model.lower(target="opencv"),
    "rewrite": lambda model: opsetta.realize(model, ["flatten-to-reshape"]),
}


@pytest.mark.parametrize("work", NODE_WORK)
def test_work_on_many_nodes_is_refused_unless_the_model_is_trusted(work, monkeypatch):
    model = chain_of("Relu", [2])
    monkeypatch.setattr(size, "_UNITS", 5 if work == "convert" else 20)
    with pytest.raises(
        GraphError, match=f"the model has 8 nodes with 0 attributes, too many to {work} .* or --trusted on"
    ):
        NODE_WORK[work](opsetta.OnnxModel(model))
    NODE_WORK[work](opsetta.OnnxModel(model, trusted=True))


@pytest.mark.parametrize(("attributes", "described"), [(400, False), (100, True)])
def test_attributes_take_the_time_of_a_description(attributes, described, monkeypatch):
    monkeypatch.setattr(size, "_UNITS", 80)
    model = chain_of("Relu", [2])
    model.graph[0].attributes.update({f"a{i}": ir.AttrInt64(f"a{i}", 1) for i in range(attributes)})
    assert size.is_describable(model, 0) is described


def test_trust_lifts_every_bound():
    assert set(dataclasses.asdict(TRUSTED).values()) == {sys.maxsize}


@pytest.mark.parametrize(("location", "match"), [("../w", "must be in the model's folder"), ("none", "none")])
def test_trust_does_not_lift_checks_of_what_a_file_says(location, match, path):
    model = onnx.load(path)
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value=location)
    (path.parent.parent / "w").write_bytes(bytes(4))
    onnx.save(model, path)
    with pytest.raises(ModelFileError, match=match):
        opsetta.load(path, trusted=True)
    del model.graph.initializer[:]
    model.graph.node[0].input[0] = "nothing"
    with pytest.raises(ModelFileError, match="no node before it computes"):
        to_ir(model, path.parent, TRUSTED)


def test_a_source_file_is_bounded_as_well(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    program = opsetta.export(torch.nn.ReLU().eval(), (torch.ones(2),))
    program.save_source(tmp_path / "s.onnx", weights="none")
    monkeypatch.setattr(bounds, "BOUNDS", SMALL)
    with pytest.raises(ModelFileError, match="trusted=True"):
        opsetta.load(tmp_path / "s.onnx")
    assert opsetta.load(tmp_path / "s.onnx", trusted=True).input_names == program.input_names


@pytest.mark.parametrize("command", ["info", "check", "convert", "verify"])
def test_commands_take_a_file_as_trusted(command, path, monkeypatch, capsys):
    (path.parent / "made.py").write_text(
        "import torch\ndef make(): return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1)), "
        "(torch.ones(2),)\n"
    )
    more = {
        "convert": ["-o", str(path.parent / "o.onnx"), "--opset", "9"],
        "verify": [f"{path.parent / 'made.py'}:make"],
    }.get(command, [])
    monkeypatch.setattr(bounds, "BOUNDS", SMALL)
    for flags, expected in (([], "--trusted"), (["--trusted"], None)):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, str(path), *more, *flags])
        if expected is None:
            assert ended.value.code in (0, None)
        else:
            assert expected in str(ended.value.code)
    capsys.readouterr()
