"""Finds the function that runs a TorchScript operator: a registered one, or a call of a library operator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from onnx_ir import Value

from ....registration import CaptureError, Device, Layout, MemoryFormat
from ...torch_boundary.containers import pytree
from ...torch_boundary.operators import overloads
from ...torch_boundary.torchscript import parse_schema
from ..fx_import.source_values import element_type, share_memory_by_schema
from .interpreter import Function, Interpreter, Results
from .objects import Dict, Item, List, Nested, Object, Optional, Uninitialized, UnknownText, WrittenConstant
from .script_graph import ScriptNode

OperatorFunction = TypeVar("OperatorFunction", bound=Function)
_FUNCTIONS: dict[str, Function] = {}

_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    8: torch.complex32,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    12: torch.qint8,
    13: torch.quint8,
    14: torch.qint32,
    15: torch.bfloat16,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LAYOUTS = {0: "strided"}
_MEMORY_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last", 3: "channels_last_3d"}


def script(*kinds: str) -> Callable[[OperatorFunction], OperatorFunction]:
    """Register a function for nodes of these kinds."""

    def register(function: OperatorFunction) -> OperatorFunction:
        _FUNCTIONS.update(dict.fromkeys(kinds, function))
        return function

    return register


def find(node_kind: str) -> Function:
    """The function that runs a kind of node; by default it appends an operator of a library."""
    return _FUNCTIONS.get(node_kind, _operator)


def dtype_of_code(code: int) -> torch.dtype:
    """The element type for TorchScript's int code."""
    if code not in _DTYPES:
        raise CaptureError(f"element type {code} of TorchScript has no ONNX element type")
    return _DTYPES[code]


def code_of_dtype(dtype: torch.dtype) -> int:
    """TorchScript's int code for an element type."""
    return _CODES[dtype]


def element_kind(node: ScriptNode) -> str:
    """The TorchScript type of the elements of a node's list result: `Tensor`, `int`, `List[int]`."""
    return str(node.output().type().getElementType())


def schema_of(node: ScriptNode) -> torch.FunctionSchema:
    """The schema of a node.

    Raises:
        CaptureError: it has none, such as a Python function that was traced.
    """
    text, node_kind = node.schema(), node.kind()
    if node_kind in ("prim::PythonOp", "prim::IgnoredPythonOp"):
        name = node.pyname() if node_kind == "prim::PythonOp" else node_kind
        raise CaptureError(
            f"the program calls the Python function '{name}', which is not in TorchScript: script it, or "
            "leave it out of the exported model"
        )
    if "MKLDNN" in node_kind or "mkldnn" in node_kind:
        raise CaptureError(
            f"{node_kind} was written by torch.jit.optimize_for_inference for this machine: export the "
            "program without it, or after torch.jit.freeze only"
        )
    if text == "(no schema)" or "..." in text:
        raise CaptureError(f"{node_kind} is a part of TorchScript that is not supported")
    schema: torch.FunctionSchema = parse_schema(text)
    return schema


@functools.lru_cache(maxsize=4096)
def _real_types(name: str, overload: str) -> dict[str, str]:
    """The schema type of each argument that TorchScript stores as int: `ScalarType?`, `Device?`."""
    # A TorchScript schema says `int` for element types, devices, layouts and memory formats.
    function = overloads.operator_of(name, overload)
    if function is None:
        return {}
    return {argument.name: str(argument.real_type) for argument in overloads.schema_of(function).arguments}


def call_operator(machine: Interpreter, node: ScriptNode, operands: Sequence[Item]) -> Results:
    """Append an operator of ATen or another library."""
    schema = schema_of(node)
    types = _real_types(schema.name, schema.overload_name)
    arguments = {}
    for formal, operand in zip(schema.arguments, operands, strict=False):
        arguments[formal.name] = argument(machine, node, types.get(formal.name, str(formal.type)), operand)
    overload = schema.overload_name or "default"
    is_of_torch = schema.name.startswith(("aten::", "prim::"))
    if is_of_torch and not any("Tensor" in str(item.type) for item in (*schema.arguments, *schema.returns)):
        # Source graphs have no operators of torch on numbers, lists and texts alone.
        raise CaptureError(f"{machine.place(node)} is not supported")
    # A folded constant must not change: the program is read again, with constants as graph values.
    for formal, operand in zip(schema.arguments, operands, strict=False):
        if formal.alias_info is not None and formal.alias_info.is_write:
            items = operand.items or [] if isinstance(operand, List) else [operand]
            if any(isinstance(item, torch.Tensor) for item in items):
                raise WrittenConstant
            for item in items:
                machine.forget_number(item)
    if not any(isinstance(leaf, Value) for leaf in pytree.tree_leaves(arguments)):
        constant = _fold_operator(schema, arguments)
        if constant is not None:
            return constant
    returns = [str(item.type).replace("List[Tensor]", "Tensor[]") for item in schema.returns]
    # The in-place pass derives the written arguments of ATen operators from their names.
    written = () if is_of_torch else overloads.written_arguments(schema)
    stem = machine.stem(node)
    results = machine.build.operator(schema.name, overload, arguments, returns, stem, written)
    if not is_of_torch:
        named = dict(zip((formal.name for formal in schema.arguments), operands, strict=False))
        results = share_memory_by_schema(schema, results, named)
    wrapped: list[Item] = [
        machine.list(item, "Tensor") if isinstance(item, list) else item for item in results
    ]
    return wrapped[0] if len(returns) == 1 else wrapped


