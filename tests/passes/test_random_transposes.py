"""Random graphs of Transposes and nodes between them compute the same after Transposes were moved."""

from __future__ import annotations

import random

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.transposes.push_transposes import PushTransposes
from opsetta.registration import GraphContext, Value

from ..opsets import is_full_run
from .test_push_transposes import built, computed, counted

SIZES = (2, 3, 4, 5)


def _constant(rng: random.Random, shape: list[int]) -> np.ndarray:
    """A constant that broadcasts to a shape."""
    kept = [size if rng.random() < 0.5 else 1 for size in shape]
    return (
        np.random.RandomState(rng.randrange(99))
        .standard_normal(kept[rng.randrange(len(kept)) :])
        .astype(np.float32)
    )


def _reordered(rng: random.Random, g: GraphContext, x: Value, shape: list[int]) -> tuple[Value, list[int]]:
    perm = rng.sample(range(len(shape)), len(shape))
    return g.op("Transpose", x, perm=perm), [shape[axis] for axis in perm]


def _step(
    rng: random.Random, g: GraphContext, values: list[tuple[Value, list[int]]]
) -> tuple[Value, list[int]]:
    """One more node on some of the values, with the shape of its result."""
    x, shape = rng.choice(values)
    axis = rng.randrange(len(shape))
    kind = rng.randrange(14)
    if kind < 5:
        return _reordered(rng, g, x, shape)
    if kind == 5:
        return g.op(rng.choice(["Neg", "Sigmoid", "Relu", "Abs"]), x), shape
    if kind == 6:
        return g.op(rng.choice(["Add", "Mul", "Sub"]), x, _constant(rng, shape)), shape
    if kind == 7:
        mates = [value for value, other in values if other == shape]
        return g.op("Add", x, rng.choice(mates)), shape
    if kind == 8:
        return g.op("Concat", x, rng.choice([v for v, s in values if s == shape]), axis=axis), [
            size * 2 if at == axis else size for at, size in enumerate(shape)
        ]
    if kind == 9:
        keep = rng.random() < 0.5
        left = [1 if at == axis else size for at, size in enumerate(shape) if keep or at != axis]
        if len(left) < 2:
            return g.op("Tanh", x), shape
        return g.op("ReduceMean", x, axes=[axis - len(shape)], keepdims=int(keep)), left
    if kind == 10:
        return g.op("Softmax", x, axis=axis), shape
    if kind == 11:
        pads = [rng.randrange(2) for _ in range(2 * len(shape))]
        grown = [size + pads[at] + pads[len(shape) + at] for at, size in enumerate(shape)]
        return g.op("Pad", x, pads=pads, mode="constant"), grown
    if kind == 12 and len(shape) < 5:
        return g.op("Unsqueeze", x, axes=[axis]), [*shape[:axis], 1, *shape[axis:]]
    # An operator that keeps to its order.
    return g.op("Reshape", x, list(shape)), shape


def _graph(seed: int, known: bool) -> ir.Model:
    rng = random.Random(seed)

    def build(g: GraphContext, inputs: list[Value]) -> list[Value]:
        values = [(inputs[0], list(SIZES))]
        for _ in range(rng.randrange(4, 16)):
            value, shape = _step(rng, g, values)
            value.shape = ir.Shape(shape) if known else value.shape
            values.append((value, shape))
        outputs = [value for value, _ in values[-2:] if value.producer() is not None]
        return [g.op("Identity", value) for value in dict.fromkeys(outputs)]

    return built(build, [list(SIZES) if known else None])


@pytest.mark.parametrize("known", [True, False])
def test_random_graphs_compute_the_same(known: bool) -> None:
    fewer = 0
    for seed in range(2000 if is_full_run() else 150):
        model = _graph(seed, known)
        feed = {"x0": np.random.RandomState(seed).standard_normal(SIZES).astype(np.float32)}
        before, count = computed(model, feed), counted(model)["Transpose"]
        initializers = Initializers(model)
        FoldConstants(initializers)(model)
        PushTransposes(initializers)(model)
        left = counted(model)["Transpose"]
        assert left <= count, seed
        fewer += left < count
        for ours, theirs in zip(computed(model, feed), before, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")
        assert not PushTransposes(initializers)(model).modified, seed
    assert fewer > 50
