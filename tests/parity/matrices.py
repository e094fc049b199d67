"""Matrices for the records of linear algebra, the same ones every time."""

import torch

from .records import floats


def definite(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Symmetric positive definite matrices."""
    matrix = floats(*shape, seed=seed, dtype=torch.float64)
    return (matrix @ matrix.mT + torch.eye(shape[-1], dtype=torch.float64)).to(dtype)


def regular(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Square matrices with a small condition number, that need their rows exchanged."""
    matrix = floats(*shape, seed=seed, scale=0.5, dtype=torch.float64)
    return (matrix + 2 * torch.eye(shape[-1], dtype=torch.float64).flip(-1)).to(dtype)


def low_rank(rows: int, columns: int, rank: int, seed: int = 0) -> torch.Tensor:
    """A matrix with as many singular values above zero as its rank."""
    return floats(rows, rank, seed=seed) @ floats(rank, columns, seed=seed + 1)
