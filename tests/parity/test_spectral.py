"""Eigenvalues and singular values against eager PyTorch.

Vectors are unique up to their sign, and up to a rotation where values are equal. So they are compared by what
they give: the matrix again, and the identity.
"""

import pytest
import torch

import opsetta

from .matrices import definite, low_rank
from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 8, 9, 13, HIGHEST)
LOWEST_AND_HIGHEST = (7, HIGHEST)


def _record(name: str, function, *inputs: torch.Tensor, opsets=LOWEST_AND_HIGHEST, **options) -> Record:
    return Record(name, function, inputs, opsets, **options)


def _symmetric(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    matrix = floats(*shape, seed=seed, dtype=dtype)
    return matrix + matrix.mT


def _eigh(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, vectors = torch.linalg.eigh(a)
    again = (vectors * values.unsqueeze(-2)) @ vectors.mT
    return values, again, vectors.mT @ vectors


def _lower(a: torch.Tensor) -> torch.Tensor:
    return a.tril() + floats(*a.shape, seed=7).triu(1)


EIGENVALUES = [
    _record("eigh", _eigh, _symmetric(2, 3, 4, 4), opsets=OPSETS),
    _record("eigh-odd", _eigh, _symmetric(5, 5)),
    _record("eigh-double", _eigh, _symmetric(2, 6, 6, dtype=torch.float64), opsets=OPSETS),
    _record("eigh-one", _eigh, torch.tensor([[-3.0]])),
    _record("eigh-two", _eigh, torch.tensor([[0.0, 1.0], [1.0, 0.0]])),
    _record("eigh-equal-values", _eigh, torch.stack([torch.eye(4), torch.ones(4, 4), torch.zeros(4, 4)])),
    _record("eigh-graded", _eigh, torch.diag(torch.tensor([1e6, 1.0, 1e-6])) + _symmetric(3, 3) * 1e-3),
    _record("eigh-dynamic", _eigh, _symmetric(2, 4, 4), dynamic=({0: "batch", 1: "size", 2: "size"},)),
    _record("eigh-larger", _eigh, _symmetric(24, 24)),
    _record("eigh-of-nothing", torch.linalg.eigh, torch.zeros(2, 0, 0)),
    _record("eigh-without-batch", torch.linalg.eigh, torch.zeros(0, 3, 3)),
    _record("eigvalsh", torch.linalg.eigvalsh, definite(2, 4, 4), opsets=OPSETS),
    _record("eigvalsh-of-the-lower-triangle", torch.linalg.eigvalsh, _lower(_symmetric(4, 4))),
    _record("eigvalsh-of-the-upper-triangle", lambda a: torch.linalg.eigvalsh(a, UPLO="U"), floats(4, 4)),
]


def _svd(full: bool):
    def compare(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        u, s, vh = torch.linalg.svd(a, full_matrices=full)
        count = min(a.shape[-2:])
        again = (u[..., :count] * s.unsqueeze(-2)) @ vh[..., :count, :]
        return s, again, u.mT @ u, vh @ vh.mT

    return compare


def _thin(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    u, s, v = torch.svd(a)
    return s, (u * s.unsqueeze(-2)) @ v.mT, u.mT @ u, v.mT @ v


SINGULAR_VALUES = [
    _record("svd-tall", _svd(full=False), floats(2, 5, 3), opsets=OPSETS),
    _record("svd-wide", _svd(full=False), floats(2, 3, 5)),
    _record("svd-square", _svd(full=True), floats(4, 4)),
    _record("svd-full-tall", _svd(full=True), floats(2, 5, 3)),
    _record("svd-full-wide", _svd(full=True), floats(3, 6)),
    _record("svd-double", _svd(full=True), floats(6, 4, dtype=torch.float64), opsets=OPSETS),
    _record("svd-low-rank", _svd(full=True), low_rank(6, 5, 2)),
    _record(
        "svd-equal-values", _svd(full=False), torch.stack([torch.eye(4), torch.ones(4, 4), torch.zeros(4, 4)])
    ),
    _record(
        "svd-large-and-small",
        _svd(full=False),
        torch.stack([floats(4, 3) * 1e25, floats(4, 3) * 1e-25]),
        rtol=1e-4,
    ),
    _record("svd-dynamic", _thin, floats(2, 5, 3), dynamic=({0: "batch", 1: "rows", 2: "columns"},)),
    _record("svd-dynamic-wide", _thin, floats(3, 5), dynamic=({0: "rows", 1: "columns"},)),
    _record("svd-larger", _svd(full=False), floats(20, 24)),
    _record("svd-of-nothing", torch.linalg.svd, torch.zeros(2, 0, 3)),
    _record("svd-without-batch", torch.linalg.svd, torch.zeros(0, 2, 3)),
    _record("torch.svd", _thin, floats(2, 4, 3)),
    _record("torch.svd-without-vectors", lambda a: torch.svd(a, compute_uv=False), floats(2, 4, 3)),
    _record("svdvals", torch.linalg.svdvals, floats(2, 3, 4), opsets=OPSETS),
    _record("svdvals-of-nothing", torch.linalg.svdvals, torch.zeros(2, 3, 0)),
]


@parametrized([*EIGENVALUES, *SINGULAR_VALUES])
def test_spectral(record: Record) -> None:
    check(record)


class _Vectors(torch.nn.Module):
    def forward(
        self, symmetric: torch.Tensor, tall: torch.Tensor, wide: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return torch.linalg.eigh(symmetric)[1], torch.linalg.svd(tall)[2].mT, torch.linalg.svd(wide)[0]


@pytest.mark.parametrize("opset", LOWEST_AND_HIGHEST)
def test_largest_component_of_a_vector_is_positive(opset: int) -> None:
    inputs = (_symmetric(2, 4, 4), floats(5, 3), floats(3, 5))
    program = opsetta.export(_Vectors().eval(), inputs, opset=opset)
    for vectors, expected in zip(program(*inputs), _Vectors()(*inputs), strict=True):
        largest = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
        assert (largest > 0).all()
        torch.testing.assert_close(vectors.abs(), expected.abs(), rtol=1e-3, atol=1e-4)
