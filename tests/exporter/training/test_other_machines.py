"""Programs of docs/training.md that train on machines without PyTorch: equal losses in all languages."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from opsetta.tests.document_programs import ROOT, run_program

PACKAGES = os.environ.get("NODE_MODULES", "")
"""The folder of packages of Node that `make toolchains` installs, onnxruntime-web among them."""


def programs(language: str) -> list[str]:
    """The programs of a language in the section on other machines."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8").partition("## On other machines")[2]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def losses(text: str) -> np.ndarray:
    return np.array([float(line) for line in text.split("\n") if re.fullmatch(r"[\d.e+-]+", line)])


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> tuple[pathlib.Path, np.ndarray]:
    """A folder with the files of the training step, and the losses in Python."""
    folder = tmp_path_factory.mktemp("training")
    text = run_program(
        "\n".join(["import numpy as np", "import torch, opsetta", *programs("python")]), folder
    )
    return folder, losses(text)


def check(text: str, expected: np.ndarray) -> None:
    assert len(expected) == 30
    np.testing.assert_allclose(losses(text), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a compiler of C++")
def test_training_in_cpp(training):
    folder, expected = training
    [program] = programs("cpp")
    (folder / "train.cpp").write_text(program)
    command = program.partition("\n")[0].removeprefix("// ")
    subprocess.run(command, shell=True, cwd=folder, check=True, timeout=120)
    done = subprocess.run(["./train"], cwd=folder, check=True, timeout=60, capture_output=True, text=True)
    check(done.stdout, expected)


@pytest.mark.skipif(
    not pathlib.Path(PACKAGES, "onnxruntime-web").is_dir(), reason="needs onnxruntime-web in NODE_MODULES"
)
def test_training_in_javascript(training):
    folder, expected = training
    [program] = programs("javascript")
    (folder / "train.js").write_text(program)
    done = subprocess.run(
        ["node", "train.js"],
        cwd=folder,
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
        env={**os.environ, "NODE_PATH": PACKAGES},
    )
    check(done.stdout, expected)
