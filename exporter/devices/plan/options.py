"""Checks and converts the options of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ....registration import UsageError
from ..memory_amounts import ALIGNMENT, EXTRA_WORK, LOWEST, memory_amount


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """The options of `PlannableModel.plan`, where they are documented.

    Raises:
        UsageError: an option has an unknown value or a wrong type.
    """

    mode: str = "inference"
    budget: int | None = None
    dimensions: Mapping[str, int] | None = None
    alignment: int = ALIGNMENT
    in_place: bool = True
    reorder: bool = True
    states: Mapping[str, str] | None = None
    split: bool | None = None
    memory_limit: int | str | None = None
    extra_work: float = EXTRA_WORK
    memories: Mapping[str, int | str | None] | None = None
    tile: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("inference", "train"):
            raise UsageError(f"mode must be 'inference' or 'train', not {self.mode!r}")
        # Only a power of two has no bit in common with the next lower number.
        alignment = self.alignment
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise UsageError(f"alignment must be a power of two, not {alignment!r}")
        if isinstance(self.extra_work, bool) or not isinstance(self.extra_work, (int, float)):
            raise UsageError(f"extra_work must be a number, not {self.extra_work!r}")
        # Written with `not`, to refuse NaN too.
        if not self.extra_work >= 0:
            raise UsageError(f"extra_work must not be negative, but is {self.extra_work}")
        if self.memory_limit is not None and self.memory_limit != LOWEST:
            memory_amount(self.memory_limit)
        if self.tile and self.split is False:
            raise UsageError("tile=True splits nodes: it cannot be combined with split=False")
        unlimited = [name for name, size in self.memory_sizes.items() if size is None]
        if unlimited not in ([], list(self.memory_sizes)[-1:]):
            raise UsageError(f"memory '{unlimited[0]}' needs a size: only the last one may have none")

    @property
    def limit(self) -> int | None:
        """The most bytes that the values may take; 0 for as few as possible, None for no limit."""
        if self.memory_limit is None or self.memory_limit == LOWEST:
            return None if self.memory_limit is None else 0
        return memory_amount(self.memory_limit)

    @property
    def memory_sizes(self) -> dict[str, int | None]:
        """The bytes of each memory by name; None for an unlimited one."""
        return {
            name: None if size is None else memory_amount(size)
            for name, size in (self.memories or {}).items()
        }

    @property
    def tile_work(self) -> float | None:
        """The operations that tiles may add, as a share of the model's operations; None for no tiles."""
        return self.extra_work if self.tile else None

    @property
    def splits(self) -> bool:
        """Whether nodes are split into parts."""
        return self.mode == "inference" or self.tile if self.split is None else self.split
