"""Interprets a TorchScript graph: constants are computed, everything else becomes source nodes.

Lists, tuples, dicts, modules and attributes are evaluated; only lists of unknown length remain in the graph.
A branch with a known condition is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from onnx_ir import Value, tensor_adapters

from ....passes.faults import raise_fault
from ....registration import CaptureError
from ...captured_graph.code_lines import shown_frame
from .builder import DTYPES, ScriptGraphBuilder, stem_of
from .fake_values import UNKNOWN, Fake, UnrankedTensor
from .modules import Hierarchy, State
from .objects import (
    UNINITIALIZED,
    Contents,
    Dict,
    Item,
    List,
    Mutable,
    Nested,
    NumberItem,
    Object,
    Raised,
    Shared,
    WrittenConstant,
    check_texts,
    is_number,
)
from .script_graph import (
    ScriptBlock,
    ScriptGraph,
    ScriptHandle,
    ScriptNode,
    ScriptValue,
    StoredItem,
    is_handle,
)

Results: TypeAlias = "Item | list[Item]"
"""The items of a node's outputs: a list of them, or the only one."""
Function: TypeAlias = Callable[..., Results]
"""Takes the interpreter, the TorchScript node, and the node's operands."""


class Journal(dict[Mutable, Contents]):
    """The contents of each object before a branch changed it, and the objects that became stale since."""

    def __init__(self, started: int):
        super().__init__()
        self.started = started
        self.staled: list[Shared] = []

    def undo(self) -> None:
        """Restore all states."""
        for item, before in self.items():
            item.restore(before)
        for shared in self.staled:
            shared.stale = False


