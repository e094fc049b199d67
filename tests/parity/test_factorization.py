"""Cholesky, LU, QR and LDL against eager PyTorch: batches, rectangles, pivots, failures, nothing at all."""

import pytest
import torch

import opsetta

from .matrices import definite, regular
from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 8, 9, 13, HIGHEST)
LOWEST_AND_HIGHEST = (7, HIGHEST)
EVERY_SIZE = {0: "batch", 1: "size", 2: "size"}


def _record(name: str, function, *inputs: torch.Tensor, opsets=LOWEST_AND_HIGHEST, **options) -> Record:
    return Record(name, function, inputs, opsets, **options)


CHOLESKY = [
    _record("cholesky", torch.linalg.cholesky, definite(2, 4, 4), opsets=OPSETS),
    _record("cholesky-upper", lambda a: torch.linalg.cholesky(a, upper=True), definite(4, 4)),
    _record("cholesky-of-a-triangle", torch.cholesky, definite(3, 3).tril() + floats(3, 3).triu(1)),
    _record("cholesky-double", torch.linalg.cholesky, definite(5, 5, dtype=torch.float64)),
    _record("cholesky-dynamic", torch.linalg.cholesky, definite(2, 4, 4), dynamic=(EVERY_SIZE,)),
    _record("cholesky-info", torch.linalg.cholesky_ex, definite(3, 2, 3, 3)),
    _record(
        "cholesky-info-of-a-failure",
        lambda a: torch.linalg.cholesky_ex(a).info,
        torch.stack([torch.diag(torch.tensor([1.0, -1.0, -2.0])), torch.eye(3), -torch.eye(3)]),
    ),
    _record("cholesky-of-nothing", torch.linalg.cholesky, torch.zeros(2, 0, 0)),
    _record("cholesky-without-batch", torch.linalg.cholesky, torch.zeros(0, 3, 3)),
    _record("cholesky_solve", torch.cholesky_solve, floats(2, 4, 3), definite(4, 4).tril(), opsets=OPSETS),
    _record(
        "cholesky_solve-upper",
        lambda b, a: torch.cholesky_solve(b, a, upper=True),
        floats(4, 3),
        definite(2, 4, 4).triu(),
    ),
    _record("cholesky_inverse", torch.cholesky_inverse, definite(2, 4, 4).tril()),
    _record("cholesky_inverse-upper", lambda a: torch.cholesky_inverse(a, upper=True), definite(4, 4).triu()),
]


def _unpacked(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    packed, pivots = torch.linalg.lu_factor(a)
    return packed, pivots, *torch.lu_unpack(packed, pivots)


def _solved(a: torch.Tensor, b: torch.Tensor, left: bool, adjoint: bool) -> torch.Tensor:
    packed, pivots = torch.linalg.lu_factor(a)
    return torch.linalg.lu_solve(packed, pivots, b, left=left, adjoint=adjoint)


# Exact in every order of operations: its third column is zero once the first two are eliminated.
SINGULAR = torch.tensor([[4.0, 2, 2, 1], [2, 3, 1, 5], [1, 0.5, 0.5, 2], [2, 1, 1, 7]])
LU = [
    _record("lu-square", torch.linalg.lu, regular(2, 4, 4), opsets=OPSETS),
    _record("lu-tall", torch.linalg.lu, floats(2, 5, 3)),
    _record("lu-wide", torch.linalg.lu, floats(3, 5)),
    _record("lu-double", torch.linalg.lu, floats(4, 6, dtype=torch.float64), opsets=OPSETS),
    _record("lu-dynamic", torch.linalg.lu, floats(2, 5, 3), dynamic=({0: "batch", 1: "rows", 2: "columns"},)),
    _record("lu_factor-unpacked", _unpacked, floats(2, 4, 6)),
    _record("lu_factor-info", torch.linalg.lu_factor_ex, torch.stack([SINGULAR, regular(4, 4)])),
    _record("lu_factor-info-of-zeros", torch.linalg.lu_factor_ex, torch.zeros(2, 3, 4)),
    _record("lu-of-nothing", torch.linalg.lu_factor_ex, torch.zeros(2, 0, 3)),
    _record("lu-without-batch", torch.linalg.lu_factor_ex, torch.zeros(0, 3, 3)),
    _record("torch.lu", lambda a: torch.lu(a, get_infos=True), regular(2, 3, 3)),
    _record(
        "lu_unpack-half",
        lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a), unpack_pivots=False),
        regular(3, 3),
    ),
]
LU += [
    _record(
        f"lu_solve-{'left' if left else 'right'}{'-adjoint' if adjoint else ''}",
        lambda a, b, left=left, adjoint=adjoint: _solved(a, b, left, adjoint),
        regular(2, 3, 3),
        floats(3, 4) if left else floats(2, 4, 3),
    )
    for left in (True, False)
    for adjoint in (True, False)
]

