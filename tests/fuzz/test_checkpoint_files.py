"""A changed checkpoint, and a changed graph with one, is read or refused by an error of ours."""

import pytest

from . import cases, checkpoint_files


@pytest.fixture(scope="module", params=["checkpoints", "freezing"])
def setting(request, tmp_path_factory):
    return cases.Setting(tmp_path_factory.mktemp("fuzz"), request.param)


def test_the_files_are_read_before_they_are_changed(setting):
    ends = {cases.run_data(setting, data) for data in setting.files}
    assert ends <= {("read", ""), ("frozen", "")}


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_changed_files_are_read_or_refused(setting, start):
    count = 100 if setting.read_everything is checkpoint_files.read_everything else 20
    problems = [(number, cases.run_case(setting, 0, number)[1]) for number in range(start, start + count)]
    assert [(number, problem) for number, problem in problems if problem] == []
