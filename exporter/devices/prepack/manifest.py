"""Reads and writes `prepack.json`: the environment of packed weights, and the digests of all files."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from ....registration import PrepackError
from ...files.digests import blob_digest, file_digest
from ...files.small_files import open_regular
from ..file_records import FileRecord, is_beside, read_signed, sign_json
from .environment import Difference, Fingerprint

PLAIN = "model.onnx"
PACKED = "model.prepacked.onnx"
MANIFEST = "prepack.json"
VERIFIED = "prepack.verified.json"
UNPACKED = "prepack.unpacked.json"
C_HEADER = "opsetta_prepack.h"
"""The C header, beside this module, with which programs in C check a folder."""
FORMAT = 2
LAYOUTS = ("portable", "native")
VERIFICATIONS = ("full", "size")
PROVIDERS = ("CPUExecutionProvider",)


@dataclasses.dataclass(frozen=True)
class PrepackStatus:
    """Tells whether a session uses packed weights, and if not, why.

    Attributes:
        used: whether the session uses packed weights.
        differences: the fields of the fingerprint that differ.
        reason: why the plain weights are used; "" if the packed ones are.
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
    """The position of a weight, packed or plain, in the data file of `model.prepacked.onnx`.

    Attributes:
        weight: the name of the initializer.
        kernel: the kernel that packed the weight and onnxruntime's hash of the result, `Gemm+1546…`; "" for
            a plain weight.
        offset, size: the position in the data file, in bytes.
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
        layout: `"portable"`, or `"native"` if the graph itself is changed for one processor.
        plain: the files of the portable model, except a data file that it shares with the packed model.
        packed: the files of the model with packed weights: the graph, and its data file.
        blobs: the packed weights.
        shared: the plain weights that the portable model reads from the data file of the packed model.
    """

    fingerprint: Fingerprint
    layout: str
    plain: tuple[FileRecord, ...]
    packed: tuple[FileRecord, ...]
    blobs: tuple[Blob, ...] = ()
    shared: tuple[Blob, ...] = ()

    def to_bytes(self) -> bytes:
        """Write the manifest as signed JSON; see `sign_json`."""
        return sign_json({"format": FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def from_folder(cls, folder: pathlib.Path) -> Manifest:
        """Read and check the manifest of a folder.

        Raises:
            PrepackError: the manifest is missing, damaged, or of another format.
        """
        path = folder / MANIFEST
        try:
            body = read_signed(path, FORMAT, PrepackError)
            plain, packed = (tuple(FileRecord(**entry) for entry in body[key]) for key in ("plain", "packed"))
            blobs, shared = (tuple(Blob(**entry) for entry in body[key]) for key in ("blobs", "shared"))
            manifest = cls(dict(body["fingerprint"]), body["layout"], plain, packed, blobs, shared)
        except FileNotFoundError as error:
            raise PrepackError(f"there is no file '{path}'") from error
        except (ValueError, TypeError, LookupError) as error:
            raise PrepackError(f"'{path}' is damaged: {error}") from error
        if manifest.layout not in LAYOUTS or not all(map(is_beside, (*plain, *packed))):
            raise PrepackError(f"'{path}' is damaged: it names files outside of the folder")
        for name, records in ((PLAIN, plain), (PACKED, packed)):
            if name not in {record.name for record in records}:
                raise PrepackError(f"'{path}' is damaged: it does not list '{name}'")
        # A native graph may have no packed weights, because its weights themselves are changed.
        if not blobs and manifest.layout == "portable":
            raise PrepackError(f"'{path}' is damaged: it lists no packed weights")
        return manifest

    def damage(
        self, folder: pathlib.Path, verify: str, digest_of: Callable[[pathlib.Path], str] = file_digest
    ) -> str | None:
        """Describe damage to the packed files, with the affected weights; None if there is no damage.

        Raises:
            PrepackError: the damage affects weights that the portable model reads too.
        """
        for record in self.packed:
            problem = record.problem(folder, verify, digest_of)
            if problem is None:
                continue
            if record.name == PACKED:
                return problem
            if record.problem(folder, "size") is not None:
                if self.shared:
                    raise PrepackError(f"{problem}; '{PLAIN}' reads it too: save it again")
                return problem
            with open_regular(folder / record.name) as file:
                packed, plain = (
                    [
                        blob.weight
                        for blob in blobs
                        if blob_digest(file, blob.offset, blob.size) != blob.sha256
                    ]
                    for blobs in (self.blobs, self.shared)
                )
            if plain:
                raise PrepackError(f"{problem} (weights of '{PLAIN}': {', '.join(plain)}): save it again")
            return f"{problem} (packed weights: {', '.join(packed)})" if packed else problem
        return None
