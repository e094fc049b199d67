"""OpenVINO: the file is read and compiled for the CPU, in float32."""

from __future__ import annotations

import numpy as np


def run(job) -> list[np.ndarray]:
    try:
        from openvino.runtime import Core
    except ImportError:
        try:
            from openvino import Core
        except ImportError:
            return _run_2021(job)
    core = Core()
    model = core.compile_model(core.read_model(job.path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = model.create_infer_request().infer(job.feed)
    return [results[output] for output in model.outputs]


def _run_2021(job) -> list[np.ndarray]:
    """The interface of releases before 2022, which take 32-bit integers."""
    from openvino.inference_engine import IECore

    engine = IECore()
    network = engine.load_network(engine.read_network(job.path), "CPU", {"ENFORCE_BF16": "NO"})
    feed = {k: v.astype(np.int32) if v.dtype == np.int64 else v for k, v in job.feed.items()}
    results = network.infer(feed)
    return [results[name] for name in network.outputs]
