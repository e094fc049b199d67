"""Products of groups whose sizes are data, against eager PyTorch: every form, and groups of every size."""

import torch
from transformers.integrations import moe  # noqa: F401 It registers the operator of its own.

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

GROUPED = torch.ops.aten._grouped_mm
FALLBACK = torch.ops.transformers.grouped_mm_fallback
OPSETS = (9, 10, 11, 13, HIGHEST)
HALVES = {9: "BFLOAT16", 11: "BFLOAT16"}
SIZES = {
    "even": (2, 2, 2, 2),
    "some-empty": (0, 3, 0, 5),
    "all-in-one": (0, 0, 8, 0),
    "one-row": (0, 1, 0, 0),
    "no-rows": (0, 0, 0, 0),
}
MANY = (0, 1, 0, 0, 4, 0, 0, 0, 0, 2, 1, 0)


def _ends(*sizes: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(sizes).cumsum(0).to(dtype)


def _rows(sizes: tuple[int, ...], more: int = 0, dtype: torch.dtype = torch.float32) -> tuple:
    """Rows, a matrix for each group, and where the groups end; `more` rows belong to none."""
    rows = floats(sum(sizes) + more, 16, dtype=dtype)
    return rows, floats(len(sizes), 16, 8, seed=1, dtype=dtype), _ends(*sizes)


RECORDS = [
    *(Record(f"rows-{name}", GROUPED, _rows(sizes), OPSETS) for name, sizes in SIZES.items()),
    Record("rows-of-many-groups", GROUPED, _rows(MANY), OPSETS),
    Record("rows-of-half-precision", GROUPED, _rows(SIZES["even"], dtype=torch.float16), OPSETS),
    Record("rows-of-many-groups-of-half-precision", GROUPED, _rows(MANY, dtype=torch.float16), OPSETS),
    Record(
        "columns",
        GROUPED,
        (floats(4, 8, 16), floats(8, 16).t(), _ends(*SIZES["some-empty"])),
        OPSETS,
    ),
    Record("sums", GROUPED, (floats(8, 8).t(), floats(8, 16, seed=1), _ends(3, 0, 5)), OPSETS),
    Record("sums-of-nothing", GROUPED, (floats(8, 8).t(), floats(8, 16, seed=1), _ends(0, 0, 0)), OPSETS),
    Record("batches", lambda a, b: GROUPED(a, b), (floats(3, 8, 16), floats(3, 16, 8, seed=1)), OPSETS),
    Record("out-dtype", lambda *t: GROUPED(*t, out_dtype=torch.float32), _rows(SIZES["even"]), (9, HIGHEST)),
    *(
        Record(
            f"fallback-{name}",
            FALLBACK,
            _rows(sizes, more=3),
            (9, 13, HIGHEST),
            dynamic=({0: "rows"}, None, None),
        )
        for name, sizes in {**SIZES, "many": MANY}.items()
    ),
    Record("fallback-double", FALLBACK, _rows(MANY, dtype=torch.float64), (9, HIGHEST)),
    Record(
        "fallback-long-offsets", FALLBACK, (*_rows(MANY)[:2], _ends(*MANY, dtype=torch.int64)), (9, HIGHEST)
    ),
]


def _routed(x: torch.Tensor, router: torch.Tensor, weight: torch.Tensor, experts: int) -> torch.Tensor:
    """Each row times the matrices of its best experts; with fewer matrices, some rows belong to none."""
    chosen, order = torch.sort((x @ router).topk(2).indices.reshape(-1))
    counts = torch.histc(chosen.float(), experts, 0, experts - 1)
    return FALLBACK(x[order // 2], weight[:experts], counts.cumsum(0, dtype=torch.int32))


RECORDS += [
    Record(
        f"rows-routed-to-{experts}-of-4",
        lambda *t, experts=experts: _routed(*t, experts),
        (floats(6, 8), floats(8, 4, seed=2), floats(4, 8, 5, seed=1)),
        (9, 11, 13, HIGHEST),
        dynamic=({0: "rows"}, None, None),
    )
    for experts in (3, 4)
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


def test_rows_of_experts_are_counted_by_one_hot_rows() -> None:
    """Only if the router selects no expert beyond them, because others would be counted from the end."""
    for experts in (3, 4):
        program = opsetta.export(
            lambda *t, experts=experts: _routed(*t, experts),
            (floats(6, 8), floats(8, 4, seed=2), floats(4, 8, 5, seed=1)),
            opset=13,
        )
        assert ("OneHot" in {node.op_type for node in program.model.graph}) is (experts == 4)
