"""onnxruntime: a session on the CPU, with all optimizations."""

from __future__ import annotations

import numpy as np
import onnxruntime


def run(job) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Releases before 1.9 have no such argument, and a wheel with one provider.
    release = tuple(int(number) for number in onnxruntime.__version__.split(".")[:2])
    providers = {"providers": ["CPUExecutionProvider"]} if release >= (1, 9) else {}
    return onnxruntime.InferenceSession(job.path, options, **providers).run(job.outputs, job.feed)
