"""Keras files, read through Keras: a package that stands in for it writes a SavedModel."""

import pathlib
import zipfile

import numpy as np
import pytest

import opsetta

from .graph_files import SAVED_MODELS

_KERAS = f"""
import shutil


class models:
    @staticmethod
    def load_model(path, compile, safe_mode):
        assert safe_mode and not compile
        if "damaged" in path:
            raise ValueError("No model config found in the file.")
        return Model()


class Model:
    def export(self, folder, format, verbose):
        assert format == "tf_saved_model"
        shutil.copytree({str(SAVED_MODELS / "objects")!r}, folder)
"""


def _keras_file(path: pathlib.Path) -> pathlib.Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("metadata.json", "{}")
    return path


@pytest.fixture
def installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras and TensorFlow are installed."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "keras.py").write_text(_KERAS)
    (packages / "tensorflow.py").write_text("")
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("PYTHONPATH", str(packages))


@pytest.mark.usefixtures("installed")
def test_keras_files_are_read_as_saved_models(tmp_path: pathlib.Path):
    (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for path in (_keras_file(tmp_path / "model.keras"), tmp_path / "model.h5"):
        program = opsetta.load(path).lower(13)
        assert program.input_names == ["x"]
        results = dict(zip(program.output_names, program(np.float32([[1, 2, 3]])), strict=True))
        np.testing.assert_array_equal(results["scaled"], [[1, 4, 9]])


@pytest.mark.usefixtures("installed")
def test_the_reason_of_keras_is_in_the_error(tmp_path: pathlib.Path):
    path = _keras_file(tmp_path / "damaged.keras")
    with pytest.raises(opsetta.ModelFileError, match="by Keras: keras: ValueError: No model config found"):
        opsetta.load(path)


@pytest.mark.usefixtures("installed")
def test_a_signature_of_the_saved_model_is_chosen(tmp_path: pathlib.Path):
    program = opsetta.load(_keras_file(tmp_path / "model.keras"), signature="shifted").lower(13)
    assert program.input_names == ["shift"]


def test_without_keras_the_error_says_what_to_install(tmp_path: pathlib.Path):
    with pytest.raises(opsetta.ModelFileError, match=r"a Keras model \(.keras\): install `opsetta\[keras\]`"):
        opsetta.load(_keras_file(tmp_path / "model.keras"))
