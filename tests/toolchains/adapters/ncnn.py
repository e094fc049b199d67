"""ncnn: the file is converted by pnnx with the inputs' shapes, and run in float32."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess

import ncnn
import numpy as np

DROPS_SIZES_OF_ONE = True
"""ncnn has no batch dimension, and a tensor whose first size is 1 may come back without it."""
PNNX = os.path.join(os.path.dirname(importlib.util.find_spec("pnnx").origin), "pnnx")
"""The executable. The Python command `pnnx` imports torch first, which takes longer than a conversion."""
_NO_BATCH = 233
"""What pnnx writes for an input of which no dimension is known as the batch."""
_TYPES = {"float32": "f32", "int32": "i32", "int64": "i64"}


def run(job) -> list[np.ndarray]:
    copy = shutil.copy(job.path, os.path.join(job.folder, "model.onnx"))
    shapes = ",".join(f"[{','.join(map(str, v.shape))}]{_TYPES[str(v.dtype)]}" for v in job.feed.values())
    command = [PNNX, copy, f"inputshape={shapes}", "fp16=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=job.folder)
    parameters = os.path.join(job.folder, "model.ncnn.param")
    if not os.path.exists(parameters):
        raise RuntimeError("pnnx: " + (done.stderr + done.stdout)[-400:])
    network = ncnn.Net()
    network.opt.use_fp16_storage = network.opt.use_fp16_packed = network.opt.use_fp16_arithmetic = False
    network.opt.use_bf16_storage = False
    if network.load_param(parameters) or network.load_model(os.path.join(job.folder, "model.ncnn.bin")):
        with open(parameters, encoding="utf-8") as file:
            known = {line.split()[0] for line in file.readlines()[2:]}
        raise RuntimeError("ncnn refuses a layer: " + ", ".join(sorted(known))[:300])
    extractor = network.create_extractor()
    # pnnx also writes a program that runs the model, and says there which dimension it takes as the batch.
    with open(os.path.join(job.folder, "model_ncnn.py"), encoding="utf-8") as file:
        batch_axes = dict(re.findall(r'input\("in(\d+)".*batch_index=(\d+)', file.read()))
    for number, value in enumerate(job.feed.values()):
        array = value.astype(np.int32) if value.dtype == np.int64 else value
        axis = int(batch_axes[str(number)])
        array = array if axis == _NO_BATCH else array.take(0, axis)
        extractor.input(f"in{number}", ncnn.Mat(np.ascontiguousarray(array)).clone())
    results = []
    for number in range(len(job.outputs)):
        code, result = extractor.extract(f"out{number}")
        if code:
            raise RuntimeError(f"extract gives {code}")
        results.append(np.array(result))
    return results
