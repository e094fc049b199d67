"""Converts contents of initializers to `TensorProto` and back."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from ....registration import ModelFileError
from ....registration.inference.tensor_sizes import packed_bytes
from ..reading.external_data.files import ExternalFiles
from ..weights.stored_tensors import tensor_over
from ..weights.tensor_writer import Bytes
from .layout import check_fields, naming

EXTERNAL_FROM = 1025
"""Tensors of at least this many bytes go to external data."""


def contents(value: ir.Value) -> ir.TensorProtocol:
    """The tensor of an initializer.

    Raises:
        ModelFileError: the initializer has no tensor.
    """
    if value.const_value is None:
        raise ModelFileError(f"initializer '{value.name}' has no data")
    return value.const_value


def tensor_header(value: ir.Value, name: str) -> onnx.TensorProto:
    """Name, element type and sizes of an initializer."""
    tensor = contents(value)
    with naming(f"initializer '{value.name}'"):
        return onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())


def tensor_message(value: ir.Value, name: str) -> onnx.TensorProto:
    """An initializer with its contents."""
    message, tensor = tensor_header(value, name), contents(value)
    if tensor.dtype == ir.DataType.STRING:
        message.string_data.extend(strings(tensor))
    else:
        message.raw_data = tensor.tobytes()
    return message


def strings(tensor: ir.TensorProtocol) -> list[bytes]:
    """The elements of a string tensor."""
    return [item if isinstance(item, bytes) else str(item).encode() for item in tensor.numpy().reshape(-1)]


class _Digest:
    """A file object that only hashes the bytes written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, data: Bytes) -> None:
        if len(data):
            self.hash.update(np.frombuffer(data, np.uint8).data)


def digest(tensor: ir.TensorProtocol) -> str:
    """The SHA-256 of a tensor's bytes, in the little-endian order of the file."""
    sink = _Digest()
    if tensor.dtype == ir.DataType.STRING:
        for item in strings(tensor):
            # The length separates the strings: ["ab", "c"] and ["a", "bc"] have different digests.
            sink.write(len(item).to_bytes(8, "little") + item)
    else:
        tensor.tofile(sink)  # type: ignore[attr-defined]
    return sink.hash.hexdigest()


def tensor_of(message: onnx.TensorProto) -> ir.TensorProtocol:
    """The tensor of a message that contains its data.

    Raises:
        ModelFileError: the type is unknown, or the contents do not fit the sizes.
    """
    with naming(f"tensor '{message.name}'"):
        shape, dtype = _read_declaration(message)
        if dtype == ir.DataType.STRING:
            texts = list(message.string_data)
            if len(texts) != math.prod(shape):
                raise ModelFileError(
                    f"tensor '{message.name}' has {len(texts)} strings for the sizes {shape}"
                )
            return ir.StringTensor(texts, shape=ir.Shape(shape), name=message.name)
        if message.HasField("raw_data"):
            data = np.frombuffer(message.raw_data, np.uint8)
            expected_size = packed_bytes(dtype, math.prod(shape))
            if data.size != expected_size:
                raise ModelFileError(
                    f"tensor '{message.name}' has {data.size} bytes, but {dtype.name}{shape} needs "
                    f"{expected_size}"
                )
            return tensor_over(data, message.name, dtype, shape)
        array = serde.deserialize_tensor(message).numpy()
        return ir.Tensor(array, dtype=dtype, name=message.name)


def external_tensor(message: onnx.TensorProto, files: ExternalFiles) -> ir.TensorProtocol:
    """The tensor of a message with external data; the file is mapped, not read.

    Raises:
        ModelFileError: the data file is outside the folder, missing, or too short.
    """
    title = f"tensor '{message.name}'"
    with naming(title):
        shape, dtype = _read_declaration(message)
        expected_size = packed_bytes(dtype, math.prod(shape))
        # Check before mapping: the check opens no file.
        files.check(message, expected_size, title)
        if not expected_size:
            return tensor_over(np.empty(0, np.uint8), message.name, dtype, shape)
        entries = {entry.key: entry.value for entry in message.external_data}
        offset = int(entries.get("offset", 0))
        return files.tensor(entries["location"], offset, dtype, shape, message.name, title)


def _read_declaration(message: onnx.TensorProto) -> tuple[list[int], ir.DataType]:
    check_fields(message)
    shape = list(message.dims)
    if any(size < 0 for size in shape):
        raise ModelFileError(f"tensor '{message.name}' has the invalid shape {shape}")
    dtype = ir.DataType(message.data_type)
    if dtype == ir.DataType.UNDEFINED:
        raise ModelFileError(f"tensor '{message.name}' has no element type")
    return shape, dtype
