"""What Linux has and other systems lack is taken away: docs/exporting.md has the table of platforms."""

import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

# As on Windows: no fork, no fcntl and resource, no O_NOFOLLOW and its like, no /proc.
TAKEN_AWAY = """
import builtins, io, os, sys

for name in ("fork", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "sched_getaffinity"):
    delattr(os, name)
for name in ("fcntl", "resource"):
    sys.modules[name] = None
_open, _open_descriptor = io.open, os.open


def without_proc(open_file):
    def opened(path, *arguments, **keywords):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return open_file(path, *arguments, **keywords)

    return opened


builtins.open = io.open = without_proc(_open)
os.open = without_proc(_open_descriptor)
"""

CONVERSION = """
from opsetta.exporter.command_line.cli import main

for arguments in (
    "convert model.onnx --opset 9 -o model9.onnx --verify",
    "convert model.onnx --opset 13 --dim batch=2 --external-data -o fixed.onnx",
    "check model9.onnx --run",
    "check fixed.onnx --target opencv",
    "info model9.onnx --nodes",
    "diff model.onnx model.onnx",
    "plan fixed.onnx -o plan.json",
    "extract model.onnx --to h -o part.onnx",
    "stream fixed.onnx -o streamed",
):
    try:
        main(arguments.split())
    except SystemExit as ended:
        assert not ended.code, (arguments, ended.code)
import numpy, opsetta

x = numpy.ones((2, 4), numpy.float32)
with opsetta.StreamingSession("streamed") as session:
    numpy.testing.assert_allclose(session.run(x)[0], opsetta.load("fixed.onnx")(x), rtol=1e-5)
"""

EXPORT = """
import torch, opsetta

model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
program = opsetta.export(model, (torch.ones(1, 3, 8, 8),), opset=13, dynamic_shapes=({0: "batch"},))
program.verify((torch.ones(3, 3, 8, 8),))
program.save("exported.onnx", external_data=True)
opsetta.load("exported.onnx").lower(9).save("exported.onnx")
try:
    opsetta.sweep("exported.onnx")
except opsetta.OpsettaError as error:
    assert "sweeps run on Linux and macOS" in str(error)
"""


@pytest.mark.parametrize("program", [CONVERSION, EXPORT], ids=["conversion", "export"])
def test_it_works_without_what_only_linux_has(program, tmp_path):
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Mish", ["h"], ["y"])]
    values = [helper.make_tensor_value_info(name, 1, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], [weight])
    imports = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "model.onnx")
    script = textwrap.dedent(TAKEN_AWAY + program)
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
