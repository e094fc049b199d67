"""Scatters that combine, and what is built on them, against eager PyTorch: in steps below 16."""

import math

import torch

from .records import HIGHEST, Record, check, floats, integers, parametrized

OPSETS = (7, 9, 16, 18)
X = floats(4, 5, seed=1)
SRC = floats(6, 5, seed=2)
INDEX = torch.tensor([0, 2, 2, 3, 0, 2])
WIDE = INDEX.reshape(6, 1).repeat(1, 5)
NARROW = WIDE[:, :3].contiguous()
NAN = torch.tensor([math.nan, 5.0, 1.0, math.nan])
AT = torch.tensor([0, 0, 1, 3])
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _scatters() -> list[Record]:
    records = []
    for reduce in REDUCTIONS:
        for include in (True, False):
            records.append(
                Record(
                    f"scatter_reduce {reduce} include_self {include}",
                    lambda x, i, s, r=reduce, k=include: torch.scatter_reduce(x, 0, i, s, r, include_self=k),
                    (X, WIDE, SRC),
                    OPSETS,
                )
            )
        records += [
            Record(
                f"scatter_reduce {reduce} of int, index smaller than both",
                lambda x, i, s, r=reduce: torch.scatter_reduce(x, 0, i, s, r, include_self=False),
                (integers(4, 5), NARROW, integers(6, 5, seed=3)),
                (7, 9, HIGHEST),
            ),
            Record(
                f"scatter_reduce {reduce} of NaN",
                lambda x, i, s, r=reduce: torch.scatter_reduce(x, 0, i, s, r),
                (torch.tensor([1.0, 2.0, math.nan, 4.0]), AT, NAN),
                (9, 16, 18, HIGHEST),
            ),
        ]
    records += [
        Record(
            f"index_reduce {reduce}",
            lambda x, i, s, r=reduce: torch.index_reduce(x, 1, i, s, r, include_self=False),
            (floats(5, 4, seed=1), INDEX, floats(5, 6, seed=2)),
            OPSETS,
        )
        for reduce in ("prod", "mean", "amax", "amin")
    ]
    return records


def _segments(reduce: str, initial: float | None) -> Record:
    return Record(
        f"segment_reduce {reduce} initial {initial}",
        lambda x, n: torch.segment_reduce(x, reduce, lengths=n, initial=initial, unsafe=True),
        (SRC, torch.tensor([2, 0, 3, 1])),
        (7, 9, HIGHEST),
    )


RECORDS = [
    *_scatters(),
    Record(
        "scatter_reduce of bool",
        lambda x, i, s: (torch.scatter_reduce(x, 0, i, s, "amax"), torch.scatter_reduce(x, 0, i, s, "amin")),
        (X > 0, WIDE, SRC > 0),
        (9, 16, 18, HIGHEST),
    ),
    Record("index_add", lambda x, i, s: torch.index_add(x, 0, i, s, alpha=2), (X, INDEX, SRC), OPSETS),
    Record(
        "index_add dynamic",
        lambda x, i, s: torch.index_add(x, 0, i, s),
        (X, INDEX, SRC),
        (9, 16, HIGHEST),
        dynamic=({0: "n"}, {0: "k"}, {0: "k"}),
    ),
    Record(
        "index_put accumulate",
        lambda x, i, s: x.index_put((i, i), s, accumulate=True),
        (X, torch.tensor([0, -1, 0]), floats(3)),
        OPSETS,
    ),
    Record("put", lambda x, i, s: x.put(i, s), (X, torch.tensor([3, -1, 7]), floats(3)), OPSETS),
    Record(
        "put accumulate",
        lambda x, i, s: x.put(i, s, accumulate=True),
        (X, torch.tensor([3, -1, 3]), floats(3)),
        OPSETS,
    ),
    Record("scatter", lambda x, i, s: x.scatter(0, i, s), (X, NARROW[3:5], SRC), (7, 9, 11, HIGHEST)),
    _segments("sum", None),
    _segments("max", -100.0),
    _segments("mean", 0.0),
    Record("bincount", lambda x: torch.bincount(x, minlength=3), (INDEX,), (9, 16, HIGHEST)),
    Record("bincount weights", lambda x, w: torch.bincount(x, w), (INDEX, floats(6)), (9, 16, HIGHEST)),
]


def _bag(
    name: str,
    mode: str,
    opsets: tuple[int, ...] = (7, 9, 18),
    dtypes: tuple[torch.dtype, torch.dtype] = (torch.int64, torch.int64),
    **options,
) -> Record:
    def function(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode, **options)

    indices, offsets = torch.tensor([1, 0, 4, 1, 2, 2]), torch.tensor([0, 2, 2, 5])
    inputs = (floats(5, 3), indices.to(dtypes[0]), offsets.to(dtypes[1]))
    return Record(f"embedding_bag {mode} {name}", function, inputs, opsets)


BAGS = [_bag("", mode) for mode in ("sum", "mean", "max")]
BAGS += [_bag("padded", mode, padding_idx=1) for mode in ("sum", "mean", "max")]
BAGS += [
    _bag("padded from the end", "mean", padding_idx=-1),
    _bag("last offset", "sum", include_last_offset=True),
]
BAGS += [
    _bag("int32", "mean", dtypes=(torch.int32, torch.int32)),
    _bag("int32 offsets", "sum", dtypes=(torch.int64, torch.int32)),
]
BAGS += [_bag("weighted", "sum", per_sample_weights=floats(6, seed=4))]


@parametrized([*RECORDS, *BAGS])
def test_agrees_with_eager(record: Record) -> None:
    check(record)
