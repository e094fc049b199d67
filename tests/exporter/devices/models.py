"""A model with linear layers and convolutions, and runs of Python code in new processes."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np

import opsetta

if TYPE_CHECKING:
    import torch


@functools.cache
def program() -> opsetta.Program:
    """Two convolutions and two linear layers, for which onnxruntime has layouts of its own."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64)),
    )
    return opsetta.export(model.eval(), (torch.from_numpy(image()),), opset=13)


def weight(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of a shape, by default in float32. New processes import it without what tests import."""
    import torch

    values = torch.linspace(-3, 3, torch.Size(shape).numel()).sin().reshape(shape)
    return values if dtype is None else values.to(dtype)


def image() -> np.ndarray:
    return np.sin(np.linspace(-1, 1, 4 * 3 * 16 * 16, dtype=np.float32)).reshape(4, 3, 16, 16)


def run(session) -> np.ndarray:
    """The model's output for the image."""
    return session.run(None, {session.get_inputs()[0].name: image()})[0]


def in_new_process(code: str, *arguments: object, **environment: str):
    """Run Python code, and return the JSON of the last line that it prints.

    Raises:
        AssertionError: the process was killed by a signal, or failed.
    """
    root = pathlib.Path(opsetta.__file__).parent
    variables = {**os.environ, "PYTHONPATH": str(root), **environment}
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
