"""Tensors made from nothing, and arithmetic over sizes, against eager PyTorch."""

import math

import pytest
import torch

import opsetta

from .records import BASE, EVERYWHERE, HIGHEST, Record, floats, integers, parametrized
from .resized import Resized, check_sizes

X = floats(2, 3, 4)
I = integers(2, 3)  # noqa: E741
WINDOWS = ("hamming", "blackman", "bartlett", "kaiser")
COMPUTED = (9, 10, 11, 12, 13, HIGHEST)
SIZES = ({0: torch.export.Dim("a", min=2, max=64), 1: torch.export.Dim("b", min=2, max=64)},)
OTHERS = ((floats(5, 2, 4),), (floats(13, 8, 4),), (floats(2, 17, 4),))


def _computed(name, function, opsets=COMPUTED, **kwargs):
    return Resized(
        f"{name} dynamic", function, (floats(4, 3, 4),), opsets, dynamic=SIZES, others=OTHERS, **kwargs
    )


CREATIONS = [
    Record(
        "arange",
        lambda x: (
            x.sum() + torch.arange(5),
            torch.arange(2, 7) * x.long().sum(),
            torch.arange(7, 2, -2) + x.sum(),
            torch.arange(0, 1, 0.1) + x.sum(),
            torch.arange(1.5, -2.0, -0.5, dtype=torch.float64),
            torch.arange(5, dtype=torch.int32),
            torch.arange(3, 3),
            torch.arange(5.0),
        ),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "filled",
        lambda x: (
            torch.zeros(2, 3),
            torch.ones(2, dtype=torch.int64),
            torch.full((2, 2), 7),
            torch.full((3,), 1.5, dtype=torch.float16),
            torch.full((), True),
            torch.zeros(0, 3),
            torch.full((70, 70), 2, dtype=torch.int32),
            torch.empty(3).fill_(2.0),
            torch.scalar_tensor(3, dtype=torch.int64),
            torch.scalar_tensor(2.5),
        ),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "filled with a negative number that wraps",
        lambda i: (
            i.new_full((2,), -3),
            torch.full_like(i, -255),
            torch.full((2,), 3.7, dtype=torch.uint8),
            torch.full((i.shape[0],), -3, dtype=torch.uint8),
        ),
        (integers(3, low=0, high=9, dtype=torch.uint8),),
        EVERYWHERE,
        dynamic=({0: "n"},),
    ),
    Record(
        "filled with a number that is computed",
        lambda x, i, value: (
            torch.fill(x, value),
            torch.fill(x, 2),
            torch.fill(i, value),
            torch.fill(i, 2.7),
            torch.fill(x > 0, value),
            torch.fill(x, value > 3),
            torch.fill(x[0, 0], value),
        ),
        (floats(2, 3), integers(4), torch.tensor(2.75)),
        EVERYWHERE,
        dynamic=({0: "n"}, {0: "m"}, None),
    ),
    Record(
        "filled like",
        lambda x, i: (
            torch.zeros_like(x),
            torch.ones_like(i),
            torch.full_like(x, 3),
            torch.full_like(i, 2.5, dtype=torch.float32),
            torch.zeros_like(i, dtype=torch.bool),
            x.new_zeros(2, 2),
            i.new_ones(3),
            x.new_full((2,), 4.5),
            i.new_full((2,), 4, dtype=torch.float64),
            torch.empty_like(x).fill_(1),
            x.new_empty(2).fill_(1),
        ),
        (X, I),
        EVERYWHERE,
    ),
    Record(
        "eye",
        lambda x: (
            torch.eye(3),
            torch.eye(2, 4, dtype=torch.int64),
            torch.eye(3, 2),
            torch.tril_indices(3, 4, 1),
            torch.triu_indices(3, 3),
        ),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "linspace",
        lambda x: (
            torch.linspace(0, 1, 7),
            torch.linspace(-3, 3, 1),
            torch.linspace(1, -2, 5, dtype=torch.float64),
            torch.linspace(2, 9, 4, dtype=torch.int64),
            torch.linspace(4.3, -3, 50, dtype=torch.int64),
            torch.linspace(0, 1, 0),
        ),
        (X,),
        EVERYWHERE,
    ),
    *(
        Record(
            f"{name}_window",
            lambda x, window=window: [
                x + 1,
                *(window(n, periodic=p) for n in (0, 1, 2, 7) for p in (True, False)),
            ],
            (X,),
            BASE,
        )
        for name, window in ((name, getattr(torch, f"{name}_window")) for name in WINDOWS)
    ),
    Record("linspace of tensors", lambda x: torch.linspace(x[0, 0, 0], x[0, 0, 1], 5), (X,), BASE),
    Record(
        "linspace of tensors, whole",
        lambda x: torch.linspace(x[0, 0, 0], 7.5 * x[0, 0, 1], 12, dtype=torch.int32),
        (X,),
        BASE,
    ),
    _computed(
        "arange",
        lambda x: (
            torch.arange(x.shape[0]),
            torch.arange(x.shape[0], x.shape[0] + 5),
            torch.arange(2, x.shape[0] + x.shape[1], 2),
            torch.arange(x.shape[1], dtype=torch.float32) / x.shape[1],
            torch.arange(x.shape[1], dtype=torch.int32),
            torch.arange(x.shape[0] - 1, -1, -1),
            torch.arange(0, x.shape[0], 0.5),
            torch.arange(x.shape[0] * 1.0) + 0.5,
        ),
    ),
    _computed(
        "filled",
        lambda x: (
            torch.zeros(x.shape[0], 3),
            torch.ones(x.shape[0], x.shape[1], dtype=torch.bool),
            torch.full((x.shape[1],), 7),
            torch.full((2, x.shape[0]), x.shape[1]),
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.int64),
            torch.full_like(x, 2.5, dtype=torch.float16),
            x.new_full((x.shape[1], 1), math.inf),
            torch.eye(x.shape[0]),
            torch.eye(x.shape[0], x.shape[1], dtype=torch.int64),
        ),
    ),
    _computed(
        "filled with a computed number",
        lambda x: (
            torch.full((2, 3), x.shape[1]),
            torch.full((x.shape[0], 1), x.shape[1] / 2, dtype=torch.float64),
            torch.full((), x.shape[0], dtype=torch.float32),
            torch.full_like(x, x.shape[0] * 0.5),
            x.new_full((0, 2), x.shape[1]),
        ),
        (7, 9, HIGHEST),
    ),
    Resized(
        "filled as one dimension",
        lambda x: torch.ones(x.shape[0], 2),
        (X,),
        (7, 9, HIGHEST),
        dynamic=({0: "b"},),
    ),
    _computed(
        "arithmetic",
        lambda x: (
            torch.zeros(x.shape[0] * x.shape[1] + 2),
            torch.zeros(x.shape[0] // 2 + 2),
            torch.zeros(-(-x.shape[0] // 3) + 1),
            torch.zeros(x.shape[0] % 3 + 2),
            torch.zeros((x.shape[0] - x.shape[1]) % 4 + 2),
            torch.zeros((x.shape[0] - x.shape[1]) // 3 + 30),
            torch.zeros(max(x.shape[0], 5) + min(x.shape[1], 6)),
            torch.zeros(torch.sym_max(x.shape[0], x.shape[1])),
            torch.zeros(x.shape[0] ** 2),
        ),
    ),
    _computed(
        "fractions",
        lambda x: (
            torch.zeros(math.ceil(x.shape[0] / 3) + 1),
            torch.zeros(math.floor(x.shape[0] * 1.5)),
            torch.zeros(math.trunc(x.shape[0] / 3) + 2),
            x / torch._sym_sqrt(x.shape[1]),
            x * (x.shape[0] / x.shape[1]),
            x + x.shape[0] * 2,
        ),
    ),
    _computed(
        # onnxruntime makes Slice of a Range that Gather reads.
        "rows by arange",
        lambda x: (
            x[torch.arange(x.shape[0] - 1, -1, -1)],
            x[torch.arange(-x.shape[0], 0)],
            x.index_select(1, torch.arange(x.shape[1] + 1, 1, -1) - 2),
            x[:, torch.arange(1, x.shape[1] + 1) - 1],
        ),
    ),
    _computed(
        "bits",
        lambda x: (
            x + (x.shape[0] & 6),
            x + (x.shape[1] | 5),
            x + ((x.shape[0] > 3) & (x.shape[1] > 3)),
        ),
    ),
    _computed("numel", lambda x: (torch.zeros(x.numel()), x.sum() / x.numel())),
]


@parametrized(CREATIONS)
def test_creation_agrees_with_eager(record: Record) -> None:
    check_sizes(record)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (300, torch.uint8),
        (-256, torch.uint8),
        (-0.5, torch.uint8),
        (2**31, torch.int32),
        (math.inf, torch.int64),
    ],
)
@pytest.mark.parametrize("opset", [7, HIGHEST])
@pytest.mark.parametrize("dynamic", [None, ({0: "n"},)])
def test_a_number_that_the_element_type_does_not_hold_is_refused(number, dtype, opset, dynamic) -> None:
    with pytest.raises(opsetta.CaptureError, match="(?s)fails in PyTorch itself.*cannot be converted"):
        opsetta.export(
            lambda x: x.new_full((x.shape[0], 2), number, dtype=dtype),
            (floats(4),),
            opset=opset,
            dynamic_shapes=dynamic,
        )
