"""Writes a model as one protobuf message, with weights taken directly from their memory.

Protobuf's own serializer keeps two copies of a message in memory. Here it writes everything except the large
tensors; their fields (a tag, a length, the bytes) are written around the existing memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import IO

import onnx
import onnx_ir as ir
from google.protobuf.message import Message as ProtobufMessage

from ..reading.carried import to_proto
from .tensor_writer import TensorWriter

Initializer = tuple[onnx.TensorProto, ir.TensorProtocol | None]

EXCLUSIVE = threading.RLock()
"""Held while a model temporarily has other initializers, so that they are written without a copy."""

_LIFTED = 1024
"""Tensors with more bytes than this are written directly from their memory, without a copy."""


def _tag(message: ProtobufMessage, field: str) -> bytes:
    # The wire type of bytes, text and messages.
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


class Message:
    """A model as one message, ready to be written.

    Attributes:
        size: its length in bytes.
    """

    def __init__(self, proto: onnx.ModelProto, initializers: Sequence[Initializer]):
        """Split a message, and append initializers to those of its graph, in order.

        Args:
            proto: the model without the initializers to append; it becomes empty.
            initializers: each message without contents, and the tensor with the contents, if any.
        """
        graph = proto.graph.SerializeToString(deterministic=True)
        proto.ClearField("graph")
        head, self._tail = _split_at_graph(proto)
        self._parts = [(_frame(header, tensor), tensor) for header, tensor in initializers]
        weights = sum(
            len(frame) + (tensor.nbytes if tensor is not None else 0) for frame, tensor in self._parts
        )
        self._head = b"".join([head, _GRAPH, varint(len(graph) + weights), graph])
        self.size = len(self._head) + weights + len(self._tail)

    @classmethod
    def of(cls, model: ir.Model) -> Message:
        """The message of a model."""
        with EXCLUSIVE:
            initializers = model.graph.initializers
            everything = list(initializers.values())
            lifted = [(value, value.const_value) for value in everything if value.const_value is not None]
            # A tensor from another model's external data is not beside the written file.
            lifted = [
                (value, tensor)
                for value, tensor in lifted
                if tensor.dtype != ir.DataType.STRING
                and (isinstance(tensor, ir.ExternalTensor) or tensor.nbytes > _LIFTED)
            ]
            try:
                for value, _ in lifted:
                    del initializers[str(value.name)]
                proto = to_proto(model)
            finally:
                # Write all of them again, because the file must keep their order.
                initializers.clear()
                for value in everything:
                    initializers.add(value)
        return cls(proto, [(_header(value, tensor), tensor) for value, tensor in lifted])

    def write(self, file: IO[bytes]) -> None:
        """Write the message to a binary file object."""
        with TensorWriter(file) as writer:
            writer.write(self._head)
            for frame, tensor in self._parts:
                writer.write(frame)
                if tensor is not None:
                    writer.write_tensor(tensor)
            writer.write(self._tail)


def _split_at_graph(proto: onnx.ModelProto) -> tuple[bytes, bytes]:
    """Serialize the fields of a model before and behind its graph, in the order of their numbers.

    OpenVINO takes a file for a model only if the first three fields differ, and models may have several
    entries for their opsets and metadata, whose fields are behind the graph. The model becomes empty.
    """
    number = proto.DESCRIPTOR.fields_by_name["graph"].number
    head = onnx.ModelProto()
    head.CopyFrom(proto)
    for field, _ in proto.ListFields():
        (head if field.number > number else proto).ClearField(field.name)
    return head.SerializeToString(deterministic=True), proto.SerializeToString(deterministic=True)


def _header(value: ir.Value, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    return onnx.TensorProto(name=value.name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())


def _frame(header: onnx.TensorProto, tensor: ir.TensorProtocol | None) -> bytes:
    """The bytes of an initializer's field before its contents."""
    fields, contents = header.SerializeToString(deterministic=True), 0
    if tensor is not None:
        fields, contents = fields + _RAW_DATA + varint(tensor.nbytes), tensor.nbytes
    result: bytes = _INITIALIZER + varint(len(fields) + contents) + fields
    return result
