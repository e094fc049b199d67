"""Folding of shape arithmetic: numpy's answers must be ONNX's, checked against `onnx.reference`."""

import hypothesis.strategies as st
import numpy as np
import onnx.helper
import pytest
from hypothesis import given
from onnx.reference import ReferenceEvaluator

from opsetta.registration.inference import folding, integer_folding

I = np.int64  # noqa: E741


def reference(op_type, inputs, attributes, opset=13):
    return references(op_type, inputs, attributes, 1, opset)[0]


def references(op_type, inputs, attributes, count, opset=13):
    """The first results of an operator by onnx.reference."""
    names, results = [f"i{k}" for k in range(len(inputs))], [f"out{k}" for k in range(count)]
    node = onnx.helper.make_node(op_type, names, results, **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, inputs, strict=True)
        ],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in results],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


def array(data, dtype=I):
    return np.array(data, dtype=dtype)


DATA = array([[3, -1, 2], [5, 0, -7]])

RECORDS = [
    ("Add", [DATA, array(2)], {}),
    ("Sub", [DATA, array([1, 2, 3])], {}),
    ("Mul", [DATA, array(-2)], {}),
    ("Neg", [DATA], {}),
    ("Abs", [DATA], {}),
    ("Mod", [DATA, array(3)], {}),
    ("Mod", [DATA, array(-3)], {}),
    ("Mod", [DATA, array(3)], {"fmod": 1}),
    ("Div", [array([1.0, -3.0], np.float32), array(2.0, np.float32)], {}),
    ("Sqrt", [array([4.0], np.float32)], {}),
    ("Flatten", [DATA], {"axis": 0}),
    ("Flatten", [array([[[1, 2]], [[3, 4]]])], {"axis": -1}),
    ("GatherElements", [DATA, array([[0, -1], [2, 0]])], {"axis": 1}),
    ("GatherElements", [DATA, array([[1, 0, 1]])], {"axis": -2}),
    ("Floor", [array([1.5, -1.5], np.float32)], {}),
    ("Ceil", [array([1.5, -1.5], np.float32)], {}),
    ("Cast", [DATA], {"to": onnx.TensorProto.FLOAT}),
    ("Cast", [array([1.9, -1.9], np.float32)], {"to": onnx.TensorProto.INT64}),
    ("Cast", [DATA], {"to": onnx.TensorProto.BOOL}),
    ("Concat", [DATA, DATA], {"axis": 0}),
    ("Concat", [DATA, DATA], {"axis": -1}),
    ("Equal", [DATA, array(2)], {}),
    ("Less", [DATA, array(2)], {}),
    ("Greater", [DATA, array(2)], {}),
    ("LessOrEqual", [DATA, array(2)], {}),
    ("GreaterOrEqual", [DATA, array(2)], {}),
    ("Max", [DATA, array([0, 1, 2])], {}),
    ("Min", [DATA, array([0, 1, 2]), array(1)], {}),
    ("Expand", [array([[1], [2]]), array([2, 2, 3])], {}),
    ("Expand", [array([True], bool), array([2])], {}),
    ("Gather", [DATA, array([0, -1])], {"axis": 1}),
    ("Gather", [DATA, array(1)], {"axis": 0}),
    ("Not", [array([True, False], bool)], {}),
    ("And", [array([True, False], bool), array(True, bool)], {}),
    ("Or", [array([True, False], bool), array(True, bool)], {}),
    ("Xor", [array([True, False], bool), array(True, bool)], {}),
    ("Range", [array(1), array(10), array(3)], {}),
    ("Range", [array(5), array(0), array(-2)], {}),
    ("Reciprocal", [array([0.5, 2.0, -4.0], dtype=np.float32)], {}),
    ("ReduceMax", [DATA], {"axes": [1]}),
    ("ReduceMin", [DATA], {"axes": [-1], "keepdims": 0}),
    ("ReduceProd", [DATA], {"keepdims": 0}),
    ("ReduceSum", [DATA, array([0])], {}),
    ("ReduceSum", [DATA], {"keepdims": 0}),
    ("ReduceSum", [DATA, array([], I)], {}),
    ("ReduceSum", [DATA], {"noop_with_empty_axes": 1}),
    ("Reshape", [DATA, array([3, -1])], {}),
    ("Reshape", [DATA, array([0, 3, 1])], {}),
    ("Slice", [DATA, array([0]), array([9223372036854775807]), array([1])], {}),
    ("Slice", [DATA, array([-1]), array([-9223372036854775807]), array([1]), array([-1])], {}),
    ("Slice", [DATA, array([1, 0]), array([2, -1])], {}),
    ("Slice", [DATA, array([5]), array([-9]), array([0]), array([-2])], {}),
    ("Squeeze", [array([[[1], [2]]]), array([0])], {}),
    ("Squeeze", [array([[[1], [2]]]), array([0, -1])], {}),
    ("Squeeze", [array([[[1], [2]]])], {}),
    ("Transpose", [DATA], {}),
    ("Transpose", [DATA], {"perm": [0, 1]}),
    ("Unsqueeze", [DATA, array([0, -1])], {}),
    ("Unsqueeze", [DATA, array([3, 1])], {}),
    ("Where", [DATA > 0, DATA, array(0)], {}),
    ("Identity", [DATA], {}),
]

