"""`StoredWeights`: attaches weights from files to a model during capture, and to the captured graph."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from ....registration import KIND, CaptureError, ModelFileError, UsageError
from ....registration.integer_tensors import BoundedTensor
from ....registration.warning import warn
from ...files.graph_file.weights import given_tensor
from ...files.reading.names import listed, quoted
from ...files.weights.stored_tensors import FileTensor
from ...torch_boundary.state.attached_state import (
    FakeTensorMaker,
    attach_tensors,
    holders,
    tensor_over_buffer,
)
from ..tensor_kinds import without_data
from .matching import Match, match
from .opening import Weights, open_weights

_CONVERTED_AT_ONCE = 2**20
"""Tensors of at most this many bytes are converted before the capture, which may depend on their values.

Larger ones have no contents during the capture: converting them would take as much memory as the weights.
"""


@contextlib.contextmanager
def explaining_absence(model: object) -> Iterator[None]:
    """Explain a capture that fails because parameters or buffers of the model have no data.

    Raises:
        CaptureError: the capture failed; if parameters have no data, the message says how to pass weights.
    """
    try:
        yield
    except CaptureError as error:
        if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
            raise
        without_contents = [holder for holder in holders(model) if without_data(holder.tensor) is not None]
        if not without_contents:
            raise
        names = listed([quoted(holder.name) for holder in without_contents])
        raise CaptureError(
            f"{names} of the model {'have' if len(without_contents) > 1 else 'has'} no data "
            f"({without_data(without_contents[0].tensor)}): pass the weights, opsetta.export(..., "
            "weights='model.safetensors')"
        ) from error


def check_initializers(source: ir.Model) -> None:
    """Refuse a captured graph with initializers that have no data.

    Raises:
        CaptureError: an initializer has no data; the message names it.
    """
    for value in source.graph.initializers.values():
        raw = value.const_value.raw if value.const_value is not None else None
        if isinstance(raw, torch.Tensor) and (reason := without_data(raw)) is not None:
            raise CaptureError(f"'{value.name}' has no data to export: {reason}")


class StoredWeights:
    """The weights of a model from files or a mapping.

    Args:
        model: the model, which is not changed.
        weights: a checkpoint, or a mapping from names to tensors.

    Raises:
        UsageError: the model is not a module, or `weights` is neither a path nor a mapping.
        ModelFileError: the weights cannot be read, or do not fit the model.
    """

    def __init__(self, model: object, weights: Weights):
        if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
            raise UsageError(f"weights= needs an nn.Module as the model, not a {type(model).__name__}")
        self._model = model
        stored_tensors, label = _open_weights(weights)
        self._matches = match(model, stored_tensors, label)
        self._stand_ins: dict[int, torch.Tensor] | None = None
        converted = self._matches.converted
        if converted:
            conversions = ", ".join(sorted({conversion for _, conversion in converted}))
            names = listed([quoted(name) for name, _ in converted])
            warn(
                f"{label} have other element types than the model, and are converted ({conversions}): {names}"
            )

    def attach(self, *, convert_all: bool = False) -> contextlib.AbstractContextManager[None]:
        """Attach the weights to the model; files are mapped into memory, not read.

        Args:
            convert_all: whether to convert all weights of another element type, so that the model can run.
                Otherwise large ones have no contents, which is enough for a capture.
        """
        # A capture may be attempted several times; the weights are converted once.
        if not convert_all and self._stand_ins is not None:
            return self._explaining_conversion(self._stand_ins)
        make_fake = None if convert_all else FakeTensorMaker()
        stand_ins = {id(matched.tensor): _stand_in(matched, make_fake) for matched in self._matches.stored}
        stand_ins |= self._matches.computed
        # Tensors for one run are not kept: they take as much memory as the weights.
        if convert_all:
            return attach_tensors(stand_ins, self._model)
        self._stand_ins = stand_ins
        return self._explaining_conversion(stand_ins)

    @contextlib.contextmanager
    def _explaining_conversion(self, stand_ins: dict[int, torch.Tensor]) -> Iterator[None]:
        """Attach the weights; if a capture fails, add the names of weights without contents to the error."""
        try:
            with attach_tensors(stand_ins, self._model):
                yield
        except CaptureError as error:
            stored = self._matches.stored
            empty = [matched for matched in stored if without_data(stand_ins[id(matched.tensor)]) is not None]
            if not empty:
                raise
            names = listed([quoted(matched.names[0]) for matched in empty])
            raise CaptureError(
                f"{error}\n  - {names} will be converted to another element type when the program is saved. "
                "The capture cannot read the values of such weights. If the model's code reads them, give "
                "the model the element type of the file first, for example with model.half()"
            ) from error

    def refer_to_files(self, source: ir.Model) -> None:
        """Make the initializers of a captured graph refer to the files.

        Raises:
            CaptureError: an initializer has no data, and is not one of the weights.
        """
        contents = {name: matched.contents for matched in self._matches.stored for name in matched.names}
        for value in source.graph.initializers.values():
            tensor = value.const_value
            if tensor is None:
                continue
            stored = contents.get(tensor.name or "") if value.metadata_props.get(KIND) != "constant" else None
            # The capture may have folded or converted a weight; then its own tensor is the right one.
            if stored is not None and (stored.dtype, stored.shape) == (tensor.dtype, tensor.shape):
                value.const_value = _rename_tensor(stored, tensor.name)
        check_initializers(source)


def _open_weights(weights: object) -> tuple[Mapping[str, ir.TensorProtocol], str]:
    """Open `weights=`: the tensors by name, and a description of them for messages."""
    if isinstance(weights, (str, os.PathLike)):
        return open_weights(weights), f"the weights in {quoted(os.fspath(weights))}"
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights):
        raise UsageError(
            f"weights= must be a path, or a mapping from names to tensors, not {type(weights).__name__}"
        )
    for name, item in weights.items():
        if isinstance(item, torch.Tensor) and (reason := without_data(item)) is not None:
            raise ModelFileError(f"the weight {quoted(name)} has no data: {reason}")
    return {name: given_tensor(item, name) for name, item in weights.items()}, "the weights"


def _stand_in(matched: Match, make_fake: FakeTensorMaker | None) -> torch.Tensor:
    """Make the tensor that replaces a parameter or buffer during the capture."""
    contents = matched.contents
    dtype = tensor_adapters.to_torch_dtype(contents.dtype)
    shape = tuple(contents.shape.numpy())
    if isinstance(contents, FileTensor):
        # The tensor lies over the mapped file, so nothing is read.
        return tensor_over_buffer(contents.data, dtype, shape)
    raw = contents.raw
    if isinstance(raw, torch.Tensor):
        return raw
    is_lazy = isinstance(contents, ir.LazyTensor) and contents.nbytes > _CONVERTED_AT_ONCE
    if make_fake is not None and is_lazy:
        return make_fake(dtype, shape)
    return tensor_over_buffer(bytearray(contents.tobytes()), dtype, shape)


def _rename_tensor(tensor: ir.TensorProtocol, name: str | None) -> ir.TensorProtocol:
    if tensor.name == name:
        return tensor
    if isinstance(tensor, FileTensor):
        return tensor.renamed(name or "")
    if isinstance(tensor, BoundedTensor):
        return tensor.with_name(name or "")
    return ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name)
