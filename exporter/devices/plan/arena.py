"""Runs a plan node by node in one block of memory, to verify its lifetimes and offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....passes.planning.order import reads
from ....registration import PlanError
from ...running.model_inputs import inputs_of_model
from ...running.sessions.session import open_session, session_options
from .body_execution import run_bodies
from .records import PlanFacts, PlannedBuffer, PlannedGraph

_POISON = 0xFF


def run_in_arena(plan: PlanFacts, inputs: Mapping[str, np.typing.ArrayLike]) -> list[np.ndarray]:
    """Run a planned model in a block of `plan.peak` bytes.

    onnxruntime computes each node separately, without optimizations. Every value is written to its offset and
    read from there. A buffer that is not needed any more is overwritten with 0xFF bytes, so that a wrong
    lifetime gives a wrong result. Views are only checked. Sub-graphs run node by node in their workspaces.

    Args:
        inputs: arrays by input name.

    Returns:
        The outputs, in order.

    Raises:
        PlanError: the plan has no model or no offsets, or an input does not fit its buffer.
        DimensionError: an input has another shape than the plan.
        InferenceError: onnxruntime refuses a node.
    """
    if plan.model is None or plan.peak is None:
        raise PlanError("running a plan needs its model and the sizes of all dimensions")
    # 0xFF bytes are NaN as floats and -1 as integers, so a read at a wrong time or offset is visibly wrong.
    memory = np.full(plan.peak, _POISON, np.uint8)
    frame = _Frame(plan, plan.model.graph, memory, _Kernels(plan.model))
    # Without the metadata: the plan has already checked the restrictions on its sizes.
    declared = inputs_of_model(plan.model, metadata={})
    for name in declared.names:
        if name not in inputs:
            raise PlanError(f"the array for input '{name}' is missing")
    declared.check_sizes({name: np.shape(inputs[name]) for name in declared.names})
    return frame.run([np.asarray(inputs[name]) for name in frame.input_names])


class _Frame:
    """Runs a graph in a block of memory: the whole model, or a sub-graph in its workspace."""

    def __init__(
        self,
        planned: PlannedGraph,
        graph: ir.Graph,
        memory: np.ndarray,
        kernels: _Kernels,
        outer: _Frame | None = None,
    ):
        self._planned = planned
        self._graph = graph
        self._memory = memory
        self._kernels = kernels
        self._outer = outer
        self._buffer_of = {value: buffer for buffer in planned.buffers for value in buffer.values}
        self._shapes: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self._constants = {
            value.name or "": value.const_value.numpy()
            for value in graph.initializers.values()
            if value.const_value is not None
        }
        self._ends = self._buffers_by_last_node()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the graph on one array per name in `input_names`; return copies of the outputs."""
        for name, array in zip(self.input_names, inputs, strict=True):
            self._write(name, array)
        for index, (node, planned) in enumerate(zip(self._graph, self._planned.nodes, strict=True)):
            if planned.view and planned.inputs[0] in self._buffer_of:
                self._check_view(node)
            else:
                self._compute(node, index)
            for buffer in self._ends.get(index, ()):
                self._bytes(buffer)[:] = _POISON
        return [self.read_value(value.name or "").copy() for value in self._graph.outputs]

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs that have a buffer."""
        return [value.name or "" for value in self._graph.inputs if value.name in self._buffer_of]

    def read_value(self, name: str) -> np.ndarray:
        """Read a value of this graph, or of an enclosing one."""
        if name in self._constants:
            return self._constants[name]
        if name not in self._shapes:
            if self._outer is None:
                raise PlanError(f"the plan reads '{name}' before a node computes it")
            return self._outer.read_value(name)
        dtype, shape = self._shapes[name]
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._bytes(self._buffer_of[name])[:count].view(dtype).reshape(shape)

    def body(self, index: int, attribute: str) -> _Frame | None:
        """Return a frame for the sub-graph in an attribute of a node; None if it has no plan."""
        for body in self._planned.bodies:
            if (body.node, body.attribute) == (index, attribute) and body.peak is not None:
                graph = self._graph[index].attributes[attribute].as_graph()
                memory = self._memory[:0]
                if body.buffer is not None:
                    [buffer] = [b for b in self._planned.buffers if b.name == body.buffer]
                    memory = self._bytes(buffer)
                return _Frame(body, graph, memory, self._kernels, self)
        return None

    def _buffers_by_last_node(self) -> dict[int, list[PlannedBuffer]]:
        """Return, by node index, the buffers that are last used by the node; not those of outputs."""
        output_buffers = {
            self._buffer_of[value.name].name for value in self._graph.outputs if value.name in self._buffer_of
        }
        wholes = {
            buffer.within
            for buffer in self._planned.buffers
            if buffer.name in output_buffers and buffer.within
        }
        output_buffers |= wholes
        buffers_by_last_node: dict[int, list[PlannedBuffer]] = {}
        for buffer in self._planned.buffers:
            if buffer.name not in output_buffers and buffer.within not in output_buffers:
                buffers_by_last_node.setdefault(buffer.lifetime[1], []).append(buffer)
        return buffers_by_last_node

    def _bytes(self, buffer: PlannedBuffer) -> np.ndarray:
        assert buffer.offset is not None
        assert isinstance(buffer.size, int)
        return self._memory[buffer.offset : buffer.offset + buffer.size]

    def _write(self, name: str, array: np.ndarray) -> None:
        buffer = self._buffer_of[name]
        room = self._bytes(buffer)
        if array.nbytes > len(room):
            raise PlanError(f"'{name}' has {array.nbytes} bytes, but its buffer has {len(room)}")
        room[: array.nbytes] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self._shapes[name] = (array.dtype, array.shape)

    def _check_view(self, node: ir.Node) -> None:
        """Record the shapes of a view's results, which are in memory already.

        Raises:
            PlanError: the bytes in memory differ from the results that onnxruntime computes.
        """
        results = self._outputs(node, {})
        named_outputs = [value.name for value in node.outputs if value.name]
        for name, array in zip(named_outputs, results, strict=False):
            self._shapes[name] = array.dtype, array.shape
            if self.read_value(name).tobytes() != array.tobytes():
                raise PlanError(f"'{name}' is no view of the operands of node '{node.name}'")

    def _compute(self, node: ir.Node, index: int) -> None:
        named_outputs = [value for value in node.outputs if value.name]
        results = run_bodies(node, index, self)
        if results is None:
            results = self._outputs(node, {})
        else:
            results = [array for value, array in zip(node.outputs, results, strict=True) if value.name]
        for value, array in zip(named_outputs, results, strict=True):
            if value.name in self._buffer_of:
                self._write(value.name or "", array)
            else:
                self._constants[value.name or ""] = array

    def _outputs(self, node: ir.Node, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run a node on copies of its inputs; `arrays` overrides some of them by name."""
        names = dict.fromkeys(value.name or "" for value in reads(node))
        feed = {name: arrays[name] if name in arrays else self.read_value(name).copy() for name in names}
        weights = {name: feed.pop(name) for name in names if self._is_constant(name)}
        return self._kernels.run(node, feed, weights)

    def _is_constant(self, name: str) -> bool:
        if name in self._constants or self._outer is None or name in self._shapes:
            return name in self._constants
        return self._outer._is_constant(name)


