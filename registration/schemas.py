"""Tables of ONNX operator schemas, read from `onnx.defs` once per operator version."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx_ir as ir
from onnx_ir import DataType

from .attribute_words import first_opset_with_word

_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic

# Arguments that changed their name when they moved from attribute to input.
_RENAMED: dict[tuple[str, str], str] = {
    ("TopK", "k"): "K",
    ("Pad", "value"): "constant_value",
    ("Pad", "paddings"): "pads",
}
_ALIASES = _RENAMED | {(op, new): old for (op, old), new in _RENAMED.items() if old != "paddings"}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A formal input or output of an operator version.

    Attributes:
        variable: the type variable that it shares with others, or "" if its type is fixed.
        dtypes: the element types it may have; empty if it is not a plain tensor.
        sequences: the element types it may have as a sequence of tensors.
    """

    name: str
    variable: str
    dtypes: frozenset[DataType]
    sequences: frozenset[DataType]
    optional: bool
    variadic: bool
    homogeneous: bool


@dataclasses.dataclass(frozen=True)
class AttributeParameter:
    """A formal attribute of an operator version; `default` is None without a default."""

    name: str
    type: ir.AttributeType
    required: bool
    default: Any

    def is_default(self, value: object) -> bool:
        """Whether a value equals the default, so that a file can omit it."""
        return self.is_value(value, self.default)

    def is_value(self, value: object, reference: object) -> bool:
        """Whether two values are equal as stored by ONNX: FLOAT in single precision, bit for bit."""
        if reference is None or self.type not in _COMPARED:
            return False
        try:
            return bool(_storage_form(self.type, value) == _storage_form(self.type, reference))
        except (TypeError, ValueError):
            return False


STATED_DEFAULTS: dict[str, tuple[str, ...]] = {"STFT": ("onesided",)}
"""By operator, attributes that are written with their default too; onnx infers other shapes without."""
_LARGE = 1e38
"""Larger numbers may be infinite in single precision."""
_COMPARED = frozenset(ir.AttributeType[name] for name in "INT FLOAT STRING INTS FLOATS STRINGS".split())


def _storage_form(attribute_type: ir.AttributeType, value: Any) -> Any:
    if attribute_type == ir.AttributeType.FLOAT and type(value) is float and abs(value) < _LARGE:
        # The same as below, in a tenth of the time.
        return (), struct.pack("f", value)
    if attribute_type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        # Bits, because NaN differs from itself and 0.0 equals -0.0.
        array = np.asarray(value, dtype=np.float64)
        with np.errstate(over="ignore"):
            return array.shape, array.astype(np.float32).tobytes()
    if attribute_type in (ir.AttributeType.INTS, ir.AttributeType.STRINGS):
        return list(value)
    return value


@dataclasses.dataclass(frozen=True)
class OperatorSchema:
    """The inputs, outputs and attributes of one operator version."""

    name: str
    domain: str
    since_version: int
    deprecated: bool
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, AttributeParameter]
    input_index: dict[str, int]
    minimum_inputs: int
    minimum_outputs: int

    @functools.cached_property
    def required_inputs(self) -> tuple[int, ...]:
        """The positions of the inputs that every node has."""
        return tuple(
            i for i, parameter in enumerate(self.inputs) if not parameter.optional and not parameter.variadic
        )

    @functools.cached_property
    def required_attributes(self) -> tuple[str, ...]:
        """The names of the attributes that every node has."""
        return tuple(name for name, attribute in self.attributes.items() if attribute.required)

    def find_argument(self, argument: str) -> tuple[int | None, AttributeParameter | None]:
        """Find an argument in the schema: the position of an input, an attribute, or neither."""
        for name in (argument, _ALIASES.get((self.name, argument))):
            if name is None:
                continue
            if name in self.input_index:
                return self.input_index[name], None
            if name in self.attributes:
                return None, self.attributes[name]
        return None, None


def inputs_by_name(schema: OperatorSchema, inputs: Sequence[ir.Value | None]) -> dict[str, Any]:
    """Return the inputs of a node by parameter name; a variadic parameter gets a list."""
    named: dict[str, Any] = {}
    for index, value in enumerate(inputs):
        parameter = schema.inputs[min(index, len(schema.inputs) - 1)]
        if parameter.variadic:
            named.setdefault(parameter.name, []).append(value)
        elif value is not None:
            named[parameter.name] = value
    return named


def first_opset_with_value(schema: OperatorSchema, argument: str, value: object) -> int | None:
    """Return the first opset whose version takes a value that this version does not, or None."""
    if not isinstance(value, str) or schema.domain:
        return None
    return first_opset_with_word(schema.name, argument, value, schema.since_version)


def _dtypes(type_strings: list[str], form: str = "tensor(") -> frozenset[DataType]:
    return frozenset(
        DataType[text[len(form) :].rstrip(")").upper()] for text in type_strings if text.startswith(form)
    )


def _parameter(formal: Any, constraints: dict[str, list[str]]) -> Parameter:
    types = constraints.get(formal.type_str)
    return Parameter(
        name=formal.name,
        variable="" if types is None else formal.type_str,
        dtypes=_dtypes(types or [formal.type_str]),
        sequences=_dtypes(types or [formal.type_str], "seq(tensor("),
        optional=formal.option == _OPTIONAL,
        variadic=formal.option == _VARIADIC,
        homogeneous=formal.is_homogeneous,
    )


