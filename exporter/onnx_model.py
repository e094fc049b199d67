"""`OnnxModel`: an ONNX model read from a file, which can be converted to other opsets and run."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from ..registration import OpsettaError, Registry
from ..registration.functions.registry import registry_or_default
from .devices.plan.plannable import PlannableModel
from .files.garbage_collection import rare_collections
from .files.reading import bounds_of
from .files.reading.carried import carried_by, to_proto

# Reading a file needs none of the modules of the methods, which take longer to import than it.
if TYPE_CHECKING:
    from ..passes.quantization import Quantization
    from .calibration.batches import Data
    from .calibration.static_quantization import QuantizationReport
    from .devices.model_check import ModelCheck
    from .devices.targets.target import Target
    from .editing.interface import Size
    from .inspection.differences import ModelDifferences
    from .inspection.node_costs import ModelCosts
    from .lowering.driver import Observation
    from .report.records import Report
    from .running.comparisons.verification import OutputReport, VerificationReport
    from .running.runner import Runner


class OnnxModel(PlannableModel):
    """A model of ONNX operators at one opset.

    Attributes:
        model: the ONNX model, an `onnx_ir.Model`.
        source: the model as it was read; `lower` always converts this one.
        registry: the default symbolic functions for conversion.
        trusted: whether `lower` works without bounds on memory and time, for models from trusted sources.
        target: the runtime or device that it was written for, or None.
        quantization: what `quantize_weights` did to it, or None.
        accuracy: the errors that `quantize` measured, or None.
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
        self.accuracy: QuantizationReport | None = None
        self._convert: Callable[..., ir.Model] | None = None
        """Converts the source again, optionally without passes that change weights, or observed."""

    @property
    def opset(self) -> int | None:
        """The opset of its ONNX operators; None if it has none."""
        from .lowering.conversion.prepared_models.preparation import opset_of

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
        shapes: Mapping[str, Sequence[Size]] | None = None,
        dims: Mapping[str, int] | None = None,
        dynamic: str = "",
        rename: Mapping[str, str] | None = None,
        standard: bool = False,
    ) -> OnnxModel:
        """The model at another opset, higher or lower, and with other sizes and names on request.

        Args:
            opset: the opset to write; by default the target's, or 17.
            optimize: "none", "basic" or "full", as for `export`; by default "full" at another opset, while a
                model that has the opset stays as it is.
            target: the runtime or device to write for, as for `export`.
            shapes: new shapes of inputs, `{"images": (1, 3, 640, 640)}`; a size may be the name of a
                dimension. The names are those of the model as it was read.
            dims: sizes for named dimensions, `{"batch": 1}`.
            dynamic: a name for the leading dimension of the inputs, which becomes dynamic. onnxruntime checks
                that a batch gives the same results as its entries one by one.
            rename: new names of inputs and outputs, by the present ones.
            standard: write onnxruntime's own operators (`com.microsoft`) as ONNX's.

        Raises:
            UsageError: `optimize` or `target` has an unknown value, or the model lacks a name.
            TargetError: lists everything that the target does not support.
            OpsetError: an opset that opsetta does not write.
            UnsupportedOperatorsError: lists every operator that the opset cannot express, and its nodes.
            GraphError: the model exceeds the bounds for models that are not `trusted`, or is not valid for
                the sizes.
        """
        from .converting import prepare_conversion

        changes = (shapes or {}, dims or {}, dynamic, rename or {})
        used_registry = registry if registry is not None else self.registry
        source, convert_source, resolved_target = prepare_conversion(
            self.source, opset, used_registry, optimize, target, changes, standard, bounds_of(self.trusted)
        )
        converted = OnnxModel(
            convert_source(False), source=source, registry=used_registry, trusted=self.trusted
        )
        converted._convert, converted.target = convert_source, resolved_target
        return converted

    def extract(self, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> OnnxModel:
        """The part of the model between some of its values.

        Args:
            inputs: names of values to feed; by default the inputs that the part needs.
            outputs: names of values to return; by default the outputs that depend on `inputs`.

        Raises:
            UsageError: there is no such value, or the outputs need others than these inputs.
            GraphError: the element type of an input is unknown.
        """
        from .editing.parts import extract_part

        return self._with(extract_part(self.model, inputs, outputs, bounds_of(self.trusted)))

    def join(
        self,
        second: OnnxModel,
        connect: Mapping[str, str],
        *,
        keep_outputs: bool = False,
        opset: int | None = None,
    ) -> OnnxModel:
        """This model and another as one.

        Args:
            connect: inputs of the second model, by the outputs of this one that feed them.
            keep_outputs: whether connected outputs stay outputs.
            opset: the opset of the result; by default the higher one of both. A model at another opset is
                converted first.

        Raises:
            UsageError: there is no such output or input, their types differ, or the models use other
                versions of a domain or of a function.
            UnsupportedOperatorsError: the opset cannot express one of the models.
        """
        from .editing.parts import join_models

        is_trusted = self.trusted and second.trusted
        limits = bounds_of(is_trusted)
        joined = join_models(self.model, second.model, connect, keep_outputs, opset, self.registry, limits)
        return self._with(joined, is_trusted)

    def edit(
        self, *, drop_outputs: Collection[str] = (), constants: Mapping[str, object] | None = None
    ) -> OnnxModel:
        """The model without some outputs and what only they need, and with some inputs fixed.

        Args:
            drop_outputs: names of outputs.
            constants: the value of each input to fix: a number for all elements, or an array.

        Raises:
            UsageError: there is no such input or output, no output remains, or a value does not fit.
        """
        from .editing.parts import edit_interface

        return self._with(edit_interface(self.model, drop_outputs, constants))

    def preprocess(self, **pixels: Any) -> OnnxModel:
        """The model with the pixels of an image as its input, under the same name.

        Args:
            pixels: fields of `PixelInput`: `dtype`, `layout`, `maximum`, `mean`, `std`,
                `resizes` and `size`.

        Raises:
            UsageError: a field has an unknown value.
            GraphError: the model has no single image input, or no sizes to resize to.
        """
        from ..passes.realizers.model_interface.image_interface import AddPixelInput, PixelInput
        from .editing.rewrite import rewrite

        step = AddPixelInput(PixelInput(**pixels), registry_or_default(self.registry))
        return self._with(rewrite(self.model, [step], self.trusted))

    def postprocess(self, step: str, count: int | None = None, **boxes: Any) -> OnnxModel:
        """The model with probabilities, classes, largest scores or boxes in place of its first output.

        Args:
            step: `"softmax"`, `"argmax"` or `"topk"`, over the last axis, or `"nms"` for a detector.
            count: how many of `"topk"`, by default five or all, or of each class of `"nms"`, by default 100.
            boxes: fields of `DetectedBoxes` for `"nms"`: `iou`, `score`, `coordinates` and `objectness`.

        Raises:
            UsageError, GraphError: the step is unknown, or does not fit the outputs or their names.
        """
        from ..passes.realizers.model_interface.image_interface import output_pass
        from .editing.rewrite import rewrite

        steps = [output_pass(step, registry_or_default(self.registry), count, boxes)]
        return self._with(rewrite(self.model, steps, self.trusted))

    def convert_types(self, dtype: str, *, keep_io: bool = True, exclude: Collection[str] = ()) -> OnnxModel:
        """The model with weights and activations in half precision.

        Weights beyond the range of the type become its largest number, with a warning that names them.

        Args:
            dtype: `"fp16"`, `"bf16"` or `"fp32"`.
            keep_io: whether inputs and outputs keep their element types.
            exclude: operators or nodes that compute in their present type, by name.

        Raises:
            UsageError: `dtype` has an unknown value, or no node has a name in `exclude`.
            GraphError: the opset cannot cast to the type, or the type of a value is unknown.
            TargetError: the target of the model does not support the type.
        """
        from .devices.targets.target_problems import check_model
        from .editing.rewrite import convert_element_types

        converted = self._with(convert_element_types(self.model, dtype, keep_io, exclude, self.trusted))
        if self.target is not None:
            check_model(converted.model, self.target)
            converted.target = self.target
        return converted

    def quantize(
        self, data: Data, *, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,), **scheme: Any
    ) -> OnnxModel:
        """The model with weights and activations of 8 or 16 bits; see docs/calibration.md.

        onnxruntime finds the ranges of activations on calibration data. One batch in five is left out, to
        measure the errors in the result's `accuracy`.

        Args:
            data: an .npz file with an array of samples for each input; a folder of .npy, .npz or image files;
                or batches, or a function that returns them: mappings by input name, sequences or arrays.
            mean: of each channel of images, whose pixels are divided by 255 first.
            std: the standard deviation of each channel.
            scheme: fields of `QuantizationScheme`: `form`, `activations`, `weights`, `per_channel`,
                `symmetric`, `method`, `exclude`, `equalize`, `reduce_range`, `weight_rounding`, `max_loss`
                and `loss`; by default those of the target of the model.

        Raises:
            UsageError: the data or the scheme does not fit the model, or `max_loss` cannot be reached.
            InferenceError: onnxruntime is not installed, or cannot run or quantize the model.
            TargetError: the target of the model does not support the result.
        """
        from .calibration.batches import read_batches, split_batches
        from .calibration.scheme import QuantizationScheme
        from .calibration.static_quantization import quantize_model
        from .devices.targets.target_problems import check_model

        preferred = {} if self.target is None else dataclasses.asdict(self.target.quantization)
        complete_scheme = QuantizationScheme.of(scheme, preferred)
        batches, held_out = split_batches(read_batches(data, self._runner.inputs, mean, std))
        model, accuracy = quantize_model(self.model, complete_scheme, batches, held_out, self.trusted)
        quantized = self._with(model)
        quantized.accuracy = accuracy
        if self.target is not None:
            check_model(model, self.target)
            quantized.target = self.target
        return quantized

    def _with(self, model: ir.Model, trusted: bool | None = None) -> OnnxModel:
        return OnnxModel(model, registry=self.registry, trusted=self.trusted if trusted is None else trusted)

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
            TargetError: `external_data` is requested, but the target of the model does not support it.
        """
        from .devices.prepack.model_saving import save
        from .devices.targets.state_inputs import without_state_defaults

        if self.target is not None:
            self.target.check_saving(external_data)
        # A file can only refer to weights that no pass has changed, so convert again without such passes.
        model = self.model if weights != "reference" or self._convert is None else self._convert(True)
        save(without_state_defaults(model, self.target), target, external_data, prepack, layout, weights)

    def report(self, path: str | bytes | os.PathLike[str] | None, **options: Any) -> Report:
        """Write a page that compares the model with the file that it was converted from; see docs/report.md.

        Args:
            path: the HTML file; None writes nothing.
            options: `title`, `opsets`, `compare`, `latency` and `progress`, as for `export_report`.

        Raises:
            OpsettaError: the model has no operator of ONNX.
            OpsetError: an opset that opsetta does not write.
            ModelFileError: the file cannot be written.
        """
        from .lowering.conversion.convert_model import convert
        from .report.collecting import Choices
        from .report.converted import report_conversion

        if self.opset is None:
            raise OpsettaError("the model has no ONNX operators, so there is nothing to report")
        bounds = bounds_of(self.trusted)

        def lower(opset: int, observation: Observation) -> ir.Model:
            return convert(self.source, opset, self.registry, bounds, None, False, observation)

        subject = self.source, self.opset, self._convert, lower, self.target
        return report_conversion(path, *subject, Choices(**options))

    def costs(self) -> ModelCosts:
        """Shapes, multiplications and weights of all nodes, and their sums."""
        from .inspection.node_costs import model_costs
        from .lowering.conversion.prepared_models.preparation import source_of

        return model_costs(source_of(self.model, bounds_of(self.trusted)))

    def differences(self, second: OnnxModel, *, names: bool = False) -> ModelDifferences:
        """What differs in another model: nodes by operator, attributes and shapes, and weights.

        Args:
            names: whether to compare the names of nodes and values, too.
        """
        from .inspection.differences import find_differences

        return find_differences(self.model, second.model, bounds_of(self.trusted), names=names)

    def compare_layers(
        self,
        second: OnnxModel,
        inputs: Mapping[str, np.ndarray],
        *,
        runtimes: tuple[str, str] = ("onnxruntime", "onnxruntime"),
    ) -> tuple[OutputReport, ...]:
        """The differences of all tensors that have the same name in both models, in order.

        Args:
            second: another model, or this one, to compare two runtimes.
            runtimes: what runs this model, and the second: `"onnxruntime"`, `"reference"`
                (`onnx.reference`) or `"openvino"`.

        Raises:
            UsageError: the models have other numbers of inputs, no name in common, or there is no such
                runtime.
            InferenceError: a runtime is not installed, or refuses its model.
        """
        from .inspection.layers import compare_layers

        bounds = bounds_of(self.trusted)
        return compare_layers(self.model, second.model, inputs, bounds, runtimes=runtimes)

    def reduce(self, fails: Callable[[OnnxModel], bool]) -> OnnxModel:
        """A small part of the model for which `fails` is still true.

        Raises:
            UsageError: the whole model does not fail.
        """
        from .inspection.reduction import reduce_model

        bounds = bounds_of(self.trusted)
        return self._with(reduce_model(self.model, lambda part: fails(self._with(part)), bounds))

    @rare_collections()
    def check(self, *, run: bool = False) -> ModelCheck:
        """Check the nodes, which targets support the model, and on request whether onnxruntime runs it."""
        from .devices.model_check import check_everywhere
        from .lowering.conversion.source_validity import invalid_nodes_of_file

        invalid = invalid_nodes_of_file(self.model, bounds_of(self.trusted))
        return check_everywhere(self.model, invalid, run=run)

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
        values = inputs.bind(positional, kwargs or {})
        if model is not None:
            from .running.comparisons.file_verification import eager_results

            expected = eager_results(model, positional, kwargs or {})
            return self._runner.verify(inputs.feed(values), expected, rtol, atol)
        if self.source is self.model:
            advice = "convert it with lower(opset), or pass a PyTorch model as model="
            raise OpsettaError(f"there is nothing to compare it with, the model was not converted: {advice}")
        from .running.comparisons.original_comparison import compare_with_original

        return compare_with_original(self._runner, self.source, values, rtol, atol)

    @functools.cached_property
    def _runner(self) -> Runner:
        from .running.runner import Runner

        return Runner.of_model(self.model)

    def __repr__(self) -> str:
        nodes = self.model.graph.num_nodes()
        names = f"inputs={self.input_names}, outputs={self.output_names}"
        return f"OnnxModel(opset={self.opset}, {names}, nodes={nodes})"
