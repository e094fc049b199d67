"""TensorFlow's messages. `make descriptors` compiles protos/*.proto into the descriptor set beside them."""

from __future__ import annotations

from ..protobuf_messages import MessageTypes

message_type = MessageTypes(__package__, "protos/messages.binpb", "tensorflow")
"""`message_type("GraphDef")` is the class of GraphDef."""
