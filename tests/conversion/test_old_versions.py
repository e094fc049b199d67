"""Old versions of operators: what onnxruntime makes of them at their own opset, it does at others."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta import UnsupportedOperatorsError
from opsetta.exporter.lowering.conversion import convert

from .test_conversion import converted, run

RANDOM = np.random.default_rng(0)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One node at one opset.

    Attributes:
        inputs: its inputs in order, None where one is left out; those in `constant` are initializers.
        refused: opsets at which it is refused, of `targets`.
    """

    op_type: str
    opset: int
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    constant: tuple[int, ...] = ()
    targets: tuple[int, ...] = (7, 9, 11, 13, 16, 18, 21)
    refused: tuple[int, ...] = ()

    def __str__(self):
        told = "-".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{self.op_type}-{self.opset}-{told}-{len(self.constant)}"


def reals(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def whole(*numbers):
    return np.array(numbers, dtype=np.int64)


def factors(*numbers):
    return np.array(numbers, dtype=np.float32)


IMAGE = reals(2, 3, 9, 8)
WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
SCATTERED = (reals(3, 4), whole(2, 0, 2, -1).reshape(2, 2), reals(2, 2))
BANDS = (*whole(20, 25, 16000), *factors(100, 7600))
DILATED = {
    "kernel_shape": [2, 3],
    "dilations": [2, 1],
    "strides": [2, 2],
    "pads": [1, 1, 1, 1],
    "ceil_mode": 1,
}
AXES = {"axes": [2, 3], "mode": "linear"}
BLOCKS = {"strides": [2, 2], "pads": [1, 0, 1, 1], "dilations": [1, 2]}
SMALL = np.array([[1, 1, 2.4, 5], [2, 0, 6, 7], [3, 3, 3.2, 3.3], [-2, 1, 7, 12]], dtype=np.float32)
REGIONS = (IMAGE, SMALL, whole(0, 1, 1, 0))
POOLED = {"output_height": 2, "output_width": 3}
SEQUENCE = reals(5, 2, 4)
BYTES = RANDOM.integers(0, 256, size=(2, 3, 4)).astype(np.uint8)
SCALE, ZERO = np.float32(0.05), np.uint8(7)
SCALES, ZEROS = factors(0.05, 0.1, 0.02), np.array([3, 128, 200], dtype=np.uint8)
TIES = np.array([[1, 3, 3, 2], [4, 4, 1, 4]], dtype=np.float32)
GRID = RANDOM.uniform(-1.2, 1.2, size=(2, 4, 5, 2)).astype(np.float32)
SPACE = RANDOM.uniform(-1.2, 1.2, size=(1, 2, 4, 5, 3)).astype(np.float32)


def resized(scales, opset=10, **more):
    return [
        Case("Resize", opset, (IMAGE, factors(*scales)), {"mode": "nearest"}, **more),
        Case("Resize", opset, (IMAGE, factors(*scales)), {"mode": "nearest"}, constant=(1,), **more),
        Case("Resize", opset, (IMAGE, factors(*scales)), {"mode": "linear"}, constant=(1,), **more),
    ]


CASES = [
    Case("RoiAlign", 10, REGIONS, POOLED),
    Case("RoiAlign", 10, REGIONS, {**POOLED, "sampling_ratio": 2, "spatial_scale": 0.5}),
    *(
        Case(
            "RoiAlign",
            16,
            REGIONS,
            {**POOLED, "mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.7},
            constant=constant,
            targets=(9, 10, 13, 21),
            refused=(9,) if mode == "max" else (),
        )
        for mode, ratio, constant in (("avg", 0, ()), ("avg", 2, (1,)), ("max", 0, (1,)), ("max", 3, ()))
    ),
    Case("RoiAlign", 16, (IMAGE, SMALL[1:2], whole(1)), POOLED, constant=(1,), targets=(10, 15)),
    Case(
        "RoiAlign",
        16,
        REGIONS,
        {**POOLED, "coordinate_transformation_mode": "output_half_pixel"},
        targets=(10, 15, 21),
    ),
    Case(
        "DeformConv",
        19,
        (reals(2, 4, 7, 8), reals(6, 2, 3, 3), 2 * reals(2, 36, 7, 8), reals(6), reals(2, 18, 7, 8)),
        {"group": 2, "offset_group": 2, "pads": [1, 1, 1, 1]},
        targets=(7, 9, 13, 18, 22),
    ),
    Case(
        "DeformConv",
        19,
        (reals(2, 4, 7, 8), reals(6, 4, 3, 2), 2 * reals(2, 12, 3, 4)),
        {"strides": [2, 2], "pads": [0, 0, 1, 1]},
        targets=(9, 18),
    ),
    *resized((1, 1, 2, 3)),
    *resized((1, 1, 0.6, 0.35)),
    *resized((1, 1, 1.7, 0.4)),
    Case("Upsample", 9, (IMAGE, factors(1, 1, 2.5, 3)), {"mode": "nearest"}, constant=(1,)),
    Case("Upsample", 7, (IMAGE,), {"mode": "linear", "scales": [1.0, 1.0, 2.0, 2.0]}),
    Case("AveragePool", 7, (IMAGE,), WINDOW),
    Case("AveragePool", 7, (IMAGE,), {**WINDOW, "count_include_pad": 1}),
    Case("AveragePool", 10, (IMAGE,), {**WINDOW, "ceil_mode": 1}),
    Case("MaxPool", 1, (IMAGE,), WINDOW, targets=(9, 12, 22)),
    Case("MaxPool", 8, (IMAGE,), {**WINDOW, "storage_order": 1}, outputs=2, targets=(9, 10, 12, 21)),
    Case("MaxPool", 10, (IMAGE,), {**WINDOW, "ceil_mode": 1}),
    Case("LpPool", 11, (IMAGE,), {**WINDOW, "p": 3}),
    *(Case(name, 11, (IMAGE,)) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    *(Case(name, 9, (IMAGE,), {"axis": 2}) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    Case("BatchNormalization", 7, (IMAGE, reals(3), reals(3), reals(3), reals(3) ** 2)),
    Case("BatchNormalization", 9, (IMAGE, reals(3), reals(3), reals(3), reals(3) ** 2), {"epsilon": 0.1}),
    Case("Dropout", 7, (IMAGE,), {"ratio": 0.3}),
    Case("Dropout", 10, (IMAGE,)),
    Case("Scatter", 9, (reals(3, 3), whole(1, 0, 2, 2).reshape(2, 2), reals(2, 2))),
    Case("ScatterElements", 11, (reals(3, 3), whole(1, 0, 2, 2).reshape(2, 2), reals(2, 2)), {"axis": 1}),
    Case("ScatterND", 11, (reals(4, 3), whole(1, 3).reshape(2, 1), reals(2, 3))),
    Case("TopK", 9, (TIES,), {"k": 3}, outputs=2),
    Case("TopK", 10, (TIES, whole(3)), outputs=2, constant=(1,)),
    Case("ArgMax", 11, (TIES,), {"axis": 1}),
    Case("ArgMin", 9, (TIES,), {"axis": 1, "keepdims": 0}),
    Case("MaxPool", 10, (IMAGE,), DILATED, outputs=2, targets=(7, 9, 11, 21)),
    Case("AveragePool", 19, (IMAGE,), {**DILATED, "count_include_pad": 1}, targets=(7, 10, 18, 21)),
    Case("LpPool", 18, (IMAGE,), {**DILATED, "p": 3}, targets=(7, 11, 17, 21)),
    Case("Resize", 18, (IMAGE, None, factors(1.5, 0.6)), AXES, constant=(2,), targets=(9, 11, 13, 17)),
    Case("Resize", 18, (IMAGE, None, None, whole(13, 5)), AXES, constant=(3,), targets=(9, 11, 13, 17)),
    Case("Resize", 18, (IMAGE, None, None, whole(13, 5)), AXES, targets=(9, 11, 17)),
    Case("Col2Im", 18, (reals(2, 18, 20), whole(5, 7), whole(2, 3)), constant=(1, 2)),
    Case("Col2Im", 18, (reals(2, 18, 20), whole(5, 7), whole(2, 3)), constant=(2,), targets=(7, 9, 17, 21)),
    Case("Col2Im", 18, (reals(1, 12, 8), whole(6, 7), whole(2, 3)), BLOCKS, constant=(1, 2)),
    Case("GridSample", 20, (reals(1, 2, 3, 4, 5), SPACE), targets=(7, 9, 16, 18, 21)),
    Case("GridSample", 16, (IMAGE, GRID), targets=(9, 16, 18, 20, 21)),
    Case("GridSample", 16, (IMAGE, GRID), {"mode": "bicubic", "align_corners": 1}, targets=(18, 20, 21)),
    Case("DFT", 17, (reals(2, 8, 6, 1),), targets=(18, 20, 21)),
    Case("ScatterElements", 11, SCATTERED, {"axis": -1}, constant=(1,), targets=(7, 8, 9, 10)),
    Case("ScatterElements", 11, SCATTERED, {"axis": 0}, targets=(7, 8, 9)),
    Case("STFT", 17, (reals(2, 40, 1), whole(4)[0], reals(16)), constant=(1, 2)),
    Case("STFT", 17, (reals(2, 41, 1), whole(4)[0], reals(16)), constant=(1,), targets=(7, 13, 16)),
    Case("STFT", 17, (reals(1, 40, 1), whole(5)[0], None, whole(9)[0]), {"onesided": 0}, constant=(1, 3)),
    Case("STFT", 17, (reals(2, 40, 2), whole(4)[0], reals(16)), {"onesided": 0}, constant=(1, 2)),
    Case("MelWeightMatrix", 17, (*whole(8, 64, 8192), *factors(0, 4000)), constant=(0, 1, 2, 3, 4)),
    Case(
        "MelWeightMatrix", 17, BANDS, {"output_datatype": 11}, constant=(0, 1, 2, 3, 4), targets=(7, 13, 16)
    ),
    Case("GRU", 7, (SEQUENCE, reals(1, 9, 4), reals(1, 9, 3)), {"hidden_size": 3}, outputs=2),
    Case("LSTM", 7, (SEQUENCE, reals(1, 12, 4), reals(1, 12, 3)), {"hidden_size": 3}, outputs=3),
    Case("RNN", 7, (SEQUENCE, reals(1, 3, 4), reals(1, 3, 3)), {"hidden_size": 3}, outputs=2),
    Case("QuantizeLinear", 10, (IMAGE, SCALE, ZERO), constant=(1, 2)),
    Case("QuantizeLinear", 13, (IMAGE, SCALES, ZEROS), constant=(1, 2)),
    Case("QuantizeLinear", 19, (IMAGE, SCALES, ZEROS), constant=(1, 2)),
    Case("DequantizeLinear", 10, (BYTES, SCALE, ZERO), constant=(1, 2)),
    Case("DequantizeLinear", 13, (BYTES, SCALES, ZEROS), constant=(1, 2)),
    Case("Clip", 6, (IMAGE,), {"min": -0.5}),
    Case("Pad", 2, (IMAGE,), {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "value": 1.5}),
    Case("Pad", 2, (IMAGE,), {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "mode": "reflect"}),
    Case("Slice", 1, (IMAGE,), {"starts": [1, -4], "ends": [99, -1], "axes": [2, 3]}, targets=(9, 10, 13)),
    Case("Split", 2, (IMAGE,), {"axis": 3}, outputs=2),
    Case("Split", 13, (IMAGE,), {"axis": 3}, outputs=2),
    Case("Squeeze", 1, (reals(1, 3, 1),), targets=(9, 11, 13, 21)),
    Case("Unsqueeze", 1, (reals(2, 3),), {"axes": [0, 3]}, targets=(9, 11, 13, 21)),
    Case("ReduceSum", 11, (IMAGE,), {"axes": [1, -1]}),
    Case("ReduceMean", 13, (IMAGE,)),
    Case("ReduceMax", 12, (IMAGE,), {"axes": [1], "keepdims": 0}),
    Case("ReduceL2", 13, (IMAGE,), {"axes": [2, 3]}),
    Case("DepthToSpace", 1, (reals(1, 8, 2, 3),), {"blocksize": 2}, targets=(9, 11, 13, 21)),
    Case("SpaceToDepth", 1, (reals(1, 2, 4, 6),), {"blocksize": 2}, targets=(9, 13, 21)),
    Case("GatherND", 11, (reals(4, 3), whole(1, 2, 0, 0).reshape(2, 2)), targets=(9, 12, 13, 21)),
    Case("Reshape", 5, (reals(2, 3, 4), whole(0, -1)), constant=(1,)),
    Case("Shape", 13, (IMAGE,)),
    Case("Gemm", 7, (reals(2, 3), reals(4, 3), reals(4)), {"transB": 1, "alpha": 0.5}),
    Case("Mod", 10, (whole(-7, 7, 5), whole(3, -3, 2))),
    Case("OneHot", 9, (whole(0, 2, 1), whole(3), factors(-1, 1)), constant=(1,)),
    *(
        Case(name, 8, (reals(3, 1), reals(4), reals(2, 1, 1)), targets=(7, 13))
        for name in ("Sum", "Mean", "Max", "Min")
    ),
    *(Case(name, 8, (IMAGE, IMAGE + 1), targets=(7, 13)) for name in ("Sum", "Mean", "Max", "Min")),
    *(Case(name, 8, (reals(2, 3),), targets=(7, 13)) for name in ("Sum", "Mean")),
    Case("PRelu", 7, (IMAGE, reals(3, 1, 1))),
    Case("HardSigmoid", 6, (IMAGE,), targets=(9, 21, 22)),
    Case("Selu", 6, (IMAGE,), targets=(9, 22)),
    Case("Elu", 6, (IMAGE,), {"alpha": 0.5}, targets=(9, 22)),
]


def model(case):
    names = ["" if array is None else f"input_{i}" for i, array in enumerate(case.inputs)]
    node = helper.make_node(
        case.op_type, names, [f"output_{i}" for i in range(case.outputs)], **case.attributes
    )
    given, stored = [], []
    for index, (name, array) in enumerate(zip(names, map(np.asarray, case.inputs), strict=True)):
        if not name:
            continue
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if index in case.constant:
            stored.append(onnx.numpy_helper.from_array(array, name))
        given.append(helper.make_tensor_value_info(name, kind, array.shape))
    old = case.opset < 9
    graph = helper.make_graph(
        [node],
        "graph",
        [value for value in given if old or value.name not in {f"input_{i}" for i in case.constant}],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        stored,
    )
    opset = max(case.opset, 7)
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if old else 8
    )
    inferred = onnx.shape_inference.infer_shapes(proto)
    kinds = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.output}
    for value in proto.graph.output:
        value.CopyFrom(helper.make_tensor_value_info(value.name, kinds[value.name], None))
    return proto


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in CASES])
def test_an_old_version_means_at_other_opsets_what_it_means_at_its_own(case):
    proto = model(case)
    names = [f"input_{i}" for i in range(len(case.inputs))]
    feeds = {name: np.asarray(a) for i, (name, a) in enumerate(zip(names, case.inputs, strict=True))
             if i not in case.constant and a is not None}  # fmt: skip
    expected = run(proto, **feeds)
    for value, array in zip(proto.graph.output, expected, strict=True):
        kind = value.type.tensor_type.elem_type
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    for opset in set(case.targets) - {case.opset}:
        if opset in case.refused:
            with pytest.raises(UnsupportedOperatorsError):
                convert(ir.from_proto(proto), opset)
            continue
        for one, other in zip(run(converted(proto, opset), **feeds), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=f"at {opset}")


@pytest.mark.parametrize(("op_type", "inputs"), [("Split", 1), ("GRU", 3)])
def test_what_version_1_leaves_open_or_misspells(op_type, inputs):
    arrays = [SEQUENCE, reals(1, 9, 4), reals(1, 9, 3)][:inputs]
    attributes = {"hidden_size": 3} if op_type == "GRU" else {}
    proto = model(Case(op_type, 7, tuple(arrays), attributes, outputs=2))
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("", 1))
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    if op_type == "Split":
        with pytest.raises(UnsupportedOperatorsError, match="has no default for axis"):
            convert(ir.from_proto(proto), 13)
        return
    [node] = ir.to_proto(convert(ir.from_proto(proto), 13)).graph.node
    assert [attribute.name for attribute in node.attribute] == ["hidden_size"]
