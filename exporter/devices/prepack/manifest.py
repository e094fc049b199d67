"""`prepack.json`: the environment of packed weights, and digests of every file of the folder."""

from __future__ import annotations

import dataclasses
import pathlib

from ....registration import PrepackError
from ...files.digests import blob_digest
from ...files.small_files import open_regular
from ..file_records import FileRecord, is_beside, read_signed, sign_json
from .environment import Difference, Fingerprint

PLAIN = "model.onnx"
PACKED = "model.prepacked.onnx"
MANIFEST = "prepack.json"
FORMAT = 1
LAYOUTS = ("portable", "native")
VERIFICATIONS = ("full", "size")


@dataclasses.dataclass(frozen=True)
class PrepackStatus:
    """Whether a session uses packed weights, and the reason if it does not.

    Attributes:
        used: whether it does.
        differences: the fields of the fingerprint that differ.
        reason: why the plain weights are used; empty if the packed ones are.
        notes: differences that do not matter for the results, such as the number of threads.
    """

    used: bool
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "used" if self.used else f"fallback ({self.reason})"


@dataclasses.dataclass(frozen=True)
class Blob:
    """The packed form of one weight, bytes of the data file of `model.prepacked.onnx`.

    Attributes:
        weight: the name of the initializer.
        kernel: the kernel that packed it and onnxruntime's hash of the result, `Gemm+1546…`.
        offset, size: its bytes.
    """

    weight: str
    kernel: str
    offset: int
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of `prepack.json`.

    Attributes:
        fingerprint: the environment that packed the weights.
        layout: `"portable"`, or `"native"` if the graph itself is laid out for one processor.
        plain: the files of the portable model.
        packed: the graph with packed weights, and its data file.
        blobs: the packed weights.
    """

    fingerprint: Fingerprint
    layout: str
    plain: tuple[FileRecord, ...]
    packed: tuple[FileRecord, ...]
    blobs: tuple[Blob, ...] = ()

    def to_bytes(self) -> bytes:
        """The JSON text, with a digest of the rest as its last member."""
        return sign_json({"format": FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def from_folder(cls, folder: pathlib.Path) -> Manifest:
        """Read and check the manifest of a folder.

        Raises:
            PrepackError: it is missing, damaged, or of a later format.
        """
        path = folder / MANIFEST
        try:
            body = read_signed(path, FORMAT, PrepackError)
            plain, packed = (tuple(FileRecord(**entry) for entry in body[key]) for key in ("plain", "packed"))
            blobs = tuple(Blob(**entry) for entry in body["blobs"])
            manifest = cls(dict(body["fingerprint"]), body["layout"], plain, packed, blobs)
        except FileNotFoundError as error:
            raise PrepackError(f"there is no file '{path}'") from error
        except (ValueError, TypeError, LookupError) as error:
            raise PrepackError(f"'{path}' is damaged: {error}") from error
        if manifest.layout not in LAYOUTS or not all(map(is_beside, (*plain, *packed))):
            raise PrepackError(f"'{path}' is damaged: it names files outside of the folder")
        return manifest

    def damage(self, folder: pathlib.Path, verify: str) -> str | None:
        """Describe damage to the packed files and the affected weights; None if there is none."""
        for record in self.packed:
            problem = record.problem(folder, verify)
            if problem is not None:
                return f"{problem}{self._damaged_weights(folder, record)}"
        return None

    def _damaged_weights(self, folder: pathlib.Path, record: FileRecord) -> str:
        if record.name == PACKED or record.problem(folder, "size") is not None:
            return ""
        with open_regular(folder / record.name) as file:
            names = [
                blob.weight for blob in self.blobs if blob_digest(file, blob.offset, blob.size) != blob.sha256
            ]
        return f" (packed weights: {', '.join(names)})" if names else " (a copy of the plain weights)"
