"""`CacheSettings`: how the files of a decoder keep the keys and values of earlier tokens."""

from __future__ import annotations

import dataclasses

from ....registration import UsageError

DYNAMIC, DYNAMIC_FULL, STATIC = "dynamic", "dynamic_full", "static"
CACHE_IMPLEMENTATIONS = (DYNAMIC_FULL, DYNAMIC, STATIC)
"""The names of transformers, of which `dynamic_full` is a cache that was made without a configuration."""


@dataclasses.dataclass(frozen=True)
class CacheSettings:
    """The form of a decoder's cache.

    Attributes:
        implementation: `dynamic_full` keeps all positions; `dynamic` keeps those of the window in layers with
            a sliding window; `static` has a fixed number of positions, and the caller passes where to write.
        max_cache_len: the number of positions of a static cache.
        batch_size: that of the inputs of a static cache; dynamic by default.
        sequence_length: the number of tokens in a call with a static cache; dynamic by default.
        shares_buffer: whether GroupQueryAttention of onnxruntime writes to the cache.
        limits_reads: whether layers with a sliding window read those positions only that their cache would
            keep, because the masks of the model have no window.
    """

    implementation: str = DYNAMIC_FULL
    max_cache_len: int | None = None
    batch_size: int | None = None
    sequence_length: int | None = None
    shares_buffer: bool = False
    limits_reads: bool = False

    @property
    def is_static(self) -> bool:
        """Whether the cache has a fixed number of positions."""
        return self.implementation == STATIC

    @property
    def length(self) -> int:
        """The number of positions of a static cache."""
        assert self.max_cache_len is not None
        return self.max_cache_len

    @property
    def fixed_axes(self) -> frozenset[str]:
        """The names of the dynamic axes that have a fixed size."""
        sizes = {"batch_size": self.batch_size, "sequence_length": self.sequence_length}
        return frozenset(name for name, size in sizes.items() if size is not None)

    def check(self) -> None:
        """Refuse values that do not fit each other.

        Raises:
            UsageError: the message names the argument.
        """
        if self.implementation not in CACHE_IMPLEMENTATIONS:
            names = ", ".join(CACHE_IMPLEMENTATIONS)
            raise UsageError(f"cache_implementation must be one of {names}, not {self.implementation!r}")
        sizes = {name: getattr(self, name) for name in ("max_cache_len", "batch_size", "sequence_length")}
        for name, size in sizes.items():
            if size is not None and not self.is_static:
                raise UsageError(f"{name} is for static caches: pass cache_implementation='static', too")
            if size is not None and size < 1:
                raise UsageError(f"{name} must be 1 or more, not {size}")
        if self.is_static and self.max_cache_len is None:
            raise UsageError("a static cache needs max_cache_len, its number of positions")
        if self.is_static and self.length <= (self.sequence_length or 1):
            raise UsageError(
                f"max_cache_len={self.length} has no room for a prompt and a new token: pass a larger one"
            )
