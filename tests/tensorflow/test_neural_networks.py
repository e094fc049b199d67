"""Data formats and operators that TensorFlow does not run on a CPU, by records of their likes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import opsetta
import opsetta.symbolics
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import default_registry
from opsetta.registration.arguments import source_node

from ..onnxruntime_sessions import open_session
from ..opsets import HIGHEST
from .checks import KNOWN, SIZES, check, stored
from .records import Array, Record, Stored, const, floats, positive, subjects

_IMAGES = ("input", "value", "x", "out_backprop", "orig_input", "orig_output", "grad", "y_backprop")
_SIZES_OF_IMAGES = ("input_sizes", "orig_input_shape")
_FORMATS = {"NHWC": "NCHW", "NDHWC": "NCDHW"}
_BY_AXIS = ("strides", "ksize", "dilations")


def _first(array: Array) -> Array:
    return np.moveaxis(array, -1, 1)


def _listed(items: list[int]) -> list[int]:
    return [items[0], items[-1], *items[1:-1]]


def _channels_first(record: Record, held: Stored) -> tuple[Record, Stored]:
    """The record in the other data format, with TensorFlow's results transposed."""
    inputs = dict(record.inputs)
    for name in _IMAGES:
        if name in inputs:
            inputs[name] = _first(inputs[name])
    for name in _SIZES_OF_IMAGES:
        if name in inputs:
            inputs[name] = const(_listed(inputs[name].array.tolist()))
    arguments = dict(held.arguments)
    arguments["data_format"] = _FORMATS[arguments["data_format"]]
    for name in _BY_AXIS:
        if isinstance(arguments.get(name), list) and isinstance(arguments[name][0], int):
            arguments[name] = _listed(arguments[name])
    if arguments.get("explicit_paddings"):
        pads = arguments["explicit_paddings"]
        pairs = [pads[at : at + 2] for at in range(0, len(pads), 2)]
        arguments["explicit_paddings"] = [pad for pair in _listed(pairs) for pad in pair]
    # Filters have one layout in both data formats.
    are_images = not record.op.removesuffix("V2").endswith("BackpropFilter")
    outputs = [_first(array) if array.ndim > 3 and are_images else array for array in held.outputs]
    return dataclasses.replace(record, inputs=inputs), dataclasses.replace(
        held, arguments=arguments, outputs=outputs
    )


def _with_formats() -> list[Any]:
    found = []
    for subject, listed in subjects().items():
        for record in listed if subject.startswith("nn_") else []:
            named = stored(subject)[record.name].arguments.get("data_format") in _FORMATS
            # These have sizes for each axis among their inputs, or channels at axis 1 in any rank.
            if named and record.op not in ("BiasAdd", "MaxPoolV2") and "computed" not in record.case:
                found.append(pytest.param(subject, record, id=record.name))
    return found


@pytest.mark.parametrize(("subject", "record"), _with_formats())
def test_channels_first(subject: str, record: Record) -> None:
    turned, held = _channels_first(record, stored(subject)[record.name])
    check(turned, held, KNOWN)
    if not record.needs_sizes and not record.needs_shapes:
        check(turned, held, SIZES)


def lowered(
    op: str, inputs: dict[str, Any], arguments: dict[str, Any], opset: int = 18, outputs: int = 1
) -> ir.Model:
    """A graph of one node, with arrays as inputs of the graph."""

    def value(name: str, array: Array) -> ir.Value:
        dtype = ir.DataType.from_numpy(array.dtype)
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape))

    values: dict[str, Any] = {}
    flat = []
    for name, item in inputs.items():
        parts = (
            [value(f"{name}{i}", part) for i, part in enumerate(item)]
            if isinstance(item, list)
            else value(name, item)
        )
        values[name] = parts
        flat += parts if isinstance(item, list) else [parts]
    node = source_node(f"tf::{op}", {**values, **arguments}, num_outputs=outputs, node_name="node")
    for index, output in enumerate(node.outputs):
        output.name = f"out{index}"
    graph = ir.Graph(flat, [node.outputs[0]], nodes=[node], name="graph")
    return lower(ir.Model(graph, ir_version=10), opset, default_registry).model


def computed(
    op: str, inputs: dict[str, Any], arguments: dict[str, Any], opset: int = 18, outputs: int = 1
) -> Array:
    model = lowered(op, inputs, arguments, opset, outputs)
    session = open_session(model)
    feed = {}
    for name, item in inputs.items():
        feed |= (
            {f"{name}{i}": part for i, part in enumerate(item)} if isinstance(item, list) else {name: item}
        )
    known = {item.name for item in session.get_inputs()}
    return session.run(None, {name: array for name, array in feed.items() if name in known})[0]


CONV = {"strides": [1, 2, 2, 1], "padding": "SAME"}


@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_sizes_of_a_transposed_convolution_come_from_its_first_input(opset: int) -> None:
    like, filter_, back = floats(1, 7, 8, 2), floats(3, 3, 2, 3), floats(1, 4, 4, 3)
    given = {"filter": filter_, "out_backprop": back}
    ours = computed("Conv2DBackpropInputV2", {"input": like, **given}, CONV, opset)
    sizes = np.array(like.shape, dtype=np.int32)
    theirs = computed("Conv2DBackpropInput", {"input_sizes": sizes, **given}, CONV, max(opset, 10))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert ours.shape == like.shape


