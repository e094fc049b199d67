"""TVM: Relax's ONNX frontend, legalized and compiled for LLVM, run by the virtual machine."""

from __future__ import annotations

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def run(job) -> list[np.ndarray]:
    model = from_onnx(onnx.load(job.path), {name: list(value.shape) for name, value in job.feed.items()})
    executable = tvm.compile(relax.transform.LegalizeOps()(model), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(value) for value in job.feed.values()])
    return [value.numpy() for value in ([result] if hasattr(result, "numpy") else result)]
