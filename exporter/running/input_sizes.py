"""`InputSizes`: the sizes for which a model is valid, and the check of a call's shapes.

Imports neither onnx nor onnx-ir, so that a session needs only onnxruntime.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...registration import DIMENSIONS, DimensionError
from ..captured_graph.dimensions import SizeCheck

if TYPE_CHECKING:
    import onnx_ir as ir
    import onnxruntime

PRODUCER = "opsetta"
TENSOR = re.compile(r"tensor\((\w+)\)")
"""Matches onnxruntime's name of a tensor type, such as `tensor(float16)`."""


@dataclasses.dataclass(frozen=True)
class DeclaredInput:
    """An input as a model declares it.

    Attributes:
        name: the name of the input.
        dtype: the element type; None if it is unknown, or if the input is not a tensor.
        shape: for each axis its size, the name or expression of a dimension, or None if unknown; None if the
            rank is unknown.
        is_tensor: whether the input is a tensor, not a sequence, map or optional.
        is_optional: whether a caller may omit the input, because the model has a default value.
    """

    name: str
    dtype: ir.DataType | None
    shape: tuple[int | str | None, ...] | None
    is_tensor: bool = True
    is_optional: bool = False


class InputSizes:
    """The inputs of a model, and the sizes for which it is valid.

    Only in models that opsetta wrote must dimensions with equal names have equal sizes, and `2*n` be twice
    `n`. In other files names mean less: optimum writes `past_sequence_length + 1` for a mask of any length.

    Attributes:
        declared: the inputs by name, in order.
        names: the names of the inputs that a caller must pass.
        sizes: the check of sizes; None if only the declared numbers restrict sizes.

    Args:
        declared: the inputs in order.
        metadata: the metadata of the model.
        producer: the name of the program that wrote the model.

    Raises:
        DimensionError: the metadata does not have the documented form.
    """

    def __init__(
        self, declared: Sequence[DeclaredInput], metadata: Mapping[str, str], producer: str = PRODUCER
    ):
        self.declared = {entry.name: entry for entry in declared}
        self.names = [entry.name for entry in declared if not entry.is_optional]
        self.sizes: SizeCheck | None = None
        # In files of other exporters equal names need not mean equal sizes; see the class.
        if producer == PRODUCER or DIMENSIONS in metadata:
            checked = [entry for entry in declared if not entry.is_optional]
            self.sizes = SizeCheck([(entry.name, entry.shape or ()) for entry in checked], metadata)

    def check_sizes(self, shapes: Mapping[str, Sequence[int] | None]) -> None:
        """Refuse shapes for which the model is not valid.

        Args:
            shapes: the shapes by input name; None for an input that is not a tensor.

        Raises:
            DimensionError: a size differs from the declared one, or violates a restriction.
        """
        for name, shape in shapes.items():
            _check_shape(self.declared[name], shape)
        if self.sizes is not None:
            self.sizes([shapes[name] or () for name in self.names])


def sizes_of_session(session: onnxruntime.InferenceSession) -> InputSizes:
    """Return the inputs of an `onnxruntime.InferenceSession`, without their element types."""
    declared = [
        DeclaredInput(entry.name, None, tuple(entry.shape) or None, TENSOR.fullmatch(entry.type) is not None)
        for entry in session.get_inputs()
    ]
    facts = session.get_modelmeta()
    return InputSizes(declared, facts.custom_metadata_map, facts.producer_name)


def shape_of(value: object) -> Sequence[int] | None:
    """Return the shape of a value that `ModelInputs.feed` returned; None if it is not a tensor."""
    import onnxruntime

    if isinstance(value, np.ndarray):
        return tuple(value.shape)
    if isinstance(value, onnxruntime.OrtValue) and value.is_tensor():
        return tuple(value.shape())
    return None


def _check_shape(declared: DeclaredInput, shape: Sequence[int] | None) -> None:
    if declared.shape is None or shape is None:
        return
    remedy = ""
    if len(declared.shape) == len(shape):
        for dim, size in zip(declared.shape, shape, strict=True):
            # A negative size in a file means unknown.
            if type(dim) is int and 0 <= dim != size:
                break
        else:
            return
        remedy = "; to make a size dynamic, name it in dynamic_shapes of the export"
    shape_text = ", ".join("?" if dim is None else str(dim) for dim in declared.shape)
    raise DimensionError(
        f"input '{declared.name}' must have the shape [{shape_text}], not {list(shape)}{remedy}"
    )
