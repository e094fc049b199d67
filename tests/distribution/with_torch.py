"""opsetta with all extras: a PyTorch model is exported, verified, saved and lowered."""

import pathlib
import subprocess
import sys

import onnx
import torch

import opsetta

FACTORY = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval(), (torch.randn(2, 4),)
"""


def check_calls() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Hardswish(), torch.nn.Flatten()).eval()
    axes = {"input": {0: "batch"}}
    program = opsetta.export(model, (torch.randn(2, 3, 8, 8),), opset=12, dynamic_axes=axes)
    for opset in (7, 9, 12, 18, 28):
        lowered = program.lower(opset)
        assert lowered.model.opset_imports[""] == opset
        if opset < 28:  # A release of onnxruntime knows the opsets up to its own day.
            lowered.verify((torch.randn(5, 3, 8, 8),))
    program.save("model.onnx")
    onnx.checker.check_model("model.onnx", full_check=True)


def check_commands() -> None:
    pathlib.Path("factory.py").write_text(FACTORY, encoding="utf-8")
    command = pathlib.Path(sys.prefix, "bin", "opsetta")
    done = subprocess.run(
        [command, "export", "factory.py:make", "--opset", "9", "-o", "gelu.onnx", "--verify"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "agrees with eager PyTorch" in done.stdout, done.stdout
    assert onnx.load("gelu.onnx").opset_import[0].version == 9


check_calls()
check_commands()
