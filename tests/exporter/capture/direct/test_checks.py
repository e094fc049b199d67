"""Checks of values, which raise or warn and change no result, do not decide a path."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import opsetta


class Stateful(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def remember(self, found: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return found


STATE = Stateful()


def asserted(x: torch.Tensor) -> torch.Tensor:
    assert x.min() > -100, f"the least is {x.min()}"
    return x * 2


def raising(x: torch.Tensor) -> torch.Tensor:
    if torch.isnan(x).any() or (x.amax(0) > 1000).all():
        message = "not a number"
        raise ValueError(message)
    return x * 2


def raising_otherwise(x: torch.Tensor) -> torch.Tensor:
    if x.sum().item() < 1e6:
        return x * 2
    else:
        raise ValueError("large")


def raising_after_another(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 1:
        return x
    elif not all(row.sum() < 1e6 for row in x.unbind()):
        raise ValueError("large")
    return x * 2


def warning(x: torch.Tensor) -> torch.Tensor:
    if (x == 0).any():
        warnings.warn(f"of {len(x)} rows some are zero", stacklevel=1)
    return x * 2


def of_torch(x: torch.Tensor) -> torch.Tensor:
    torch._assert(x.max() < 1000, "large")
    return F.gaussian_nll_loss(x, x + 1, x.abs() + 0.1, reduction="none")


def inside_a_region(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        try:
            return asserted(x)
        except ValueError:
            raise
        finally:
            x = x + 1


CHECKS = [asserted, raising, raising_otherwise, raising_after_another, warning, of_torch, inside_a_region]


@pytest.mark.parametrize("function", CHECKS)
def test_checks_follow_the_example(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for specialize in (False, True):
        program = opsetta.export(
            function,
            (torch.rand(2, 3),),
            opset=13,
            capture="direct",
            dynamic_shapes={"x": {1: "n"}},
            specialize=specialize,
        )
        assert not program.specializations
        program.verify((-torch.rand(2, 5),))


def both_sides_compute(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x


def other_side_warns(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x * 2
    else:
        print("negative")
    return x


def reports_a_change(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    if x.sum() > 0:
        print(x.add_(1).sum())
    return x


def keeps_the_answer(x: torch.Tensor) -> torch.Tensor:
    if not (is_positive := bool(x.sum() > -1000)):
        raise ValueError("negative")
    return x * is_positive


def changes_state(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0 and STATE.remember(x).sum() > 1000:
        raise ValueError("large")
    return x * STATE.calls


def decides_after_the_check(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > -1000; y = x if x.sum() > 0 else -x  # noqa: E702  # fmt: skip
    return y


def decides_in_its_line(x: torch.Tensor) -> torch.Tensor:
    if x.dim() > 0: x = x * 2 if x.sum() > 0 else x  # noqa: E701  # fmt: skip
    else:
        raise ValueError("no dimension")
    return x


def caught_here(x: torch.Tensor) -> torch.Tensor:
    try:
        assert x.sum() > 0
        return x * 2
    except AssertionError:
        return x


def caught_by_the_caller(x: torch.Tensor) -> torch.Tensor:
    try:
        return asserted(x)
    except AssertionError:
        return x


def suppressed(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(AssertionError):
        assert x.sum() > 0
        x = x * 2
    return x


def checks_a_size(x: torch.Tensor) -> torch.Tensor:
    found = x[x > 0]
    assert found.shape[0] != 0
    return found


def in_a_lambda(x: torch.Tensor) -> torch.Tensor:
    choose = lambda y: y * 2 if y.sum() > 0 else y  # noqa: E731
    return choose(x)


DECISIONS = [
    both_sides_compute,
    other_side_warns,
    reports_a_change,
    keeps_the_answer,
    changes_state,
    decides_after_the_check,
    decides_in_its_line,
    caught_here,
    caught_by_the_caller,
    suppressed,
    checks_a_size,
    in_a_lambda,
]


@pytest.mark.parametrize("function", DECISIONS)
def test_what_changes_the_result_is_a_decision(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(opsetta.OpsettaError, match="depends on"):
        opsetta.export(function, (torch.rand(2, 3),), opset=13, capture="direct")
    with pytest.warns(UserWarning, match="follows the decisions"):
        program = opsetta.export(function, (torch.rand(2, 3),), opset=13, capture="direct", specialize=True)
    assert program.specializations


def test_code_without_a_file_is_a_check_if_one_side_only_raises() -> None:
    made: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    exec("def check(x):\n    assert x.sum() > 0\n    return x * 2\n", made)
    exec("def branch(x):\n    if x.sum() > 0: return x\n    return x * 2\n", made)
    opsetta.export(made["check"], (torch.rand(2, 3),), opset=13, capture="direct").verify()
    with pytest.raises(opsetta.OpsettaError):
        opsetta.export(made["branch"], (torch.rand(2, 3),), opset=13, capture="direct")
