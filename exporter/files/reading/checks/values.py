"""Checks what a file declares about its values: types, sizes, metadata."""

from __future__ import annotations

from typing import Any

import onnx

from .....registration import ModelFileError
from ..names import quoted
from .metadata import check_entries, merge_entries
from .tensor_contents import MAXIMUM_RANK, check_element_type

MAXIMUM_DIMENSION_NAME = 1000
"""Bound on the length of a dimension's name, which is written for every value that has it."""


def check_value(info: onnx.ValueInfoProto, shown: str) -> None:
    """Refuse an unknown type, or one that onnx-ir cannot represent.

    A negative size and an empty name mean an unknown size.

    Raises:
        ModelFileError: the type is invalid. The message names the value as `shown`.
    """
    check_entries(info.metadata_props, shown)
    check_type(info.type, shown)


def check_type(kind: onnx.TypeProto, shown: str) -> None:
    """See `check_value`."""
    while True:
        which = kind.WhichOneof("value")
        if which in ("tensor_type", "sparse_tensor_type"):
            _check_tensor_type(getattr(kind, which), shown)
            return
        if which is None:
            if kind.denotation:
                raise ModelFileError(f"{shown} has a denotation, but no type")
            return
        if which not in ("sequence_type", "optional_type"):
            name = which.removesuffix("_type")
            raise ModelFileError(f"{shown} has a type that onnx-ir does not support: {name}")
        inner = getattr(kind, which)
        if not inner.HasField("elem_type") or inner.elem_type.WhichOneof("value") is None:
            raise ModelFileError(f"{shown} is a {which.removesuffix('_type')} of an undeclared type")
        kind = inner.elem_type


def _check_tensor_type(tensor: Any, shown: str) -> None:
    if tensor.elem_type:
        check_element_type(tensor.elem_type, shown)
    else:
        # Set explicitly although it is the default: if unset, writing the model loses the shape.
        tensor.elem_type = onnx.TensorProto.UNDEFINED
    if len(tensor.shape.dim) > MAXIMUM_RANK:
        raise ModelFileError(f"{shown} has {len(tensor.shape.dim)} dimensions, more than {MAXIMUM_RANK}")
    for dim in tensor.shape.dim if tensor.HasField("shape") else ():
        if len(dim.dim_param) > MAXIMUM_DIMENSION_NAME:
            raise ModelFileError(
                f"{shown} has a dimension with a name of {len(dim.dim_param)} characters, more than "
                f"{MAXIMUM_DIMENSION_NAME}"
            )
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
        elif dim.WhichOneof("value") == "dim_param" and not dim.dim_param:
            dim.ClearField("dim_param")


def check_agreement(info: onnx.ValueInfoProto, tensor: onnx.TensorProto, shown: str) -> None:
    """Refuse a declared type that differs from the initializer."""
    which = info.type.WhichOneof("value")
    if which is None:
        return
    if which != "tensor_type":
        raise ModelFileError(f"{shown} is a tensor, but is declared with another type")
    stated = info.type.tensor_type
    if stated.elem_type not in (onnx.TensorProto.UNDEFINED, tensor.data_type):
        raise ModelFileError(f"{shown} has an element type that differs from its declaration")
    if not stated.HasField("shape"):
        return
    dims = stated.shape.dim
    if len(dims) != len(tensor.dims) or any(
        dim.HasField("dim_value") and dim.dim_value != size
        for dim, size in zip(dims, tensor.dims, strict=True)
    ):
        raise ModelFileError(f"{shown} has a shape that differs from its declaration")


def merge_declarations(source: onnx.ValueInfoProto, target: onnx.ValueInfoProto, shown: str) -> None:
    """Merge another declaration of an input or output into its own.

    If both declare sizes, those of the target stay.

    Raises:
        ModelFileError: the two contradict each other in element type or metadata.
    """
    if source == target:
        return
    merge_entries(source, target, shown)
    if source.doc_string and not target.doc_string:
        target.doc_string = source.doc_string
    if source.type.WhichOneof("value") is None:
        return
    if target.type.WhichOneof("value") is None:
        target.type.CopyFrom(source.type)
    elif _leaf(source.type) != _leaf(target.type):
        raise ModelFileError(f"{shown} is declared with two types")
    else:
        _unite_shapes(source.type, target.type)


def _leaf(kind: onnx.TypeProto) -> tuple[Any, ...]:
    """A type without sizes."""
    path: list[Any] = []
    while (which := kind.WhichOneof("value")) is not None:
        path.append(which)
        elem_type = getattr(kind, which).elem_type
        if isinstance(elem_type, int):
            return (*path, elem_type)
        kind = elem_type
    return tuple(path)


def _unite_shapes(source: onnx.TypeProto, target: onnx.TypeProto) -> None:
    stated = source.HasField("tensor_type") and source.tensor_type.HasField("shape")
    if stated and not target.tensor_type.HasField("shape"):
        target.tensor_type.shape.CopyFrom(source.tensor_type.shape)


def declarations_by_name(infos: Any, title: str) -> dict[str, onnx.ValueInfoProto]:
    """The declarations in `value_info`, by name; duplicates must be identical."""
    found: dict[str, onnx.ValueInfoProto] = {}
    for info in infos:
        check_value(info, f"value {quoted(info.name)}")
        if found.setdefault(info.name, info) != info:
            raise ModelFileError(f"{title} declares {quoted(info.name)} twice, differently")
    return found
