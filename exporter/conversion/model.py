"""`OnnxModel`: an ONNX model from any file, which can be written at other opsets and run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any

import onnx
import onnx_ir as ir

from ...registration import DEFAULT_OPSET, Registry
from .. import serialization
from ..runtime import Session
from .conversion import convert
from .preparation import opset_of


class OnnxModel:
    """A model in the ONNX dialect: its operators are ONNX's own, at one opset.

    Attributes:
        model: the ONNX model, an `onnx_ir.Model`.
        source: the model that it was first read as; what `lower` converts, whatever the opset of `model`.
        registry: the symbolic functions that it is converted with unless others are given.
    """

    def __init__(self, model: ir.Model, *, source: ir.Model | None = None, registry: Registry | None = None):
        self.model = model
        self.source = source if source is not None else model
        self.registry = registry
        self._session: Session | None = None

    @property
    def opset(self) -> int | None:
        """The opset of its ONNX operators; None where it has none."""
        return opset_of(self.model)

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model as a protobuf message, made anew at each access."""
        return ir.to_proto(self.model)

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs that a caller feeds, in order."""
        stored = self.model.graph.initializers
        return [value.name or "" for value in self.model.graph.inputs if value.name not in stored]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return [value.name or "" for value in self.model.graph.outputs]

    def lower(self, opset: int = DEFAULT_OPSET, *, registry: Registry | None = None) -> OnnxModel:
        """The model at another opset, higher or lower.

        Raises:
            OpsetError: an opset outside 7 to 26.
            UnsupportedOperatorsError: every operator that the opset cannot express, and where it stands.
        """
        used = registry if registry is not None else self.registry
        return OnnxModel(convert(self.source, opset, used), source=self.source, registry=used)

    def save(self, target: str | os.PathLike | IO[bytes], *, external_data: bool | None = None) -> None:
        """Write the model to a path or a binary file object; see `Program.save`.

        Raises:
            ModelFileError: the target cannot be written; nothing is left behind.
        """
        serialization.save(self.model, target, external_data=external_data)

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Run the model with onnxruntime on arrays by input name; numpy arrays in the order of the outputs.

        Raises:
            InferenceError: onnxruntime is not installed, or refuses the model or the inputs.
        """
        if self._session is None:
            self._session = Session(self.model)
        return [value.numpy() for value in self._session.run(inputs)]

    def __repr__(self) -> str:
        nodes = self.model.graph.num_nodes()
        names = f"inputs={self.input_names}, outputs={self.output_names}"
        return f"OnnxModel(opset={self.opset}, {names}, nodes={nodes})"
