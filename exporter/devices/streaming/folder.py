"""Writes and reads a folder for streaming: a model with page-aligned weights, and an index of them.

`model.onnx` is a valid model with external data. `streaming.json` lists the name, offset, size and SHA-256 of
every weight in the data file, in the order of use.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

import onnx
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from ...files import writing
from ...files.digests import blob_digest
from ...files.output.output_paths import folder_of, unwritable
from ...files.output.publishing import publish
from ...files.small_files import open_regular
from ..file_records import FileRecord, is_beside, read_signed, sign_json
from .mapped_weights import PAGE
from .preparation import prepare_for_streaming

MODEL = "model.onnx"
INDEX = "streaming.json"
FORMAT = 1
VERIFICATIONS = ("full", "size")


@dataclasses.dataclass(frozen=True)
class WeightRecord:
    """A weight: its position in the data file in bytes, and the SHA-256 of its bytes."""

    name: str
    offset: int
    size: int
    sha256: str

    def is_valid(self) -> bool:
        """Whether the fields, which come from a file, have valid types and values."""
        numbers = [self.offset, self.size]
        return isinstance(self.name, str) and all(isinstance(n, int) and 0 <= n < 2**63 for n in numbers)


@dataclasses.dataclass(frozen=True)
class Index:
    """The contents of `streaming.json`.

    Attributes:
        model: the file of the graph.
        data: the name of the data file; "" if there are no large weights.
        size: the bytes of the data file.
        alignment: offsets of weights are multiples of this many bytes.
        weights: the large weights, in the order of use.
    """

    model: FileRecord
    data: str
    size: int
    alignment: int
    weights: tuple[WeightRecord, ...]

    def to_bytes(self) -> bytes:
        """Write the index as signed JSON; see `sign_json`."""
        return sign_json({"format": FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def from_folder(cls, folder: pathlib.Path) -> Index:
        """Read and check the index of a folder.

        Raises:
            ModelFileError: the index is missing, damaged, or of another format.
        """
        path = folder / INDEX
        try:
            body = read_signed(path, FORMAT, ModelFileError)
            weights = tuple(WeightRecord(**entry) for entry in body["weights"])
            model = FileRecord(**body["model"])
            index = cls(model, body["data"], body["size"], body["alignment"], weights)
            if not all(map(WeightRecord.is_valid, weights)):
                raise ValueError("a weight has no place in the data file")
        except FileNotFoundError as error:
            raise ModelFileError(
                f"'{folder}' is not the folder of a streamed model: it has no '{INDEX}'. Write one with "
                "opsetta stream MODEL -o FOLDER"
            ) from error
        except (ValueError, TypeError, LookupError) as error:
            raise ModelFileError(f"'{path}' is damaged: {error}") from error
        # An untrusted index must not refer to files outside of its folder.
        if not is_beside(model) or (index.data and not is_beside(FileRecord(index.data, index.size, ""))):
            raise ModelFileError(f"'{path}' is damaged: it names files outside of the folder")
        return index

    def check(self, folder: pathlib.Path, verify: str) -> None:
        """Compare the files of the folder with the index.

        Args:
            verify: `"full"` compares the SHA-256 of the graph and of every weight, `"size"` only sizes.

        Raises:
            ModelFileError: a file is missing, has another size, or other contents.
        """
        problem = self.model.problem(folder, verify)
        if problem is not None:
            raise ModelFileError(f"{problem}: write the folder '{folder}' again")
        if not self.data:
            return
        data = FileRecord(self.data, self.size, "")
        problem = data.problem(folder, "size")
        if problem is None and verify == "full":
            problem = self._find_changed_weight(folder)
        if problem is not None:
            raise ModelFileError(f"{problem}: write the folder '{folder}' again")

    def _find_changed_weight(self, folder: pathlib.Path) -> str | None:
        """Describe the first weight whose contents changed; None if none did."""
        try:
            with open_regular(folder / self.data) as file:
                for weight in self.weights:
                    if blob_digest(file, weight.offset, weight.size) != weight.sha256:
                        where = f"weight '{weight.name}' in '{self.data}'"
                        return f"{where} does not have the contents that were saved"
        except OSError as error:
            return f"'{self.data}' cannot be read: {error.strerror}"
        return None


def save_streaming(model: object, folder: str | bytes | os.PathLike[str]) -> None:
    """Write a model into a folder for streaming.

    Args:
        model: a `Program`, an `OnnxModel`, or an `onnx_ir.Model`, which is not changed.
        folder: the folder; it is created if it does not exist.

    Raises:
        UsageError: `model` or `folder` has a wrong type.
        ModelFileError: the folder cannot be written.
    """
    graph = graph_of(model)
    if not isinstance(folder, (str, bytes, os.PathLike)):
        raise UsageError(f"folder must be a path, not {type(folder).__name__}")
    folder_path = folder_of(folder)
    try:
        # The old index is removed first, so that no reader uses it with new weights.
        (folder_path / INDEX).unlink(missing_ok=True)
        writing.save(
            prepare_for_streaming(graph, stored=True), folder_path / MODEL, external_data=True, alignment=PAGE
        )
        index = _index(folder_path)
        publish(folder_path / INDEX, lambda file, _: file.write(index.to_bytes()))
    except (OSError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise unwritable(str(folder_path), error) from error


def graph_of(model: object) -> ir.Model:
    """Return the ONNX model of a program, or the model itself.

    Raises:
        UsageError: the object is neither.
    """
    onnx_model = getattr(model, "model", model)
    if not isinstance(onnx_model, ir.Model):
        raise UsageError(
            f"the model must be a Program, an OnnxModel or a file, not a {type(model).__name__}: export or "
            "lower it first"
        )
    return onnx_model


def _index(folder: pathlib.Path) -> Index:
    """Make the index of newly written files."""
    proto = onnx.load(os.fspath(folder / MODEL), load_external_data=False)
    stored_weights = [
        (tensor.name, {entry.key: entry.value for entry in tensor.external_data})
        for tensor in proto.graph.initializer
        if tensor.external_data
    ]
    record = FileRecord.of(folder, MODEL)
    if not stored_weights:
        return Index(record, "", 0, PAGE, ())
    data = stored_weights[0][1]["location"]
    with open(folder / data, "rb") as file:
        weights = []
        for name, location in stored_weights:
            offset, size = int(location["offset"]), int(location["length"])
            weights.append(WeightRecord(name, offset, size, blob_digest(file, offset, size)))
    return Index(record, data, (folder / data).stat().st_size, PAGE, tuple(weights))
