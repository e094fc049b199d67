"""Pseudo-inverse, rank, condition, norms, powers and the exponential of matrices against eager PyTorch."""

import math

import torch

from .matrices import definite, low_rank, regular
from .records import HIGHEST, Record, check, floats, integers, parametrized

OPSETS = (7, 8, 9, 13, HIGHEST)
LOWEST_AND_HIGHEST = (7, HIGHEST)
ANY_SIZE = {0: "batch", 1: "rows", 2: "columns"}


def _record(name: str, function, *inputs: torch.Tensor, opsets=LOWEST_AND_HIGHEST, **options) -> Record:
    return Record(name, function, inputs, opsets, **options)


def _symmetric_low_rank() -> torch.Tensor:
    factor = low_rank(4, 4, 2)
    return factor @ factor.mT


PSEUDO_INVERSE = [
    _record("pinv", torch.linalg.pinv, floats(2, 4, 3), opsets=OPSETS),
    _record("pinv-wide", torch.linalg.pinv, floats(3, 5)),
    _record("pinv-low-rank", torch.linalg.pinv, low_rank(5, 4, 2)),
    _record("pinv-double", torch.linalg.pinv, floats(4, 4, dtype=torch.float64)),
    _record(
        "pinv-hermitian", lambda a: torch.linalg.pinv(a, hermitian=True), _symmetric_low_rank(), rtol=5e-3
    ),
    _record("pinv-atol", lambda a: torch.linalg.pinv(a, atol=1.0), floats(2, 4, 3)),
    _record("pinv-both", lambda a: torch.linalg.pinv(a, atol=0.1, rtol=0.5), floats(2, 4, 3)),
    _record(
        "pinv-of-tensors",
        lambda a, x, y: torch.linalg.pinv(a, atol=x, rtol=y),
        floats(2, 4, 3),
        torch.tensor([0.5, 2.0]),
        torch.tensor([0.1, 0.0]),
    ),
    _record("pinv-rcond", lambda a: torch.linalg.pinv(a, 0.6), floats(2, 4, 3)),
    _record("pinverse", torch.pinverse, floats(3, 4)),
    _record("pinv-of-nothing", torch.linalg.pinv, torch.zeros(2, 0, 3)),
    _record("pinv-dynamic", torch.linalg.pinv, floats(2, 4, 3), dynamic=(ANY_SIZE,)),
]

RANK = [
    _record(
        "rank", torch.linalg.matrix_rank, torch.stack([low_rank(4, 3, 1), low_rank(4, 3, 3)]), opsets=OPSETS
    ),
    _record("rank-hermitian", lambda a: torch.linalg.matrix_rank(a, hermitian=True), _symmetric_low_rank()),
    _record("rank-tol", lambda a: torch.linalg.matrix_rank(a, 1.5), floats(2, 4, 3)),
    _record("rank-atol", lambda a: torch.linalg.matrix_rank(a, atol=1.5), floats(2, 4, 3)),
    _record(
        "rank-of-tensors",
        lambda a, x: torch.linalg.matrix_rank(a, atol=x),
        floats(2, 4, 3),
        torch.tensor([1.0, 0.0]),
    ),
    _record("rank-of-nothing", torch.linalg.matrix_rank, torch.zeros(2, 0, 3)),
]

_ORDERS = [None, 2, -2, 1, -1, math.inf, -math.inf, "fro", "nuc"]
CONDITION = [
    _record(f"cond-{p}", lambda a, p=p: torch.linalg.cond(a, p), regular(2, 3, 3), rtol=1e-3) for p in _ORDERS
]
CONDITION += [
    _record(
        "cond-of-singular", lambda a: torch.linalg.cond(a, 1), torch.stack([torch.ones(3, 3), regular(3, 3)])
    ),
    _record("cond-of-a-rectangle", torch.linalg.cond, floats(2, 4, 3)),
    _record("cond-of-nothing", torch.linalg.cond, torch.zeros(2, 0, 0)),
]

NORM = [
    _record(f"matrix_norm-{p}", lambda a, p=p: torch.linalg.matrix_norm(a, p), floats(2, 4, 3))
    for p in _ORDERS
    if p is not None
]
NORM += [
    _record(
        "matrix_norm-dims",
        lambda a: (
            torch.linalg.matrix_norm(a, 2, dim=(0, 2), keepdim=True),
            torch.linalg.matrix_norm(a, 1, dim=(2, 0)),
        ),
        floats(3, 2, 4),
    ),
    _record(
        "matrix_norm-dtype", lambda a: torch.linalg.matrix_norm(a, "nuc", dtype=torch.float64), floats(3, 4)
    ),
    _record(
        "matrix_norm-dynamic",
        lambda a: torch.linalg.matrix_norm(a, "nuc"),
        floats(2, 4, 3),
        dynamic=(ANY_SIZE,),
    ),
    _record("norm-of-a-matrix", lambda a: torch.linalg.norm(a, -2), floats(3, 4)),
    _record("norm-of-everything", torch.linalg.norm, floats(2, 3, 4)),
    _record("norm-of-vectors", lambda a: torch.linalg.norm(a, 3, dim=1, keepdim=True), floats(2, 3, 4)),
    _record("norm-of-matrices", lambda a: torch.linalg.norm(a, math.inf, dim=(0, 1)), floats(2, 3, 4)),
    _record("norm-by-name", lambda a: torch.linalg.norm(a, "nuc"), floats(3, 4)),
    _record("torch.norm-nuclear", lambda a: torch.norm(a, "nuc", dim=(0, 2), keepdim=True), floats(2, 3, 4)),
]

POWER = [
    _record(f"power-{n}", lambda a, n=n: torch.linalg.matrix_power(a, n), regular(2, 3, 3))
    for n in (-3, -1, 0, 1, 2, 7)
]
POWER += [
    _record(
        "power-of-integers", lambda a: torch.linalg.matrix_power(a, 3), integers(3, 3), opsets=(9, HIGHEST)
    ),
    _record("power-zero-of-integers", lambda a: torch.linalg.matrix_power(a, 0), integers(2, 3, 3)),
]

EXPONENTIAL = [
    _record("exp", torch.linalg.matrix_exp, floats(2, 4, 4), opsets=OPSETS),
    _record("exp-double", torch.linalg.matrix_exp, floats(2, 4, 4, dtype=torch.float64), opsets=OPSETS),
    _record(
        "exp-of-all-sizes",
        torch.linalg.matrix_exp,
        floats(3, 3) * torch.tensor([0.0, 1e-6, 0.1, 1.0, 5.0]).reshape(5, 1, 1),
    ),
    _record("exp-of-nothing", torch.matrix_exp, torch.zeros(2, 0, 0)),
    _record("exp-without-batch", torch.matrix_exp, torch.zeros(0, 3, 3)),
    _record(
        "exp-dynamic", torch.matrix_exp, definite(2, 3, 3), dynamic=({0: "batch", 1: "size", 2: "size"},)
    ),
]


@parametrized([*PSEUDO_INVERSE, *RANK, *CONDITION, *NORM, *POWER, *EXPONENTIAL])
def test_matrix_functions(record: Record) -> None:
    check(record)
