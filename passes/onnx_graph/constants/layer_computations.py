"""Layers, reductions and functions on weights, computed by `onnx.reference` and shaped by ONNX's inference.

1. Only operators whose computation cannot fail if the shapes are valid: ONNX's inference checks most shapes,
   and `_CHECKS` those that it accepts although no runtime does.
2. Numbers of 16 bits are computed in single precision, as runtimes do, and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....registration.dtypes import FLOATS, HALVES
from ....registration.inference.folding import evaluator, has_evaluator

Shape = tuple[int, ...]
_FUNCTIONS = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Ceil Clip Cosh Elu Erf Floor Gelu HardSigmoid HardSwish LeakyRelu Log "
    "Max Mean Min Mish PRelu Relu Round Selu Sign Sinh Softplus Softsign Sum Tan ThresholdedRelu".split()
)
_REDUCTIONS = frozenset(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd ReduceSumSquare Softmax LogSoftmax".split()
)
_LAYERS = frozenset("Conv Gemm LayerNormalization MatMul RMSNormalization".split())
OPERATORS = _FUNCTIONS | _REDUCTIONS | _LAYERS
"""The operators that are computed here."""


def infer_result(
    op_type: str, opset: int, inputs: Sequence[ir.Value], attributes: dict[str, Any]
) -> Shape | None:
    """The shape of the only result of an operator on floats of one type; None if the node is not valid."""
    dtype = inputs[0].dtype
    schema = _schema(op_type, opset)
    if schema is None or dtype not in FLOATS or dtype.bitwidth < 16:
        return None
    values = {f"in{number}": value for number, value in enumerate(inputs)}
    types = {
        name: onnx.helper.make_tensor_type_proto(value.dtype or dtype, value.shape.numpy())
        for name, value in values.items()
        if value.shape is not None and value.shape.is_static()
    }
    if len(types) < len(values):
        return None
    # Axes and other integers decide the shape of the result.
    numbers = {
        name: ir.serde.serialize_tensor(value.const_value)
        for name, value in values.items()
        if value.dtype == ir.DataType.INT64 and value.const_value is not None
    }
    shapes = [value.shape.numpy() for value in inputs if value.shape is not None]
    if any(0 in shape for shape in shapes):
        return None
    is_valid: Callable[..., bool] = _CHECKS.get(op_type, _accept)
    try:
        if not is_valid(attributes, *shapes):
            return None
        results = onnx.shape_inference.infer_node_outputs(
            schema, _node(op_type, len(inputs), attributes), types, numbers
        )
    except (onnx.shape_inference.InferenceError, IndexError, KeyError, ValueError):
        return None
    dimensions = results["out"].tensor_type.shape.dim if "out" in results else []
    if "out" not in results or not all(dimension.HasField("dim_value") for dimension in dimensions):
        return None
    return tuple(dimension.dim_value for dimension in dimensions)


def layer_function(op_type: str, opset: int, count: int) -> Callable[..., np.ndarray]:
    """The function of an operator with so many inputs, from attributes and arrays."""

    def compute(attributes: dict[str, Any], *arrays: np.ndarray) -> np.ndarray:
        first = ir.DataType.from_numpy(arrays[0].dtype)
        if first in HALVES:
            arrays = tuple(
                array.astype(np.float32) if array.dtype == arrays[0].dtype else array for array in arrays
            )
        if has_evaluator(op_type):
            return np.asarray(evaluator(op_type)(attributes, *arrays))
        reference = _reference(op_type, opset, count, attributes)
        feeds = {f"in{number}": array for number, array in enumerate(arrays)}
        return np.asarray(reference.run(None, feeds)[0])

    return compute


def layer_work(op_type: str, shapes: Sequence[Shape], result: Shape) -> int:
    """The elements that a computation reads and writes, those of products for each result."""
    stored = sum(map(math.prod, shapes)) + math.prod(result)
    if op_type in ("MatMul", "Gemm"):
        # The inner dimension follows from the numbers of elements.
        inner = math.isqrt(math.prod(shapes[0]) * math.prod(shapes[1]) // max(1, math.prod(result)))
        return stored + math.prod(result) * inner // _FAST_PRODUCTS
    if op_type == "Conv":
        return stored + math.prod(result) * math.prod(shapes[1][1:])
    return stored


_FAST_PRODUCTS = 16
"""A matrix product takes the time of a sixteenth as many elements, because processors are made for it."""


def _reference(op_type: str, opset: int, count: int, attributes: dict[str, Any]) -> Any:
    # Takes a third of a second to import, which few models need.
    from onnx.reference import ReferenceEvaluator

    node = _node(op_type, count, attributes)
    names = [onnx.helper.make_empty_tensor_value_info(name) for name in node.input]
    graph = onnx.helper.make_graph([node], "g", names, [onnx.helper.make_empty_tensor_value_info("out")])
    imports = [onnx.helper.make_opsetid("", opset)]
    return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports))


def _node(op_type: str, count: int, attributes: dict[str, Any]) -> onnx.NodeProto:
    names = [f"in{number}" for number in range(count)]
    return onnx.helper.make_node(op_type, names, ["out"], **attributes)


@functools.cache
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None


def _accept(attributes: dict[str, Any], *shapes: Shape) -> bool:
    return True


def _is_convolution(
    attributes: dict[str, Any], data: Shape, weight: Shape, bias: Shape | None = None
) -> bool:
    groups = attributes.get("group", 1)
    kernel = attributes.get("kernel_shape")
    return (
        len(data) == len(weight) >= 3
        and groups > 0
        and data[1] == groups * weight[1]
        and weight[0] % groups == 0
        and (bias is None or bias == weight[:1])
        and (kernel is None or tuple(kernel) == weight[2:])
        and attributes.get("auto_pad", "NOTSET") == "NOTSET"
        and min(attributes.get("pads", (0,))) >= 0
    )


def _is_normalization(attributes: dict[str, Any], data: Shape, *parameters: Shape) -> bool:
    axis = int(attributes.get("axis", -1))
    return -len(data) <= axis < len(data) and all(shape == data[axis:] for shape in parameters)


def _has_axis(attributes: dict[str, Any], data: Shape) -> bool:
    return -len(data) <= int(attributes.get("axis", -1)) < len(data)


def _are_numbers(attributes: dict[str, Any], data: Shape, *bounds: Shape) -> bool:
    return all(not shape for shape in bounds)


def _is_gemm(attributes: dict[str, Any], a: Shape, b: Shape, c: Shape | None = None) -> bool:
    if len(a) != 2 or len(b) != 2:
        return False
    rows, inner = a[::-1] if attributes.get("transA") else a
    inner_of_b, columns = b[::-1] if attributes.get("transB") else b
    result = (rows, columns)
    return bool(inner == inner_of_b and (c is None or np.broadcast_shapes(c, result) == result))


def _reduces(attributes: dict[str, Any], data: Shape, *axes: Shape) -> bool:
    return all(-len(data) <= axis < len(data) for axis in attributes.get("axes", ()))


_CHECKS: dict[str, Callable[..., bool]] = {
    "Clip": _are_numbers,
    "Conv": _is_convolution,
    "Gemm": _is_gemm,
    "LayerNormalization": _is_normalization,
    "LogSoftmax": _has_axis,
    "PRelu": lambda attributes, data, slope: np.broadcast_shapes(data, slope) == data,
    "RMSNormalization": _is_normalization,
    "Softmax": _has_axis,
    **{name: _reduces for name in _REDUCTIONS if name.startswith("Reduce")},
}
