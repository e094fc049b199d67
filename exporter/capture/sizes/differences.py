"""Says how a run of the model differs from a run of its captured graph at the same sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...torch_boundary.symbolic_numbers import GuardOnDataDependentSymNode
from .conditions.branches import OF_MODEL, Failure
from .trials.operator_trace import WITHOUT_ONES, Step, Trace

OTHER_PATH = "the model computes something else at other sizes"
OTHER_RANK = "a result has another rank at other sizes"
_COPY = "aten.copy_.default"
_SCATTERS = re.compile(r"aten\.(select|slice|diagonal)_scatter\.default")


def difference(model: Trace, graph: Trace) -> Failure | None:
    """The reason why two traces differ, and the line of the model; None if they agree."""
    if isinstance(model.error, GuardOnDataDependentSymNode):
        return "the model decides on a value of a tensor at other sizes", model.error_line
    if model.error is not None:
        text = " ".join(str(model.error).split())[:120] or type(model.error).__name__
        return f"{OF_MODEL}: {text}", model.error_line
    if graph.error is not None or not _are_same_steps(model.steps, graph.steps):
        pairs = zip(model.steps, graph.steps, strict=False)
        first_difference = next((i for i, (a, b) in enumerate(pairs) if a != b), len(graph.steps))
        return OTHER_PATH, line_at(model, first_difference)
    return None if graph.other_rank is None else (OTHER_RANK, line_at(model, graph.other_rank - 1))


def line_at(model: Trace, step: int) -> str:
    """The line of the model that calls an operator of its trace; "" without one."""
    return model.lines[max(0, min(step, len(model.lines) - 1))] if model.lines else ""


def _are_same_steps(model: Sequence[Step], graph: Sequence[Step]) -> bool:
    """Whether a model runs the operators of its graph, or a graph whose loops return what they write."""
    if model == graph:
        return True
    has_scatters = any(_SCATTERS.fullmatch(str(step[0])) for step in graph)
    return has_scatters and _with_equal_writes(model) == _with_equal_writes(graph)


def _with_equal_writes(steps: Sequence[Step]) -> list[Step]:
    """The steps with one form for an assignment to a view.

    The model copies a value to a view, as in `y[i + 1, 1:] = value`: it calls `select`, `slice` and `copy_`.
    The body of a recorded loop may not write to what it carries: there, `slice_scatter` and `select_scatter`
    follow the same views, and return the tensor of the next step. In both, views say where a value goes.
    """
    origins: dict[object, object] = {}
    scattered: set[object] = set()
    kept: list[Step] = []
    for number, (name, *step_arguments, results) in enumerate(steps):
        result = ("result", number, 0)
        renamed = [_rename_values(origins, argument) for argument in step_arguments]
        if _SCATTERS.fullmatch(str(name)):
            origins[result] = renamed[0]
            scattered.add(result)
            # An outer view takes what an inner one returns.
            if step_arguments[1] not in scattered:
                kept.append((_COPY, renamed[1]))
        elif name == _COPY:
            # The graph at last assigns what a loop returns to the tensor that the model has written to.
            if renamed[0] != renamed[1]:
                kept.append((_COPY, renamed[1]))
        else:
            # A step may have several results, and a list of tensors as an argument.
            for index in range(len(results) if isinstance(results, tuple) else 0):
                origins["result", number, index] = ("result", len(kept), index)
            kept.append((name, *renamed, results))
    return kept


def _rename_values(origins: Mapping[object, object], argument: object) -> object:
    """An argument with the origin of its tensor replaced, which a view that drops axes of size 1 contains."""
    if isinstance(argument, tuple) and argument[:1] == (WITHOUT_ONES,):
        return (WITHOUT_ONES, _rename_values(origins, argument[1]), *argument[2:])
    return origins.get(argument, argument)
