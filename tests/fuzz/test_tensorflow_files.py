"""A mutated file of TensorFlow is read, or refused by an error of ours."""

import pytest

from opsetta.exporter.capture.tensorflow.graph_reading import read_graph

from . import cases, tensorflow_files


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return cases.Setting(tmp_path_factory.mktemp("fuzz"), "tensorflow")


@pytest.mark.parametrize("number", range(len(tensorflow_files.files())))
def test_the_files_are_read_before_they_are_mutated(number, setting, tmp_path):
    (tmp_path / "file").write_bytes(setting.files[number])
    assert read_graph(tmp_path / "file").graph_def.node
    assert cases.run_data(setting, setting.files[number]) == ("read", "")


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_mutated_files_end_in_a_graph_or_a_refusal(setting, start):
    problems = [(number, cases.run_case(setting, 0, number)[1]) for number in range(start, start + 100)]
    assert [(number, problem) for number, problem in problems if problem] == []
