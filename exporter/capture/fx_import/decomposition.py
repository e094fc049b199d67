"""Decomposes single operators with torch's own decompositions, traced on fake tensors.

Whole-graph decomposition is never run: it costs more than everything else together, and it also decomposes
operators that ONNX has.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir
import sympy
import torch
from onnx_ir import tensor_adapters
from onnx_ir._symbolic_shapes import parse_symbolic_expression
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ....passes import promote_types, real_pairs, remove_inplace
from ....passes.complex_pairs.real_pairs import serves_pairs
from ....passes.faults import raise_fault
from ....registration import COMPLEX, NUMBER, GraphError, MutationError, Names
from ....registration.arguments import arguments, source_node
from ...files.graph_file.fingerprint import fingerprint
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensorMode
from ...torch_boundary.operators import decompositions
from ...torch_boundary.operators.overloads import (
    OperatorBase,
    OpOverload,
    operator_of,
    schema_of,
    written_arguments,
)
from ...torch_boundary.process.silence import quiet
from ...torch_boundary.symbolic_numbers import Size
from ...torch_boundary.symbolic_sizes import new_symbol
from .higher_order import Importer
from .source_values import NamedDimensions, describe

IsKnown = Callable[[ir.Node], bool]
Rules = dict[OpOverload, Callable[..., object]]

_SIZES = (7, 11, 13, 17, 19, 23, 29, 31)
"""The sizes in a trace; primes, so that no size divides another."""
_SCALES = (1, 16, 256, 1 << 16)
"""The factors of these sizes to try in turn: a size such as `n // 64` is 0 or 1 unless `n` is large."""


@dataclasses.dataclass
class _Trace:
    """One trace of an operator. It can be reused if the same operators among `met` are unknown.

    Attributes:
        met: the operators of torch's decomposition table that the trace met.
        decomposed: those of them that were unknown, and therefore decomposed.
        graph: the decomposition, or None if there is none.
    """

    met: frozenset[OperatorBase]
    decomposed: frozenset[OperatorBase]
    graph: ir.Graph | None


class Decomposer:
    """Decomposes source nodes, and reuses decompositions for equal nodes.

    The result depends on the node and on the known operators, not on earlier calls.
    """

    def __init__(self) -> None:
        self._traces: dict[str, list[_Trace]] = {}
        self._tables: dict[str, tuple[IsKnown | None, frozenset[OperatorBase]]] = {}

    def __call__(self, node: ir.Node, is_known: IsKnown) -> ir.Graph | None:
        """An equivalent source graph, all of whose operators satisfy `is_known`.

        Returns:
            The graph, with inputs in the order of the node's; None if torch has no decomposition, or if it
            ends in unknown operators or is valid for some sizes only.
        """
        # The `complex` dialect computes on real pairs; torch decomposes the operator on complex numbers.
        dialect = "aten" if node.domain == "complex" else node.domain
        operator = operator_of(f"{dialect}::{node.op_type}", node.overload)
        if operator is None or not decompositions.is_decomposable(operator):
            return None
        unknown = self._unknown_operators(is_known, node.domain)
        traces = self._traces.setdefault(fingerprint(node), [])
        trace = next((trace for trace in traces if trace.met & unknown == trace.decomposed), None)
        if trace is None:
            with boundary(torch.no_grad(), quiet()):
                met: set[OperatorBase] = set()
                graph = _trace_operator(node, operator, _recording_rules(met, unknown))
            trace = _Trace(frozenset(met), frozenset(met & unknown), graph)
            traces.append(trace)
        if trace.graph is None or not all(is_known(inner) for inner in trace.graph):
            return None
        return trace.graph

    def _unknown_operators(self, is_known: IsKnown, domain: str) -> frozenset[OperatorBase]:
        """The operators of torch's table that are not known, computed once for each lowering.

        Args:
            domain: that of the node; an operator may be known on real numbers and unknown on complex ones.
        """
        dialect = domain if domain == "complex" else "aten"
        cached_predicate, unknown = self._tables.get(dialect, (None, frozenset()))
        if cached_predicate != is_known:
            unknown = frozenset(
                op for op in decompositions.table() if not _known_overload(op, is_known, dialect)
            )
            self._tables[dialect] = (is_known, unknown)
        return unknown


class _TooSmall(GraphError):
    """A size that is computed from others is 0 or 1 in the trace, which torch would fix."""


class _Fakes:
    """Fake tensors and symbolic numbers for the values of one node.

    Args:
        scale: how much larger than `_SIZES` the sizes in the trace are.
    """

    def __init__(self, scale: int) -> None:
        self.environment = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.environment, allow_non_fake_inputs=True)
        self.names: dict[sympy.Symbol, str] = {}
        self._symbols: dict[str, sympy.Symbol] = {}
        self._sizes = itertools.cycle(
            (size if scale == 1 else sympy.nextprime(size * scale), sympy.nextprime(size * scale * 16))
            for size in _SIZES
        )
        self.hints: dict[sympy.Symbol, int] = {}
        self._larger_sizes: dict[sympy.Symbol, int] = {}

    def symbol(self, name: str) -> sympy.Symbol:
        if name not in self._symbols:
            size, larger_size = next(self._sizes)
            symbol = new_symbol(self.environment, f"opsetta_{len(self._symbols)}", size)
            self._symbols[name], self.names[symbol], self.hints[symbol] = symbol, name, size
            self._larger_sizes[symbol] = larger_size
        return self._symbols[name]

    def number(self, expression: sympy.Expr) -> Size:
        hint = int(expression.subs(self.hints))
        if hint < 2:
            raise _TooSmall(f"the size {expression} is {hint} in the trace")
        return self.environment.create_symintnode(expression, hint=hint)

    def size(self, dim: int | ir.SymbolicDim) -> Size:
        if isinstance(dim, int):
            return dim
        if dim.value is None:
            return self.unnamed_number(f"unknown size {len(self._symbols)}")
        try:
            expression = parse_symbolic_expression(dim.value)
        except ValueError:
            # Sizes may be computed by functions that expressions of ONNX models do not have.
            return self.unnamed_number(f"size {dim.value}")
        symbols = {symbol: self.symbol(symbol.name) for symbol in sorted(expression.free_symbols, key=str)}
        return self.number(expression.xreplace(symbols))

    def unnamed_number(self, key: str) -> Size:
        """A number without a name. Equal nodes share one decomposition, but not the numbers in it."""
        symbol = self.symbol(key)
        self.names.pop(symbol, None)
        return self.number(symbol)

    def fake_value(self, value: ir.Value, as_complex: bool) -> torch.Tensor | Size:
        if value.dtype is None or value.shape is None:
            raise GraphError(f"the element type or shape of '{value.name}' is unknown")
        if NUMBER in value.metadata_props:
            if value.metadata_props[NUMBER] != "int":
                raise GraphError("a symbolic number that is not an int")
            return self.unnamed_number(f"number {value.name}")
        shape = [self.size(dim) for dim in value.shape]
        dtype = tensor_adapters.to_torch_dtype(value.dtype)
        with self.mode:
            if as_complex and COMPLEX in value.metadata_props:
                return torch.empty(shape[:-1], dtype=dtype.to_complex())
            return torch.empty(shape, dtype=dtype)

    def arguments_of(self, node: ir.Node) -> dict[str, object]:
        """The arguments of a node with fake values.

        Raises:
            GraphError: a size is 0 or 1 in the trace, or an argument is of unknown type.
        """
        # ATen operators on complex values work on the real pairs that represent them.
        as_complex = node.domain != "aten"
        call: dict[str, object] = pytree.tree_map(
            lambda item: self.fake_value(item, as_complex) if isinstance(item, ir.Value) else item,
            arguments(node),
        )
        return call

    def decides_for_all_sizes(self) -> bool:
        """Whether torch fixed no size in the trace, and took no branch that other sizes would not take.

        A trace broadcasts a size such as `(n - 2) // 8 + 1` as a 1 where the size is 1 in the trace. It takes
        the longest of several tensors to be the one that is the longest in the trace.
        """
        if self.environment.replacements:
            return False
        guards = [guard.expr for guard in self.environment.guards]
        reverse_order = dict(zip(self.hints, reversed(self.hints.values()), strict=True))
        inequalities = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
        # Guards that state which of two independent sizes is larger.
        orders = [
            guard
            for guard in guards
            if isinstance(guard, inequalities) and all(side.is_Symbol for side in guard.args)
        ]
        return all(guard.xreplace(self._larger_sizes) != sympy.false for guard in guards) and all(
            guard.xreplace(reverse_order) != sympy.false for guard in orders
        )


def _recording_rules(met: set[OperatorBase], unknown: frozenset[OperatorBase]) -> Rules:
    """Torch's table, which decomposes only unknown operators, and adds each traced operator to `met`."""

    def recording_rule(operator: OperatorBase, rule: Callable[..., object]) -> Callable[..., object]:
        def decompose(*args: object, **kwargs: object) -> object:
            met.add(operator)
            return rule(*args, **kwargs) if operator in unknown else NotImplemented

        return decompose

    return {operator: recording_rule(operator, rule) for operator, rule in decompositions.table().items()}


