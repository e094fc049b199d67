"""Runs a plan node by node in one block of memory, to show that its lifetimes and offsets hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....passes.planning.order import reads
from ....registration import PlanError
from ...running.session import open_session, session_options
from .records import PlanFacts, PlannedBuffer

_POISON = 0xFF


def run_in_arena(plan: PlanFacts, inputs: Mapping[str, Any]) -> list[np.ndarray]:
    """Run a planned model in a block of `plan.peak` bytes.

    onnxruntime computes each node by itself, without optimizations. Every value is written to its offset and
    read from there; whatever is not needed any more is overwritten with 0xFF bytes, so that a wrong lifetime
    gives a wrong result. Views compute nothing.

    Args:
        inputs: arrays by input name.

    Returns:
        The outputs, in order.

    Raises:
        PlanError: the plan has no model or no offsets, or an input does not fit its buffer.
        InferenceError: onnxruntime refuses a node.
    """
    if plan.model is None or plan.peak is None:
        raise PlanError("running a plan needs its model and the sizes of all dimensions")
    return _Arena(plan, plan.model).run(inputs)


class _Arena:
    def __init__(self, plan: PlanFacts, model: ir.Model):
        self._plan = plan
        self._model = model
        self._memory = np.full(plan.peak or 0, _POISON, np.uint8)
        self._of = {value: buffer for buffer in plan.buffers for value in buffer.values}
        self._shapes: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._nodes = list(model.graph)

    def run(self, inputs: Mapping[str, Any]) -> list[np.ndarray]:
        graph = self._model.graph
        for value in graph.initializers.values():
            if value.const_value is not None:
                self._constants[value.name or ""] = value.const_value.numpy()
        for value in graph.inputs:
            name = value.name or ""
            if name in self._of:
                if name not in inputs:
                    raise PlanError(f"there is no array for input '{name}'")
                self._write(name, np.asarray(inputs[name]))
        ends = self._ends()
        for index, (node, planned) in enumerate(zip(self._nodes, self._plan.nodes, strict=True)):
            if planned.view and planned.inputs[0] in self._of:
                self._shapes[planned.outputs[0]] = self._viewed(node, planned.inputs[0])
            else:
                self._compute(node)
            for buffer in ends.get(index, ()):
                self._bytes(buffer)[:] = _POISON
        return [self._read(value.name or "").copy() for value in graph.outputs]

    def _ends(self) -> dict[int, list[PlannedBuffer]]:
        """The buffers that nothing needs after a node; outputs stay."""
        kept = {self._of[value.name].name for value in self._model.graph.outputs if value.name in self._of}
        found: dict[int, list[PlannedBuffer]] = {}
        for buffer in self._plan.buffers:
            if buffer.name not in kept:
                found.setdefault(buffer.lifetime[1], []).append(buffer)
        return found

    def _bytes(self, buffer: PlannedBuffer) -> np.ndarray:
        assert buffer.offset is not None
        assert isinstance(buffer.size, int)
        return self._memory[buffer.offset : buffer.offset + buffer.size]

    def _write(self, name: str, array: np.ndarray) -> None:
        buffer = self._of[name]
        room = self._bytes(buffer)
        if array.nbytes > len(room):
            raise PlanError(f"'{name}' is {array.nbytes} bytes, and its buffer has {len(room)}")
        room[: array.nbytes] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self._shapes[name] = (array.dtype, array.shape)

    def _read(self, name: str) -> np.ndarray:
        if name in self._constants:
            return self._constants[name]
        dtype, shape = self._shapes[name]
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._bytes(self._of[name])[:count].view(dtype).reshape(shape)

    def _viewed(self, node: ir.Node, source: str) -> tuple[np.dtype, tuple[int, ...]]:
        """Element type and shape of a view, from the node itself on an array of the same shape."""
        dtype, shape = self._shapes[source]
        [result] = self._outputs(node, {source: np.zeros(shape, dtype)})[:1]
        return result.dtype, result.shape

    def _compute(self, node: ir.Node) -> None:
        results = self._outputs(node, {})
        for value, array in zip((v for v in node.outputs if v.name), results, strict=True):
            if value.name in self._of:
                self._write(value.name or "", array)
            else:
                self._constants[value.name or ""] = array

    def _outputs(self, node: ir.Node, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run one node on copies of what it reads."""
        names = dict.fromkeys(value.name or "" for value in reads(node))
        feed = {name: given[name] if name in given else self._read(name).copy() for name in names}
        weights = {name: feed.pop(name) for name in names if name in self._constants}
        return _run(self._model, node, feed, weights)


def _run(
    model: ir.Model, node: ir.Node, feed: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Run a node; weights stay initializers, because kernels choose other algorithms for them."""
    proto = ir.to_proto(node)
    graph = onnx.GraphProto(name="node", node=[proto])
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    for name, array in feed.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    for value in node.outputs:
        if value.name:
            graph.output.append(onnx.ValueInfoProto(name=value.name))
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    single = onnx.helper.make_model(graph, opset_imports=imports, ir_version=min(model.ir_version, 10))
    options = session_options()
    import onnxruntime

    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = open_session(single.SerializeToString(), f"node '{node.name}'", options=options)
    found: list[np.ndarray] = session.run(None, dict(feed))
    return found
