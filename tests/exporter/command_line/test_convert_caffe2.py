"""`opsetta convert` of Caffe2's nets."""

import json

import numpy as np
import onnx
import pytest

from opsetta.exporter.command_line.cli import main

from ..capture.caffe2.nets import Net, write


@pytest.fixture
def nets(tmp_path):
    predict, init = Net(), Net()
    init.fill("w", np.ones((2, 3), np.float32))
    init.fill("b", np.zeros(2, np.float32))
    predict.add("FC", ["data", "w", "b"], "y")
    return write(tmp_path, predict.finish(["data", "w", "b"], ["y"]), init.message)


def convert(*arguments):
    """The exit code of the command, a message for an error."""
    with pytest.raises(SystemExit) as ended:
        main(["convert", *map(str, arguments)])
    return ended.value.code


def test_a_pair_of_nets(nets, tmp_path):
    weights, target = tmp_path / "weights.pb", tmp_path / "out.onnx"
    (tmp_path / "init_net.pb").rename(weights)
    options = ["--init-net", weights, "--opset", 11, "--input-shape", "data=batch,3"]
    assert convert(nets, *options, "-o", target) == 0
    model = onnx.load(target)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 11
    [value] = model.graph.input
    sizes = [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
    assert (value.name, sizes) == ("data", ["batch", 3])


@pytest.mark.parametrize("shape", ["data", "=3", "other=3", "data=x y"])
def test_a_wrong_shape(shape, nets, tmp_path, capsys):
    assert convert(nets, "-o", tmp_path / "out.onnx", "--input-shape", shape) == 2
    assert "shape" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_info(nets, capsys, tmp_path):
    (tmp_path / "value_info.json").write_text('{"data": [1, [2, 3]]}')
    for command, options in (("info", []), ("info", ["--json"])):
        with pytest.raises(SystemExit) as ended:
            main([command, str(nets), *options])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "binary" in shown
        assert "Caffe2 net" in shown
        assert "FC" in shown
    found = json.loads(shown)
    assert found["inputs"][0] == {"name": "data", "type": "FLOAT", "shape": [2, 3]}
    assert found["operators"] == {"FC": 1}
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "init_net.pb"), "--json"])
    assert json.loads(capsys.readouterr().out)["constants"]["count"] == 2


def test_a_shape_given_twice(nets, tmp_path, capsys):
    shapes = ["--input-shape", "data=1,3", "--input-shape", "data=2,3"]
    assert convert(nets, "-o", tmp_path / "out.onnx", *shapes) == 2
    assert "opsetta: --input-shape: 'data' occurs twice" in capsys.readouterr().err
