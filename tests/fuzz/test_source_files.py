"""A mutated source file is loaded, lowered and called, or refused by an error of ours."""

import pytest

from . import cases


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return cases.Setting(tmp_path_factory.mktemp("fuzz"), "captures")


def test_the_files_are_called_before_they_are_mutated(setting):
    assert [cases.run_data(setting, data) for data in setting.files] == [("called", "")] * len(setting.files)


def test_mutated_files_end_in_a_call_or_a_refusal(setting):
    problems = [(number, cases.run_case(setting, 0, number)[1]) for number in range(60)]
    assert [(number, problem) for number, problem in problems if problem] == []
