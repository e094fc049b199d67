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
from ...torch_boundary.recording.loop_operator import RANGE_LOOP
from ...torch_boundary.recording.recorder import READS_OF_NUMBERS
from ..fx_import.captured_program import RecordedProgram
from ..sizes.trials.operator_trace import contents

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ROWS_OF_FIRST = frozenset(
    {
        *(
            "aten::nonzero",
            "aten::nonzero_numpy",
            "aten::masked_select",
            "aten::_unique2",
            "aten::unique_dim",
        ),
        *("aten::unique_consecutive", "aten::unique_dim_consecutive", "torchvision::nms"),
    }
)
"""Operators whose result has no rows if their first argument has none."""
_OF_MASK = {"aten::nonzero": 0, "aten::nonzero_numpy": 0, "aten::masked_select": 1}
"""The argument whose true elements are the rows of the result, by operator."""
_JOINS = frozenset({"aten::cat", "aten::concat", "aten::concatenate"})
_WRITES_ROWS = {
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), 1),
    **dict.fromkeys(("aten::masked_fill", "aten::masked_fill_", "aten::masked_scatter"), 1),
    **{
        f"aten::{name}{suffix}": 2
        for name in ("index_add", "index_copy", "index_fill", "scatter", "scatter_add", "scatter_reduce")
        for suffix in ("", "_")
    },
}
"""The argument that says where elements are written; if it selects none, the first argument is unchanged."""
_COPIES = frozenset({"aten::clone", "aten::contiguous", "aten::detach", "aten::alias", "aten::_to_copy"})
RESHAPES = frozenset(
    f"aten::{name}" for name in "view _unsafe_view reshape flatten unflatten squeeze unsqueeze".split()
)
"""Operators that keep the order of the elements, so that only the last shape matters."""
_PARTS = frozenset({"aten::slice", "aten::narrow"})
_ZEROS = frozenset({"aten::zeros", "aten::zeros_like", "aten::new_zeros"})
_PRODUCTS = frozenset({"aten::matmul", "aten::mm", "aten::bmm", "aten::dot", "aten::mv"})
_SUMS = frozenset({"aten::sum", "aten::nansum", "aten::count_nonzero", "aten::any"})
"""Operators whose result for no elements is 0 or False."""
_KEEP_ZERO = frozenset(
    f"aten::{name}"
    for name in (
        "view _unsafe_view reshape flatten transpose t permute expand expand_as squeeze unsqueeze slice "
        "narrow select unbind flip repeat roll to clone contiguous detach alias _to_copy type_as "
        "neg abs sum cumsum max min amax amin any"
    ).split()
)
"""Operators whose result is 0 where their first argument is."""
_CONJUNCTIONS = frozenset({"aten::logical_and", "aten::bitwise_and", "aten::__and__"})
_KEEP_OTHER = frozenset(
    {"aten::add", "aten::sub", "aten::logical_or", "aten::bitwise_or", "aten::__or__", "aten::bitwise_xor"}
)
"""Operators whose result is the first argument where the second is 0."""
_COMMUTE = _KEEP_OTHER - {"aten::sub"}
_ARITHMETIC: Mapping[str, Callable[..., sympy.Expr]] = {
    "aten::add": lambda x, y: x + y,
    "aten::mul": lambda x, y: x * y,
    "aten::rsub": lambda x, y: y - x,
    "aten::sub": lambda x, y: x - y,
}


