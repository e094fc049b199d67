"""Caffe2's nets: which are mutated, and how each is read and converted."""

from __future__ import annotations

import contextlib
import pathlib

from google.protobuf import text_format

import opsetta
import opsetta.symbolics
from opsetta.exporter.capture.caffe2.messages import message_type
from opsetta.exporter.capture.caffe2.net_reading import is_net, read_net
from opsetta.exporter.files.reading import BOUNDS

from . import mutations

PREDICT = """name: "predict"
op { input: "data" input: "w" input: "b" output: "c" name: "first" type: "Conv"
     arg { name: "kernel" i: 3 } arg { name: "pads" ints: 1 ints: 1 ints: 1 ints: 1 }
     arg { name: "legacy_pad" i: 0 } arg { name: "order" s: "NCHW" }
     device_option { device_type: 1 device_id: 0 } }
op { input: "c" output: "c" type: "Relu" arg { name: "order" s: "NCHW" } engine: "CUDNN" }
op { input: "c" input: "b" output: "c" type: "Mul"
     arg { name: "broadcast" i: 1 } arg { name: "axis_str" s: "C" } }
op { input: "c" output: "p" type: "AveragePool" arg { name: "kernel" i: 2 } arg { name: "stride" i: 2 }
     arg { name: "legacy_pad" i: 3 } }
op { input: "p" input: "p" output: "j" output: "_dims" type: "Concat" arg { name: "axis" i: 1 } }
op { input: "j" output: "k" output: "l" type: "Split" arg { name: "axis" i: 1 }
     arg { name: "split" ints: 1 ints: 3 } }
op { input: "k" output: "r" output: "_old" type: "Reshape" arg { name: "shape" ints: 0 ints: -1 } }
op { input: "r" output: "s" type: "Slice" arg { name: "starts" ints: 0 ints: 1 }
     arg { name: "ends" ints: -1 ints: -2 } }
op { input: "r" output: "q" type: "Int8Quantize" arg { name: "Y_scale" f: 0.5 }
     arg { name: "Y_zero_point" i: 3 } }
op { input: "q" input: "qw" input: "qb" output: "f" type: "Int8FC" arg { name: "Y_scale" f: 0.25 } }
op { input: "f" output: "y" type: "Int8Dequantize" }
op { input: "y" output: "y" type: "Softmax" arg { name: "axis" i: 1 } }
op { input: "y" output: "z" type: "LeakyRelu" arg { name: "alpha" f: 0.1 } }
op { input: "l" output: "t" output: "_at" type: "TopK" arg { name: "k" i: 2 } arg { name: "axis" i: 1 } }
external_input: "data" external_input: "w" external_input: "b"
external_output: "z" external_output: "s" external_output: "t"
arg { name: "num_workers" i: 1 } type: "dag" partition_info { name: "p" device_id: 1 }
"""
INIT = """name: "init"
op { output: "w" type: "GivenTensorFill" arg { name: "shape" ints: 2 ints: 1 ints: 3 ints: 3 }
     arg { name: "values" VALUES } }
op { output: "b" type: "ConstantFill" arg { name: "shape" ints: 2 } arg { name: "value" f: 0.5 } }
op { output: "qw" type: "Int8GivenTensorFill" arg { name: "shape" ints: 1 ints: 4 }
     arg { name: "values" s: "abcd" } arg { name: "Y_scale" f: 0.1 } arg { name: "Y_zero_point" i: 90 } }
op { output: "qb" type: "Int8GivenIntTensorFill" arg { name: "shape" ints: 1 } arg { name: "values" ints: -7 }
     arg { name: "Y_scale" f: 0.01 } }
op { output: "x" type: "XavierFill" arg { name: "shape" ints: 2 ints: 2 } }
op { output: "u" type: "UniformFill" arg { name: "shape" ints: 2 } arg { name: "min" f: 0 }
     arg { name: "max" f: 2 } }
op { output: "g" type: "GivenTensorInt64Fill" arg { name: "shape" ints: 2 }
     arg { name: "values" ints: 1 ints: 2 } }
op { output: "e" type: "GivenTensorStringFill" arg { name: "shape" ints: 1 }
     arg { name: "values" strings: "s" } }
op { output: "h" type: "GivenTensorByteStringToUInt8Fill" arg { name: "shape" ints: 2 }
     arg { name: "values" strings: "hi" } }
op { input: "x" output: "x" type: "Scale" arg { name: "scale" f: 2 } }
external_output: "w"
""".replace("VALUES", "floats: 0.5 " * 18)
KINDS = """name: "kinds"
op { input: "data" output: "m" type: "If" arg { name: "then_net" n { op { type: "Copy" } } }
     arg { name: "strings" strings: "a" strings: "b" } arg { name: "nets" nets { name: "n" } }
     arg { name: "t" t { dims: 1 float_data: 2 name: "t" } } arg { name: "none" }
     arg { name: "qtensors" qtensors { dims: 1 scale: 1 data: 3 } } control_input: "y" debug_info: "line" }
op { input: "m" output: "o" type: "Relu" domain: "c10" op_version: 1 is_gradient_op: false }
"""


def _net(text: str) -> object:
    return text_format.Parse(text, message_type("NetDef")())


def files() -> list[bytes]:
    """Binary and text files of the nets."""
    texts = [PREDICT, INIT, KINDS]
    return [_net(text).SerializeToString() for text in texts * 2] + [text.encode() for text in texts]


SOURCE = mutations.Source(
    lambda data: data[:1] == b"\x0a",
    lambda data: message_type("NetDef").FromString(data),
    [mutations.write_binary, mutations.write_binary, mutations.write_text],
)


def read_everything(path: pathlib.Path) -> str:
    """Convert a file as either net of a pair; anything but our own errors goes on to the caller."""
    with contextlib.suppress(opsetta.OpsettaError):
        opsetta.load(path)
    ends = []
    for role in ("predict_net", "init_net"):
        other = path.with_name(f"{role}_beside.pb")
        other.write_bytes(_net(INIT if role == "predict_net" else PREDICT).SerializeToString())
        pair = (path, other) if role == "predict_net" else (other, path)
        ends.append(_converted(*pair))
    try:
        net = read_net(path, BOUNDS)
    except opsetta.ModelFileError:
        return "refused as a file"
    path.write_bytes(net.SerializeToString())
    # The type of the first operator, by which a binary file is recognised, may be gone.
    if is_net(path) and read_net(path, BOUNDS).SerializeToString() != net.SerializeToString():
        raise AssertionError("what is written is read as something else")
    return next(end for end in ("converted", "captured", "a refused pair") if end in ends)


def _converted(predict: pathlib.Path, init: pathlib.Path) -> str:
    """How the conversion of a pair ends: "captured" where only an operator cannot be expressed."""
    end = "a refused pair"
    with contextlib.suppress(opsetta.OpsettaError):
        model = opsetta.load(predict, init_net=init, shapes=None)
        end = "captured"
        for opset in (9, 18):
            model.lower(opset)
        end = "converted"
    return end
