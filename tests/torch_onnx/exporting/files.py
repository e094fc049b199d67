"""Checks of files that exporters wrote."""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnxruntime
import torch


def opset_of(path: str | os.PathLike) -> int:
    """The opset that a file declares."""
    return {entry.domain: entry.version for entry in onnx.load(path).opset_import}[""]


def check(path: str | os.PathLike, model, *inputs: torch.Tensor, opset: int = 12) -> onnx.ModelProto:
    """The file was written by opsetta, declares the opset, is valid, and agrees with the model."""
    file = onnx.load(path)
    assert (file.producer_name, opset_of(path)) == ("opsetta", opset)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {value.name: item.numpy() for value, item in zip(session.get_inputs(), inputs, strict=True)}
    with torch.no_grad():
        expected = model(*inputs)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for found, wanted in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)
    return file


def shapes_of(values) -> list[tuple]:
    """Name and sizes of inputs or outputs of a file."""
    return [
        (value.name, [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim])
        for value in values
    ]
