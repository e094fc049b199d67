"""The suites of the sweep, and what one process does for one entry."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from ..opsets import HIGHEST

OPSETS = (7, 9, 11, 13, 16, 18, 20, 21, 23, 27, HIGHEST)


@dataclasses.dataclass(frozen=True)
class Suite:
    """One pass over a database.

    Attributes:
        database: `operators` (OpInfo) or `modules`.
        element_type: of the samples, by torch's name.
        opsets: where each sample is lowered.
        dynamic: every dimension free, and other sizes when run.
        others: torch.onnx as well, on the same samples: (name, opset, whether it is the current exporter).
        samples: how many samples of an entry at most; all unless given.
    """

    database: str
    element_type: str
    opsets: tuple[int, ...]
    dynamic: bool = False
    others: tuple[tuple[str, int, bool], ...] = ()
    samples: int | None = None


TORCH_ONNX = (
    ("TorchScript exporter at 9", 9, False),
    ("TorchScript exporter at 13", 13, False),
    ("TorchScript exporter at 18", 18, False),
    ("current exporter at 18", 18, True),
)
SUITES = {
    "operators-float32": Suite("operators", "float32", OPSETS),
    "operators-int64": Suite("operators", "int64", (13, 18)),
    "operators-bool": Suite("operators", "bool", (13, 18)),
    "operators-float16": Suite("operators", "float16", (13, 18)),
    "operators-float64": Suite("operators", "float64", (13, 18), samples=4),
    "operators-bfloat16": Suite("operators", "bfloat16", (13, 18), samples=4),
    "operators-complex64": Suite("operators", "complex64", (13, 18), samples=4),
    "operators-dynamic": Suite("operators", "float32", (11, 13, 18), dynamic=True),
    "modules-float32": Suite("modules", "float32", (9, 13, 18, 21, HIGHEST)),
    "comparison": Suite("operators", "float32", (9, 13, 18), others=TORCH_ONNX, samples=2),
}


def sweep_entry(suite: Suite, samples: int | None, index: int) -> list[dict[str, Any]]:
    """Every case of one entry, judged: per case its operators, and per opset or exporter its outcome."""
    import torch

    from . import cases, judge

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    of = cases.operator_cases if suite.database == "operators" else cases.module_cases
    found = []
    for case in of(index, getattr(torch, suite.element_type), samples):
        verdict = judge.judge(case, suite.opsets, suite.dynamic)
        if verdict is None:
            continue
        outcomes = {str(opset): outcome for opset, outcome in verdict.outcomes.items()}
        if suite.others:
            from .others import torch_onnx

            outcomes |= {
                name: torch_onnx(case, verdict.operators, opset, dynamo)
                for name, opset, dynamo in suite.others
            }
        found.append(
            {
                "operators": verdict.operators,
                "outcomes": {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()},
            }
        )
    return found
