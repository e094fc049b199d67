"""`OnnxModel`: an ONNX model read from a file, which can be converted to other opsets and run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from ..passes.onnx_graph.levels import check_level
from ..passes.quantization import Quantization
from ..registration import OpsettaError, Registry
from ..registration.functions.registry import registry_or_default
from .devices.plan import ALIGNMENT, Plan, make_plan
from .devices.prepack import saving
from .devices.targets.equivalent_forms import with_forms
from .devices.targets.load_target import resolve_target
from .devices.targets.target import Target, check_saving
from .devices.targets.write_for_target import write_for
from .files.reading import bounds_of
from .files.reading.carried import carried_by, to_proto
from .lowering.conversion.conversion import convert
from .lowering.conversion.preparation import opset_of
from .lowering.driver import Observation
from .running.runner import Runner
from .running.verification import VerificationReport

if TYPE_CHECKING:
    from .report.records import Report


class OnnxModel:
    """A model of ONNX operators at one opset.

    Attributes:
        model: the ONNX model, an `onnx_ir.Model`.
        source: the model as it was read; `lower` always converts this one.
        registry: the default symbolic functions for conversion.
        trusted: whether `lower` takes as much memory and time as the model asks for.
        target: the consumer that it was written for, or None.
        quantization: what `quantize_weights` did to it, or None.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        source: ir.Model | None = None,
        registry: Registry | None = None,
        trusted: bool = False,
    ):
        self.model = model
        self.trusted = trusted
        self.source = source if source is not None else model
        self.registry = registry
        self.target: Target | None = None
        self.quantization: Quantization | None = None
        self._convert: Callable[..., ir.Model] | None = None
        """Converts the source again, optionally without passes that change weights, or observed."""

    @property
    def opset(self) -> int | None:
        """The opset of its ONNX operators; None if it has none."""
        return opset_of(self.model)

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model as a new protobuf message."""
        return to_proto(self.model)

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs that a caller feeds, in order."""
        # Before IR version 4 every initializer is an input as well, which callers need not feed.
        stored = {*self.model.graph.initializers, *carried_by(self.model).inputs}
        return [value.name or "" for value in self.model.graph.inputs if value.name not in stored]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return [value.name or "" for value in self.model.graph.outputs]

    def lower(
        self,
        opset: int | None = None,
        *,
        registry: Registry | None = None,
        optimize: str | bool | None = None,
        target: str | os.PathLike[str] | Target | None = None,
    ) -> OnnxModel:
        """The model at another opset, higher or lower.

        Args:
            opset: the opset to write; by default the target's, or 17.
            optimize: "none", "basic" or "full", as for `export`; by default "full" at another opset, while a
                model that has the opset stays as it is.
            target: the consumer to write for, as for `export`.

        Raises:
            UsageError: `optimize` or `target` has an unknown value.
            TargetError: lists everything that the target does not take.
            OpsetError: an opset that opsetta does not write.
            UnsupportedOperatorsError: lists every operator that the opset cannot express, and its nodes.
            GraphError: the model is larger than what is converted of one that is not `trusted`.
        """
        used_registry = registry if registry is not None else self.registry
        level = None if optimize is None else check_level(optimize)
        requested_opset, resolved_target = resolve_target(opset, target)
        registry_of_target = used_registry
        if resolved_target is not None:
            registry_of_target = with_forms(registry_or_default(used_registry), resolved_target)
        omitted = () if resolved_target is None else resolved_target.conventions.omitted_passes
        bounds = bounds_of(self.trusted)

        def convert_source(keeps_weights: bool, observation: Observation | None = None) -> ir.Model:
            new_model = convert(
                self.source, requested_opset, registry_of_target, bounds, level, keeps_weights, observation,
                omitted,
            )  # fmt: skip
            write_for(new_model, resolved_target)
            return new_model

        converted = OnnxModel(
            convert_source(False), source=self.source, registry=used_registry, trusted=self.trusted
        )
        converted._convert, converted.target = convert_source, resolved_target
        return converted

    def save(
        self,
        target: str | bytes | os.PathLike[str] | IO[bytes],
        *,
        external_data: bool | str | os.PathLike[str] | None = None,
        weights: str = "copy",
        prepack: bool = False,
        layout: str = "portable",
    ) -> None:
        """Write the model to a path or a binary file object; see `Program.save`.

        Raises:
            ModelFileError: the target cannot be written. No partial file remains, and an existing model
                stays.
            TargetError: `external_data` is asked for, and the consumer of the model takes none.
        """
        check_saving(self.target, external_data)
        # A file can only refer to weights that no pass has changed, so convert again without such passes.
        model = self.model if weights != "reference" or self._convert is None else self._convert(True)
        saving.save(model, target, external_data, prepack, layout, weights)

    def plan(
        self,
        *,
        mode: str = "inference",
        budget: int | None = None,
        dimensions: Mapping[str, int] | None = None,
        alignment: int = ALIGNMENT,
    ) -> Plan:
        """Plan execution order, lifetimes, results in place, and memory offsets; see docs/plan.md.

        Args:
            mode: `"inference"`, or `"train"` for a training graph.
            budget: bytes that values and weights may take; `Plan.fits` says whether they do.
            dimensions: sizes of symbolic dimensions; without them sizes stay formulas.
            alignment: a power of two that every offset is a multiple of.

        Raises:
            PlanError: a value has no size that is known before the model runs.
            DimensionError: the model is not valid for the sizes.
            UsageError: an argument is none of these.
        """
        return make_plan(self.model, mode=mode, budget=budget, dimensions=dimensions, alignment=alignment)

    def report(self, path: str | bytes | os.PathLike[str] | None, **options: Any) -> Report:
        """Write a page about the model, beside the file that it was converted from; see docs/report.md.

        Args:
            path: the HTML file; None writes nothing.
            options: `title`, `opsets`, `compare`, `latency` and `progress`, as for `export_report`.

        Raises:
            OpsettaError: the model has no operator of ONNX.
            OpsetError: an opset that opsetta does not write.
            ModelFileError: the file cannot be written.
        """
        from .report.collecting import Choices
        from .report.converted import report_conversion

        if self.opset is None:
            raise OpsettaError("the model has no ONNX operators, so there is nothing to report")
        bounds = bounds_of(self.trusted)

        def lower(opset: int, observation: Observation) -> ir.Model:
            return convert(self.source, opset, self.registry, bounds, None, False, observation)

        subject = self.source, self.opset, self._convert, lower, self.target
        return report_conversion(path, *subject, Choices(**options))

    def run(self, inputs: Mapping[str, object]) -> list[Any]:
        """Run the model with onnxruntime on arrays by input name.

        Args:
            inputs: numpy arrays, torch tensors, numbers, nested lists or onnxruntime values.

        Returns:
            numpy arrays in the order of the outputs; lists and dicts for sequences and maps.

        Raises:
            UsageError: the arrays do not match the inputs.
            DimensionError: the model is not valid for a size.
            InferenceError: onnxruntime is not installed, or refuses the model or the inputs.
        """
        return self._runner.arrays(inputs)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the model with onnxruntime on arrays in the order of the inputs, or by the inputs' names.

        Takes numpy arrays, torch tensors and numbers; only torch tensors need torch.

        Returns:
            The output, or a tuple of several: torch tensors if an argument is one, else numpy arrays.

        Raises:
            UsageError: the arguments do not match the inputs.
            DimensionError: the model is not valid for a size.
            InferenceError: onnxruntime is not installed, or refuses the model or the inputs.
        """
        return self._runner.call(args, kwargs)

    def verify(
        self,
        args: tuple[object, ...] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        model: Callable[..., object] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> VerificationReport:
        """Compare with the file that the model was converted from, or with a PyTorch model.

        Args:
            args: the arrays to run with, in the order of the inputs.
            kwargs: arrays by the names of their inputs.
            model: a PyTorch model that takes the same arguments and returns the outputs in order. By default
                the model as it was read runs in onnxruntime, at its own opset.
            rtol: relative tolerance; by default that of the output's element type.
            atol: absolute tolerance, likewise.

        Returns:
            A `VerificationReport`, the errors per output.

        Raises:
            VerificationError: an output is outside tolerance; the message has the worst output, error and
                index.
            UsageError: the arguments do not match the inputs.
            DimensionError: the model is not valid for a size.
            OpsettaError: there is no model to compare with.
            InferenceError: onnxruntime is not installed, or refuses one of the models or the inputs.
        """
        # One argument need not be in a tuple.
        positional = tuple(args) if isinstance(args, (tuple, list)) else () if args is None else (args,)
        inputs = self._runner.inputs
        feed = inputs.feed(inputs.bind(positional, kwargs or {}))
        if model is not None:
            from .running.file_verification import eager_results

            return self._runner.verify(feed, eager_results(model, positional, kwargs or {}), rtol, atol)
        if self.source is self.model:
            raise OpsettaError(
                "the model was not converted, so there is nothing to compare it with: convert it with "
                "lower(opset), or pass a PyTorch model as model="
            )
        expected = Runner.of_model(self.source).arrays(inputs.bind(positional, kwargs or {}))
        return self._runner.verify(feed, expected, rtol, atol, expected_by="the original")

    @functools.cached_property
    def _runner(self) -> Runner:
        return Runner.of_model(self.model)

    def __repr__(self) -> str:
        nodes = self.model.graph.num_nodes()
        names = f"inputs={self.input_names}, outputs={self.output_names}"
        return f"OnnxModel(opset={self.opset}, {names}, nodes={nodes})"
