"""Fractional max pooling against eager PyTorch, where its random numbers are given; and where not."""

import pytest
import torch
import torch.nn.functional as F

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 8, 9, 11, 13, HIGHEST)
PLANES, VOLUMES = floats(2, 3, 11, 12), floats(2, 3, 7, 8, 9)
SAMPLES = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
POOL = {2: F.fractional_max_pool2d, 3: F.fractional_max_pool3d}
FREE = ({0: "batch", 2: "height", 3: "width"}, {0: "batch"})


def _record(name: str, input: torch.Tensor, kernel, samples: torch.Tensor = SAMPLES, dynamic=None, **options):
    dimensions = 3 if input.dim() == 5 else 2

    def pooled(x: torch.Tensor, given: torch.Tensor):
        return POOL[dimensions](x, kernel, _random_samples=given, return_indices=True, **options)

    samples = samples[..., :dimensions].to(input.dtype)
    return Record(name, pooled, (input, samples), OPSETS, dynamic=dynamic)


RECORDS = [
    _record("2d", PLANES, (3, 2), output_size=(4, 5)),
    _record("2d overlapping", PLANES, 2, output_size=(10, 11)),
    _record("2d one window", PLANES, 3, output_size=1),
    _record("2d ratio", PLANES, 3, output_ratio=(0.5, 0.7)),
    _record("2d double", PLANES.double(), 3, output_size=4),
    _record("2d unbatched", PLANES[0], 3, SAMPLES[:1], output_size=(4, 5)),
    Record(
        "3d unbatched, with samples for two",
        lambda x, given: F.fractional_max_pool3d(x, 2, output_size=2, _random_samples=given),
        (VOLUMES[0], SAMPLES),
        OPSETS,
    ),
    _record("2d dynamic", PLANES, 3, dynamic=FREE, output_size=(4, 5)),
    _record("3d", VOLUMES, (3, 2, 2), output_size=(4, 5, 3)),
    _record("3d ratio", VOLUMES, 2, output_ratio=(0.5, 0.6, 0.7)),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("opset", [7, 13])
def test_windows_drawn_at_random_hold_elements_of_the_input(opset: int) -> None:
    module = torch.nn.FractionalMaxPool2d(3, output_size=(4, 5), return_indices=True).eval()
    values, indices = opsetta.export(module, (PLANES,), opset=opset)(PLANES)
    assert values.shape == (2, 3, 4, 5)
    torch.testing.assert_close(PLANES.flatten(2).gather(2, indices.flatten(2)), values.flatten(2))


def test_random_numbers_of_half_precision_are_refused() -> None:
    def pooled(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return F.fractional_max_pool2d(x, 3, output_size=4, _random_samples=given)

    with pytest.raises(opsetta.UnsupportedOperatorsError, match="half precision"):
        opsetta.export(pooled, (PLANES.half(), SAMPLES[..., :2].half()), opset=13)
