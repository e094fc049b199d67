"""Caffe2's messages. `make descriptors` compiles protos/*.proto into the descriptor set beside them."""

from typing import Any

from ..protobuf_messages import MessageTypes

message_type = MessageTypes(__package__, "protos/messages.binpb", "caffe2")
"""`message_type("NetDef")` is the class of NetDef."""

# protobuf makes the classes at run time, so type checkers do not know them. The names document signatures.
Argument = Any
NetDef = Any
OperatorDef = Any
