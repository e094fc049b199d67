"""Lists and dicts of a TorchScript program: evaluated if their length is known, else `list` nodes."""

from __future__ import annotations

import builtins
from typing import Any

import torch
from onnx_ir import Value

from .....registration import CaptureError
from ..builder import DTYPES
from ..fake_values import UNKNOWN, Fake
from ..interpreter import Interpreter, Results
from ..library import call_operator, element_kind, of_constants, script
from ..objects import Dict, Item, List, NumberItem, TensorItem, is_constant, is_number
from ..script_graph import ScriptNode
from .scalars import compute, convert
from .tensor_properties import size


def list_value_like(
    machine: Interpreter, items: List, name: str, arguments: dict[str, Item], element: Fake
) -> Value:
    """A `list` node that returns a list with the same kind of elements."""
    value = machine.build.list_value(element, items.element_type)
    machine.build.append(name, arguments, [value])
    return value


def _join_element(machine: Interpreter, items: List, added: Item) -> Fake:
    """The known properties of the elements after another one is added."""
    if items.element_type in DTYPES:
        return UNKNOWN
    common = machine.element(items)
    fake = machine.fake(added)
    empty = items.items is not None and not items.items
    return fake if empty or common is UNKNOWN else machine.fakes.join(common, fake)


def _change(machine: Interpreter, items: List, name: str, arguments: dict[str, Item], element: Fake) -> None:
    """Replace a list of unknown length by the result of a `list` node."""
    value = machine.dynamic(items)
    # Source lists are values without identity: the change makes a new one, which the object then holds.
    items.value = list_value_like(machine, items, name, {"self": value, **arguments}, element)
    items.items = None


@script("prim::ListConstruct")
def list_construct(machine: Interpreter, node: ScriptNode, *items: Item) -> List:
    """`[a, b, c]`."""
    return machine.list(items, element_kind(node))


@script("prim::ListUnpack")
def list_unpack(machine: Interpreter, node: ScriptNode, items: List) -> list[Item]:
    """`a, b, c = items`."""
    count = len(list(node.outputs()))
    elements = items.items
    if elements is None:
        elements = [_element(machine, items, index, machine.stem(node, index)) for index in range(count)]
    if len(elements) != count:
        raise CaptureError(f"a list of {len(elements)} is unpacked into {count} values")
    return elements


def _element(machine: Interpreter, items: List, index: Item, stem: str) -> Value:
    """One element of a list of unknown length."""
    value = machine.dynamic(items)
    if items.element_type in DTYPES:
        result = machine.build.number(items.element_type, stem=stem)
    else:
        # Each element has its own sizes.
        result = machine.build.value(stem, machine.fakes.with_new_sizes(machine.element(items)))
    machine.build.append("list::getitem", {"self": value, "index": index}, [result])
    return result


@script("aten::__getitem__")
def get_item(machine: Interpreter, node: ScriptNode, items: List | Dict | str, index: Item) -> Item:
    """`items[index]` of a list, dict or text."""
    if isinstance(items, Dict):
        if not is_constant(index) or index not in items.entries:
            raise CaptureError(f"the dict has no constant key {index!r}")
        return items.entries[index]
    if isinstance(items, str):
        if not isinstance(index, int):
            raise CaptureError("the position in a string must be constant")
        return items[index]
    if items.items is not None and isinstance(index, int):
        if not -len(items.items) <= index < len(items.items):
            raise CaptureError(f"position {index} is outside of a list of {len(items.items)} elements")
        return items.items[index]
    if items.element_type not in DTYPES and items.element_type != "Tensor":
        raise CaptureError(f"a computed position is not supported in a list of {items.element_type}")
    return _element(machine, items, index, machine.stem(node))


@script("aten::_set_item")
def set_item(machine: Interpreter, node: ScriptNode, items: List | Dict, index: Item, item: Item) -> Item:
    """`items[index] = item`."""
    machine.touch(items)
    if isinstance(items, Dict):
        if not is_constant(index):
            raise CaptureError("the key of a dict must be constant")
        items.entries[index] = item
    elif items.items is not None and isinstance(index, int):
        items.items[index] = item
    else:
        _change(
            machine, items, "list::set", {"index": index, "item": item}, _join_element(machine, items, item)
        )
    return items


@script("aten::append")
def append(machine: Interpreter, node: ScriptNode, items: List, item: Item) -> List:
    """`items.append(item)`."""
    machine.touch(items)
    if items.items is not None:
        items.items.append(item)
    else:
        _change(machine, items, "list::append", {"item": item}, _join_element(machine, items, item))
    return items


