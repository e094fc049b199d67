"""The files that are mutated: models of the onnx package, and ones that hold what few files do."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import onnx
from google.protobuf import json_format, text_format
from onnx import helper, numpy_helper, parser

from opsetta.registration import INPLACE, MAY_OVERWRITE

LARGEST = 8_000
"""Bytes of a binary file from which on it is not taken: small files are mutated where it matters."""
SECRET = b"what lies outside of the folder must never be read"
_CONTROL_FLOW = """<ir_version: 10, opset_import: ["": 18, "mine": 1], metadata_props: ["a": "b"]>
g (float[n, 4] x, bool c) => (float[n, 4] y, float[k] z)
<float[4] w = {1, 2, 3, 4}, float[n, 4] a>
{
  a = Relu (x)
  b = mine.F <alpha = 0.5> (a, w)
  y = If (c) <
    then_branch = t () => (float[n, 4] r) <float[4] v = {4, 3, 2, 1}> { r = Add (b, v) },
    else_branch = e () => (float[n, 4] r) { s = If (c) <
        then_branch = t () => (p) { p = Neg (b) }, else_branch = e () => (p) { p = Abs (b) }>
      r = Identity (s) }
  >
  k = Constant <value = int64 {3}> ()
  z = Loop (k, c) <body = l (int64 i, bool d) => (bool o, float s) { o = Identity (d) s = Cast <to = 1> (i) }>
}
<domain: "mine", opset_import: ["": 18]> F <alpha> (f, h) => (r) <float[n, 4] f, float[n, 4] m>
{ m = LeakyRelu <alpha: float = @alpha> (f) r = Mul (m, h) }
"""


def rich_model() -> onnx.ModelProto:
    """Sub-graphs, functions, annotations, metadata, packed and external tensors in one model."""
    model = parser.parse_model(_CONTROL_FLOW)
    graph = model.graph
    for node in graph.node:
        node.metadata_props.add(key="namespace", value="layer.0")
    graph.node[0].name = "the relu"
    annotated = helper.make_node("Exp", ["x"], ["e"], name="annotated")
    graph.node.append(annotated)
    last = graph.node.add(op_type="Neg", input=["e"], output=["f"], name="in place")
    last.metadata_props.add(key=INPLACE, value="true")
    last.metadata_props.add(key=MAY_OVERWRITE, value="0:0")
    for name in ("e", "f"):
        graph.value_info.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]))
    graph.initializer.append(numpy_helper.from_array(np.arange(6, dtype=np.float16).reshape(2, 3), "halves"))
    graph.initializer.append(helper.make_tensor("packed", onnx.TensorProto.INT4, [3], [1, -2, 3]))
    graph.initializer.append(helper.make_tensor("strings", onnx.TensorProto.STRING, [2], [b"a", b"\xff"]))
    graph.initializer.append(helper.make_tensor("typed", onnx.TensorProto.UINT8, [3], [1, 2, 255]))
    graph.initializer[-1].metadata_props.add(key="from", value="a tensor")
    graph.initializer[-1].doc_string = "three"
    for index, location in enumerate(("weights.bin", "inner/weights.bin")):
        tensor = graph.initializer.add(
            name=f"external.{index}", data_type=onnx.TensorProto.FLOAT, dims=[2, 4]
        )
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "32"), ("length", "32")):
            tensor.external_data.add(key=key, value=value)
    annotation = graph.quantization_annotation.add(tensor_name="e")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    return model


def models() -> list[onnx.ModelProto]:
    """The models that are mutated."""
    folder = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    names = sorted(
        p for kind in ("simple", "pytorch-operator", "light") for p in (folder / kind).rglob("*.onnx")
    )
    found = [onnx.load(path, load_external_data=False) for path in names if path.stat().st_size < LARGEST]
    return [rich_model(), *found]


def files(count: int = 60) -> list[bytes]:
    """Binary, text and JSON files, the rich model's first."""
    made = models()
    taken = [made[0]] * 8 + made[1 :: max(1, len(made) // count)]
    written = [model.SerializeToString() for model in taken]
    for model in taken:
        if model.ByteSize() < LARGEST // 2:
            written.append(text_format.MessageToString(model).encode())
            written.append(json_format.MessageToJson(model, indent=None).encode())
    return written


def make_folder(folder: pathlib.Path) -> pathlib.Path:
    """Lay out a model's folder with external data and traps; the folder itself, inside of `folder`."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret.bin").write_bytes(SECRET * 4)
    model = folder / "model"
    (model / "inner").mkdir(parents=True)
    for path in (model / "weights.bin", model / "inner" / "weights.bin", model / "linked.bin"):
        path.write_bytes(bytes(range(128)))
    os.symlink("weights.bin", model / "link_inside.bin")
    os.symlink(outside / "secret.bin", model / "link_outside.bin")
    os.symlink(outside, model / "folder_outside")
    os.link(outside / "secret.bin", model / "hard_link.bin")
    os.mkfifo(model / "pipe")
    return model
