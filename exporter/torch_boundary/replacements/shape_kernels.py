"""Replaces torch's kernels by shape-only kernels during a capture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode

Shapes = Callable[..., Any]
"""Maps the arguments of an operator to tensors like its results."""


class _Kernel:
    """A shape-only kernel of a composite operator, used for fake tensors.

    Attributes:
        used: whether it was called.
    """

    def __init__(self, operator: OpOverload, shapes: Shapes):
        self.held = operator.py_kernels.get(DispatchKey.CompositeImplicitAutograd)
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

    Args:
        composite: composite operators whose kernels read values.
        others: operators that torch.export would run, or refuse.
    """
    kernels = {operator: _Kernel(operator, shapes) for operator, shapes in composite.items()}
    key = DispatchKey.CompositeImplicitAutograd

    def run(mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> Any:
        return others[func](*args, **kwargs)

    implementation = (lambda func: func in others, run)
    checks: list[Any] = fake_impls.op_implementations_checks
    try:
        checks.insert(0, implementation)
        for operator, kernel in kernels.items():
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
        yield
    finally:
        checks.remove(implementation)
        for operator, kernel in kernels.items():
            if kernel.held is None:
                operator.py_kernels.pop(key, None)
            else:
                operator.py_kernels[key] = kernel.held
            operator._dispatch_cache.clear()
        # The cache has results of the capture.
        if any(kernel.used for kernel in kernels.values()):
            FakeTensorMode.cache_clear()
