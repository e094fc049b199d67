"""Eager PyTorch as another implementation may round it, to see which results of a program are determined."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

KEEPS_SIGN_OF_ZERO = frozenset(
    "neg abs mul div copysign clone _to_copy copy cat stack index index_select gather select_copy flip roll "
    "repeat constant_pad_nd fill sqrt sin tan tanh asin atan sinh asinh erf expm1 log1p trunc remainder fmod "
    "full full_like zeros ones zeros_like ones_like _unsafe_view reciprocal ldexp".split()
)
"""Operators whose zeros have the sign that IEEE 754 or PyTorch defines. Of all others either sign is right.

Those with `Where` are not among them: onnxruntime's makes -0.0 of its first alternative 0.0.
"""

IGNORES_NAN = frozenset(
    "max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices _adaptive_max_pool "
    "adaptive_max_pool2d adaptive_max_pool3d argmax argmin topk sort kthvalue mode max min amax amin aminmax "
    "unique_dim _unique2 unique_consecutive cummax cummin".split()
)
"""Operators for which onnxruntime does not treat NaN as PyTorch does (docs/limits.md)."""


class Rounding(TorchDispatchMode):
    """Each operator's result is off by a rounding or two, unless double precision gives the same number.

    What PyTorch or the processor leaves open is random: a number too large for an integer type, a shift
    beyond the element type, the sign of most zeros, and what docs/limits.md says of NaN.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int):
        super().__init__()
        self._seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            return func(*args, **kwargs)
        name = func._schema.name.split("::")[1]
        mutates = func._schema.is_mutable
        name = name[:-1] if mutates and name.endswith("_") else name
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        wide = _in_double(func, args, kwargs, given)
        result = func(*args, **kwargs)
        outputs, spec = pytree.tree_flatten(result)
        for position, output in enumerate(outputs):
            if isinstance(output, torch.Tensor) and output.numel():
                exact = wide[position] if len(wide) == len(outputs) else None
                other = self._rounded(name, output, exact)
                undefined = _undefined(name, args, kwargs, given, output)
                if undefined is not None:
                    other = torch.where(undefined, self._anything(output, given), other)
                outputs[position] = output.copy_(other) if mutates else other
        return pytree.tree_unflatten(outputs, spec)

    def _rounded(self, name: str, output: torch.Tensor, exact: Any) -> torch.Tensor:
        """The result with other roundings, and other signs of zero."""
        if output.dtype not in _FLOATS:
            return output
        value = output.double()
        error = torch.finfo(output.dtype).eps * value.abs()
        if isinstance(exact, torch.Tensor) and exact.shape == output.shape:
            inexact = ~((exact == value) | (exact.isnan() & value.isnan()))
            error = torch.maximum(error, (exact.double() - value).abs())
            if self._random(()) < 0.5:
                value = torch.where(inexact, exact.double(), value)
        else:
            inexact = (value * 64).round() != value * 64
        steps = (self._random(output.shape) * 5).floor() - 2
        inexact &= value.isfinite() & error.isfinite()
        value = torch.where(inexact, value + steps * error, value)
        if name not in KEEPS_SIGN_OF_ZERO:
            value = torch.where(value == 0, self._zeros(output.shape), value)
        return value.to(output.dtype)

    def _anything(self, like: torch.Tensor, given: list[torch.Tensor]) -> torch.Tensor:
        """For the first two seeds the least and the most of the first argument, and NaN for the third."""
        if like.dtype in _FLOATS and self._seed < 2 and given and given[0].dtype in _FLOATS:
            numbers = given[0][~given[0].isnan()]
            if numbers.numel():
                return (numbers.max() if self._seed else numbers.min()).to(like.dtype).expand(like.shape)
        if like.dtype in _FLOATS:
            return torch.full_like(like, math.nan if self._seed == 2 else self._seed)
        if like.dtype == torch.bool:
            return self._random(like.shape) < 0.5
        limit = torch.iinfo(like.dtype).max
        return torch.randint(0, limit, like.shape, generator=self._generator).to(like.dtype)

    def _zeros(self, shape: Any) -> torch.Tensor:
        """Zeros: for the first two seeds of either sign, then of any."""
        signs = (self._random(shape) < 0.5) if self._seed > 1 else torch.tensor(self._seed == 1)
        return torch.where(signs.broadcast_to(shape), -0.0, 0.0).double()

    def _random(self, shape: Any) -> torch.Tensor:
        return torch.rand(shape, generator=self._generator, dtype=torch.float64)


def _undefined(
    name: str, args: tuple, kwargs: dict[str, Any], given: list[torch.Tensor], output: torch.Tensor
) -> Any:
    """A mask of the elements that nothing defines, or docs/limits.md excepts; None where there are none."""
    if name in IGNORES_NAN:
        some = any(x.dtype in _FLOATS and bool(x.isnan().any()) for x in given)
        if some and "uniq" in name:
            raise ArithmeticError("how many NaN there are is open")
        return torch.tensor(True) if some else None
    if name == "floor_divide" or kwargs.get("rounding_mode") == "floor":
        operands = [torch.as_tensor(item, dtype=torch.float64) for item in args[:2]]
        return (operands[0].isinf() | operands[1].isinf()).expand(output.shape)
    if name.endswith("_aa") and not bool(given[0].isfinite().all()):
        return torch.tensor(True)
    if name == "sum" and output.dtype == torch.int64:
        return given[0].double().abs().sum().expand(output.shape) > 2**53
    if output.dtype in _FLOATS or output.dtype == torch.bool or not given:
        return None
    if name in ("_to_copy", "copy") and given[-1].dtype in _FLOATS:
        limits = torch.iinfo(output.dtype)
        whole = given[-1].double().trunc()
        return ~((whole >= limits.min) & (whole < float(limits.max) + 1))
    if "shift" in name:
        count = torch.as_tensor(args[1])
        return (count < 0) | (count >= torch.iinfo(output.dtype).bits - 1)
    return None


def _in_double(func: Any, args: tuple, kwargs: dict[str, Any], given: list[torch.Tensor]) -> list[Any]:
    """The results in double precision; an empty list where the operator does not run so."""
    if not any(x.dtype in _FLOATS[:3] for x in given) or any(x.dtype == torch.float64 for x in given):
        return []

    def doubled(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return item.double() if item.dtype in _FLOATS else item.clone()
        return torch.float64 if item in _FLOATS else item

    try:
        return pytree.tree_leaves(func(*pytree.tree_map(doubled, args), **pytree.tree_map(doubled, kwargs)))
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return []
