"""Computes what a GraphDef computes, with numpy: an oracle for what is done to graphs.

Results that are not computed are dead, as in TensorFlow: a Switch gives its data to one of its results, and a
node that takes a dead result, or runs after a node that did not run, is dead; a Merge gives what is alive.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsetta.exporter.capture.tensorflow.element_types import numpy_type
from opsetta.exporter.capture.tensorflow.tensor_protos import array_of

DEAD = object()


def _gather(params: Any, indices: Any, axis: Any = 0, *, batch: int = 0) -> Any:
    if batch:
        return np.stack(
            [_gather(p, i, axis - 1, batch=batch - 1) for p, i in zip(params, indices, strict=True)]
        )
    return np.take(params, indices, axis=int(axis))


def _strided(node: Any, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    attr = node.attr
    index: list[Any] = []
    for i, (b, e, s) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        if attr["shrink_axis_mask"].i >> i & 1:
            index.append(b)
        else:
            masks = attr["begin_mask"].i >> i & 1, attr["end_mask"].i >> i & 1
            index.append(slice(None if masks[0] else b, None if masks[1] else e, s))
    return x[tuple(index)]


def _windows(node: Any, x: Any, size: Sequence[int], fill: float) -> Any:
    """The windows of an image that a convolution or a pooling sees."""
    strides = list(node.attr["strides"].list.i)[1:3]
    if node.attr["padding"].s == b"SAME":
        missing = [
            max((-(-n // stride) - 1) * stride + k - n, 0)
            for n, k, stride in zip(x.shape[1:3], size, strides, strict=True)
        ]
        pads = [(0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)]
        x = np.pad(x, pads, constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))[:, :: strides[0], :: strides[1]]


def _conv(node: Any, x: Any, w: Any) -> Any:
    return np.einsum("nhwcij,ijco->nhwo", _windows(node, x, w.shape[:2], 0), w)


def _pool(node: Any, x: Any) -> Any:
    return _windows(node, x, list(node.attr["ksize"].list.i)[1:3], -np.inf).max(axis=(-1, -2))


def _normalize(node: Any, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    return scale * (x - mean) / np.sqrt(variance + node.attr["epsilon"].f) + offset


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _reduce(function: Any, node: Any, x: Any, axes: Any) -> Any:
    return function(x, axis=tuple(np.atleast_1d(axes).tolist()), keepdims=node.attr["keep_dims"].b)


def _product(node: Any, a: Any, b: Any) -> Any:
    return (a.T if node.attr["transpose_a"].b else a) @ (b.T if node.attr["transpose_b"].b else b)


PLAIN = {
    "Identity": lambda x: x,
    "StopGradient": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Neg": np.negative,
    "Sub": np.subtract,
    "Add": np.add,
    "AddV2": np.add,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Less": np.less,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "LogicalNot": np.logical_not,
    "LogicalAnd": np.logical_and,
    "BiasAdd": np.add,
    "Softmax": _softmax,
    "ExpandDims": lambda x, axis: np.expand_dims(x, int(axis)),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Shape": lambda x: np.array(x.shape, np.int32),
    "SelectV2": np.where,
    "Floor": np.floor,
    "GatherV2": _gather,
    "Fill": lambda shape, value: np.full(shape, value),
    "ConcatV2": lambda *values: np.concatenate(values[:-1], axis=int(values[-1])),
}
WITH_NODE = {
    "MatMul": _product,
    "Conv2D": _conv,
    "MaxPool": _pool,
    "FusedBatchNormV3": _normalize,
    "StridedSlice": _strided,
    "Sum": functools.partial(_reduce, np.sum),
    "Mean": functools.partial(_reduce, np.mean),
    "Cast": lambda node, x: x.astype(numpy_type(node.attr["DstT"].type)),
}
PORTS = {"output_false": 0, "output_true": 1}


class Interpreter:
    """Computes results of a graph."""

    def __init__(self, graph: Any):
        self._library = {function.signature.name: function for function in graph.library.function}
        self._graph = graph

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """The values of results."""
        return _Scope(self, self._graph.node, dict(feeds)).values(outputs)

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """The results of a function."""
        function = self._library[name]
        feeds = {a.name: value for a, value in zip(function.signature.input_arg, arguments, strict=True)}
        outputs = [function.ret[output.name] for output in function.signature.output_arg]
        return _Scope(self, function.node_def, feeds).values(outputs)


class _Scope:
    def __init__(self, interpreter: Interpreter, nodes: Any, feeds: dict[str, Any]):
        self._interpreter, self._feeds = interpreter, feeds
        self._nodes = {node.name: node for node in nodes}
        self._computed: dict[str, list[Any]] = {}
        self._loops: set[str] = set()

    def values(self, outputs: Sequence[str]) -> list[Any]:
        return [self._value(output) for output in outputs]

    def _value(self, text: str) -> Any:
        name, _, port = text.lstrip("^").partition(":")
        if name in self._feeds:
            return self._feeds[name]
        if name not in self._computed:
            self._computed[name] = self._compute(self._nodes[name])
        found = self._computed[name]
        word, _, index = port.rpartition(":")
        if text.startswith("^"):
            return DEAD if all(value is DEAD for value in found) and found else None
        return found[PORTS.get(word, int(index or 0))]

    def _compute(self, node: Any) -> list[Any]:
        controls = [self._value(text) for text in node.input if text.startswith("^")]
        texts = [text for text in node.input if not text.startswith("^")]
        if any(value is DEAD for value in controls):
            return [DEAD] * 8
        if node.op == "Exit":
            return [self._loop(node)]
        inputs = [self._value(text) for text in texts]
        if node.op == "Merge":
            alive = [(value, i) for i, value in enumerate(inputs) if value is not DEAD]
            return [DEAD] * 8 if not alive else [alive[0][0], np.int32(alive[0][1])]
        if any(value is DEAD for value in inputs):
            return [DEAD] * 8
        if node.op == "Switch":
            return [DEAD, inputs[0]] if inputs[1] else [inputs[0], DEAD]
        return self._plain(node, inputs)

    def _plain(self, node: Any, inputs: list[Any]) -> list[Any]:
        call, attr = self._interpreter.call, node.attr
        if node.op == "Const":
            return [array_of(attr["value"].tensor, node.name)]
        if node.op == "NoOp":
            return []
        if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            return call(attr["f"].func.name, inputs)
        if node.op in ("If", "StatelessIf"):
            return call(attr["then_branch" if inputs[0] else "else_branch"].func.name, inputs[1:])
        if node.op in ("While", "StatelessWhile"):
            while call(attr["cond"].func.name, inputs)[0]:
                inputs = call(attr["body"].func.name, inputs)
            return inputs
        if node.op in WITH_NODE:
            return [WITH_NODE[node.op](node, *inputs)]
        return [PLAIN[node.op](*inputs)]

    def _loop(self, exit_node: Any) -> Any:
        """The result of a loop that an Exit leaves."""
        merges = [
            node for node in self._nodes.values() if node.op == "Merge" and self._next(node) is not None
        ]
        switch = self._nodes[exit_node.input[0].partition(":")[0]]
        state = {merge.name: self._value(self._nodes[merge.input[0]].input[0]) for merge in merges}
        enters = {
            node.name: self._value(node.input[0])
            for node in self._nodes.values()
            if node.op == "Enter" and not any(node.name == merge.input[0] for merge in merges)
        }
        while True:
            # The Switches of the loop have no meaning of their own: their data is alive while it goes on.
            inner = _Scope(self._interpreter, self._nodes.values(), {**self._feeds, **enters, **state})
            condition = inner._value(self._nodes[switch.input[1].partition(":")[0]].input[0])
            if not condition:
                return state[switch.input[0].partition(":")[0]]
            for node in self._nodes.values():
                if node.op == "LoopCond":
                    inner._feeds[node.name] = np.True_
            state = {merge.name: inner._value(self._next(merge).input[0]) for merge in merges}

    def _next(self, merge: Any) -> Any:
        """The NextIteration that a Merge reads."""
        node = self._nodes.get(merge.input[-1].partition(":")[0])
        return node if node is not None and node.op == "NextIteration" else None
