"""The facts of reports: origins of operators, errors, problems, opsets, and their JSON form."""

from __future__ import annotations

import json
import math

import onnx_ir as ir
import pytest
import torch
from torch import nn

import opsetta
from opsetta import GraphContext, Value, default_registry
from opsetta.exporter.lowering.driver import Observation
from opsetta.exporter.report.collecting import Choices, Subject, collect
from opsetta.exporter.report.parity import selected_values
from opsetta.exporter.report.pictures import MOST_NODES, type_text
from opsetta.exporter.report.problems import problems_of
from opsetta.exporter.report.records import ORIGINS, Picture, Report
from opsetta.registration import (
    CaptureError,
    MutationError,
    OpsettaError,
    TargetError,
    TargetProblem,
    UnsupportedOperator,
    UnsupportedOperatorsError,
)
from opsetta.registration.origins import origins_of

AS_IS, COMPOSED, RECOGNISED, FOLDED, UNSUPPORTED = range(len(ORIGINS))


class Model(nn.Module):
    """What is written as is, composed, recognised and folded, in modules."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ELU())
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.features(image).mean((2, 3))
        return self.head(self.norm(x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))))


@pytest.fixture(scope="module")
def program() -> opsetta.Program:
    return opsetta.export(
        Model().eval(), torch.randn(2, 3, 8, 8), opset=20, dynamic_shapes={"image": {0: "batch"}}
    )


@pytest.fixture(scope="module")
def report(program) -> Report:
    return program.report(None, opsets=[9], title="the model")


def origins(picture: Picture) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for operator, _, _, origin, *_ in picture.nodes:
        found.setdefault(operator, set()).add(origin)
    return found


def test_origins_of_what_is_written(program, report):
    found = origins(report.after)
    assert found["Gelu"] == {RECOGNISED}
    assert found["Conv"] == found["Elu"] == found["LayerNormalization"] == {AS_IS}
    below = origins(program.lower(13).report(None, opsets=[], compare=False).after)
    assert "LayerNormalization" not in below
    assert COMPOSED in below["Sqrt"]


def test_what_becomes_of_captured_operators(report):
    found = origins(report.before)
    assert found["conv2d"] == {AS_IS}
    assert found["batch_norm"] == {FOLDED}
    assert found["erf"] == {RECOGNISED}
    assert found["input"] == found["output"] == {-1}


def test_a_recognised_operator_names_what_it_stands_for(report):
    [gelu] = [node for node in report.after.nodes if node[0] == "Gelu"]
    assert {"aten::erf.default", "aten::mul.Tensor", "aten::add.Tensor"} <= set(gelu[4].split(", "))


def test_pictures_are_consistent(report):
    for picture in (report.before, report.after):
        assert all(parent < row for row, (_, _, _, parent, *_) in enumerate(picture.modules))
        assert all(0 <= node[2] < len(picture.modules) for node in picture.nodes)
        assert all(0 <= a < b < len(picture.nodes) for a, b in picture.edges)
        assert sum(picture.modules[0][4]) == sum(node[3] >= 0 for node in picture.nodes)
    classes = {path: kind for _, path, kind, *_ in report.before.modules}
    assert classes == {"": "Model", "features": "Sequential"}
    assert any(name == "norm/layer_norm" for _, name, *_ in report.before.nodes)


def test_an_observed_lowering_writes_the_same_model(program):
    settings = program.opset, program.registry, program.optimize
    observation = Observation()
    observed = program.source_model._lower_graph(*settings, observation=observation).model
    assert ir.to_proto(observed) == program.model_proto
    assert all(map(origins_of, observed.graph))
    assert not any(map(origins_of, program.model.graph))


def test_written_and_asked(program, report):
    assert report.title == "the model"
    assert report.asked == {"opset": "20", "optimize": "full", "dynamic dimensions": "batch"}
    assert report.written.opsets == {"ai.onnx": 20}
    assert report.written.nodes == len(program.model.graph)
    assert [(value.kind, value.type) for value in report.written.interface] == [
        ("input", "float32[batch, 3, 8, 8]"),
        ("output", "float32[batch, 2]"),
    ]
    assert report.written.weight_bytes == sum(
        value.const_value.nbytes for value in program.model.graph.initializers.values()
    )


def test_stages_have_times_and_memory(report):
    assert [stage.name for stage in report.stages] == ["loading", "capturing", "source passes", "lowering"]
    assert all(stage.seconds > 0 for stage in report.stages)
    assert all(stage.memory is None or stage.memory > 10**6 for stage in report.stages)


def test_every_result_agrees(report):
    assert report.parity.agrees
    assert report.parity.note == ""
    assert report.parity.tolerances == {"float32": (1e-3, 1e-4)}
    assert all(node.share < 1 for node in report.parity.nodes)
    operators = [report.before.nodes[node.position][0] for node in report.parity.nodes]
    assert operators[:3] == ["conv2d", "batch_norm", "elu"]


def test_opsets_beside_the_one_that_was_asked_for(report):
    low, asked = report.opsets
    assert (low.opset, asked.opset) == (9, 20)
    assert low.nodes > asked.nodes
    assert low.composed > asked.composed
    assert low.latency > 0


def test_the_json_form_has_the_names_of_the_records(report):
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain["written"]["interface"][0] == {
        "kind": "input",
        "name": "image",
        "type": "float32[batch, 3, 8, 8]",
    }
    assert plain["parity"]["nodes"][0]["operator"] == "aten::conv2d.default"
    assert plain["restrictions"] == [] or set(plain["restrictions"][0]) == {"condition", "reason", "line"}


def test_a_wrong_operator_is_where_errors_begin():
    registry = default_registry.fork()

    @opsetta.onnx_symbolic("aten::tanh", registry=registry, override=True)
    def tanh(g: GraphContext, self: Value):
        return g.op("Mul", g.op("Tanh", self), 1.5)

    def forward(x):
        rounded = torch.tanh(x.exp()).mul(4).round().to(torch.int64)
        return rounded, x.exp()

    report = opsetta.export_report(forward, (torch.ones(3),), opset=13, registry=registry, opsets=[])
    assert report.parity.agrees is False
    first = next(node for node in report.parity.nodes if node.share > 1)
    assert first.operator == "aten::tanh.default"
    assert report.before.nodes[first.position][0] == "tanh"
    # Integers must be equal, so that the share of their tolerance is infinite, which JSON cannot say.
    assert report.to_json()["parity"]["outputs"][0]["share"] == "Infinity"


def test_specializations_and_restrictions_are_listed():
    def forward(x):
        return x.reshape(2, -1) * 2 if x.sum() > 0 else x

    with pytest.warns(UserWarning, match="follows the decisions of the example inputs"):
        report = opsetta.export_report(
            forward, (torch.ones(4),), opset=13, specialize=True, opsets=[], latency=False
        )
    [decision] = report.specializations
    assert decision.kind == "branch"
    assert report.title == "forward"


def test_a_model_that_an_opset_cannot_express():
    def forward(x):
        return torch.linalg.eigvals(x.exp()).real

    report = opsetta.export_report(forward, (torch.eye(3),), opset=12, opsets=[9])
    assert report.written is report.after is report.parity is None
    [problem] = report.problems
    assert problem.subject == "complex::linalg_eigvals.default"
    assert "onnx_symbolic" in problem.remedy
    assert origins(report.before)["complex::linalg_eigvals"] == {UNSUPPORTED}
    assert [(row.opset, row.nodes) for row in report.opsets] == [(9, None), (12, None)]
    assert "linalg_eigvals" in report.opsets[0].note


def test_a_model_that_cannot_be_captured():
    def forward(x):
        return x + 1 if x.sum() > 0 else x

    report = opsetta.export_report(forward, (torch.ones(3),), opset=12)
    assert report.before is report.written is None
    assert report.problems[0].subject == "capturing"
    assert "specialize" in report.problems[0].remedy
    assert [stage.name for stage in report.stages] == ["loading", "capturing"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (UnsupportedOperator("aten::a", "why", 16, ("m", "m"), True), "opset 16 or higher"),
        (UnsupportedOperator("aten::a.b", "why", None, ("m",), False), 'onnx_symbolic("aten::a")'),
        (UnsupportedOperator("aten::a", "why", None, ("",), True), "other operators"),
        (TargetError("rknn", "no", [TargetProblem("why", "n", "Relu", "m")]), "'rknn'"),
        (MutationError("why"), 'mutations="outputs"'),
        (CaptureError("why"), "docs/capture.md"),
        (OpsettaError("why"), "reason"),
    ],
    ids=lambda item: item if isinstance(item, str) else type(item).__name__,
)
def test_problems_have_a_place_a_reason_and_a_remedy(error, remedy):
    given = UnsupportedOperatorsError(9, [error]) if isinstance(error, UnsupportedOperator) else error
    [problem] = problems_of(given, "lowering")
    assert remedy in problem.remedy
    assert "why" in problem.reason
    assert set(problem.places) <= {"m", "<root>"}


def test_a_wrong_argument_is_an_error():
    with pytest.raises(opsetta.UsageError, match="kernel"):
        opsetta.export_report(torch.relu, (torch.ones(2),), kernel=3)
    with pytest.raises(opsetta.OpsetError):
        opsetta.export_report(torch.relu, (torch.ones(2),), opset=9, opsets=[99])


def test_a_converted_file_is_compared_with_the_original(program, tmp_path):
    program.lower(9).save(tmp_path / "model.onnx")
    read = opsetta.load(tmp_path / "model.onnx")
    report = read.lower(20).report(None, opsets=[], latency=False)
    assert report.source == "file"
    assert report.parity.against == "the original file"
    assert report.parity.agrees
    assert report.parity.nodes
    assert {type(node.position) for node in report.parity.nodes} == {int}
    same = read.report(None, opsets=[], latency=False)
    assert origins(same.after)["Conv"] == {AS_IS}
    assert same.parity is None


def test_a_source_file_has_a_report_without_a_model(program, tmp_path):
    program.save_source(tmp_path / "model.source.onnx")
    report = opsetta.load(tmp_path / "model.source.onnx").report(None, 12, opsets=[])
    assert report.written.opsets == {"ai.onnx": 12}
    assert report.parity.agrees is None
    assert "no PyTorch model" in report.parity.note or "no example" in report.parity.note
    assert report.opsets == ()


def test_a_large_graph_is_cut():
    nodes = 10_000
    source = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 17}, name="large"), ir_version=8)
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    source.graph.inputs.append(value)
    for number in range(nodes):
        node = ir.node("Relu", [value], name=f"a_long_name_of_a_module/number_{number}/Relu")
        value = node.outputs[0]
        source.graph.append(node)
    source.graph.outputs.append(value)

    def lower(opset: int, observation: Observation) -> ir.Model:
        return source

    subject = Subject("large", {"opset": "17"}, 17, source, lower, lower, None, lambda model: {})
    report = collect(subject, Choices(opsets=[]))
    for picture in (report.before, report.after):
        assert len(picture.nodes) <= MOST_NODES + 2
        assert picture.left_out >= nodes - MOST_NODES
        assert sum(picture.modules[0][4]) == nodes
    assert len(json.dumps(report.to_json())) < 1_500_000


def test_many_results_are_compared_evenly():
    def result(size: int) -> ir.Value:
        return ir.Value(type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([size]))

    few = [result(2) for _ in range(10)]
    assert selected_values(few) == (few, "")
    kept, note = selected_values([result(2**28) for _ in range(10)])
    assert len(kept) == 1
    assert note == "of 10 intermediate results, 1 are compared, evenly spread"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ir.Value(type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, "n", None])), "float32[2, n, ?]"),
        (ir.Value(type=ir.TensorType(ir.DataType.BFLOAT16), shape=ir.Shape([])), "bfloat16[]"),
        (ir.Value(type=ir.TensorType(ir.DataType.INT64)), "int64[…]"),
        (ir.Value(type=ir.SequenceType(ir.TensorType(ir.DataType.INT64))), "sequence"),
        (ir.Value(), "?[…]"),
    ],
)
def test_types_are_shown(value, text):
    assert type_text(value) == text


def test_a_training_graph_has_a_report_of_its_graph():
    program = opsetta.export_training(
        nn.Linear(4, 3), (torch.randn(5, 4),), torch.randint(0, 3, (5,)), loss=nn.CrossEntropyLoss(), opset=13
    )
    report = program.report(None, opsets=[])
    assert report.written.nodes == len(program.model.graph)
    assert report.parity is None
    with pytest.raises(opsetta.UsageError, match="verify"):
        program.report(None, compare=True)


def test_long_texts_are_cut():
    class Long(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("a" * 500, nn.Sequential(nn.ReLU(), nn.ReLU()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return getattr(self, "a" * 500)(x)

    report = opsetta.export_report(Long().eval(), (torch.randn(2),), opsets=[], output_names=["b" * 500])
    text = json.dumps(report.to_json())
    assert "a" * 150 in text
    assert "a" * 200 not in text
    assert "b" * 200 not in text
