"""Models that are all of one number, graph and weights, so that a mixture of two shows."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

SIZE = 40


def pair(number: int, size: int = SIZE) -> ir.Model:
    """Adds a large weight and a small one, all of the number, which is the graph's name too."""
    weights = [
        numpy_helper.from_array(np.full((size, size), number, np.float32), "large"),
        numpy_helper.from_array(np.full((2, size, size), number, np.float32), "larger"),
        numpy_helper.from_array(np.full((1,), number, np.float32), "small"),
    ]
    nodes = [helper.make_node("Sum", ["x", "large", "larger", "small"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, size, size])]
    graph = helper.make_graph(nodes, f"graph of {number}", inputs, outputs, weights)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


def numbers_of(model: onnx.ModelProto) -> set[float]:
    """The numbers that a model with its weights is of: one, unless it is mixed."""
    found = {float(model.graph.name.removeprefix("graph of "))}
    for tensor in model.graph.initializer:
        found |= set(np.unique(numpy_helper.to_array(tensor)).tolist())
    return found


def number_at(path: pathlib.Path) -> float:
    """The number that the model in a file is of."""
    [number] = numbers_of(onnx.load(path))
    return number


def listing(folder: pathlib.Path) -> list[str]:
    """The names in a folder, those of data files without what depends on their contents."""
    names = sorted(path.name for path in folder.iterdir())
    return [re.sub(r"\.[0-9a-f]{16}\.data$", ".DIGEST.data", name) for name in names]
