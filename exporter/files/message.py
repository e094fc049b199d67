"""One protobuf message of a model, its weights written straight from their memory.

Protobuf's own serializer holds a message twice beside the weights. Here it writes everything but the large
tensors, whose fields are framed around the bytes where they lie (Protocol Buffers encoding: a tag, a
length, the bytes).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import IO, Any

import onnx
import onnx_ir as ir

from .reading.carried import to_proto

Initializer = tuple[onnx.TensorProto, Any]

EXCLUSIVE = threading.RLock()
"""Held while a model has other initializers than its own, which is how it is written without copying them."""

_LIFTED = 1024
"""Tensors of more bytes than this are written from their own memory."""


def _tag(message: Any, field: str) -> bytes:
    length_delimited = 2
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | length_delimited)


def varint(number: int) -> bytes:
    """An unsigned integer in base 128, least significant group first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_GRAPH = _tag(onnx.ModelProto, "graph")
_INITIALIZER = _tag(onnx.GraphProto, "initializer")
_RAW_DATA = _tag(onnx.TensorProto, "raw_data")


def _is_lifted(tensor: ir.TensorProtocol) -> bool:
    # The file that a tensor was read from is not beside the one that is written.
    outside = isinstance(tensor, ir.ExternalTensor)
    return tensor.dtype != ir.DataType.STRING and (outside or bool(tensor.nbytes > _LIFTED))


class Message:
    """A model as one message, ready to be written.

    Attributes:
        size: its length in bytes.
    """

    def __init__(self, proto: onnx.ModelProto, initializers: Sequence[Initializer]):
        """Take a message apart, and append initializers to those of its graph, in order.

        Args:
            proto: all but the initializers to append; it loses its graph.
            initializers: each without its contents, and the tensor to take them from, if any.
        """
        graph = proto.graph.SerializeToString(deterministic=True)
        proto.ClearField("graph")
        self._parts = [(_frame(header, tensor), tensor) for header, tensor in initializers]
        weights = sum(
            len(frame) + (tensor.nbytes if tensor is not None else 0) for frame, tensor in self._parts
        )
        self._head = b"".join(
            [proto.SerializeToString(deterministic=True), _GRAPH, varint(len(graph) + weights), graph]
        )
        self.size = len(self._head) + weights

    @classmethod
    def of(cls, model: ir.Model) -> Message:
        """The message of a model."""
        with EXCLUSIVE:
            initializers = model.graph.initializers
            everything = list(initializers.values())
            lifted = [(value, value.const_value) for value in everything if value.const_value is not None]
            lifted = [(value, tensor) for value, tensor in lifted if _is_lifted(tensor)]
            try:
                for value, _ in lifted:
                    del initializers[str(value.name)]
                proto = to_proto(model)
            finally:
                # All of them anew, for their order is the file's.
                initializers.clear()
                for value in everything:
                    initializers.add(value)
        return cls(proto, [(_header(value, tensor), tensor) for value, tensor in lifted])

    def write(self, file: IO[bytes]) -> None:
        """Write the message to a binary file object."""
        file.write(self._head)
        for frame, tensor in self._parts:
            file.write(frame)
            if tensor is not None:
                tensor.tofile(file)


def _header(value: ir.Value, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    return onnx.TensorProto(name=value.name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())


def _frame(header: onnx.TensorProto, tensor: Any) -> bytes:
    """All of an initializer's field but the contents, which follow it."""
    fields, contents = header.SerializeToString(deterministic=True), 0
    if tensor is not None:
        fields, contents = fields + _RAW_DATA + varint(tensor.nbytes), tensor.nbytes
    return _INITIALIZER + varint(len(fields) + contents) + fields
