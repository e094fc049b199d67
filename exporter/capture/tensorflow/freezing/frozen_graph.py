"""A frozen graph whose weights stay in the checkpoint until its message or file is written."""

import dataclasses
import math
from collections.abc import Mapping
from typing import IO

import numpy as np

from .....registration import ModelFileError
from ....files.weights.message import varint
from ..element_types import numpy_type
from ..messages import GraphDef, NodeDef, message_type
from .variables import StoredVariable

LARGEST = 2**31 - 1
"""Maximum bytes of a GraphDef: protobuf's limit for one message."""
_NODE, _ATTR, _KEY, _VALUE, _TENSOR, _CONTENT = 1, 5, 1, 2, 8, 4
"""The numbers of GraphDef.node, NodeDef.attr, the key and the value of its entries, AttrValue.tensor and
TensorProto.tensor_content.
"""


@dataclasses.dataclass
class FrozenGraph:
    """A graph without variables.

    Attributes:
        graph_def: its GraphDef. The Const nodes of variables have a type and a shape, but no contents.
        weights: the contents of those nodes, by node name.
        outputs: the results that the graph was frozen for, "name" or "name:1".
    """

    graph_def: GraphDef
    weights: Mapping[str, StoredVariable]
    outputs: list[str]

    def message(self) -> GraphDef:
        """The GraphDef with the contents of all constants: a new message, as large as the weights.

        Raises:
            ModelFileError: it would be too large, or the checkpoint is damaged.
        """
        self._check_size()
        message = message_type("GraphDef")()
        message.CopyFrom(self.graph_def)
        for node in message.node:
            if node.name in self.weights:
                node.attr["value"].tensor.tensor_content = self.weights[node.name].read().tobytes()
        return message

    def detach_weights(self, size: int) -> Mapping[str, StoredVariable]:
        """Write the contents of small weights into `graph_def`, and return the others.

        Args:
            size: the most bytes of a small weight.
        """
        larger: dict[str, StoredVariable] = {}
        for node in self.graph_def.node:
            weight = self.weights.get(node.name)
            if weight is not None and self._content_size(node) > size:
                larger[node.name] = weight
            elif weight is not None:
                node.attr["value"].tensor.tensor_content = weight.read().tobytes()
        return larger

    def size(self) -> int:
        """The bytes of the message."""
        node_bytes = sum(
            len(self._node_start(node)) + self._content_size(node) for node in self.graph_def.node
        )
        return node_bytes + len(self._remaining_fields())

    def write(self, file: IO[bytes]) -> None:
        """Write the message to a binary file, one weight at a time.

        Raises:
            ModelFileError: it is too large, or the checkpoint is damaged.
        """
        self._check_size()
        for node in self.graph_def.node:
            file.write(self._node_start(node))
            if self._content_size(node):
                array = np.ascontiguousarray(self.weights[node.name].read())
                file.write(array.reshape(-1).view(np.uint8).data)
        file.write(self._remaining_fields())

    def _check_size(self) -> None:
        size = self.size()
        if size > LARGEST:
            raise ModelFileError(
                f"the frozen graph would have {size} bytes, more than the {LARGEST} of a GraphDef; convert "
                "the graph with its checkpoint instead"
            )

    def _content_size(self, node: NodeDef) -> int:
        """The number of bytes of a node's weight; 0 for a node without one."""
        weight = self.weights.get(node.name)
        dtype = None if weight is None else numpy_type(weight.dtype)
        return 0 if weight is None or dtype is None else math.prod(weight.shape) * dtype.itemsize

    def _node_start(self, node: NodeDef) -> bytes:
        """The encoded field of a node in the GraphDef, up to the contents of its weight."""
        size = self._content_size(node)
        if not size:
            # The attributes are a protobuf map, whose order would otherwise vary from run to run.
            data = node.SerializeToString(deterministic=True)
            result: bytes = _field(_NODE, len(data)) + data
            return result
        # Fields of one message may stand in any order, so the weight is the last.
        start = node.attr["value"].tensor.SerializeToString(deterministic=True) + _field(_CONTENT, size)
        start = _field(_TENSOR, len(start) + size) + start
        start = _field(_KEY, len(b"value")) + b"value" + _field(_VALUE, len(start) + size) + start
        start = _field(_ATTR, len(start) + size) + start
        without_value = message_type("NodeDef")()
        without_value.CopyFrom(node)
        del without_value.attr["value"]
        start = without_value.SerializeToString(deterministic=True) + start
        value_of_result: bytes = _field(_NODE, len(start) + size) + start
        return value_of_result

    def _remaining_fields(self) -> bytes:
        """The fields of the GraphDef that are not nodes."""
        remaining = message_type("GraphDef")(versions=self.graph_def.versions, library=self.graph_def.library)
        return bytes(remaining.SerializeToString(deterministic=True))


def _field(number: int, length: int) -> bytes:
    """The start of a field with a length."""
    return varint(number << 3 | 2) + varint(length)
