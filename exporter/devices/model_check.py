"""Checks a model before deployment: its nodes, the targets that support it, and a run in onnxruntime."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from ...registration import InferenceError, InvalidNode, OpsettaError, TargetProblem
from ..running.random_inputs import random_inputs
from ..running.runner import Runner
from .targets.load_target import load_target, target_names
from .targets.target_problems import ModelParts, find_problems


@dataclasses.dataclass(frozen=True)
class ModelCheck:
    """The result of `check_everywhere`.

    Attributes:
        invalid: the nodes that are not valid at the model's opset.
        runtime: the version of onnxruntime that was asked to run the model; "" if none was.
        runtime_error: why onnxruntime refused the model or failed; "" if it did not.
        skipped: why the model was not run; "" if it was.
        problems: by target name, what the target does not support, besides the invalid nodes.
    """

    invalid: tuple[InvalidNode, ...]
    runtime: str
    runtime_error: str
    skipped: str
    problems: dict[str, tuple[TargetProblem, ...]]

    @property
    def is_good(self) -> bool:
        """Whether every node is valid and onnxruntime, if it was asked, ran the model."""
        return not self.invalid and not self.runtime_error

    @property
    def supported_by(self) -> tuple[str, ...]:
        """The targets without a known problem with the model; empty if some nodes are invalid."""
        return tuple(name for name, problems in self.problems.items() if not (problems or self.invalid))

    def lines(self) -> list[str]:
        """Format the results as lines of text: invalid nodes, the run, and the problems by target."""
        lines = [f"  - {node}" for node in self.invalid]
        outcome = f"the model was not run: {self.skipped}" if self.skipped else "runs it on random inputs"
        lines.append(f"onnxruntime {self.runtime}".rstrip() + f": {self.runtime_error or outcome}")
        names = ", ".join(self.supported_by) or "none"
        lines.append(f"targets without known problems: {names}")
        if self.invalid:
            lines[-1] += ", because of the nodes that are not valid; the other problems:"
        for name, problems in self.problems.items():
            if problems:
                more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
                lines.append(f"  - {name}: {problems[0]}{more}")
        return lines


def check_everywhere(model: ir.Model, invalid: Sequence[InvalidNode], *, run: bool = False) -> ModelCheck:
    """Check a model against all targets that come with opsetta.

    Args:
        invalid: the nodes of the model that are not valid.
        run: whether to also run the model on random inputs in onnxruntime. An untrusted file may take any
            amount of time and memory, even while it is loaded.
    """
    runtime = error_text = ""
    skipped = "pass --run (in Python, run=True)"
    if run:
        try:
            import onnxruntime

            runtime = onnxruntime.__version__
            runner = Runner.of_model(model)
            runner.run(random_inputs(runner.inputs))
            skipped = ""
        except ImportError:
            skipped = "onnxruntime is not installed"
        except InferenceError as error:
            error_text = str(error)
        except OpsettaError as error:
            skipped = str(error)
    parts = ModelParts.of(model)
    problems = {
        name: tuple(find_problems(model, load_target(name), is_file=True, invalid=(), parts=parts))
        for name in target_names()
    }
    return ModelCheck(tuple(invalid), runtime, error_text, skipped, problems)
