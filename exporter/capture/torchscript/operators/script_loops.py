"""Loops of a TorchScript program: unrolled if short and of known length, else a `prim::Loop` node.

The body of a loop that stays is read repeatedly to find its carried values: a size, length or value that the
body changes is unknown in the next reading, until a reading confirms its assumptions.
"""

from __future__ import annotations

import dataclasses
import functools

import torch
from onnx_ir import Value

from .....registration import CaptureError
from ..builder import DTYPES
from ..fake_values import UNKNOWN, Fake, Tensor, UnrankedTensor
from ..interpreter import Interpreter
from ..library import script
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
    may_be_one,
    number_kind,
    rebuild_tuple,
    same,
)
from ..script_graph import ScriptBlock, ScriptNode
from .loop_closing import INSIDE, Closing, Loop, Path, Reading, members_of
from .script_branches import describe_item, read_block

UNROLLED_NODES = 1000
"""A loop of known length is unrolled if that makes at most this many nodes."""
ALWAYS_UNROLLED = 4
"""Loops of up to this many iterations are always unrolled."""
_READINGS = 40
"""How often a body is read before the capture gives up."""
_ENDLESS = 2**63 - 1
"""The trip count that TorchScript gives a `while`."""


@script("prim::Loop")
def loop(machine: Interpreter, node: ScriptNode, trips: Item, condition: Item, *initial: Item) -> list[Item]:
    """A `for` or `while`."""
    [body] = node.blocks()
    state = list(initial)
    if condition is True and isinstance(trips, int):
        unrolled = _unroll(machine, body, trips, state)
        if unrolled is not None:
            return unrolled
    # Without iterations the carried values keep their initial values, and the body need not be valid.
    if condition is False or trips == 0:
        return state
    return RepeatedLoop(machine, node, body, trips, condition, state).run()


def _unroll(machine: Interpreter, body: ScriptBlock, trips: int, state: list[Item]) -> list[Item] | None:
    """Unroll a loop whose conditions are all known; otherwise undo everything and return None."""
    nodes = machine.build.nodes
    start = len(nodes)
    condition: Item = True
    count = 0
    with machine.journal() as journal:
        while condition is True and count < trips:
            condition, *state = machine.run_block(body, [count, *state])
            count += 1
            node_count = len(nodes) - start
            # The length of a `while` is unknown; each iteration decides anew whether it pays to go on.
            remaining = trips - count if trips < _ENDLESS else 1
            expected = node_count + node_count // count * remaining
            if not isinstance(condition, bool) or (count >= ALWAYS_UNROLLED and expected > UNROLLED_NODES):
                break
        else:
            return state
    # The loop is kept: remove what its first iterations appended and changed.
    del nodes[start:]
    journal.undo()
    return None


@dataclasses.dataclass
class _Assumption:
    """The assumptions about one carried item, beyond its initial value.

    Attributes:
        dims: the dimensions whose size changes.
        like: an item with its type, if the initial one does not determine it.
        unknown: whether nothing is known of a tensor, its element type included.
        length_changes: whether it is a list of unknown length.
        optional: whether it may be None.
        element: the known properties of the elements of a list of unknown length.
        rank_changes: whether the rank changes.
        replaced: whether it is a list or dict that the body replaces by another one.
    """

    dims: set[int] = dataclasses.field(default_factory=set)
    like: Item = None
    unknown: bool = False
    length_changes: bool = False
    optional: bool = False
    element: Fake = UNKNOWN
    rank_changes: bool = False
    replaced: bool = False


