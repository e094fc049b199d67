"""Stores the interface of a captured model as JSON: tree structures of calls and results, without pickle.

A tree structure is null for a leaf, else an object with the name of the container's type, its context (what
it stores beside its children) and its children. Constants that JSON lacks are objects with one key:
`{"tuple": […]}`, `{"dict": [[key, value], …]}`, `{"float": "nan"}`, `{"complex": […]}`, `{"type":
"module.Class"}`, `{"torch": "torch.float16"}`, `{"dtype": "FLOAT16"}`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import onnx_ir as ir

from ....registration import ModelFileError
from ....registration.json_text import parse_json
from ...captured_graph.capture import Interface

_TORCH_CONSTANTS = ("dtype", "device", "layout", "memory_format")


@dataclasses.dataclass(frozen=True)
class TypeName:
    """A Python class by its module and name; a file never imports one."""

    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class TorchConstant:
    """A dtype, device, layout or memory format of torch as text; it compares equal to torch's object."""

    text: str

    # A file is read without torch, and compared with structures that have torch's objects.
    def __eq__(self, other: object) -> bool:
        return str(other) == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class TreeStructure:
    """A container in the tree structure of arguments or results.

    Attributes:
        type: the container, such as `builtins.dict`.
        context: what it stores beside its children: keys, a length, a class.
        children: the structures of its children; None is a leaf.
    """

    type: str
    context: Any
    children: tuple[TreeStructure | None, ...]


