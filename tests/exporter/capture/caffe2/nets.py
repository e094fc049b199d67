"""Builds Caffe2 nets, and runs the models that they are converted to."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import opsetta
from opsetta.exporter.capture.caffe2.messages import message_type
from tests.onnxruntime_sessions import run_onnxruntime

OPSETS = (7, 9, 11, 13, 18, 24)
_FILLERS = {
    "float32": "GivenTensorFill",
    "uint8": "GivenTensorUInt8Fill",
    "float64": "GivenTensorDoubleFill",
    "int32": "GivenTensorIntFill",
    "int64": "GivenTensorInt64Fill",
    "bool": "GivenTensorBoolFill",
}


def set_argument(argument: Any, value: Any) -> None:
    """Give an argument message a value of the kind that a Python value has."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, bool | int):
        argument.i = int(value)
    elif isinstance(value, float):
        argument.f = value
    elif isinstance(value, str | bytes):
        argument.s = value.encode() if isinstance(value, str) else value
    elif value and isinstance(value[0], float):
        argument.floats.extend(value)
    elif value and isinstance(value[0], str | bytes):
        argument.strings.extend(v.encode() if isinstance(v, str) else v for v in value)
    else:
        argument.ints.extend(int(v) for v in value)


class Net:
    """A net under construction."""

    def __init__(self, name: str = "net"):
        self.message = message_type("NetDef")(name=name)

    def add(
        self, kind: str, inputs: str | Sequence[str], outputs: str | Sequence[str], /, **arguments: Any
    ) -> str:
        """Add an operator; its first output."""
        operator = self.message.op.add(type=kind)
        operator.input.extend([inputs] if isinstance(inputs, str) else inputs)
        operator.output.extend([outputs] if isinstance(outputs, str) else outputs)
        for name, value in arguments.items():
            set_argument(operator.arg.add(name=name), value)
        return operator.output[0]

    def fill(self, name: str, array: np.ndarray) -> str:
        """Add the filler of an array."""
        values = array.reshape(-1).tolist()
        return self.add(_FILLERS[array.dtype.name], [], name, values=values, shape=list(array.shape))

    def fill_int8(self, name: str, array: np.ndarray, scale: float, zero_point: int) -> str:
        """Add the filler of a quantized tensor, UINT8 or INT32."""
        own = {"shape": list(array.shape), "Y_scale": scale, "Y_zero_point": zero_point}
        if array.dtype == np.uint8:
            return self.add("Int8GivenTensorFill", [], name, values=array.tobytes(), **own)
        return self.add("Int8GivenIntTensorFill", [], name, values=array.reshape(-1).tolist(), **own)

    def finish(self, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        """The message, with its external blobs."""
        self.message.external_input.extend(inputs)
        self.message.external_output.extend(outputs)
        return self.message


def write(folder: pathlib.Path, predict: Any, init: Any = None) -> pathlib.Path:
    """Write a pair of nets; the path of the predict_net."""
    path = folder / "predict_net.pb"
    path.write_bytes(predict.SerializeToString())
    if init is not None and init.op:
        (folder / "init_net.pb").write_bytes(init.SerializeToString())
    return path


def run(program: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program in onnxruntime."""
    return run_onnxruntime(program.model_proto, feed)


def operators(program: Any) -> list[str]:
    """The operators of a program's graph."""
    return [node.op_type for node in program.model.graph]


def converted(folder: pathlib.Path, predict: Any, init: Any = None, **options: Any) -> Any:
    """The loaded nets."""
    return opsetta.load(write(folder, predict, init), **options)
