"""TorchScript nodes without arithmetic: constants, attributes, tuples, assertions, strings, calls."""

from __future__ import annotations

import collections
import enum
import functools
import re
from collections.abc import Callable

import torch
from onnx_ir import Value

from .....registration import CaptureError
from ....torch_boundary import torchscript
from ..interpreter import Interpreter, Results
from ..library import of_constants, script
from ..objects import (
    UNINITIALIZED,
    Item,
    List,
    Object,
    Optional,
    Raised,
    UnknownText,
    is_constant,
    is_number,
    number_kind,
    rebuild_tuple,
)
from ..script_graph import ScriptMethod, ScriptNode, ScriptType, StoredItem, is_handle
from .scalars import compute


@script("prim::Constant")
def constant(machine: Interpreter, node: ScriptNode) -> Item:
    """A number, text, None, element type, device, or tensor."""
    if node.output().type().kind() == "FunctionType":
        return None
    item = node.output().toIValue()
    if isinstance(item, torch.Generator):
        # ONNX has no generators: its random operators take a seed.
        return None
    return _stored_item(machine, item, node.output().type())


def _stored_item(machine: Interpreter, stored: StoredItem, stored_type: ScriptType) -> Item:
    if isinstance(stored, list):
        inner = stored_type.getElementType()
        return machine.list([_stored_item(machine, member, inner) for member in stored], str(inner))
    if isinstance(stored, dict):
        inner = stored_type.getValueType()
        return machine.dict({key: _stored_item(machine, member, inner) for key, member in stored.items()})
    if isinstance(stored, tuple):
        pairs = zip(stored, stored_type.elements(), strict=True)
        return rebuild_tuple(stored, (_stored_item(machine, member, inner) for member, inner in pairs))
    assert not is_handle(stored)
    return stored


@script("prim::Uninitialized")
def uninitialized_value(machine: Interpreter, node: ScriptNode) -> Item:
    """A value that no path reads."""
    return UNINITIALIZED


def _object(machine: Interpreter, node: ScriptNode, owner: Item) -> Object:
    if not isinstance(owner, Object):
        raise CaptureError(
            f"a module has an attribute of the class {type(owner).__name__}, which "
            "cannot be captured: store its attributes instead, and make the instance in the program"
        )
    return owner


@script("prim::GetAttr")
def get_attribute(machine: Interpreter, node: ScriptNode, owner: Item) -> Item:
    """An attribute of a module or object."""
    item = machine.attribute(_object(machine, node, owner), node.s("name"))
    if isinstance(item, Object):
        machine.hierarchy.note_read(item.path)
    return item


@script("prim::SetAttr")
def set_attribute(machine: Interpreter, node: ScriptNode, owner: Item, item: Item) -> None:
    """The program sets an attribute."""
    name = node.s("name")
    owner = _object(machine, node, owner)
    machine.touch(owner)
    if isinstance(owner.read_stored(name), torch.Tensor):
        # Read the state now, to keep its name even if it is used only after the program.
        machine.build.reserve([owner.path_of(name)])
    owner.attributes[name] = item
    owner.changed.add(name)


@script("prim::CreateObject")
def create_object(machine: Interpreter, node: ScriptNode) -> Object:
    """A new instance of a TorchScript class."""
    return machine.object(None, str(node.output().type()))


_FIELD = re.compile(r"(\w+) : ")
_INNER = re.compile(r"[\[(][^\[\]()]*[\])]")


@script("prim::TupleConstruct")
def tuple_construct(machine: Interpreter, node: ScriptNode, *items: Item) -> tuple[Item, ...]:
    """A tuple, named if the program's type is a named tuple."""
    tuple_type = node.output().type()
    text = tuple_type.str()
    if text.startswith("NamedTuple("):
        fields = text.removeprefix("NamedTuple(").removesuffix(")")
        # The types of the fields may have brackets with names of their own.
        while _INNER.search(fields):
            fields = _INNER.sub("", fields)
        name = str(tuple_type).rpartition(".")[2]
        named: tuple[Item, ...] = _named_tuple(name, tuple(_FIELD.findall(fields)))(*items)
        return named
    return tuple(items)


