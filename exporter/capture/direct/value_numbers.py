"""Numbers the values of recorded graphs, so that equal numbers mean equal values where some sizes are 0.

A recording runs the general side of a branch on the number of rows, such as `if len(boxes) == 0`. Another one
runs the side for no rows. The two compute the same if their results have the same numbers: operators with
equal operands have equal results, and tensors without elements are equal if their types and shapes are.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import storage_of
from ...torch_boundary.operators.overloads import OpOverload, schema_of, written_arguments
from ..fx_import.captured_program import RecordedProgram
from ..sizes.operator_trace import contents

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ROWS_OF_FIRST = frozenset(
    {
        *("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim"),
        *("aten::unique_consecutive", "aten::unique_dim_consecutive", "torchvision::nms"),
    }
)
"""Operators whose result has no rows if their first argument has none."""
_OF_MASK = {"aten::nonzero": 0, "aten::masked_select": 1}
"""The argument whose true elements are the rows of the result, by operator."""
_JOINS = frozenset({"aten::cat", "aten::concat", "aten::concatenate"})
_WRITES_ROWS = {
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), (1, 2)),
    **dict.fromkeys(("aten::masked_fill", "aten::masked_fill_", "aten::masked_scatter"), (1,)),
}
"""The arguments that hold the elements to write, or where; without any, the first argument stays as it is."""
_COPIES = frozenset({"aten::clone", "aten::contiguous", "aten::detach", "aten::alias", "aten::_to_copy"})


class ValueNumbers:
    """Numbers of values, shared by the graphs that are compared."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of_results(
        self,
        program: RecordedProgram,
        sizes: Mapping[sympy.Symbol, int],
        without_true: Sequence[torch.fx.Node],
    ) -> list[Hashable]:
        """What a program returns, and what it has written to its inputs and weights.

        Args:
            sizes: the known sizes.
            without_true: the nodes of masks that have no true elements.
        """
        return _Numbering(self._numbers, program, sizes, without_true).of_results()