@script("aten::insert")
def insert(machine: Interpreter, node: ScriptNode, items: List, index: Item, item: Item) -> List:
    """`items.insert(index, item)`."""
    machine.touch(items)
    if items.items is not None and isinstance(index, int):
        items.items.insert(index, item)
    else:
        arguments = {"index": index, "item": item}
        _change(machine, items, "list::insert", arguments, _join_element(machine, items, item))
    return items


def _length(machine: Interpreter, items: List | Dict | str | tuple[Item, ...]) -> Item:
    if isinstance(items, (str, tuple)):
        return len(items)
    if isinstance(items, Dict):
        return len(items.entries)
    if items.items is not None:
        return len(items.items)
    return machine.build.list_number("list::len", {"self": items.value}, "int")


@script("aten::len")
def length(machine: Interpreter, node: ScriptNode, items: TensorItem | List | Dict | str) -> Item:
    """`len(items)`, of a tensor its first size."""
    if isinstance(items, (Value, torch.Tensor)):
        return size(machine, items, 0)
    return _length(machine, items)


@script("aten::pop", "aten::Delete")
def pop(machine: Interpreter, node: ScriptNode, items: List | Dict, index: Item = -1, *default: Item) -> Item:
    """`items.pop(index)` and `del items[index]`."""
    machine.touch(items)
    if isinstance(items, Dict):
        return items.entries.pop(index, *default)
    if items.items is not None and isinstance(index, int):
        return items.items.pop(index)
    # Read the element before the list without it replaces the list.
    element = _element(machine, items, index, machine.stem(node))
    _change(machine, items, "list::delete", {"index": index}, machine.element(items))
    return element


@script("aten::extend")
def extend(machine: Interpreter, node: ScriptNode, items: List, added: List) -> None:
    """`items.extend(other)`."""
    machine.touch(items)
    if items.items is not None and added.items is not None:
        items.items.extend(added.items)
        return
    _extend(machine, items, added)


def _extend(machine: Interpreter, items: List, added: List) -> None:
    element = machine.join_elements(items, added)
    _change(machine, items, "list::extend", {"other": machine.dynamic(added)}, element)


@script("aten::add_", "aten::mul_")
def in_place(machine: Interpreter, node: ScriptNode, items: Item, operand: Item, *options: Item) -> Results:
    """`items += other` and `items *= n`, which keep the list's identity; for tensors, ATen's operators."""
    if not isinstance(items, List):
        return call_operator(machine, node, [items, operand, *options])
    if isinstance(operand, List):
        extend(machine, node, items, operand)
        return items
    # `items` stays the same object, because other variables may refer to it.
    result = _repeat(machine, items, operand)
    machine.touch(items)
    items.items, items.value = result.items, result.value
    return items


@script("aten::remove")
def remove(machine: Interpreter, node: ScriptNode, items: List, item: Item) -> None:
    """`items.remove(item)`."""
    index = query_index(machine, node, items, item)
    pop(machine, node, items, index)


@script("aten::clear")
def clear(machine: Interpreter, node: ScriptNode, items: List | Dict) -> None:
    """`items.clear()`."""
    machine.touch(items)
    if isinstance(items, Dict):
        items.entries.clear()
    else:
        items.items, items.value = [], None


@script("aten::reverse")
def reverse(machine: Interpreter, node: ScriptNode, items: List) -> None:
    """`items.reverse()`."""
    machine.touch(items)
    if items.items is not None:
        items.items.reverse()
    else:
        _change(machine, items, "list::reverse", {}, machine.element(items))


@script("aten::list", "aten::copy", "aten::__copy__", "aten::Size")
def copy(machine: Interpreter, node: ScriptNode, items: List | Dict | str) -> Item:
    """`list(items)` and `items.copy()`."""
    if isinstance(items, Dict):
        return machine.dict(items.entries)
    if isinstance(items, str):
        return machine.list(list(items), "str")
    return machine.list(items.items, items.element_type, items.value)


@script("aten::slice")
def slice_(machine: Interpreter, node: ScriptNode, items: TensorItem | List | str, *bounds: Any) -> Results:
    """`items[start:end:step]`; for tensors, ATen's slice."""
    if isinstance(items, (Value, torch.Tensor)):
        return call_operator(machine, node, [items, *bounds])
    start, end, step = bounds
    if isinstance(items, str):
        if not all(map(is_constant, bounds)):
            raise CaptureError("the bounds of a part of a string must be constant")
        return items[slice(start, end, step)]
    if items.items is not None and all(map(is_constant, bounds)):
        return machine.list(items.items[slice(start, end, step)], items.element_type)
    if items.element_type not in DTYPES and items.element_type != "Tensor":
        raise CaptureError(f"computed bounds are not supported in a list of {items.element_type}")
    arguments = {"self": machine.dynamic(items), "start": start, "end": end, "step": step}
    value = list_value_like(machine, items, "list::slice", arguments, machine.element(items))
    return machine.list(None, items.element_type, value)