@functools.lru_cache(maxsize=256)
def _named_tuple(name: str, fields: tuple[str, ...]) -> Callable[..., tuple[Item, ...]]:
    return collections.namedtuple(name if name.isidentifier() else "NamedTuple", fields)


@script("prim::TupleUnpack")
def tuple_unpack(machine: Interpreter, node: ScriptNode, items: tuple[Item, ...]) -> list[Item]:
    """The members of a tuple."""
    return [*items]


@script("prim::TupleIndex")
def tuple_index(machine: Interpreter, node: ScriptNode, items: tuple[Item, ...], index: Item) -> Item:
    """One member of a tuple."""
    if not isinstance(index, int):
        raise CaptureError("the position in a tuple must be constant")
    return items[index]


@script("prim::TupleSlice")
def tuple_slice(machine: Interpreter, node: ScriptNode, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Some members of a tuple."""
    return items[node.i("beg") : node.i("end")]


_UNCHANGED = (
    "prim::unchecked_cast prim::unchecked_unwrap_optional aten::_unwrap_optional prim::data aten::wait "
    "prim::awaitable_wait"
)


@script(*_UNCHANGED.split())
def unchecked_cast(machine: Interpreter, node: ScriptNode, item: Item) -> Item:
    """The item, whose type the program has checked; the result of a task, which was run when it was made."""
    return item.value if isinstance(item, Optional) else item


@script("aten::__is__", "aten::__isnot__")
def is_same(machine: Interpreter, node: ScriptNode, a: Item, b: Item) -> Item:
    """`a is None`; TorchScript compares only with None."""
    negated = node.kind() == "aten::__isnot__"
    if isinstance(b, Optional):
        a, b = b, a
    if isinstance(a, Optional) and b is None:
        return a.present if negated else compute(machine, "__not__", a.present)
    return (a is b) is not negated


@script("prim::RaiseException")
def raise_exception(machine: Interpreter, node: ScriptNode, message: Item, *exception_class: Item) -> None:
    """The program raises."""
    # A branch that raises is left out; if every path raises, the capture fails with this message.
    raise Raised(f"{message}")


_WITHOUT_EFFECT = (
    "aten::warn prim::Print prim::Enter prim::Exit aten::set_grad_enabled aten::_set_grad_enabled "
    "profiler::_record_function_enter profiler::_record_function_enter_new profiler::_record_function_exit "
    "aten::_assert_async aten::_assert_tensor_metadata prim::profile aten::manual_seed aten::seed"
)


@script(*_WITHOUT_EFFECT.split())
def nothing(machine: Interpreter, node: ScriptNode, *operands: Item) -> Item:
    """Ignore nodes without effect on values. Seeds are ignored, because the runtime draws random numbers."""
    return operands[0] if node.kind() == "prim::profile" and operands else None


@script("prim::CallMethod")
def call_method(machine: Interpreter, node: ScriptNode, owner: Item, *operands: Item) -> Item:
    """A method call on an interface, which is not inlined: calls the method of the known module."""
    if not isinstance(owner, Object) or owner.handle is None:
        raise CaptureError(f"the module whose method '{node.s('name')}' is called must be known at capture")
    method: ScriptMethod | None = torchscript.method(owner.handle, node.s("name"))
    assert method is not None
    return machine.run(method.inlined_graph, [owner, *operands])[0]


@script("prim::fork", "prim::awaitable")
def fork(machine: Interpreter, node: ScriptNode, *operands: Item) -> Item:
    """A task, run at once."""
    return machine.run(torchscript.inline_calls(node.g("Subgraph")), operands)[0]


@script("prim::isinstance")
def is_instance(machine: Interpreter, node: ScriptNode, item: Item) -> bool:
    """Whether an item has one of several types."""
    # The static type decides, unless it leaves several types open.
    candidates = node.tys("types")
    static = next(iter(node.inputs())).type()
    if any(static.isSubtypeOf(candidate) for candidate in candidates):
        return True
    if static.kind() not in ("OptionalType", "UnionType", "AnyType"):
        return False
    if is_number(item):
        type_name = number_kind(item)
    elif isinstance(item, (Value, torch.Tensor)):
        type_name = "Tensor"
    else:
        type_name = {str: "str", type(None): "NoneType"}.get(type(item), "")
    if not type_name:
        raise CaptureError(f"a {type(item).__name__} is not supported")
    return type_name in map(str, candidates)


@script("aten::format", "aten::percentFormat", "aten::str", "prim::str")
def text_format(machine: Interpreter, node: ScriptNode, text: Item, *operands: Item) -> str:
    """Format a string; one with computed numbers may only be shown."""
    # A tuple behind `%` has one member for each specifier.
    members = operands[0] if operands and isinstance(operands[0], tuple) else operands
    # TorchScript formats floats differently from Python, so such a text is not computed here.
    is_known = all(
        isinstance(o, (str, int, type(None))) and not isinstance(o, UnknownText) for o in (text, *members)
    )
    if not is_known or (node.kind() == "aten::percentFormat" and _FLOAT_SPECIFIER.search(str(text))):
        return UnknownText("...")
    if node.kind() == "aten::format":
        # Unlike Python, TorchScript replaces `{}` only, and leaves `{0}` as it is.
        *parts, last = str(text).split("{}")
        return "".join(f"{part}{member}" for part, member in zip(parts, members, strict=False)) + last
    return str(text) % members if node.kind() == "aten::percentFormat" else str(text)


_FLOAT_SPECIFIER = re.compile("%[eEfFgG]")
_TEXT_METHODS = (
    "lower upper strip lstrip rstrip startswith endswith replace find rfind isdigit isalpha title "
    "capitalize isupper islower isspace isnumeric zfill center ljust rjust expandtabs splitlines "
    "isalnum isdecimal isidentifier isprintable istitle partition rpartition rsplit swapcase rindex"
)


@script(*(f"aten::{name}" for name in _TEXT_METHODS.split()))
def text_method(machine: Interpreter, node: ScriptNode, text: Item, *operands: Item) -> Results:
    """A method of a constant string."""
    if not isinstance(text, str) or isinstance(text, UnknownText) or not all(map(is_constant, operands)):
        raise CaptureError("the string must be known at capture")
    return of_constants(machine, node, text, *operands)


@script("aten::ord", "aten::chr", "aten::hex", "aten::bin", "aten::oct")
def text_function(machine: Interpreter, node: ScriptNode, item: Item) -> Results:
    """`ord`, `chr`, `hex`, `bin`, `oct`; the string of a computed number may only be shown."""
    if isinstance(item, UnknownText):
        raise CaptureError("the string must be known at capture")
    return of_constants(machine, node, item) if is_constant(item) else UnknownText("...")


@script("aten::join")
def text_join(machine: Interpreter, node: ScriptNode, text: str, items: List) -> str:
    """Join strings; if one depends on computed numbers, the result may only be shown."""
    texts = [item for item in items.items or [] if isinstance(item, str)]
    if items.items is None or len(texts) < len(items.items):
        raise CaptureError("the strings must be known at capture")
    if any(isinstance(item, UnknownText) for item in (text, *texts)):
        return UnknownText("...")
    return text.join(texts)


@script("prim::EnumValue", "prim::EnumName")
def enumeration(machine: Interpreter, node: ScriptNode, item: enum.Enum) -> Item:
    """The value or name of a member of an enumeration."""
    value: Item = item.value
    return value if node.kind() == "prim::EnumValue" else item.name
