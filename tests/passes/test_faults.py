"""A fault of a pass is an error that names the pass, the node and the remedy, wherever the pass runs."""

import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.devices.targets.load_target import load_target
from opsetta.exporter.devices.targets.write_for_target import write_for
from opsetta.exporter.lowering import source_passes
from opsetta.exporter.realizing import GROUPS, PLAIN
from opsetta.passes.faults import faults_of
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.node_pass import NodePass, run_in_order
from opsetta.passes.onnx_graph.optimize import _passes_of, optimize
from opsetta.passes.realizers import UnrollLoops
from opsetta.passes.realizers.operators.compose_operators import ComposeOperators
from opsetta.registration import GraphError, OpsettaError

REPORT = "This is a fault of opsetta: please report it"
ONNX = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { h = Tanh(x) y = Exp(h) }'


def _model() -> ir.Model:
    return ir.from_onnx_text(ONNX)


class Faulty(NodePass):
    op_types = ("Exp",)

    def rewrite(self, node: ir.Node) -> bool:
        return node.inputs[7] is None


def _passes(level: str) -> dict[str, type[ir.passes.PassBase]]:
    model = _model()
    return {type(each).__name__.strip("_"): type(each) for each in _passes_of(level, Initializers(model))}


def _raise(*args: object) -> bool:
    raise IndexError("list index out of range")


def test_the_message_names_pass_and_node():
    model = _model()
    model.graph[1].name = "last"
    with pytest.raises(OpsettaError) as caught:
        run_in_order(model, [Faulty()])
    assert str(caught.value).startswith(
        "pass Faulty failed at node 'last' (Exp): IndexError: tuple index out of range"
    )
    assert REPORT in str(caught.value)
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize("error", [GraphError("refused"), KeyboardInterrupt()])
def test_other_errors_are_not_changed(error):
    with pytest.raises(type(error)) as caught, faults_of("Any"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("name", _passes("full"))
def test_the_remedy_is_a_level_without_the_pass(name, monkeypatch):
    failing = _passes("full")[name]
    monkeypatch.setattr(failing, "run" if hasattr(failing, "run") else "call", _raise)
    without = [level for level in ("basic", "none") if name not in _passes(level)]
    with pytest.raises(OpsettaError, match=f"pass {name} failed: IndexError") as caught:
        optimize(_model())
    message = str(caught.value)
    assert REPORT in message
    expected = f"It does not run with optimize={' or '.join(map(repr, without))}"
    assert message.endswith(expected) if without else "optimize=" not in message
    for level in without:
        optimize(_model(), level=level)


def test_realizers_say_what_failed(monkeypatch):
    model = _model()
    for name in PLAIN:
        chosen = type(PLAIN[name]())
        with monkeypatch.context() as patch:
            patch.setattr(chosen, "call", _raise)
            with pytest.raises(OpsettaError, match=rf"pass {chosen.__name__} failed.*IndexError.*{REPORT}"):
                opsetta.realize(model, [name])

    class Foreign(ir.passes.InPlacePass):
        call = _raise

    Foreign.__module__ = "somebody.passes"
    with pytest.raises(IndexError):
        opsetta.realize(model, [Foreign()])


@pytest.mark.parametrize("name", [*GROUPS, *GROUPS["unroll"]])
def test_a_refusal_of_a_group_of_passes_is_that_of_its_member(name, monkeypatch):
    def refuse(self, model):
        raise GraphError("the trip count is unknown")

    for member in GROUPS["unroll"]:
        monkeypatch.setattr(type(PLAIN[member]()), "call", refuse)
    with pytest.raises(GraphError, match="the trip count is unknown"):
        opsetta.realize(_model(), [name])


def test_the_passes_of_a_target_say_what_failed(monkeypatch):
    monkeypatch.setattr(ComposeOperators, "run", _raise)
    with pytest.raises(OpsettaError, match=rf"pass ComposeOperators failed.*{REPORT}.*for this target"):
        write_for(_model(), load_target("onnxruntime"))


@pytest.mark.parametrize("name", ["remove_inplace", "fuse_packed_sequences", "real_pairs", "promote_types"])
def test_the_source_passes_say_what_failed(name, monkeypatch):
    def fail(model, **options):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(source_passes, name, fail)
    words = name.title().replace("_", "")
    with pytest.raises(OpsettaError, match=rf"pass {words} failed: IndexError.*{REPORT}"):
        source_passes.run_source_passes(_model(), "error")


@pytest.mark.parametrize("command", [["convert", "--opset", "13"], ["realize", "--pass", "unroll"]])
def test_the_command_line_prints_no_traceback(command, monkeypatch, tmp_path, capsys):
    ir.save(_model(), tmp_path / "model.onnx")
    monkeypatch.setattr(UnrollLoops, "call", _raise)
    monkeypatch.setattr(_passes("full")["FuseGelu"], "run", _raise)
    out = tmp_path / "out.onnx"
    with pytest.raises(SystemExit) as caught:
        cli.main([command[0], str(tmp_path / "model.onnx"), "--output", str(out), *command[1:]])
    assert str(caught.value.code).startswith("opsetta: pass ")
    assert REPORT in str(caught.value.code)
    assert not out.exists()
