"""Checks that the schema allows the element types of a node's values and attributes."""

from __future__ import annotations

import functools

import onnx
import onnx_ir as ir
from onnx_ir import DataType

from ..schemas import OperatorSchema, Parameter, operator_schema

_FLOATS = frozenset(int(DataType[name]) for name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"))


def allowed_numbers(schema: OperatorSchema, attribute: str) -> frozenset[int] | None:
    """The numbers that an integer attribute may be, mostly element types; None if it may be any."""
    formal = schema.attributes.get(attribute)
    if formal is None or formal.type != ir.AttributeType.INT:
        return None
    if attribute == "keepdims":
        # Not an element type: inference and onnxruntime read numbers besides 0 and 1 in different ways.
        return frozenset({0, 1})
    if attribute in ("to", "dtype", "output_dtype", "output_datatype"):
        outputs = schema.outputs[0]
        numbers = frozenset(map(int, outputs.dtypes | outputs.sequences))
        # Quantization takes 0 for the type of the zero point.
        return numbers | {0} if attribute == "output_dtype" else numbers
    if attribute == "stash_type" and len(schema.outputs) > 1:
        # LayerNormalization returns values of this type.
        return frozenset(map(int, schema.outputs[1].dtypes))
    return _FLOATS if attribute in ("stash_type", "softmax_precision") else None


def element_type_name(number: int) -> str:
    """An element type by its name in ONNX, or the number itself."""
    try:
        return DataType(number).name
    except ValueError:
        return str(number)


def type_problem(node: ir.Node, schema: OperatorSchema, *, trusts_inputs: bool = False) -> str | None:
    """Describe what is wrong with the known element types of a node; None if no problem is known.

    Args:
        trusts_inputs: whether a result is compared also with an input that is declared falsely.
    """
    variables: dict[str, DataType] = {}
    for word, values, formals in (
        ("input", node.inputs, schema.inputs),
        ("result", node.outputs, schema.outputs),
    ):
        last = len(formals) - 1
        for position, value in enumerate(values):
            form = None if value is None else value.type
            if value is None or type(form) is not ir.TensorType:
                continue
            dtype = form.dtype
            if dtype == DataType.UNDEFINED:
                continue
            formal = formals[min(position, last)]
            # `Parameter` does not list every form of a type; look it up in the schema before refusing.
            if dtype not in formal.dtypes and not _may_be_tensor(schema, word, position, dtype):
                bound = variables.get(formal.variable) if word == "result" else None
                return _message(word, value, dtype, formal, schema, bound)
            if formal.variable and formal.homogeneous:
                bound = variables.setdefault(formal.variable, dtype)
                if bound is not dtype and bound != dtype:
                    if word == "input":
                        text = f"its input '{value.name}' is {dtype.name}, but must be {bound.name}"
                        return f"{text} like the others"
                    if not trusts_inputs and any(map(_is_declared_falsely, node.inputs)):
                        # The node that computes the input is reported.
                        return None
                    return _declaration(value, dtype, bound.name, schema)
    return None


def _message(
    word: str,
    value: ir.Value,
    dtype: DataType,
    formal: Parameter,
    schema: OperatorSchema,
    bound: DataType | None,
) -> str:
    # The operator decides the type of a result, so a wrong one is a declaration of the file.
    if word == "result":
        types = " or ".join(sorted(allowed.name for allowed in formal.dtypes)) or "another type"
        types = types if bound is None else bound.name
        return _declaration(value, dtype, types, schema)
    if len(formal.dtypes) == 1:
        return f"its {word} '{value.name}' is {dtype.name}, not {next(iter(formal.dtypes)).name}"
    return f"its {word} '{value.name}' is {dtype.name}, which it does not take"


def _declaration(value: ir.Value, dtype: DataType, types: str, schema: OperatorSchema) -> str:
    return f"the file declares its result '{value.name}' as {dtype.name}; {schema.name} gives {types}"


def _is_declared_falsely(value: ir.Value | None) -> bool:
    producer = None if value is None else value.producer()
    if producer is None or producer.graph is None:
        return False
    opset = producer.graph.opset_imports.get(producer.domain)
    schema = None if opset is None else operator_schema(producer.op_type, opset, producer.domain)
    return schema is not None and type_problem(producer, schema, trusts_inputs=True) is not None


@functools.lru_cache(maxsize=4096)
def _type_strings(name: str, version: int, domain: str, word: str, position: int) -> frozenset[str]:
    schema = onnx.defs.get_schema(name, version, domain)
    formals = schema.inputs if word == "input" else schema.outputs
    return frozenset(formals[min(position, len(formals) - 1)].types)


def _may_be_tensor(schema: OperatorSchema, word: str, position: int, dtype: DataType) -> bool:
    """Whether the schema has a form of the type that `Parameter` does not list."""
    names = _type_strings(schema.name, schema.since_version, schema.domain, word, position)
    return f"tensor({dtype.name.lower()})" in names
