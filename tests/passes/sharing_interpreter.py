"""Runs small ONNX graphs in numpy the way that docs/metadata.md allows a runtime to share memory.

Views share memory, If, Loop and Scan pass tensors by reference, and an annotated node writes its
output over the input that it names, one element after another. With `share=False` every output is a copy.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from opsetta.registration import MAY_OVERWRITE

Array = np.ndarray
Environment = ChainMap[str, Array]

ELEMENTWISE: dict[str, Callable[..., float]] = {
    "Abs": abs,
    "Add": lambda a, b: a + b,
    "Max": np.maximum,
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "Sub": lambda a, b: a - b,
    "Where": lambda c, a, b: a if c else b,
}


class SharingInterpreter:
    """Runs one model, again and again in the same memory."""

    def __init__(self, model: onnx.ModelProto, *, share: bool):
        self._model = model
        self._share = share
        self._constants: dict[str, Array] = {}

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The graph's outputs; inputs and initializers are read where they are."""
        with np.errstate(all="ignore"):
            return [array.copy() for array in self._graph(self._model.graph, ChainMap({}, dict(inputs)))]

    def _constant(self, name: str, tensor: onnx.TensorProto) -> Array:
        if name not in self._constants:
            self._constants[name] = numpy_helper.to_array(tensor).copy()
        return self._constants[name]

    def _graph(self, graph: onnx.GraphProto, values: Environment) -> list[Array]:
        for tensor in graph.initializer:
            values[tensor.name] = self._constant(tensor.name, tensor)
        for node in graph.node:
            results = self._node(node, values)
            values.update(zip(node.output, results if self._share else map(np.copy, results), strict=True))
        return [values[value.name] for value in graph.output]

    def _node(self, node: onnx.NodeProto, values: Environment) -> list[Array]:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        operands = [values[name] for name in node.input]
        match node.op_type:
            case "If":
                branch = attributes["then_branch" if operands[0] else "else_branch"]
                return self._graph(branch, values.new_child())
            case "Loop":
                return self._loop(attributes["body"], operands, values)
            case "Scan":
                return self._scan(attributes["body"], attributes["num_scan_inputs"], operands, values)
            case "Constant":
                return [self._constant(node.output[0], attributes["value"])]
            case "Identity":
                return [operands[0]]
            case "Reshape":
                return [operands[0].reshape(operands[1])]
            case "Transpose":
                return [operands[0].T.copy()]
        return [self._computed(node, operands)]

    def _computed(self, node: onnx.NodeProto, operands: list[Array]) -> Array:
        shape = np.broadcast_shapes(*(a.shape for a in operands))
        if node.op_type in ("ScatterElements", "Softmax"):
            shape = operands[0].shape
        dtype = operands[-1].dtype
        places = {e.key: e.value for e in node.metadata_props}
        target = np.empty(shape, dtype)
        if self._share and MAY_OVERWRITE in places:
            target = operands[int(places[MAY_OVERWRITE].removeprefix("0:"))]
            assert target.shape == shape
            assert target.dtype == dtype
        if node.op_type == "ScatterElements":
            data, indices, updates = operands
            target[...] = data
            for place in np.ndindex(indices.shape):
                target[(indices[place], *place[1:])] = updates[place]
        elif node.op_type == "Softmax":
            top = operands[0].max(axis=-1, keepdims=True)
            total = np.exp(operands[0] - top).sum(axis=-1, keepdims=True)
            for place in np.ndindex(shape):
                target[place] = np.exp(operands[0][place] - top[(*place[:-1], 0)]) / total[(*place[:-1], 0)]
        else:
            live = [np.broadcast_to(operand, shape) for operand in operands]
            for place in np.ndindex(shape):
                target[place] = ELEMENTWISE[node.op_type](*(operand[place] for operand in live))
        return target

    def _loop(self, body: onnx.GraphProto, operands: list[Array], values: Environment) -> list[Array]:
        trips, condition, *carried = operands
        names = [v.name for v in body.input]
        trip = 0
        while trip < trips and condition:
            bound = dict(zip(names, [np.array(trip), condition, *carried], strict=True))
            condition, *carried = self._graph(body, values.new_child(bound))
            trip += 1
        return carried

    def _scan(
        self, body: onnx.GraphProto, scanned: int, operands: list[Array], values: Environment
    ) -> list[Array]:
        states, sequences = operands[:-scanned], operands[-scanned:]
        names = [v.name for v in body.input]
        rows: list[list[Array]] = []
        for slices in zip(*sequences, strict=True):
            bound = dict(zip(names, [*states, *slices], strict=True))
            results = self._graph(body, values.new_child(bound))
            states, row = results[: len(states)], results[len(states) :]
            rows.append(row)
        return [*states, *(np.stack(column) for column in zip(*rows, strict=True))]
