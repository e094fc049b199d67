import json

import pytest

from opsetta import ModelFileError
from opsetta.exporter.capture.tensorflow.summary import describe_graph
from opsetta.exporter.command_line import cli
from tests.exporter.capture.tensorflow.graph_files import GRAPH, SAVED_MODELS, meta_graph


def test_a_graph_is_described_by_its_placeholders_and_what_no_node_reads(tmp_path):
    path = tmp_path / "graph.pbtxt"
    path.write_text(GRAPH)
    found = describe_graph(path)
    assert (found["kind"], found["form"], found["producer"]) == ("GraphDef", "text", "GraphDef version 1087")
    assert found["inputs"] == [{"name": "x", "type": "FLOAT", "shape": None}]
    assert [value["name"] for value in found["outputs"]] == ["y"]
    assert found["operators"] == {"Const": 1, "Mul": 1, "NoOp": 1, "Placeholder": 1}
    assert (found["nodes"], found["functions"]) == (4, 1)
    assert found["constants"]["count"] == 1
    assert found["bytes"] == len(GRAPH)


def test_a_saved_model_is_described_by_its_signature():
    found = describe_graph(SAVED_MODELS / "objects")
    assert found["producer"] == "TensorFlow 2.21.0"
    assert found["inputs"] == [{"name": "x", "type": "FLOAT", "shape": [None, 3]}]
    assert [value["name"] for value in found["outputs"]] == ["largest", "scaled"]
    assert found["signatures"] == ["__saved_model_init_op", "serving_default", "shifted"]
    assert found["tags"] == ["serve"]
    assert found["checkpoint"].endswith("variables")


def info(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["info", *map(str, arguments)])
    assert not ended.value.code
    return capsys.readouterr().out


def test_info_in_words_and_json(capsys, tmp_path):
    out = info(capsys, SAVED_MODELS / "objects")
    assert "binary SavedModel, TensorFlow 2.21.0" in out
    assert "this shows serving_default" in out
    assert "StatefulPartitionedCall" in out
    path = tmp_path / "model.meta"
    path.write_bytes(meta_graph().SerializeToString())
    assert json.loads(info(capsys, path, "--json"))["kind"] == "MetaGraphDef"


def test_a_file_that_is_no_graph_is_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(ModelFileError, match="it is empty"):
        describe_graph(tmp_path / "empty")
