"""The names in pickles of tensors, which `torch.save` writes."""

from __future__ import annotations

_MODULES = ("torch._utils.", "torch.storage.")


def is_of_tensors(name: str) -> bool:
    """Whether a function or class that a pickle names is one of those that make tensors.

    The names are those of files, whatever release of torch reads them.
    """
    return name.startswith(_MODULES)
