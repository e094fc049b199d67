"""Replaces torch's kernels by shape-only kernels during a capture."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ...dispatch import DispatchKey
from ...fake_tensors import FakeTensor, FakeTensorMode, fake_impls
from ...operators.overloads import Function, OpOverload

Shapes = Function
"""Maps the arguments of an operator to tensors like its results."""


class _ShapeKernel:
    """A shape-only kernel of a composite operator, used for fake tensors.

    Attributes:
        original: the Python kernel that it replaces; None for the operator's C++ kernel.
        used: whether it was called.
    """

    def __init__(self, original: Function | None, operator: OpOverload, shapes: Shapes):
        self.original = original
        self.used = False
        self._operator = operator
        self._shapes = shapes

    def __call__(self, *args: object, **kwargs: object) -> object:
        # Under a proxy mode the operators that this kernel runs would be captured as part of the model.
        if args and isinstance(args[0], FakeTensor) and get_proxy_mode() is None:
            self.used = True
            return self._shapes(*args, **kwargs)
        if self.original is not None:
            return self.original(*args, **kwargs)
        return self._operator._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@contextlib.contextmanager
def use_shape_kernels(
    composite: Mapping[OpOverload, Shapes], non_composite: Mapping[OpOverload, Shapes]
) -> Iterator[None]:
    """Use shape-only kernels for operators within the context.

    A composite operator is replaced in its `py_kernels` and, if it is there, in torch's decomposition table.

    Args:
        composite: by composite operator whose kernel reads values, the shape function to use.
        non_composite: by operator whose kernel needs values or is refused by torch.export, the same.
    """
    composite_key = DispatchKey.CompositeImplicitAutograd
    table_entries: list[tuple[dict[Any, Any], Any, OpOverload]]
    table_entries = [(operator.py_kernels, composite_key, operator) for operator in composite]
    table_entries += [
        (decomposition_table, operator, operator) for operator in composite if operator in decomposition_table
    ]
    kernels = [
        _ShapeKernel(table.get(key), operator, composite[operator]) for table, key, operator in table_entries
    ]

    def run(mode: FakeTensorMode, func: OpOverload, *args: object, **kwargs: object) -> object:
        return non_composite[func](*args, **kwargs)

    implementation = (lambda func: func in non_composite, run)
    checks: list[Any] = fake_impls.op_implementations_checks
    try:
        # The first check that matches decides, so ours must come before torch's.
        checks.insert(0, implementation)
        for (table, key, operator), kernel in zip(table_entries, kernels, strict=True):
            table[key] = kernel
            # torch caches the kernel of each dispatch key; without this the old kernel would still run.
            operator._dispatch_cache.clear()
        yield
    finally:
        checks.remove(implementation)
        for (table, key, operator), kernel in zip(table_entries, kernels, strict=True):
            if kernel.original is None:
                table.pop(key, None)
            else:
                table[key] = kernel.original
            operator._dispatch_cache.clear()
        # torch's cache of fake results now holds shapes of these kernels, which later runs must not see.
        if any(kernel.used for kernel in kernels):
            FakeTensorMode.cache_clear()
