"""Refuses models that do not support every size in the range of a `Dim`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....registration import CaptureError
from ...captured_graph.dimensions import Dimension, SizeRestriction, evaluate, in_words

_SIZES_TRIED = 1 << 12
_LARGE = (1 << 20) + 1


def check_promises(promised: Mapping[str, Dimension], restrictions: Iterable[SizeRestriction]) -> None:
    """Refuse restrictions of one dimension that exclude sizes in the range of its `Dim`.

    Sizes 0 and 1 do not count, as in torch.export, where a `Dim` begins at 2.

    Args:
        promised: the range of each `Dim` by name.
        restrictions: the sizes for which the captured graph is valid.
    """
    for name, dimension in promised.items():
        broken = [
            restriction
            for restriction in restrictions
            if any(evaluate(restriction.condition, {dimension.name: n}) is False for n in _sizes(dimension))
        ]
        if broken:
            bound = _valid_range(dimension, broken)
            remedies = [
                *([f"declare the range that it supports: {bound}"] if bound else []),
                f"or name the dimension by a string, '{name}': the program then refuses sizes for which it "
                "is not valid",
                "or change the model to support every size: use x.shape[0] or -1 instead of a number",
            ]
            remedies[0] = remedies[0].removeprefix("or ")
            raise CaptureError(
                "\n  - ".join(
                    [
                        f"the model does not support every size in the range of the Dim '{name}'. The export "
                        f"is valid for {' and '.join(in_words(broken))}",
                        *remedies,
                    ]
                )
            )


def _sizes(dimension: Dimension) -> Iterable[int]:
    start = max(2, dimension.minimum)
    end = start + _SIZES_TRIED if dimension.maximum is None else dimension.maximum + 1
    yield from range(start, min(end, start + _SIZES_TRIED))
    yield _LARGE if dimension.maximum is None else dimension.maximum


def _valid_range(dimension: Dimension, broken: Iterable[SizeRestriction]) -> str:
    """The `Dim` without the excluded sizes, as code; empty if it has no such form."""
    lower, upper = dimension.minimum, dimension.maximum
    for restriction in broken:
        _, _, bound = restriction.condition.partition(f"{dimension.name} >= ")
        _, _, other_bound = restriction.condition.partition(f"{dimension.name} <= ")
        if bound.isdigit():
            lower = max(lower, int(bound))
        elif other_bound.isdigit():
            upper = int(other_bound) if upper is None else min(upper, int(other_bound))
        else:
            return ""
    limits = ([f"min={lower}"] if lower else []) + ([] if upper is None else [f"max={upper}"])
    return f'Dim("{dimension.name}", {", ".join(limits)})'
