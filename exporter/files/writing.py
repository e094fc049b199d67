"""Writes a model, with weights in the file or as external data beside it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import IO, Any

import onnx_ir as ir

from ...registration import ModelFileError
from .output.output_paths import Stream, reason, resolve
from .output.publishing import ALIGNMENT, DataFile, publish
from .reading.carried import carried_by, to_proto
from .reading.external_data.prepacked import NATIVE_DOMAIN, format_entry
from .referencing import Reference, check_mode, references
from .weights.message import EXCLUSIVE, Message

INLINE_LIMIT = 2_000_000_000
"""Messages of at least this many bytes use external data; protobuf's own limit is 2 GiB."""
_EXTERNAL_FROM = 1025
"""Tensors of at least this many bytes go to external data."""

Path = str | bytes | os.PathLike[str]


def to_bytes(model: ir.Model) -> bytes | None:
    """Serialize the model as one protobuf message with weights; None if it is too large."""
    message = Message.of(model)
    if message.size > INLINE_LIMIT:
        return None
    buffer = io.BytesIO()
    message.write(buffer)
    return buffer.getvalue()


def message_if_it_fits(message: Message, remedy: str) -> Message:
    """The message, if it fits into a file.

    Raises:
        ModelFileError: it does not fit; the error says what to do instead.
    """
    if message.size > INLINE_LIMIT:
        raise ModelFileError(f"{message.size} bytes do not fit into one protobuf message; {remedy}")
    return message


def save(
    model: ir.Model,
    target: Path | IO[bytes],
    *,
    external_data: bool | str | os.PathLike[str] | None = None,
    weights: str = "copy",
    alignment: int = ALIGNMENT,
) -> None:
    """Write a model.

    Args:
        target: a path, or a binary file object. Devices, FIFOs and `/dev/stdout` are written to directly.
        external_data: True puts weights into `<name>.<digest>.data` beside the file, a file name into a file
            of that name; False keeps them in the file; None decides by size (2 GB).
        weights: `"reference"` refers to weights that are in files already, and treats only the others as
            `external_data` says, where None is True.
        alignment: weights in external data begin at multiples of this many bytes.

    Raises:
        ModelFileError: the target cannot be written. No partial file remains, and an existing model stays.
    """
    _check_portable(model)
    check_mode(weights)
    name = _data_name(external_data)
    by_reference = weights == "reference"
    external = name is not None or bool(external_data) or by_reference
    if not isinstance(target, (str, bytes, os.PathLike)):
        if external:
            raise ModelFileError("external data needs a path: a file object has no folder to put it in")
        write_to_object(target, lambda file: message_if_it_fits(Message.of(model), _REMEDY).write(file))
        return
    message = None if external else Message.of(model)
    # Decide by the size of the message, which is known without serializing the weights.
    if external_data is None and message is not None and message.size > INLINE_LIMIT:
        message = None
    if message is not None:
        whole = message_if_it_fits(message, _REMEDY)
        publish(target, lambda file, location: whole.write(file))
        return
    packed = carried_by(model).packed
    existing: dict[ir.Value, Reference] = {}
    if by_reference:
        with EXCLUSIVE:
            weight_tensors = [(v, v.const_value) for v in _initializers(model) if v.name not in packed]
        existing = references(weight_tensors, resolve(target), _EXTERNAL_FROM, name)
    offsets: dict[ir.Value, int] = {}
    entries: dict[str, dict[str, str]] = {}

    streamed = [(value, tensor) for value, tensor in _external_weights(model) if value not in existing]

    def stream(data: DataFile) -> None:
        for value, tensor in streamed:
            offsets[value] = data.append(tensor)
        for name, forms in packed.items():
            entries[name] = {
                key: format_entry(
                    (kernel, data.append(content), content.nbytes) for kernel, content in buffers
                )
                for key, buffers in forms.items()
            }

    def write(file: IO[bytes], location: str | None) -> None:
        new_references = {
            value: Reference(location, offset) for value, offset in offsets.items() if location is not None
        }
        with _replace_by_references(model, existing | new_references):
            proto = to_proto(model)
        for tensor in proto.graph.initializer:
            if tensor.external_data:
                for key, text in entries.get(tensor.name, {}).items():
                    tensor.external_data.add(key=key, value=text)
        graph = Message(proto, [])
        message_if_it_fits(graph, "and no weights of it can go to external data").write(file)

    # Weights in other files stay there; False keeps only the others in the graph.
    kept_inside = by_reference and external_data is False
    publish(
        target,
        write,
        weights=None if kept_inside else stream,
        weight_bytes=sum(tensor.nbytes for _, tensor in streamed),
        data_name=name,
        alignment=alignment,
    )


