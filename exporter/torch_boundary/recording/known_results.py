"""Element types, sizes and strides of results, kept for the next call of an operator with like arguments.

A fake tensor runs a composite operator such as `linear` as all its parts. Most calls of a model repeat an
earlier one, in another layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..containers import pytree
from ..dispatch import DispatchKey, DispatchKeySet
from ..fake_tensors import LAYOUT, FakeTensor, FakeTensorMode, forget_layout, layout_of
from ..operators.overloads import OpOverload
from ..replacements.data_attribute import READ as data_of
from ..symbolic_numbers import form, holds_always, identity, known
from .fake_weights import FakeCopies
from .layouts.known_layouts import Layout, created_layout, known_layout
from .layouts.layout import assumed

_Results = tuple[type | None, Sequence[Layout | int]]
"""What an operator returns: the class of the container, None for a single tensor; and for each tensor its
layout, or the position of the argument that it is."""

_recorded: dict[Any, _Results | None] = {}
"""The results of operators on tensors with fixed sizes; None for calls that must run. They depend on the key
alone, so they hold in each recording of the process, as torch's own cache of fake tensors does."""
_plain: dict[Any, _Results | None] = {}
"""The same outside of recordings. There, dropout in evaluation returns its argument, and not a copy."""
_MOST = 5_000
"""The number of results in it; when there are more, all are dropped."""


class KnownResults:
    """The results of operators of ATen that write to nothing but the tensor that they return.

    Args:
        mode: the mode of the fake tensors.
        is_recording: whether the calls come from a recording.
    """

    def __init__(self, mode: FakeTensorMode, *, is_recording: bool = True):
        self._fake = FakeCopies(mode)
        self._of_fixed_sizes = _recorded if is_recording else _plain
        self._of_symbolic_sizes: dict[Any, _Results | None] = {}
        # Whether a view is in its storage, by its layout and the size of the storage.
        self._rooms: dict[Any, bool] = {}
        # A meta tensor of each layout with symbolic sizes, and the number of elements of its storage.
        self._examples: dict[Layout, tuple[torch.Tensor, Any]] = {}

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call an operator, or make tensors like the results of an earlier call with like arguments."""
        name, writes = _rules(func)
        described = None if writes is None else _key(name, args, kwargs)
        if described is None:
            result = func(*args, **kwargs) if kwargs else func(*args)
            if writes is not False:
                _forget_layouts(args, kwargs)
            return result
        key, is_symbolic = described
        kept = self._of_symbolic_sizes if is_symbolic else self._of_fixed_sizes
        found = kept.get(key)
        if found is not None and (not is_symbolic or self._has_room(found, args)):
            return self._made(found, args, writes)
        layout = None if key in kept else known_layout(func, args, kwargs)
        if layout is not None and (not is_symbolic or self._has_room((None, [layout]), args)):
            kept[key] = found = None, [layout]
            return self._made(found, args, writes)
        before = _state(args[0]) if writes else None
        result = func(*args, **kwargs) if kwargs else func(*args)
        is_kept = not writes or (result is args[0] and _state(result) == before)
        if not is_kept:
            _forget_layouts(args, kwargs)
        if key not in kept:
            _keep(kept, key, _described(result, args, kwargs, is_symbolic) if is_kept else None)
        return result

    def created(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Two tensors in one memory, like the result of an earlier call of a function that creates a tensor.

        Such a function returns a copy of a tensor to which something else refers, so a recording keeps the
        other one. None if there is no earlier call with like arguments.
        """
        name, writes = _rules(func)
        described = _key(name, args, kwargs) if writes is False else None
        if described is None:
            return None
        key, is_symbolic = described
        kept = self._of_symbolic_sizes if is_symbolic else self._of_fixed_sizes
        found = kept.get(key)
        if found is None:
            own = created_layout(func, args, kwargs) if is_symbolic else None
            if own is None:
                return None
            kept[key] = found = None, [own]
        [layout] = found[1]
        if isinstance(layout, int) or layout.offset is not None:
            return None
        with torch._C._ExcludeDispatchKeyGuard(_PYTHON):
            memory = self._memory(layout, args)
            return self._fake(memory, layout.device), self._fake(memory, layout.device)

    def keep_created(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None, result: Any
    ) -> None:
        """Keep the result of a function that creates a tensor, for `created`."""
        name, writes = _rules(func)
        described = _key(name, args, kwargs) if writes is False else None
        if described is None or described[1] or type(result) is not FakeTensor:
            return
        if described[0] not in self._of_fixed_sizes:
            _keep(self._of_fixed_sizes, described[0], _described(result, args, kwargs, is_symbolic=False))

    def _has_room(self, results: _Results, args: tuple[Any, ...]) -> bool:
        """Whether views are in the memory of the first argument for all sizes.

        Where that is not known, as for an input that is a view of a larger tensor, making one would add a
        guard, which is true for all sizes if the view has all elements of the argument.
        """
        for layout in results[1]:
            if isinstance(layout, int) or layout.offset is None:
                continue
            room = args[0].untyped_storage().nbytes()
            key = layout, room if isinstance(room, int) else form(room)
            if key not in self._rooms:
                fits = _end(layout) <= room
                self._rooms[key] = assumed(fits) if layout.is_whole else known(fits) is True
            if not self._rooms[key]:
                return False
        return True

    def _made(self, results: _Results, args: tuple[Any, ...], writes: bool | None) -> Any:
        kind, items = results
        if writes and not args[0].is_inference():
            torch.autograd.graph.increment_version(args[0])
        with torch._C._ExcludeDispatchKeyGuard(_PYTHON):
            if kind is None:
                return self._result(items[0], args)
            return kind([self._result(item, args) for item in items])

    def _result(self, item: Layout | int, args: tuple[Any, ...]) -> torch.Tensor:
        """An argument, or a new fake tensor."""
        return args[item] if isinstance(item, int) else self._tensor(item, args)

    def _tensor(self, layout: Layout, args: tuple[Any, ...]) -> torch.Tensor:
        """A fake tensor with a layout."""
        memory = self._memory(layout, args)
        made = self._fake(memory, layout.device)
        attributes = vars(made)
        attributes[_MEMORY] = memory
        attributes[LAYOUT] = layout
        return made

    def _memory(self, layout: Layout, args: tuple[Any, ...]) -> torch.Tensor:
        """A meta tensor with a layout."""
        if layout.offset is None:
            return self._new(layout)
        storage = args[0].untyped_storage()
        memory = vars(args[0]).get(_MEMORY)
        if (
            memory is None
            or memory.dtype != layout.dtype
            or memory.untyped_storage()._cdata != storage._cdata
        ):
            made = torch.empty((), dtype=layout.dtype, device="meta")
            return made.set_(storage, layout.offset, layout.shape, layout.stride)
        # It finds out nothing about the sizes, which takes `set_` most of its time.
        result: torch.Tensor = memory.as_strided(layout.shape, layout.stride, layout.offset)
        return result

    def _new(self, layout: Layout) -> torch.Tensor:
        """A meta tensor with a storage of its own."""
        if not layout.is_symbolic:
            return torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=_META)
        example = self._examples.get(layout)
        if example is None:
            made = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=_META)
            # A copy is kept, because tensors made from `made` itself would share its version counter.
            count = made.untyped_storage().nbytes() // layout.dtype.itemsize
            self._examples[layout] = data_of(made), count
            return made
        # To copy symbolic sizes takes a small part of the time that it takes to set them.
        made = data_of(example[0])
        torch._functionalize_unsafe_set(made, torch.empty((example[1],), dtype=layout.dtype, device=_META))
        result: torch.Tensor = made
        return result


