"""RKNN toolkit 2: the file is built for the RK3588 without quantization and run by the simulator."""

from __future__ import annotations

import numpy as np
from rknn.api import RKNN


def run(job) -> list[np.ndarray]:
    toolkit = RKNN(verbose=False)
    try:
        toolkit.config(target_platform="rk3588")
        inputs = {"inputs": list(job.feed), "input_size_list": [list(v.shape) for v in job.feed.values()]}
        steps = (
            ("load_onnx", lambda: toolkit.load_onnx(model=job.path, **inputs)),
            ("build", lambda: toolkit.build(do_quantization=False)),
            ("init_runtime", toolkit.init_runtime),
        )
        for name, step in steps:
            if step():
                raise RuntimeError(f"{name} fails")
        formats = ["nchw" if value.ndim == 4 else "undefined" for value in job.feed.values()]
        return toolkit.inference(inputs=list(job.feed.values()), data_format=formats)
    finally:
        toolkit.release()
