"""Conditions whose outcome changes nothing, recognised from the values that follow them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.capture.sizes.conditions.branches import BranchSearch
from opsetta.exporter.torch_boundary.fake_tensors import pretend_exporting
from opsetta.exporter.torch_boundary.irrelevant_conditions import is_irrelevant


class Condition:
    """Notes whether its own truth matters to the code that asks for it, and has a given truth."""

    def __init__(self, truth: bool):
        self._truth = truth
        self.irrelevant: list[bool] = []

    def __bool__(self) -> bool:
        self.irrelevant.append(is_irrelevant(sys._getframe(1)))
        return self._truth


def conjunction(condition: Condition, mask: object, flag: bool) -> object:
    flag = condition and mask is None and flag
    return flag


def disjunction(condition: Condition, mask: object, flag: bool) -> object:
    flag = condition or mask is not None or flag
    return flag


def conditional(condition: Condition, mask: object, flag: bool) -> object:
    result = 1
    if condition and mask is None:
        result = 2
    result += 1
    return result


def returned(condition: Condition, mask: object, flag: bool) -> object:
    return condition and flag


def loop(condition: Condition, mask: object, flag: bool) -> object:
    count = 0
    while condition and flag and count < 2:
        count += 1
    return count


def chosen(condition: Condition, mask: object, flag: bool) -> object:
    result = mask if condition and flag else None
    return [result]


def called(condition: Condition, mask: object, flag: bool) -> object:
    return bool(condition) and flag


def nested(condition: Condition, mask: object, flag: bool) -> object:
    return [(mask is None or not condition) and flag, 5]


def compiling(condition: Condition, mask: object, flag: bool) -> object:
    return condition and not torch.compiler.is_compiling() and flag


def exporting(condition: Condition, mask: object, flag: bool) -> object:
    result = 1
    if condition and not torch.compiler.is_exporting():
        result = 2
    return result


def asking_others(condition: Condition, mask: object, flag: bool) -> object:
    result = 1
    if condition and not torch.is_grad_enabled():
        result = 2
    return result


FUNCTIONS = [
    conjunction,
    disjunction,
    conditional,
    returned,
    loop,
    chosen,
    called,
    nested,
    compiling,
    exporting,
    asking_others,
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("mask", [None, 3])
@pytest.mark.parametrize("flag", [False, True])
def test_a_condition_is_irrelevant_only_if_both_outcomes_give_the_same(
    function: Callable[[Any, object, bool], object], mask: object, flag: bool
) -> None:
    conditions = [Condition(False), Condition(True)]
    results = [function(condition, mask, flag) for condition in conditions]
    truths = [bool(result) if result in conditions else result for result in results]
    if any(any(condition.irrelevant[:1]) for condition in conditions):
        assert truths[0] == truths[1]


@pytest.mark.parametrize(
    ("function", "mask", "flag"), [(conjunction, 3, True), (disjunction, 3, False), (conditional, 3, True)]
)
def test_an_operand_that_decides_makes_the_condition_irrelevant(
    function: Callable[[Any, object, bool], object], mask: object, flag: bool
) -> None:
    condition = Condition(True)
    function(condition, mask, flag)
    assert condition.irrelevant == [True]


@pytest.mark.parametrize("function", [compiling, exporting])
@pytest.mark.parametrize("answer", [False, True])
def test_a_question_whether_torch_compiles_is_answered(
    function: Callable[[Any, object, bool], object], answer: bool
) -> None:
    condition = Condition(False)
    with pretend_exporting() if answer else contextlib.nullcontext():
        function(condition, None, True)
    assert condition.irrelevant == [answer]


def test_other_questions_are_not_answered() -> None:
    condition = Condition(False)
    with torch.enable_grad():
        asking_others(condition, None, True)
    assert condition.irrelevant == [False]


def test_a_value_whose_truth_runs_code_decides_nothing() -> None:
    inner, outer = Condition(False), Condition(True)
    result = outer and inner
    assert result is inner
    assert outer.irrelevant == [False]


class Causal(nn.Module):
    """Attention that is causal without a mask, as in many transformers."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        is_causal = x.shape[1] > 1 and mask is None
        if not is_causal and mask is None and x.shape[0] > 5:
            return x * 2
        mask = torch.ones_like(x) if mask is None else mask
        return torch.cumsum(x, 1) + mask if is_causal else x + mask


@pytest.mark.parametrize("has_mask", [False, True])
def test_the_branch_of_a_mask_is_not_followed(has_mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions: list[int] = []
    try_branch = BranchSearch.try_branch

    def count_conditions(search: BranchSearch, branch: Any, guards: Any) -> None:
        conditions.append(len(guards))
        try_branch(search, branch, guards)

    monkeypatch.setattr(BranchSearch, "try_branch", count_conditions)
    dims = {0: "b", 1: "s"}
    arguments = (torch.ones(3, 4), torch.ones(3, 4)) if has_mask else (torch.ones(3, 4),)
    shapes = {"x": dims, "mask": dims} if has_mask else {"x": dims}
    model = Causal().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opsetta.export(model, arguments, opset=15, dynamic_shapes=shapes)
    assert (conditions == [0]) == has_mask
    for shape in [(3, 4), (2, 1), (8, 1), (1, 1), (9, 5)]:
        inputs = [torch.randn(shape) for _ in arguments]
        try:
            result = program(*inputs)
        except opsetta.DimensionError:
            assert shape[1] == 1
            assert not has_mask
            continue
        torch.testing.assert_close(torch.as_tensor(result), model(*inputs))
