"""Element types, sizes and strides of results, kept for the next call of an operator with like arguments.

A fake tensor runs a composite operator such as `linear` as all its parts. Most calls of a model repeat an
earlier one, in another layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .. import pytree

_Layout = tuple[torch.dtype, torch.Size, tuple[int, ...], torch.device]


class KnownResults:
    """The results of operators of ATen that return new tensors, by operator and arguments."""

    def __init__(self, mode: FakeTensorMode):
        self._mode = mode
        self._returns_new: dict[OpOverload, bool] = {}
        self._known: dict[Any, tuple[type | None, list[_Layout]] | None] = {}

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call an operator, or make new tensors like the results of an earlier call with like arguments."""
        key = self._key(func, args, kwargs)
        if key is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        if key in self._known:
            found = self._known[key]
            if found is not None:
                kind, layouts = found
                made = [self._made(layout) for layout in layouts]
                return made[0] if kind is None else kind(made)
        result = func(*args, **kwargs) if kwargs else func(*args)
        self._known[key] = _described(result, (args, kwargs))
        return result

    def _key(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """What determines the layout of the results; None if more than this does."""
        returns_new = self._returns_new.get(func)
        if returns_new is None:
            returns_new = self._returns_new[func] = _returns_new_tensors(func)
        if not returns_new or torch.is_grad_enabled() or torch._C._is_any_autocast_enabled():
            return None
        parts: list[Any] = [func, torch.get_default_dtype()]
        named = [item for pair in kwargs.items() for item in pair] if kwargs else ()
        return tuple(parts) if _describe((*args, *named), parts) else None

    def _made(self, layout: _Layout) -> torch.Tensor:
        dtype, shape, stride, device = layout
        with torch._C._DisableTorchDispatch():
            meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        return FakeTensor(self._mode, meta, device)


def _returns_new_tensors(func: OpOverload) -> bool:
    """Whether an operator writes to nothing, and its schema says that its results are new tensors."""
    schema = func._schema
    return (
        func.namespace == "aten"
        and not schema.is_mutable
        and all(returned.alias_info is None for returned in schema.returns)
    )


def _describe(items: Sequence[Any], parts: list[Any]) -> bool:
    """Append what matters of arguments to a key; whether that is possible."""
    for item in items:
        kind = type(item)
        if kind is FakeTensor:
            if item._has_symbolic_sizes_strides or item.layout != torch.strided:
                return False
            parts += (item.dtype, item.shape, item.stride(), item.storage_offset(), item.device)
        elif kind is tuple or kind is list or kind is torch.Size:
            parts.append((kind, len(item)))
            if not _describe(item, parts):
                return False
        elif item is None or kind in _PLAIN:
            parts += (kind, item)
        else:
            return False
    return True


_PLAIN = frozenset({bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format})


def _described(result: Any, arguments: Any) -> tuple[type | None, list[_Layout]] | None:
    """The layouts of results; None if one is not a new tensor that is all of its storage."""
    kind = None if isinstance(result, torch.Tensor) else type(result)
    tensors = [result] if kind is None else result
    if kind not in (None, tuple, list) or not all(type(item) is FakeTensor for item in tensors):
        return None
    storages = {
        item.untyped_storage()._cdata
        for item in pytree.tree_leaves(arguments)
        if isinstance(item, torch.Tensor)
    }
    layouts = []
    for item in tensors:
        if item._has_symbolic_sizes_strides or item.layout != torch.strided or item.requires_grad:
            return None
        storage = item.untyped_storage()
        is_all = item.storage_offset() == 0 and storage.nbytes() == item.numel() * item.element_size()
        if not is_all or storage._cdata in storages or item.is_conj() or item.is_neg():
            return None
        storages.add(storage._cdata)
        layouts.append((item.dtype, item.shape, item.stride(), item.device))
    return kind, layouts
