"""`CalibratedModel`: a float model that onnxruntime's quantizers quantize, with ranges that are kept."""

from __future__ import annotations

import inspect
import io
import logging
import pathlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import IdentityEliminationPass

from ...passes.quantization.step_operators import arithmetic_before_steps
from ...registration import InferenceError, OpsettaError
from ...registration.printable import one_line
from ..files.reading import ModelFolder, bounds_of, read_model, to_ir
from ..files.writing import save
from ..lowering.conversion.convert_model import convert
from ..lowering.conversion.prepared_models.preparation import source_of
from .batches import Batches
from .scheme import FIRST_16_BIT_OPSET, QuantizationScheme
from .weight_rounding import WeightRounder

if TYPE_CHECKING:
    from onnxruntime.quantization import QuantType


class CalibratedModel:
    """A float model, its calibration data, and a folder for temporary files.

    Attributes:
        model: the float model, whose nodes get names.
        original: its file.
        quantized: the file of the last quantized model.
        folder: the folder of the files.
    """

    def __init__(self, model: ir.Model, scheme: QuantizationScheme, batches: Batches, folder: pathlib.Path):
        # onnxruntime finds nodes to exclude by their names.
        for position, node in enumerate(model.graph):
            node.name = node.name or f"{node.op_type}_{position}"
        if scheme.form == "qoperator":
            _separate_operands_of_where(model.graph)
        self.model, self.folder = model, folder
        self.original, self.quantized = folder / "float.onnx", folder / "quantized.onnx"
        self._scheme, self._batches = scheme, batches
        self._rounder: WeightRounder | None = None
        if scheme.weight_rounding == "calibrated":
            self._rounder = WeightRounder(model, batches, scheme.limits_of_weights)
        # An error that is small before a Cast to an integer may be a whole number after it.
        steps = arithmetic_before_steps(model.graph)
        self._excluded = [
            str(node.name)
            for node in model.graph
            if node in steps or {node.op_type, node.name}.intersection(scheme.exclude)
        ]
        save(model, self.original)

    def quantizable_nodes(self) -> list[ir.Node]:
        """The nodes that onnxruntime can quantize and that need not stay in float."""
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        excluded = frozenset(self._excluded)
        return [
            node
            for node in self.model.graph
            if node.name not in excluded
            and (node.op_type in QDQRegistry or node.op_type in QLinearOpsRegistry)
        ]

    def quantize(self, form: str, float_nodes: Collection[str] = ()) -> ir.Model:
        """The quantized model; the first call also calibrates.

        Args:
            form: "qdq" or "qoperator".
            float_nodes: names of more nodes that stay in float.

        Raises:
            InferenceError: onnxruntime is not installed, or cannot run or quantize the model.
        """
        with quiet_quantizer():
            self._quantize_file(form, float_nodes)
        bounds = bounds_of(True)
        message = read_model(self.quantized, bounds)
        # The quantizer removes values, but not their entries in value_info.
        message.graph.ClearField("value_info")
        result = to_ir(message, ModelFolder.of(self.quantized), bounds)
        # The temporary files go away, so the weights are read now.
        ir.external_data.load_to_model(result)
        IdentityEliminationPass()(result)
        opset = self.model.graph.opset_imports[""]
        if result.graph.opset_imports.get("", opset) != opset:
            # onnxruntime raises the opset for activations of 16 bits; its own operators do not need it.
            result = convert(result, opset, bounds=bounds, level="none", keeps_weights=True)
        if self._rounder is not None:
            self._rounder.round(result)
        # onnxruntime's tools see only tensors of declared types, and infer none for its own operators.
        save(source_of(result, bounds), self.quantized)
        return result

    def _quantize_file(self, form: str, float_nodes: Collection[str]) -> None:
        from onnxruntime import quantization

        scheme, opset = self._scheme, self.model.graph.opset_imports[""]
        types: dict[str, QuantType] = {
            entry: getattr(quantization.QuantType, f"Q{entry.replace('int', 'Int').replace('uI', 'UI')}")
            for entry in (scheme.activations, scheme.weights)
        }
        method = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}[scheme.method]

        remaining = iter(self._batches)
        # onnxruntime takes readers of this class only, and asks for the batches one by one.
        members = {"get_next": lambda reader: next(remaining, None)}
        reader = type("Reader", (quantization.CalibrationDataReader,), members)()
        # Older releases of onnxruntime cannot keep the ranges, and calibrate again.
        parameters = inspect.signature(quantization.quantize_static).parameters
        cache = "calibration_cache_path"
        try:
            quantization.quantize_static(
                self.original,
                self.quantized,
                reader,
                quant_format=quantization.QuantFormat.QDQ
                if form == "qdq"
                else quantization.QuantFormat.QOperator,
                per_channel=scheme.per_channel,
                activation_type=types[scheme.activations],
                weight_type=types[scheme.weights],
                reduce_range=scheme.reduce_range,
                nodes_to_exclude=[*self._excluded, *float_nodes],
                calibrate_method=getattr(quantization.CalibrationMethod, method),
                extra_options={
                    "ActivationSymmetric": scheme.symmetric,
                    "WeightSymmetric": scheme.weights == "int8",
                    "UseQDQContribOps": scheme.activations.endswith("16") and opset < FIRST_16_BIT_OPSET,
                },
                **({cache: self.folder / "ranges.json"} if cache in parameters else {}),
            )
        except OpsettaError:
            raise
        # onnxruntime's quantizers raise errors of many types.
        except Exception as error:
            raise InferenceError(f"onnxruntime cannot quantize the model: {one_line(error)}") from error


def _separate_operands_of_where(graph: ir.Graph) -> None:
    """Read the float operands of each Where through Identity.

    onnxruntime copies Where also where its operand is a result that became an integer, and then writes no
    float value for it. For Identity, it writes one.
    """
    for node in [node for node in graph if node.op_type == "Where" and not node.domain]:
        for index, value in enumerate(node.inputs):
            if index and value is not None and value.producer() is not None:
                identity = ir.node("Identity", [value], name=f"{node.name}_operand_{index}")
                identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
                graph.insert_before(node, identity)
                node.replace_input_with(index, identity.outputs[0])


@contextmanager
def quiet_quantizer() -> Iterator[None]:
    """Silence onnxruntime's quantizers: they print their progress, and advise steps that were done before."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
