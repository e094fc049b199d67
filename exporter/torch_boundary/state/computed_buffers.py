"""What the initialization code of transformers does to a model after it has loaded a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import torch

from ..process.process_lock import random_state_preserved
from .attached_state import Holder
from .written_state import written_tensors


def computed_buffers(model: torch.nn.Module, lacking: Sequence[Holder]) -> dict[int, torch.Tensor]:
    """Compute the buffers that a model of transformers initializes itself.

    `PreTrainedModel._init_weights` sets them when `from_pretrained` has loaded a checkpoint. It runs twice
    here, on different contents: a buffer counts as computed if both runs give the same elements.

    Args:
        lacking: the buffers that the checkpoint lacks.

    Returns:
        The new tensors, by the `id` of the buffer. Buffers that are not computed are left out.
    """
    library = sys.modules.get("transformers")
    if library is None or not lacking:
        return {}
    owners = {
        path: module for path, module in model.named_modules() if isinstance(module, library.PreTrainedModel)
    }
    by_module: dict[int, list[Holder]] = {}
    for holder in lacking:
        by_module.setdefault(id(holder.module), []).append(holder)
    contents: dict[int, torch.Tensor] = {}
    for group in by_module.values():
        owner = _owner(group[0].name, owners)
        if owner is None:
            continue
        first, second = (_initialize_buffers(owner, group, fill) for fill in (0, 1))
        for holder, buffer, second_buffer in zip(group, first, second, strict=True):
            # A buffer that is not initialized keeps the different contents.
            if torch.equal(buffer, second_buffer):
                contents[id(holder.tensor)] = buffer
    return contents


def changes_stored_weights(model: torch.nn.Module, names: Iterable[str]) -> bool:
    """Whether transformers writes to weights of a model after it has read them from a checkpoint.

    `_init_weights` skips tensors that are marked as read, but a view of one has no mark: Funnel and
    Chinese-CLIP set the embedding of the padding token to zero.

    Args:
        model: on the meta device. If it is a model of transformers, its initialization is run again.
        names: of the weights that the checkpoint has.
    """
    initialize = getattr(model, "initialize_weights", None)
    if initialize is None:
        return False
    state = model.state_dict(keep_vars=True)
    stored = [state[name] for name in names]
    for tensor in stored:
        vars(tensor)["_is_hf_initialized"] = True
    # A module with the mark would be skipped as a whole.
    for module in model.modules():
        vars(module).pop("_is_hf_initialized", None)
    return bool(written_tensors(stored, initialize))


def _owner(name: str, owners: dict[str, torch.nn.Module]) -> torch.nn.Module | None:
    """Return the innermost model of transformers that contains the buffer of a qualified name, or None."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        if path in owners:
            return owners[path]
    return None


def _initialize_buffers(owner: torch.nn.Module, group: Sequence[Holder], fill: int) -> list[torch.Tensor]:
    """Initialize copies of a module's buffers, filled with a number before; the module is not changed."""
    before = [holder.tensor for holder in group]
    buffers = [torch.full(tensor.shape, fill, dtype=tensor.dtype) for tensor in before]
    try:
        for holder, tensor in zip(group, buffers, strict=True):
            holder.registered[holder.key] = tensor
        with random_state_preserved(), torch.no_grad():
            owner._init_weights(group[0].module)  # type: ignore[operator]
    finally:
        for holder, tensor in zip(group, before, strict=True):
            holder.registered[holder.key] = tensor
    return buffers
