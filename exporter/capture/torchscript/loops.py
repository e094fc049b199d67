"""Loops of a TorchScript program: unrolled where they are short and their length is known, else kept.

What a kept loop carries is found by reading its body again and again: a size, a length or a value that
the body changes is taken to be unknown in the next reading, until a reading confirms what it assumed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnx_ir import Value

from ....registration import CaptureError
from .builder import DTYPES
from .control_flow import Block, placeholder, read_block, within
from .fakes import UNKNOWN, Tensor, Typed
from .library import script
from .objects import (
    UNINITIALIZED,
    Dict,
    List,
    Mutable,
    Object,
    Optional,
    UnknownText,
    is_number,
    number_kind,
    same,
)

if TYPE_CHECKING:
    from .interpreter import Interpreter

UNROLLED_NODES = 1000
"""A loop of known length is unrolled where that makes no more nodes than these, and kept otherwise."""
ALWAYS_UNROLLED = 4
"""So many iterations are unrolled however long they are."""
_READINGS = 40
_ENDLESS = 2**63 - 1

Path = tuple[Any, ...]


@script("prim::Loop")
def loop(machine: Interpreter, node: Any, trips: Any, condition: Any, *initial: Any) -> Any:
    """A `for` or `while`."""
    [body] = node.blocks()
    state = list(initial)
    if condition is True and (isinstance(trips, int)):
        unrolled = _unrolled(machine, body, trips, state)
        if unrolled is not None:
            return unrolled[0] if len(unrolled) == 1 else unrolled
    if condition is False or trips == 0:
        results = state
    else:
        results = _Kept(machine, node, body, trips, condition, state).run()
    return results[0] if len(results) == 1 else results


def _unrolled(machine: Interpreter, body: Any, trips: int, state: list[Any]) -> list[Any] | None:
    """The results of a loop whose every condition is known; None, and nothing done, of any other."""
    nodes = machine.build.nodes
    start = len(nodes)
    condition: Any = True
    count = 0
    with machine.journal() as journal:
        while condition is True and count < trips:
            condition, *state = machine.run_block(body, [count, *state])
            count += 1
            made = len(nodes) - start
            remaining = trips - count if trips < _ENDLESS else 1
            expected = made + made // count * remaining
            if not isinstance(condition, bool) or (count >= ALWAYS_UNROLLED and expected > UNROLLED_NODES):
                break
        else:
            return state
    del nodes[start:]
    for item, before in journal.items():
        item.restore(before)
    return None


@dataclasses.dataclass
class _Assumption:
    """What is assumed of one thing that a loop carries, beyond what it is at first.

    Attributes:
        dims: dimensions whose size changes.
        like: an item whose type it has where the first one tells too little.
        length_changes: whether it is a list of unknown length.
        optional: whether it may be None.
        element: what is known of the elements of a list of unknown length.
        typed: whether the rank changes.
    """

    dims: set[int] = dataclasses.field(default_factory=set)
    like: Any = None
    length_changes: bool = False
    optional: bool = False
    element: Any = UNKNOWN
    typed: bool = False


class _Kept:
    """A loop that stays a loop."""

    def __init__(
        self, machine: Interpreter, node: Any, body: Any, trips: Any, condition: Any, initial: list[Any]
    ):
        self.machine = machine
        self.node = node
        self.body = body
        self.trips = trips
        self.condition = condition
        self.initial = initial
        self.objects: dict[Mutable, None] = {}
        self.changed: dict[Mutable, set[str]] = {}
        """The attributes of objects that the body sets."""
        self.assumptions: dict[Path, _Assumption] = {}
        self.formals: dict[Path, Value] = {}
        self.settled = True

    def run(self) -> list[Any]:
        """Read the body until its assumptions hold, and append the loop."""
        module, line = self.machine.build.module, self.machine.build.line
        for _ in range(_READINGS):
            self.formals, self.settled = {}, True
            iteration = self.machine.build.number("int", stem="iteration")
            before = {item: item.state() for item in self.objects}
            formal = [self._formal(item, (i,)) for i, item in enumerate(self.initial)]
            for index, item in enumerate(self.objects):
                item.restore(self._formal_state(item, before[item], index))
            entered = {item: item.state() for item in self.objects}
            block = read_block(
                self.machine,
                lambda formal=formal, iteration=iteration: self.machine.run_block(  # type: ignore[misc]
                    self.body, [iteration, *formal]
                ),
            )
            for item, state in before.items():
                item.restore(state)
            self.machine.build.module, self.machine.build.line = module, line
            if block.raises is not None:
                raise self._refused(f"its body always raises: {block.raises}")
            if self._confirmed(block, formal, before, entered):
                return self._finish(block, iteration, formal, before, entered)
        raise self._refused("what it carries changes from iteration to iteration")

    def _refused(self, reason: str) -> CaptureError:
        return CaptureError(f"{self.machine.place(self.node)}: the loop cannot be kept: {reason}")

    def _confirmed(
        self, block: Block, formal: list[Any], before: dict[Mutable, Any], entered: dict[Mutable, Any]
    ) -> bool:
        """Whether a reading confirms its assumptions; where not, they are widened."""
        for item, state in block.changed.items():
            names = state[1] if isinstance(item, Object) else set()
            if item not in self.objects or not names <= self.changed.get(item, set()):
                self.objects[item] = None
                self.changed[item] = self.changed.get(item, set()) | names
                self.settled = False
        if not self.settled:
            return False
        for index, (first, was, now) in enumerate(zip(self.initial, formal, block.results[1:], strict=True)):
            self._compare(first, was, now, (index,))
        for index, item in enumerate(self.objects):
            first, was = before[item], entered[item]
            if isinstance(item, Dict) and set(was) != set(block.changed.get(item, was)):
                raise self._refused("the keys of a dict change")
            now = block.changed.get(item, was)
            for key, (a, b, c) in _members(item, first, was, now).items():
                self._compare(a, b, c, ("object", index, key))
        return self.settled

    def _assume(self, path: Path) -> _Assumption:
        self.settled = False
        return self.assumptions.setdefault(path, _Assumption())

    def _compare(self, first: Any, was: Any, now: Any, path: Path) -> None:
        """Hold what the body gives against what it was given, and widen the assumption where they differ."""
        if same(was, now) or isinstance(now, UnknownText) or now is UNINITIALIZED:
            return
        if was is UNINITIALIZED:
            self._assume(path).like = now
        elif isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
            firsts = first if isinstance(first, tuple) else was
            for index, (a, b, c) in enumerate(zip(firsts, was, now, strict=True)):
                self._compare(a, b, c, (*path, index))
        elif isinstance(was, List) and isinstance(now, List):
            self._compare_lists(first, was, now, path)
        elif isinstance(was, Optional) or was is None or now is None or isinstance(now, Optional):
            self._compare_optional(first, was, now, path)
        elif is_number(was) and is_number(now):
            if not isinstance(was, Value):
                self._assume(path).like = now
            elif number_kind(was) != number_kind(now):
                raise self._refused(f"a number is {number_kind(was)} first and {number_kind(now)} later")
        elif isinstance(was, (Value, torch.Tensor)) and isinstance(now, (Value, torch.Tensor)):
            self._compare_tensors(was, now, path)
        else:
            raise self._refused(f"{was!r} becomes {now!r}")

    def _compare_tensors(self, was: Any, now: Any, path: Path) -> None:
        own, new = self.machine.fake(was), self.machine.fake(now)
        if own is UNKNOWN or new is UNKNOWN:
            if own is not UNKNOWN:
                self._assume(path).like = UNKNOWN
            return
        if own.dtype != new.dtype:
            raise self._refused(
                f"a tensor is of {own.dtype} first and of {new.dtype} later: convert it before"
            )
        if not isinstance(own, Tensor):
            return
        if not isinstance(new, Tensor) or own.dim() != new.dim():
            self._assume(path).typed = True
            return
        dims = set(self.machine.fakes.different(own, new))
        known = self.assumptions.get(path, _Assumption()).dims
        if dims - known:
            self._assume(path).dims |= dims

    def _compare_lists(self, first: Any, was: List, now: List, path: Path) -> None:
        if was.items is not None and now.items is not None and len(was.items) == len(now.items):
            for index, (b, c) in enumerate(zip(was.items, now.items, strict=True)):
                self._compare(b, b, c, (*path, index))
            return
        if was.items is not None:
            if was.kind not in DTYPES and was.kind != "Tensor":
                raise self._refused(f"the length of a list of {was.kind} changes")
            assumption = self._assume(path)
            assumption.length_changes = True
            assumption.element = self._element(first, now)
            return
        if was.kind not in DTYPES:
            joined = self._element(was, now)
            if not self._covers(self.machine.element(was), joined):
                self._assume(path).element = joined

    def _element(self, a: Any, b: List) -> Any:
        """What is known of the elements of two lists of tensors together; empty ones say nothing."""
        if b.kind in DTYPES:
            return UNKNOWN
        filled = [part for part in (a, b) if isinstance(part, List) and (part.items is None or part.items)]
        known = [self.machine.element(part) for part in filled]
        known = [element for element in known if element is not UNKNOWN] or [UNKNOWN]
        return known[0] if len(known) == 1 else self.machine.fakes.joined(*known)

    def _covers(self, own: Any, new: Any) -> bool:
        """Whether what is assumed of elements leaves room for another one."""
        if own is UNKNOWN or new is UNKNOWN or not isinstance(own, Tensor):
            return own is not UNKNOWN or new is UNKNOWN
        if not isinstance(new, Tensor) or own.dim() != new.dim():
            return False
        different = self.machine.fakes.different(own, new)
        return all(self.machine.fakes.is_free(own.shape[dim]) for dim in different)

    def _compare_optional(self, first: Any, was: Any, now: Any, path: Path) -> None:
        if not isinstance(was, Optional):
            assumption = self._assume(path)
            assumption.optional = True
            assumption.like = next((i for i in (now, was) if i is not None), None)
            if isinstance(assumption.like, Optional):
                assumption.like = assumption.like.value
            return
        value = now.value if isinstance(now, Optional) else UNINITIALIZED if now is None else now
        inner = first.value if isinstance(first, Optional) else first
        self._compare(inner, was.value, value, (*path, "value"))

    def _formal(self, item: Any, path: Path) -> Any:
        """What the body is given for an item, under the assumptions so far."""
        assumption = self.assumptions.get(path)
        if assumption is not None and assumption.optional and path[-1:] != ("value",):
            present = self._formal_value(path, self.machine.build.number("bool", stem="present"))
            inner = item.value if isinstance(item, Optional) else item
            inner = assumption.like if inner is None else inner
            return Optional(present, self._formal(inner, (*path, "value")))
        if item is UNINITIALIZED and assumption is not None and assumption.like is not None:
            item = assumption.like
        if isinstance(item, tuple):
            members = [self._formal(member, (*path, i)) for i, member in enumerate(item)]
            return type(item)(*members) if hasattr(item, "_fields") else tuple(members)
        if isinstance(item, List):
            return self._formal_list(item, path, assumption)
        if isinstance(item, Optional):
            present = self._formal_value(path, self.machine.build.number("bool", stem="present"))
            return Optional(present, self._formal(item.value, (*path, "value")))
        if is_number(item) and not isinstance(item, complex):
            return self._formal_value(path, self.machine.build.number(number_kind(item), stem="carried"))
        if isinstance(item, (Value, torch.Tensor)):
            return self._formal_value(path, self.machine.build.value("carried", self._fake(item, assumption)))
        return item

    def _formal_value(self, path: Path, value: Value) -> Value:
        self.formals[path] = value
        return value

    def _fake(self, item: Any, assumption: _Assumption | None) -> Any:
        fake = self.machine.fake(item)
        if assumption is None or fake is UNKNOWN:
            return fake
        if assumption.like is UNKNOWN and assumption.like is not None:
            return UNKNOWN
        if isinstance(fake, Typed) or assumption.typed:
            return Typed(fake.dtype)
        return self.machine.fakes.loosened(fake, sorted(assumption.dims))

    def _formal_list(self, item: List, path: Path, assumption: _Assumption | None) -> List:
        if item.items is not None and not (assumption and assumption.length_changes):
            members = [self._formal(member, (*path, i)) for i, member in enumerate(item.items)]
            return self.machine.list(members, item.kind)
        element = self.machine.element(item)
        if assumption is not None and assumption.element is not UNKNOWN:
            element = assumption.element
        value = self._formal_value(path, self.machine.build.list_value(element, item.kind, "carried"))
        return self.machine.list(None, item.kind, value)

    def _formal_state(self, item: Mutable, state: Any, index: int) -> Any:
        """What an object that the body changes holds at the start of an iteration."""
        path = ("object", index)
        if isinstance(item, List):
            own = self._formal(List(state[0], state[1], item.kind), (*path, None))
            return own.items, own.value
        if isinstance(item, Dict):
            return {key: self._formal(member, (*path, key)) for key, member in state.items()}
        attributes, changed = state
        names = changed | self.changed.get(item, set())
        formal = {key: self._formal(attributes[key], (*path, key)) for key in names if key in attributes}
        return {**attributes, **formal}, changed

    def _finish(
        self,
        block: Block,
        iteration: Value,
        formal: list[Any],
        before: dict[Mutable, Any],
        entered: dict[Mutable, Any],
    ) -> list[Any]:
        """Close the body and append the loop."""
        return _Closing(self, block, iteration).run(formal, before, entered)


def _members(item: Mutable, first: Any, was: Any, now: Any) -> dict[Any, tuple[Any, Any, Any]]:
    """What an object holds before the loop, at the start and at the end of an iteration, by key."""
    if isinstance(item, List):
        states = [List(state[0], state[1], item.kind) for state in (first, was, now)]
        return {None: (states[0], states[1], states[2])}
    if isinstance(item, Dict):
        entries, names = [first, was, now], dict.fromkeys((*first, *was, *now))
    else:
        entries, names = [first[0], was[0], now[0]], dict.fromkeys(sorted(now[1] | was[1]))
    return {key: tuple(each.get(key, UNINITIALIZED) for each in entries) for key in names}


class _Closing:
    """Appends the node of a loop whose body has been read."""

    def __init__(self, kept: _Kept, block: Block, iteration: Value):
        self.kept = kept
        self.machine = kept.machine
        self.block = block
        self.iteration = iteration
        self.carried: list[Any] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []

    def run(self, formal: list[Any], before: dict[Mutable, Any], entered: dict[Mutable, Any]) -> list[Any]:
        machine, kept = self.machine, self.kept
        with machine.build.appending(self.block.nodes):
            going = machine.build.as_value(self.block.results[0])
        self.block.give(machine, going)
        triples = zip(kept.initial, formal, self.block.results[1:], strict=True)
        results = [self.item(first, was, now, (i,)) for i, (first, was, now) in enumerate(triples)]
        states = []
        for index, item in enumerate(kept.objects):
            now = self.block.changed.get(item, entered[item])
            members = _members(item, before[item], entered[item], now)
            states.append({key: self.item(*m, ("object", index, key)) for key, m in members.items()})
        body = self.block.close(machine, [self.iteration, *self.inputs], "body")
        arguments = {
            "max_trip_count": kept.trips,
            "condition": kept.condition,
            "carried": self.carried,
        }
        machine.build.append("prim::Loop", arguments, self.outputs, attributes=[ir.AttrGraph("body", body)])
        for item, state in zip(kept.objects, states, strict=True):
            machine.touch(item)
            if isinstance(item, List):
                item.items, item.value = state[None].items, state[None].value
            elif isinstance(item, Dict):
                item.restore(state)
            else:
                changed = self.block.changed.get(item, entered[item])[1]
                item.restore(({**item.attributes, **state}, item.changed | changed))
        return results

    def item(self, first: Any, was: Any, now: Any, path: Path) -> Any:
        """Carry an item, and give what it is after the loop."""
        value = self.kept.formals.get(path)
        if isinstance(was, Optional):
            present = self.value(_present(first), was.present, _present(now), self.kept.formals[path])
            return Optional(present, self.item(within(first), was.value, within(now), (*path, "value")))
        if isinstance(was, tuple):
            firsts = first if isinstance(first, tuple) else (UNINITIALIZED,) * len(was)
            nows = now if isinstance(now, tuple) else (UNINITIALIZED,) * len(was)
            members = [
                self.item(a, b, c, (*path, i))
                for i, (a, b, c) in enumerate(zip(firsts, was, nows, strict=True))
            ]
            return type(was)(*members) if hasattr(was, "_fields") else tuple(members)
        if isinstance(was, List) and was.items is not None:
            old = first.items if isinstance(first, List) and first.items is not None else was.items
            new = now.items if isinstance(now, List) and now.items is not None else was.items
            triples = enumerate(zip(old, was.items, new, strict=True))
            return self.machine.list([self.item(a, b, c, (*path, i)) for i, (a, b, c) in triples], was.kind)
        if value is None:
            return now
        if isinstance(was, List):
            return self.machine.list(None, was.kind, self.value(first, value, now, value))
        return self.value(first, value, now, value)

    def value(self, first: Any, was: Value, now: Any, formal: Value) -> Value:
        """Carry one value: what it is first, at the start of an iteration, and at its end."""
        build = self.machine.build
        with build.appending(self.block.nodes):
            last = self._source(was if now is UNINITIALIZED else now, was)
        if is_number(formal):
            result = build.number(number_kind(formal), stem="loop")
        elif formal in build.elements or (formal.dtype in DTYPES.values() and self._is_list(was, now)):
            result = build.list_value(build.elements.get(formal, UNKNOWN), self._kind(first, now), "loop")
        else:
            result = build.value("loop", self._after(formal))
        if first is UNINITIALIZED:
            first = placeholder(self.machine, now if not isinstance(now, (Value, torch.Tensor)) else formal)
        self.carried.append(first if is_number(first) else self._source(first, formal))
        self.inputs.append(formal)
        self.block.give(self.machine, last)
        self.outputs.append(result)
        return result

    def _after(self, formal: Value) -> Any:
        fake = self.machine.fake(formal)
        if not isinstance(fake, Tensor):
            return fake
        free = [dim for dim, size in enumerate(fake.shape) if self.machine.fakes.is_free(size)]
        return self.machine.fakes.loosened(fake, free)

    def _source(self, item: Any, like: Value) -> Value:
        if isinstance(item, List):
            return self.machine.dynamic(item)
        return self.machine.build.as_value(item)

    def _is_list(self, was: Any, now: Any) -> bool:
        return isinstance(now, List)

    def _kind(self, first: Any, now: Any) -> str:
        found = now if isinstance(now, List) else first
        return found.kind


def _present(item: Any) -> Any:
    return item.present if isinstance(item, Optional) else item is not None and item is not UNINITIALIZED
