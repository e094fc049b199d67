"""Transposes moved over nodes: how many remain, and that the graph computes the same."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import opsetta.symbolics  # noqa: F401
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.transposes import permutations
from opsetta.passes.onnx_graph.transposes.push_transposes import PushTransposes
from opsetta.registration import GraphContext, Value, default_registry

FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]
Build = Callable[[GraphContext, list[Value]], Any]


def built(build: Build, shapes: list[list[Any] | None], opset: int = 18) -> ir.Model:
    inputs = [
        ir.Value(
            name=f"x{i}",
            shape=None if shape is None else ir.Shape(shape),
            type=ir.TensorType(ir.DataType.FLOAT),
        )
        for i, shape in enumerate(shapes)
    ]
    graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": opset}, name="g")
    g = GraphContext(graph, opset, default_registry)
    results = build(g, inputs)
    for index, value in enumerate(results if isinstance(results, list) else [results]):
        value.name = f"out{index}"
        graph.outputs.append(value)
    return ir.Model(graph, ir_version=8)


def counted(model: ir.Model) -> collections.Counter:
    return collections.Counter(node.op_type for node in ir.traversal.RecursiveGraphIterator(model.graph))


def computed(model: ir.Model, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    proto = ir.to_proto(model)
    for value in proto.graph.input:
        if not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    return ReferenceEvaluator(proto).run(None, feed)


def check(
    build: Build, left: int, sizes: tuple[int, ...] = (2, 4, 5, 3), opset: int = 18, count: int = 1
) -> ir.Model:
    """The pass leaves so many Transposes, computes the same, and changes nothing the second time.

    Sizes are known, or of the batch not known; of unknown shapes it must compute the same.
    """
    feed = {f"x{i}": np.random.RandomState(i).standard_normal(sizes).astype(np.float32) for i in range(count)}
    for shape in (None, ["n", *sizes[1:]], list(sizes)):
        model = built(build, [shape] * count, opset)
        before = computed(model, feed)
        known = Initializers(model)
        changed = PushTransposes(known)(model).modified
        after = computed(model, feed)
        for ours, theirs in zip(after, before, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert [value.name for value in model.graph.outputs] == [f"out{i}" for i in range(len(before))]
        assert not PushTransposes(known)(model).modified
        if shape is not None:
            assert counted(model)["Transpose"] == left, changed
            for value, array in zip(model.graph.outputs, after, strict=True):
                value.shape = ir.Shape([None] * array.ndim)
            onnx.checker.check_model(ir.to_proto(model), full_check=True)
    return model


def turned(g: GraphContext, value: Value, perm: list[int] = LAST) -> Value:
    return g.op("Transpose", value, perm=perm)


def pooled(g: GraphContext, value: Value) -> Value:
    """An operator that keeps to its order, between Transposes."""
    given = turned(g, value, FIRST)
    made = g.op("MaxPool", given, kernel_shape=[1, 1])
    made.shape = given.shape
    return turned(g, made)


CHAINS: dict[str, Callable[[GraphContext, Value], Value]] = {
    "unary": lambda g, x: g.op("Relu", g.op("Neg", x)),
    "number": lambda g, x: g.op("Add", g.op("Mul", x, 2.0), 1.0),
    "by_channel": lambda g, x: g.op("Add", x, np.arange(3, dtype=np.float32)),
    "by_channel_of_rank_4": lambda g, x: g.op("Mul", x, np.arange(3, dtype=np.float32).reshape(1, 1, 1, 3)),
    "by_place": lambda g, x: g.op("Sub", np.arange(20, dtype=np.float32).reshape(4, 5, 1), x),
    "clip": lambda g, x: g.op("Clip", x, min=0.0, max=1.0),
    "where": lambda g, x: g.op("Where", g.op("Less", x, 0.0), x, 0.5),
    "pad": lambda g, x: g.op("Pad", x, pads=[0, 1, 0, 0, 0, 2, 1, 0], mode="constant"),
    "reduce": lambda g, x: g.op("Mul", x, g.op("ReduceMean", x, axes=[1, -2], keepdims=1)),
    "softmax": lambda g, x: g.op("Softmax", x, axis=-1),
    "concat": lambda g, x: g.op("Concat", x, g.op("Neg", x), axis=3),
    "split": lambda g, x: g.op("Concat", *g.op("Split", x, axis=3, split=[1, 2], outputs=2), axis=3),
    "slice": lambda g, x: g.op("Slice", x, starts=[1], ends=[4], axes=[2]),
    "gather": lambda g, x: g.op("Gather", x, [2, 0, 1], axis=3),
    "tile": lambda g, x: g.op("Tile", x, [1, 2, 1, 1]),
    "prelu": lambda g, x: g.op("PRelu", x, np.array([0.1, 0.2, 0.3], np.float32)),
    "cast": lambda g, x: g.cast(g.cast(x, ir.DataType.DOUBLE), ir.DataType.FLOAT),
}


@pytest.mark.parametrize(
    ("name", "opset"),
    # Below 13, Softmax flattens, and keeps to its order.
    [(name, opset) for name in CHAINS for opset in (9, 13, 18) if name != "softmax" or opset >= 13],
)
def test_transposes_around_a_node_cancel(name: str, opset: int) -> None:
    check(lambda g, x: pooled(g, CHAINS[name](g, pooled(g, x[0]))), 2, opset=opset)


def test_dimensions_that_come_and_go() -> None:
    def build(g: GraphContext, x: list[Value]) -> Value:
        row = g.op("Squeeze", g.op("ReduceMax", pooled(g, x[0]), axes=[1], keepdims=1), axes=[1])
        return g.op("Add", pooled(g, g.op("Unsqueeze", row, axes=[1])), 1.0)

    check(build, 2)


def test_a_residual_block_keeps_two() -> None:
    def build(g: GraphContext, x: list[Value]) -> Value:
        y = pooled(g, x[0])
        for _ in range(3):
            y = g.op("Relu", g.op("Add", y, pooled(g, g.op("Sigmoid", y))))
        return y

    check(build, 2)


def test_a_global_mean_absorbs_the_order() -> None:
    check(lambda g, x: g.op("ReduceMean", pooled(g, x[0]), axes=[1, 2], keepdims=0), 1)


def test_two_inputs_of_one_order() -> None:
    check(lambda g, x: pooled(g, g.op("Concat", pooled(g, x[0]), pooled(g, x[1]), axis=1)), 3, count=2)


def test_sizes_are_put_in_order() -> None:
    def build(g: GraphContext, x: list[Value]) -> list[Value]:
        y = pooled(g, x[0])
        return [pooled(g, g.op("Neg", y)), g.op("Neg", g.op("Shape", y))]

    model = built(build, [["n", 4, 5, 3]])
    feed = {"x0": np.ones((2, 4, 5, 3), np.float32)}
    before = computed(model, feed)
    assert PushTransposes(Initializers(model))(model).modified
    assert counted(model)["Transpose"] == 2
    assert counted(model)["Gather"] == 1
    for ours, theirs in zip(computed(model, feed), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_dimensions_of_size_1_are_reshaped() -> None:
    def build(g: GraphContext, x: list[Value]) -> Value:
        mean = g.op("ReduceMean", pooled(g, x[0]), axes=[1, 2], keepdims=1)
        return g.op("Reshape", mean, [-1, 3])

    check(build, 1)


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.op("Neg", turned(g, x[0])),
        lambda g, x: g.op(
            "MatMul", turned(g, x[0], [0, 1, 3, 2]), g.op("Neg", turned(g, x[0], [0, 1, 2, 3]))
        ),
        lambda g, x: [turned(g, g.op("Neg", x[0])), turned(g, g.op("Abs", x[0]), FIRST)],
        lambda g, x: g.op("Add", turned(g, x[0], [0, 2, 1, 3]), turned(g, x[0], [0, 2, 1, 3])),
    ],
    ids=["one", "product", "outputs", "same"],
)
def test_what_removes_none_stays(build: Build) -> None:
    model = built(build, [[2, 4, 4, 4]])
    before = [(node.op_type, node.inputs) for node in model.graph]
    found = PushTransposes(Initializers(model))(model).modified
    if counted(built(build, [[2, 4, 4, 4]]))["Transpose"] == counted(model)["Transpose"]:
        assert not found
        assert [(node.op_type, node.inputs) for node in model.graph] == before


def test_inside_of_branches_and_read_from_them() -> None:
    def build(g: GraphContext, x: list[Value]) -> Value:
        y = g.op("Relu", pooled(g, x[0]))
        condition = g.op("Greater", g.op("ReduceSum", x[0], keepdims=0), 0.0)
        inner = g.subgraph(lambda: [pooled(g, g.op("Neg", pooled(g, y)))], name="inner")
        other = g.subgraph(lambda: [g.op("Identity", y)], name="other")
        result = g.op("If", condition, then_branch=inner, else_branch=other)
        return g.op("Add", result, pooled(g, y))

    model = built(build, [[2, 4, 5, 3]])
    feed = {"x0": np.random.RandomState(0).standard_normal((2, 4, 5, 3)).astype(np.float32)}
    before, count = computed(model, feed), counted(model)["Transpose"]
    assert PushTransposes(Initializers(model))(model).modified
    assert counted(model)["Transpose"] < count
    for each in (feed, {"x0": -feed["x0"]}):
        np.testing.assert_allclose(computed(model, each)[0], computed(built(build, [[2, 4, 5, 3]]), each)[0])
    np.testing.assert_allclose(computed(model, feed)[0], before[0])


def test_kept_initializers_are_reshaped_and_not_replaced() -> None:
    def build(g: GraphContext, x: list[Value]) -> Value:
        weight = ir.Value(
            name="weight",
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape([3]),
            const_value=ir.Tensor(np.arange(3, dtype=np.float32), name="weight"),
        )
        g.graph.initializers.add(weight)
        return pooled(g, g.op("Add", pooled(g, x[0]), weight))

    model = built(build, [[2, 4, 5, 3]])
    weight = model.graph.initializers["weight"]
    feed = {"x0": np.ones((2, 4, 5, 3), np.float32)}
    before = computed(model, feed)
    assert PushTransposes(Initializers(model, {weight}))(model).modified
    assert model.graph.initializers["weight"] is weight
    assert counted(model)["Transpose"] == 2
    assert counted(model)["Reshape"] == 1
    np.testing.assert_array_equal(computed(model, feed)[0], before[0])


@pytest.mark.parametrize(
    ("sizes", "is_reshape"),
    [
        ([2, 1, 3, 5], True),
        (["b", 1, 3, 5], True),
        ([2, 1, "s", 5], True),
        (["b", 1, "s", 5], False),
        ([None, 1, "s", 5], False),
        (["b", 1, 0, 5], False),
        ([2, 4, 3, 5], False),
    ],
)
def test_a_reshape_stands_for_a_transpose_only_if_it_works_for_size_0(
    sizes: list[Any], is_reshape: bool
) -> None:
    # Beside an unknown size that may be 0, the -1 of Reshape is not defined.
    assert permutations.keeps_element_order(ir.Shape(sizes), (0, 2, 1, 3)) == is_reshape