def write_interface(
    interface: Interface,
    output_names: list[str],
    given_inputs: list[str] | None,
    given_outputs: list[str] | None,
) -> str:
    """Convert an interface, and the user's names of inputs and outputs, to JSON.

    Raises:
        ModelFileError: the format cannot store a constant or a container among the arguments.
    """
    content = {
        "input_structure": _structure_json(interface.input_specification),
        "output_structure": _structure_json(interface.output_specification),
        "inputs": interface.inputs,
        "constants": [_constant_json(item) for item in interface.constants],
        "outputs": [e if isinstance(e, int) else [_constant_json(e[0])] for e in interface.outputs],
        "numbers": interface.numbers,
        "complex_outputs": interface.complex_outputs,
        "mutated": interface.mutated,
        "parameter_names": interface.parameter_names,
        "output_names": output_names,
        "given_input_names": given_inputs,
        "given_output_names": given_outputs,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def read_interface(text: str) -> tuple[Interface, list[str], list[str] | None, list[str] | None]:
    """Read an interface that `write_interface` wrote; tree structures become `TreeStructure`."""
    content = parse_json(text)
    _check(content)
    interface = Interface(
        input_specification=_structure_of(content["input_structure"]),
        output_specification=_structure_of(content["output_structure"]),
        inputs=content["inputs"],
        constants=[_constant_of(item) for item in content["constants"]],
        outputs=[e if isinstance(e, int) else [_constant_of(e[0])] for e in content["outputs"]],
        **{name: content[name] for name in ("numbers", "complex_outputs", "mutated", "parameter_names")},
    )
    return interface, content["output_names"], content["given_input_names"], content["given_output_names"]


_MEMBERS: dict[str, tuple[type, ...]] = {
    "inputs": (str, type(None)),
    "outputs": (int, list),
    "constants": (object,),
    **dict.fromkeys(("output_names", "given_input_names", "given_output_names"), (str,)),
    **dict.fromkeys(("mutated", "parameter_names"), (str,)),
    **dict.fromkeys(("numbers", "complex_outputs"), (int,)),
}
"""The lists of an interface, and the types of their elements."""


def _check(content: Any) -> None:
    for field, member_types in _MEMBERS.items():
        members = content[field]
        if members is None and field.startswith("given_"):
            continue
        if not isinstance(members, list) or not all(_is_one_of(item, member_types) for item in members):
            raise ModelFileError(f"the interface has '{field}', which has a wrong type")


def _is_one_of(item: object, member_types: tuple[type, ...]) -> bool:
    """Whether a JSON value has one of the types; a list must have exactly one member, a constant."""
    # Python's bool is a subclass of int, but a boolean is no position.
    if isinstance(item, bool) and bool not in member_types:
        return member_types == (object,)
    return isinstance(item, member_types) and not (
        isinstance(item, list) and list in member_types and len(item) != 1
    )


def check_interface(
    interface: Interface,
    output_names: list[str],
    given_inputs: list[str] | None,
    given_outputs: list[str] | None,
    graph: ir.Graph,
) -> None:
    """Check that an interface fits its graph.

    Raises:
        ModelFileError: its inputs or outputs differ from those of the graph.
    """
    _check_call(interface.input_specification)
    _check_structure(interface.output_specification)
    inputs, outputs = [value.name for value in graph.inputs], len(graph.outputs)
    named = [name for name in interface.inputs if name is not None]
    result_positions = [entry for entry in interface.outputs if isinstance(entry, int)]
    # Without a structure of arguments the model cannot be called.
    is_callable = interface.input_specification is not None
    argument_count, result_count = (
        _count_leaves(interface.input_specification),
        _count_leaves(interface.output_specification),
    )
    # A Python number comes from an output of one element; positions beyond the outputs are refused first.
    scalar_positions = [position for position in interface.numbers if 0 <= position < outputs]
    contradictions = (
        ("inputs", is_callable and named != inputs),
        ("inputs", is_callable and len(interface.inputs) != argument_count),
        ("constants", is_callable and len(interface.constants) != argument_count),
        ("outputs", is_callable and len(interface.outputs) != result_count),
        ("mutated", len(interface.mutated) > outputs),
        ("outputs", not _are_positions_below(result_positions, outputs - len(interface.mutated))),
        ("numbers", not _are_positions_below(interface.numbers, outputs)),
        ("numbers", any(graph.outputs[position].shape for position in scalar_positions)),
        ("complex_outputs", not _are_positions_below(interface.complex_outputs, outputs)),
        ("output_names", (is_callable or bool(output_names)) and len(output_names) != outputs),
        ("given_input_names", len(given_inputs or ()) > len(inputs)),
        ("given_output_names", len(given_outputs or ()) > outputs),
    )
    field = next((field for field, is_wrong in contradictions if is_wrong), None)
    if field is not None:
        raise ModelFileError(
            f"the interface has '{field}', which does not fit a graph with {len(inputs)} inputs "
            f"and {outputs} outputs"
        )


def _check_call(structure: TreeStructure | None) -> None:
    """Check that a structure is that of a call: a tuple of positional and a dict of keyword arguments."""
    if structure is None:
        return
    child_types = [None if child is None else child.type for child in structure.children]
    if structure.type != "builtins.tuple" or child_types != ["builtins.tuple", "builtins.dict"]:
        raise ModelFileError("the interface has arguments that are not those of a call")
    _check_structure(structure)


def _check_structure(structure: TreeStructure | None) -> None:
    """Check that Python's own containers have the context that their constructors need.

    Raises:
        ModelFileError: a container has another context, or not one name for each child.
    """
    if structure is None:
        return
    context, count = structure.context, len(structure.children)
    if structure.type == "collections.defaultdict":
        is_pair = isinstance(context, (list, tuple)) and len(context) == 2
        is_valid = is_pair and isinstance(context[0], TypeName) and _are_keys(context[1], count)
    elif structure.type in ("builtins.dict", "collections.OrderedDict"):
        is_valid = _are_keys(context, count)
    else:
        is_valid = structure.type not in ("builtins.list", "builtins.tuple") or context is None
    if not is_valid:
        raise ModelFileError(f"the interface has a {structure.type} that does not fit its {count} members")
    for child in structure.children:
        _check_structure(child)


def _are_keys(context: object, count: int) -> bool:
    """Whether a context is a list of as many different keys as a dict has members."""
    return isinstance(context, list) and len(context) == count == len(set(context))


def _are_positions_below(positions: list[int], count: int) -> bool:
    return all(0 <= position < count for position in positions)


def _count_leaves(structure: TreeStructure | None) -> int:
    return 1 if structure is None else sum(map(_count_leaves, structure.children))


def _structure_json(specification: Any) -> object:
    if specification is None:
        return None
    if isinstance(specification, TreeStructure):
        container, children = specification.type, list(specification.children)
    elif specification.is_leaf():
        return None
    else:
        container, children = _type_name(specification.type), specification.children()
    return {
        "type": container,
        "context": _constant_json(specification.context),
        "children": [_structure_json(child) for child in children],
    }


def _structure_of(item: Any) -> TreeStructure | None:
    if item is None:
        return None
    children = tuple(_structure_of(child) for child in item["children"])
    if not isinstance(item["type"], str):
        raise ModelFileError("the interface has a container without a type")
    return TreeStructure(item["type"], _constant_of(item["context"]), children)


def _type_name(python_type: type) -> str:
    return f"{python_type.__module__}.{python_type.__qualname__}"


def _constant_json(item: Any) -> object:
    constant_type = type(item)
    if item is None or constant_type in (bool, int, str):
        return item
    if constant_type is float:
        return item if math.isfinite(item) else {"float": repr(item)}
    if constant_type is complex:
        return {"complex": [_constant_json(item.real), _constant_json(item.imag)]}
    if constant_type is list:
        return [_constant_json(member) for member in item]
    if constant_type is tuple:
        return {"tuple": [_constant_json(member) for member in item]}
    if constant_type is dict:
        return {"dict": [[_constant_json(key), _constant_json(value)] for key, value in item.items()]}
    if constant_type is TypeName:
        return {"type": item.name}
    if isinstance(item, type):
        return {"type": _type_name(item)}
    if constant_type is ir.DataType:
        return {"dtype": item.name}
    if constant_type is TorchConstant or (
        constant_type.__module__ == "torch" and constant_type.__name__ in _TORCH_CONSTANTS
    ):
        return {"torch": str(item)}
    raise ModelFileError(
        f"a {_type_name(constant_type)} is part of the arguments or the result, and cannot be stored in a "
        "source file"
    )


def _constant_of(item: object) -> Any:
    if isinstance(item, list):
        return [_constant_of(member) for member in item]
    if not isinstance(item, dict):
        return item
    # An encoded constant is an object with one key that names its type; other objects are not constants.
    [(key, inner)] = item.items()
    if key == "float":
        return float(inner)
    if key == "complex":
        return complex(*(_constant_of(part) for part in inner))
    if key == "tuple":
        return tuple(_constant_of(member) for member in inner)
    if key == "dict":
        return {_constant_of(name): _constant_of(value) for name, value in inner}
    if key == "type":
        return TypeName(str(inner))
    if key == "dtype":
        return ir.DataType[inner]
    if key == "torch":
        return TorchConstant(str(inner))
    raise ModelFileError(f"the interface has a constant of an unknown kind, '{key}'")
