"""MNN: the file is converted by mnnconvert's own function and run by the module interface.

The command mnnconvert is not used: to report its usage it installs a package by the first pip on the path.
"""

from __future__ import annotations

import os
import subprocess
import sys

import MNN
import numpy as np

CONVERT = "import MNN, _tools, sys; _tools.mnnconvert(['mnnconvert', *sys.argv[1:]])"


def run(job) -> list[np.ndarray]:
    converted = os.path.join(job.folder, "model.mnn")
    command = [sys.executable, "-c", CONVERT, "-f", "ONNX", "--modelFile", job.path, "--MNNModel", converted]
    command += ["--bizCode", "opsetta"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not os.path.exists(converted):
        raise RuntimeError((done.stdout + done.stderr)[-500:])
    module = MNN.nn.load_module_from_file(converted, list(job.feed), job.outputs)
    values = []
    for array in job.feed.values():
        kind = MNN.expr.int if array.dtype.kind == "i" else MNN.expr.float
        narrow = array.astype(np.int32) if array.dtype == np.int64 else array
        values.append(MNN.expr.const(narrow, list(array.shape), MNN.expr.NCHW, kind))
    results = [MNN.expr.convert(result, MNN.expr.NCHW) for result in module.onForward(values)]
    return [np.array(result.read()).reshape(result.shape) for result in results]
