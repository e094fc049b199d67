"""The sweep itself: what it calls passed, refused and wrong, and its command."""

import json
import sys

import pytest
import torch

# Processes of their own import it by this name.
from opsetta.tests.sweep.__main__ import main

from ..opsets import HIGHEST
from . import judge, report, support
from .cases import Case, operator_cases, operator_names
from .suites import SUITES


class _Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def case(function, *inputs, gauge_free=lambda output: output):
    return Case(_Function(function).eval(), inputs, gauge_free)


def statuses(verdict):
    return {opset: outcome.status for opset, outcome in verdict.outcomes.items()}


def test_an_entry_of_the_database_passes():
    [first, *_] = operator_cases(operator_names().index("add"), torch.float32, 2)
    opsets = (7, 13, HIGHEST)
    verdict = judge.judge(first, opsets, dynamic=False)
    assert statuses(verdict) == dict.fromkeys(opsets, judge.PASSED)
    assert verdict.operators == ["aten::add.Tensor"]


def test_the_newest_opsets_are_swept():
    assert {27, HIGHEST} <= {*SUITES["operators-float32"].opsets}
    assert HIGHEST in SUITES["modules-float32"].opsets


def test_a_refusal_says_which_operator_and_why():
    verdict = judge.judge(case(lambda x: x.to(torch.bfloat16), torch.randn(2)), (9, 13), dynamic=False)
    assert verdict.outcomes[9].status == judge.REFUSED
    [(name, reason)] = verdict.outcomes[9].refused.items()
    assert name == "aten::to.dtype"
    assert "BFLOAT16" in reason


def test_what_eager_refuses_is_no_case():
    assert judge.judge(case(lambda x: x.reshape(7), torch.randn(2)), (13,), dynamic=False) is None


def test_random_numbers_need_the_same_shape_only():
    assert statuses(judge.judge(case(torch.rand_like, torch.randn(2, 3)), (13,), False)) == {13: judge.PASSED}


def test_what_onnxruntime_lacks_is_run_by_the_evaluator():
    verdict = judge.judge(case(torch.add, *torch.randn(2, 3, dtype=torch.bfloat16)), (13,), dynamic=False)
    assert statuses(verdict) == {13: judge.BY_REFERENCE}


def test_positions_of_equal_elements_may_differ():
    tensor = torch.tensor([2.0, 1.0, 1.0, 3.0])
    sides = torch.tensor([1, 2, 0, 3]), torch.tensor([2, 1, 0, 3])
    drawn = case(torch.argsort, tensor)
    assert judge.may_stand(*sides, drawn, (tensor,), ["aten::argsort.default"])
    assert not judge.may_stand(
        sides[0], torch.tensor([2, 1, 3, 0]), drawn, (tensor,), ["aten::argsort.default"]
    )
    assert not judge.may_stand(*sides, drawn, (tensor,), ["aten::add.Tensor"])


def test_another_size_is_run_where_all_are_free():
    sizes = []

    def function(x):
        sizes.append(tuple(x.shape))
        return x * 2

    assert statuses(judge.judge(case(function, torch.randn(2, 3)), (13,), dynamic=True)) == {13: judge.PASSED}
    assert (3, 4) in sizes


def outcome(status, detail="", refused=None):
    return {"status": status, "detail": detail, "refused": refused or {}}


@pytest.fixture
def folder(tmp_path):
    refused = outcome(judge.REFUSED, "no", {"aten::b.default": "needs [1, 2]", "aten::piece.x": "missing"})
    cases = [
        {"operators": ["aten::a.Tensor"], "outcomes": {"13": outcome(judge.PASSED)}},
        {"operators": ["aten::b.default", "aten::c.x"], "outcomes": {"13": refused}},
    ]
    lines = [{"entry": "one", "cases": cases[:1]}, {"entry": "two", "cases": cases}]
    lines.append({"entry": "none", "cases": []})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "operators-float32.jsonl").write_text(text)
    return tmp_path


def test_an_entry_passes_when_all_of_its_samples_do(folder):
    found = report.write_summary(folder)["operators-float32"]["13"]
    assert (found["entries"], found["passed"], found["ratio"]) == (2, 1, 0.5)
    assert found["refused"] == {"two": {"refused: no": 1}}
    assert "| operators-float32 | 13 | 2 | 1 | 50.0% | 0 | 0 |" in report.table(folder)


def test_a_refused_piece_is_told_of_the_operator_that_it_is_a_piece_of(folder):
    assert support.collect(folder) == {
        "aten::a": {"passed": [13], "refused": {}},
        "aten::b": {"passed": [], "refused": {"needs [...]": [13], "aten::piece: missing": [13]}},
        "aten::c": {"passed": [], "refused": {"aten::piece: missing": [13]}},
    }


def test_results_of_other_opsets_are_added(folder):
    later = {"torch": "2", "onnxruntime": "1.1", "figures": support.figures(folder)}
    later |= {"operators": support.collect(folder)}
    row = {"suite": "operators, float32", "opset": 9, "passed": 7}
    operators = {
        "aten::a": {"passed": [9], "refused": {"no": [13]}},
        "aten::b": {"passed": [9, 13], "refused": {}},
    }
    earlier = {"torch": "2", "onnxruntime": "1.0", "opsets": [9], "figures": [row], "operators": operators}
    sweeps = support.add(earlier, later)
    assert (sweeps["torch"], sweeps["onnxruntime"], sweeps["opsets"]) == ("2", "1.0 and 1.1", [9, 13])
    assert sweeps["figures"] == [row, *later["figures"]]
    assert sweeps["operators"]["aten::a"] == {"passed": [9, 13], "refused": {}}
    assert sweeps["operators"]["aten::b"] == later["operators"]["aten::b"] | {"passed": [9]}


@pytest.mark.sweep
def test_the_command_runs(tmp_path, monkeypatch, capsys):
    arguments = ["--suite", "operators-int64", "--only", "^(neg|clone)$", "--samples", "1"]
    arguments += ["--opsets", "13", "28"]
    monkeypatch.setattr(sys, "argv", ["sweep", *arguments, "--workers", "1", "--output", str(tmp_path)])
    main()
    assert "| operators-int64 | 28 | 2 | 2 | 100.0% | 0 | 0 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "summary.json").read_text())["operators-int64"]["13"]["passed"] == 2
