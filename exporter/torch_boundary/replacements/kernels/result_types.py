"""Corrects the element type of results whose kernel for fake tensors disagrees with the kernel for data.

For a few operators, torch's shape-only kernels give the promoted element type of all operands, and the
kernels that compute give another one. A capture would record a type that the model does not return.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._decomp import decomposition_table

from ...fake_tensors import FakeTensorMode, fake_impls
from ...operators.overloads import Function, OpOverload, promoted_dtype

_ATEN = torch.ops.aten


def _type_of_input(self: torch.Tensor, *_: object, **__: object) -> torch.dtype:
    return self.dtype


def _type_of_product(
    self: torch.Tensor, vec1: torch.Tensor, vec2: torch.Tensor, *_: object, **__: object
) -> torch.dtype:
    """Promote the types; a `self` of rank 0 counts as much as the vectors, because it is expanded first."""
    return torch.promote_types(torch.promote_types(self.dtype, vec1.dtype), vec2.dtype)


def _type_of_quotient(self: torch.Tensor, other: torch.Tensor, **_: object) -> torch.dtype:
    """Promote the types; integers become the default float type."""
    dtype = torch.result_type(self, other)
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _type_of_blocks(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    return promoted_dtype(tensors)


RESULT_TYPES: dict[OpOverload, Callable[..., torch.dtype]] = {
    _ATEN.addr.default: _type_of_product,
    _ATEN.block_diag.default: _type_of_blocks,
    _ATEN.huber_loss.default: _type_of_input,
    _ATEN.ldexp.Tensor: _type_of_quotient,
    _ATEN.soft_margin_loss.default: _type_of_input,
}
"""By operator, a function of its arguments that returns the element type that the kernels for data give."""


def _converting(operator: OpOverload, function: Function) -> Function:
    """Wrap a kernel so that it converts its result to the element type of `RESULT_TYPES`."""

    def run(*args: object, **kwargs: object) -> object:
        result = function(*args, **kwargs)
        assert isinstance(result, torch.Tensor)
        return result.to(RESULT_TYPES[operator](*args, **kwargs))

    return run


@contextlib.contextmanager
def corrected_types() -> Iterator[None]:
    """Correct the element types of the results of the operators in `RESULT_TYPES` within the context."""
    is_running = was_used = False

    def run(mode: FakeTensorMode, func: OpOverload, *args: object, **kwargs: object) -> object:
        nonlocal is_running, was_used
        # torch's own kernel, which comes after this check, serves the inner call.
        if is_running:
            return NotImplemented
        is_running = was_used = True
        try:
            with mode:
                return _converting(func, func)(*args, **kwargs)
        finally:
            is_running = False

    implementation = (lambda func: func in RESULT_TYPES, run)
    # With symbolic sizes torch decomposes before it asks for implementations.
    decompositions = {op: decomposition_table[op] for op in RESULT_TYPES if op in decomposition_table}
    try:
        fake_impls.op_implementations_checks.insert(0, implementation)
        for operator, function in decompositions.items():
            decomposition_table[operator] = _converting(operator, function)
        yield
    finally:
        fake_impls.op_implementations_checks.remove(implementation)
        for operator, function in decompositions.items():
            decomposition_table[operator] = function
        if was_used:
            FakeTensorMode.cache_clear()