class ValueNumbers:
    """Numbers of values, shared by the graphs that are compared."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of_results(
        self,
        program: RecordedProgram,
        sizes: Mapping[sympy.Symbol, int],
        without_true: Sequence[torch.fx.Node],
    ) -> list[Hashable] | None:
        """What a program returns, and what it has written to its inputs and weights.

        None if the sizes contradict what holds on the sides that the program takes.

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
        # Most sizes are read for many tensors.
        self._size_texts: dict[object, Hashable] = {}
        bodies = [
            module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)
        ]
        graphs = [program.graph, *(body.graph for body in bodies)]
        written = {storage for graph in graphs for node in graph.nodes for storage in _written_storages(node)}
        # The code branched on a mask as it was then: one that is written to may have other elements later.
        # Masks are compared by their tensors: a loop's body has copies of the nodes with the same tensors.
        self._without_true = {id(mask.meta["val"]) for mask in without_true if _storage(mask) not in written}
        self._values: dict[torch.fx.Node, Hashable] = {}
        self._versions: dict[int, Hashable] = {}
        self._zeros: set[Hashable] = set()
        self._loop_results: dict[torch.fx.Node, list[Hashable]] = {}
        self._reshaped: dict[Hashable, tuple[Hashable, tuple[Hashable, ...]]] = {}
        self._draws = self._loops = 0
        self._is_refused = False

    def of_results(self) -> list[Hashable] | None:
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
                # A program that fails without rows equals no other program.
                refused = [self._number(object())] if self._is_refused else []
                if any(fact.xreplace(self._sizes) == sympy.false for fact in self._program.assumed):
                    return None
                return [*returned, *filter(None, written), *refused]
            else:
                self._number_node(node, self._program.graph_module)
            self._learn_zeros(node)
        raise AssertionError("a graph ends with its output")

    def _number_node(self, node: torch.fx.Node, root: torch.nn.Module) -> None:
        """Number the result of a call; `root` has the bodies of loops."""
        arguments: Any = node.args
        if node.target is RANGE_LOOP:
            self._number_loop(node, root)
        elif node.target is operator.getitem and arguments[0] in self._loop_results:
            self._values[node] = self._loop_results[arguments[0]][arguments[1]]
        else:
            self._values[node] = self._value(node)

    def _learn_zeros(self, node: torch.fx.Node) -> None:
        if id(node.meta.get("val")) in self._without_true:
            self._zeros.add(self._operand(node))

    def _number_loop(self, node: torch.fx.Node, root: torch.nn.Module) -> None:
        """Number the results of a loop, which follow from its range and from what one iteration computes.

        An iteration is numbered for any carried values, so that each may take the side that it needs.
        """
        arguments: Any = node.args
        attribute, initial, [start], additional, count, step = arguments
        body: Any = getattr(root, attribute.target)
        inputs = [item for item in body.graph.nodes if item.op == "placeholder"]
        storages = set(map(_storage, inputs)) - {None}
        carried, [index, *outer] = inputs[: len(initial)], inputs[len(initial) :]
        numbers, is_known = self._loop_results, True
        numbers[node] = [self._number(object()) for _ in node.meta["val"]]
        self._loops += 1
        for position, item in enumerate([index, *carried]):
            name = f"loop_{self._loops}_{position}"
            self._values[item] = self._number(name)
            if _is_number(item.meta["val"]):
                is_known = is_known and item.meta["val"].node.expr.is_Symbol
                self._sizes[item.meta["val"].node.expr] = sympy.Symbol(name, integer=True)
        self._size_texts.clear()
        for item, operand in zip(outer, additional, strict=True):
            self._values[item] = self._values[operand]
        for item in body.graph.nodes:
            if item.op not in ("placeholder", "output"):
                self._number_node(item, body)
                self._learn_zeros(item)
            # What the body writes to its operands, the next iteration and the code after it read.
            is_known = is_known and storages.isdisjoint(_written_storages(item))
        if not is_known:
            return
        results = tuple(map(self._operand, body.graph.output_node().args[0]))
        before = tuple(map(self._operand, initial))
        states = list(zip(before, results, map(self._operand, carried), strict=False))
        changed = tuple((first, last) for first, last, formal in states if last != formal)
        key = (str(node.target), self._loops, *map(self._operand, (start, count, step)), changed)
        numbers[node] = [
            first if last == formal else self._number((*key, first, last)) for first, last, formal in states
        ]
        numbers[node] += [self._number((*key, "rows", row)) for row in results[len(states) :]]

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
        source: Any = node.args[0] if node.args else None
        if name == "aten::_assert_scalar" and isinstance(source, torch.fx.Node):
            condition = source.meta["val"].node.expr.xreplace(self._sizes)
            self._is_refused = self._is_refused or condition == sympy.false
        is_copy = name in _COPIES or (name == "aten::dropout" and _argument(node, 2, "train") is False)
        if is_copy and _is_like(node, source):
            return self._operand(source)
        if isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags:
            self._draws += 1
            operands = (*operands, ("draw", self._draws))
        number: Hashable = self._number((str(target), *operands))
        self._define_rows(node, name, number)
        # `view` may also read the bits as another type.
        if name in RESHAPES and _is_like(node, source):
            number = self._reshape(node)
        if name in _JOINS:
            number = self._join(node, number)
        if name in _PARTS and self._shape(node) == self._shape(source):
            return self._values[source]
        unchanged = self._unchanged_operand(node, name)
        if unchanged is not None:
            return self._operand(unchanged)
        if self._is_zero_result(node, name):
            number = self._number(("zeros", node.meta["val"].dtype, self._shape(node)))
            self._zeros.add(number)
        position = _WRITES_ROWS.get(name)
        writes_nothing = position is not None and self._selects_nothing(_argument(node, position))
        # A tensor that is copied into itself stays as it is.
        if writes_nothing or (name == "aten::copy_" and operands[0] == operands[1]):
            return self._values[source] if schema_of(target).is_mutable else self._operand(source)
        if isinstance(target, OpOverload) and schema_of(target).is_mutable:
            self._write(node, number)
        return number

    def _selects_nothing(self, indices: object) -> bool:
        """Whether indices or masks select no elements; an index of 0 selects the first one."""
        nodes = [item for item in pytree.tree_leaves(indices) if isinstance(item, torch.fx.Node)]
        return any(
            self._is_empty(item) or (item.meta["val"].dtype == torch.bool and self._is_zero(item))
            for item in nodes
        )

    def _is_zero(self, item: object) -> bool:
        """Whether all elements of a tensor are 0 or False."""
        return isinstance(item, torch.fx.Node) and self._operand(item) in self._zeros

    def _is_zero_result(self, node: torch.fx.Node, name: str) -> bool:
        """Whether all elements of the tensor that an operator returns are 0 or False."""
        result = node.meta.get("val")
        if not isinstance(result, torch.Tensor) or not node.args or self._is_empty(node):
            return False
        if name in _SUMS and self._is_empty(node.args[0]):
            return True
        if name in _KEEP_ZERO:
            # The maximum of two tensors has the name of the maximum along an axis.
            is_of_two = name in ("aten::max", "aten::min") and len(node.args) > 1
            return not is_of_two and self._is_zero(node.args[0])
        if name in _PRODUCTS:
            # A sum of no products.
            return any(map(self._is_empty, node.args[:2]))
        return name in _ZEROS or (name in _CONJUNCTIONS and any(map(self._is_zero, node.args[:2])))

    def _unchanged_operand(self, node: torch.fx.Node, name: str) -> torch.fx.Node | None:
        """The operand that an operator returns unchanged because its other operand is 0; None if none is."""
        if name not in _KEEP_OTHER or len(node.args) < 2 or (name == "aten::sub" and node.kwargs):
            return None
        first, second = node.args[:2]
        for operand, zero in ((first, second), (second, first))[
            : 2 if name in _COMMUTE and not node.kwargs else 1
        ]:
            if isinstance(operand, torch.fx.Node) and self._is_zero(zero) and _is_like(node, operand):
                return operand if self._shape(node) == self._shape(operand) else None
        return None

    def _shape(self, node: torch.fx.Node) -> tuple[Hashable, ...]:
        return tuple(map(self._size, node.meta["val"].shape))

    def _scalar(self, item: object) -> sympy.Expr | None:
        """The integer in a tensor with one element, where it follows from zeros and sizes."""
        if isinstance(item, int):
            return sympy.Integer(item)
        if not isinstance(item, torch.fx.Node):
            return None
        value = item.meta.get("val")
        if isinstance(value, torch.SymInt):
            expression: sympy.Expr = value.node.expr.xreplace(self._sizes)
            return expression
        if self._is_zero(item):
            return sympy.Integer(0)
        name = schema_of(item.target).name if isinstance(item.target, OpOverload) else ""
        compute = _ARITHMETIC.get(name)
        if compute is None or item.kwargs or len(item.args) != 2 or not isinstance(value, torch.Tensor):
            return None
        if value.dtype.is_floating_point:
            return None
        operands = [self._scalar(operand) for operand in item.args]
        return None if None in operands else compute(*operands)

    def _define_rows(self, node: torch.fx.Node, name: str, number: Hashable) -> None:
        """Name the sizes that depend on data after the operator; they are 0 where nothing has rows."""
        symbols = list(node.meta.get("unbacked_bindings") or {})
        has_rows = not (symbols and self._has_no_rows(node, name))
        scalar = self._scalar(node.args[0]) if symbols and node.target in READS_OF_NUMBERS else None
        if scalar is not None:
            self._sizes.setdefault(symbols[0], scalar)
        if symbols:
            self._size_texts.clear()
        for position, symbol in enumerate(symbols):
            named = sympy.Symbol(f"rows_{number}_{position}", integer=True, nonnegative=True)
            self._sizes.setdefault(symbol, named if has_rows else sympy.Integer(0))

    def _has_no_rows(self, node: torch.fx.Node, name: str) -> bool:
        """Whether the number of rows that an operator tells is 0."""
        if name in _ROWS_OF_FIRST and self._is_empty(node.args[0]):
            return True
        if name in _OF_MASK:
            return self._is_zero(_argument(node, _OF_MASK[name]))
        return name == "aten::index" and self._selects_nothing(_argument(node, 1))

    def _join(self, node: torch.fx.Node, number: Hashable) -> Hashable:
        """The number of joined tensors, of which those without elements are left out."""
        items: Any = node.args[0]
        result = node.meta["val"]
        parts = [item for item in items if not self._is_empty(item)]
        if any(item.meta["val"].dtype != result.dtype for item in items) or not parts:
            return number
        if len(parts) == 1:
            # The join is a copy: later writes to it do not change the tensor that was joined.
            return self._operand(parts[0])
        further = [self._operand(item) for item in (*node.args[1:], *node.kwargs.items())]
        return self._number(("joined", *map(self._operand, parts), *further))

    def _reshape(self, node: torch.fx.Node) -> Hashable:
        """The number of a reshaped tensor: that of the tensor itself if it gets its shape back."""
        source: Any = node.args[0]
        before = self._operand(source)
        original, original_shape = self._reshaped.get(before, (before, self._shape(source)))
        shape = self._shape(node)
        number = original if shape == original_shape else self._number(("reshaped", original, shape))
        self._reshaped.setdefault(number, (original, original_shape))
        return number

    def _write(self, node: torch.fx.Node, number: Hashable) -> None:
        """Note that an operator writes to its arguments."""
        self._versions |= dict.fromkeys(_written_storages(node, self._is_empty), number)

    def _version(self, node: torch.fx.Node) -> Hashable:
        """The number of the last operator that wrote to the memory of a tensor; None without one."""
        storage = _storage(node)
        return None if storage is None else self._versions.get(storage)

    def _operand(self, item: object) -> Hashable:
        """An argument or result in a form that is equal for equal values."""
        if isinstance(item, torch.fx.Node):
            value = item.meta.get("val")
            if isinstance(value, _SYMBOLIC):
                return self._size(value)
            if isinstance(value, torch.Tensor):
                shape = self._shape(item)
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
        text = self._size_texts.get(number.node)
        if text is None:
            expression: sympy.Expr = number.node.expr.xreplace(self._sizes)
            text = int(expression) if expression.is_Integer else str(sympy.srepr(expression))
            self._size_texts[number.node] = text
        return text

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


def _storage(node: torch.fx.Node) -> int | None:
    """The storage of the tensor that a node returns."""
    return storage_of(node.meta.get("val"))


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
    numbers = ValueNumbers()
    results = numbers.of_results(first, sizes, without_true)
    # The other recording belongs to another side of the first one, which is compared by itself.
    if results is None:
        return True
    have_one_structure: bool = first.call_spec.out_spec == second.call_spec.out_spec
    return have_one_structure and results == numbers.of_results(second, {}, second_without_true)
