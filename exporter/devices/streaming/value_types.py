"""Infers the element types and sizes of a graph's values by onnxruntime."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from ....registration.inference.tensor_sizes import packed_bytes
from ...running.model_inputs import element_type_of
from ...running.sessions.session import open_session, session_options


@dataclasses.dataclass(frozen=True)
class ValueType:
    """The type of a tensor of numbers.

    Attributes:
        element_type: a number of `onnx.TensorProto.DataType`.
        dims: for each axis its size, a dimension name, or None if unknown; None if the rank is unknown or 0,
            which onnxruntime does not distinguish.
    """

    element_type: int
    dims: tuple[int | str | None, ...] | None

    def nbytes(self, dimensions: Mapping[str, int]) -> int | None:
        """Return the bytes of a tensor of this type; None if a size is unknown.

        Args:
            dimensions: the sizes of dimensions by name.
        """
        if self.dims is None:
            return None
        sizes = [dimensions.get(dim) if isinstance(dim, str) else dim for dim in self.dims]
        known_sizes = [size for size in sizes if size is not None]
        if len(known_sizes) < len(sizes):
            return None
        return packed_bytes(ir.DataType(self.element_type), math.prod(known_sizes))

    def value_info(self, name: str) -> onnx.ValueInfoProto:
        """Return the declaration of a value of this type, without dimension names."""
        # Segments that share a session may have different dimension names.
        dims = None if self.dims is None else [dim if isinstance(dim, int) else None for dim in self.dims]
        return onnx.helper.make_tensor_value_info(name, self.element_type, dims)


def value_types(proto: onnx.ModelProto, weights: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Return the types of the main graph's inputs and results that are tensors of numbers.

    Args:
        proto: the model without its large weights.
        weights: the types of these weights by name.

    Raises:
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    graph = probe.graph
    # Declared types of intermediate values are removed: they may be wrong, and onnxruntime would keep them.
    del graph.value_info[:]
    del graph.output[:]
    graph.input.extend(value_type.value_info(name) for name, value_type in weights.items())
    results = dict.fromkeys(name for node in graph.node for name in node.output if name)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in results)
    if not results:
        # onnxruntime refuses a graph without outputs.
        graph.output.extend(onnx.ValueInfoProto(name=item.name) for item in graph.input)
    options = session_options()
    import onnxruntime

    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = open_session(probe.SerializeToString(), "the graph of the model", options=options)
    return dict(_types((*session.get_inputs(), *session.get_outputs())))


def _types(arguments: Iterable[Any]) -> Iterable[tuple[str, ValueType]]:
    for argument in arguments:
        dtype = element_type_of(argument.type)
        if dtype is not None and dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING):
            yield argument.name, ValueType(int(dtype), tuple(argument.shape) or None)