_META = torch.device("meta")
_MEMORY = "opsetta_memory"
"""The name of an attribute of fake tensors. It holds a meta tensor that has the same storage."""
_PYTHON = (
    DispatchKeySet(DispatchKey.Python).add(DispatchKey.PythonTLSSnapshot).add(DispatchKey.PythonDispatcher)
)
"""The dispatch keys by which torch calls Python code; without them, making a tensor takes half the time."""


def _end(layout: Layout) -> Any:
    """The end of a view in its storage, in bytes."""
    last = layout.offset
    for size, stride in zip(layout.shape, layout.stride, strict=True):
        last = last + (size - 1) * stride
    return (last + 1) * layout.dtype.itemsize


def _keep(kept: dict[Any, _Results | None], key: Any, results: _Results | None) -> None:
    if len(kept) >= _MOST:
        kept.clear()
    kept[key] = results


def _key(name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, bool] | None:
    """What determines layouts of results, and whether symbolic sizes are part of it; None if more does."""
    if torch.is_grad_enabled() or torch._C._is_any_autocast_enabled():
        return None
    parts: list[Any] = [name, torch.get_default_dtype()]
    named = [item for pair in kwargs.items() for item in pair] if kwargs else ()
    is_symbolic = _describe((*args, *named), parts)
    if is_symbolic is None:
        return None
    settings = _SETTINGS.get(name)
    return tuple(parts) if settings is None else (*parts, settings()), is_symbolic


@functools.cache
def _rules(func: OpOverload) -> tuple[str, bool | None]:
    """The name of an operator, and whether it writes its result to its first argument, which it returns.

    None for an operator that does anything else than to compute its results, or to write them there.
    """
    schema, name = func._schema, func.name()
    if func.namespace != "aten":
        return name, None
    if not schema.is_mutable:
        return name, False
    written = [i for i, each in enumerate(schema.arguments) if each.alias_info and each.alias_info.is_write]
    is_in_place = written == [0] and schema.name.endswith("_") and schema.name not in _OTHER_STORAGE
    return name, True if is_in_place else None


