"""onnxruntime: a session on the CPU, with all optimizations."""

import numpy as np
import onnxruntime


def run(job) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(job.path, options, providers=["CPUExecutionProvider"]).run(
        None, job.feed
    )[0]
