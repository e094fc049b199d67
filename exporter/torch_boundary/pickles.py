"""The names in pickles of tensors, which `torch.save` writes."""

from __future__ import annotations

_MODULES = ("torch._utils.", "torch.storage.")


def is_of_tensors(name: str) -> bool:
    """Whether a function or class that a pickle names is one of those that make tensors.

    The names are fixed by the file format, so they do not depend on the release of torch that reads the file.
    """
    return name.startswith(_MODULES)
