"""Handles the torch functions that a model calls, before they become operators, in a single mode."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import _refs
from torch.backends import opt_einsum as einsum_paths
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode, PythonKeyTracer

from ..containers import pytree
from ..export_internals import non_strict_utils
from ..fake_tensors import FakeTensor
from ..operators.overloads import Args, Function, Kwargs
from ..replacements.functions import batched_operators, data_attribute, dynamic_arguments, symbolic_indices
from ..replacements.functions.function_gradients import run_traced
from ..symbolic_numbers import compute_order
from .gradients import OF_GRADIENTS, Differentiates, check_function

_ATEN = torch.ops.aten
_UNRECORDED = frozenset({data_attribute.READ, torch.Tensor.numpy, torch.Tensor.__array__})
"""Functions that read a tensor without running an operator, so a recording would miss them."""
_NUMBERS = frozenset({torch.Tensor.__int__, torch.Tensor.__index__, torch.Tensor.__float__})
"""Functions that must return a Python number; a symbol is not accepted."""
_OF_TENSORS = (types.MethodWrapperType, types.MethodDescriptorType)
"""The types of a tensor's attributes and methods, except those that take symbols, such as `__getitem__`."""
_OF_ORDER = frozenset({torch.Tensor.contiguous, torch.Tensor.is_contiguous})
_KERNELS = (types.BuiltinFunctionType, types.BuiltinMethodType)
_CHANGED = proxy_tensor._side_effectful_need_to_be_preserved_pre_dispatch  # type: ignore[attr-defined]
_OF_SLICES = frozenset(
    {torch.unbind, torch.Tensor.unbind, torch.Tensor.__iter__, torch.split, torch.Tensor.split}
)
_BY_INDEX = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_RANDOM = (torch.rand, torch.randn, torch.randint, torch.randperm)
_NARROW = (torch.narrow, torch.Tensor.narrow)
_WHERE = (torch.where, torch.Tensor.where)
_FROM_DATA = (torch.tensor, torch.as_tensor)
_SIZES = (torch.SymInt, torch.SymFloat)
_REPLACED = frozenset({*_FROM_DATA, torch.equal, *_NARROW, *_WHERE, *dynamic_arguments.CHOICES, *_RANDOM})
"""Functions that `_recordable` replaces."""
Call = tuple[Function, Args, Kwargs]
"""A function, and its positional and keyword arguments."""
Redirect = Callable[[Function, Args, Kwargs], Function]


@runtime_checkable
class DynamicNumbers(Protocol):
    """A list of numbers whose length depends on dynamic sizes."""

    def make_tensor(self) -> torch.Tensor:
        """Return a tensor of the numbers."""


def is_unchanged(func: object) -> bool:
    """Whether torch's modes call a function unchanged, whatever its arguments.

    The modes search lists of functions at each call, which takes longer than most calls.
    """
    # Their kernels read values or fix sizes, see `_recordable`.
    if func in _REPLACED:
        return False
    if type(func) in _KERNELS:
        return func not in _CHANGED
    return getattr(func, "__module__", None) == torch.nn.functional.__name__ and isinstance(
        func, types.FunctionType
    )