def list_arithmetic(machine: Interpreter, node: ScriptNode, name: str, *operands: Item) -> Item:
    """`a + b`, `a * 3`, `a == b` of lists."""
    first, second = operands
    if name in ("eq", "ne"):
        equal = _equal(machine, first, second)
        return compute(machine, "__not__", equal) if name == "ne" else equal
    if name == "add" and isinstance(first, List) and isinstance(second, List):
        if first.items is not None and second.items is not None:
            return machine.list([*first.items, *second.items], first.element_type)
        result = machine.list(first.items, first.element_type, first.value)
        _extend(machine, result, second)
        return result
    if name == "mul":
        items, times = (first, second) if isinstance(first, List) else (second, first)
        if isinstance(items, List):
            return _repeat(machine, items, times)
    raise CaptureError("lists cannot be compared in this way")


def _repeat(machine: Interpreter, items: List, times: Item) -> List:
    if items.items is not None and isinstance(times, int):
        return machine.list(items.items * times, items.element_type)
    arguments = {"self": machine.dynamic(items), "times": times}
    value = list_value_like(machine, items, "list::repeat", arguments, machine.element(items))
    return machine.list(None, items.element_type, value)


def _equal(machine: Interpreter, a: Item, b: Item) -> NumberItem:
    if not isinstance(a, List) or not isinstance(b, List):
        raise CaptureError("comparing dicts needs their values, which are computed")
    if a.items is None or b.items is None:
        arguments = {"self": machine.dynamic(a), "other": machine.dynamic(b)}
        return machine.build.list_number("list::equal", arguments, "bool")
    if len(a.items) != len(b.items):
        return False
    result: NumberItem = True
    for x, y in zip(a.items, b.items, strict=True):
        if isinstance(x, List):
            same: NumberItem = _equal(machine, x, y)
        elif all(isinstance(item, (str, tuple, type(None))) for item in (x, y)):
            same = x == y
        elif is_number(x) and is_number(y):
            same = compute(machine, "eq", x, y)
        else:
            raise CaptureError("comparing lists of tensors needs their values, which are computed")
        result = compute(machine, "__and__", result, same)
    return result


@script("aten::__contains__")
def contains(machine: Interpreter, node: ScriptNode, items: List | Dict | str, item: Item) -> Item:
    """`item in items`."""
    if isinstance(items, Dict):
        return item in items.entries
    if isinstance(items, str):
        return isinstance(item, str) and item in items
    if items.items is None:
        return machine.build.list_number("list::contains", {"self": items.value, "item": item}, "bool")
    result: NumberItem = False
    for member in items.items:
        if isinstance(item, str) or isinstance(member, str):
            same: NumberItem = bool(item == member)
        else:
            same = compute(machine, "eq", member, item)
        result = compute(machine, "__or__", result, same)
    return result


def query_index(machine: Interpreter, node: ScriptNode, items: List, item: Item) -> Item:
    """The position of the first element that equals an item."""
    if items.items is not None and is_constant(items) and is_constant(item):
        if item not in items.items:
            raise CaptureError(f"{item!r} is not in the list")
        return items.items.index(item)
    if items.element_type not in DTYPES:
        raise CaptureError(f"a list of {items.element_type} is not supported")
    return machine.build.list_number("list::index", {"self": machine.dynamic(items), "item": item}, "int")


@script("aten::index", "aten::count")
def query(machine: Interpreter, node: ScriptNode, items: TensorItem | List | str, *operands: Item) -> Results:
    """`items.index(item)` and `items.count(item)`; for tensors, ATen's index."""
    if isinstance(items, (Value, torch.Tensor)):
        return call_operator(machine, node, [items, *operands])
    if isinstance(items, str):
        return of_constants(machine, node, items, *operands)
    if items.items is not None and is_constant(items) and all(map(is_constant, operands)):
        return of_constants(machine, node, items.items, *operands)
    if items.element_type not in DTYPES:
        raise CaptureError(f"a list of {items.element_type} is not supported")
    name = f"list::{node.kind().split('::')[1]}"
    return machine.build.list_number(name, {"self": machine.dynamic(items), "item": operands[0]}, "int")


