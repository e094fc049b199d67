"""onnx2torch: the file becomes a torch.fx.GraphModule, which is run.

onnx2torch imports torchvision for NonMaxSuppression and RoiAlign. PyPI's build of it does not load beside
a CPU build of torch, so an empty module takes its place.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import torch

torchvision, operators = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
torchvision.ops, operators.roi_align = operators, None
sys.modules.update({"torchvision": torchvision, "torchvision.ops": operators})

import onnx2torch  # noqa: E402


@torch.no_grad()
def run(job) -> list[np.ndarray]:
    result = onnx2torch.convert(job.path)(*[torch.from_numpy(value) for value in job.feed.values()])
    return [value.numpy() for value in ([result] if isinstance(result, torch.Tensor) else result)]