def test_operators_fused_with_a_depthwise_convolution() -> None:
    data = {"input": floats(1, 6, 6, 3), "filter": floats(3, 3, 3, 1, seed=1)}
    bias = floats(3, seed=2)
    ours = computed(
        "_FusedDepthwiseConv2dNative",
        {**data, "args": [bias]},
        {**CONV, "num_args": 1, "fused_ops": ["BiasAdd", "Relu"]},
    )
    theirs = np.maximum(computed("DepthwiseConv2dNative", data, CONV) + bias, 0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _statistics() -> dict[str, Array]:
    return {
        "scale": floats(3, seed=1),
        "offset": floats(3, seed=2),
        "mean": floats(3, seed=3),
        "variance": positive(3, seed=4),
    }


def test_normalization_fused_with_an_addition() -> None:
    data, side = {"x": floats(2, 4, 4, 3), **_statistics()}, floats(2, 4, 4, 3, seed=9)
    options = {"epsilon": 0.01, "is_training": False}
    ours = computed(
        "_FusedBatchNormEx",
        {**data, "side_input": [side]},
        {**options, "num_side_inputs": 1, "activation_mode": "Relu"},
        outputs=6,
    )
    theirs = np.maximum(computed("FusedBatchNormV3", data, options, outputs=6) + side, 0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.75), (0.5, 0.0), (0.5, 0.75)])
def test_response_normalization_with_parameters_of_zero(alpha: float, beta: float) -> None:
    x = floats(1, 2, 2, 4)
    ours = computed("LRN", {"input": x}, {"depth_radius": 1, "bias": 2.0, "alpha": alpha, "beta": beta})
    squares = np.pad(x**2, ((0, 0), (0, 0), (0, 0), (1, 1)))
    sums = squares[..., :-2] + squares[..., 1:-1] + squares[..., 2:]
    np.testing.assert_allclose(ours, x / (2 + alpha * sums) ** beta, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_normalization_of_old_graphs(scaled: bool) -> None:
    x, given = floats(2, 4, 4, 3), _statistics()
    ours = computed(
        "BatchNormWithGlobalNormalization",
        {
            "t": x,
            "m": given["mean"],
            "v": given["variance"],
            "beta": given["offset"],
            "gamma": given["scale"],
        },
        {"variance_epsilon": 0.01, "scale_after_normalization": scaled},
    )
    theirs = (x - given["mean"]) / np.sqrt(given["variance"] + 0.01)
    theirs = theirs * (given["scale"] if scaled else 1) + given["offset"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "inputs", "arguments", "reason"),
    [
        (
            "Conv2D",
            {"input": floats(1, 4, 4, 3), "filter": floats(1, 1, 3, 2)},
            {**CONV, "data_format": "NCHW_VECT_C"},
            "data_format 'NCHW_VECT_C' is not supported",
        ),
        (
            "MaxPool",
            {"input": floats(1, 4, 4, 4)},
            {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID"},
            "must be 1 for batch and channels",
        ),
        (
            "MaxPool",
            {"input": floats(1, 4, 4, 4).astype(np.int32)},
            {"ksize": [1, 0, 2, 1], "strides": [1, 1, 1, 1], "padding": "VALID"},
            r"ksize=\[1, 0, 2, 1\] must be 1 or more",
        ),
        (
            "Conv2D",
            {"input": floats(1, 4, 4, 3), "filter": floats(1, 1, 3, 2)},
            {**CONV, "dilations": [1, 1, -1, 1]},
            "dilations=.* must be 1 or more",
        ),
        (
            "LRN",
            {"input": floats(1, 4, 4, 3)},
            {"depth_radius": -1, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
            "odd and positive",
        ),
        (
            "LRN",
            {"input": floats(1, 4, 4, 3)},
            {"depth_radius": 1, "bias": 1.0, "alpha": 1.0, "beta": float("nan")},
            "beta nan .* must be 0 or more",
        ),
        (
            "ResizeBilinear",
            {"images": floats(1, 4, 4, 3), "size": np.array([2, 2], dtype=np.int32)},
            {"align_corners": True, "half_pixel_centers": True},
            "half_pixel_centers and align_corners",
        ),
        (
            "_FusedMatMul",
            {"a": floats(2, 2), "b": floats(2, 2), "args": []},
            {"num_args": 0, "fused_ops": ["Sigmoidal"]},
            "fused operator 'Sigmoidal' is not supported",
        ),
        (
            "_FusedMatMul",
            {"a": floats(2, 2), "b": floats(2, 2), "args": [floats(2)]},
            {"num_args": 1, "fused_ops": ["Relu"]},
            "do not take 1 operands",
        ),
        (
            "CudnnRNNV3",
            {
                **{name: floats(2, 2, 2) for name in ("input", "input_h", "input_c")},
                "params": floats(9),
                "sequence_lengths": np.array([2, 2], dtype=np.int32),
            },
            {"num_proj": 1},
            "projections of the hidden state",
        ),
        (
            "NonMaxSuppressionV5",
            {
                "boxes": floats(3, 4),
                "scores": floats(3),
                "max_output_size": np.array(2, dtype=np.int32),
                **{name: np.float32(0.5) for name in ("iou_threshold", "score_threshold", "soft_nms_sigma")},
            },
            {},
            "soft_nms_sigma must be constant",
        ),
    ],
    ids=lambda item: item if isinstance(item, str) and item.isidentifier() else "",
)
def test_what_has_no_meaning_in_onnx_is_refused(op: str, inputs: dict, arguments: dict, reason: str) -> None:
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=reason):
        lowered(
            op,
            {name: item if isinstance(item, list) else np.asarray(item) for name, item in inputs.items()},
            arguments,
        )
