"""Cross entropy of a linear layer in chunks against eager PyTorch: weights, ignored targets, reductions."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

import opsetta

from .records import BASE, EVERYWHERE, Record, check, floats, integers, parametrized
from .resized import Resized, check_sizes

ROWS, WEIGHT, BIAS = floats(6, 4), floats(9, 4, seed=1), floats(9, seed=2)
CLASSES = torch.tensor([0, 8, 3, 2, 2, -100])
OF_CLASSES = floats(9, seed=3).abs()
CHUNKED = LinearCrossEntropyOptions()


def _records(reduction: str) -> list[Record]:
    def weighted(x, weight, target, bias, of_classes):
        options = LinearCrossEntropyOptions(batch_chunk_size=4, chunking_method=None)
        given = {"linear_bias": bias, "weight": of_classes, "reduction": reduction}
        return F.linear_cross_entropy(x, weight, target, options=options, **given)

    def ignoring(x, weight, target):
        return F.linear_cross_entropy(x, weight, target, ignore_index=2, reduction=reduction, options=CHUNKED)

    opsets = (*EVERYWHERE, 11)
    return [
        Record(f"{reduction} weighted", weighted, (ROWS, WEIGHT, CLASSES, BIAS, OF_CLASSES), opsets),
        Record(f"{reduction} ignoring", ignoring, (ROWS, WEIGHT, CLASSES.clamp_min(0)), opsets),
        Record(f"{reduction} ignoring all", ignoring, (ROWS, WEIGHT, CLASSES * 0 + 2), (9, 13)),
        Record(f"{reduction} of one", ignoring, (ROWS[0], WEIGHT, CLASSES[0]), (9, 13)),
    ]


@parametrized([record for reduction in ("mean", "sum", "none") for record in _records(reduction)])
def test_agrees_with_eager(record: Record) -> None:
    check(record)


def _of_places() -> Record:
    """A weight for several places, along some of which there is one class: no size is taken for another."""
    shapes = ((4, 2), (2, 1, 2, 1, 2), (4, 1, 2, 1)), ((5, 3), (3, 2, 4, 2, 3), (5, 2, 4, 2))
    first, second = ((floats(*x), floats(*w, seed=1), integers(*t, low=0, high=2)) for x, w, t in shapes)
    free = tuple(dict.fromkeys(range(tensor.dim()), torch.export.Dim.AUTO) for tensor in first)
    return Resized(
        "of several places",
        lambda x, weight, target: F.linear_cross_entropy(x, weight, target, reduction="none"),
        first,
        BASE,
        dynamic=free,
        others=(second,),
    )


@parametrized([_of_places()])
def test_agrees_at_other_sizes(record: Record) -> None:
    check_sizes(record)


def test_half_precision_is_refused_by_name() -> None:
    def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.linear_cross_entropy(x, weight, target, options=CHUNKED)

    with pytest.raises(opsetta.UnsupportedOperatorsError, match="half precision"):
        opsetta.export(loss, (ROWS.half(), WEIGHT.half(), CLASSES), opset=13)
