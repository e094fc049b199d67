"""Checks what a file declares about its values: types, sizes, metadata."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from google.protobuf.message import Message

from .....registration import ModelFileError
from .....registration.size_algebra.dimensions import MAXIMUM_DIMENSION_NAME
from ..names import quoted
from .metadata import check_entries, merge_entries
from .tensor_contents import MAXIMUM_RANK, check_element_type

_UNKNOWN_SIZES = ("", "?")


def check_value(info: onnx.ValueInfoProto, title: str) -> None:
    """Refuse an unknown type, or one that onnx-ir cannot represent.

    A negative size, an empty name and the name "?" mean an unknown size.

    Raises:
        ModelFileError: the type is invalid. The message names the value as `title`.
    """
    check_entries(info.metadata_props, title)
    check_type(info.type, title)


def check_type(declared_type: onnx.TypeProto, title: str) -> None:
    """See `check_value`."""
    while True:
        type_field = declared_type.WhichOneof("value")
        if type_field in ("tensor_type", "sparse_tensor_type"):
            _check_tensor_type(getattr(declared_type, type_field), title)
            return
        if type_field is None:
            if declared_type.denotation:
                raise ModelFileError(f"{title} has a denotation, but no type")
            return
        if type_field not in ("sequence_type", "optional_type"):
            name = type_field.removesuffix("_type")
            raise ModelFileError(f"{title} has a type that onnx-ir does not support: {name}")
        inner = getattr(declared_type, type_field)
        if not inner.HasField("elem_type") or inner.elem_type.WhichOneof("value") is None:
            raise ModelFileError(f"{title} is a {type_field.removesuffix('_type')} of an undeclared type")
        declared_type = inner.elem_type


def _check_tensor_type(tensor: Message, title: str) -> None:
    if tensor.elem_type:
        check_element_type(tensor.elem_type, title)
    else:
        # Set explicitly although it is the default: if unset, writing the model loses the shape.
        tensor.elem_type = onnx.TensorProto.UNDEFINED
    if len(tensor.shape.dim) > MAXIMUM_RANK:
        raise ModelFileError(f"{title} has {len(tensor.shape.dim)} dimensions, more than {MAXIMUM_RANK}")
    for dim in tensor.shape.dim if tensor.HasField("shape") else ():
        if len(dim.dim_param) > MAXIMUM_DIMENSION_NAME:
            raise ModelFileError(
                f"{title} has a dimension with a name of {len(dim.dim_param)} characters, more than "
                f"{MAXIMUM_DIMENSION_NAME}"
            )
        # Some exporters write -1 or an empty name for a size that they do not know, Paddle2ONNX a "?".
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
        elif dim.WhichOneof("value") == "dim_param" and dim.dim_param in _UNKNOWN_SIZES:
            dim.ClearField("dim_param")


def check_agreement(info: onnx.ValueInfoProto, tensor: onnx.TensorProto, title: str) -> None:
    """Refuse a declared type that differs from the initializer."""
    type_field = info.type.WhichOneof("value")
    if type_field is None:
        return
    if type_field != "tensor_type":
        raise ModelFileError(f"{title} is a tensor, but is declared with another type")
    declared_type = info.type.tensor_type
    if declared_type.elem_type not in (onnx.TensorProto.UNDEFINED, tensor.data_type):
        raise ModelFileError(f"{title} has an element type that differs from its declaration")
    if not declared_type.HasField("shape"):
        return
    dims = declared_type.shape.dim
    if len(dims) != len(tensor.dims) or any(
        dim.HasField("dim_value") and dim.dim_value != size
        for dim, size in zip(dims, tensor.dims, strict=True)
    ):
        raise ModelFileError(f"{title} has a shape that differs from its declaration")


def merge_declarations(source: onnx.ValueInfoProto, target: onnx.ValueInfoProto, title: str) -> None:
    """Merge another declaration of an input or output into its own.

    If both declare sizes, those of the target stay.

    Raises:
        ModelFileError: the two contradict each other in element type or metadata.
    """
    if source == target:
        return
    merge_entries(source, target, title)
    if source.doc_string and not target.doc_string:
        target.doc_string = source.doc_string
    if source.type.WhichOneof("value") is None:
        return
    if target.type.WhichOneof("value") is None:
        target.type.CopyFrom(source.type)
    elif _without_sizes(source.type) != _without_sizes(target.type):
        raise ModelFileError(f"{title} is declared with two types")
    elif source.type.HasField("tensor_type"):
        shape = source.type.tensor_type.shape if source.type.tensor_type.HasField("shape") else None
        if shape is not None and not target.type.tensor_type.HasField("shape"):
            target.type.tensor_type.shape.CopyFrom(shape)


def unify_sizes(source: onnx.ValueInfoProto, target: onnx.ValueInfoProto, title: str) -> None:
    """Give a value that is declared twice in an interface the same declaration at both places.

    A graph that returns its input declares it as an input and as an output. Exporters name the unknown sizes
    of each declaration anew: those of the source stay, and those of the target complete them.

    Raises:
        ModelFileError: the two declare other ranks or numbers, or differ in more than sizes.
    """
    if source.type.HasField("tensor_type") and target.type.HasField("tensor_type"):
        sizes, target_sizes = (info.type.tensor_type.shape.dim for info in (source, target))
        if len(sizes) == len(target_sizes):
            for size, target_size in zip(sizes, target_sizes, strict=True):
                if size.WhichOneof("value") is None:
                    size.MergeFrom(target_size)
                # A number that differs from another stays, and the declarations with it.
                if not (size.HasField("dim_value") and target_size.HasField("dim_value")):
                    target_size.CopyFrom(size)
    if source.doc_string:
        target.doc_string = source.doc_string
    if source != target:
        raise ModelFileError(f"{title} has two different declarations")


def _without_sizes(declared_type: onnx.TypeProto) -> tuple[str | int, ...]:
    """A type without sizes."""
    path: list[str | int] = []
    while (type_field := declared_type.WhichOneof("value")) is not None:
        path.append(type_field)
        elem_type = getattr(declared_type, type_field).elem_type
        if isinstance(elem_type, int):
            return (*path, elem_type)
        declared_type = elem_type
    return tuple(path)


def declarations_by_name(infos: Iterable[onnx.ValueInfoProto], title: str) -> dict[str, onnx.ValueInfoProto]:
    """The declarations in `value_info`, by name; duplicates must be identical."""
    declarations: dict[str, onnx.ValueInfoProto] = {}
    for info in infos:
        check_value(info, f"value {quoted(info.name)}")
        if declarations.setdefault(info.name, info) != info:
            raise ModelFileError(f"{title} declares {quoted(info.name)} twice, differently")
    return declarations
