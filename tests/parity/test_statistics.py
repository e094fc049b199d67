"""Covariance, correlation and least squares against eager PyTorch, captured by their shapes alone."""

import pytest
import torch

import opsetta

from .matrices import low_rank
from .records import HIGHEST, Record, check, floats, integers, parametrized

OPSETS = (7, 8, 9, 13, HIGHEST)
LOWEST_AND_HIGHEST = (7, HIGHEST)


def _record(name: str, function, *inputs: torch.Tensor, opsets=LOWEST_AND_HIGHEST, **options) -> Record:
    return Record(name, function, inputs, opsets, **options)


_COUNTS = torch.tensor([1, 2, 3, 1, 2])
_WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.0])

COVARIANCE = [
    _record("cov", torch.cov, floats(3, 5), opsets=OPSETS),
    _record("cov-of-one-variable", torch.cov, floats(5)),
    _record("cov-of-one-row", torch.cov, floats(1, 5)),
    _record("cov-of-a-number", torch.cov, torch.tensor(2.0)),
    _record("cov-correction", lambda x: torch.cov(x, correction=0), floats(3, 5)),
    _record("cov-without-freedom", lambda x: torch.cov(x, correction=5), floats(2, 4)),
    _record("cov-fweights", lambda x, f: torch.cov(x, fweights=f), floats(3, 5), _COUNTS),
    _record("cov-aweights", lambda x, a: torch.cov(x, aweights=a), floats(3, 5), _WEIGHTS),
    _record(
        "cov-both-weights",
        lambda x, f, a: torch.cov(x, fweights=f, aweights=a),
        floats(3, 5),
        _COUNTS,
        _WEIGHTS,
    ),
    _record("cov-of-integers", torch.cov, integers(3, 5)),
    _record("cov-double", torch.cov, floats(3, 5, dtype=torch.float64)),
    _record("cov-dynamic", torch.cov, floats(3, 5), dynamic=({0: "variables", 1: "observations"},)),
    _record("corrcoef", torch.corrcoef, floats(3, 5), opsets=OPSETS),
    _record("corrcoef-of-one-variable", torch.corrcoef, floats(5)),
    _record("corrcoef-of-a-constant", torch.corrcoef, torch.stack([torch.ones(5), floats(5)])),
]


def _least_squares(driver: str):
    return lambda a, b: tuple(torch.linalg.lstsq(a, b, driver=driver))


LEAST_SQUARES = [
    _record(f"lstsq-{driver}-{name}", _least_squares(driver), a, b)
    for driver in ("gels", "gelsy", "gelsd", "gelss")
    for name, a, b in [
        ("tall", floats(2, 5, 3), floats(2, 5, 2, seed=1)),
        ("wide", floats(3, 5), floats(3, 2, seed=1)),
    ]
]
LEAST_SQUARES += [
    _record(
        "lstsq", lambda a, b: torch.linalg.lstsq(a, b).solution, floats(5, 3), floats(5, 1), opsets=OPSETS
    ),
    _record("lstsq-vector", _least_squares("gelsd"), floats(5, 3), floats(5)),
    _record("lstsq-vectors", _least_squares("gelsd"), floats(2, 4, 4), floats(2, 4)),
    _record("lstsq-low-rank", _least_squares("gelsy"), low_rank(5, 3, 2), floats(5, 2)),
    _record(
        "lstsq-rcond",
        lambda a, b: tuple(torch.linalg.lstsq(a, b, rcond=0.6, driver="gelsd"))[2:],
        floats(4, 4),
        floats(4, 1),
    ),
    _record(
        "lstsq-double", _least_squares("gelss"), *(floats(5, 3, seed=i, dtype=torch.float64) for i in (0, 1))
    ),
    _record("lstsq-of-nothing", _least_squares("gelsd"), torch.zeros(2, 0, 3), torch.zeros(2, 0, 2)),
]


@parametrized([*COVARIANCE, *LEAST_SQUARES])
def test_statistics(record: Record) -> None:
    check(record)


class _LeastSquares(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.linalg.lstsq(a, b, driver="gelsd"))


def test_residuals_of_a_deficient_matrix_are_nan() -> None:
    inputs = (floats(5, 3), floats(5, 2, seed=1))
    program = opsetta.export(_LeastSquares().eval(), inputs, opset=13)
    _, residuals, rank, _ = program(low_rank(5, 3, 2), inputs[1])
    assert rank.item() == 2
    assert residuals.isnan().all()


def test_torch_is_as_it_was_after_a_capture() -> None:
    inputs = (floats(5, 3), floats(5, 2, seed=1))
    opsetta.export(_LeastSquares().eval(), inputs, opset=13)
    with pytest.raises(Exception, match="linalg_lstsq"):
        torch.export.export(_LeastSquares().eval(), inputs)


class _Correlations(torch.nn.Module):
    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.corrcoef(x), torch.cov(x * 2, aweights=weights)


def test_strict_capture() -> None:
    inputs = (floats(3, 5), _WEIGHTS)
    program = opsetta.export(_Correlations().eval(), inputs, opset=13, strict=True)
    program.verify()
    with pytest.raises(Exception, match="equal"):
        torch.export.export(_Correlations().eval(), inputs)
