"""Finds the nodes that two recordings of one model share before and after the branches that differ.

The operators of both graphs are compared in order, from the beginning and from the end. Values get numbers:
those with equal numbers are equal at all sizes. A side is the branch that one recording took. Works without
torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import onnx_ir as ir
from onnx_ir import Value

from ...passes.inplace.aliases import writes_anything
from ...registration import ALIAS, COMPLEX, KIND, NUMBER
from ...registration.arguments import ATTRIBUTE, arguments, blocks

DECISION = "sym::decision"
"""The operator of nodes that mark where a capture took one branch of a condition on values."""
_SIZES = frozenset({"sym_size", "sym_numel"})
_NUMBER_TYPES = {"bool": bool, "int": int, "float": float}
Leaf = Value | bool | int | float
"""An operand: a value, or a constant number."""
LEAVES = (Value, bool, int, float)
Operands = list[tuple[Leaf, Leaf]]


class NotJoinable(Exception):
    """The graphs differ in a way that an If cannot express; the message says how."""


class _ValueNumbers:
    """Assigns numbers to values: values of both graphs with the same number are equal at all sizes."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, int] = {}
        self._by_value: dict[Value, int] = {}
        self.late: set[Value] = set()
        """The values that `late_nodes` compute."""
        self.late_nodes: set[ir.Node] = set()
        """The operators after the sides, and the size arithmetic that depends on them."""

    def bind(self, value: Value, key: Hashable) -> None:
        """Give a value the number of a key; a new key gets a new number."""
        self._by_value[value] = self._by_key.setdefault(key, len(self._by_key))

    def of(self, value: Value | None) -> int:
        """Return the number of a value; -1 for an omitted operand."""
        return -1 if value is None else self._by_value[value]

    def bind_outputs(self, node: ir.Node, key: Hashable) -> None:
        """Number the results of a node by the node's key and their position."""
        for position, output in enumerate(node.outputs):
            self.bind(output, (key, position))

    def key(self, node: ir.Node, path: tuple[int, ...] = ()) -> Hashable:
        """Return the operator and operands of a node; nodes with equal keys compute the same."""
        if marks_decision(node):
            # torch may write equal conditions as `n != 0` and as `not n == 0`.
            return DECISION
        text = node.attributes[ATTRIBUTE].value
        operands = tuple(map(self.of, node.inputs))
        return node.domain, node.op_type, node.overload, text, operands, self.block_keys(node, path)

    def block_keys(self, node: ir.Node, path: tuple[int, ...] = ()) -> Hashable:
        """Return a key of what a node's blocks compute from the outer values that they read."""
        return tuple(self._block_key(block, (*path, index)) for index, block in enumerate(blocks(node)))

    def _block_key(self, block: ir.Graph, path: tuple[int, ...]) -> Hashable:
        for position, value in enumerate(block.inputs):
            self.bind(value, (*path, "input", position))
        keys = []
        for position, node in enumerate(block):
            keys.append(self.key(node, (*path, position)))
            self.bind_outputs(node, (*path, position))
        return tuple(keys), tuple(map(self.of, block.outputs))


