"""Parity: an exported model in onnxruntime against eager PyTorch, output by output."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ..registration import VerificationError

TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
    torch.float32: (1e-3, 1e-4),
    torch.float64: (1e-5, 1e-7),
    torch.complex64: (1e-3, 1e-4),
    torch.complex128: (1e-5, 1e-7),
}
"""Relative and absolute tolerance by element type; everything else must be equal."""


@dataclasses.dataclass(frozen=True)
class OutputReport:
    """How far one output is from eager PyTorch.

    Attributes:
        name: the output's name.
        max_absolute_error: largest |onnxruntime - eager|, infinite where only one side is finite.
        max_relative_error: largest |onnxruntime - eager| / |eager| over elements that are not zero.
        index: position of the worst element.
        within_tolerance: whether every element satisfies |a - b| <= atol + rtol * |b|.
    """

    name: str
    max_absolute_error: float
    max_relative_error: float
    index: tuple[int, ...]
    within_tolerance: bool
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class VerificationReport:
    """What `Program.verify` measured, one entry per output."""

    outputs: tuple[OutputReport, ...]

    @property
    def max_absolute_error(self) -> float:
        """The largest absolute error of all outputs; 0 where there are none."""
        return max((report.max_absolute_error for report in self.outputs), default=0.0)


def compare(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    rtol: float | None = None,
    atol: float | None = None,
) -> OutputReport:
    """Compare one output with its eager twin: dtype, shape, then every element."""
    expected = expected.detach().cpu()
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        problem = (
            f"onnxruntime gave {actual.dtype} {list(actual.shape)}, "
            f"eager {expected.dtype} {list(expected.shape)}"
        )
        return OutputReport(name, float("inf"), float("inf"), (), False, problem)
    if actual.numel() == 0:
        return OutputReport(name, 0.0, 0.0, (), True)
    default_rtol, default_atol = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = actual.to(wide), expected.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    error = torch.where(same, 0.0, (a - b).abs())
    error = torch.where(error.isnan(), float("inf"), error)
    excess = torch.where(same, -1.0, error - (atol + rtol * b.abs()).nan_to_num(nan=0.0, posinf=0.0))
    flat = int(excess.argmax() if bool((excess > 0).any()) else error.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), tuple(a.shape)))
    nonzero = (b != 0) & b.isfinite()
    relative = float((error[nonzero] / b[nonzero].abs()).max()) if bool(nonzero.any()) else 0.0
    return OutputReport(name, float(error.max()), relative, index, not bool((excess > 0).any()))


def check(
    names: Sequence[str],
    actual: Sequence[torch.Tensor],
    expected: Sequence[Any],
    rtol: float | None,
    atol: float | None,
) -> VerificationReport:
    """Compare all outputs.

    Raises:
        VerificationError: an output is outside tolerance; the message names the worst one.
    """
    reports = []
    for name, a, b in zip(names, actual, expected, strict=True):
        b = b if isinstance(b, torch.Tensor) else torch.as_tensor(b, dtype=a.dtype)
        reports.append(compare(name, a, b, rtol, atol))
    failed = [report for report in reports if not report.within_tolerance]
    if not failed:
        return VerificationReport(tuple(reports))
    worst = max(failed, key=lambda report: report.max_absolute_error)
    position = reports.index(worst)
    detail = worst.problem or (
        f"largest absolute error {worst.max_absolute_error:.3g}, relative {worst.max_relative_error:.3g}; "
        f"at index {list(worst.index)} onnxruntime gave {actual[position][worst.index].item()!r}, "
        f"eager {_element(expected[position], worst.index)!r}"
    )
    raise VerificationError(
        f"output '{worst.name}' differs from eager PyTorch "
        f"({len(failed)} of {len(reports)} outputs do): {detail}",
        output=worst.name,
        index=worst.index,
        error=worst.max_absolute_error,
    )


def _element(expected: Any, index: tuple[int, ...]) -> Any:
    return expected[index].item() if isinstance(expected, torch.Tensor) else expected