class Interpreter:
    """Runs the nodes of one TorchScript graph.

    Attributes:
        build: appends the source nodes.
        environment: the item of each TorchScript value, by its number in the graph.
        alignments: for masks of sequences, a bool value: whether they mask only the ends.

    Args:
        function_of: the function that runs a kind of node.
        opaque: whether tensors made from constants become graph values, which is necessary if they are
            written.
    """

    def __init__(
        self,
        build: ScriptGraphBuilder,
        state: State,
        hierarchy: Hierarchy,
        function_of: Callable[[str], Function],
        *,
        opaque: bool = False,
    ):
        self._function_of = function_of
        self._opaque = opaque
        self.build = build
        self.fakes = build.fakes
        self.state = state
        self.hierarchy = hierarchy
        self.environment: dict[int, Item] = {}
        self.alignments: dict[Value, Value] = {}
        self._journals: list[Journal] = []
        self._numbers: dict[Value, NumberItem] = {}
        self._clock = 0
        self._located: CaptureError | None = None
        """The latest error that already names its node."""

    @property
    def clock(self) -> int:
        """A counter that grows at the start of each branch or body, to date objects."""
        return self._clock

    def run(self, graph: ScriptGraph, arguments: Sequence[Item]) -> list[Item]:
        """Run a graph on its arguments; return its results."""
        # Values of a called graph have numbers of their own.
        outer, self.environment = self.environment, {}
        try:
            for formal, actual in zip(graph.inputs(), arguments, strict=True):
                self.environment[formal.unique()] = actual
            self.run_nodes(graph)
            return [self[output] for output in graph.outputs()]
        finally:
            self.environment = outer

    def __getitem__(self, value: ScriptValue) -> Item:
        return self.environment[value.unique()]

    def bind(self, values: Iterable[ScriptValue], items: Sequence[Item]) -> None:
        """Set the items of TorchScript values."""
        for value, item in zip(values, items, strict=True):
            self.environment[value.unique()] = item

    def run_block(self, block: ScriptBlock, arguments: Sequence[Item] = ()) -> list[Item]:
        """Run a sub-block here; return its results."""
        self.bind(block.inputs(), arguments)
        self.run_nodes(block)
        return [self[output] for output in block.outputs()]

    def run_nodes(self, block: ScriptBlock) -> None:
        """Run the nodes of a graph or block in order."""
        for node in block.nodes():
            self._visit(node)

    def _visit(self, node: ScriptNode) -> None:
        self.build.module = self.hierarchy.path(node)
        self.build.line = _line(node)
        operands = [self[value] for value in node.inputs()]
        if any(isinstance(operand, Shared) and operand.stale for operand in operands):
            raise CaptureError(
                f"{self.place(node)}: another variable also refers to this list or dict, depending on a "
                "computed condition; copy it first"
            )
        result = self._result(node, operands)
        outputs = [*node.outputs()]
        results = result if isinstance(result, list) else [result]
        # The program may write to a constant tensor, so make it a graph value that the write can change.
        if self._opaque and len(results) == 1 and isinstance(tensor := results[0], torch.Tensor):
            literal = node.kind() == "prim::Constant"
            results = [self.build.constant_tensor(tensor) if literal else self.build.new_tensor(tensor)]
        if outputs:
            self.bind(outputs, results)

    def _result(self, node: ScriptNode, operands: Sequence[Item]) -> Results:
        """The results of a node; errors get the name of the node.

        Raises:
            CaptureError: the program cannot be captured.
            Raised: the program raises.
        """
        node_text = self.place(node)
        try:
            check_texts(node.kind(), operands)
            return self._function_of(node.kind())(self, node, *operands)
        except (Raised, WrittenConstant):
            raise
        except CaptureError as error:
            if error is self._located or str(error).startswith(node_text):
                self._located = error
                raise
            self._located = CaptureError(f"{node_text}: {error}")
            raise self._located from error
        except Exception as error:
            raise_fault(error, f"when it captured {node_text}")
            self._located = CaptureError(f"{node_text} cannot be captured: {type(error).__name__}: {error}")
            raise self._located from error

    def stem(self, node: ScriptNode, index: int = 0) -> str:
        """A stem for the name of one of a node's results."""
        outputs = list(node.outputs())
        return stem_of(outputs[index].debugName(), node.kind()) if outputs else node.kind().split("::")[1]

    def place(self, node: ScriptNode) -> str:
        """The kind, module and source line of a node, for messages."""
        where = f" at {self.build.line}" if self.build.line else ""
        return f"{node.kind()} in '{self.build.module or '<root>'}'{where}"

    def list(self, items: Sequence[Item] | None, element_type: str, value: Value | None = None) -> List:
        """A new TorchScript list."""
        return List(None if items is None else list(items), value, element_type, born=self._clock)

    def dict(self, entries: Mapping[Item, Item]) -> Dict:
        """A new TorchScript dict."""
        return Dict(dict(entries), born=self._clock)

    def object(self, handle: ScriptHandle | None, path: str) -> Object:
        """A module, or a new instance of a class."""
        return Object(handle, path, born=self._clock)

    def touch(self, item: Mutable) -> None:
        """Save the state of an object that is about to change, in every open branch that is newer than it."""
        staled = item.change() if isinstance(item, Shared) else []
        for journal in self._journals:
            journal.staled += staled
        # An object that was made in a branch disappears with it, so its changes need no record.
        for journal in self._journals:
            if item.born < journal.started and item not in journal:
                journal[item] = item.contents()

    def lose(self, items: Iterable[Shared]) -> None:
        """Record that lists or dicts may have been changed through another name."""
        lost = [item for item in items if not item.stale]
        for item in lost:
            item.stale = True
        for journal in self._journals:
            journal.staled += lost

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """Record changes temporarily; see `Journal`."""
        self._clock += 1
        journal = Journal(self._clock)
        self._journals.append(journal)
        try:
            yield journal
        finally:
            self._journals.pop()

    def attribute(self, owner: Object, name: str) -> Item:
        """The item in an attribute of a module or object."""
        item = self.attribute_item(owner, owner.attributes, name)
        # An instance that the program makes has no attributes until its `__init__` sets them.
        if item is UNINITIALIZED:
            raise CaptureError(f"attribute '{name}' of an object is read before it is set")
        return item

    def attribute_item(self, owner: Object, attributes: Mapping[str, Item], name: str) -> Item:
        """The item in an attribute, given the attributes that the program has set."""
        if name in attributes:
            return attributes[name]
        if owner.handle is None:
            return UNINITIALIZED
        if name not in owner.read_items:
            owner.read_items[name] = self.import_item(owner.read_stored(name), owner.path_of(name))
        return owner.read_items[name]

    def import_item(self, item: StoredItem, path: str) -> Item:
        """Convert an attribute of a torch object to an item."""
        if isinstance(item, torch.Tensor):
            return self.state.value(self.build, path, item)
        if is_handle(item):
            return Object(item, path)
        if isinstance(item, list):
            members = [self.import_item(m, f"{path}.{i}") for i, m in enumerate(item)]
            return List(members, None, _element_type(item))
        if isinstance(item, tuple):
            return tuple(self.import_item(m, f"{path}.{i}") for i, m in enumerate(item))
        if isinstance(item, dict):
            return Dict({key: self.import_item(m, f"{path}.{key}") for key, m in item.items()})
        return item

    def dynamic(self, items: List) -> Value:
        """A list as one source value; a list of known length is converted."""
        if items.value is not None:
            return items.value
        value = self.build.list_value(self.element(items), items.element_type)
        self.build.append("list::construct", {"items": items.items or []}, [value])
        return value

    def source_value(self, item: Item) -> Value:
        """An item that a block returns as one source value; see `ScriptGraphBuilder.as_value`."""
        return self.dynamic(item) if isinstance(item, List) else self.build.as_value(item)

    def join_elements(self, *lists: List) -> Fake:
        """The known properties of the elements of several lists; an empty list has none."""
        if lists[0].element_type in DTYPES:
            return UNKNOWN
        elements = [self.element(items) for items in lists if items.items is None or items.items]
        return elements[0] if len(elements) == 1 else self.fakes.join(*elements)

    def element(self, items: List) -> Fake:
        """The known properties of all elements of a list of tensors."""
        if items.value is not None:
            return self.build.elements.get(items.value, UNKNOWN)
        common: Fake = UNKNOWN
        for index, item in enumerate(items.items or []):
            fake = self.fake(item)
            common = fake if index == 0 else self.fakes.join(common, fake)
        return common

    def fake(self, item: Item) -> Fake:
        """The known properties of a tensor."""
        if isinstance(item, Nested):
            item = item.padded
        if isinstance(item, torch.Tensor):
            return self.fakes.fake_of(item)
        if isinstance(item, Value):
            fake = self.fakes[item]
            if fake is UNKNOWN and item.dtype is not None:
                return UnrankedTensor(tensor_adapters.to_torch_dtype(item.dtype))
            return fake
        return UNKNOWN

    def forget_number(self, tensor: Item) -> None:
        """Forget the number of a zero-dim tensor that is written to."""
        if isinstance(tensor, Value):
            self._numbers.pop(tensor, None)

    def number_of(self, item: Item) -> NumberItem | None:
        """The number in a number or zero-dim tensor; None if unknown."""
        if is_number(item):
            return item
        if isinstance(item, torch.Tensor):
            return item.item() if item.dim() == 0 and not item.dtype.is_complex else None
        return self._numbers.get(item) if isinstance(item, Value) else None

    def note_number(self, tensor: Results, number: NumberItem) -> None:
        """Remember the number in a zero-dim tensor."""
        if isinstance(tensor, Value):
            self._numbers[tensor] = number


def _line(node: ScriptNode) -> str:
    """The source line of a node, `model.py:12`, if TorchScript has it."""
    first = node.sourceRange().strip().splitlines()[:1]
    if not first or not first[0].startswith('File "'):
        return ""
    return shown_frame(first[0])


def _element_type(stored: Sequence[StoredItem]) -> str:
    """The TorchScript type of the elements of a stored list; `int` for an empty one."""
    if any(isinstance(member, torch.Tensor) for member in stored):
        return "Tensor"
    first = stored[0] if stored else 0
    if isinstance(first, list):
        return f"List[{_element_type(first)}]"
    return type(first).__name__ if isinstance(first, (bool, float, str, tuple, dict)) else "int"
