"""The operator that replaces a Python loop over a dynamic size in a recorded graph."""

from __future__ import annotations

from typing import Any

from ..operators.overloads import HigherOrderOperator


class _RangeLoop(HigherOrderOperator):
    """A loop over a range, with the arguments `(body_fn, init, index, additional_inputs, count, step)`.

    `body_fn` takes the carried values, the index and the additional inputs. It returns the carried values of
    the next iteration, and values to stack. The results are the last carried values, and the stacked ones.
    `index` has the first index as its only member, as the other operands of `body_fn` are lists too.
    """

    def __init__(self) -> None:
        super().__init__("range_loop")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to run.

        Raises:
            NotImplementedError: always, because recorded graphs are lowered, not run.
        """
        raise NotImplementedError("a recorded loop over a range is not run by torch")


RANGE_LOOP = _RangeLoop()
