"""Covariances and least squares in torch.export, by their shapes alone.

Their kernels ask for values as torch.export runs them: `cov` whether its degrees of freedom are above zero,
`lstsq` for the rank, on which the number of residuals depends. While a model is captured, kernels that know
shapes take their place. Afterwards torch is as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode


def _covariance_shape(
    self: torch.Tensor,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """A square matrix of as many rows as there are variables, without its dimensions where that is one."""
    dtype = self.dtype
    for weights in (fweights, aweights):
        dtype = dtype if weights is None else torch.promote_types(dtype, weights.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    count = self.shape[0] if self.dim() == 2 else 1
    alone = isinstance(count, int) and count == 1
    return self.new_empty(() if alone else (count, count), dtype=dtype)


class _Kernel:
    """A kernel that knows shapes alone, where nothing but shapes is asked for.

    Attributes:
        used: whether any shape came from it.
    """

    def __init__(self, held: Callable[..., Any] | None, operator: Any):
        self.held = held
        self.used = False
        self._operator = operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Under a proxy mode the kernel's own operators would be the captured ones.
        if args and isinstance(args[0], FakeTensor) and get_proxy_mode() is None:
            self.used = True
            return _covariance_shape(*args, **kwargs)
        if self.held is not None:
            return self.held(*args, **kwargs)
        return self._operator._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _least_squares_shapes(
    mode: FakeTensorMode,
    func: Any,
    self: torch.Tensor,
    b: torch.Tensor,
    rcond: float | None = None,
    driver: str | None = None,
) -> tuple[torch.Tensor, ...]:
    """The shapes that the drivers of LAPACK give a matrix of full rank."""
    driver = driver or "gelsy"
    is_vector = b.dim() == 1 or (self.dim() - 1 == b.dim() and self.shape[:-1] == b.shape)
    other = b.unsqueeze(-1) if is_vector else b
    rows, columns = self.shape[-2:]
    batch = torch.broadcast_shapes(self.shape[:-2], other.shape[:-2])
    right = () if is_vector else (other.shape[-1],)
    has_residuals = driver != "gelsy" and rows > columns
    shortest = torch.sym_min(rows, columns)
    return (
        self.new_empty((*batch, columns, *right)),
        self.new_empty((*batch, other.shape[-1]) if has_residuals else (0,)),
        self.new_empty((0,) if driver == "gels" else self.shape[:-2], dtype=torch.int64),
        self.new_empty((*self.shape[:-2], shortest) if driver in ("gelsd", "gelss") else (0,)),
    )


@contextlib.contextmanager
def by_shapes() -> Iterator[None]:
    """Within it, torch.export captures covariances and least squares by their shapes."""
    key = DispatchKey.CompositeImplicitAutograd
    operators = [torch.ops.aten.cov.default, torch.ops.aten.corrcoef.default]
    kernels = [_Kernel(operator.py_kernels.get(key), operator) for operator in operators]
    least_squares = torch.ops.aten.linalg_lstsq.default
    implementation = (lambda func: func is least_squares, _least_squares_shapes)
    checks: list[Any] = fake_impls.op_implementations_checks
    try:
        checks.insert(0, implementation)
        for operator, kernel in zip(operators, kernels, strict=True):
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
        yield
    finally:
        checks.remove(implementation)
        for operator, kernel in zip(operators, kernels, strict=True):
            if kernel.held is None:
                operator.py_kernels.pop(key, None)
            else:
                operator.py_kernels[key] = kernel.held
            operator._dispatch_cache.clear()
        # It remembers results, those of a capture among them.
        if any(kernel.used for kernel in kernels):
            FakeTensorMode.cache_clear()
