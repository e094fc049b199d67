"""Linear systems, inverses and determinants against eager PyTorch."""

import torch

from .matrices import definite, low_rank, regular
from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 8, 9, 11, 13, HIGHEST)
LOWEST_AND_HIGHEST = (7, HIGHEST)
SQUARE = {0: "batch", 1: "size", 2: "size"}


def _record(name: str, function, *inputs: torch.Tensor, opsets=LOWEST_AND_HIGHEST, **options) -> Record:
    return Record(name, function, inputs, opsets, **options)


def _triangular(**options: bool):
    return lambda a, b: torch.linalg.solve_triangular(a, b, **options)


_HEAVY = regular(2, 4, 4) + 4 * torch.eye(4)
TRIANGULAR = [
    _record("lower", _triangular(upper=False), _HEAVY, floats(2, 4, 3), opsets=OPSETS),
    _record("upper", _triangular(upper=True), _HEAVY, floats(2, 4, 3)),
    _record("unit", _triangular(upper=True, unitriangular=True), regular(4, 4), floats(4, 3)),
    _record("right", _triangular(upper=True, left=False), _HEAVY, floats(2, 3, 4)),
    _record("right-lower", _triangular(upper=False, left=False), _HEAVY, floats(3, 4)),
    _record("broadcast", _triangular(upper=False), _HEAVY[:1], floats(3, 1, 4, 2)),
    _record("double", _triangular(upper=True), _HEAVY.double(), floats(2, 4, 3).double()),
    _record(
        "dynamic",
        _triangular(upper=True),
        _HEAVY,
        floats(2, 4, 3),
        dynamic=(SQUARE, {0: "batch", 1: "size", 2: "columns"}),
    ),
    _record("nothing", _triangular(upper=True), torch.zeros(2, 0, 0), torch.zeros(2, 0, 3)),
    _record("no-columns", _triangular(upper=True), torch.eye(3), torch.zeros(3, 0)),
    _record("triangular_solve", torch.triangular_solve, floats(2, 4, 3), _HEAVY),
    _record(
        "triangular_solve-transposed",
        lambda b, a: torch.triangular_solve(b, a, upper=False, transpose=True),
        floats(3, 4, 2),
        _HEAVY[0],
    ),
]

SOLVE = [
    _record("solve", torch.linalg.solve, regular(2, 4, 4), floats(2, 4, 3), opsets=OPSETS),
    _record("solve-vector", torch.linalg.solve, regular(4, 4), floats(4)),
    _record("solve-vectors", torch.linalg.solve, regular(3, 4, 4), floats(3, 4)),
    _record("solve-broadcast", torch.linalg.solve, regular(4, 4), floats(3, 4, 2)),
    _record(
        "solve-right", lambda a, b: torch.linalg.solve(a, b, left=False), regular(2, 4, 4), floats(2, 3, 4)
    ),
    _record("solve-info", torch.linalg.solve_ex, regular(3, 3), floats(3, 2)),
    _record(
        "solve-double",
        torch.linalg.solve,
        regular(5, 5, dtype=torch.float64),
        floats(5, 2, dtype=torch.float64),
    ),
    _record(
        "solve-dynamic",
        torch.linalg.solve,
        regular(2, 4, 4),
        floats(2, 4, 3),
        dynamic=(SQUARE, {0: "batch", 1: "size"}),
    ),
    _record("solve-without-batch", torch.linalg.solve, torch.zeros(0, 3, 3), torch.zeros(0, 3, 2)),
    _record("inverse", torch.linalg.inv, regular(2, 3, 4, 4), opsets=OPSETS),
    _record("torch.inverse", torch.inverse, definite(3, 3)),
    _record("inverse-info", torch.linalg.inv_ex, regular(2, 4, 4)),
    _record(
        "inverse-info-of-singular",
        lambda a: torch.linalg.inv_ex(a).info,
        torch.stack([torch.ones(3, 3), torch.eye(3)]),
    ),
    _record("inverse-dynamic", torch.linalg.inv, regular(2, 4, 4), dynamic=(SQUARE,)),
    _record("inverse-of-nothing", torch.linalg.inv, torch.zeros(2, 0, 0)),
    _record("tensorinv", lambda a: torch.linalg.tensorinv(a, ind=2), regular(6, 6).reshape(2, 3, 3, 2)),
    _record("tensorsolve", torch.linalg.tensorsolve, regular(6, 6).reshape(2, 3, 6), floats(2, 3)),
    _record(
        "tensorsolve-dims",
        lambda a, b: torch.linalg.tensorsolve(a, b, dims=(0, 2)),
        floats(2, 6, 3, 1, seed=2),
        floats(6, 1),
    ),
]

DETERMINANT = [
    _record("det", torch.linalg.det, regular(2, 3, 4, 4), opsets=OPSETS),
    _record("det-one", torch.det, regular(3, 3), opsets=OPSETS),
    _record("det-double", torch.linalg.det, regular(2, 4, 4, dtype=torch.float64), opsets=OPSETS),
    _record("det-singular", torch.linalg.det, low_rank(3, 3, 1), atol=1e-5),
    _record("det-dynamic", torch.linalg.det, regular(2, 4, 4), dynamic=(SQUARE,), opsets=OPSETS),
    _record("det-of-nothing", torch.linalg.det, torch.zeros(2, 0, 0), opsets=OPSETS),
    _record("det-without-batch", torch.linalg.det, torch.zeros(0, 3, 3), opsets=OPSETS),
    _record("slogdet", torch.linalg.slogdet, regular(2, 3, 4, 4), opsets=OPSETS),
    _record("slogdet-of-zeros", torch.slogdet, torch.zeros(2, 3, 3)),
    _record("slogdet-of-nothing", torch.slogdet, torch.zeros(0, 0)),
    _record("slogdet-dynamic", torch.linalg.slogdet, regular(2, 4, 4), dynamic=(SQUARE,)),
    _record("logdet", torch.logdet, torch.stack([definite(3, 3), -torch.eye(3), torch.zeros(3, 3)])),
]


@parametrized([*TRIANGULAR, *SOLVE, *DETERMINANT])
def test_solving(record: Record) -> None:
    check(record)