_OTHER_STORAGE = frozenset({"aten::set_", "aten::resize_", "aten::resize_as_"})
"""Operators that give their first argument other memory."""


def _attention_kernels() -> tuple[bool, ...]:
    """Which kernels of attention may run; the strides of the result depend on it."""
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


_SETTINGS: dict[str, Callable[[], Any]] = {
    "aten::scaled_dot_product_attention": _attention_kernels,
    "aten::conv2d": lambda: torch.backends.mkldnn.enabled,
}
"""Settings of torch on which layouts depend, by operator."""


def _state(tensor: torch.Tensor) -> Any:
    """The layout and the memory of a tensor."""
    return tensor.untyped_storage()._cdata, _read(tensor)


def _forget_layouts(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """Note that an operator may have given its arguments other layouts."""
    for item in pytree.tree_leaves((args, kwargs)):
        if type(item) is FakeTensor:
            forget_layout(item)


def _describe(items: Sequence[Any], parts: list[Any]) -> bool | None:
    """Append what determines the layout of results to a key; None if more than the key does.

    Returns:
        Whether a symbolic size is part of it.
    """
    is_symbolic: bool | None = False
    for item in items:
        kind = type(item)
        if kind is FakeTensor:
            found = _of_tensor(item)
            if found is None:
                return None
            parts.append(found)
            is_symbolic = is_symbolic or found[0]
        elif kind is torch.SymInt:
            parts += (kind, identity(item))
            is_symbolic = True
        elif kind is tuple or kind is list or kind is torch.Size:
            parts.append((kind, len(item)))
            inner = _describe(item, parts)
            if inner is None:
                return None
            is_symbolic = is_symbolic or inner
        elif item is None or kind in _PLAIN:
            parts += (kind, item)
        else:
            return None
    return is_symbolic


def _of_tensor(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What `_read` finds, which is the same for all tensors that a recording gave one layout."""
    layout = layout_of(tensor)
    if layout is None:
        return _read(tensor)
    if layout.described is None:
        layout.described = _read(tensor)
    found: tuple[Any, ...] | None = layout.described
    return found


def _read(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Whether a tensor has symbolic sizes, and what else determines the layouts of results.

    None if more does than element type, device, sizes and strides.
    """
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    numbers: Sequence[Any] = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    is_symbolic = False
    if tensor._has_symbolic_sizes_strides:
        is_symbolic = any(type(each) is torch.SymInt for each in numbers)
        numbers = [identity(each) if type(each) is torch.SymInt else each for each in numbers]
    return is_symbolic, tensor.dtype, tensor.device, *numbers


_PLAIN = frozenset({bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format})


def _depends_on_data(tensor: torch.Tensor) -> bool:
    """Whether sizes are new with each call of an operator."""
    return any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in tensor.shape)


def _described(
    result: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, is_symbolic: bool
) -> _Results | None:
    """What an operator returned; None if a result is neither an argument, nor a view, nor all of its storage.

    Args:
        is_symbolic: whether an argument has a symbolic size, so that results may have one.
    """
    kind = None if isinstance(result, torch.Tensor) else type(result)
    tensors = [result] if kind is None else result
    if kind not in (None, tuple, list) or not all(type(item) is FakeTensor for item in tensors):
        return None
    given = [item for item in pytree.tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    storages = {item.untyped_storage()._cdata for item in given}
    viewed = args[0].untyped_storage()._cdata if args and type(args[0]) is FakeTensor else None
    items: list[Layout | int] = []
    for item in tensors:
        positions = [i for i, each in enumerate(args) if each is item]
        if len(positions) == 1:
            items += positions
            continue
        if item.layout != torch.strided or item.requires_grad or item.is_conj() or item.is_neg():
            return None
        storage = item.untyped_storage()
        offset = item.storage_offset() if storage._cdata == viewed else None
        if (
            any(item is each for each in given)
            or (item._has_symbolic_sizes_strides and not is_symbolic)
            or _depends_on_data(item)
            or (offset is None and not _is_new(item, storages))
        ):
            return None
        storages.add(storage._cdata)
        items.append(Layout(item.dtype, item.shape, item.stride(), item.device, offset))
    return kind, items


def _is_new(tensor: torch.Tensor, storages: set[int]) -> bool:
    """Whether a tensor is all of a storage that is none of the given ones."""
    storage = tensor.untyped_storage()
    is_all = storage.nbytes() == tensor.numel() * tensor.element_size()
    begins_it = tensor.storage_offset() == 0
    return storage._cdata not in storages and holds_always(is_all) and holds_always(begins_it)
