"""hash_tensor against eager PyTorch: the bits of every element type."""

import math

import torch

from .records import HIGHEST, Record, check, floats, integers, parametrized

OPSETS = (9, 11, 13, HIGHEST)
HASH = torch.ops.aten.hash_tensor
FLOATS = floats(3, 4, 5)
DOUBLES = floats(3, 4, dtype=torch.float64)
EXTREMES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.2250738585072014e-308,
     2.225073858507201e-308, 1.7976931348623157e308, 0.1, 1 / 3, -2.0**-1060],
    dtype=torch.float64,
)  # fmt: skip
WHOLE = integers(3, 4, low=-(2**62), high=2**62)

RECORDS = [
    Record("all", HASH, (FLOATS,), OPSETS),
    Record("one-dim", lambda x: HASH(x, [1]), (FLOATS,), OPSETS, dynamic=({0: "rows", 1: "columns"},)),
    Record("dims-kept", lambda x: HASH(x, [0, -1], keepdim=True), (FLOATS,), OPSETS),
    Record("double", lambda x: HASH(x, [0]), (DOUBLES,), OPSETS),
    Record("extremes-one-by-one", lambda x: HASH(x, [1]), (EXTREMES[:, None],), OPSETS),
    Record(
        "small-floats", lambda x: HASH(x, [1]), (torch.tensor([[1e-45], [-3e-39], [3e38]]),), (9, HIGHEST)
    ),
    Record("half", HASH, (FLOATS.half(),), (9, HIGHEST)),
    Record("whole", HASH, (WHOLE,), OPSETS),
    Record("lowest", HASH, (torch.tensor([-(2**63), 2**63 - 1, -1]),), (9, HIGHEST)),
    Record(
        "bytes", lambda x: HASH(x, [0]), (integers(3, 4, low=0, high=255, dtype=torch.uint8),), (9, HIGHEST)
    ),
    Record("negative-bytes", HASH, (integers(5, dtype=torch.int8),), (9, HIGHEST)),
    Record("bools", lambda x: HASH(x, [1]), (FLOATS[0] > 0,), (9, HIGHEST)),
    Record("zero-dim", HASH, (torch.tensor(-3),), (9, HIGHEST)),
    Record("no-elements", lambda x: HASH(x, [1]), (torch.zeros(0, 3),), (9, HIGHEST), dynamic=({0: "rows"},)),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)