@script("aten::sort", "aten::sorted", "aten::sum", "aten::any", "aten::all")
def order_or_reduce(
    machine: Interpreter, node: ScriptNode, items: TensorItem | List, *operands: Item
) -> Results:
    """`items.sort()`, `sorted(items)`, `sum(items)`, `any(items)`, `all(items)`; for tensors, ATen's."""
    if isinstance(items, (Value, torch.Tensor)):
        return call_operator(machine, node, [items, *operands])
    name = node.kind().split("::")[1]
    if name in ("sort", "sorted"):
        return _sort_list(machine, node, items, name, bool(operands and operands[0]))
    if items.items is None:
        return machine.build.list_number(f"list::{name}", {"self": items.value}, items.element_type)
    if is_constant(items):
        reduced: Item = getattr(builtins, name)(items.items)
        return reduced
    # Python's own results for an empty list.
    result: NumberItem = 0 if name == "sum" else name == "all"
    operation = {"sum": "add", "all": "__and__", "any": "__or__"}[name]
    for member in items.items:
        operand = member if name == "sum" else convert(machine, member, "bool")
        result = compute(machine, operation, result, operand)
    return result


def _sort_list(machine: Interpreter, node: ScriptNode, items: List, name: str, descending: bool) -> Item:
    if is_constant(items) and items.items is not None:
        constants: list[Any] = items.items
        sorted_items = sorted(constants, reverse=descending)
        if name == "sorted":
            return machine.list(sorted_items, items.element_type)
        machine.touch(items)
        items.items = sorted_items
        return None
    if items.element_type not in DTYPES:
        raise CaptureError(f"a list of {items.element_type} is not supported")
    target = machine.list(items.items, items.element_type, items.value) if name == "sorted" else items
    machine.touch(target)
    count = None if items.items is None else len(items.items)
    _change(machine, target, "list::sort", {"descending": descending}, UNKNOWN)
    if count is not None:
        target.items = [_element(machine, target, index, machine.stem(node)) for index in range(count)]
        target.value = None
    return target if name == "sorted" else None


@script("prim::rangelist")
def range_list(machine: Interpreter, node: ScriptNode, count: Item) -> List:
    """`list(range(count))`."""
    if isinstance(count, int):
        return machine.list([*range(count)], "int")
    value = machine.build.list_value(UNKNOWN, "int")
    machine.build.append("sym::range", {"start": 0, "end": count}, [value])
    return machine.list(None, "int", value)


@script("prim::DictConstruct")
def dict_construct(machine: Interpreter, node: ScriptNode, *items: Item) -> Dict:
    """`{key: value}`."""
    keys = items[::2]
    if not all(map(is_constant, keys)):
        raise CaptureError("the keys of a dict must be constant")
    return machine.dict(dict(zip(keys, items[1::2], strict=True)))


@script("aten::dict")
def dict_of(machine: Interpreter, node: ScriptNode, *operands: Item) -> Dict:
    """`dict(items)`."""
    if operands and isinstance(operands[0], List):
        if operands[0].items is None:
            raise CaptureError("the length of the list must be known at capture")
        return machine.dict({pair[0]: pair[1] for pair in operands[0].items if isinstance(pair, tuple)})
    return machine.dict(operands[0].entries if operands and isinstance(operands[0], Dict) else {})


@script("aten::keys", "aten::values", "aten::items")
def dict_view(machine: Interpreter, node: ScriptNode, items: Dict) -> List:
    """The keys, values, or pairs of a dict, as a list."""
    name = node.kind().split("::")[1]
    element_type = element_kind(node)
    return machine.list(list(getattr(items.entries, name)()), element_type)


@script("aten::popitem")
def dict_pop_item(machine: Interpreter, node: ScriptNode, items: Dict) -> tuple[Item, Item]:
    """`items.popitem()`: TorchScript removes the first pair, Python the last."""
    machine.touch(items)
    if not items.entries:
        raise CaptureError("the dict is empty")
    # TorchScript's dict keeps the order of insertion, and takes its first entry.
    key = next(iter(items.entries))
    return key, items.entries.pop(key)


@script("aten::get", "aten::setdefault")
def dict_method(machine: Interpreter, node: ScriptNode, items: Dict, *operands: Item) -> Item:
    """`items.get(key, default)` and `items.setdefault(key, default)`."""
    name = node.kind().split("::")[1]
    if name != "get":
        machine.touch(items)
    result: Item = getattr(items.entries, name)(*operands)
    return result


@script("aten::update")
def dict_update(machine: Interpreter, node: ScriptNode, items: Dict, added: Dict) -> None:
    """`items.update(other)`."""
    machine.touch(items)
    items.entries.update(added.entries)