def _attribute(formal: Any) -> AttributeParameter:
    default = None
    if formal.default_value.name:
        default = onnx.helper.get_attribute_value(formal.default_value)
        if isinstance(default, bytes):
            default = default.decode()
            # The schema of GRU 1 has a misspelt name.
            default = "forward" if default == "foward" else default
        elif isinstance(default, list):
            # onnx keeps strings as bytes, and nodes here as text.
            default = [item.decode() if isinstance(item, bytes) else item for item in default]
    return AttributeParameter(formal.name, ir.AttributeType(int(formal.type.value)), formal.required, default)


def _read_schema(schema: Any) -> OperatorSchema:
    constraints = {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
    inputs = tuple(_parameter(formal, constraints) for formal in schema.inputs)
    return OperatorSchema(
        name=schema.name,
        domain=schema.domain,
        since_version=schema.since_version,
        deprecated=schema.deprecated,
        inputs=inputs,
        outputs=tuple(_parameter(formal, constraints) for formal in schema.outputs),
        attributes={name: _attribute(formal) for name, formal in schema.attributes.items()},
        input_index={formal.name: i for i, formal in enumerate(inputs)},
        minimum_inputs=schema.min_input,
        minimum_outputs=schema.min_output,
    )


_LARGEST_OPSET = 2**31 - 1
"""onnx takes a C int; a file has 64 bits for the number."""


@functools.lru_cache(maxsize=4096)
def operator_schema(name: str, opset: int, domain: str = "") -> OperatorSchema | None:
    """The schema of an operator at an opset; None if it is unknown or deprecated there."""
    if abs(opset) > _LARGEST_OPSET:
        return None
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else _read_schema(schema)


@functools.cache
def _versions() -> dict[tuple[str, str], list[int]]:
    table: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        table.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {key: sorted(versions) for key, versions in table.items()}


def operator_schemas(name: str, domain: str = "") -> list[OperatorSchema]:
    """Every version of an operator that is not deprecated, oldest first."""
    schemas = (operator_schema(name, version, domain) for version in _versions().get((domain, name), []))
    return [schema for schema in schemas if schema is not None]


def is_variadic(name: str) -> bool:
    """Whether an ONNX operator's newest version takes one list of tensors and no other input."""
    inputs = [schema.inputs for schema in operator_schemas(name)][-1:]
    return bool(inputs) and len(inputs[0]) == 1 and inputs[0][0].variadic


def first_version(
    name: str, domain: str, holds: Callable[[OperatorSchema], bool], after: int = 0
) -> int | None:
    """The first version of an operator, above `after`, that satisfies a condition, or None."""
    later_schemas = (schema for schema in operator_schemas(name, domain) if schema.since_version > after)
    return next((schema.since_version for schema in later_schemas if holds(schema)), None)


def first_opset_with(name: str, argument: str, domain: str = "", after: int = 0) -> int | None:
    """Return the first opset above `after` at which an operator has an argument, or None."""
    return first_version(name, domain, lambda schema: schema.find_argument(argument) != (None, None), after)


def first_opset_with_dtype(name: str, parameter: int, dtype: DataType, domain: str = "") -> int | None:
    """The first opset at which an operator's input of this position takes an element type, or None."""
    return first_version(
        name,
        domain,
        lambda schema: parameter < len(schema.inputs) and dtype in schema.inputs[parameter].dtypes,
    )


def carries(schema: OperatorSchema, value: ir.Value) -> bool:
    """Whether an If or a Loop of this version can return this type of value."""
    results = schema.outputs[-1]
    return value.dtype in (results.sequences if isinstance(value.type, ir.SequenceType) else results.dtypes)


def first_opset_that_carries(name: str, value: ir.Value, after: int = 0) -> int | None:
    """The first opset above `after` at which an If or a Loop can return this type of value, or None."""
    return first_version(name, "", lambda schema: carries(schema, value), after=after)


def nearest_attribute(schema: OperatorSchema, argument: str) -> AttributeParameter | None:
    """Return the attribute as the next version with it defines it, else as the last one that had it."""
    attributes = [
        (version_schema.since_version, version_schema.find_argument(argument)[1])
        for version_schema in operator_schemas(schema.name, schema.domain)
    ]
    having = [(version, attribute) for version, attribute in attributes if attribute is not None]
    later = [attribute for version, attribute in having if version > schema.since_version]
    return later[0] if later else having[-1][1] if having else None


def omissible(op_type: str, opset: int, attribute: ir.Attr) -> bool:
    """Whether an attribute of a node of ONNX's own domain equals the default of its operator at an opset.

    Not one of `STATED_DEFAULTS`, which is never left out.
    """
    if attribute.name in STATED_DEFAULTS.get(op_type, ()):
        return False
    schema = operator_schema(op_type, opset)
    formal = schema.attributes.get(attribute.name) if schema is not None else None
    return formal is not None and formal.type == attribute.type and formal.is_default(attribute.value)


def misnames_cut_sizes(opset: int) -> bool:
    """Whether shape inference keeps a dimension's name for a part of it: onnx does so for Slice 10."""
    schema = operator_schema("Slice", opset)
    return schema is not None and schema.since_version == 10
