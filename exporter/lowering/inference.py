"""Shape inference within bounds, whatever the model says.

onnx infers types and shapes in C++, without bounds of its own: a Gather of a value by itself doubles the rank
with each node, and where data is propagated, a stated length of 2**33 becomes as many messages. What a model
cannot lead to is found before, from ranks and lengths alone; a model of which that is not certain is inferred
in a process of its own, with as much memory and time as its size allows.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import onnx
import onnx.shape_inference

from ..files.reading import BOUNDS, TRUSTED, Bounds
from ..files.reading.subgraphs import with_subgraphs
from .rank_bounds import RankBounds
from .slice_dimensions import with_named_slices

InferenceError = onnx.shape_inference.InferenceError

_PROPORTION = 16
"""Bytes for each byte of the message; shapes that are inferred take as much as the nodes themselves."""
_DIMENSION = 64
"""Bytes of a dimension, and of an element that is propagated."""

_CHILD = """
import json, resource, sys
sys.path[:] = json.loads(sys.argv[1])
import onnx.shape_inference
model = sys.stdin.buffer.read()
with open("/proc/self/statm") as file:
    held = int(file.read().split()[0]) * resource.getpagesize()
for kind, most in ((resource.RLIMIT_AS, held + int(sys.argv[2])), (resource.RLIMIT_CPU, int(sys.argv[3]))):
    resource.setrlimit(kind, (most, most))
try:
    found = onnx.shape_inference.infer_shapes(
        model, data_prop=bool(int(sys.argv[4])), strict_mode=bool(int(sys.argv[5]))
    )
except onnx.shape_inference.InferenceError as error:
    sys.stdout.buffer.write(b"-" + str(error).encode()[:1000])
else:
    sys.stdout.buffer.write(b"+" + found.SerializeToString())
"""


def infer_shapes(
    model: onnx.ModelProto, *, data_prop: bool = False, strict: bool = False, bounds: Bounds = BOUNDS
) -> onnx.ModelProto:
    """The model with inferred types and shapes.

    Args:
        model: without the contents of large tensors, which inference has no use for.
        data_prop: whether to follow the values of small integer tensors too, where that is affordable.
        strict: whether what is wrong with a node is an error; else its outputs have no types.
        bounds: what inference may take; it runs here where it has none.

    Raises:
        InferenceError: the model is not valid, or beyond what is inferred.
        ValueError: as `InferenceError`.
    """
    inferred = _inferred(model, data_prop, strict, bounds)
    named = with_named_slices(model, inferred)
    return inferred if named is None else _inferred(named, data_prop, strict, bounds)


def _inferred(model: onnx.ModelProto, data_prop: bool, strict: bool, bounds: Bounds) -> onnx.ModelProto:
    data = model.SerializeToString()
    if bounds is TRUSTED:
        return onnx.shape_inference.infer_shapes(data, data_prop=data_prop, strict_mode=strict)
    ranks = RankBounds(model)
    affordable = bounds.inference + _PROPORTION * len(data)
    if ranks.functions or ranks.dimensions() * _DIMENSION > affordable:
        return _apart(data, affordable, data_prop=data_prop, strict=strict)
    inferred = onnx.shape_inference.infer_shapes(data, strict_mode=strict)
    if not data_prop or _is_static(inferred.graph):
        return inferred
    length = _propagated(inferred)
    del inferred
    if length is None or length * _DIMENSION > affordable:
        return _apart(data, affordable, data_prop=True, strict=strict)
    return onnx.shape_inference.infer_shapes(data, data_prop=True, strict_mode=strict)


def _apart(data: bytes, memory: int, *, data_prop: bool, strict: bool) -> onnx.ModelProto:
    """Infer in a process of its own; without data propagation where that takes too much."""
    for propagated in (True, False) if data_prop else (False,):
        found = _in_child(data, memory, propagated, strict)
        if found[:1] == b"+":
            return onnx.ModelProto.FromString(found[1:])
        if found[:1] == b"-":
            raise InferenceError(found[1:].decode(errors="replace"))
    raise InferenceError("its types and shapes take too much memory or time to infer")


def _in_child(data: bytes, memory: int, data_prop: bool, strict: bool) -> bytes:
    """What the process says; nothing where it was ended, or cannot be had on this system."""
    if not sys.platform.startswith("linux") or not sys.executable:
        return b""
    seconds = 4 + len(data) // 1_000_000
    limits = [str(memory), str(seconds), str(int(data_prop)), str(int(strict))]
    command = [sys.executable, "-I", "-c", _CHILD, json.dumps(sys.path), *limits]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False)
    except OSError:
        return b""
    return done.stdout if done.returncode == 0 else b""


def _is_static(graph: onnx.GraphProto) -> bool:
    """Whether every value has a type whose sizes are all numbers, so that data would tell nothing more."""
    for inner in with_subgraphs(graph):
        known = {info.name for info in (*inner.value_info, *inner.output) if _has_sizes(info.type)}
        if any(name and name not in known for node in inner.node for name in node.output):
            return False
    return True


def _has_sizes(kind: onnx.TypeProto) -> bool:
    tensor = kind.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


@functools.cache
def _propagates(op_type: str, version: int) -> bool:
    """Whether an operator's data is followed; a body that stands for inference may do so."""
    try:
        # The stubs of onnx do not know what its schemas say of functions.
        schema: Any = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    has_body = schema.has_function or schema.has_context_dependent_function
    inferred_by_body = has_body and not schema.has_type_and_shape_inference_function
    return bool(schema.has_data_propagation_function or inferred_by_body)


def _propagated(model: onnx.ModelProto) -> int | None:
    """An upper bound on the elements that data propagation makes, from the shapes found without it.

    Each operand counts with its length where it is one-dimensional, and the result with as much. None where
    a length is not known yet.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    graphs = list(with_subgraphs(model.graph))
    fixed = {info.name for info in model.graph.input}
    types = {info.name: info.type for graph in graphs for info in _stated(graph)}
    sizes = {tensor.name: list(tensor.dims) for graph in graphs for tensor in graph.initializer}
    total = 0
    for node in (node for graph in graphs for node in graph.node):
        standard = node.domain in ("", "ai.onnx")
        if not standard or any(name in fixed and name not in types for name in node.input):
            # What comes of an unknown operator has no type, whatever is found of the others.
            fixed.update(name for name in node.output if name not in types)
        if not standard or node.op_type == "Shape" or not _propagates(node.op_type, version):
            continue
        for name in filter(None, node.input):
            length = sizes[name] if name in sizes else _one_dimension(types.get(name), name in fixed)
            if length is None:
                return None
            total += length[0] if len(length) == 1 else 0
    return 2 * total


def _stated(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    return (*graph.value_info, *graph.input, *graph.output)


def _one_dimension(kind: onnx.TypeProto | None, is_fixed: bool) -> list[int] | None:
    """The length of a one-dimensional value, nothing for any other; None where it may yet be found."""
    if kind is None:
        return [] if is_fixed else None
    which = kind.WhichOneof("value")
    if which not in (None, "tensor_type"):
        return []
    if which is None or not kind.tensor_type.HasField("shape"):
        return [] if is_fixed else None
    dims = kind.tensor_type.shape.dim
    if len(dims) != 1:
        return []
    if dims[0].HasField("dim_value"):
        return [dims[0].dim_value]
    return [] if is_fixed else None
