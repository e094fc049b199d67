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
from .known_layouts import Layout, known_layout
from .symbolic_numbers import holds_always, identity


class KnownResults:
    """The results of operators of ATen that write to nothing, by operator and arguments."""

    def __init__(self, mode: FakeTensorMode):
        self._mode = mode
        self._writes_nothing: dict[OpOverload, bool] = {}
        self._known: dict[Any, tuple[type | None, list[Layout]] | None] = {}

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call an operator, or make tensors like the results of an earlier call with like arguments."""
        key = self._key(func, args, kwargs)
        if key is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        if key in self._known:
            found = self._known[key]
            if found is not None:
                kind, layouts = found
                made = [self._made(layout, args) for layout in layouts]
                return made[0] if kind is None else kind(made)
        layout = None if kwargs else known_layout(func, args)
        if layout is not None:
            self._known[key] = None, [layout]
            return self._made(layout, args)
        result = func(*args, **kwargs) if kwargs else func(*args)
        self._known[key] = _described(result, (args, kwargs))
        return result

    def _key(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """What determines the layout of the results; None if more than this does."""
        writes_nothing = self._writes_nothing.get(func)
        if writes_nothing is None:
            schema = func._schema
            writes_nothing = func.namespace == "aten" and not schema.is_mutable
            self._writes_nothing[func] = writes_nothing
        if not writes_nothing or torch.is_grad_enabled() or torch._C._is_any_autocast_enabled():
            return None
        parts: list[Any] = [func, torch.get_default_dtype()]
        named = [item for pair in kwargs.items() for item in pair] if kwargs else ()
        return tuple(parts) if _describe((*args, *named), parts) else None

    def _made(self, layout: Layout, args: tuple[Any, ...]) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            if layout.offset is None:
                made = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device="meta")
            else:
                made = torch.empty((), dtype=layout.dtype, device="meta")
                made.set_(args[0].untyped_storage(), layout.offset, layout.shape, layout.stride)
        return FakeTensor(self._mode, made, layout.device)


def _describe(items: Sequence[Any], parts: list[Any]) -> bool:
    """Append what matters of arguments to a key; whether that is possible."""
    for item in items:
        kind = type(item)
        if kind is FakeTensor:
            if item.layout != torch.strided or item.is_conj() or item.is_neg():
                return False
            parts += (item.dtype, item.device)
            if not item._has_symbolic_sizes_strides:
                parts += (item.shape, item.stride(), item.storage_offset())
            elif not _describe((item.shape, item.stride(), item.storage_offset()), parts):
                return False
        elif kind is torch.SymInt:
            parts += (kind, identity(item))
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


def _depends_on_data(tensor: torch.Tensor) -> bool:
    """Whether sizes are new with each call of an operator."""
    return any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in tensor.shape)


def _described(result: Any, arguments: Any) -> tuple[type | None, list[Layout]] | None:
    """The layouts of results; None if one is an argument itself, or neither a view nor all of its storage."""
    kind = None if isinstance(result, torch.Tensor) else type(result)
    tensors = [result] if kind is None else result
    if kind not in (None, tuple, list) or not all(type(item) is FakeTensor for item in tensors):
        return None
    given = [item for item in pytree.tree_leaves(arguments) if isinstance(item, torch.Tensor)]
    storages = {item.untyped_storage()._cdata for item in given}
    first = arguments[0][0] if arguments[0] else None
    viewed = first.untyped_storage()._cdata if type(first) is FakeTensor else None
    layouts = []
    for item in tensors:
        if item.layout != torch.strided or item.requires_grad or item.is_conj() or item.is_neg():
            return None
        storage = item.untyped_storage()
        offset = item.storage_offset() if storage._cdata == viewed else None
        if (
            any(item is each for each in given)
            or _depends_on_data(item)
            or (offset is None and not _is_new(item, storages))
        ):
            return None
        storages.add(storage._cdata)
        layouts.append(Layout(item.dtype, item.shape, item.stride(), item.device, offset))
    return kind, layouts


def _is_new(tensor: torch.Tensor, storages: set[int]) -> bool:
    """Whether a tensor is all of a storage that is none of the given ones."""
    storage = tensor.untyped_storage()
    is_all = storage.nbytes() == tensor.numel() * tensor.element_size()
    begins_it = tensor.storage_offset() == 0
    return storage._cdata not in storages and holds_always(is_all) and holds_always(begins_it)
