"""`TrainingProgram`: a training graph at one opset."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ...passes.onnx_graph.inplace.annotations import annotate_inplace
from ...passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ...passes.planning import order_by_phase
from ...registration import Registry, UsageError
from ..captured_graph import dimensions as sizes
from ..devices.targets.target import Target, opset_for
from ..program import Program, SourceModel
from ..running.comparisons.verification import VerificationReport
from ..running.model_inputs import Feed
from ..torch_boundary.requirements import need_torch
from .gradient_changes import GradientOptions
from .optimizers import Optimizer
from .signature import Signature
from .step_runner import StepRunner

if TYPE_CHECKING:
    from ..report.records import Report


class TrainingProgram(Program):
    """A model with its loss, gradients and update at one opset.

    Attributes:
        signature: what the inputs and outputs of the graph are.
        state: the arrays with which training begins, by input: parameters, buffers, what the optimizer keeps.
    """

    def __init__(
        self,
        source_model: SourceModel,
        opset: int,
        registry: Registry,
        signature: Signature,
        state: Mapping[str, np.ndarray],
        optimizer: Optimizer | None,
        optimize: str = DEFAULT_LEVEL,
        gradient_options: GradientOptions | None = None,
    ):
        super().__init__(source_model, opset, registry, optimize)
        self.signature = signature
        self.state = dict(state)
        self._optimizer = optimizer
        self._gradient_options = gradient_options or GradientOptions()
        signature.write(self.model)
        # Plans and readers of the file see forward, backward and update as three parts.
        order_by_phase(self.model.graph, signature.forward, list(signature.gradients.values()))
        annotate_inplace(self.model)

    @property
    def updates(self) -> Mapping[str, str]:
        """Per output with a new value, the input that takes it in the next step."""
        return self.signature.updates

    def _declared_inputs(self) -> list[sizes.Input]:
        # State has no dynamic dimensions.
        return super()._declared_inputs()[: len(self.signature.inputs) + len(self.signature.targets)]

    def lower(
        self,
        opset: int | None = None,
        *,
        registry: Registry | None = None,
        optimize: str | bool | None = None,
        target: str | os.PathLike[str] | Target | None = None,
    ) -> TrainingProgram:
        """The same capture at another opset; nothing is traced again.

        Args:
            registry: symbolic functions to lower with; by default those of this program.
            optimize: "none", "basic" or "full"; by default the level of this program.
            target: refused, because targets are for inference.

        Raises:
            UsageError: `optimize` is none of these, or there is a target.
            OpsetError: an opset that opsetta does not write.
            UnsupportedOperatorsError: lists the operators that this opset cannot express.
        """
        if target is not None:
            raise UsageError("a training graph cannot be written for a target: targets are for inference")
        used = registry if registry is not None else self.registry
        level = self.optimize if optimize is None else check_level(optimize)
        return TrainingProgram(
            self.source_model,
            opset_for(opset, None),
            used,
            self.signature,
            self.state,
            self._optimizer,
            level,
            self._gradient_options,
        )

    def __call__(self, *args: object, **kwargs: object) -> dict[str, np.ndarray]:
        """Run one step from the initial state, which stays.

        Takes the arguments of the model, and the targets as `targets=`. Training loops use `TrainingSession`.

        Returns:
            The outputs of the graph by name.

        Raises:
            OpsettaError: the arguments do not have the structure of the example.
            DimensionError: the graph is not valid for a size.
            InferenceError: onnxruntime refuses the model or the inputs.
        """
        need_torch("calling a program")
        return self._steps.run(self._step_feed(args, kwargs), self.state)

    @functools.cached_property
    def _steps(self) -> StepRunner:
        return StepRunner(self.model, self.signature)

    def _step_feed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Feed:
        """The arguments of a call as onnxruntime values by input name, checked, and the learning rates."""
        names = (*self.signature.inputs, *self.signature.targets)
        return self._steps.make_feed(self._calls.input_values(names, args, kwargs)[1])

    def verify(
        self,
        args: tuple[object, ...] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        steps: int = 1,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> VerificationReport:
        """Train in onnxruntime, and compare each step with PyTorch's from the same state, on a copy.

        Compares every output. Adam divides a gradient by its own size: a parameter whose gradient is nothing
        but rounding may move in any direction, and is compared within the length of a step only.

        Args:
            args: arguments of the model, and `targets`; by default the example of the export.
            kwargs: the same by name.
            steps: the number of steps, all of them on these arguments.
            rtol: relative tolerance; by default that of the output's element type.
            atol: absolute tolerance, likewise.

        Returns:
            The errors of the last step.

        Raises:
            VerificationError: an output is outside tolerance; the message has the worst one.
            UsageError: `steps` is not a positive number.
        """
        if not isinstance(steps, int) or steps < 1:
            raise UsageError(f"steps must be 1 or more, not {steps!r}")
        need_torch("verifying a program")
        from ..capture.training_graph.loss_module import LossModule
        from .verification import Trial, verify_steps

        call = self._calls.arguments(args, kwargs)
        module = self._calls.module()
        # `export_training` captures nothing else.
        assert isinstance(module, LossModule)
        feed = self._step_feed(*call)
        trial = Trial(module, self._optimizer, self._gradient_options, self.signature, call, feed, self.state)
        return verify_steps(self._steps, trial, steps, rtol, atol)

    def save_source(self, *args: object, **kwargs: object) -> None:
        """Not available: a source file describes the calls of a model, and no state.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "a training graph has no source file: lower() writes it at other opsets, then save it"
        )

    def report(self, path: str | bytes | os.PathLike[str] | None, **options: object) -> Report:
        """Write a page about the graph, without results and runs; see `Program.report`.

        Raises:
            UsageError: `compare` or `latency` is asked for; `verify` compares steps.
        """
        asked = [name for name in ("compare", "latency") if options.get(name)]
        if asked:
            raise UsageError(f"the report of a training graph has no {asked[0]}: verify() compares its steps")
        return super().report(path, **options, **dict.fromkeys({"compare", "latency"} - set(options), False))

    def locate_mismatch(self, *args: object, **kwargs: object) -> NoReturn:
        """Not available: PyTorch has no graph of the backward pass to compare with.

        Raises:
            UsageError: always.
        """
        raise UsageError("a training graph cannot be searched for a mismatch: export the model by itself")