class SideAlignment:
    """The nodes that two graphs share at the beginning and at the end.

    Arithmetic on sizes may come in any order, so it is compared by its operands, not by position.

    Attributes:
        graphs: the two graphs.
        operators: for each graph, its nodes without size arithmetic, in order.
        before: the number of operators that agree at the beginning.
        after: the number of operators that agree at the end, except for operands that the sides compute.
        numbers: the numbers of all values.
        writes: for each graph, whether it has operators that write to tensors.
        choices: the pairs of values or constants between which the If chooses, by `choice_key`.
    """

    def __init__(self, first: ir.Graph, second: ir.Graph):
        self.graphs = (first, second)
        self.writes = tuple(map(writes_anything, self.graphs))
        self.operators = tuple([node for node in graph if not is_of_sizes(node)] for graph in self.graphs)
        ours, theirs = self.operators
        self.before = self._count_before()
        most = min(len(ours), len(theirs)) - self.before
        alike = (self._are_alike(ours[-1 - i], theirs[-1 - i]) for i in range(most))
        self.after = next((i for i, is_alike in enumerate(alike) if not is_alike), most)
        while True:
            self.numbers = self._number_all()
            self.choices: dict[tuple[Hashable, Hashable], tuple[Leaf, Leaf]] = {}
            failure = self._first_failure()
            if failure is None:
                break
            # Only the operators after the failing one may be shared.
            self.after -= failure + 1
        results = list(zip(first.outputs, second.outputs, strict=True))
        if not all(self._accept(*pair, is_result=True) for pair in results):
            # One graph computes a result in its side, the other after the sides: share no operators there.
            self.after = 0
            self.numbers, self.choices = self._number_all(), {}
            refused = [pair[0].name for pair in results if not self._accept(*pair, is_result=True)]
            if refused:
                raise NotJoinable(f"result '{refused[0]}' has another type on each side")

    def _new_numbers(self) -> _ValueNumbers:
        numbers = _ValueNumbers()
        for graph in self.graphs:
            for position, value in enumerate(graph.inputs):
                numbers.bind(value, ("input", position))
            for value in graph.initializers.values():
                numbers.bind(value, _identity(value))
        return numbers

    def _count_before(self) -> int:
        numbers = self._new_numbers()
        first, second = (self._number_until_operator(graph, numbers) for graph in self.graphs)
        for count, (node, twin) in enumerate(zip(first, second, strict=False)):
            if not self._are_alike(node, twin) or numbers.key(node) != numbers.key(twin):
                return count
            for item in (node, twin):
                numbers.bind_outputs(item, ("before", count))
        return min(map(len, self.operators))

    @staticmethod
    def _number_until_operator(graph: ir.Graph, numbers: _ValueNumbers) -> Iterator[ir.Node]:
        """Yield the operators of a graph; numbers the size arithmetic before each one first."""
        for node in graph:
            if is_of_sizes(node):
                numbers.bind_outputs(node, numbers.key(node))
            else:
                yield node

    def _number_all(self) -> _ValueNumbers:
        numbers = self._new_numbers()
        for side, (graph, operators) in enumerate(zip(self.graphs, self.operators, strict=True)):
            position = 0
            for node in graph:
                if is_of_sizes(node):
                    numbers.bind_outputs(node, numbers.key(node))
                    is_late = any(value in numbers.late for value in node.inputs if value is not None)
                else:
                    numbers.key(node)
                    is_late = position >= len(operators) - self.after
                    if position < self.before:
                        key: Hashable = ("before", position)
                    elif is_late:
                        key = ("after", len(operators) - position)
                    else:
                        key = ("side", side, position)
                    numbers.bind_outputs(node, key)
                    position += 1
                if is_late:
                    numbers.late_nodes.add(node)
                    numbers.late.update(node.outputs)
        return numbers

    def _are_alike(self, node: ir.Node, twin: ir.Node) -> bool:
        """Whether two nodes call the same operator, with results of the same types."""
        aliases = [item.metadata_props.get(ALIAS) for item in (node, twin)]
        return (
            (node.domain, node.op_type, node.overload) == (twin.domain, twin.op_type, twin.overload)
            and node.attributes.keys() == twin.attributes.keys()
            and len(node.outputs) == len(twin.outputs)
            # Aliases are compared only if both graphs write to tensors, because others do not record views.
            and (aliases[0] == aliases[1] or not all(self.writes))
            and all(map(_have_one_type, node.outputs, twin.outputs))
        )

    def pairs_after(self) -> list[tuple[ir.Node, ir.Node]]:
        """Return the pairs of shared operators after the sides."""
        ours, theirs = (operators[len(operators) - self.after :] for operators in self.operators)
        return list(zip(ours, theirs, strict=True))

    def pairs_before(self) -> list[tuple[ir.Node, ir.Node]]:
        """Return the pairs of shared operators before the sides."""
        ours, theirs = (operators[: self.before] for operators in self.operators)
        return list(zip(ours, theirs, strict=True))

    def _first_failure(self) -> int | None:
        for position, (node, twin) in enumerate(self.pairs_after()):
            operands: Operands = []
            if not collect_operands(arguments(node), arguments(twin), operands):
                return position
            inner, other_inner = (self.numbers.block_keys(item) for item in (node, twin))
            if inner != other_inner or not all(self._accept(*pair) for pair in operands):
                return position
        return None

    def _accept(self, ours: Leaf, theirs: Leaf, is_result: bool = False) -> bool:
        """Whether two operands are equal, or an If can choose between them, which is added to `choices`.

        Operators need tensors of a known rank; results of the model may have any rank.
        """
        if self.is_common(ours, theirs):
            return True
        if any(isinstance(leaf, Value) and leaf in self.numbers.late for leaf in (ours, theirs)):
            return False
        if not _have_one_type(ours, theirs, is_result):
            return False
        self.choices.setdefault((self._leaf_key(ours), self._leaf_key(theirs)), (ours, theirs))
        return True

    def is_common(self, ours: Leaf, theirs: Leaf) -> bool:
        """Whether two operands are known to be equal."""
        if not isinstance(ours, Value) or not isinstance(theirs, Value):
            return False
        return self.numbers.of(ours) == self.numbers.of(theirs)

    def _leaf_key(self, leaf: Leaf) -> Hashable:
        return self.numbers.of(leaf) if isinstance(leaf, Value) else (type(leaf), repr(leaf))

    def choice_key(self, ours: Leaf, theirs: Leaf) -> tuple[Hashable, Hashable]:
        """Return the key of two operands in `choices`: a number or constant of each."""
        return self._leaf_key(ours), self._leaf_key(theirs)


