"""The same model across opsets: nodes, composed operators, latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir

from ...registration import OpsettaError, UnsupportedOperatorsError
from ..lowering.driver import Observation
from ..running.sessions.latency import median_seconds
from .pictures import origin_counts
from .records import AtOpset

OPSETS = (9, 11, 13, 15, 17, 18, 21, 23)
"""The opsets that a report compares unless it is told others."""
_SECONDS = 0.5
"""Time for the runs of one model, beyond the first three."""
_RUNS = 15

Lower = Callable[[int, Observation], ir.Model]


def measure_opsets(
    lower: Lower,
    opsets: Iterable[int],
    feed: Callable[[ir.Model], Mapping[str, object]] | None,
    progress: Callable[[str], None],
) -> tuple[AtOpset, ...]:
    """Lower a model to each opset, and measure its runs in onnxruntime.

    Args:
        feed: inputs to run with; None measures nothing.
    """
    measurements = []
    for opset in sorted(set(opsets)):
        progress(f"opset {opset}")
        measurements.append(_measure_opset(lower, opset, feed))
    return tuple(measurements)


def _measure_opset(
    lower: Lower, opset: int, feed: Callable[[ir.Model], Mapping[str, object]] | None
) -> AtOpset:
    observation = Observation()
    try:
        model = lower(opset, observation)
    # The whole message lists every module; the table has room for names.
    except UnsupportedOperatorsError as error:
        names = list(dict.fromkeys(operator.name for operator in error.operators))
        return AtOpset(opset, None, note=f"not supported: {', '.join(names)}")
    except OpsettaError as error:
        return AtOpset(opset, None, note=str(error))
    counts = origin_counts(model, observation)
    latency, note = None, ""
    if feed is not None:
        try:
            latency = median_seconds(model, feed(model), _RUNS, _SECONDS)
        except OpsettaError as error:
            note = str(error)
    count = model.graph.num_nodes()
    return AtOpset(opset, count, counts["composed"], counts["recognised"], latency, note)