QR = [
    _record("qr-tall", torch.linalg.qr, floats(2, 5, 3), opsets=OPSETS),
    _record("qr-wide", torch.linalg.qr, floats(3, 5)),
    _record("qr-square", torch.linalg.qr, floats(4, 4)),
    _record("qr-double", torch.linalg.qr, floats(6, 4, dtype=torch.float64), opsets=OPSETS),
    _record("qr-complete", lambda a: torch.linalg.qr(a, mode="complete"), floats(2, 5, 3)),
    _record("qr-complete-wide", lambda a: torch.linalg.qr(a, mode="complete"), floats(3, 5)),
    _record("qr-r-alone", lambda a: torch.linalg.qr(a, mode="r"), floats(5, 3)),
    _record("qr-dynamic", torch.linalg.qr, floats(2, 5, 3), dynamic=({0: "batch", 1: "rows", 2: "columns"},)),
    _record("qr-of-large-numbers", torch.linalg.qr, floats(4, 3) * 1e25, rtol=1e-4),
    _record("qr-of-zeros", torch.linalg.qr, torch.zeros(3, 2)),
    _record("qr-of-nothing", torch.linalg.qr, torch.zeros(2, 3, 0)),
    _record("torch.qr", lambda a: torch.qr(a, some=False), floats(4, 2)),
    _record("geqrf", torch.geqrf, floats(2, 5, 4)),
    _record("geqrf-wide", torch.geqrf, floats(3, 4)),
    _record("orgqr", lambda a: torch.linalg.householder_product(*torch.geqrf(a)), floats(2, 5, 3)),
    _record("orgqr-of-fewer", torch.linalg.householder_product, floats(5, 4), floats(2, seed=1)),
]
QR += [
    _record(
        f"ormqr-{'left' if left else 'right'}{'-transposed' if transpose else ''}",
        lambda a, t, c, left=left, transpose=transpose: torch.ormqr(a, t, c, left, transpose),
        floats(2, 5, 3),
        floats(2, 3, seed=1),
        floats(2, 5, 4, seed=2) if left else floats(2, 4, 5, seed=2),
    )
    for left in (True, False)
    for transpose in (True, False)
]


def _hollow(size: int) -> torch.Tensor:
    """A symmetric matrix with zeros on its diagonal, which takes blocks of two rows."""
    matrix = floats(size, size, seed=4)
    return (matrix + matrix.mT).fill_diagonal_(0)


def _ldl_solved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a), b)


LDL = [
    _record("ldl", torch.linalg.ldl_factor_ex, floats(3, 2, 5, 5, seed=3), opsets=OPSETS),
    _record("ldl-double", torch.linalg.ldl_factor_ex, floats(6, 6, seed=5, dtype=torch.float64)),
    _record("ldl-blocks", torch.linalg.ldl_factor, torch.stack([_hollow(5), definite(5, 5)])),
    _record("ldl-singular", torch.linalg.ldl_factor_ex, torch.stack([torch.zeros(3, 3), torch.ones(3, 3)])),
    _record("ldl-dynamic", torch.linalg.ldl_factor, floats(2, 4, 4), dynamic=(EVERY_SIZE,)),
    _record("ldl-of-nothing", torch.linalg.ldl_factor, torch.zeros(2, 0, 0)),
    _record("ldl_solve", _ldl_solved, regular(3, 2, 4, 4), floats(3, 2, 4, 3), opsets=OPSETS),
    _record("ldl_solve-blocks", _ldl_solved, torch.stack([_hollow(5), definite(5, 5)]), floats(5, 2)),
]


@parametrized([*CHOLESKY, *LU, *QR, *LDL])
def test_factorization(record: Record) -> None:
    check(record)


def test_pivots_are_exchanged() -> None:
    """What the records of LU and LDL rest on: their matrices need exchanges, and blocks of two rows."""
    _, pivots = torch.linalg.lu_factor(regular(4, 4))
    assert pivots.tolist() != [1, 2, 3, 4]
    _, pivots = torch.linalg.ldl_factor(_hollow(5))
    assert (pivots < 0).any()


def test_lu_without_pivots_is_refused() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.linalg.lu(a, pivot=False)

    with pytest.raises(opsetta.OpsettaError, match="pivot"):
        opsetta.export(Model().eval(), (regular(3, 3),), opset=13)
