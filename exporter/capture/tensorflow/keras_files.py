"""Reads Keras files (`.keras`, `.h5`): Keras itself, in a process of its own, writes them as a SavedModel.

Only Keras knows what the layers of a configuration compute. The process keeps TensorFlow out of this one, and
uses TensorFlow as the backend, because only it writes a SavedModel. Keras loads in its safe mode, which
refuses Python code in the file.
"""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from ....registration import ModelFileError
from ...files.reading.encodings.other_formats import describe_format

_TIMEOUT = 1800
"""Seconds after which the process is ended."""
_MAXIMUM_TEXT = 2000
_SCRIPT = """
import sys
path, folder, package = sys.argv[1:]
if package == "tf_keras":
    import tf_keras as keras
else:
    import keras
model = keras.models.load_model(path, compile=False, safe_mode=True)
if package == "tf_keras":
    model.export(folder)
else:
    model.export(folder, format="tf_saved_model", verbose=False)
"""
_PACKAGES = ("keras", "tf_keras")
"""Keras 3, and Keras 2 for the files that only it reads."""
_BEGINNINGS = ("a Keras model", "an HDF5 file")


def is_keras_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a Keras model that Keras can read here, because it is installed with TensorFlow."""
    description = describe_format(path)
    return description is not None and description.startswith(_BEGINNINGS) and bool(_installed_packages())


def _installed_packages() -> list[str]:
    if importlib.util.find_spec("tensorflow") is None:
        return []
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is not None]


@contextlib.contextmanager
def export_keras_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Export a Keras file as a SavedModel, to a temporary folder that is removed after the context.

    Raises:
        ModelFileError: Keras cannot read the file, or cannot write the model as a SavedModel.
    """
    with tempfile.TemporaryDirectory(prefix="opsetta-keras-") as name:
        folder = pathlib.Path(name) / "saved_model"
        problems: list[str] = []
        # Keras 3 refuses many files of Keras 2, so the older package is tried after it.
        for package in _installed_packages():
            problem = _run_keras(os.path.abspath(os.fsdecode(path)), folder, package, name)
            if problem is None:
                break
            problems.append(f"{package}: {problem}")
        else:
            raise ModelFileError(f"'{os.fsdecode(path)}' cannot be read by Keras: {'; '.join(problems)}")
        yield folder


def _run_keras(path: str, folder: pathlib.Path, package: str, work_folder: str) -> str | None:
    """Let Keras write the SavedModel; return why it cannot, or None."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        # The export needs no GPU, whose memory TensorFlow would reserve.
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    # In the working folder, no file of the user has the name of a module.
    try:
        result = subprocess.run(
            [sys.executable, "-c", _SCRIPT, path, str(folder), package],
            cwd=work_folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it needs more than {_TIMEOUT} seconds"
    if result.returncode == 0 and (folder / "saved_model.pb").is_file():
        return None
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return (lines[-1] if lines else f"it ended with status {result.returncode}")[:_MAXIMUM_TEXT]
