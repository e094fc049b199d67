"""The names reserved by the source file format: domain, version and metadata keys.

`docs/source_files.md` describes the format.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from google.protobuf.message import Message

from ....registration import GraphError, ModelFileError

DOMAIN = "opsetta.source"
"""The domain in a file's opset imports; its version is that of the format."""
VERSION = 1
"""The version that is written, and the newest that is read."""
DECOMPOSITION = "opsetta.decomposition"
"""The domain of the functions that contain decompositions."""

_FORMAT_PREFIX = "opsetta.file."
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
_COMMON_FIELDS = ("name", "doc_string", "metadata_props")
_FIELDS: dict[str, frozenset[str]] = {
    "ModelProto": frozenset(
        "ir_version model_version producer_name producer_version domain doc_string "
        "graph functions opset_import metadata_props".split()
    ),
    "GraphProto": frozenset((*_COMMON_FIELDS, "node", "initializer", "input", "output", "value_info")),
    "NodeProto": frozenset(
        (*_COMMON_FIELDS, "input", "output", "op_type", "domain", "overload", "attribute")
    ),
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
_ESCAPE = "key."
"""Prefix for a user's key that begins like a reserved key."""

Entries = Sequence[onnx.StringStringEntryProto]


def write_metadata(target: Entries, metadata: Mapping[str, str], format_metadata: Mapping[str, str]) -> None:
    """Write the graph's metadata and the file's own, sorted by key."""
    entries = {_FORMAT_PREFIX + key: text for key, text in format_metadata.items()}
    for key, text in metadata.items():
        # A user's key that looks like one of the format is escaped, so that it comes back unchanged.
        entries[f"{_FORMAT_PREFIX}{_ESCAPE}{key}" if key.startswith(_FORMAT_PREFIX) else key] = text
    # The same graph gives the same bytes.
    for key in sorted(entries):
        target.add(key=key, value=entries[key])  # type: ignore[attr-defined]


def read_metadata(entries: Entries) -> tuple[dict[str, str], dict[str, str]]:
    """Return the graph's metadata, and the file's own.

    Raises:
        ModelFileError: a key is duplicated.
    """
    metadata: dict[str, str] = {}
    format_metadata: dict[str, str] = {}
    for entry in entries:
        if not entry.key.startswith(_FORMAT_PREFIX):
            target, key = metadata, entry.key
        else:
            key = entry.key.removeprefix(_FORMAT_PREFIX)
            target = metadata if key.startswith(_ESCAPE) else format_metadata
            key = key.removeprefix(_ESCAPE)
        # Which of two values holds would depend on the reader.
        if key in target:
            raise ModelFileError(f"the metadata has the key '{entry.key}' twice")
        target[key] = entry.value
    return metadata, format_metadata


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


def check_fields(message: Message) -> None:
    """Refuse fields that the format does not have, because they would be lost.

    Raises:
        ModelFileError: the message has a field that is not in the format.
    """
    message_type = message.DESCRIPTOR.name
    for field, _ in message.ListFields():
        if field.name not in _FIELDS[message_type]:
            raise ModelFileError(
                f"it has the field '{field.name}' of {message_type}, which the source format does not allow"
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


def join_quoted(names: Iterable[str]) -> str:
    """The first few names, formatted for a message."""
    all_names = list(names)
    suffix = f", and {len(all_names) - 8} more" if len(all_names) > 8 else ""
    return ", ".join(f"'{name}'" for name in all_names[:8]) + suffix
