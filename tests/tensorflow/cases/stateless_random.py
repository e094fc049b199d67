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
    computed = {"shape": array_of([2, 5]), "compared": False, "run_until": 21, "needs_sizes": True}
    yield record("StatelessRandomUniform", "computed", **computed, seed=SEED)
    yield record("StatelessRandomNormalV2", "computed", **computed, **STATE)
    yield record("StatelessRandomUniformInt", "computed", **computed, seed=SEED, minval=low, maxval=high)
    yield record("StatelessRandomGetKeyCounter", "", seed=SEED)
    yield record("StatelessRandomGetKeyCounterAlg", "", seed=SEED)
    yield record("StatelessRandomGetAlg", "")


RECORDS = list(_all())
