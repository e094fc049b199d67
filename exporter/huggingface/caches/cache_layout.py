"""The tensors of a decoder's cache: their names and dynamic axes, and a cache made of other tensors.

Nothing here depends on the type of a model. The cache that a trial run returns tells which tensors there are:
keys and values, the states of convolutions and recurrences, and the states of caches of models' own classes.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....registration import UsageError
from ..graphs import BATCH, EXAMPLE_PAST, EXAMPLE_WINDOW, PAST, WINDOW, Axes
from .cache_layers import CachePositions, bind_methods
from .cache_settings import DYNAMIC, CacheSettings

if TYPE_CHECKING:
    import torch

_PARTS = {
    "keys": "key",
    "values": "value",
    "conv_states": "conv_state",
    "recurrent_states": "recurrent_state",
    "indexer_keys": "indexer_key",
}
"""Names in files, which onnxruntime-genai has too, by the attributes of a layer of transformers' caches."""
_LENGTH_AXIS = {"keys": 2, "values": 2, "indexer_keys": 1}
"""The axis of the cached positions in the tensors that have one."""

Path = tuple[str | int, ...]


def has_positions(name: str) -> bool:
    """Whether a tensor has one entry for each cached token, by its name in a file."""
    return name.rpartition(".")[2] in {_PARTS[attribute] for attribute in _LENGTH_AXIS}


@dataclasses.dataclass(frozen=True)
class CachedTensor:
    """One tensor of a cache.

    Attributes:
        name: behind `past_key_values.` and `present.`, such as `0.key`.
        axes: the names of its dynamic axes.
        shape: of an example.
        dtype: its element type.
        has_positions: whether it has one entry per cached token.
    """

    name: str
    axes: Axes
    shape: tuple[int, ...]
    dtype: torch.dtype
    has_positions: bool = False

    @property
    def layer(self) -> str:
        """The number of its layer, or the name of a tensor that belongs to none."""
        return self.name.partition(".")[0]


class CacheLayout:
    """The tensors of a cache.

    Args:
        cache: what a trial run returned.
        other: the same for a batch of another size.
        settings: the form of the exported cache.

    Attributes:
        tensors: of the cache.
        settings: as passed.

    Raises:
        UsageError: the cache has no tensors, or layers of a class whose lengths are not known.
    """

    def __init__(self, cache: object, other: object, settings: CacheSettings | None = None):
        self._template = cache
        self.settings = settings or CacheSettings()
        for layer in getattr(getattr(cache, "self_attention_cache", cache), "layers", ()):
            _check_class(layer)
        self.tensors = [
            self._describe(path, tensor, other_tensor)
            for (path, tensor), (_, other_tensor) in zip(tensors_in(cache), tensors_in(other), strict=True)
        ]
        if not self.tensors:
            raise UsageError(
                "the model returns no cache of keys, values or states, without which text-generation would "
                "compute every token again: export the model with opsetta.export"
            )

    def build(self, tensors: Iterator[torch.Tensor], positions: CachePositions | None = None) -> object:
        """A cache of the next tensors, which the model may change without changing the tensors.

        Args:
            tensors: in the order of `tensors` of the layout.
            positions: of the tokens of a call, for a cache that does not tell them itself.
        """
        return _replace(self._template, tensors, self.settings, positions or CachePositions())

    def _describe(self, path: Path, tensor: torch.Tensor, other: torch.Tensor) -> CachedTensor:
        """Describe a tensor of a cache.

        Args:
            path: to the tensor.
            tensor: of a trial run.
            other: the tensor for a batch of another size.
        """
        axes = {
            axis: BATCH
            for axis, (size, other_size) in enumerate(zip(tensor.shape, other.shape, strict=True))
            if size != other_size
        }
        shape = list(tensor.shape)
        length_axis = _LENGTH_AXIS.get(str(path[-1]))
        if length_axis is not None and self.settings.is_static:
            shape[length_axis] = self.settings.length
        elif length_axis is not None and self.settings.implementation == DYNAMIC and self._slides(path):
            axes[length_axis], shape[length_axis] = WINDOW, EXAMPLE_WINDOW
        elif length_axis is not None:
            axes[length_axis], shape[length_axis] = PAST, EXAMPLE_PAST
        batch = self.settings.batch_size
        if batch is not None:
            shape = [batch if axes.get(axis) == BATCH else size for axis, size in enumerate(shape)]
        return CachedTensor(_name(path), axes, tuple(shape), tensor.dtype, length_axis is not None)

    def _slides(self, path: Path) -> bool:
        """Whether a tensor belongs to a layer with a sliding window."""
        node = self._template
        for key in path[:-1]:
            node = dict(_members(node))[key]
        return getattr(node, "is_sliding", None) is True


def _check_class(layer: object) -> None:
    """Refuse layers of models' own classes, whose counters are known to the model's code only.

    Raises:
        UsageError: the message names the class.
    """
    from transformers import cache_utils

    if getattr(cache_utils, type(layer).__name__, None) is not type(layer):
        raise UsageError(
            f"the cache of the model has layers of class {type(layer).__name__}, which text-generation does "
            "not support: export the model with opsetta.export"
        )


def _members(node: object) -> list[tuple[str | int, object]]:
    """The parts of a container, or of an object of transformers that holds tensors."""
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, (list, tuple)):
        return list(enumerate(node))
    # Configurations hold no tensors; the window is a constant.
    if type(node).__module__.startswith("transformers.") and "config" not in type(node).__module__:
        return [(name, item) for name, item in vars(node).items() if name != "_sliding_window_tensor"]
    return []


def tensors_in(node: object, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """The tensors of a cache, layer by layer."""
    import torch

    if isinstance(node, torch.Tensor):
        yield path, node
    else:
        for key, member in _members(node):
            yield from tensors_in(member, (*path, key))


def _replace(
    node: object, tensors: Iterator[torch.Tensor], settings: CacheSettings, positions: CachePositions
) -> object:
    """A copy of a cache with other tensors, in the order of `tensors_in`."""
    import torch

    if isinstance(node, torch.Tensor):
        # Models write to their states.
        return next(tensors).clone()
    members = {key: _replace(member, tensors, settings, positions) for key, member in _members(node)}
    if isinstance(node, dict):
        return members
    if isinstance(node, (list, tuple)):
        return type(node)(members.values())
    if not members:
        return node
    copied = copy.copy(node)
    vars(copied).update({str(name): member for name, member in members.items()})
    bind_methods(copied, settings, positions)
    return copied


def _name(path: Path) -> str:
    """The name of a tensor: the number of its layer and its part, such as `0.key`."""
    # Some decoders have a cache for cross-attention beside their own, as `self_attention_cache.layers`.
    keys = list(path[path.index("layers") + 1 :] if "layers" in path else path)
    numbers = [index for index, key in enumerate(keys) if isinstance(key, int)]
    layer = [str(keys.pop(numbers[0]))] if numbers else []
    # The first of several states of a layer has the same name as the only one.
    if len(keys) == 2 and keys[0] in _PARTS and keys[1] == 0:
        keys.pop()
    return ".".join([*layer, *(_PARTS.get(str(key), str(key)) for key in keys or ("state",))])