class RepeatedLoop(Loop):
    """A loop that is not unrolled; its body is read until the assumptions about carried items hold."""

    def __init__(
        self,
        machine: Interpreter,
        node: ScriptNode,
        body: ScriptBlock,
        trips: Item,
        condition: Item,
        initial: list[Item],
    ):
        super().__init__(machine, trips, condition, initial)
        self.node = node
        self.body = body
        self.changed: dict[Mutable, set[str]] = {}
        """The object attributes that the body sets."""
        self.assumptions: dict[Path, _Assumption] = {}
        self.inputs_by_path: dict[Path, List | Dict] = {}
        """The lists and dicts made as inputs of the body, by path."""
        self.ends: dict[Path, List | Dict] = {}
        """The lists and dicts at the end of the body, by path."""
        self.aliases: set[tuple[Path, Path]] = set()
        self.outer: dict[Path, list[Shared]] = {}
        self.lost: set[Path] = set()
        """The paths at which an iteration leaves a list or dict that may have been changed through another
        name.
        """
        self.lost_outside: dict[Shared, None] = {}
        """The outer lists and dicts for which that is true."""
        self.begun = machine.clock + 1
        """The interpreter's clock at the first reading of the body."""
        self.settled = True
        self.restarts = False
        """Whether to find the changed objects again."""

    def run(self) -> list[Item]:
        """Read the body until its assumptions hold, and append the loop."""
        module, line = self.machine.build.module, self.machine.build.line
        for _ in range(_READINGS):
            self.formals, self.inputs_by_path, self.ends, self.settled = {}, {}, {}, True
            before = {item: item.contents() for item in self.objects}
            reading = Reading(self.machine.build.number("int", stem="iteration"), before)
            self.block = read_block(self.machine, functools.partial(self._read_body, reading))
            # The reading gave the objects the body's inputs as contents.
            for item, state in before.items():
                item.restore(state)
            self.machine.build.module, self.machine.build.line = module, line
            if self.block.raises is not None:
                raise self._refusal(f"its body always raises: {self.block.raises}")
            if self._confirms_assumptions(reading):
                return Closing(self, self.block, reading).run()
        raise self._refusal("its carried values change between iterations")

    def _read_body(self, reading: Reading) -> list[Item]:
        """Run the body once, and record its inputs and their contents at the start."""
        formals = [self._formal(item, (i,)) for i, item in enumerate(self.initial)]
        # The body may change its own inputs, and the comparison needs them as they were at the start.
        reading.formals = [self._snapshot(item) for item in formals]
        self._relate()
        for index, item in enumerate(self.objects):
            self.machine.touch(item)
            item.restore(self._formal_contents(item, reading.before[item], index))
            reading.entered[item] = self._snapshot_of_contents(item)
        return self.machine.run_block(self.body, [reading.iteration, *formals])

    def _relate(self) -> None:
        """Relate two names of the same list or dict after an iteration; the next may use either."""
        for path, formal in self.inputs_by_path.items():
            alias_items = [
                alias_item
                for alias_path, alias_item in self.inputs_by_path.items()
                if (path, alias_path) in self.aliases
            ]
            formal.may_be(*alias_items, *self.outer.get(path, ()))
            formal.stale = formal.stale or path in self.lost
        self.machine.lose(self.lost_outside)

    def _find_aliases(self) -> None:
        """Find names that share a list or dict after the body, and names of outer ones."""
        ends = {path: end for path, end in self.ends.items() if path in self.inputs_by_path}
        pairs = {
            (path, other_path)
            for path, end in ends.items()
            for other_path, other_end in ends.items()
            if other_path != path and may_be_one(end, other_end)
        }
        if pairs - self.aliases:
            self.aliases |= pairs
            self.settled = False
        lost = {path for path, end in ends.items() if self.block.has_lost(end)}
        outside = [item for item in self.block.staled if item.born < self.begun]
        if lost - self.lost or any(item not in self.lost_outside for item in outside):
            self.lost |= lost
            self.lost_outside.update(dict.fromkeys(outside))
            self.settled = False
        for path, end in ends.items():
            outer_items = self.outer.setdefault(path, [])
            new_items = [item for item in end.origins() if item.born < self.begun and item not in outer_items]
            if new_items:
                outer_items += new_items
                self.settled = False

    def _snapshot(self, item: Item) -> Item:
        """A copy of an item's current state, because the body may change its lists."""
        if isinstance(item, tuple):
            return rebuild_tuple(item, map(self._snapshot, item))
        if isinstance(item, Optional):
            return Optional(item.present, self._snapshot(item.value))
        if not isinstance(item, (List, Dict)) or item not in self.inputs_by_path.values():
            return item
        contents = self._snapshot_of_contents(item)
        if isinstance(item, Dict):
            return Dict(contents.entries)
        return List(contents.items, contents.value, item.element_type)

    def _snapshot_of_contents(self, item: Mutable) -> Contents:
        contents = item.contents()
        if contents.items is not None:
            contents.items = [self._snapshot(member) for member in contents.items]
        contents.entries = {key: self._snapshot(member) for key, member in contents.entries.items()}
        contents.attributes = {key: self._snapshot(member) for key, member in contents.attributes.items()}
        return contents

    def _refusal(self, reason: str) -> CaptureError:
        return CaptureError(f"the loop cannot be kept: {reason}")

    def _confirms_assumptions(self, reading: Reading) -> bool:
        """Whether a reading confirms its assumptions; otherwise widen them."""
        block = self.block
        for item, state in block.changed.items():
            names = self.changed.get(item, set())
            if item not in self.objects or not state.changed <= names:
                self.objects[item] = None
                self.changed[item] = names | state.changed
                self.settled = False
        # Until all changed objects are inputs of the body, its results say nothing about carried values.
        if not self.settled:
            return False
        triples = zip(self.initial, reading.formals, block.results[1:], strict=True)
        for index, (first, was, now) in enumerate(triples):
            self._compare(first, was, now, (index,))
        for index, item in enumerate(self.objects):
            start = reading.entered[item]
            end = block.changed.get(item, start)
            if start.entries.keys() != end.entries.keys():
                raise self._refusal("the keys of a dict change")
            for key, (a, b, c) in members_of(self.machine, item, reading.before[item], start, end).items():
                self._compare(a, b, c, ("object", index, key))
        self._find_aliases()
        if self.restarts:
            self.restarts = False
            self.objects.clear()
            self.changed.clear()
            self.assumptions = {path: a for path, a in self.assumptions.items() if path[0] != "object"}
            for facts in (self.aliases, self.outer, self.lost, self.lost_outside):
                facts.clear()
        return self.settled

    def _assume(self, path: Path) -> _Assumption:
        self.settled = False
        return self.assumptions.setdefault(path, _Assumption())

    def _compare(self, first: Item, was: Item, now: Item, path: Path) -> None:
        """Compare an item at the end of the body with its input, and widen the assumption if they differ."""
        if same(was, now) or now is UNINITIALIZED or (isinstance(was, UnknownText) and isinstance(now, str)):
            return
        if isinstance(now, UnknownText) and isinstance(was, str):
            self._assume(path).like = now
            return
        if was is UNINITIALIZED:
            self._assume(path).like = now
        elif isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
            firsts = first if isinstance(first, tuple) else was
            for index, (a, b, c) in enumerate(zip(firsts, was, now, strict=True)):
                self._compare(a, b, c, (*path, index))
        elif isinstance(was, List) and isinstance(now, List):
            self._compare_lists(first, was, now, path)
        elif isinstance(was, Dict) and isinstance(now, Dict):
            self._compare_dicts(first, was, now, path)
        elif isinstance(was, Optional) or was is None or now is None or isinstance(now, Optional):
            self._compare_optional(first, was, now, path)
        elif is_number(was) and is_number(now):
            if not isinstance(was, Value):
                self._assume(path).like = now
            elif number_kind(was) != number_kind(now):
                raise self._refusal(f"a number is {number_kind(was)} first and {number_kind(now)} later")
        elif isinstance(was, (Value, torch.Tensor)) and isinstance(now, (Value, torch.Tensor)):
            self._compare_tensors(was, now, path)
        else:
            raise self._refusal(f"{describe_item(was)} becomes {describe_item(now)}")

    def _compare_tensors(self, was: Item, now: Item, path: Path) -> None:
        old, new = self.machine.fake(was), self.machine.fake(now)
        if not isinstance(old, (Tensor, UnrankedTensor)) or not isinstance(new, (Tensor, UnrankedTensor)):
            if old is not UNKNOWN:
                self._assume(path).unknown = True
            return
        if old.dtype != new.dtype:
            raise self._refusal(
                f"a tensor is of {old.dtype} first and of {new.dtype} later: convert it before"
            )
        if not isinstance(old, Tensor):
            return
        if not isinstance(new, Tensor) or old.dim() != new.dim():
            self._assume(path).rank_changes = True
            return
        dims = set(self.machine.fakes.different(old, new))
        if dims - self.assumptions.get(path, _Assumption()).dims:
            self._assume(path).dims |= dims

    def _is_first(self, first: Item, was: Item, path: Path) -> bool:
        """Whether the body's input is the list or dict itself, which it replaces by another one."""
        if was is not first or self.assumptions.get(path, _Assumption()).replaced:
            return False
        # So far the changes of the body were attributed to the initial object, which may be wrong.
        self._assume(path).replaced = True
        self.restarts = True
        return True

    def _compare_dicts(self, first: Item, was: Dict, end: Dict, path: Path) -> None:
        if self._is_first(first, was, path):
            return
        self.ends[path] = end
        now = self.block.final_dict(end)
        if set(was.entries) != set(now.entries):
            raise self._refusal("the keys of a dict change")
        for key, member in was.entries.items():
            self._compare(member, member, now.entries[key], (*path, key))

    def _compare_lists(self, first: Item, was: List, end: List, path: Path) -> None:
        if self._is_first(first, was, path):
            return
        self.ends[path] = end
        now = self.block.final_list(end)
        if was.items is not None and now.items is not None and len(was.items) == len(now.items):
            for index, (b, c) in enumerate(zip(was.items, now.items, strict=True)):
                self._compare(b, b, c, (*path, index))
            return
        if was.items is not None:
            if was.element_type not in DTYPES and was.element_type != "Tensor":
                raise self._refusal(f"the length of a list of {was.element_type} changes")
            assumption = self._assume(path)
            assumption.length_changes = True
            assumption.element = self._element(first, now)
            return
        if was.element_type not in DTYPES:
            joined = self._element(was, now)
            if not self._covers(self.machine.element(was), joined):
                self._assume(path).element = joined

    def _element(self, a: Item, b: List) -> Fake:
        """The common properties of the elements of two lists of tensors; empty lists are ignored."""
        if b.element_type in DTYPES:
            return UNKNOWN
        filled = [part for part in (a, b) if isinstance(part, List) and (part.items is None or part.items)]
        elements = [self.machine.element(part) for part in filled]
        # An empty list says nothing about its elements, and a list of unknown ones must not hide known ones.
        elements = [element for element in elements if element is not UNKNOWN] or [UNKNOWN]
        return elements[0] if len(elements) == 1 else self.machine.fakes.join(*elements)

    def _covers(self, old: Fake, new: Fake) -> bool:
        """Whether the assumptions about elements also hold for another one."""
        if old is UNKNOWN or new is UNKNOWN or not isinstance(old, Tensor):
            return old is not UNKNOWN or new is UNKNOWN
        if not isinstance(new, Tensor) or old.dim() != new.dim():
            return False
        # A free size may differ from element to element, so it covers every size.
        different = self.machine.fakes.different(old, new)
        return all(self.machine.fakes.is_unknown_size(old.shape[dim]) for dim in different)

    def _compare_optional(self, first: Item, was: Item, now: Item, path: Path) -> None:
        if not isinstance(was, Optional):
            assumption = self._assume(path)
            assumption.optional = True
            assumption.like = next((i for i in (now, was) if i is not None), None)
            if isinstance(assumption.like, Optional):
                assumption.like = assumption.like.value
            return
        value = now.value if isinstance(now, Optional) else UNINITIALIZED if now is None else now
        inner = first.value if isinstance(first, Optional) else first
        self._compare(inner, was.value, value, (*path, INSIDE))

    def _formal(self, item: Item, path: Path, is_type_only: bool = False) -> Item:
        """Make the body's input for an item, under the current assumptions.

        Args:
            is_type_only: whether the item only represents a type.
        """
        assumption = self.assumptions.get(path)
        if assumption is not None and assumption.optional and path[-1:] != (INSIDE,):
            present = self._formal_value(path, self.machine.build.number("bool", stem="present"))
            inner = item.value if isinstance(item, Optional) else item
            inner, is_type_only = (assumption.like, True) if inner is None else (inner, False)
            return Optional(present, self._formal(inner, (*path, INSIDE), is_type_only))
        if item is UNINITIALIZED and assumption is not None and assumption.like is not None:
            item, is_type_only = assumption.like, True
        if isinstance(item, str) and assumption is not None and isinstance(assumption.like, UnknownText):
            return assumption.like
        if isinstance(item, tuple):
            pairs = enumerate(item)
            return rebuild_tuple(item, (self._formal(m, (*path, i), is_type_only) for i, m in pairs))
        if isinstance(item, (List, Dict)) and not is_type_only and not (assumption and assumption.replaced):
            return item
        if isinstance(item, List):
            formal = self._formal_list(item, path, assumption, is_type_only)
            return self._replacement(item, formal, path, is_type_only)
        if isinstance(item, Dict):
            entries = {
                key: self._formal(member, (*path, key), is_type_only) for key, member in item.entries.items()
            }
            return self._replacement(item, self.machine.dict(entries), path, is_type_only)
        if isinstance(item, Optional):
            present = self._formal_value(path, self.machine.build.number("bool", stem="present"))
            return Optional(present, self._formal(item.value, (*path, INSIDE)))
        if is_number(item) and not isinstance(item, complex):
            return self._formal_value(path, self.machine.build.number(number_kind(item), stem="carried"))
        if isinstance(item, (Value, torch.Tensor)):
            # As a carried value a constant may be written to by the body.
            if isinstance(item, torch.Tensor):
                self.machine.build.check_constant()
            return self._formal_value(path, self.machine.build.value("carried", self._fake(item, assumption)))
        if is_type_only and isinstance(item, Object):
            raise self._refusal("it carries an object that its body makes")
        return item

    def _replacement(
        self, item: List | Dict, formal: List | Dict, path: Path, is_type_only: bool
    ) -> List | Dict:
        """The body's input for a list or dict."""
        self.inputs_by_path[path] = formal
        if not is_type_only:
            formal.may_be(item)
        return formal

    def _formal_value(self, path: Path, value: Value) -> Value:
        self.formals[path] = value
        return value

    def _fake(self, item: Item, assumption: _Assumption | None) -> Fake:
        fake = self.machine.fake(item)
        if assumption is None or not isinstance(fake, (Tensor, UnrankedTensor)):
            return fake
        if assumption.unknown:
            return UNKNOWN
        if isinstance(fake, UnrankedTensor) or assumption.rank_changes:
            return UnrankedTensor(fake.dtype)
        return self.machine.fakes.with_unknown_sizes(fake, sorted(assumption.dims))

    def _formal_list(
        self, item: List, path: Path, assumption: _Assumption | None, is_type_only: bool = False
    ) -> List:
        if item.items is not None and not (assumption and assumption.length_changes):
            members = [self._formal(member, (*path, i), is_type_only) for i, member in enumerate(item.items)]
            return self.machine.list(members, item.element_type)
        element = self.machine.element(item)
        if assumption is not None and assumption.element is not UNKNOWN:
            element = assumption.element
        value = self._formal_value(path, self.machine.build.list_value(element, item.element_type, "carried"))
        return self.machine.list(None, item.element_type, value)

    def _formal_contents(self, item: Mutable, state: Contents, index: int) -> Contents:
        """The contents of a changed object at the start of an iteration."""
        path = ("object", index)
        if isinstance(item, List):
            inner = (*path, None)
            first = List(state.items, state.value, item.element_type)
            return self._formal_list(first, inner, self.assumptions.get(inner)).contents()
        if isinstance(item, Dict):
            entries = {key: self._formal(member, (*path, key)) for key, member in state.entries.items()}
            return Contents(entries=entries)
        names = sorted(state.changed | self.changed.get(item, set()))
        old = {name: self.machine.attribute_item(item, state.attributes, name) for name in names}
        formal = {name: self._formal(member, (*path, name)) for name, member in old.items()}
        return Contents(attributes={**state.attributes, **formal}, changed=state.changed)
