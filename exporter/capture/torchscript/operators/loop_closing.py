"""Builds the node of a loop after its body was read: carried values and results."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch
from onnx_ir import Value

from ..builder import DTYPES
from ..fake_values import UNKNOWN
from ..interpreter import Interpreter
from ..objects import (
    UNINITIALIZED,
    Contents,
    Dict,
    Item,
    List,
    Mutable,
    Object,
    Optional,
    Shared,
    UnknownText,
    is_number,
    number_kind,
    rebuild_tuple,
)
from .script_branches import ReadBlock, is_present, placeholder, unwrap_optional

Path = tuple[Item, ...]

INSIDE = "value of an optional"
"""The last step of a path to the value of an optional."""


def members_of(
    machine: Interpreter, item: Mutable, first: Contents, was: Contents, now: Contents
) -> dict[Item, tuple[Item, Item, Item]]:
    """The items of an object before the loop, and at the start and the end of an iteration, by key."""
    states = (first, was, now)
    if isinstance(item, List):
        a, b, c = (List(state.items, state.value, item.element_type) for state in states)
        return {None: (a, b, c)}
    entries: list[dict[Item, Item]] = [state.entries for state in states]
    if isinstance(item, Object):
        names = sorted(now.changed | was.changed)
        entries = [
            {name: machine.attribute_item(item, state.attributes, name) for name in names} for state in states
        ]
    old, start, end = entries
    return {
        key: (old.get(key, UNINITIALIZED), start.get(key, UNINITIALIZED), end.get(key, UNINITIALIZED))
        for key in {**old, **start, **end}
    }


class Loop:
    """A loop that is not unrolled.

    Attributes:
        trips, condition, initial: the operands of the program's loop.
        objects: the lists, dicts and objects from outside that its body changes.
        formals: the body's input for each carried value, by the value's path.
    """

    def __init__(self, machine: Interpreter, trips: Item, condition: Item, initial: list[Item]):
        self.machine = machine
        self.trips = trips
        self.condition = condition
        self.initial = initial
        self.objects: dict[Mutable, None] = {}
        self.formals: dict[Path, Value] = {}


@dataclasses.dataclass
class Reading:
    """What a loop's body was read with.

    Attributes:
        iteration: the body's input that counts the iterations.
        before: the contents of the changed objects before the loop.
        formals: the body's inputs for the carried items.
        entered: the contents of the changed objects at the start of the body.
    """

    iteration: Value
    before: dict[Mutable, Contents]
    formals: list[Item] = dataclasses.field(default_factory=list)
    entered: dict[Mutable, Contents] = dataclasses.field(default_factory=dict)


class Closing:
    """Appends the node of a loop whose body has been read."""

    def __init__(self, loop: Loop, block: ReadBlock, reading: Reading):
        self.loop = loop
        self.machine = loop.machine
        self.block = block
        self.reading = reading
        self.carried: list[Item] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.joined_items: list[tuple[Shared, bool]] = []

    def run(self) -> list[Item]:
        """Close the body, append the loop, and return the loop's results."""
        machine, loop, reading = self.machine, self.loop, self.reading
        entered = reading.entered
        with machine.build.appending(self.block.nodes):
            going = machine.build.as_value(self.block.results[0])
        self.block.give(machine, going)
        triples = zip(loop.initial, reading.formals, self.block.results[1:], strict=True)
        results = [self.item(first, was, now, (i,)) for i, (first, was, now) in enumerate(triples)]
        states = []
        # Objects from outside have no value in the program's loop; what the body sets of them is carried too.
        for index, item in enumerate(loop.objects):
            now = self.block.changed.get(item, entered[item])
            members = members_of(machine, item, reading.before[item], entered[item], now)
            states.append({key: self.item(*m, ("object", index, key)) for key, m in members.items()})
        body = self.block.close(machine, [reading.iteration, *self.inputs], "body")
        arguments = {
            "max_trip_count": loop.trips,
            "condition": loop.condition,
            "carried": self.carried,
        }
        machine.build.append("prim::Loop", arguments, self.outputs, attributes=[ir.AttrGraph("body", body)])
        for item, state in zip(loop.objects, states, strict=True):
            machine.touch(item)
            if isinstance(item, Object):
                attributes = {**item.attributes, **{str(name): member for name, member in state.items()}}
                changed = item.changed | self.block.changed.get(item, entered[item]).changed
                item.restore(Contents(attributes=attributes, changed=changed))
            elif isinstance(item, List):
                carried_list = state[None]
                assert isinstance(carried_list, List)
                item.restore(carried_list.contents())
            else:
                item.restore(Contents(entries=state))
        machine.lose(self.block.staled)
        for joined_item, stale in self.joined_items:
            # Its contents come from the results of the body, so only their staleness counts.
            joined_item.stale = stale
        return results

    def item(self, first: Item, was: Item, now: Item, path: Path) -> Item:
        """Carry an item; return the item after the loop."""
        value = self.loop.formals.get(path)
        if now is UNINITIALIZED and was is first:
            # No path reads it after an iteration; without iterations it keeps its initial value.
            return first
        if isinstance(was, Optional):
            # An optional is two carried values: whether it is there, and its value or a placeholder.
            present = self.value(is_present(first), was.present, is_present(now), self.loop.formals[path])
            return Optional(
                present, self.item(unwrap_optional(first), was.value, unwrap_optional(now), (*path, INSIDE))
            )
        if isinstance(was, tuple):
            firsts = first if isinstance(first, tuple) else (UNINITIALIZED,) * len(was)
            nows = now if isinstance(now, tuple) else (UNINITIALIZED,) * len(was)
            members = [
                self.item(a, b, c, (*path, i))
                for i, (a, b, c) in enumerate(zip(firsts, was, nows, strict=True))
            ]
            return rebuild_tuple(was, members)
        # The object is carried with the changed objects, so the name needs no value of its own.
        if isinstance(was, List) and was is now:
            return now
        if isinstance(was, List):
            joined_list = self.list(first, was, self.block.final_state(now), path)
            self.note(joined_list, first, now)
            return joined_list
        if isinstance(was, Dict) and was is not now:
            return self.dict(first, was, now, path)
        if isinstance(was, UnknownText):
            return was
        return now if value is None else self.value(first, value, now, value)

    def dict(self, first: Item, was: Dict, now: Item, path: Path) -> Dict:
        """Carry the items of a dict that the body replaces by another one."""
        ends = (first, self.block.final_state(now))
        old, new = (item.entries if isinstance(item, Dict) else {} for item in ends)
        members = {
            key: self.item(old.get(key, UNINITIALIZED), start_item, new.get(key, UNINITIALIZED), (*path, key))
            for key, start_item in was.entries.items()
        }
        joined_dict = self.machine.dict(members)
        self.note(joined_dict, first, now)
        return joined_dict

    def note(self, joined_item: Shared, first: Item, now: Item) -> None:
        """Record that a list or dict is either the initial one or that of the last iteration."""
        joined_item.may_be(first, now)
        stale = isinstance(first, Shared) and first.stale
        self.joined_items.append((joined_item, stale or self.block.has_lost(now)))

    def list(self, first: Item, was: List, now: Item, path: Path) -> List:
        """Carry a list, or its elements if its length is known."""
        if was.items is not None:
            unset = [UNINITIALIZED] * len(was.items)
            old = first.items if isinstance(first, List) and first.items is not None else unset
            new = now.items if isinstance(now, List) and now.items is not None else unset
            triples = enumerate(zip(old, was.items, new, strict=True))
            return self.machine.list(
                [self.item(a, b, c, (*path, i)) for i, (a, b, c) in triples], was.element_type
            )
        value = self.loop.formals[path]
        return self.machine.list(None, was.element_type, self.value(first, value, now, value))

    def value(self, first: Item, was: Item, now: Item, formal: Value) -> Value:
        """Carry one value, given before the loop, at the start and at the end of an iteration."""
        build = self.machine.build
        with build.appending(self.block.nodes):
            last = self.machine.source_value(was if now is UNINITIALIZED else now)
        if is_number(formal):
            result = build.number(number_kind(formal), stem="loop")
        elif formal in build.elements or (formal.dtype in DTYPES.values() and isinstance(now, List)):
            example = now if isinstance(now, List) else first
            element_type = example.element_type if isinstance(example, List) else "Tensor"
            result = build.list_value(build.elements.get(formal, UNKNOWN), element_type, "loop")
        else:
            # A size that changes in the body has another value after the last iteration than in the body.
            result = build.value("loop", self.machine.fakes.with_new_sizes(self.machine.fake(formal)))
        if first is UNINITIALIZED:
            # A placeholder has 1 for each dynamic size.
            for value in (formal, result):
                if value.shape is not None:
                    value.shape = ir.Shape([s if isinstance(s, int) else None for s in value.shape])
            first = placeholder(self.machine, now if not isinstance(now, (Value, torch.Tensor)) else formal)
        self.carried.append(first if is_number(first) else self.machine.source_value(first))
        self.inputs.append(formal)
        self.block.give(self.machine, last)
        self.outputs.append(result)
        return result
