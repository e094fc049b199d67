"""The names reserved by the source file format: domain, version and metadata keys.

`docs/source_files.md` describes the format.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from ....registration import GraphError, ModelFileError

DOMAIN = "opsetta.source"
"""The domain in a file's opset imports; its version is that of the format."""
VERSION = 1
"""The version that is written, and the newest that is read."""
DECOMPOSITION = "opsetta.decomposition"
"""The domain of the functions that contain decompositions."""

_OWN = "opsetta.file."
INTERFACE = "interface"
"""On the model: how calls map to inputs and outputs."""
NAME = "name"
"""On values and nodes whose name the file cannot store directly: the name, as JSON."""
DIGEST = "sha256"
"""On omitted weights: the SHA-256 of their bytes."""
FLOATS = "floats"
"""On nodes: float attributes in double precision, by name, as hexadecimal bits."""
OPERATOR_VERSION = "operator_version"
"""On nodes: the version of the operator, if the node states one."""
SERVES = "serves"
"""On decompositions: the nodes and opsets that they are for."""
_DESCRIBED = ("name", "doc_string", "metadata_props")
_FIELDS: dict[str, frozenset[str]] = {
    "ModelProto": frozenset(
        "ir_version model_version producer_name producer_version domain doc_string "
        "graph functions opset_import metadata_props".split()
    ),
    "GraphProto": frozenset((*_DESCRIBED, "node", "initializer", "input", "output", "value_info")),
    "NodeProto": frozenset((*_DESCRIBED, "input", "output", "op_type", "domain", "overload", "attribute")),
    "AttributeProto": frozenset(
        "name doc_string type f i s t g tp floats ints strings tensors graphs type_protos".split()
    ),
    "TensorProto": frozenset(
        "name dims data_type raw_data string_data float_data double_data int32_data int64_data uint64_data "
        "external_data data_location".split()
    ),
    "FunctionProto": frozenset(("name", "domain", "opset_import", "node", "metadata_props")),
}
"""The fields that the format uses, by message."""
_ESCAPED = "key."
"""Prefix for a user's key that begins like a reserved key."""

Entries = Sequence[onnx.StringStringEntryProto]


def write_metadata(target: Entries, metadata: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Write the graph's metadata and the file's own, sorted by key."""
    entries = {_OWN + key: text for key, text in own.items()}
    for key, text in metadata.items():
        entries[f"{_OWN}{_ESCAPED}{key}" if key.startswith(_OWN) else key] = text
    for key in sorted(entries):
        target.add(key=key, value=entries[key])  # type: ignore[attr-defined]


def read_metadata(entries: Entries) -> tuple[dict[str, str], dict[str, str]]:
    """Return the graph's metadata, and the file's own.

    Raises:
        ModelFileError: a key is duplicated.
    """
    metadata: dict[str, str] = {}
    own: dict[str, str] = {}
    for entry in entries:
        if not entry.key.startswith(_OWN):
            target, key = metadata, entry.key
        else:
            key = entry.key.removeprefix(_OWN)
            target = metadata if key.startswith(_ESCAPED) else own
            key = key.removeprefix(_ESCAPED)
        if key in target:
            raise ModelFileError(f"the metadata has the key '{entry.key}' twice")
        target[key] = entry.value
    return metadata, own


def format_version(model: onnx.ModelProto) -> int | None:
    """The version of the source format of a model; None if it is not a source file."""
    return next((entry.version for entry in model.opset_import if entry.domain == DOMAIN), None)


def check_version(model: onnx.ModelProto) -> None:
    """Refuse files that this release cannot read.

    Raises:
        ModelFileError: the model is not a source file, or has a newer format.
    """
    version = format_version(model)
    if version is None:
        raise ModelFileError(f"it is not a source file: it does not import '{DOMAIN}'")
    if not 1 <= version <= VERSION:
        raise ModelFileError(
            f"it has version {version} of the source format, but this release of opsetta reads up to "
            f"{VERSION}: install a newer release"
        )


def check_fields(message: Any) -> None:
    """Refuse fields that the format does not have, because they would be lost.

    Raises:
        ModelFileError: the message has a field that is not in the format.
    """
    kind = message.DESCRIPTOR.name
    for field, _ in message.ListFields():
        if field.name not in _FIELDS[kind]:
            raise ModelFileError(
                f"it has the field '{field.name}' of {kind}, which the source format does not allow"
            )


@contextlib.contextmanager
def naming(subject: str) -> Iterator[None]:
    """Convert errors to a `ModelFileError` that names the part of the graph."""
    try:
        yield
    except (ModelFileError, GraphError):
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ModelFileError(f"{subject}: {type(error).__name__}: {error}") from error


def quoted(names: Iterable[str]) -> str:
    """The first few names, formatted for a message."""
    shown = list(names)
    rest = f", and {len(shown) - 8} more" if len(shown) > 8 else ""
    return ", ".join(f"'{name}'" for name in shown[:8]) + rest
