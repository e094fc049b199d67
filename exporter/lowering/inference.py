"""Runs onnx's shape inference within bounds of time and memory.

onnx's inference has no bounds: a Gather of a value by itself doubles the rank with each node, and data
propagation turns a declared length of 2**33 into as many messages. Ranks and lengths are bounded first; a
model whose inference may be expensive runs in a fork, with memory and time in proportion to its size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import onnx
import onnx.shape_inference

from ...registration.schemas import STATED_DEFAULTS
from ..files.reading import BOUNDS, TRUSTED, Bounds
from ..files.reading.subgraphs import all_graphs, with_subgraphs
from . import forks
from .implied_ranks import with_known_ranks
from .inference_risks import is_risky
from .negative_sizes import may_slice_negative_sizes
from .rank_bounds import RankBounds
from .slice_dimensions import with_named_slices

InferenceError = onnx.shape_inference.InferenceError

_PROPORTION = 16
"""The bytes of memory allowed for each byte of the message; inferred shapes take as much as the nodes."""
_ROUNDS = 3
"""The most repetitions of inference, each with the ranks that follow from the previous results."""
_SECONDS, _BYTES_IN_A_SECOND = 60, 100_000
"""A fork that infers is ended after this time, which is many times what inference takes."""
_DIMENSION = 64
"""Bytes of a dimension, and of a propagated element."""


def infer_shapes(
    model: onnx.ModelProto, *, data_prop: bool = False, strict: bool = False, bounds: Bounds = BOUNDS
) -> onnx.ModelProto:
    """Infer types and shapes; return a new model with them.

    Args:
        model: the model, without the contents of large tensors, which inference does not use.
        data_prop: whether to propagate values of small integer tensors too, if that is cheap enough.
        strict: whether an invalid node is an error; otherwise its outputs get no types.
        bounds: the limits on memory and time; `TRUSTED` runs inference in this process without limits.

    Raises:
        InferenceError, ValueError: the model is invalid, or exceeds a bound.
    """
    model = _with_stated_defaults(model)
    inferred = _infer(model, data_prop, strict, bounds)
    # A strict inference checks what the model itself states.
    for _ in range(_ROUNDS if data_prop and not strict else 0):
        ranked = with_known_ranks(model, inferred)
        if ranked is None:
            break
        model, inferred = ranked, _infer(ranked, data_prop, strict, bounds)
    named = with_named_slices(model, inferred)
    return inferred if named is None else _infer(named, data_prop, strict, bounds)


def _with_stated_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write the defaults without which onnx infers other shapes than runtimes compute, into a copy."""
    if not any(node.op_type in STATED_DEFAULTS for graph in all_graphs(model) for node in graph.node):
        return model
    stated = onnx.ModelProto()
    stated.CopyFrom(model)
    for node in (node for graph in all_graphs(stated) for node in graph.node):
        if node.op_type not in STATED_DEFAULTS or node.domain not in ("", "ai.onnx"):
            continue
        defaults = onnx.defs.get_schema(node.op_type).attributes
        written = {attribute.name for attribute in node.attribute}
        missing = (name for name in STATED_DEFAULTS[node.op_type] if name not in written)
        node.attribute.extend(defaults[name].default_value for name in missing)
    return stated


def _infer(model: onnx.ModelProto, data_prop: bool, strict: bool, bounds: Bounds) -> onnx.ModelProto:
    data = model.SerializeToString()
    # A trusted model needs no limits.
    if bounds is TRUSTED:
        return onnx.shape_inference.infer_shapes(data, data_prop=data_prop, strict_mode=strict)
    ranks = RankBounds(model)
    affordable = bounds.inference + _PROPORTION * len(data)
    # In a fork: inference could take all memory, or crash this process.
    if ranks.functions or ranks.dimensions() * _DIMENSION > affordable or is_risky(model):
        return _infer_within(data, affordable, data_prop, strict)
    if not (forks.IS_AVAILABLE and may_slice_negative_sizes(model)):
        return _infer_here(data, affordable, data_prop, strict)
    inferred = _call_in_fork(lambda: _infer_here(data, affordable, data_prop, strict), len(data))
    if inferred is None:
        raise InferenceError("onnx's shape inference crashes")
    return inferred


def _infer_here(data: bytes, affordable: int, data_prop: bool, strict: bool) -> onnx.ModelProto:
    inferred = onnx.shape_inference.infer_shapes(data, strict_mode=strict)
    if not data_prop or _is_static(inferred.graph):
        return inferred
    length = _propagated_elements(inferred)
    # Two inferred copies of a large model would double the peak of memory.
    del inferred
    if length is None or length * _DIMENSION > affordable:
        return _infer_within(data, affordable, True, strict)
    return onnx.shape_inference.infer_shapes(data, data_prop=True, strict_mode=strict)


