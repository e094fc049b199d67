"""The dynamic axes of the inputs of a model of transformers: its batch and its sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from transformers.exporters.exporter_dynamo import get_auto_dynamic_shapes
from transformers.exporters.utils import get_leaf_tensors

from ....registration import UsageError
from ..graphs import BATCH, PAST, SEQUENCE, SOURCE, TOTAL

if TYPE_CHECKING:
    import torch

_CACHES = ("past_key_values", "cache_params")
_ENCODED = "encoder_outputs"


def dynamic_axes(inputs: Mapping[str, object]) -> dict[str, object]:
    """The dynamic axes in the structure of the inputs, with a name for each.

    Dynamic are the first axis of tensors with the batch's size, the second one of tokens, masks, positions,
    embeddings and results of an encoder, and the third one of cached keys and values. An axis of size 1, such
    as that of the token of a step, is fixed.

    Raises:
        UsageError: the inputs have no batch, or a container whose tensors cannot be told apart.
    """
    leaves = get_leaf_tensors(inputs)
    batch = next((leaf.shape[0] for leaf in leaves.values() if leaf.ndim > 1), None)
    if batch is None:
        raise UsageError("the inputs have no batch: pass dynamic_shapes")
    has_encoder = any(path.startswith(_ENCODED) for path in leaves)
    has_past = any(path.startswith(_CACHES) and leaf.numel() for path, leaf in leaves.items())
    axes = iter([_axes_of(path, leaf, batch, has_encoder, has_past) for path, leaf in leaves.items()])
    # transformers knows the structure of its caches; in it each tensor has a dict of all of its axes.
    structure = _replace_leaves(get_auto_dynamic_shapes(dict(inputs)), axes)
    if not isinstance(structure, dict) or next(axes, None) is not None:
        raise UsageError("the inputs have containers that are not those of transformers: pass dynamic_shapes")
    return structure


def _axes_of(path: str, leaf: torch.Tensor, batch: int, has_encoder: bool, has_past: bool) -> dict[int, str]:
    """The dynamic axes of a tensor.

    Args:
        path: its name, with the path in its container.
        leaf: the tensor.
        batch: the size of the batch.
        has_encoder: whether the inputs have the results of an encoder.
        has_past: whether they have cached keys and values.
    """
    name = path.partition(".")[0]
    if name == "cache_position":
        return {0: SEQUENCE} if leaf.shape[0] > 1 else {}
    axes = {0: BATCH} if leaf.ndim and leaf.shape[0] == batch else {}
    if name.startswith(_CACHES):
        # Keys and values are [batch, heads, length, channels].
        length = SOURCE if "cross_attention" in path else PAST
        return axes | ({2: length} if leaf.ndim == 4 else {})
    is_encoded = name == _ENCODED
    if (leaf.ndim == 2 or is_encoded or name.endswith("embeds")) and leaf.shape[1] > 1:
        if is_encoded or (has_encoder and name == "attention_mask"):
            axes[1] = SOURCE
        else:
            # A mask has a column for each position of the past as well.
            axes[1] = TOTAL if has_past and name.endswith("mask") else SEQUENCE
    return axes


def _replace_leaves(structure: object, axes: Iterator[dict[int, str]]) -> object:
    """Replace the axes of each tensor by the next ones.

    Raises:
        UsageError: there are more tensors than axes.
    """
    if isinstance(structure, dict) and all(isinstance(axis, int) for axis in structure):
        # A number without axes has an empty dict, too.
        replaced = next(axes, None)
        if replaced is None:
            raise UsageError("the inputs have tensors without a name: pass dynamic_shapes")
        return replaced
    if isinstance(structure, dict):
        return {name: _replace_leaves(part, axes) for name, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        return type(structure)(_replace_leaves(part, axes) for part in structure)
    return structure
