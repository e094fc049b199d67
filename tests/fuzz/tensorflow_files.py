"""GraphDef, MetaGraph and SavedModel files: which are mutated, and how each is read."""

from __future__ import annotations

import contextlib
import json
import pathlib

import numpy as np
from google.protobuf import text_format

import opsetta
from opsetta.exporter.capture.tensorflow.graph_reading import GraphFile, read_graph, recognise
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.tensor_protos import array_of
from opsetta.exporter.files.reading import read_model

from . import mutations

DATA = pathlib.Path(__file__).parents[1] / "data" / "tensorflow"
GRAPH = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: -1 } dim { size: 3 name: "n" } } } } }
node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "value" value {
              tensor { dtype: DT_FLOAT tensor_shape { dim { size: 7 } } float_val: 1.5 } } } }
node { name: "all" op: "Kinds" input: "x" input: "c:1" input: "^x" device: "/device:GPU:0"
       attr { key: "s" value { s: "VALID\\377" } } attr { key: "i" value { i: -5 } }
       attr { key: "f" value { f: 1e30 } } attr { key: "b" value { b: true } }
       attr { key: "unknown" value { shape { unknown_rank: true } } }
       attr { key: "func" value { func { name: "f" attr { key: "N" value { i: 2 } } } } }
       attr { key: "of" value { placeholder: "N" } }
       attr { key: "list" value { list { i: 1 i: 2 s: "a" f: 2 b: false type: DT_HALF
              shape { dim { size: 1 } } tensor { dtype: DT_STRING tensor_shape { } string_val: "s" }
              func { name: "f" } } } }
       experimental_debug_info { original_node_names: "x" } experimental_type { type_id: TFT_PRODUCT } }
library {
  function {
    signature { name: "f" input_arg { name: "a" type_attr: "T" } output_arg { name: "r" type: DT_FLOAT }
                attr { name: "T" type: "type" default_value { type: DT_FLOAT } } }
    node_def { name: "n" op: "Neg" input: "a" } ret { key: "r" value: "n:y:0" }
    arg_attr { key: 0 value { attr { key: "_user" value { b: true } } } }
    resource_arg_unique_id { key: 1 value: 2 }
  }
  gradient { function_name: "f" gradient_func: "g" }
}
versions { producer: 1087 min_consumer: 12 }
"""


def graph_def() -> object:
    """A graph with attributes of every kind, and constants of every element type and form."""
    made = text_format.Parse(GRAPH, message_type("GraphDef")())
    for record in json.loads((DATA / "tensor_protos.json").read_text(encoding="utf-8"))[::7]:
        tensor = message_type("TensorProto").FromString(bytes.fromhex(record["proto"]))
        node = made.node.add(name=record["name"], op="Const")
        node.attr["value"].tensor.CopyFrom(tensor)
        node.attr["dtype"].type = tensor.dtype
    return made


def files() -> list[bytes]:
    """Binary and text files of the three kinds."""
    small = text_format.Parse(GRAPH, message_type("GraphDef")())
    saved = message_type("SavedModel").FromString((DATA / "saved_models/objects/saved_model.pb").read_bytes())
    meta = message_type("MetaGraphDef")()
    meta.CopyFrom(saved.meta_graphs[0])
    meta.ClearField("object_graph_def")
    meta.graph_def.CopyFrom(small)
    meta.saver_def.version = 2
    meta.collection_def["variables"].bytes_list.value.append(b"\x0a\x01v")
    messages = [small, small, graph_def(), graph_def(), meta, saved]
    texts = [text_format.MessageToString(message).encode() for message in messages[1:5]]
    return [message.SerializeToString() for message in messages] + texts


def parse(data: bytes) -> object:
    """The message of a binary file."""
    return message_type(recognise(data).file_type).FromString(data)


SOURCE = mutations.Source(
    lambda data: recognise(data).encoding == "binary",
    parse,
    [mutations.write_binary, mutations.write_binary, mutations.write_text],
)


def read_everything(path: pathlib.Path) -> str:
    """Read a file in every way there is; anything but our own errors goes on to the caller."""
    found = recognise(path)
    data = path.read_bytes()
    if recognise(data) != found:
        raise AssertionError("the bytes are recognised as something else than the file")
    with contextlib.suppress(opsetta.ModelFileError):
        read_model(path)
        if found is not None:
            raise AssertionError(f"what is read as ONNX is recognised as {found}")
    try:
        read = read_graph(path, need_signature=False)
    except opsetta.ModelFileError:
        return "refused as a file" if found is not None else "not recognised"
    _read_tensors(read)
    path.write_bytes((read.meta_graph or read.graph_def).SerializeToString())
    # The name of an operator, by which a binary file is recognised, may be gone.
    kind = "GraphDef" if read.meta_graph is None else "MetaGraphDef"
    again = read_graph(path, file_type=kind, encoding="binary", need_signature=False)
    if again.graph_def.SerializeToString(deterministic=True) != read.graph_def.SerializeToString(
        deterministic=True
    ):
        raise AssertionError("what is written is read as something else")
    return "read"


def _read_tensors(read: GraphFile) -> None:
    """Use the contents of every constant, as much as memory allows."""
    for node in read.graph_def.node:
        for value in node.attr.values():
            if value.HasField("tensor"):
                with contextlib.suppress(opsetta.ModelFileError):
                    array = array_of(value.tensor, node.name)
                    assert isinstance(array, np.ndarray)
                    assert list(array.shape) == [dim.size for dim in value.tensor.tensor_shape.dim]
