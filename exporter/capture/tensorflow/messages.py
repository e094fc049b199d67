"""TensorFlow's messages. `make descriptors` compiles protos/*.proto into the descriptor set beside them."""

import functools
from typing import Any

from ...files.reading.encodings import wire
from ..protobuf_messages import MessageTypes

message_type = MessageTypes(__package__, "protos/messages.binpb", "tensorflow")
"""`message_type("GraphDef")` is the class of GraphDef."""


@functools.cache
def memory_of(name: str) -> wire.MessageMemory:
    """The memory that messages of a type take, to refuse those that take too much before they are parsed."""
    return wire.MessageMemory(message_type(name).DESCRIPTOR)


# protobuf makes the classes at run time, so type checkers do not know them. The names document signatures.
ArgDef = Any
AttrDef = Any
AttrValue = Any
FunctionDef = Any
GraphDef = Any
MetaGraphDef = Any
NameAttrList = Any
NodeDef = Any
OpDef = Any
SignatureDef = Any
TensorInfo = Any
TensorProto = Any
TensorShapeProto = Any
TensorSliceProto = Any
