"""Random numbers that a constant seed determines."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, record

SEED = const([7, -3])
SHAPE = const([2, 5])
STATE = {
    "key": const(np.array([0x123456789ABCDEF0], np.uint64)),
    "counter": const(np.array([2**64 - 1, 5], np.uint64)),
    "alg": const(1),
}


def _all():
    for dtype in ("float32", "float64", "float16"):
        yield record("StatelessRandomUniform", dtype, shape=SHAPE, seed=SEED, dtype=dtype)
    for dtype in ("float32", "float64"):
        yield record("StatelessRandomNormal", dtype, shape=SHAPE, seed=SEED, dtype=dtype)
    for dtype in ("int32", "int64", "uint32"):
        full = {"shape": SHAPE, "seed": SEED, "dtype": dtype}
        yield record("StatelessRandomUniformFullInt", dtype, **full)
    for dtype in (np.int32, np.int64):
        low, high = const(np.array(-5, dtype)), const(np.array(1000, dtype))
        yield record(
            "StatelessRandomUniformInt", dtype.__name__, shape=SHAPE, seed=SEED, minval=low, maxval=high
        )
        yield record(
            "StatelessRandomUniformIntV2", dtype.__name__, shape=SHAPE, **STATE, minval=low, maxval=high
        )
    yield record("StatelessRandomUniformV2", "", shape=SHAPE, **STATE)
    yield record("StatelessRandomNormalV2", "", shape=SHAPE, **STATE)
    yield record("StatelessRandomUniformFullIntV2", "", shape=SHAPE, **STATE, dtype="int64")
    yield record("StatelessRandomUniform", "bfloat16", shape=SHAPE, seed=SEED, dtype="bfloat16")
    yield record("StatelessRandomNormal", "float16", shape=SHAPE, seed=SEED, dtype="float16")
    for dtype in ("float32", "float64", "float16"):
        yield record("StatelessTruncatedNormal", dtype, shape=const([9, 5]), seed=SEED, dtype=dtype)
    yield record("StatelessTruncatedNormalV2", "", shape=SHAPE, **STATE)


def _computed():
    """The seed, the shape or both are computed."""
    shape, seed = array_of([2, 5]), array_of([7, -3])
    yield record("StatelessRandomUniform", "computed_shape", shape=shape, loses_rank=True, seed=SEED)
    yield record(
        "StatelessRandomUniform", "computed", shape=shape, loses_rank=True, seed=np.array([2**40, -3])
    )
    yield record(
        "StatelessRandomUniform", "computed_double", shape=shape, loses_rank=True, seed=seed, dtype="float64"
    )
    yield record(
        "StatelessRandomUniform", "computed_half", shape=shape, loses_rank=True, seed=seed, dtype="float16"
    )
    yield record("StatelessRandomNormal", "computed_seed", shape=SHAPE, seed=seed)
    yield record("StatelessRandomNormalV2", "computed_shape", shape=shape, loses_rank=True, **STATE)
    yield record("StatelessTruncatedNormal", "computed", shape=shape, loses_rank=True, seed=seed)
    for dtype in ("int32", "uint32", "int64"):
        yield record(
            "StatelessRandomUniformFullInt",
            f"computed_{dtype}",
            shape=shape,
            loses_rank=True,
            seed=seed,
            dtype=dtype,
        )
    for dtype in (np.int32, np.int64):
        low, high = const(np.array(-5, dtype)), const(np.array(1000, dtype))
        yield record(
            "StatelessRandomUniformInt",
            f"computed_{dtype.__name__}",
            shape=shape,
            loses_rank=True,
            seed=seed,
            minval=low,
            maxval=high,
        )
    yield record(
        "StatelessRandomUniformInt",
        "computed_range",
        shape=SHAPE,
        seed=SEED,
        minval=array_of(-5),
        maxval=array_of(1000),
    )
    yield record("StatelessRandomGetKeyCounter", "computed", seed=seed)
    state = {"key": STATE["key"].array, "counter": STATE["counter"].array, "alg": const(1)}
    yield record("StatelessRandomUniformV2", "computed", shape=SHAPE, **state)


def _states():
    yield record("StatelessRandomGetKeyCounter", "", seed=SEED)
    yield record("StatelessRandomGetKeyCounterAlg", "", seed=SEED)
    yield record("StatelessRandomGetAlg", "")


RECORDS = [*_all(), *_computed(), *_states()]
