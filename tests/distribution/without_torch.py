"""opsetta with the extras `cli` and `runtime`, and without torch: files are converted, checked and run."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import opsetta

GRAPH = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: 2 } dim { size: 3 } } } } }
node { name: "y" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
"""
"""A TensorFlow graph."""


def opsetta_command(*arguments: str, code: int = 0) -> subprocess.CompletedProcess:
    command = pathlib.Path(sys.prefix, "bin", "opsetta")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, (arguments, done)
    return done


def declared(path: str) -> int:
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    [opset] = [entry.version for entry in model.opset_import if entry.domain == ""]
    return opset


def write_model() -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["normal"]),
        helper.make_node("HardSwish", ["normal"], ["y"]),
    ]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [scale])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "model.onnx")


def check_commands() -> None:
    assert opsetta_command("--version").stdout == f"opsetta {opsetta.__version__}\n"
    opsetta_command("convert", "model.onnx", "--opset", "9", "-o", "model9.onnx")
    assert declared("model9.onnx") == 9
    opsetta_command("check", "model9.onnx")
    opsetta_command("check", "model9.onnx", "--target", "onnxruntime")
    assert json.loads(opsetta_command("info", "model9.onnx", "--json").stdout)
    assert "aten::relu" in opsetta_command("ops", "--filter", "relu", "--opset", "9").stdout
    pathlib.Path("graph.pbtxt").write_text(GRAPH, encoding="utf-8")
    opsetta_command("convert", "graph.pbtxt", "--opset", "12", "-o", "relu.onnx")
    assert declared("relu.onnx") == 12


def check_calls() -> None:
    program = opsetta.load("model.onnx").lower(opset=11)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    program.verify((x,))
    relu = opsetta.load("relu.onnx").lower(opset=8)(np.float32([[-1, 0, 1], [2, -3, 4]]))
    np.testing.assert_array_equal(relu, [[0, 0, 1], [2, 0, 4]])


def check_export_says_what_it_needs() -> None:
    pathlib.Path("factory.py").write_text("def make(): ...\n", encoding="utf-8")
    said = opsetta_command("export", "factory.py:make", "-o", "never.onnx", code=1).stderr
    assert "pip install 'opsetta[torch]'" in said, said
    assert not pathlib.Path("never.onnx").exists()
    said = ""
    try:
        opsetta.export(lambda x: x, (np.ones(1),))
    except (opsetta.OpsettaError, ImportError) as error:
        said = str(error)
    assert "pip install 'opsetta[torch]'" in said, said


assert importlib.util.find_spec("torch") is None
write_model()
check_commands()
check_calls()
check_export_says_what_it_needs()
