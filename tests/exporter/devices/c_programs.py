"""The runtime in C, compiled once in each test process: all applications have the same sources."""

import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import torch

import opsetta
from opsetta.exporter.devices.plan.c_program.application import SOURCES

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler `cc`")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O0", "-fsanitize=address,undefined")


def compile_runner(folder: pathlib.Path) -> pathlib.Path:
    """Compile the sources of an application with warnings as errors; the program lies beside them."""
    opsetta.export(torch.nn.ReLU().eval(), (torch.ones(2),)).plan().build(folder)
    sources = [str(folder / name) for name in SOURCES if name.endswith(".c")]
    command = [COMPILER, *FLAGS, "-o", str(folder / "runner"), *sources, "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return folder / "runner"


def run(runner, folder, feed, outputs):
    """The outputs of the program as arrays like the given ones."""
    inputs = [folder / f"input{number}.bin" for number in range(len(feed))]
    for path, array in zip(inputs, feed, strict=True):
        path.write_bytes(array.tobytes())
    paths = [folder / f"output{number}.bin" for number in range(len(outputs))]
    files = [folder / "model.plan", folder / "model.weights", *inputs, *paths]
    subprocess.run([str(runner), *map(str, files)], check=True, timeout=60)
    return [
        np.frombuffer(path.read_bytes(), array.dtype).reshape(array.shape)
        for path, array in zip(paths, outputs, strict=True)
    ]
