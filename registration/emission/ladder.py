"""The version ladder: finds the function that replaces an ONNX operator at opsets whose version differs.

`symbolics/onnx` documents the ladder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx_ir import Value

from .. import schemas
from ..construction.builder import GraphBuilder
from ..functions.dispatch import SymbolicFunction
from ..functions.results import as_list, composed_results

# A composition may emit its own operator with other element types; this bounds the recursion.
_COMPOSED_WITHIN = 3


def rung(
    g: GraphBuilder, op_type: str, positional: Sequence[object], named: Mapping[str, object]
) -> SymbolicFunction | None:
    """Return the function that composes an operator's newest meaning at this opset, or None.

    Returns None while that function runs, and if only arbitrary data needs it; constant negative positions
    are such data.
    """
    construction = g.construction
    if op_type in construction.composing:
        return None
    entry = g.registry.rung(op_type, construction.opset)
    if entry is None or (entry.any_data and not _has_negative_positions(g, positional, named)):
        return None
    symbolic: SymbolicFunction = entry.symbolic
    return symbolic


def _has_negative_positions(
    g: GraphBuilder, positional: Sequence[object], named: Mapping[str, object]
) -> bool:
    """Whether the indices of Gather and its like, their second operand, are constants below 0."""
    indices = positional[1] if len(positional) > 1 else named.get("indices")
    numbers = g.constant_value(indices) if isinstance(indices, Value) else indices
    return numbers is not None and bool(np.any(np.asarray(numbers) < 0))


def _indices_as_values(
    g: GraphBuilder, positional: Sequence[object], named: Mapping[str, object]
) -> tuple[Sequence[object], Mapping[str, object]]:
    """The operands with the lists and arrays among the indices as constants, which compositions take."""
    if len(positional) > 1 and isinstance(positional[1], (list, np.ndarray)):
        indices = np.asarray(positional[1], np.int64)
        return [positional[0], g.constant(indices), *positional[2:]], named
    if isinstance(named.get("indices"), (list, np.ndarray)):
        return positional, {**named, "indices": g.constant(np.asarray(named["indices"], np.int64))}
    return positional, named


def compose_rung(
    g: GraphBuilder,
    symbolic: SymbolicFunction,
    op_type: str,
    positional: Sequence[object],
    named: Mapping[str, object],
    outputs: int,
) -> list[Value]:
    """Call the function that `rung` returns."""
    if op_type.startswith(("Gather", "Scatter")):
        positional, named = _indices_as_values(g, positional, named)
    return compose(g, symbolic, op_type, positional, named, outputs)


def emit_of_any_data(
    g: GraphBuilder, op_type: str, positional: Sequence[object], named: Mapping[str, object], outputs: int
) -> list[Value]:
    """Emit an operator with its newest meaning, for data that older versions may not take."""
    entry = g.registry.rung(op_type, g.opset)
    if entry is not None and op_type not in g.construction.composing:
        return compose(g, entry.symbolic, op_type, positional, named, outputs)
    return as_list(g.op(op_type, *positional, outputs=outputs, **named))


def composition(g: GraphBuilder, op_type: str) -> SymbolicFunction | None:
    """Return the function that replaces an ONNX operator refused by this opset's version, or None."""
    if g.construction.composing.count(op_type) >= _COMPOSED_WITHIN:
        return None
    symbolic: SymbolicFunction | None = g.registry.lookup(f"onnx::{op_type}", "", g.opset)
    return symbolic


@contextlib.contextmanager
def use_target_version(g: GraphBuilder, op_type: str) -> Iterator[None]:
    """While this context is active, emit the operator as this opset's version."""
    g.construction.composing.append(op_type)
    try:
        yield
    finally:
        g.construction.composing.pop()


def compose(
    g: GraphBuilder,
    symbolic: SymbolicFunction,
    op_type: str,
    positional: Sequence[object],
    named: Mapping[str, object],
    outputs: int,
) -> list[Value]:
    """Call the function that replaces an ONNX operator; pass the number of outputs if it has that parameter.

    Raises:
        ResultError: it returned nothing, or something that is not a value.
        UnsupportedError: it returned too few outputs.
    """
    if positional and schemas.is_variadic(op_type):
        like = next((item.dtype for item in positional if isinstance(item, Value)), None)
        positional = [[g.constant(item, like) for item in positional]]
    arguments = {name: argument for name, argument in named.items() if argument is not None}
    if "outputs" in symbolic.parameters:
        arguments["outputs"] = outputs
    # A composition that emits its own operator gets the target's version, instead of itself again.
    with use_target_version(g, op_type):
        composed = symbolic.call(g, positional, arguments)
    return [g.constant(item) for item in composed_results(symbolic, composed, outputs)]
