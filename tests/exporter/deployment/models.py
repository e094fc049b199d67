"""A model with linear layers and convolutions, its folder with packed weights, and runs in new processes."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import torch

import opsetta


class Layers(torch.nn.Module):
    """Two linear layers and two convolutions, so that every layout of onnxruntime occurs."""

    def __init__(self):
        super().__init__()
        self.convolutions = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1)
        )
        self.linear = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))

    def forward(self, x):
        return self.linear(self.convolutions(x).mean((2, 3)))


@functools.cache
def program() -> opsetta.Program:
    torch.manual_seed(0)
    return opsetta.export(Layers().eval(), (image(),), opset=13)


def image() -> torch.Tensor:
    return torch.linspace(-1, 1, 4 * 3 * 16 * 16).reshape(4, 3, 16, 16).sin()


def run(session) -> np.ndarray:
    """The model's output for the image."""
    return session.run(None, {session.get_inputs()[0].name: image().numpy()})[0]


def in_new_process(code: str, *arguments: object, **environment: str):
    """Run Python code, and return the JSON of the last line that it prints.

    Raises:
        AssertionError: the process was killed by a signal, or failed.
    """
    root = pathlib.Path(opsetta.__file__).parent
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root.parent), str(root)]), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])