REALS = array([[0.5, -1.5, 2.5], [1.0, -0.0, 0.25]], np.float32)

CONDITION_RECORDS = [
    ("ArgMax", [DATA], {"axis": 1}),
    ("ArgMax", [REALS], {"keepdims": 0}),
    ("ArgMin", [DATA], {"axis": -1, "keepdims": 0}),
    ("BitShift", [np.abs(DATA).astype(np.uint8), array(1, np.uint8)], {"direction": "LEFT"}),
    ("BitShift", [np.abs(DATA).astype(np.uint8), array(1, np.uint8)], {"direction": "RIGHT"}),
    ("BitwiseAnd", [DATA, array(3)], {}),
    ("BitwiseNot", [DATA], {}),
    ("BitwiseOr", [DATA, array(3)], {}),
    ("BitwiseXor", [DATA, array(3)], {}),
    ("Clip", [REALS, array(-1, np.float32), array(2, np.float32)], {}),
    ("Clip", [REALS, array(-1, np.float32)], {}),
    ("Cos", [REALS], {}),
    ("CumSum", [DATA, array(1)], {}),
    ("Exp", [REALS], {}),
    ("IsNaN", [array([np.nan, 1.0], np.float32)], {}),
    ("Log", [np.abs(REALS)], {}),
    ("MatMul", [DATA, DATA.T], {}),
    ("Pow", [REALS, array(2)], {}),
    ("ReduceL1", [REALS], {"axes": [1]}),
    ("ReduceL2", [REALS], {"axes": [0], "keepdims": 0}),
    ("ReduceMean", [REALS], {"axes": [1]}),
    ("ReduceSumSquare", [REALS], {"axes": [-1]}),
    ("Relu", [REALS], {}),
    ("Round", [REALS], {}),
    ("Sigmoid", [REALS], {}),
    ("Sign", [REALS], {}),
    ("Sin", [REALS], {}),
    ("Tan", [REALS], {}),
    ("Tanh", [REALS], {}),
    ("Tile", [DATA, array([2, 1])], {}),
    ("Pad", [DATA, array([0, 1, 2, 0])], {}),
    ("Pad", [REALS, array([0] * (2 * REALS.ndim - 1) + [2]), array(0.5, np.float32)], {}),
    ("Pad", [DATA, array([0, 2, 0, 1])], {"mode": "reflect"}),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"), RECORDS, ids=[f"{r[0]}-{i}" for i, r in enumerate(RECORDS)]
)
def test_folding_agrees_with_the_reference(op_type, inputs, attributes):
    found = folding.evaluate(op_type, inputs, attributes)
    wanted = reference(op_type, inputs, attributes)
    assert found is not None
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    CONDITION_RECORDS,
    ids=[f"{r[0]}-{i}" for i, r in enumerate(CONDITION_RECORDS)],
)
def test_what_decides_a_branch_agrees_with_the_reference(op_type, inputs, attributes):
    assert folding.evaluate(op_type, inputs, attributes) is None
    with np.errstate(divide="ignore"):
        wanted = reference(op_type, inputs, attributes, opset=18 if op_type.startswith("Bitwise") else 13)
    found = folding.evaluate(op_type, inputs, attributes, condition=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, strict=True)


