"""Graphs for the tests of reading."""

import pathlib

from google.protobuf import text_format

from opsetta.exporter.capture.tensorflow.messages import message_type

DATA = pathlib.Path(__file__).parents[3] / "data" / "tensorflow"
SAVED_MODELS = DATA / "saved_models"
GRAPH = """
# A comment before the first field.
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node {
  name: "weight" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1.5 } } }
}
node { name: "y" op: "Mul" input: "x" input: "weight" input: "^x" device: "/device:GPU:0"
       attr { key: "T" value { type: DT_FLOAT } } }
library { function { signature { name: "f" } node_def { name: "n" op: "NoOp" } } }
versions { producer: 1087 }
"""


def graph():
    return text_format.Parse(GRAPH, message_type("GraphDef")())


def meta_graph():
    made = message_type("MetaGraphDef")()
    made.meta_info_def.tags.append("serve")
    made.meta_info_def.stripped_op_list.op.add(name="MyOwn")
    made.graph_def.CopyFrom(graph())
    return made


def saved_model():
    return message_type("SavedModel")(saved_model_schema_version=1, meta_graphs=[meta_graph()])
