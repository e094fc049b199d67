"""Lists the models of a zoo without loading them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from ....registration import ModelFileError, OpsettaError
from ...files.digests import file_digest, short_digest
from ...files.small_files import reason_of


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model of a zoo.

    Attributes:
        sizes: the names of sizes that can be given: the parameters of its factory, or the named dimensions
            of its file.
        digest: changes with the files that the model comes from.
    """

    sizes: tuple[str, ...]
    digest: str


@dataclasses.dataclass(frozen=True)
class Zoo:
    """The models of a zoo by name.

    Attributes:
        path: the Python file, or the folder of ONNX files, or one such file.
        is_python: whether it is a Python file.
        imports: modules that all of its models need.
    """

    path: str
    is_python: bool
    models: Mapping[str, Entry]
    imports: tuple[str, ...] = ()


def list_onnx_files(path: str) -> Zoo:
    """The ONNX files of a folder and its folders, by their relative paths; or a single file.

    Raises:
        OpsettaError: there is no such folder or file, or no ONNX file in it.
    """
    zoo_path = pathlib.Path(path)
    files = sorted(zoo_path.rglob("*.onnx")) if zoo_path.is_dir() else [zoo_path]
    if not files:
        raise OpsettaError(f"the folder '{path}' has no .onnx file")
    root = zoo_path if zoo_path.is_dir() else zoo_path.parent
    return Zoo(path, False, {file.relative_to(root).as_posix(): _entry(file) for file in files})


def file_of(zoo: str, model: str) -> pathlib.Path:
    """The file of a model of a zoo of ONNX files."""
    zoo_path = pathlib.Path(zoo)
    return zoo_path / model if zoo_path.is_dir() else zoo_path


def digest_of(files: list[pathlib.Path]) -> str:
    """A digest of the contents of files.

    Raises:
        OpsettaError: a file cannot be read.
    """
    digests = []
    for file in files:
        try:
            digests.append(file_digest(file))
        except OSError as error:
            raise OpsettaError(f"'{file}' cannot be read: {reason_of(error)}") from error
    return short_digest(digests)


def _entry(file: pathlib.Path) -> Entry:
    """The named dimensions of a file, and its digest.

    External data may be large, so its size and modification time replace its contents.
    """
    from ...files.summary import describe_file

    digest = digest_of([file])
    try:
        description = describe_file(file, trusted=True)
    except ModelFileError:
        # The job of this file reports the error.
        return Entry((), digest)
    sizes = dict.fromkeys(
        size for value in description["inputs"] for size in value["shape"] or () if isinstance(size, str)
    )
    parts = [digest]
    for name in description["external_data"]:
        data = file.parent / name
        if data.is_file():
            status = data.stat()
            parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return Entry(tuple(sizes), short_digest(parts))