class FunctionMode(non_strict_utils._NonStrictTorchFunctionHandler, PreDispatchTorchFunctionMode):
    """Combines the two function modes of torch.export, and adds what a recording needs.

    Raises `Differentiates` if a model computes gradients that this recording does not show, and
    `OtherGradients` if it computes gradients that no recording can show.

    Each mode takes time for each call of a function, and for each attribute of a tensor that a model reads.
    torch takes this mode off while TorchDynamo traces, because it is one that records before dispatch.

    Args:
        tracer: torch's tracer.
        redirect: takes a call, and returns the function to call instead, or the same one.
        elements_of: finds the elements of a fake tensor that a model converts to an array; None to refuse it.
        assign: takes a tensor and the value that a model assigns to its `data`; makes the assignment.
        differentiates: whether the recording shows the operators of gradients.

    Attributes:
        needs_number: whether a tensor is being converted to a number of Python's.
        replaced_calls: for each call of a function that may fix a size, the one called instead, or None.
        slices_of: takes a function of `_OF_SLICES` and its arguments; returns its result for a tensor whose
            sliced axis has a dynamic size, None for other tensors.
    """

    def __init__(
        self,
        tracer: PythonKeyTracer,
        redirect: Redirect,
        elements_of: Callable[[torch.Tensor], np.ndarray | None],
        assign: Callable[[torch.Tensor, torch.Tensor], None],
        *,
        differentiates: bool,
    ):
        super().__init__(tracer)
        self._redirect = redirect
        self._elements_of = elements_of
        self._assign = assign
        self._differentiates = differentiates
        self._plain: dict[object, bool] = {}
        self.needs_number = False
        self.replaced_calls: list[Function | None] = []
        self.slices_of: Callable[..., Any] = lambda *args, **kwargs: None

    def _override(self, func: Any, args: Args, kwargs: Kwargs) -> Call:
        """Return the function to call, and its arguments; torch's mode then makes the call."""
        if func in _UNRECORDED and isinstance(args[0], FakeTensor):
            return self._replace_unrecorded(func, args, kwargs)
        if func in _OF_SLICES:
            slices = self.slices_of(func, *args, **kwargs)
            if slices is not None:
                return (lambda: iter(slices) if func is torch.Tensor.__iter__ else slices), (), {}
        substitute = batched_operators.substitute_of(func, args)
        if substitute is not None:
            return self._run_within, (substitute, args, kwargs), {}
        if batched_operators.consists_of_operators(func, args):
            return self._run_within, (functools.partial(run_traced, func), args, kwargs), {}
        if type(func) in _OF_TENSORS and func not in _REPLACED:
            if func in _OF_ORDER:
                is_known = compute_order(*args, **kwargs)
                # A copy has the same elements, whatever the order of the tensor's.
                if not is_known and func is torch.Tensor.contiguous:
                    options = {"memory_format": torch.contiguous_format, **kwargs}
                    return torch.Tensor.clone, args[:1], options
            elif func == data_attribute.WRITE:
                return self._assign, args, {}
            return (
                (func, args, kwargs)
                if func not in _NUMBERS
                else (self._convert_to_number, (func, args[0]), {})
            )
        # Cached, because the answer does not depend on the arguments.
        is_plain = self._plain.get(func)
        if is_plain is None:
            is_plain = self._plain[func] = is_unchanged(func)
        if is_plain and self._redirect(func, args, kwargs) is func:
            return func, args, kwargs
        check_function(func)
        if func in OF_GRADIENTS and not self._differentiates:
            raise Differentiates
        func, args, kwargs = super()._override(func, args, kwargs)  # type: ignore[no-untyped-call]
        if func in dynamic_arguments.CHOICES:
            replacement = dynamic_arguments.CHOICES[func](*args, **kwargs)
            self.replaced_calls.append(replacement)
            func = replacement or func
        func = _recordable(func, args, kwargs)
        func = self._redirect(func, args, kwargs)
        # `aten::size` returns Python numbers, which would fix symbolic sizes.
        if func is _ATEN.size.default and args[0]._has_symbolic_sizes_strides:
            func = _ATEN.sym_size.default
        return PreDispatchTorchFunctionMode.__torch_function__, (self, func, (), args, kwargs), {}

    def _run_within(self, func: Function, args: Args, kwargs: Kwargs) -> object:
        """Call a function with this mode on, so that it sees the inner calls; `_override` runs without it."""
        with self:
            return func(*args, **kwargs)

    def _convert_to_number(
        self, func: Callable[[torch.Tensor], int | float], tensor: torch.Tensor
    ) -> int | float:
        """Convert a tensor to a Python number by `func`, for example `Tensor.__int__`."""
        self.needs_number = True
        try:
            return func(tensor)
        except ValueError:
            # The error of `item` says how many elements there are, as a torch.export of the model does.
            tensor.item()
            raise
        finally:
            self.needs_number = False

    def _replace_unrecorded(self, func: Function, args: Args, kwargs: Kwargs) -> Call:
        if func == data_attribute.READ:
            return torch.Tensor.detach, args[:1], {}
        array = self._elements_of(args[0])
        if array is None:
            return func, args, kwargs
        return (lambda: array if func is torch.Tensor.numpy else array.__array__(*args[1:], **kwargs)), (), {}


def _recordable(func: Function, args: Args, kwargs: Kwargs) -> Function:
    """Return a replacement for a function that would read values or fix sizes; else the function itself."""
    if func in _FROM_DATA and args and isinstance(args[0], DynamicNumbers):
        return _tensor_of_numbers
    if func in _BY_INDEX and _has_numbers(args[1]):
        return functools.partial(_index_by_numbers, func)
    if func is torch.as_tensor and args and _has_sizes(args[0]):
        return _tensor_of_sizes
    if func is torch.tensor and args and _holds_scalars(args[0]):
        # This implementation consists of operators, which can be recorded.
        return _refs.tensor
    # Its kernel compares the elements and returns a Python bool.
    if func is torch.equal:
        return _equal
    if func in _NARROW:
        return _narrow
    if func in _WHERE:
        return functools.partial(_where, func)
    if func in _BY_INDEX and isinstance(args[1], FakeTensor) and args[1].dtype == torch.bool:
        return func if args[1].dim() else functools.partial(_index_by_condition, func)
    if func is torch.Tensor.__setitem__ and symbolic_indices.has_symbolic_index(args[1]):
        return symbolic_indices.assign_item
    if func is torch.Tensor.__getitem__ and symbolic_indices.mixes_symbols_with_tensors(args[1]):
        return symbolic_indices.read_item
    if func in _RANDOM and kwargs.get("generator", func) is None:
        return functools.partial(_omit_generator, func)
    return _einsum if func is torch.functional.einsum else func


