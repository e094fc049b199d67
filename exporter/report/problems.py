"""The problems that prevent an export: operator or stage, positions, reason, and remedy."""

from __future__ import annotations

from ...registration import (
    CaptureError,
    MutationError,
    OpsettaError,
    TargetError,
    UnsupportedOperator,
    UnsupportedOperatorsError,
)
from .records import Problem

_MAXIMUM_PATHS = 50


def problems_of(error: OpsettaError, stage: str) -> tuple[Problem, ...]:
    """The problems that an error of an export names.

    Args:
        stage: the stage that failed.
    """
    if isinstance(error, UnsupportedOperatorsError):
        return tuple(map(_operator, error.operators))
    if isinstance(error, TargetError) and error.problems:
        remedy = f"Export without the target '{error.target}', or change the model."
        return tuple(
            Problem(
                problem.operator or "the model", (problem.module or problem.node,), problem.reason, remedy
            )
            for problem in error.problems
        )
    if isinstance(error, MutationError):
        remedy = 'Export with mutations="outputs" or "state", which return the new values, or with "drop".'
    elif isinstance(error, CaptureError):
        remedy = "See docs/capture.md: the other ways of capture, and specialize=True."
    else:
        remedy = "The reason says what to change."
    return (Problem(stage, (), str(error), remedy),)


def _operator(operator: UnsupportedOperator) -> Problem:
    paths = list(dict.fromkeys(path or "<root>" for path in operator.modules))
    if len(paths) > _MAXIMUM_PATHS:
        paths[_MAXIMUM_PATHS:] = [f"and {len(paths) - _MAXIMUM_PATHS} more"]
    return Problem(operator.name, tuple(paths), operator.reason, _remedy(operator))


def _remedy(operator: UnsupportedOperator) -> str:
    if operator.first_opset is not None:
        return f"Export at opset {operator.first_opset} or higher."
    if not operator.registered:
        # A function for the plain name serves all overloads.
        name = operator.name.rsplit(".", 1)[0]
        return f'Register a symbolic function: @opsetta.onnx_symbolic("{name}"). CONTRIBUTING.md shows how.'
    return "Write this part of the model with other operators; the reason says what is not supported."
