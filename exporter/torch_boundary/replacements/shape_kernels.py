"""Replaces torch's kernels by shape-only kernels during a capture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._subclasses import fake_impls
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ..fake_tensors import FakeTensor, FakeTensorMode
from ..operators.overloads import OpOverload

Shapes = Callable[..., Any]
"""Maps the arguments of an operator to tensors like its results."""


class _Kernel:
    """A shape-only kernel of a composite operator, used for fake tensors.

    Attributes:
        held: the kernel that it replaces; None for the operator's C++ kernel.
        used: whether it was called.
    """

    def __init__(self, held: Any, operator: OpOverload, shapes: Shapes):
        self.held = held
        self.used = False
        self._operator = operator
        self._shapes = shapes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Under a proxy mode the kernel's own operators would be captured.
        if args and isinstance(args[0], FakeTensor) and get_proxy_mode() is None:
            self.used = True
            return self._shapes(*args, **kwargs)
        if self.held is not None:
            return self.held(*args, **kwargs)
        return self._operator._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@contextlib.contextmanager
def in_place_of(
    composite: Mapping[OpOverload, Shapes], others: Mapping[OpOverload, Shapes]
) -> Iterator[None]:
    """Use shape-only kernels for operators within the context.

    A composite operator has kernels for fake tensors in one or two of torch's tables.

    Args:
        composite: composite operators whose kernels read values.
        others: operators that torch.export would run, or refuse.
    """
    key = DispatchKey.CompositeImplicitAutograd
    places: list[tuple[dict[Any, Any], Any, OpOverload]]
    places = [(operator.py_kernels, key, operator) for operator in composite]
    places += [(decomposition_table, each, each) for each in composite if each in decomposition_table]
    kernels = [_Kernel(table.get(place), each, composite[each]) for table, place, each in places]

    def run(mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> Any:
        return others[func](*args, **kwargs)

    implementation = (lambda func: func in others, run)
    checks: list[Any] = fake_impls.op_implementations_checks
    try:
        checks.insert(0, implementation)
        for (table, place, operator), kernel in zip(places, kernels, strict=True):
            table[place] = kernel
            operator._dispatch_cache.clear()
        yield
    finally:
        checks.remove(implementation)
        for (table, place, operator), kernel in zip(places, kernels, strict=True):
            if kernel.held is None:
                table.pop(place, None)
            else:
                table[place] = kernel.held
            operator._dispatch_cache.clear()
        # The cache has results of the capture.
        if any(kernel.used for kernel in kernels):
            FakeTensorMode.cache_clear()