_REMEDY = "save to a file with external_data=True"


def _check_portable(model: ir.Model) -> None:
    """Refuse a graph that onnxruntime optimized for one processor, because others compute wrong results."""
    if NATIVE_DOMAIN in model.opset_imports:
        for graph in model.graphs():
            if any(node.domain == NATIVE_DOMAIN for node in graph):
                raise ModelFileError(
                    f"the model has operators of {NATIVE_DOMAIN}, which onnxruntime wrote for one "
                    "processor: start from the model before that optimization"
                )


def _data_name(external_data: bool | str | os.PathLike[str] | None) -> str | None:
    if external_data is None or isinstance(external_data, bool):
        return None
    if not isinstance(external_data, (str, os.PathLike)):
        type_name = type(external_data).__name__
        raise ModelFileError(
            f"external_data must be True, False, None or the name of a file, not a {type_name}"
        )
    return os.fsdecode(external_data)


def write_to_object(target: Any, write: Any) -> None:
    """Write to the caller's file object, or to a `Stream`, whose owner handles errors.

    Raises:
        ModelFileError: it is not a file object, is open for text, or cannot be written.
    """
    if isinstance(target, Stream):
        write(target)
        return
    if not hasattr(target, "write"):
        raise ModelFileError(
            f"a model is saved to a path or a binary file object, not {type(target).__name__}"
        )
    if isinstance(target, io.TextIOBase):
        raise ModelFileError("the file object is open for text; open it in binary mode, open(path, 'wb')")
    try:
        seekable = getattr(target, "seekable", None)
        # A raw file may write fewer bytes than requested, and a pipe has no position for `tofile`.
        if isinstance(target, io.RawIOBase) or (seekable is not None and not seekable()):
            write(Stream(target.write))
        else:
            write(target)
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        raise ModelFileError(f"the file object cannot be written: {reason(error)}") from error


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.initializers.values()


def _external_weights(model: ir.Model) -> list[tuple[ir.Value, ir.TensorProtocol]]:
    """The weights that go to external data."""
    # Another thread may be saving the model, and has taken its initializers out in the meantime.
    with EXCLUSIVE:
        weights = [(value, value.const_value) for value in _initializers(model)]
    return [
        (value, tensor)
        for value, tensor in weights
        if tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes >= _EXTERNAL_FROM
    ]


@contextlib.contextmanager
def _replace_by_references(model: ir.Model, reference_by_value: dict[ir.Value, Reference]) -> Iterator[None]:
    """The model with references to data files instead of the weights in them."""
    with EXCLUSIVE:
        original_tensors = [(value, value.const_value) for value in _initializers(model)]
        try:
            for value, tensor in original_tensors:
                if tensor is None:
                    continue
                if value in reference_by_value:
                    value.const_value = ir.ExternalTensor(
                        reference_by_value[value].location,
                        reference_by_value[value].offset,
                        tensor.nbytes,
                        tensor.dtype,
                        shape=ir.Shape(tensor.shape.numpy()),
                        name=str(value.name),
                    )
                elif isinstance(tensor, ir.ExternalTensor):
                    # A tensor from another model's external data is not beside the written file.
                    value.const_value = ir.Tensor(
                        tensor.numpy(), tensor.dtype, shape=tensor.shape, name=tensor.name
                    )
            yield
        finally:
            for value, tensor in original_tensors:
                value.const_value = tensor
