"""Checks attributes of nodes: each has one value, of its stated type."""

from __future__ import annotations

import onnx
import onnx.helper

from .....registration import ModelFileError
from ..external_data.files import ExternalFiles
from ..names import quoted
from .sparse_tensors import dense_tensor
from .tensor_contents import check_tensor
from .values import check_type

_SINGLE = {"f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH", "tp": "TYPE_PROTO"}
_LISTS = {
    "floats": "FLOATS",
    "ints": "INTS",
    "strings": "STRINGS",
    "tensors": "TENSORS",
    "graphs": "GRAPHS",
    "type_protos": "TYPE_PROTOS",
}
_TYPES = {
    onnx.AttributeProto.AttributeType.Value(name): field for field, name in {**_SINGLE, **_LISTS}.items()
}
_MESSAGE_FIELDS = ("t", "g", "tp")
"""Fields for single values that are messages, which have no default."""
_DESCRIPTIONS = ("name", "doc_string", "type")
_NUMBER_FIELDS = ("f", "i", "floats", "ints")


def is_number(attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute is a number or numbers of its stated type, as most are: nothing else can be wrong.

    It takes a fraction of the time of `check_attribute`.
    """
    fields = [
        descriptor.name for descriptor, _ in attribute.ListFields() if descriptor.name not in _DESCRIPTIONS
    ]
    return len(fields) == 1 and fields[0] in _NUMBER_FIELDS and _TYPES.get(attribute.type) == fields[0]


def check_attribute(
    attribute: onnx.AttributeProto, files: ExternalFiles, title: str, *, in_function: bool
) -> list[onnx.GraphProto]:
    """Refuse an attribute whose value does not match its type, or with several values; return its graphs.

    Files before IR version 2 state no type; the value decides it.

    Args:
        in_function: whether it may refer to an attribute of an enclosing function.

    Raises:
        ModelFileError: the attribute is invalid. The message names it, and its node as `title`.
    """
    title = f"attribute {quoted(attribute.name)} of {title}"
    if not attribute.name:
        raise ModelFileError(f"{title} has no name")
    filled = [field for field in _SINGLE if attribute.HasField(field)]
    filled += [field for field in _LISTS if len(getattr(attribute, field))]
    if attribute.HasField("sparse_tensor") and attribute.name == "sparse_value":
        # Of the same Constant: onnx-ir has no sparse tensors.
        dense = dense_tensor(attribute.sparse_tensor, files, title)
        attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
        filled = ["t"]
    elif attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
        raise ModelFileError(f"{title} is a sparse tensor, which onnx-ir does not support")
    if attribute.ref_attr_name:
        if filled or not in_function:
            where = "and has a value" if filled else "outside of a function"
            raise ModelFileError(f"{title} refers to {quoted(attribute.ref_attr_name)} {where}")
        if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise ModelFileError(f"{title} refers to a graph, which onnx-ir does not support")
        return []
    if not attribute.type and len(filled) == 1:
        name = {**_SINGLE, **_LISTS}[filled[0]]
        attribute.type = onnx.AttributeProto.AttributeType.Value(name)
    field = _TYPES.get(attribute.type)
    if field is None:
        raise ModelFileError(f"{title} has no supported type")
    if filled not in ([], [field]):
        misplaced = [candidate for candidate in filled if candidate != field]
        type_name = onnx.AttributeProto.AttributeType.Name(attribute.type)
        raise ModelFileError(f"{title} is of type {type_name}, but has a value in {misplaced[0]}")
    if field in _MESSAGE_FIELDS and not filled:
        raise ModelFileError(f"{title} has no value")
    return _check_value(attribute, field, files, title)


def _check_value(
    attribute: onnx.AttributeProto, field: str, files: ExternalFiles, title: str
) -> list[onnx.GraphProto]:
    value = getattr(attribute, field)
    values = value if field in _LISTS else [value]
    if field in ("g", "graphs"):
        return list(values)
    if field in ("t", "tensors"):
        for tensor in values:
            check_tensor(tensor, files, title)
    elif field in ("tp", "type_protos"):
        for value_type in values:
            check_type(value_type, title)
    elif field == "strings":
        for text in values:
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                raise ModelFileError(f"{title} holds text that is not UTF-8") from None
    return []
