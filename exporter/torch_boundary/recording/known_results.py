"""Caches the element types, sizes and strides of results for later calls with equal argument layouts.

On fake tensors a composite operator such as `linear` runs all its parts, which is slow. Most calls of a
model repeat an earlier one, in another layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..containers import pytree
from ..dispatch import DispatchKey, DispatchKeySet
from ..fake_tensors import FakeTensor, FakeTensorMode
from ..operators.overloads import MEMORY_REPLACING, Args, Kwargs, OpOverload
from ..replacements.functions.data_attribute import READ as data_of
from ..symbolic_numbers import Size, canonical_form, decide_condition, holds_always, identity
from .fake_weights import FakeCopies
from .layouts.known_layouts import TensorLayout, created_layout, keeps_layout, known_layout
from .layouts.layout import LAYOUT, forget_layout, holds_with_guard, layout_of

Key = tuple[object, ...]
_Results = tuple[type | None, Sequence[TensorLayout | int]]
"""The results of an operator: the class of their container (None for a single tensor), and for each tensor
its layout, or the position of the argument that is returned."""

_inside_recordings: dict[Key, _Results | None] = {}
"""The results of operators on tensors with fixed sizes; None for calls that must run. They depend on the key
alone, so all recordings of the process share them, as they share torch's own cache of fake tensors."""
_outside_recordings: dict[Key, _Results | None] = {}
"""The same outside of recordings; apart, because there dropout in evaluation mode returns its argument."""
_MOST_RESULTS = 5_000
"""The largest number of cached results; a full cache is emptied."""