class _Numbering:
    def __init__(
        self,
        numbers: dict[Hashable, int],
        program: RecordedProgram,
        sizes: Mapping[sympy.Symbol, int],
        without_true: Sequence[torch.fx.Node],
    ):
        self._numbers = numbers
        self._program = program
        self._sizes: dict[sympy.Symbol, sympy.Basic] = {
            symbol: sympy.Integer(size) for symbol, size in sizes.items()
        }
        written = {storage for node in program.graph.nodes for storage in _written_storages(node)}
        # A mask that is written to may have had other elements when the code asked.
        self._without_true = {node for node in without_true if storage_of(node.meta["val"]) not in written}
        self._values: dict[torch.fx.Node, Hashable] = {}
        self._versions: dict[int, Hashable] = {}
        self._masks: set[Hashable] = set()
        self._draws = 0

    def of_results(self) -> list[Hashable]:
        specifications = iter(self._program.graph_signature.input_specs)
        placeholders: list[torch.fx.Node] = []
        inputs = itertools.count()
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                specification = next(specifications)
                placeholders.append(node)
                self._values[node] = (
                    self._number(("input", next(inputs)))
                    if specification.target is None
                    else self._tensor(specification.target)
                )
            elif node.op == "output":
                returned = [self._operand(leaf) for leaf in pytree.tree_leaves(node.args[0])]
                written = [self._version(placeholder) for placeholder in placeholders]
                return [*returned, *filter(None, written)]
            else:
                self._values[node] = self._value(node)
            if node in self._without_true:
                self._masks.add(self._operand(node))
        raise AssertionError("a graph ends with its output")

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _tensor(self, target: str) -> Hashable:
        """The number of a weight or a constant."""
        item = self._program.constants.get(target)
        if isinstance(item, torch.Tensor) and target not in self._program.state_dict:
            return self._number(("constant", item.dtype, tuple(item.shape), contents(item)))
        return self._number(("weight", target))

    def _value(self, node: torch.fx.Node) -> Hashable:
        """The number of a node's result."""
        target: Any = node.target
        if node.op != "call_function" or not (
            isinstance(target, OpOverload) or target is operator.getitem or _is_number(node.meta.get("val"))
        ):
            # Other calls are equal to nothing else.
            return self._number(object())
        if _is_number(node.meta.get("val")):
            # Its symbols are named after it.
            operands = tuple(self._operand(item) for item in (*node.args, *node.kwargs.items()))
            read_number = self._number((str(node.target), *operands))
            self._define_rows(node, "", read_number)
            return read_number
        name = schema_of(target).name if isinstance(target, OpOverload) else "getitem"
        operands = tuple(self._operand(item) for item in (*node.args, *node.kwargs.items()))
        if isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags:
            self._draws += 1
            operands = (*operands, ("draw", self._draws))
        number: Hashable = self._number((str(target), *operands))
        self._define_rows(node, name, number)
        if name in _JOINS:
            number = self._join(node, number)
        source: Any = node.args[0] if node.args else None
        if name in _COPIES and _is_like(node, source):
            return self._operand(source)
        if self._writes_nothing(node, name):
            return self._values[source] if schema_of(target).is_mutable else self._operand(source)
        if isinstance(target, OpOverload) and schema_of(target).is_mutable:
            self._write(node, number)
        return number

    def _writes_nothing(self, node: torch.fx.Node, name: str) -> bool:
        """Whether an operator that writes elements to a tensor has none to write."""
        leaves = [
            leaf
            for position in _WRITES_ROWS.get(name, ())
            for leaf in pytree.tree_leaves(_argument(node, position))
            if isinstance(leaf, torch.fx.Node)
        ]
        return any(self._is_empty(leaf) or self._operand(leaf) in self._masks for leaf in leaves)

    def _define_rows(self, node: torch.fx.Node, name: str, number: Hashable) -> None:
        """Name the sizes that depend on data after the operator; they are 0 where nothing has rows."""
        symbols = list(node.meta.get("unbacked_bindings") or {})
        has_rows = not (symbols and self._has_no_rows(node, name))
        for position, symbol in enumerate(symbols):
            named = sympy.Symbol(f"rows_{number}_{position}", integer=True, nonnegative=True)
            self._sizes.setdefault(symbol, named if has_rows else sympy.Integer(0))

    def _has_no_rows(self, node: torch.fx.Node, name: str) -> bool:
        if name in _ROWS_OF_FIRST and self._is_empty(node.args[0]):
            return True
        if name in _OF_MASK:
            return self._operand(_argument(node, _OF_MASK[name])) in self._masks
        indices = pytree.tree_leaves(_argument(node, 1)) if name == "aten::index" else []
        masks = [item for item in indices if isinstance(item, torch.fx.Node)]
        return any(self._is_empty(item) or self._operand(item) in self._masks for item in masks)

    def _join(self, node: torch.fx.Node, number: Hashable) -> Hashable:
        """The number of joined tensors, of which those without elements are left out."""
        items: Any = node.args[0]
        result = node.meta["val"]
        parts = [item for item in items if not self._is_empty(item)]
        if any(item.meta["val"].dtype != result.dtype for item in items) or not parts:
            return number
        if len(parts) == 1:
            # A view would have the same elements, too; a copy is equal as long as nothing is written to it.
            return self._number(("joined", self._operand(parts[0])))
        further = [self._operand(item) for item in (*node.args[1:], *node.kwargs.items())]
        return self._number(("joined", *map(self._operand, parts), *further))

    def _write(self, node: torch.fx.Node, number: Hashable) -> None:
        """Note that an operator writes to its arguments."""
        self._versions |= dict.fromkeys(_written_storages(node, self._is_empty), number)

    def _version(self, node: torch.fx.Node) -> Hashable:
        """The number of the last operator that wrote to the memory of a tensor; None without one."""
        storage = storage_of(node.meta.get("val"))
        return None if storage is None else self._versions.get(storage)

    def _operand(self, item: object) -> Hashable:
        """An argument or result in a form that is equal for equal values."""
        if isinstance(item, torch.fx.Node):
            value = item.meta.get("val")
            if isinstance(value, _SYMBOLIC):
                return self._size(value)
            if isinstance(value, torch.Tensor):
                shape = tuple(map(self._size, value.shape))
                if 0 in shape:
                    return "empty", value.dtype, str(value.device), shape
            version = self._version(item)
            return self._values[item] if version is None else self._number((self._values[item], version))
        if isinstance(item, (list, tuple)):
            return tuple(map(self._operand, item))
        return self._size(item) if isinstance(item, (int, float, *_SYMBOLIC)) else str(item)

    def _size(self, number: Any) -> Hashable:
        if not isinstance(number, _SYMBOLIC):
            return float(number) if isinstance(number, float) else int(number)
        expression: sympy.Expr = number.node.expr.xreplace(self._sizes)
        return int(expression) if expression.is_Integer else str(sympy.srepr(expression))

    def _is_empty(self, item: object) -> bool:
        value = item.meta.get("val") if isinstance(item, torch.fx.Node) else None
        return isinstance(value, torch.Tensor) and 0 in map(self._size, value.shape)


def _written_storages(
    node: torch.fx.Node, is_ignored: Callable[[object], bool] = lambda item: False
) -> Iterator[int]:
    """The storages of the arguments that a call writes to."""
    if not isinstance(node.target, OpOverload):
        return
    written = set(written_arguments(schema_of(node.target)))
    for position, formal in enumerate(schema_of(node.target).arguments):
        for leaf in pytree.tree_leaves(_argument(node, position, formal.name)):
            is_written = formal.name in written and isinstance(leaf, torch.fx.Node) and not is_ignored(leaf)
            storage = storage_of(leaf.meta.get("val")) if is_written else None
            if storage is not None:
                yield storage


def _is_number(value: object) -> bool:
    return isinstance(value, _SYMBOLIC)


def _is_like(node: torch.fx.Node, source: torch.fx.Node) -> bool:
    """Whether the result of a copy has the element type and the device of what it copies."""
    result, copied = node.meta["val"], source.meta["val"]
    return bool(result.dtype == copied.dtype and result.device == copied.device)


def _argument(node: torch.fx.Node, position: int, name: str = "") -> object:
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name)


def have_equal_results(
    first: RecordedProgram,
    second: RecordedProgram,
    sizes: Mapping[sympy.Symbol, int],
    without_true: Sequence[torch.fx.Node] = (),
    second_without_true: Sequence[torch.fx.Node] = (),
) -> bool:
    """Whether a program, at some sizes, computes what another one does, which was recorded at these sizes.

    Args:
        first: a program for all sizes.
        second: the other program.
        sizes: the sizes that depend on data, by symbol of the first program.
        without_true, second_without_true: the nodes of masks in each that have no true elements.
    """
    if first.call_spec.out_spec != second.call_spec.out_spec:
        return False
    numbers = ValueNumbers()
    results: Sequence[Hashable] = numbers.of_results(first, sizes, without_true)
    return results == numbers.of_results(second, {}, second_without_true)
