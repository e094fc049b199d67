"""A mutated net of Caffe2 is converted, or refused by an error of ours."""

import pytest

from opsetta.exporter.capture.caffe2.net_reading import read_net
from opsetta.exporter.files.reading import BOUNDS

from . import caffe2_nets, cases


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return cases.Setting(tmp_path_factory.mktemp("fuzz"), "caffe2")


@pytest.mark.parametrize("number", range(len(caffe2_nets.files())))
def test_the_files_are_read_before_they_are_mutated(number, setting, tmp_path):
    (tmp_path / "file").write_bytes(setting.files[number])
    assert read_net(tmp_path / "file", BOUNDS).op
    end = "captured" if number % 3 == 2 else "converted"
    assert cases.run_data(setting, setting.files[number]) == (end, "")


@pytest.mark.parametrize("start", range(0, 200, 100))
def test_mutated_nets_end_in_a_graph_or_a_refusal(setting, start):
    problems = [(number, cases.run_case(setting, 0, number)[1]) for number in range(start, start + 100)]
    assert [(number, problem) for number, problem in problems if problem] == []
