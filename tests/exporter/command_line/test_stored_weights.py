"""`opsetta export` with weights that the factory does not load."""

import onnx
import pytest
import torch
from safetensors.torch import save_file

from opsetta.exporter.command_line import cli

FACTORY = """
import torch

def empty():
    with torch.device("meta"):
        model = torch.nn.Linear(40, 30).eval()
    return model, (torch.ones(2, 40),)

def with_weights():
    model, args = empty()
    return {"model": model, "args": args, "weights": "."}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "factory.py").write_text(FACTORY)
    save_file(torch.nn.Linear(40, 30).state_dict(), "x.safetensors")

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
        return caught.value.code or 0, capsys.readouterr()

    return call


@pytest.mark.parametrize("arguments", [("factory.py:empty", "--weights", "."), ("factory.py:with_weights",)])
def test_the_file_refers_to_the_weights(arguments, run, tmp_path):
    code, _ = run("export", *arguments, "-o", "m.onnx", "--reference-weights", "--verify")
    assert code == 0
    graph = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph
    located = {t.name: [e.value for e in t.external_data if e.key == "location"] for t in graph.initializer}
    assert located["weight"] == ["x.safetensors"]


def test_weights_that_do_not_fit_are_an_error_of_one_message(run, tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "x.safetensors")
    code, printed = run("export", "factory.py:empty", "--weights", ".", "-o", "m.onnx")
    assert code != 0
    assert "missing: 'bias'" in str(code) + printed.err
    assert not (tmp_path / "m.onnx").exists()