def _trace_operator(node: ir.Node, operator: OpOverload, rules: Rules) -> ir.Graph | None:
    for scale in _SCALES:
        fakes = _Fakes(scale)
        try:
            traced = _trace_call(operator, fakes.arguments_of(node), fakes, rules)
        except _TooSmall:
            continue
        except GraphError:
            return None
        if traced is not None and fakes.decides_for_all_sizes():
            return _import_trace(traced, node, fakes)
        # Other sizes change nothing in a trace without symbolic ones.
        if not fakes.hints:
            return None
    return None


def _trace_call(
    operator: OpOverload, fake_arguments: Mapping[str, object], fakes: _Fakes, rules: Rules
) -> torch.fx.GraphModule | None:
    """The trace of a decomposition; None if torch cannot trace it with these arguments."""
    # A node of another library's operator returns its results, then the new values of tensors it writes to.
    written_names = () if operator.namespace == "aten" else written_arguments(schema_of(operator))
    leaves, structure = pytree.tree_flatten(fake_arguments)
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, torch.SymInt))]

    def run(*values: object) -> list[object]:
        merged = list(leaves)
        for position, value in zip(positions, values, strict=True):
            merged[position] = value
        call = pytree.tree_unflatten(merged, structure)
        targets = pytree.tree_map_only(torch.Tensor, torch.clone, [call.get(name) for name in written_names])
        results = decompositions.apply(operator, {**call, **dict(zip(written_names, targets, strict=True))})
        leaves_of_results = pytree.tree_leaves(results)
        if not written_names:
            return leaves_of_results
        return [leaf for leaf in (*leaves_of_results, *pytree.tree_leaves(targets)) if leaf is not None]

    try:
        with fakes.mode:
            traced = make_fx(run, decomposition_table=rules, tracing_mode="symbolic")(
                *[leaves[i] for i in positions]
            )
    except Exception as error:
        raise_fault(error, f"when it decomposed {operator}")
        # Treat a decomposition that torch cannot trace as missing: the caller reports the operator as
        # unsupported.
        return None
    return traced