def _tensor_of_numbers(
    data: DynamicNumbers,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    **kwargs: object,
) -> torch.Tensor:
    """`torch.tensor` of a range over a dynamic size."""
    return data.make_tensor().to(dtype=dtype, device=device)


def _has_sizes(data: object) -> bool:
    """Whether data holds sizes or tensors of one element, whose values `torch.as_tensor` would read."""
    if not isinstance(data, (list, tuple, *_SIZES)):
        return False
    return _holds_scalars(data) or any(isinstance(item, _SIZES) for item in pytree.tree_leaves(data))


def _tensor_of_sizes(
    data: object, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> object:
    """Replace `torch.as_tensor` of sizes by the operators that torch.export records for `torch.tensor`."""
    return _refs.tensor(data, dtype=dtype, device=device)


def _has_numbers(index: object) -> bool:
    """Whether an index contains a list whose length depends on a dynamic size."""
    parts = index if type(index) is tuple else (index,)
    # The protocol's own check is slow, and most calls index with these.
    return any(
        not isinstance(part, (int, slice, torch.Tensor, torch.SymInt, type(None), types.EllipsisType))
        and isinstance(part, DynamicNumbers)
        for part in parts
    )


def _index_by_numbers(func: Function, tensor: torch.Tensor, index: object, *value: object) -> object:
    """Index with a list whose length depends on a dynamic size, converted to a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    indices = tuple(part.make_tensor() if isinstance(part, DynamicNumbers) else part for part in parts)
    return func(tensor, indices, *value)


def _index_by_condition(
    func: Function, tensor: torch.Tensor, condition: torch.Tensor, *value: object
) -> object:
    """Index with a mask of rank 0, which PyTorch would read: it selects the whole tensor or nothing."""
    return func(tensor.unsqueeze(0), condition.unsqueeze(0), *value)


def _omit_generator(func: Function, *args: object, generator: None, **kwargs: object) -> torch.Tensor:
    """Leave `generator=None` out of a call, because the overload with a generator takes no symbolic sizes."""
    result: torch.Tensor = func(*args, **kwargs)
    return result


def _equal(input: torch.Tensor, other: torch.Tensor) -> object:
    """Compute `torch.equal` by operators; the result depends on values unless the sizes differ."""
    return input.shape == other.shape and (input == other).all().item()


def _narrow(input: torch.Tensor, dim: int, start: object, length: object) -> torch.Tensor:
    """`torch.narrow`, with a recorded `item` for a start or length that is a tensor."""
    first, count = (item.item() if isinstance(item, torch.Tensor) else item for item in (start, length))
    result: torch.Tensor = torch.ops.aten.narrow(input, dim, first, count)
    return result


def _where(func: Function, *args: object, **kwargs: object) -> object:
    """`torch.where`, also with a condition of bytes: those other than 0 are true, as for PyTorch's kernels.

    torch's kernel for fake tensors requires a condition of booleans.
    """
    position = _WHERE.index(func)
    condition = args[position] if len(args) > position else kwargs["condition"]
    if not isinstance(condition, torch.Tensor) or condition.dtype != torch.uint8:
        return func(*args, **kwargs)
    if len(args) > position:
        return func(*args[:position], condition.bool(), *args[position + 1 :], **kwargs)
    return func(*args, **{**kwargs, "condition": condition.bool()})


def _einsum(*args: object) -> torch.Tensor:
    """`torch.einsum`, from left to right for dynamic sizes, which opt_einsum, if installed, would fix."""
    is_dynamic = any(isinstance(item, FakeTensor) and item._has_symbolic_sizes_strides for item in args)
    with einsum_paths.flags(enabled=False) if is_dynamic else contextlib.nullcontext():
        return torch.functional.einsum(*args)


def _holds_scalars(data: object) -> bool:
    """Whether data is a list whose tensors have one element each, which `torch.tensor` would read."""
    if not isinstance(data, (list, tuple)):
        return False
    tensors = [item for item in pytree.tree_leaves(data) if isinstance(item, FakeTensor)]
    return bool(tensors) and all(item.numel() == 1 for item in tensors)
