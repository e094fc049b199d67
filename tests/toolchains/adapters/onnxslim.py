"""onnxslim: the file is slimmed, and the result run by onnxruntime."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import onnxslim


def run(job) -> list[np.ndarray]:
    slimmed = os.path.join(job.folder, "slim.onnx")
    onnxslim.slim(job.path, slimmed)
    session = onnxruntime.InferenceSession(slimmed, providers=["CPUExecutionProvider"])
    return session.run(None, job.feed)
