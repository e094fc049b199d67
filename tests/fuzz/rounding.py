"""Eager PyTorch as another implementation may round it, to see which results of a program are determined."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.overrides import TorchFunctionMode
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
    "argmax argmin topk sort kthvalue mode max min amax amin aminmax unique_dim _unique2 unique_consecutive "
    "cummax cummin".split()
)
"""Operators for which onnxruntime does not treat NaN as PyTorch does (docs/limits.md)."""

POOLS_WITHOUT_NAN = frozenset(
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d "
    "adaptive_max_pool3d".split()
)
"""Pooling that passes over NaN in onnxruntime; windows without NaN are as in PyTorch."""

COMPARES = frozenset("searchsorted bucketize eq ne lt le gt ge".split())
"""Operators that onnxruntime may give one FLOAT16 value rounded in one operand, and not in the other."""


class OpenSigns(TorchFunctionMode):
    """Zeros of einsum have any sign: PyTorch multiplies where it sums one product only.

    Args:
        seed: of the signs.
    """

    def __init__(self, seed: int):
        super().__init__()
        self._seed = seed

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is not torch.einsum or result.dtype not in _FLOATS:
            return result
        signs = torch.rand(result.shape, generator=torch.Generator().manual_seed(self._seed)) < 0.5
        return torch.where(result == 0, torch.where(signs, -0.0, 0.0).to(result.dtype), result)


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
        # The first two seeds take the same steps up and down.
        self._steps = torch.Generator().manual_seed(max(seed, 1))
        self._halves: dict[int, torch.UntypedStorage] = {}

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
                inexact = _inexact(output, exact)
                other = self._rounded(name, output, exact, inexact)
                undefined = self._undefined(func, name, args, kwargs, given, output)
                if undefined is not None:
                    other = torch.where(undefined, self._anything(output, given), other)
                outputs[position] = other = output.copy_(other) if mutates else other
                if output.dtype == torch.float16 and (bool(inexact.any()) or any(map(self._is_wide, given))):
                    self._halves[other.untyped_storage().data_ptr()] = other.untyped_storage()
        return pytree.tree_unflatten(outputs, spec)

    def _undefined(
        self, func: Any, name: str, args: tuple, kwargs: Any, given: list[torch.Tensor], output: torch.Tensor
    ) -> Any:
        """A mask of the elements that nothing defines, or docs/limits.md excepts; None for none."""
        if name in POOLS_WITHOUT_NAN:
            return func(given[0].isnan().to(given[0].dtype), *args[1:], **kwargs)[0] > 0
        if name.startswith("upsample_") and "nearest" not in name:
            return func(_beside_infinity(given[0]), *args[1:], **kwargs) != 0
        undefined = _undefined(name, args, kwargs, given, output)
        if undefined is None and name in COMPARES and not func._schema.is_mutable:
            return self._turned(func, args, kwargs, output)
        return undefined

    def _is_wide(self, value: torch.Tensor) -> bool:
        """Whether a FLOAT16 is of numbers that were rounded, which onnxruntime may leave in FLOAT."""
        return value.dtype == torch.float16 and value.untyped_storage().data_ptr() in self._halves

    def _turned(self, func: Any, args: tuple, kwargs: dict[str, Any], output: torch.Tensor) -> Any:
        """Where a rounding of one operand that was rounded decides a comparison; None where none was."""
        turned = None
        for position, item in enumerate(args):
            if not isinstance(item, torch.Tensor) or not self._is_wide(item):
                continue
            for factor in (1 - 2**-10, 1 + 2**-10):
                moved = (item.double() * factor).to(item.dtype)
                other = func(*args[:position], moved, *args[position + 1 :], **kwargs) != output
                turned = other if turned is None else turned | other
        return turned

    def _rounded(self, name: str, output: torch.Tensor, exact: Any, inexact: torch.Tensor) -> torch.Tensor:
        """The result with other roundings, and other signs of zero."""
        if output.dtype not in _FLOATS:
            return output
        value = output.double()
        error = torch.finfo(output.dtype).eps * value.abs()
        if _is_like(exact, output):
            error = torch.maximum(error, (exact.double() - value).abs())
            if self._random(()) < 0.5:
                value = torch.where(inexact, exact.double(), value)
        chosen = torch.rand(output.shape, generator=self._steps, dtype=torch.float64)
        steps = torch.tensor([-2.0, -1.0, 1.0, 2.0], dtype=torch.float64)[(chosen * 4).long()]
        steps = -steps if self._seed == 0 else steps
        inexact = inexact & value.isfinite() & error.isfinite()
        value = torch.where(inexact, value + steps * error, value)
        if output.dtype == torch.float16 and self._seed == 0 and _is_like(exact, output):
            # onnxruntime may keep a number in FLOAT that FLOAT16 cannot hold.
            largest = torch.finfo(torch.float16).max
            value = torch.where(exact.isfinite(), value.clamp(-largest, largest), value)
        if name not in KEEPS_SIGN_OF_ZERO:
            value = torch.where(value == 0, self._zeros(output.shape), value)
        return value.to(output.dtype)

    def _anything(self, like: torch.Tensor, given: list[torch.Tensor]) -> torch.Tensor:
        """The least finite number of the first argument, its most, infinity included, and NaN."""
        if like.dtype in _FLOATS and self._seed < 2 and given and given[0].dtype in _FLOATS:
            numbers = given[0][~given[0].isnan() if self._seed else given[0].isfinite()]
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


def _beside_infinity(pixels: torch.Tensor) -> torch.Tensor:
    """1 for pixels that are not finite, and for those next to one, with which an interpolation may mix it."""
    pool = getattr(torch.nn.functional, f"max_pool{pixels.dim() - 2}d")
    return pool((~pixels.isfinite()).to(pixels.dtype), 3, 1, 1)


def _is_like(exact: Any, output: torch.Tensor) -> bool:
    return isinstance(exact, torch.Tensor) and exact.shape == output.shape


def _inexact(output: torch.Tensor, exact: Any) -> torch.Tensor:
    """Where a result is rounded: where double precision gives another number, or else may do so."""
    if output.dtype not in _FLOATS:
        return torch.zeros(output.shape, dtype=torch.bool)
    value = output.double()
    if _is_like(exact, output):
        return ~((exact == value) | (exact.isnan() & value.isnan()))
    return (value * 64).round() != value * 64


def _undefined(
    name: str, args: tuple, kwargs: dict[str, Any], given: list[torch.Tensor], output: torch.Tensor
) -> Any:
    """The mask of what an operator's name and arguments tell alone."""
    if name in IGNORES_NAN:
        some = any(x.dtype in _FLOATS and bool(x.isnan().any()) for x in given)
        if some and "uniq" in name:
            raise ArithmeticError("how many NaN there are is open")
        return torch.tensor(True) if some else None
    if name == "gather" and not bool(((args[2] >= 0) & (args[2] < args[0].shape[args[1]])).all()):
        raise IndexError("eager PyTorch does not see every index that is out of range")
    if name in ("searchsorted", "bucketize"):
        sequence = args[0 if name == "searchsorted" else 1]
        return torch.tensor(True) if bool(sequence.isnan().any()) else None
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
