"""Recognises models for which onnx's shape inference may crash, loop or take much memory.

onnx's inference trusts its input. In onnx 1.23 it never ends for `Einsum` with the equation "......->...",
allocates `num_outputs` entries for `Split`, and reads through a null pointer if the input of `EyeLike` has no
type. Such a model is inferred in a separate process. Models that exporters write pass these checks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import onnx
import onnx.defs

from ..files.reading.subgraphs import with_subgraphs

_LARGEST_NUMBER = 2**31 - 1
"""onnx stores some attributes in 32 bits, and computes with others without a check for an overflow."""
_DOMAINS = {"": "", "ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml"}
_READ_TYPES = frozenset(
    "ArrayFeatureExtractor DictVectorizer EyeLike LabelEncoder RegexFullMatch TreeEnsemble".split()
)
"""Operators whose inference reads the type of an input without a check that it has one."""
_TERM = r"[A-Za-z]*(?:\.\.\.[A-Za-z]*)?"
_EQUATION = re.compile(rf"{_TERM}(?:,{_TERM})*(?:->{_TERM})?")
_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


class EndlessInference(ValueError):
    """A node for which onnx's inference never ends."""


class _Form(NamedTuple):
    """The requirements of an operator version for its nodes.

    Attributes:
        inputs, outputs: the smallest and the largest number of each.
        required_inputs: the number of leading inputs that must be present.
        required: the names of required attributes.
        types: the type of each attribute by name.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required_inputs: int
    required: frozenset[str]
    types: Mapping[str, int]


def is_risky(model: onnx.ModelProto) -> bool:
    """Whether a node violates the requirements of its operator, or has numbers beyond 32 bits.

    Raises:
        EndlessInference: inference of a node would never end.
    """
    versions = {_DOMAINS.get(entry.domain, entry.domain): entry.version for entry in model.opset_import}
    typed = None
    for graph in with_subgraphs(model.graph):
        for node in graph.node:
            domain = _DOMAINS.get(node.domain)
            form = None if domain is None else _form(node.op_type, versions.get(domain, 1), domain)
            if form is None:
                continue
            if not _has_form(node, form):
                return True
            if node.op_type in _READ_TYPES:
                typed = _typed_values(model) if typed is None else typed
                if not all(name in typed for name in node.input):
                    return True
    return False


def _has_form(node: onnx.NodeProto, form: _Form) -> bool:
    inputs = node.input
    if not form.inputs[0] <= len(inputs) <= form.inputs[1]:
        return False
    if not form.outputs[0] <= len(node.output) <= form.outputs[1]:
        return False
    if form.required_inputs and "" in inputs[: form.required_inputs]:
        return False
    names = set()
    for attribute in node.attribute:
        name = attribute.name
        names.add(name)
        attribute_type = attribute.type
        # The value of a reference comes from the function's caller, which is unknown here.
        if attribute.ref_attr_name or form.types.get(name, attribute_type) != attribute_type:
            return False
        if attribute_type == onnx.AttributeProto.INT and not _is_expected(attribute, node):
            return False
        if name == "equation" and not is_equation(attribute.s):
            raise EndlessInference("an Einsum has an equation that is not valid")
    return form.required <= names


def _is_expected(attribute: onnx.AttributeProto, node: onnx.NodeProto) -> bool:
    number = attribute.i
    if attribute.name == "num_outputs":
        return number == len(node.output)
    least = 0 if attribute.name == "batch_dims" else -_LARGEST_NUMBER
    return least <= number <= _LARGEST_NUMBER or node.op_type == "Constant"


def is_equation(text: bytes) -> bool:
    """Whether a text is an equation of Einsum with at most one ellipsis in a term."""
    return _EQUATION.fullmatch(text.decode(errors="replace").replace(" ", "")) is not None


def _typed_values(model: onnx.ModelProto) -> Container[str]:
    typed: set[str] = set()
    for graph in with_subgraphs(model.graph):
        typed.update(tensor.name for tensor in graph.initializer)
        for info in (*graph.input, *graph.value_info, *graph.output):
            if info.type.WhichOneof("value") is not None:
                typed.add(info.name)
    return typed


@functools.cache
def _form(op_type: str, version: int, domain: str) -> _Form | None:
    try:
        # onnx's type stubs lack some fields of schemas.
        schema: Any = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    required_inputs = 0
    for formal in schema.inputs:
        if formal.option != _SINGLE:
            break
        required_inputs += 1
    return _Form(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        required_inputs,
        frozenset(name for name, formal in schema.attributes.items() if formal.required),
        {name: int(formal.type.value) for name, formal in schema.attributes.items()},
    )
