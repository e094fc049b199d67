"""tract: inputs fixed to the example's, declutter and optimize."""

from __future__ import annotations

import numpy as np
import tract


def run(job) -> list[np.ndarray]:
    model = tract.onnx().load(job.path)
    for number, value in enumerate(job.feed.values()):
        kind = {"float32": "f32", "int32": "i32", "int64": "i64"}[str(value.dtype)]
        model.set_input_fact(number, ",".join(map(str, value.shape)) + "," + kind)
    results = model.into_model().into_runnable().run(list(job.feed.values()))
    return [result.to_numpy() for result in results]