def _operator(machine: Interpreter, node: ScriptNode, *operands: Item) -> Results:
    return call_operator(machine, node, operands)


_DIVISIONS = frozenset("floordiv remainder divmod __round_to_zero_floordiv".split())


def of_constants(machine: Interpreter, node: ScriptNode, *operands: object) -> Results:
    """Compute an operator on constant numbers and strings with torch.

    Raises:
        CaptureError: it raises, for instance for a division by zero.
    """
    schema = schema_of(node)
    function = overloads.operator_of(schema.name, schema.overload_name)
    ints = [operand for operand in operands if isinstance(operand, int)]
    is_division = schema.name.partition("::")[2] in _DIVISIONS and len(ints) == len(operands) == 2
    if is_division and ints[1] in (0, -1):
        # The process crashes if torch divides an int by 0, or the smallest int by -1.
        if ints[1] == 0:
            raise CaptureError(f"the program divides {ints[0]} by zero")
        if schema.name == "aten::divmod":
            return [-ints[0], 0]
        return 0 if "remainder" in schema.name else -ints[0]
    if function is None:
        raise CaptureError(f"torch has no operator {schema.name}")
    try:
        result: Item | list[Item] = function(*operands)
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).strip().splitlines()[:1])
        raise CaptureError(f"{machine.place(node)} of {operands}: {reason}") from error
    if isinstance(result, list):
        return machine.list(result, element_kind(node))
    return [*result] if isinstance(result, tuple) else result


_LARGEST_CONSTANT = 64


def _fold_operator(schema: torch.FunctionSchema, arguments: dict[str, object]) -> torch.Tensor | None:
    """The result of an operator on small constant tensors, which replace numbers in traces."""
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    if (
        not tensors
        or schema.is_mutable
        or len(schema.returns) != 1
        or str(schema.returns[0].type) != "Tensor"
    ):
        return None
    if any(tensor.numel() > _LARGEST_CONSTANT for tensor in tensors):
        return None
    function = overloads.operator_of(schema.name, schema.overload_name)
    if function is None or torch.Tag.nondeterministic_seeded in function.tags:
        return None
    # Traces compute with sizes in zero-dim tensors; folded ones keep their shapes static.
    with torch.no_grad():
        result = overloads.by_name(function)(**arguments)
    return result if result.numel() <= _LARGEST_CONSTANT else None


def argument(machine: Interpreter, node: ScriptNode, schema_type: str, item: Item) -> object:
    """Convert an operand to its form on source nodes.

    Args:
        schema_type: the type in the schema, `ScalarType?`.

    Raises:
        CaptureError: a source graph cannot represent the operand.
    """
    if isinstance(item, List):
        if item.items is None:
            return item.value
        return [argument(machine, node, schema_type, member) for member in item.items]
    if isinstance(item, tuple):
        return [argument(machine, node, schema_type, member) for member in item]
    if isinstance(item, torch.device):
        return Device(item)
    if isinstance(item, torch.dtype):
        return element_type(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return _constant_of_code(schema_type, item)
    if isinstance(item, (Dict, Nested, Object, Optional, Uninitialized, UnknownText)):
        class_name = type(item).__name__.lower()
        raise CaptureError(f"an argument is {class_name}, which no operator accepts")
    if "Device" in schema_type and isinstance(item, str):
        return Device(item)
    return item


def _constant_of_code(schema_type: str, item: int) -> object:
    if "ScalarType" in schema_type:
        return element_type(dtype_of_code(item))
    if "Layout" in schema_type:
        return Layout(_LAYOUTS.get(item, "strided"))
    return MemoryFormat(_MEMORY_FORMATS[item]) if "MemoryFormat" in schema_type else item
