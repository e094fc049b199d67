"""OpenVINO: the file is read and compiled for the CPU, in float32."""

import numpy as np
import openvino


def run(job) -> np.ndarray:
    core = openvino.Core()
    model = core.compile_model(core.read_model(job.path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return model(job.feed)[model.outputs[0]]
