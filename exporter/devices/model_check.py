"""Checks a model as its users would: its nodes, whether onnxruntime runs it, and which targets take it."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence

import onnx_ir as ir

from ...registration import InferenceError, InvalidNode, OpsettaError, TargetProblem
from ..running.random_inputs import random_inputs
from ..running.runner import Runner
from .targets.load_target import load_target, target_names
from .targets.target_problems import find_problems


@dataclasses.dataclass(frozen=True)
class ModelCheck:
    """What is known about a model before it is deployed.

    Attributes:
        invalid: the nodes that are not valid at the model's opset.
        runtime: the version of onnxruntime; "" if none is installed.
        runtime_error: why onnxruntime refuses it, or fails; "" if it runs on random inputs.
        skipped: why it was not run: no onnxruntime, or inputs without a shape; "" if it was.
        problems: what each target does not support, by the name of the target; none for those that take it.
    """

    invalid: tuple[InvalidNode, ...]
    runtime: str
    runtime_error: str
    skipped: str
    problems: dict[str, tuple[TargetProblem, ...]]

    @property
    def is_good(self) -> bool:
        """Whether every node is valid, and onnxruntime, if it is installed, runs the model."""
        return not self.invalid and not self.runtime_error

    def lines(self) -> list[str]:
        """A sentence for each result, and a line for each target that does not take the model."""
        lines = [f"  - {node}" for node in self.invalid]
        outcome = f"the model was not run: {self.skipped}" if self.skipped else "runs it on random inputs"
        lines.append(f"onnxruntime {self.runtime}".rstrip() + f": {self.runtime_error or outcome}")
        takers = [name for name, problems in self.problems.items() if not problems]
        lines.append(f"targets without known problems: {', '.join(takers) or 'none'}")
        for name, problems in self.problems.items():
            if problems:
                more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
                lines.append(f"  - {name}: {problems[0]}{more}")
        return lines


def check_everywhere(model: ir.Model, invalid: Sequence[InvalidNode]) -> ModelCheck:
    """Run a model in onnxruntime, and check it against all targets that come with opsetta.

    Args:
        invalid: its nodes that are not valid.
    """
    runtime = error_text = ""
    skipped = "it is not installed"
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        runtime, skipped = onnxruntime.__version__, ""
        runner = Runner.of_model(model)
        try:
            feed = random_inputs(runner.inputs)
        except OpsettaError as error:
            skipped = str(error)
        else:
            try:
                runner.run(feed)
            except InferenceError as error:
                error_text = str(error)
    problems = {
        name: tuple(find_problems(model, load_target(name), is_file=True, invalid=invalid))
        for name in target_names()
    }
    return ModelCheck(tuple(invalid), runtime, error_text, skipped, problems)
