"""Warnings of `export` that say nothing new of models of transformers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

_EXPECTED = (
    # The lengths of past, input and mask belong together.
    "the export is valid for",
    # The caller chose the element type.
    "the weights have other element types",
    # Frequencies of rotary embeddings are computed anew in each call.
    r"the new values of tensors that the model writes to are dropped: buffer '[\w.]*inv_freq'[^,]*$",
)


@contextlib.contextmanager
def expected_warnings() -> Iterator[None]:
    """Leave out the expected warnings within the context."""
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message)
        yield
