"""`SourceModel`: a captured model without an opset. `Program`: that model at one opset."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from ..passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ..registration import FIXED_WEIGHTS, Registry, default_registry, load_entry_points, registry_or_default
from .captured_graph import dimensions as sizes
from .captured_graph import specializations as decisions
from .captured_graph.capture import Capture, Interface
from .captured_graph.stages import time_stage
from .devices.plan.plannable import PlannableModel
from .devices.prepack.model_saving import save
from .devices.targets.equivalent_forms import with_forms
from .devices.targets.load_target import resolve_target
from .devices.targets.state_inputs import without_state_defaults
from .devices.targets.target import Target
from .devices.targets.write_for_target import write_for
from .files.garbage_collection import rare_collections
from .files.graph_file.decompositions import Decompositions, collect
from .files.graph_file.equality import difference
from .files.graph_file.graph_reader import SourceFile
from .files.graph_file.writing import write_source
from .files.reading import bounds_of
from .files.reading.carried import serialize
from .files.weights.stored_types import cast_stored_weights
from .lowering import source_dialect as lowering
from .lowering.driver import Observation
from .running.captured_calls import CapturedCalls
from .running.model_inputs import Feed
from .running.runner import Runner
from .torch_boundary.requirements import need_torch

if TYPE_CHECKING:
    from .report.records import Report
    from .running.comparisons.mismatch import Mismatch
    from .running.comparisons.verification import VerificationReport


class SourceModel:
    """A captured model without an opset. Neither lowering nor saving it needs torch.

    Attributes:
        registry: the default symbolic functions for lowering.
    """

    def __init__(
        self,
        capture: Capture,
        *,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        decompose: lowering.Decompose | Decompositions | None = None,
        registry: Registry = default_registry,
    ):
        self._capture = capture
        self._given_input_names = list(input_names) if input_names is not None else None
        self._given_output_names = list(output_names) if output_names is not None else None
        self._decompositions = decompose
        self.registry = registry

    @classmethod
    def of(cls, file: SourceFile) -> SourceModel:
        """The model of a source file."""
        return cls(
            file.capture,
            input_names=file.given_inputs,
            output_names=file.given_outputs,
            decompose=file.decompositions,
        )

    @property
    def source(self) -> ir.Model:
        """The source graph, after the source passes."""
        return self._capture.source

    @property
    def interface(self) -> Interface:
        """How calls of the user's model map to the graph's inputs and outputs."""
        return self._capture.interface

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs of a lowered model, in order."""
        source_names = [value.name or "" for value in self.source.graph.inputs]
        requested_names = self._given_input_names or []
        return [*requested_names, *source_names[len(requested_names) :]]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs of a lowered model, in order, unless they clash."""
        requested_names = self._given_output_names or []
        return [*requested_names, *self._capture.output_names[len(requested_names) :]]

    @rare_collections()
    def lower(
        self,
        opset: int | None = None,
        *,
        registry: Registry | None = None,
        optimize: str | bool | None = None,
        target: str | os.PathLike[str] | Target | None = None,
    ) -> Program:
        """The model at an opset; arguments and errors are those of `export`."""
        used_registry, level, used_opset, consumer = self._settings(opset, registry, optimize, target)
        return Program(self, used_opset, used_registry, level, consumer)

    def _settings(
        self,
        opset: int | None,
        registry: Registry | None,
        optimize: str | bool | None,
        target: str | os.PathLike[str] | Target | None,
    ) -> tuple[Registry, str, int, Target | None]:
        """The registry, level, opset and target of a lowering, from the arguments of `lower`."""
        # The default registry is filled when the symbolic functions are imported.
        from .. import symbolics  # noqa: F401

        load_entry_points()
        used_registry = registry_or_default(registry if registry is not None else self.registry)
        level = check_level(DEFAULT_LEVEL if optimize is None else optimize)
        return used_registry, level, *resolve_target(opset, target)

    def _lower_graph(
        self,
        opset: int,
        registry: Registry,
        level: str,
        keep: Sequence[ir.Value] = (),
        keeps_weights: bool = False,
        target: Target | None = None,
        observation: Observation | None = None,
    ) -> lowering.LoweredModel:
        """Lower the graph at an opset, with the values of `keep` as further outputs."""
        decompose = self._decompositions
        lowered = lowering.lower(
            self.source,
            opset,
            with_forms(registry, target),
            input_names=self._given_input_names,
            output_names=self._given_output_names,
            default_output_names=self._capture.output_names,
            decompose=decompose.at(opset) if isinstance(decompose, Decompositions) else decompose,
            keep=keep,
            level=level,
            omitted_passes=target.conventions.omitted_passes if target is not None else (),
            kernels=target.conventions.kernels if target is not None else (),
            keeps_weights=keeps_weights,
            observation=observation,
            bounds=bounds_of(self._capture.trusted),
        )
        write_for(lowered.model, target)
        return lowered

    def report(
        self,
        path: str | bytes | os.PathLike[str] | None,
        opset: int | None = None,
        *,
        registry: Registry | None = None,
        optimize: str | bool | None = None,
        target: str | os.PathLike[str] | Target | None = None,
        **options: Any,
    ) -> Report:
        """Write a page about the model at an opset, also if the opset cannot express it; see docs/report.md.

        Args:
            path: the HTML file; None writes nothing.
            opset: the ONNX opset to write.
            registry: as for `export`.
            optimize: as for `export`.
            target: as for `export`.
            options: `title`, `opsets`, `compare`, `latency` and `progress`, as for `export_report`.
        """
        from .report.captured import Choices, report_capture

        used_registry, level, used_opset, consumer = self._settings(opset, registry, optimize, target)
        lower = functools.partial(self._lower_graph, registry=used_registry, level=level)
        return report_capture(path, self._capture, lower, used_opset, level, consumer, Choices(**options))

    def save_source(
        self,
        target: str | bytes | os.PathLike[str] | IO[bytes],
        *,
        weights: str = "inline",
        format: str | None = None,
    ) -> None:
        """Write the source graph to a file from which `opsetta.load` restores an equal graph.

        Args:
            target: a path, or a binary file object.
            weights: `"inline"`; `"external"`, in `<name>.<digest>.data` beside the file; or `"none"`, which
                stores a SHA-256 instead of each parameter and persistent buffer.
            format: `"binary"`, `"text"` or `"json"`; the default depends on the extension.

        Raises:
            ModelFileError: the format cannot store the graph, or the target cannot be written.
        """
        decompositions = self._decompositions
        if decompositions is None:
            decompositions = Decompositions()
        elif not isinstance(decompositions, Decompositions):
            decompositions = collect(self.source, self.registry, decompositions)
        write_source(
            self._capture,
            decompositions,
            target,
            given_inputs=self._given_input_names,
            given_outputs=self._given_output_names,
            weights=weights,
            format=format,
        )

    def difference(self, other: SourceModel) -> str | None:
        """A description of the first difference from another source model; None if they are equal."""
        names = (self._given_input_names, self._given_output_names)
        other_names = (other._given_input_names, other._given_output_names)
        if names != other_names:
            return f"the names given to inputs and outputs: {names} against {other_names}"
        return difference(self._capture, other._capture)

    def __repr__(self) -> str:
        nodes = self.source.graph.num_nodes()
        return f"SourceModel(inputs={self.input_names}, outputs={self.output_names}, nodes={nodes})"


class Program(PlannableModel):
    """An exported model at one opset, with the source graph that it was lowered from.

    Attributes:
        opset: the opset of `model`.
        model: the ONNX model, an `onnx_ir.Model`.
        source: the captured source graph, after the source passes; the same for every opset.
        registry: the symbolic functions it was lowered with.
        optimize: how far it was optimized, "none", "basic" or "full".
        target: the runtime or device that it was written for, or None.
        source_model: the capture itself, which can be saved and lowered to other opsets.
        trusted: whether lowering and planning work without bounds on memory and time.
        stages: the stages of the export, with their times and the memory of the process.
    """

    def __init__(
        self, source: SourceModel, opset: int, registry: Registry, optimize: str, target: Target | None = None
    ):
        self.source_model = source
        self._capture = source._capture
        self.trusted = self._capture.trusted
        self._calls = CapturedCalls(self._capture)
        self.registry = registry
        self.opset = opset
        self.optimize = optimize
        self.target = target
        with time_stage("lowering") as stages:
            self.model = source._lower_graph(opset, registry, optimize, target=target).model
        self.stages = [*self._capture.stages, *stages]

    @property
    def source(self) -> ir.Model:
        """The captured source graph."""
        return self.source_model.source

    @property
    def interface(self) -> Interface:
        """How calls of the user's model map to the graph's inputs and outputs."""
        return self.source_model.interface

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The ONNX model as a new protobuf message."""
        return serialize(self.model)

    @property
    def input_names(self) -> list[str]:
        """Names of the graph inputs that a caller feeds, in order."""
        count = len(self.source.graph.inputs)
        return [value.name or "" for value in list(self.model.graph.inputs)[:count]]

    @property
    def output_names(self) -> list[str]:
        """Names of the graph outputs, in order."""
        return [value.name or "" for value in self.model.graph.outputs]

    @property
    def dimensions(self) -> dict[str, sizes.Dimension]:
        """The dynamic dimensions by name, with the sizes for which the model is valid.

        A `Dimension` has `minimum`, `maximum` (or None), further `conditions` in Python's notation (`height %
        2 == 0`), and `restrictions`, each with its reason and the line of the model that causes it. Calling
        or verifying the program with other sizes raises an error.
        """
        return sizes.dimensions(self._declared_inputs(), self.source.metadata_props)

    @property
    def specializations(self) -> list[decisions.Specialization]:
        """The decisions on values that are fixed at those of the example; see docs/capture.md."""
        return decisions.read_specializations(self.source.metadata_props)

    def _declared_inputs(self) -> list[sizes.Input]:
        return sizes.inputs_of(self.source, self.input_names)

    @rare_collections()
    def lower(
        self,
        opset: int | None = None,
        *,
        registry: Registry | None = None,
        optimize: str | bool | None = None,
        target: str | os.PathLike[str] | Target | None = None,
    ) -> Program:
        """The same capture at another opset or for another target; nothing is traced again.

        Arguments and errors are those of `export`; by default with the registry and at the level of this
        program, and for no target.
        """
        level = self.optimize if optimize is None else optimize
        used_registry = self.registry if registry is None else registry
        return self.source_model.lower(opset, registry=used_registry, optimize=level, target=target)

    def save(
        self,
        target: str | bytes | os.PathLike[str] | IO[bytes],
        *,
        external_data: bool | str | os.PathLike[str] | None = None,
        weights: str = "copy",
        prepack: bool = False,
        layout: str = "portable",
    ) -> None:
        """Write the model to a path or a binary file object; docs/saving.md has the details.

        Links are followed, a replaced file keeps its permissions, and devices and FIFOs are written to
        directly.

        Args:
            external_data: True puts weights into `<name>.<digest>.data` beside the file. None does so above 2
                GB. A file name puts them into that file, which is replaced separately: readers must not open
                the model meanwhile.
            weights: `"copy"` writes all weights. `"reference"` refers to those that are in files in the
                model's folder or below it, as given to `export` or as external data of a loaded model, and
                writes the others as `external_data` says, where None is True; see docs/weights.md.
            prepack: write a folder with weights packed for this machine, which `load_session` opens;
                docs/prepack.md has the details.
            layout: with `prepack`, `"portable"`, or `"native"` for processors with equal instructions only.

        Raises:
            ModelFileError: the target cannot be written. No partial file remains, and an existing model
                stays.
            TargetError: `external_data` is requested, but the target of the model does not support it.
        """
        if self.target is not None:
            self.target.check_saving(external_data)
        model = self.model
        if weights == "reference" and FIXED_WEIGHTS not in self.source.metadata_props:
            # A graph can only refer to weights that no pass has changed.
            settings = self.opset, self.registry, self.optimize, (), True, self.target
            model = cast_stored_weights(self.source_model._lower_graph(*settings).model, self.opset)
        save(without_state_defaults(model, self.target), target, external_data, prepack, layout, weights)

    def save_source(
        self,
        target: str | bytes | os.PathLike[str] | IO[bytes],
        *,
        weights: str = "inline",
        format: str | None = None,
    ) -> None:
        """Write the source graph to a file; arguments and errors are those of `SourceModel.save_source`."""
        self.source_model.save_source(target, weights=weights, format=format)

    def report(self, path: str | bytes | os.PathLike[str] | None, **options: object) -> Report:
        """Write a page about this program; arguments and errors are those of `SourceModel.report`."""
        return self.source_model.report(
            path, self.opset, registry=self.registry, optimize=self.optimize, target=self.target, **options
        )

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the model with onnxruntime.

        Takes the arguments of the captured model, and returns torch tensors in the structure of its result. A
        model that was not captured from PyTorch takes and returns arrays, as `OnnxModel.__call__` says, and
        does not need torch.

        Raises:
            OpsettaError: the arguments do not have the structure of the example, or do not match the inputs;
                torch is not installed.
            DimensionError: the model is not valid for a size; see `dimensions`.
            InferenceError: onnxruntime refuses the model or the inputs.
        """
        if self.interface.input_specification is None:
            return self._runner.call(args, kwargs)
        need_torch("calling a program")
        from .running import calls

        results = self._runner.tensors(self._feed_of(args, kwargs)[1])
        interface = self._calls.interface
        # The last outputs are new values of buffers, which a call of the model does not return.
        return calls.restore(interface, results[: len(results) - len(interface.mutated)])

    def _feed_of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[list[object], Feed]:
        """The flat arguments of a call, and those that are graph inputs as onnxruntime values, checked."""
        leaves, values = self._calls.input_values(self.input_names, args, kwargs)
        return leaves, self._runner.inputs.feed(values)

    @functools.cached_property
    def _runner(self) -> Runner:
        if self.interface.input_specification is None:
            return Runner.of_model(self.model)
        return Runner.of_model(
            self.model,
            list(self.model.graph.inputs)[: len(self.source.graph.inputs)],
            metadata=self.source.metadata_props,
            complex_outputs=self.interface.complex_outputs,
        )

    def verify(
        self,
        args: tuple[object, ...] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> VerificationReport:
        """Compare onnxruntime with eager PyTorch, including the values written to mutated buffers.

        Args:
            args: the arguments to run with; by default the example of the capture.
            kwargs: the keyword arguments to run with.
            rtol: relative tolerance; by default that of the output's element type.
            atol: absolute tolerance, likewise.

        Returns:
            A `VerificationReport`, the errors per output.

        Raises:
            VerificationError: an output is outside tolerance; the message has the worst output, error and
                index.
            DimensionError: the model is not valid for a size; see `dimensions`.
            OpsettaError: there is no model to compare with, or the model itself fails on the arguments.
        """
        self._calls.check_comparable()
        need_torch("verifying a program")
        from .torch_boundary.boundary import boundary

        args, kwargs = self._calls.arguments(args, kwargs)
        with boundary():
            _, feed = self._feed_of(args, kwargs)
            expected = self._calls.eager_results(args, kwargs)
            return self._runner.verify(feed, expected, rtol, atol)

    def locate_mismatch(
        self,
        args: tuple[object, ...] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> Mismatch | None:
        """The first source node whose result is outside tolerance, or None.

        onnxruntime runs this program once with the intermediate results as further outputs, and PyTorch runs
        the captured graph once.

        Returns:
            A `mismatch.Mismatch` with the node's name, operator and module path, and the error; or None.
        """
        self._calls.check_comparable()
        need_torch("comparing with eager PyTorch")
        from .running.comparisons import mismatch
        from .torch_boundary.boundary import boundary

        args, kwargs = self._calls.arguments(args, kwargs)
        with boundary():
            leaves, feed = self._feed_of(args, kwargs)
            # The values become outputs, so that fusions that would remove them are left out.
            values = mismatch.comparable(self.source)
            model = self.source_model._lower_graph(self.opset, self.registry, self.optimize, values).model
            return mismatch.locate(self._capture, model, values, leaves, feed, rtol, atol)

    def __repr__(self) -> str:
        names = f"inputs={self.input_names}, outputs={self.output_names}"
        return f"Program(opset={self.opset}, {names}, nodes={self.model.graph.num_nodes()})"