def _infer_within(data: bytes, memory: int, data_prop: bool, strict: bool) -> onnx.ModelProto:
    """Infer in a fork with little memory and time; retry without data propagation if it takes too much."""
    # Shapes without propagated data are better than none.
    for with_data in (True, False) if data_prop else (False,):
        inferred = _call_in_fork(
            functools.partial(
                onnx.shape_inference.infer_shapes, data, data_prop=with_data, strict_mode=strict
            ),
            len(data),
            forks.ForkLimits(memory, (2 if with_data == data_prop else 1) + len(data) // 2_000_000),
        )
        if inferred is not None:
            return inferred
    raise InferenceError("its types and shapes take too much memory or time to infer")


def _call_in_fork(
    infer: Callable[[], onnx.ModelProto], size: int, limits: forks.ForkLimits | None = None
) -> onnx.ModelProto | None:
    """Run inference in a fork; None if it crashes or exceeds its limits.

    Args:
        infer: runs onnx's inference.
        size: the bytes of the message; the allowed elapsed time is proportional.
        limits: the limits on memory and processor time.
    """
    seconds = _SECONDS + size / _BYTES_IN_A_SECOND

    def answer_in_bytes() -> bytes:
        try:
            inferred: bytes = b"+" + infer().SerializeToString()
            return inferred
        except InferenceError as error:
            return b"-" + str(error).encode()[:1000]

    answer = forks.call_in_fork(answer_in_bytes, seconds, limits) if forks.IS_AVAILABLE else None
    if answer is None:
        return None
    if answer[:1] == b"-":
        raise InferenceError(answer[1:].decode(errors="replace"))
    inferred: onnx.ModelProto = onnx.ModelProto.FromString(answer[1:])
    return inferred


def _is_static(graph: onnx.GraphProto) -> bool:
    """Whether every value has a static shape, so that data propagation would add nothing."""
    for inner in with_subgraphs(graph):
        static_names = {info.name for info in (*inner.value_info, *inner.output) if _has_sizes(info.type)}
        if any(name and name not in static_names for node in inner.node for name in node.output):
            return False
    return True


def _has_sizes(value_type: onnx.TypeProto) -> bool:
    tensor = value_type.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


@functools.cache
def _propagates(op_type: str, version: int) -> bool:
    """Whether inference propagates an operator's data, possibly through its function body."""
    try:
        # onnx's type stubs lack the function attributes of schemas.
        schema: Any = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    has_body = schema.has_function or schema.has_context_dependent_function
    inferred_by_body = has_body and not schema.has_type_and_shape_inference_function
    return bool(schema.has_data_propagation_function or inferred_by_body)


def _propagated_elements(model: onnx.ModelProto) -> int | None:
    """Return an upper bound on the elements that data propagation makes; None if a length is not known yet.

    It follows from the shapes inferred without propagation: each operand of rank 1 counts with its length,
    and the result with the same.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    graphs = list(with_subgraphs(model.graph))
    fixed = {info.name for info in model.graph.input}
    types = {info.name: info.type for graph in graphs for info in _typed_values(graph)}
    sizes = {tensor.name: list(tensor.dims) for graph in graphs for tensor in graph.initializer}
    total = 0
    for node in (node for graph in graphs for node in graph.node):
        standard = node.domain in ("", "ai.onnx")
        if not standard or any(name in fixed and name not in types for name in node.input):
            # The outputs of an unknown operator never get a type.
            fixed.update(name for name in node.output if name not in types)
        if not standard or node.op_type == "Shape" or not _propagates(node.op_type, version):
            continue
        for name in filter(None, node.input):
            length = sizes[name] if name in sizes else _vector_length(types.get(name), name in fixed)
            if length is None:
                return None
            total += length[0] if len(length) == 1 else 0
    return 2 * total


def _typed_values(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    return (*graph.value_info, *graph.input, *graph.output)


def _vector_length(value_type: onnx.TypeProto | None, is_fixed: bool) -> list[int] | None:
    """Return [length] of a value of rank 1, [] for others; None if the length may still be inferred."""
    if value_type is None:
        return [] if is_fixed else None
    type_case = value_type.WhichOneof("value")
    if type_case not in (None, "tensor_type"):
        return []
    if type_case is None or not value_type.tensor_type.HasField("shape"):
        return [] if is_fixed else None
    dims = value_type.tensor_type.shape.dim
    if len(dims) != 1:
        return []
    if dims[0].HasField("dim_value"):
        return [dims[0].dim_value]
    return [] if is_fixed else None
