"""The operator that replaces a Python loop over a dynamic size in a recorded graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ....registration import GraphError
from ..operators.overloads import HigherOrderOperator

COND: Any = torch.ops.higher_order.cond
RECORDED_SIDE = "recorded_side"
"""A key in the metadata of a `cond` in a loop's body: the outcome to run if the condition is not a bool."""


class _RecordedSides(torch.fx.Interpreter):
    """Runs a loop's body; where a condition's value is unknown, runs the branch that was recorded."""

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node; for a `cond` with a recorded outcome, run the branch of that outcome."""
        if n.target is not COND or RECORDED_SIDE not in n.meta:
            return super().run_node(n)
        (condition, first, second, operands), _ = self.fetch_args_kwargs_from_env(n)
        answer = condition if isinstance(condition, bool) else n.meta[RECORDED_SIDE]
        return type(self)(first if answer else second).run(*operands)


class _Shapes(_RecordedSides):
    """Runs a loop's body once to learn the shapes of its results; lists that it reads may be empty."""

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node; `select` from an empty tensor gives a tensor with arbitrary values."""
        if n.target is torch.ops.aten.select.int:
            (tensor, axis, *_), _ = self.fetch_args_kwargs_from_env(n)
            if tensor.shape[axis] == 0:
                axis %= tensor.dim()
                return tensor.new_empty([*tensor.shape[:axis], *tensor.shape[axis + 1 :]])
        return super().run_node(n)


class _RangeLoop(HigherOrderOperator):
    """A loop over a range, with the arguments `(body_fn, init, index, additional_inputs, count, step)`.

    `body_fn` takes the carried values, the index and the additional inputs. It returns the carried values of
    the next iteration, and values to stack. The results are the last carried values, and the stacked ones.
    `index` is a list of one number, the first index, because the other operands of `body_fn` are lists too.
    """

    def __init__(self) -> None:
        initialize: Callable[..., None] = super().__init__
        initialize("range_loop")

    def __call__(
        self,
        body_fn: torch.fx.GraphModule,
        init: Sequence[Any],
        index: Sequence[int],
        additional_inputs: Sequence[Any],
        count: int,
        step: int,
    ) -> list[torch.Tensor]:
        """Run the loop.

        Raises:
            GraphError: the number of iterations is negative.
        """
        if count < 0:
            raise GraphError("the first iteration of a loop would not run")
        carried, rows = list(init), []
        run: Callable[..., Any] = body_fn
        if any(node.target is COND for node in body_fn.graph.nodes):
            run = _RecordedSides(body_fn).run
        for iteration in range(count):
            results = run(*carried, index[0] + step * iteration, *additional_inputs)
            carried, row = list(results[: len(init)]), results[len(init) :]
            rows.append(row)
        # A value may be both carried and stacked, so the results are counted, not their nodes.
        returned = body_fn.graph.output_node().args[0]
        assert isinstance(returned, (list, tuple))
        has_rows = len(returned) > len(init)
        if not rows and has_rows:
            # The iteration before the first one, which is recorded apart, gives the shapes.
            previous = _Shapes(body_fn).run(*carried, index[0] - step, *additional_inputs)
            return [*carried, *(result.unsqueeze(0)[:0] for result in previous[len(init) :])]
        return [*carried, *(torch.stack(list(column)) for column in zip(*rows, strict=True))]


RANGE_LOOP = _RangeLoop()
