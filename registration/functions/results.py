"""Checks the values returned by a symbolic function against its operator's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx_ir import Value

from ..errors import ResultError, UnsupportedError
from .dispatch import SymbolicFunction


def results_of(symbolic: SymbolicFunction, result: object, outputs: int) -> list[Any]:
    """Return one result per output, in order; None for outputs that the function does not return.

    Args:
        outputs: the number of the operator's outputs.

    Raises:
        ResultError: the function returned more, or something that is not a value.
    """
    if outputs == 1 and type(result) is Value:
        return [result]
    results = _flatten_lists(as_list(result), outputs)
    if outputs == 0 and result is None:
        return []
    if len(results) > outputs:
        raise ResultError(_message(symbolic, result, outputs))
    _check(symbolic, result, results, outputs)
    # A function may leave out last results that no model uses, such as the mask of native_dropout.
    return results + [None] * (outputs - len(results))


def _flatten_lists(results: list[object], outputs: int) -> list[Any]:
    """The results, with the values of lists among them, if there is then one for each output.

    An operator that writes to the tensors of a list has an output for each of them.
    """
    if not any(isinstance(item, (list, tuple)) for item in results) or len(results) < 2:
        return results
    flat = [value for item in results for value in (item if isinstance(item, (list, tuple)) else [item])]
    return flat if len(flat) == outputs and all(isinstance(item, Value) for item in flat) else results


def composed_results(symbolic: SymbolicFunction, result: object, outputs: int) -> list[Any]:
    """The first `outputs` results of a composition, which returns every output of its operator.

    Raises:
        ResultError: the function returned nothing, or something that is not a value.
        UnsupportedError: it returns fewer values.
    """
    results = as_list(result)[:outputs]
    _check(symbolic, result, results, outputs)
    if all(item is None for item in results):
        raise ResultError(_message(symbolic, result, outputs))
    if len(results) < outputs or any(item is None for item in results):
        raise UnsupportedError(_message(symbolic, result, outputs))
    return results


def absent_result(symbolic: SymbolicFunction, result: object, outputs: int, name: str | None) -> str:
    """Return the error for a missing result that the model uses."""
    used = f", and the model uses '{name}'" if outputs > 1 and name else ""
    return _message(symbolic, result, outputs) + used


def as_list(result: object) -> list[Any]:
    """Return the results of a symbolic function or of `g.op` as a list."""
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _check(symbolic: SymbolicFunction, result: object, results: Sequence[object], outputs: int) -> None:
    for item in results:
        if item is not None and not _is_value(item):
            raise ResultError(_message(symbolic, item if len(results) > 1 else result, outputs))


def _message(symbolic: SymbolicFunction, returned: object, outputs: int) -> str:
    function = symbolic.function
    named_object = function if hasattr(function, "__qualname__") else type(function)
    where = f"{named_object.__module__}.{named_object.__qualname__}"
    count = "no output" if outputs == 0 else "one output" if outputs == 1 else f"{outputs} outputs"
    description = _describe(returned)
    return (
        f"the symbolic function of {symbolic.name} ({where}) returned {description}, but the operator has "
        f"{count}"
    )


def _describe(returned: object) -> str:
    if returned is None:
        return "None"
    if isinstance(returned, Value):
        return "a graph value"
    if isinstance(returned, (list, tuple)):
        if returned and all(isinstance(item, Value) for item in returned):
            return f"{len(returned)} values" if len(returned) > 1 else "a list of one value"
        type_names = ", ".join(
            "value" if isinstance(item, Value) else type(item).__name__ for item in returned[:4]
        )
        ellipsis = ", …" if len(returned) > 4 else ""
        return f"a {type(returned).__name__} of {len(returned)} ({type_names}{ellipsis})"
    text = repr(returned)
    return f"{type(returned).__name__} {text if len(text) <= 60 else text[:57] + '…'}"


def _is_value(item: object) -> bool:
    """Whether the item is a graph value, or can be a constant: a number, an array, a nested list of these."""
    if isinstance(item, Value):
        return True
    if isinstance(item, Sequence) and not isinstance(item, (str, bytes)):
        return all(map(_is_value, item))
    try:
        return np.asarray(item).dtype.kind not in "OUSMm"
    except (TypeError, ValueError, RuntimeError):
        return False