class KnownResults:
    """Runs operators, and caches the results of ATen's operators that write at most to their result.

    Args:
        mode: the mode of the fake tensors.
        is_recording: whether the calls come from a recording.
    """

    def __init__(self, mode: FakeTensorMode, *, is_recording: bool = True):
        self._fake = FakeCopies(mode)
        self._of_fixed_sizes = _inside_recordings if is_recording else _outside_recordings
        # Symbols belong to one recording, so these results are not kept for the next one.
        self._of_symbolic_sizes: dict[Key, _Results | None] = {}
        # Whether a view fits into its storage, by its layout and the size of the storage.
        self._rooms: dict[Key, bool] = {}
        # A meta tensor of each layout with symbolic sizes, and the number of elements of its storage.
        self._examples: dict[TensorLayout, tuple[torch.Tensor, Size]] = {}

    def run(self, func: OpOverload, args: Args, kwargs: Kwargs | None) -> Any:
        """Return the results of an operator: new fake tensors if the cache knows them, else by calling it."""
        name, writes = _rules(func)
        call_key = None if writes is None else _key(name, args, kwargs)
        if call_key is None:
            result = func(*args, **kwargs) if kwargs else func(*args)
            if writes is not False:
                _forget_layouts(args, kwargs)
            return result
        key, is_symbolic = call_key
        cache = self._of_symbolic_sizes if is_symbolic else self._of_fixed_sizes
        results = cache.get(key)
        if results is not None and (not is_symbolic or self._has_room(results, args)):
            return self._make_results(results, args, writes)
        layout: TensorLayout | int | None = None
        if key not in cache and writes:
            layout = 0 if keeps_layout(func, args, kwargs) else None
        elif key not in cache:
            layout = known_layout(func, args, kwargs)
        if layout is not None and (not is_symbolic or self._has_room((None, [layout]), args)):
            cache[key] = results = None, [layout]
            return self._make_results(results, args, writes)
        # In-place operators that change the layout or memory of their argument must not be cached.
        before = _state(args[0]) if writes else None
        result = func(*args, **kwargs) if kwargs else func(*args)
        is_cacheable = not writes or (result is args[0] and _state(result) == before)
        if not is_cacheable:
            _forget_layouts(args, kwargs)
        if key not in cache:
            _keep(cache, key, _describe_results(result, args, kwargs, is_symbolic) if is_cacheable else None)
        return result

    def make_created(
        self, func: OpOverload, args: Args, kwargs: Kwargs | None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Make two tensors that share memory, with the layout of an earlier result of a creating function.

        A recording returns one to the model and keeps the other, as torch does for functions such as `zeros`.
        None if neither an earlier call nor a rule tells the layout.
        """
        name, writes = _rules(func)
        call_key = _key(name, args, kwargs) if writes is False else None
        if call_key is None:
            return None
        key, is_symbolic = call_key
        cache = self._of_symbolic_sizes if is_symbolic else self._of_fixed_sizes
        results = cache.get(key)
        if results is None:
            predicted = created_layout(func, args, kwargs) if is_symbolic else None
            if predicted is None:
                return None
            cache[key] = results = None, [predicted]
        [layout] = results[1]
        if isinstance(layout, int) or layout.offset is not None:
            return None
        with torch._C._ExcludeDispatchKeyGuard(_PYTHON):
            memory = self._memory(layout, args)
            return self._fake(memory, layout.device), self._fake(memory, layout.device)

    def keep_created(self, func: OpOverload, args: Args, kwargs: Kwargs | None, result: object) -> None:
        """Keep the result of a function that creates a tensor, for `make_created`."""
        name, writes = _rules(func)
        call_key = _key(name, args, kwargs) if writes is False else None
        if call_key is None or call_key[1] or type(result) is not FakeTensor:
            return
        if call_key[0] not in self._of_fixed_sizes:
            _keep(
                self._of_fixed_sizes, call_key[0], _describe_results(result, args, kwargs, is_symbolic=False)
            )

    def _has_room(self, results: _Results, args: Args) -> bool:
        """Whether the cached views fit into the storage of the first argument for all sizes.

        Otherwise, as for an input that is a view of a larger tensor, making one would add a guard.
        """
        for layout in results[1]:
            if isinstance(layout, int) or layout.offset is None:
                continue
            storage_bytes = args[0].untyped_storage().nbytes()
            key = layout, storage_bytes if isinstance(storage_bytes, int) else canonical_form(storage_bytes)
            if key not in self._rooms:
                fits = _end(layout) <= storage_bytes
                self._rooms[key] = (
                    holds_with_guard(fits) if layout.is_whole else decide_condition(fits) is True
                )
            if not self._rooms[key]:
                return False
        return True

    def _make_results(self, results: _Results, args: Args, writes: bool | None) -> Any:
        container_class, items = results
        if writes and not args[0].is_inference():
            # The kernel, which is skipped, would have counted the write.
            torch.autograd.graph.increment_version(args[0])
        with torch._C._ExcludeDispatchKeyGuard(_PYTHON):
            if container_class is None:
                return self._result(items[0], args)
            return container_class([self._result(item, args) for item in items])

    def _result(self, item: TensorLayout | int, args: Args) -> torch.Tensor:
        """Return the argument at a position, or a new fake tensor with a layout."""
        return args[item] if isinstance(item, int) else self._tensor(item, args)

    def _tensor(self, layout: TensorLayout, args: Args) -> torch.Tensor:
        """Make a fake tensor with a layout, and attach the layout to it."""
        memory = self._memory(layout, args)
        fake = self._fake(memory, layout.device)
        attributes = vars(fake)
        attributes[_MEMORY] = memory
        attributes[LAYOUT] = layout
        return fake

    def _memory(self, layout: TensorLayout, args: Args) -> torch.Tensor:
        """Make a meta tensor with a layout: a view of the first argument if it has an offset."""
        if layout.offset is None:
            return self._new(layout)
        storage = args[0].untyped_storage()
        memory = vars(args[0]).get(_MEMORY)
        if (
            memory is None
            or memory.dtype != layout.dtype
            or memory.untyped_storage()._cdata != storage._cdata
        ):
            view = torch.empty((), dtype=layout.dtype, device="meta")
            return view.set_(storage, layout.offset, layout.shape, layout.stride)
        # Unlike `set_`, `as_strided` does not compare the symbolic sizes, which would take most of the time.
        result: torch.Tensor = memory.as_strided(layout.shape, layout.stride, layout.offset)
        return result

    def _new(self, layout: TensorLayout) -> torch.Tensor:
        """Make a meta tensor with a new storage."""
        if not layout.is_symbolic:
            return torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=_META)
        example = self._examples.get(layout)
        if example is None:
            example = self._examples[layout] = _make_example(layout)
        # Copying symbolic sizes is much faster than setting them.
        meta_tensor = data_of(example[0])
        torch._functionalize_unsafe_set(
            meta_tensor, torch.empty((example[1],), dtype=layout.dtype, device=_META)
        )
        return meta_tensor


def _make_example(layout: TensorLayout) -> tuple[torch.Tensor, Size]:
    """A meta tensor of a layout with symbolic sizes, and the number of elements of its storage."""
    if layout.is_contiguous and layout.shape:
        # From sizes and strides torch would compute a sum for the size of the storage, which takes long.
        count = layout.shape[0] * layout.stride[0]
        storage = torch.empty((count,), dtype=layout.dtype, device=_META)
        return data_of(storage.as_strided(layout.shape, layout.stride)), count
    meta_tensor = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=_META)
    return data_of(meta_tensor), meta_tensor.untyped_storage().nbytes() // layout.dtype.itemsize


_META = torch.device("meta")
_MEMORY = "opsetta_memory"
"""The attribute of fake tensors that holds a meta tensor with the same storage."""
_PYTHON = (
    DispatchKeySet(DispatchKey.Python).add(DispatchKey.PythonTLSSnapshot).add(DispatchKey.PythonDispatcher)
)
"""The dispatch keys by which torch calls Python code; without them, making a tensor takes half the time."""


def _end(layout: TensorLayout) -> Size:
    """Return the offset in bytes at which a view ends in its storage."""
    last: Size = 0 if layout.offset is None else layout.offset
    for size, stride in zip(layout.shape, layout.stride, strict=True):
        last = last + (size - 1) * stride
    return (last + 1) * layout.dtype.itemsize


def _keep(cache: dict[Key, _Results | None], key: Key, results: _Results | None) -> None:
    if len(cache) >= _MOST_RESULTS:
        cache.clear()
    cache[key] = results


def _key(name: str, args: Args, kwargs: Kwargs | None) -> tuple[Key, bool] | None:
    """Return a cache key for a call, and whether it has symbolic sizes; None if no key can describe it."""
    # With gradients enabled a result may require them; autocast changes element types. Keys contain neither.
    if torch.is_grad_enabled() or torch._C._is_any_autocast_enabled():
        return None
    parts: list[object] = [name, torch.get_default_dtype()]
    named = [item for pair in kwargs.items() for item in pair] if kwargs else ()
    is_symbolic = _describe((*args, *named), parts)
    if is_symbolic is None:
        return None
    settings = _SETTINGS.get(name)
    return tuple(parts) if settings is None else (*parts, settings()), is_symbolic


@functools.cache
def _rules(func: OpOverload) -> tuple[str, bool | None]:
    """Return an operator's name, and whether it works in place: writes to its first argument and returns it.

    The second item is None for an operator that may do anything besides computing its results.
    """
    schema, name = func._schema, func.name()
    # An operator of another library may do anything, whatever its schema says.
    if func.namespace != "aten":
        return name, None
    if not schema.is_mutable:
        return name, False
    written = [
        i for i, formal in enumerate(schema.arguments) if formal.alias_info and formal.alias_info.is_write
    ]
    is_in_place = written == [0] and schema.name.endswith("_") and schema.name not in MEMORY_REPLACING
    return name, True if is_in_place else None


def _attention_kernels() -> tuple[bool, ...]:
    """Return which attention kernels are enabled; the strides of the result depend on them."""
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


_SETTINGS: dict[str, Callable[[], object]] = {
    "aten::scaled_dot_product_attention": _attention_kernels,
    "aten::conv2d": lambda: torch.backends.mkldnn.enabled,
}
"""By operator, a function that reads the settings of torch on which the result's layout depends."""


def _state(tensor: torch.Tensor) -> Key:
    """Return a value that changes if an operator replaces a tensor's memory or changes its layout."""
    return tensor.untyped_storage()._cdata, _read_layout(tensor)


def _forget_layouts(args: Args, kwargs: Kwargs | None) -> None:
    """Forget the layouts of arguments that an operator may have changed."""
    for item in pytree.tree_leaves((args, kwargs)):
        if type(item) is FakeTensor:
            forget_layout(item)


def _describe(items: Sequence[Any], parts: list[object]) -> bool | None:
    """Append to a key what the layouts of results depend on.

    Returns:
        Whether an item has a symbolic size; None if a key cannot describe an item.
    """
    is_symbolic: bool | None = False
    for item in items:
        item_class = type(item)
        if item_class is FakeTensor:
            layout_key = _layout_key(item)
            if layout_key is None:
                return None
            parts.append(layout_key)
            is_symbolic = is_symbolic or bool(layout_key[0])
        elif item_class is torch.SymInt:
            parts += (item_class, identity(item))
            is_symbolic = True
        elif item_class is tuple or item_class is list or item_class is torch.Size:
            parts.append((item_class, len(item)))
            inner = _describe(item, parts)
            if inner is None:
                return None
            is_symbolic = is_symbolic or inner
        elif item is None or item_class in _PLAIN:
            parts += (item_class, item)
        else:
            return None
    return is_symbolic


def _layout_key(tensor: torch.Tensor) -> Key | None:
    """The result of `_read_layout`, cached on the layout that a recording gave the tensor."""
    layout = layout_of(tensor)
    if layout is None:
        return _read_layout(tensor)
    if layout.cache_key is None:
        layout.cache_key = _read_layout(tensor)
    return layout.cache_key


def _read_layout(tensor: torch.Tensor) -> Key | None:
    """Return a tensor's part of a key: whether it has symbolic sizes, then element type, device and layout.

    None for a tensor with other properties that matter, such as a sparse or conjugated one.
    """
    # A conjugated or negated tensor has the sizes and strides of a plain one.
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    numbers: Sequence[object] = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    is_symbolic = False
    if tensor._has_symbolic_sizes_strides:
        is_symbolic = any(type(number) is torch.SymInt for number in numbers)
        numbers = [identity(number) if type(number) is torch.SymInt else number for number in numbers]
    return is_symbolic, tensor.dtype, tensor.device, *numbers


_PLAIN = frozenset({bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format})


def _describe_results(result: Any, args: Args, kwargs: Kwargs | None, is_symbolic: bool) -> _Results | None:
    """Describe an operator's results; None if one is not an argument, a view of the first, or a new tensor.

    Args:
        is_symbolic: whether an argument has a symbolic size; if not, a result with one is not described.
    """
    container_class = None if isinstance(result, torch.Tensor) else type(result)
    tensors = [result] if container_class is None else result
    if container_class not in (None, tuple, list) or not all(type(item) is FakeTensor for item in tensors):
        return None
    arguments = [item for item in pytree.tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    storages = {item.untyped_storage()._cdata for item in arguments}
    viewed = args[0].untyped_storage()._cdata if args and type(args[0]) is FakeTensor else None
    items: list[TensorLayout | int] = []
    for item in tensors:
        positions = [i for i, argument in enumerate(args) if argument is item]
        if len(positions) == 1:
            items += positions
            continue
        if item.layout != torch.strided or item.requires_grad or item.is_conj() or item.is_neg():
            return None
        storage = item.untyped_storage()
        offset = item.storage_offset() if storage._cdata == viewed else None
        if (
            any(item is argument for argument in arguments)
            or (item._has_symbolic_sizes_strides and not is_symbolic)
            # Sizes that depend on data are new symbols in each call, so the result cannot be reused.
            or any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in item.shape)
            or (offset is None and not _is_new(item, storages))
        ):
            return None
        storages.add(storage._cdata)
        items.append(TensorLayout(item.dtype, item.shape, item.stride(), item.device, offset))
    return container_class, items


def _is_new(tensor: torch.Tensor, storages: set[int]) -> bool:
    """Whether a tensor fills its storage, and no argument or earlier result shares that storage."""
    storage = tensor.untyped_storage()
    is_all = storage.nbytes() == tensor.numel() * tensor.element_size()
    begins_it = tensor.storage_offset() == 0
    return storage._cdata not in storages and holds_always(is_all) and holds_always(begins_it)
