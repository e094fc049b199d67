"""Compares the outputs of a model in onnxruntime with the expected results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ....registration import VerificationError
from ..model_inputs import is_torch_tensor

TOLERANCES: dict[str, tuple[float, float]] = {
    "float16": (1e-2, 1e-2),
    "bfloat16": (5e-2, 5e-2),
    "float32": (1e-3, 1e-4),
    "float64": (1e-5, 1e-7),
    "complex64": (1e-3, 1e-4),
    "complex128": (1e-5, 1e-7),
}
"""Relative and absolute tolerance by element type; everything else must be equal."""


@dataclasses.dataclass(frozen=True)
class OutputReport:
    """The errors of one output relative to the expected result.

    Attributes:
        name: the output's name.
        max_absolute_error: largest |onnxruntime - expected|, infinite if only one side is finite.
        max_relative_error: largest |onnxruntime - expected| / |expected| over elements that are not zero.
        index: position of the worst element.
        within_tolerance: whether every element satisfies |a - b| <= atol + rtol * |b|.
        share: largest |a - b| / (atol + rtol * |b|), infinite where no difference is tolerated.
    """

    name: str
    max_absolute_error: float
    max_relative_error: float
    index: tuple[int, ...]
    within_tolerance: bool
    problem: str = ""
    share: float = 0.0


@dataclasses.dataclass(frozen=True)
class VerificationReport:
    """The result of `Program.verify`, an entry for each output."""

    outputs: tuple[OutputReport, ...]

    @property
    def max_absolute_error(self) -> float:
        """The largest absolute error of all outputs; 0 without outputs."""
        return max((report.max_absolute_error for report in self.outputs), default=0.0)


def compare(
    name: str,
    actual: object,
    expected: object,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    expected_by: str = "eager",
    actual_by: str = "onnxruntime",
) -> OutputReport:
    """Compare one output with the expected result: element type, shape, then every element.

    Args:
        actual, expected: numpy arrays or torch tensors; lists of them for a sequence, of which the worst item
            is reported.
        expected_by, actual_by: the sources of both, for the message.
    """
    if isinstance(actual, list) and isinstance(expected, (list, tuple)):
        if len(actual) != len(expected):
            problem = f"{actual_by} gave {len(actual)} items, {expected_by} {len(expected)}"
            return OutputReport(name, float("inf"), float("inf"), (), False, problem, float("inf"))
        items = [
            compare(name, a, b, rtol, atol, expected_by=expected_by, actual_by=actual_by)
            for a, b in zip(actual, expected, strict=True)
        ]
        if not items:
            return OutputReport(name, 0.0, 0.0, (), True)
        position = max(range(len(items)), key=lambda i: (not items[i].within_tolerance, items[i].share))
        return dataclasses.replace(items[position], index=(position, *items[position].index))
    actual, expected = as_array(actual), as_array(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        problem = (
            f"{actual_by} gave {actual.dtype} {list(actual.shape)}, "
            f"{expected_by} {expected.dtype} {list(expected.shape)}"
        )
        return OutputReport(name, float("inf"), float("inf"), (), False, problem, float("inf"))
    if actual.size == 0:
        return OutputReport(name, 0.0, 0.0, (), True)
    if actual.dtype.kind in "OSU":
        different = np.argwhere(actual != expected)
        error = float("inf") if len(different) else 0.0
        index = tuple(map(int, different[0])) if len(different) else ()
        return OutputReport(name, error, error, index, not len(different), share=error)
    default_rtol, default_atol = TOLERANCES.get(expected.dtype.name, (0.0, 0.0))
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    # float16 errors would overflow, and unsigned differences would wrap around.
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    is_equal = (actual == expected) | (np.isnan(a) & np.isnan(b))
    # Infinities and NaN among the results are compared, not warned of.
    with np.errstate(all="ignore"):
        errors = np.where(is_equal, 0.0, np.abs(a - b))
        errors = np.where(np.isnan(errors), np.inf, errors)
        if actual.dtype.kind in "iu":
            # Different 64-bit integers may be equal in float64.
            errors = np.where(is_equal, 0.0, np.maximum(errors, 1.0))
        tolerated = np.nan_to_num(atol + rtol * np.abs(b), nan=0.0, posinf=0.0)
        excess = np.where(is_equal, -1.0, errors - tolerated)
        share = float(np.where(is_equal, 0.0, errors / tolerated).max())
        # The relative error is not defined at 0.
        nonzero = (b != 0) & np.isfinite(b)
        relative = float((errors[nonzero] / np.abs(b[nonzero])).max()) if nonzero.any() else 0.0
    outside = bool((excess > 0).any())
    # Show an element that is outside tolerance, not merely the one with the largest error.
    worst = np.unravel_index(int(excess.argmax() if outside else errors.argmax()), a.shape)
    index = tuple(map(int, worst))
    return OutputReport(name, float(errors.max()), relative, index, not outside, share=share)


def as_array(value: object) -> np.ndarray:
    """Convert an array, torch tensor or number to a numpy array; bfloat16 uses ml_dtypes."""
    if not is_torch_tensor(value):
        return np.asarray(value)
    from ..sessions.torch_values import to_numpy

    return to_numpy(value)


_Arrays: TypeAlias = np.ndarray | list[np.ndarray]
"""A result; a list for a sequence."""


def _as_arrays(actual: Sequence[object], expected: Sequence[object]) -> tuple[list[_Arrays], list[_Arrays]]:
    """Both sides as arrays; an expected number gets the element type of its output."""

    def arrays_of(value: object) -> _Arrays:
        return list(map(as_array, value)) if isinstance(value, (list, tuple)) else as_array(value)

    actual_arrays = [arrays_of(value) for value in actual]
    expected_arrays = [
        np.asarray(b, a.dtype)
        if isinstance(b, (bool, int, float, complex)) and isinstance(a, np.ndarray)
        else arrays_of(b)
        for a, b in zip(actual_arrays, expected, strict=True)
    ]
    return actual_arrays, expected_arrays


def compare_outputs(
    names: Sequence[str], actual: Sequence[object], expected: Sequence[object]
) -> list[OutputReport]:
    """The errors of all outputs, as `check` finds them, with the tolerances of the element types."""
    return [compare(name, a, b) for name, a, b in zip(names, *_as_arrays(actual, expected), strict=True)]


def check(
    names: Sequence[str],
    actual: Sequence[object],
    expected: Sequence[object],
    rtol: float | None,
    atol: float | None,
    *,
    expected_by: str = "eager",
) -> VerificationReport:
    """Compare all outputs, numpy arrays or torch tensors; a number gets the element type of its output.

    Args:
        expected_by: the source of `expected`, for the message.

    Raises:
        VerificationError: an output is outside tolerance; the message has the worst one.
    """
    actual_arrays, expected_arrays = _as_arrays(actual, expected)
    reports = [
        compare(name, a, b, rtol, atol, expected_by=expected_by)
        for name, a, b in zip(names, actual_arrays, expected_arrays, strict=True)
    ]
    failed = [report for report in reports if not report.within_tolerance]
    if not failed:
        return VerificationReport(tuple(reports))
    worst = max(failed, key=lambda report: report.max_absolute_error)
    position = reports.index(worst)

    def element(value: _Arrays) -> object:
        array, index = (
            (value, worst.index)
            if isinstance(value, np.ndarray)
            else (value[worst.index[0]], worst.index[1:])
        )
        return array[index].item()

    detail = worst.problem or (
        f"largest absolute error {worst.max_absolute_error:.3g}, relative {worst.max_relative_error:.3g}; "
        f"at index {list(worst.index)} onnxruntime gave {element(actual_arrays[position])!r}, "
        f"{expected_by} {element(expected_arrays[position])!r}"
    )
    reference = "eager PyTorch" if expected_by == "eager" else expected_by
    raise VerificationError(
        f"output '{worst.name}' differs from {reference} ({len(failed)} of {len(reports)} outputs do): "
        f"{detail}",
        output=worst.name,
        index=worst.index,
        error=worst.max_absolute_error,
    )
