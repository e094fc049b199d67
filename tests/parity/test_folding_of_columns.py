"""fold, which is Col2Im from 18 on, against eager PyTorch."""

import torch
from torch.nn import functional

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 9, 17, 18, HIGHEST)
SPECIAL = floats(1, 8, 12)
SPECIAL[0, 3, 4], SPECIAL[0, 5, 7] = torch.inf, torch.nan


def _record(name: str, columns: torch.Tensor, opsets=OPSETS, dynamic=None, **options) -> Record:
    return Record(name, lambda x: functional.fold(x, **options), (columns,), opsets, dynamic=dynamic)


RECORDS = [
    _record("overlapping", floats(2, 18, 20), output_size=(5, 7), kernel_size=(2, 3)),
    _record("side-by-side", floats(2, 12, 16), output_size=8, kernel_size=2, stride=2),
    _record("apart", floats(2, 8, 6), output_size=(8, 5), kernel_size=2, stride=3, padding=(0, 1)),
    _record("dilated", floats(1, 12, 25), output_size=(6, 7), kernel_size=(2, 3), dilation=(3, 2), padding=1),
    _record("unbatched", floats(18, 20), output_size=(5, 7), kernel_size=(2, 3)),
    _record("double", floats(2, 18, 20, dtype=torch.float64), output_size=(5, 7), kernel_size=(2, 3)),
    _record("any-batch", floats(2, 18, 20), dynamic=({0: "n"},), output_size=(5, 7), kernel_size=(2, 3)),
    _record("infinity-and-nan", SPECIAL, (9, HIGHEST), output_size=(4, 5), kernel_size=2),
    Record(
        "to-another",
        lambda x: functional.fold(functional.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1),
        (floats(1, 2, 5, 6),),
        (9, 17, HIGHEST),
        dynamic=({2: "h", 3: "w"},),
    ),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)
