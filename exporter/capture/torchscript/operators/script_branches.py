"""Branches of a TorchScript program with a computed condition: reads both sides and joins the results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import onnx_ir as ir
import torch
from onnx_ir import Value, tensor_adapters

from .....registration import CaptureError
from ..builder import DTYPES
from ..fake_values import Tensor, UnrankedTensor
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
    Raised,
    Shared,
    Uninitialized,
    UnknownText,
    is_constant,
    is_number,
    number_kind,
    rebuild_tuple,
    same,
)
from ..script_graph import ScriptNode

Key = TypeVar("Key")


@dataclasses.dataclass
class ReadBlock:
    """A sub-block that was read but is not closed yet.

    Attributes:
        nodes: its source nodes.
        results: its results.
        changed: the objects that it changed, with their state at its end.
        staled: the objects that became stale in it.
        started: the interpreter's clock at its start.
        raises: whether the program raises on each of its paths.
        outputs: the values that the closed block will return.
    """

    nodes: list[ir.Node]
    results: list[Item]
    changed: dict[Mutable, Contents]
    staled: list[Shared] = dataclasses.field(default_factory=list)
    started: int = 0
    raises: str | None = None
    outputs: list[Value] = dataclasses.field(default_factory=list)

    def give(self, machine: Interpreter, value: Value) -> Value:
        """Add an output; a value from outside the block, or one that it already returns, gets an alias."""
        with machine.build.appending(self.nodes):
            maker = value.producer()
            # Most outputs come from the last nodes.
            is_own_value = any(node is maker for node in reversed(self.nodes))
            result = value if is_own_value and value not in self.outputs else machine.build.alias(value)
        self.outputs.append(result)
        return result

    def final_state(self, item: Item) -> Item:
        """A list or dict in its state at the end of the block, whose changes were undone afterwards."""
        if isinstance(item, List):
            return self.final_list(item)
        return self.final_dict(item) if isinstance(item, Dict) else item

    def final_list(self, items: List) -> List:
        """A list at the end of the block."""
        contents = self.changed.get(items)
        return items if contents is None else List(contents.items, contents.value, items.element_type)

    def final_dict(self, items: Dict) -> Dict:
        """A dict at the end of the block."""
        contents = self.changed.get(items)
        return items if contents is None else Dict(contents.entries)

    def has_lost(self, item: Item) -> bool:
        """Whether a list or dict may have been changed through another name, before or in the block."""
        return isinstance(item, Shared) and (item.stale or item in self.staled)

    def close(self, machine: Interpreter, inputs: Sequence[Value], name: str) -> ir.Graph:
        """The block as a graph."""
        unique = machine.build.names.unique(name)
        return ir.Graph(inputs, self.outputs, nodes=self.nodes, name=unique)


def read_block(machine: Interpreter, run: Callable[[], list[Item]]) -> ReadBlock:
    """Read a sub-block; its changes to objects are undone afterwards."""
    raises, results = None, []
    with machine.build.block() as nodes, machine.journal() as journal:
        try:
            results = run()
        except Raised as error:
            raises = str(error)
    changed = {item: item.contents() for item in journal}
    for item, state in journal.items():
        item.restore(state)
    # Whether the changes happen is not decided yet: the caller makes both sides, or one, stale.
    staled = [shared for shared in journal.staled if shared.stale]
    for shared in staled:
        shared.stale = False
    return ReadBlock(nodes, results, changed, staled, journal.started, raises)


@script("prim::If")
def if_(machine: Interpreter, node: ScriptNode, condition: bool | Value) -> list[Item]:
    """A branch; if the condition is known or one side raises, only the side taken."""
    blocks = list(node.blocks())
    if isinstance(condition, bool):
        return machine.run_block(blocks[0 if condition else 1])
    module, line = machine.build.module, machine.build.line
    read_blocks = [read_block(machine, functools.partial(machine.run_block, block)) for block in blocks]
    machine.build.module, machine.build.line = module, line
    returning = [block for block in read_blocks if block.raises is None]
    if not returning:
        raise Raised(read_blocks[0].raises)
    if len(returning) == 1:
        # A graph cannot raise: assume that inputs never lead to the branch that raises.
        machine.build.nodes += returning[0].nodes
        for item, state in returning[0].changed.items():
            machine.touch(item)
            item.restore(state)
        machine.lose(returning[0].staled)
        return returning[0].results
    return _Join(machine, node, condition, read_blocks[0], read_blocks[1]).run()


class _Join:
    """Joins the results of two branches into the outputs of one node."""

    def __init__(
        self, machine: Interpreter, node: ScriptNode, condition: Value, then: ReadBlock, otherwise: ReadBlock
    ):
        self.machine = machine
        self.node = node
        self.condition = condition
        self.branches = (then, otherwise)
        self.outputs: list[Value] = []
        self._joined: dict[tuple[int, int], tuple[List | Dict, bool]] = {}
        """The joined list or dict for each pair, which may have several names, and whether it is stale."""
        self._fillings: dict[int, Item] = {}
        """The placeholder for a list or dict in the branch that does not set it."""

    def run(self) -> list[Item]:
        then, otherwise = self.branches
        stems = [self.machine.stem(self.node, i) for i in range(len(then.results))]
        pairs = zip(then.results, otherwise.results, stems, strict=True)
        results = [self.item(a, b, stem) for a, b, stem in pairs]
        for changed in list({**then.changed, **otherwise.changed}):
            self._object(changed)
        self.machine.lose([*then.staled, *otherwise.staled])
        for joined_item, stale in self._joined.values():
            # Losing its sources marked it as stale, but its contents come from both branches: reset that.
            joined_item.stale = stale
        if self.outputs or then.nodes or otherwise.nodes:
            blocks = [
                ir.AttrGraph(name, branch.close(self.machine, [], name))
                for name, branch in zip(("then_branch", "else_branch"), self.branches, strict=True)
            ]
            arguments = {"condition": self.condition}
            self.machine.build.append("prim::If", arguments, self.outputs, attributes=blocks)
        return results

    def _object(self, item: Mutable) -> None:
        """Join an object that one or both branches changed."""
        then, otherwise = (branch.changed.get(item, item.contents()) for branch in self.branches)
        self.machine.touch(item)
        if isinstance(item, List):
            first, second = (List(s.items, s.value, item.element_type) for s in (then, otherwise))
            item.restore(self._list(first, second, "list").contents())
        elif isinstance(item, Dict):
            old, new = then.entries, otherwise.entries
            if set(old) != set(new):
                raise self._refusal(
                    f"a dict has the keys {sorted(set(old) ^ set(new), key=repr)} after only one of them"
                )
            item.restore(Contents(entries={key: self._entry(old, new, key) for key in old}))
        else:
            # An attribute set in one branch only can be read only in a later branch on the same condition.
            changed = then.changed | otherwise.changed
            first_items, second_items = (
                {name: self.machine.attribute_item(item, state.attributes, name) for name in changed}
                for state in (then, otherwise)
            )
            joined = {name: self._entry(first_items, second_items, name) for name in sorted(changed)}
            attributes = {**then.attributes, **otherwise.attributes, **joined}
            item.restore(Contents(attributes=attributes, changed=changed))

    def _entry(self, then: Mapping[Key, Item], otherwise: Mapping[Key, Item], key: Key) -> Item:
        return self.item(then.get(key, UNINITIALIZED), otherwise.get(key, UNINITIALIZED), str(key))

    def item(self, a: Item, b: Item, stem: str) -> Item:
        """Join an item of one branch with an item of the other."""
        if same(a, b) or (b is UNINITIALIZED and is_constant(a)):
            return a
        if a is UNINITIALIZED and is_constant(b):
            return b
        # Which of two strings it is depends on the condition. An error or a warning may still show it.
        if any(isinstance(text, UnknownText) for text in (a, b)) and {type(a), type(b)} <= {
            str,
            UnknownText,
            Uninitialized,
        }:
            return UnknownText("...")
        if a is UNINITIALIZED or b is UNINITIALIZED:
            return self._one_sided(a, b, stem)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            members = [self.item(x, y, f"{stem}_{i}") for i, (x, y) in enumerate(zip(a, b, strict=True))]
            return rebuild_tuple(a, members)
        if isinstance(a, (List, Dict)) and isinstance(b, (List, Dict)):
            return self._join_shared(a, b, stem)
        if a is None or b is None or isinstance(a, Optional) or isinstance(b, Optional):
            # A computed bool says whether there is a value.
            present = self.item(is_present(a), is_present(b), f"{stem}_present")
            return Optional(present, self.item(unwrap_optional(a), unwrap_optional(b), stem))
        if is_number(a) and is_number(b):
            return self.give(a, b, self.machine.build.number(number_kind(a), stem=stem))
        if _is_tensor(a) and _is_tensor(b):
            return self._tensor(a, b, stem)
        raise self._refusal(f"one returns {describe_item(a)}, the other {describe_item(b)}")

    def _refusal(self, reason: str) -> CaptureError:
        return CaptureError(f"the branches cannot be joined: {reason}, and which is taken is computed")

    def give(self, a: Item, b: Item, result: Value) -> Value:
        """Add an output of the node, with one item from each branch."""
        for branch, item in zip(self.branches, (a, b), strict=True):
            with self.machine.build.appending(branch.nodes):
                value = self.machine.source_value(item)
            branch.give(self.machine, value)
        self.outputs.append(result)
        return result

    def _tensor(self, a: Item, b: Item, stem: str) -> Value:
        try:
            joined = self.machine.fakes.join(self.machine.fake(a), self.machine.fake(b))
        except CaptureError as error:
            raise self._refusal(str(error)) from error
        return self.give(a, b, self.machine.build.value(stem, joined))

    def _one_sided(self, a: Item, b: Item, stem: str) -> Item:
        """Join a variable that only one branch sets, and that is not read after the other.

        A list or dict from before the branches keeps its identity under all of its names.
        """
        set_item = b if a is UNINITIALIZED else a
        index = 0 if a is UNINITIALIZED else 1
        # It existed before the branches, so both sides can refer to it.
        if isinstance(set_item, Shared) and set_item.born < self.branches[1 - index].started:
            return set_item
        filled = self._fillings.get(id(set_item))
        if filled is None:
            with self.machine.build.appending(self.branches[index].nodes):
                filled = placeholder(self.machine, set_item)
        if isinstance(set_item, Shared):
            self._fillings[id(set_item)] = filled
        return self.item(filled, set_item, stem) if index == 0 else self.item(set_item, filled, stem)

    def _list(self, a: List, b: List, stem: str) -> List:
        if a.items is not None and b.items is not None and len(a.items) == len(b.items):
            pairs = enumerate(zip(a.items, b.items, strict=True))
            return self.machine.list([self.item(x, y, f"{stem}_{i}") for i, (x, y) in pairs], a.element_type)
        if a.element_type not in DTYPES and a.element_type != "Tensor":
            raise self._refusal(f"lists of {a.element_type} of different lengths")
        value = self.machine.build.list_value(self.machine.join_elements(a, b), a.element_type, stem)
        return self.machine.list(None, a.element_type, self.give(a, b, value))

    def _join_shared(self, a: List | Dict, b: List | Dict, stem: str) -> Item:
        """Join two lists or dicts into one that may be either."""
        # The same pair under another name is the same object after the branches.
        key = (id(a), id(b))
        if key not in self._joined:
            then, otherwise = (
                branch.final_state(item) for branch, item in zip(self.branches, (a, b), strict=True)
            )
            if isinstance(then, List) and isinstance(otherwise, List):
                joined_item: List | Dict = self._list(then, otherwise, stem)
            elif (
                isinstance(then, Dict)
                and isinstance(otherwise, Dict)
                and set(then.entries) == set(otherwise.entries)
            ):
                entries = {k: self._entry(then.entries, otherwise.entries, k) for k in then.entries}
                joined_item = self.machine.dict(entries)
            else:
                raise self._refusal("one dict has keys that the other lacks")
            joined_item.may_be(a, b)
            joined_item.choices, joined_item.join = (a, b), self
            self._joined[key] = joined_item, self.branches[0].has_lost(a) or self.branches[1].has_lost(b)
        return self._joined[key][0]


def is_present(item: Item) -> Item:
    """Whether an optional item has a value, as a constant or computed bool."""
    return item.present if isinstance(item, Optional) else item is not None and item is not UNINITIALIZED


def unwrap_optional(item: Item) -> Item:
    """The value of an optional item; other items are returned unchanged."""
    if item is None:
        return UNINITIALIZED
    return item.value if isinstance(item, Optional) else item


def _is_tensor(item: Item) -> bool:
    return isinstance(item, (Value, torch.Tensor)) and not is_number(item)


def describe_item(item: Item) -> str:
    """A short description of an item, for messages."""
    if is_number(item) or isinstance(item, (str, type(None))):
        return f"a computed {number_kind(item)}" if isinstance(item, Value) else repr(item)
    if isinstance(item, (Value, torch.Tensor)):
        return "a tensor"
    if isinstance(item, List):
        return f"a list of {item.element_type}"
    if isinstance(item, Dict):
        return f"a dict with the keys {list(item.entries)}"
    if isinstance(item, Object):
        return f"the module '{item.path}'" if item.handle is not None else "an object that the program makes"
    if isinstance(item, Optional):
        return f"None or {describe_item(item.value)}"
    return {"Uninitialized": "nothing"}.get(type(item).__name__, f"a {type(item).__name__}")


def placeholder(machine: Interpreter, like: Item) -> Item:
    """A placeholder of an item's type, for a result that is not read."""
    if isinstance(like, tuple):
        members = [placeholder(machine, member) for member in like]
        return rebuild_tuple(like, members)
    if isinstance(like, List):
        items = None if like.items is None else [placeholder(machine, item) for item in like.items]
        return machine.list(items or [], like.element_type)
    if isinstance(like, Dict):
        return machine.dict({key: placeholder(machine, item) for key, item in like.entries.items()})
    if isinstance(like, Optional):
        return Optional(False, placeholder(machine, like.value))
    if is_constant(like) and not isinstance(like, torch.Tensor):
        return like
    if is_number(like):
        return {"int": 0, "float": 0.0, "bool": False}[number_kind(like)]
    fake = machine.fake(like)
    if isinstance(fake, UnrankedTensor):
        return torch.zeros((), dtype=fake.dtype)
    if not isinstance(fake, Tensor):
        name = like.name if isinstance(like, Value) else describe_item(like)
        raise CaptureError(
            f"'{name}' is set in one branch only, and its element type is unknown: set it before the branch"
        )
    # No path reads the elements, so any sizes of this rank will do.
    sizes = [size if isinstance(size, int) else 1 for size in fake.shape]
    value = machine.build.value("unset", machine.fakes.tensor(sizes, fake.dtype))
    arguments = {"size": sizes, "dtype": tensor_adapters.from_torch_dtype(fake.dtype)}
    machine.build.append("aten::zeros", arguments, [value], "default")
    return value
