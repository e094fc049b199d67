"""The names that a source file uses for itself: its domain and version, and the metadata that is its own.

`docs/source_files.md` describes the format.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from ....registration import GraphError, ModelFileError

DOMAIN = "opsetta.source"
"""Stands among a file's opset imports, with the version of the format."""
VERSION = 1
"""The newest format that is read, and the one that is written."""
DECOMPOSITION = "opsetta.decomposition"
"""Domain of the functions that hold decompositions."""

_OWN = "opsetta.file."
INTERFACE = "interface"
"""On the model: how calls map onto inputs and outputs."""
NAME = "name"
"""On values and nodes whose name cannot stand in the file: the name, as JSON."""
DIGEST = "sha256"
"""On weights that are not in the file: the SHA-256 of their bytes."""
FLOATS = "floats"
"""On nodes: float attributes as the doubles that they are, their bits in hexadecimal by name."""
OPERATOR_VERSION = "operator_version"
"""On nodes: the version of the operator, where the node has one of its own."""
SERVES = "serves"
"""On decompositions: which nodes they serve, at which opsets."""
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
"""The fields of each message that the format has."""
_ESCAPED = "key."
"""Before a key of the user's that begins as the file's own do."""

Entries = Sequence[onnx.StringStringEntryProto]


def write_metadata(target: Entries, metadata: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Write what a graph carries, and beside it what the file needs, sorted by key."""
    entries = {_OWN + key: text for key, text in own.items()}
    for key, text in metadata.items():
        entries[f"{_OWN}{_ESCAPED}{key}" if key.startswith(_OWN) else key] = text
    for key in sorted(entries):
        target.add(key=key, value=entries[key])  # type: ignore[attr-defined]


def read_metadata(entries: Entries) -> tuple[dict[str, str], dict[str, str]]:
    """What the graph carries, and what is the file's own.

    Raises:
        ModelFileError: a key stands twice.
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
    """The version of the source format that a model has, None where it is no source file."""
    return next((entry.version for entry in model.opset_import if entry.domain == DOMAIN), None)


def check_version(model: onnx.ModelProto) -> None:
    """Refuse what this release does not read.

    Raises:
        ModelFileError: the model is no source file, or one of a newer format.
    """
    version = format_version(model)
    if version is None:
        raise ModelFileError(f"it is not a source file: it does not import '{DOMAIN}'")
    if not 1 <= version <= VERSION:
        raise ModelFileError(
            f"it has version {version} of the source format, and this release of opsetta reads up to "
            f"{VERSION}: install a newer one"
        )


def check_fields(message: Any) -> None:
    """Refuse what the format does not have, for it would be lost.

    Raises:
        ModelFileError: a field of the message is none of the format's.
    """
    kind = message.DESCRIPTOR.name
    for field, _ in message.ListFields():
        if field.name not in _FIELDS[kind]:
            raise ModelFileError(
                f"it has the field '{field.name}' of {kind}, which the source format does not"
            )


@contextlib.contextmanager
def naming(subject: str) -> Iterator[None]:
    """Say which part of a graph a protobuf message cannot hold, or does not hold as it should."""
    try:
        yield
    except (ModelFileError, GraphError):
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ModelFileError(f"{subject}: {type(error).__name__}: {error}") from error


def quoted(names: Iterable[str]) -> str:
    """Names for a message, the first few of them."""
    shown = list(names)
    rest = f", and {len(shown) - 8} more" if len(shown) > 8 else ""
    return ", ".join(f"'{name}'" for name in shown[:8]) + rest