def marks_decision(node: ir.Node) -> bool:
    """Whether a node is a mark of `DECISION`."""
    return f"{node.domain}::{node.op_type}" == DECISION


def is_of_sizes(node: ir.Node) -> bool:
    """Whether a node computes numbers from sizes and numbers alone."""
    if node.domain == "sym":
        return node.op_type != "require" and not marks_decision(node)
    return (node.domain == "aten" and node.op_type in _SIZES) or (node.domain, node.op_type) == (
        "prim",
        "Constant",
    )


def _identity(value: Value) -> Hashable:
    """Return a key that is equal for two initializers that hold the same tensor of the model."""
    tensor = value.const_value
    if value.metadata_props.get(KIND) == "constant" and tensor is not None:
        # Captures number the constants of the code in the order in which they meet them.
        return "constant", tensor.dtype, tuple(tensor.shape), tensor.tobytes()
    return "weight", value.name


def _have_one_type(ours: Leaf, theirs: Leaf, any_rank: bool = False) -> bool:
    """Whether an If may return either of two operands."""
    if not isinstance(ours, Value) or not isinstance(theirs, Value):
        value, number = (ours, theirs) if isinstance(ours, Value) else (theirs, ours)
        # If neither is a value, the operator may accept only constants.
        if not isinstance(value, Value) or NUMBER not in value.metadata_props:
            return False
        return type(number) is _NUMBER_TYPES[value.metadata_props[NUMBER]]
    are_alike = all(
        ours.metadata_props.get(key) == theirs.metadata_props.get(key) for key in (NUMBER, COMPLEX)
    )
    ranks = [None if value.shape is None else len(value.shape) for value in (ours, theirs)]
    return are_alike and ours.type == theirs.type and (any_rank or ranks[0] == ranks[1])


def collect_operands(ours: object, theirs: object, operands: Operands) -> bool:
    """Append the pairs of operands of two nodes to `operands`; return False if other arguments differ."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return list(ours) == list(theirs) and all(
            collect_operands(ours[name], theirs[name], operands) for name in ours
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(
            collect_operands(*members, operands) for members in zip(ours, theirs, strict=True)
        )
    if isinstance(ours, Value) or isinstance(theirs, Value):
        if not isinstance(ours, LEAVES) or not isinstance(theirs, LEAVES):
            return False
        operands.append((ours, theirs))
        return True
    return type(ours) is type(theirs) and repr(ours) == repr(theirs)