def test_every_evaluator_has_a_record():
    assert {record[0] for record in RECORDS} == set(folding._EVALUATORS)
    assert {record[0] for record in [*RECORDS, *CONDITION_RECORDS]} == set(folding._CONDITION_EVALUATORS)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "wanted"),
    [
        ("Squeeze", [array([[1, 2]])], {"axes": [0]}, [1, 2]),
        ("Unsqueeze", [array([1, 2])], {"axes": [0]}, [[1, 2]]),
        ("Slice", [DATA], {"starts": [0, -2], "ends": [1, 9], "axes": [0, 1]}, [[-1, 2]]),
        ("Slice", [DATA], {"starts": [1], "ends": [2]}, [[5, 0, -7]]),
        ("ReduceSum", [DATA], {"axes": [0], "keepdims": 0}, [8, -1, -5]),
    ],
)
def test_arguments_as_attributes_fold_alike(op_type, inputs, attributes, wanted):
    assert folding.evaluate(op_type, inputs, attributes).tolist() == wanted


@given(st.integers(-50, 50), st.integers(-50, 50))
def test_integer_division_truncates_as_onnx_does(a, b):
    found = folding.evaluate("Div", [array(a), array(b)], {})
    if b == 0:
        assert found is None
    else:
        assert found.dtype == I
        assert found.item() == int(a / b)


@given(
    st.integers(0, 6),
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.sampled_from([-3, -2, -1, 1, 2, 3]),
)
def test_slices_agree_with_the_reference(size, start, end, step):
    inputs = [np.arange(size), array([start]), array([end]), array([0]), array([step])]
    found = folding.evaluate("Slice", inputs, {})
    assert found.tolist() == _onnx_slice(size, start, end, step)


def _onnx_slice(size, start, end, step):
    """The rule of the operator's text: negative indices count from the end, then both are clamped."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return list(range(start, end, step)) if size else []


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Div", [array(1), array(0)], {}),
        ("Mod", [array(1), array(0)], {}),
        ("Gather", [array([1]), array(5)], {}),
        ("Reshape", [DATA, array([4, 4])], {}),
        ("Concat", [DATA, array([1])], {"axis": 0}),
        ("Conv", [DATA, DATA], {}),
        ("Add", [DATA, None], {}),
    ],
)
def test_what_fails_or_is_unknown_is_left_to_the_runtime(op_type, inputs, attributes):
    assert folding.evaluate(op_type, inputs, attributes) is None


def test_large_constants_are_left_alone():
    large = np.zeros(folding.MAXIMUM_ELEMENTS + 1, dtype=I)
    assert folding.evaluate("Neg", [large], {}) is None
    assert folding.evaluate("Expand", [array([1]), array([folding.MAXIMUM_ELEMENTS + 1])], {}) is None
    for op_type, inputs in (
        ("Tile", [array([1]), array([2**40])]),
        ("MatMul", [np.ones((999, 1)), np.ones((1, 999))]),
    ):
        assert folding.evaluate(op_type, inputs, {}, condition=True) is None


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "count"),
    [
        ("Compress", [array([3, 1, 2]), array([1, 0, 1], bool)], {}, 1),
        ("Compress", [DATA, array([1], bool)], {"axis": 1}, 1),
        ("NonZero", [DATA], {}, 1),
        ("ScatterElements", [array([1, 2, 3]), array([2, -3]), array([9, 8])], {}, 1),
        ("ScatterND", [DATA, array([[1, 2], [0, -1]]), array([9, 8])], {}, 1),
        ("ScatterND", [DATA, array([[1]]), array([[7, 8, 9]])], {}, 1),
        ("Split", [DATA, array([2, 1])], {"axis": 1}, 2),
        ("TopK", [array([3, 1, 3, 2]), array([2])], {"largest": 0}, 2),
        ("Unique", [array([3, 1, 3, 2])], {"sorted": 0}, 4),
    ],
)
def test_operators_with_several_results_or_writes_give_what_onnx_gives(op_type, inputs, attributes, count):
    folded = integer_folding.evaluate(op_type, inputs, attributes, count)
    for result, expected in zip(folded, references(op_type, inputs, attributes, count), strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)
