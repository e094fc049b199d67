"""Shape-only kernels for covariances, least squares and grouped products in torch.export.

The kernels of the first two read values while torch.export runs them: `cov` checks whether its degrees of
freedom are positive, and `lstsq` reads the rank, on which the number of residuals depends. The kernel that
torch.export runs for grouped products accepts only BFLOAT16 and CUDA's strides; the CPU's also accepts FLOAT
and FLOAT16.
"""

from __future__ import annotations

import torch

from ...operators.overloads import OpOverload
from .shape_kernels import Shapes


def _covariance_shape(
    self: torch.Tensor,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return a square matrix with a row for each variable; a tensor of rank 0 for one variable."""
    dtype = self.dtype
    for weights in (fweights, aweights):
        dtype = dtype if weights is None else torch.promote_types(dtype, weights.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    # A vector is one variable.
    count = self.shape[0] if self.dim() == 2 else 1
    is_single = isinstance(count, int) and count == 1
    return self.new_empty(() if is_single else (count, count), dtype=dtype)


def _least_squares_shapes(
    self: torch.Tensor, b: torch.Tensor, rcond: float | None = None, driver: str | None = None
) -> tuple[torch.Tensor, ...]:
    """Return tensors like the solution, residuals, rank and singular values, for a matrix of full rank."""
    # "gelsy" is the default on the CPU.
    driver = driver or "gelsy"
    # torch.linalg takes `b` as a batch of vectors if its sizes are the batch sizes and rows of the matrices.
    is_vector = b.dim() == 1 or (self.dim() - 1 == b.dim() and self.shape[:-1] == b.shape)
    right_side = b.unsqueeze(-1) if is_vector else b
    rows, columns = self.shape[-2:]
    batch = torch.broadcast_shapes(self.shape[:-2], right_side.shape[:-2])
    right_columns = () if is_vector else (right_side.shape[-1],)
    has_residuals = driver != "gelsy" and rows > columns
    shortest = torch.sym_min(rows, columns)
    return (
        self.new_empty((*batch, columns, *right_columns)),
        self.new_empty((*batch, right_side.shape[-1]) if has_residuals else (0,)),
        self.new_empty((0,) if driver == "gels" else self.shape[:-2], dtype=torch.int64),
        self.new_empty((*self.shape[:-2], shortest) if driver in ("gelsd", "gelss") else (0,)),
    )


def _grouped_product_shape(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return a matrix if one factor is 2D and the other 3D, else a stack with a matrix for each group."""
    shape: tuple[int | torch.SymInt, ...] = (self.shape[-2], mat2.shape[-1])
    if self.dim() == mat2.dim():
        shape = (self.shape[0] if offs is None else offs.shape[0], *shape)
    return self.new_empty(shape, dtype=out_dtype)


COMPOSITE: dict[OpOverload, Shapes] = {
    torch.ops.aten.cov.default: _covariance_shape,
    torch.ops.aten.corrcoef.default: _covariance_shape,
}
GROUPED_PRODUCT: dict[OpOverload, Shapes] = {torch.ops.aten._grouped_mm.default: _grouped_product_shape}
NON_COMPOSITE: dict[OpOverload, Shapes] = {
    torch.ops.aten.linalg_lstsq.default: _least_squares_shapes,
    **GROUPED_PRODUCT,
}