def _known_overload(operator: OperatorBase, is_known: IsKnown, dialect: str) -> bool:
    if not isinstance(operator, OpOverload):
        return False
    # Do not decompose in-place operators: `remove_inplace` handles them, and their decompositions end in
    # torch's primitives.
    schema = schema_of(operator)
    name = schema.name
    if dialect == "complex" and name.startswith("aten::"):
        if serves_pairs(name):
            return True
        name = name.replace("aten::", "complex::", 1)
    return schema.is_mutable or is_known(
        source_node(name, {}, overload=schema.overload_name or "default", num_outputs=0)
    )


def _import_trace(traced: torch.fx.GraphModule, node: ir.Node, fakes: _Fakes) -> ir.Graph | None:
    traced.graph.eliminate_dead_code()
    dimensions = NamedDimensions(fakes.names, closed=True)
    importer = Importer(traced, dimensions, Names())
    inputs = []
    for placeholder in traced.graph.nodes:
        if placeholder.op == "placeholder":
            value = describe(ir.Value(name=placeholder.name), placeholder.meta["val"], dimensions)
            inputs.append(value)
            importer.bind(placeholder, value)
    outputs = importer.run(traced.graph)
    if not all(isinstance(value, ir.Value) for value in outputs) or len(outputs) != len(node.outputs):
        return None
    if any(_contradicts(value, expected) for value, expected in zip(outputs, node.outputs, strict=True)):
        return None
    graph = ir.Graph(
        inputs, outputs, nodes=importer.nodes, initializers=importer.initializers, name="decomposition"
    )
    model = ir.Model(graph, ir_version=10)
    try:
        remove_inplace(model, mutations="error")
    except MutationError:
        # The decomposition writes to an input of the node, and that write would be lost.
        return None
    real_pairs(model)
    promote_types(model)
    if node.domain == "complex" and _complex_flags(graph.outputs) != _complex_flags(node.outputs):
        return None
    return graph


def _contradicts(value: ir.Value, expected: ir.Value) -> bool:
    """Whether torch's rule returns another shape than the operator's kernel, as some do for a rank of 0."""
    is_complex = COMPLEX in value.metadata_props or COMPLEX in expected.metadata_props
    if value.shape is None or expected.shape is None or is_complex:
        return False
    if len(value.shape) != len(expected.shape):
        return True
    pairs = zip(value.shape, expected.shape, strict=True)
    return any(
        isinstance(dim, int) and isinstance(expected_dim, int) and dim != expected_dim
        for dim, expected_dim in pairs
    )


def _complex_flags(values: Sequence[ir.Value]) -> list[bool]:
    return [COMPLEX in value.metadata_props for value in values]