class _Kernels:
    """Runs single nodes in onnxruntime; caches the sessions of nodes in sub-graphs."""

    def __init__(self, model: ir.Model):
        self._model = model
        self._sessions: dict[tuple[object, ...], Any] = {}

    def run(
        self, node: ir.Node, feed: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Run a node. Weights stay initializers, because kernels use other algorithms for constants."""
        types = tuple((name, array.dtype, array.shape) for name, array in feed.items())
        session = self._sessions.get((node, types))
        if session is None:
            session = _session(self._model, node, feed, weights)
            if node.graph is not self._model.graph:
                # Only nodes of sub-graphs may run again.
                self._sessions[node, types] = session
        results: list[np.ndarray] = session.run(None, dict(feed))
        return results


def _session(
    model: ir.Model, node: ir.Node, feed: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray]
) -> Any:
    proto = ir.to_proto(node)
    graph = onnx.GraphProto(name="node", node=[proto])
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    for name, array in feed.items():
        element_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, element_type, array.shape))
    for value in node.outputs:
        if value.name:
            graph.output.append(onnx.ValueInfoProto(name=value.name))
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    # An older onnxruntime refuses the newest IR version of the installed onnx.
    single = onnx.helper.make_model(graph, opset_imports=imports, ir_version=min(model.ir_version, 10))
    options = session_options()
    import onnxruntime

    # The node must run as planned, not fused or folded.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return open_session(single.SerializeToString(), f"node '{node.name}'", options=options)
