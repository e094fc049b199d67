"""Emits operators of a function's opset at the target opset.

A function registered for opset 9 uses the operators of opset 9. If a later version has another meaning, the
version ladder composes the older meaning from the newest operators (`before13::Softmax`).
"""

from __future__ import annotations

from .context import GraphContext
from .functions.dispatch import SymbolicFunction
from .functions.results import composed_results
from .opsets import MAXIMUM_OPSET
from .schemas import operator_schema, operator_schemas

_FORMER_MODES = ("bilinear", "bicubic")


def emit_older_meaning(
    g: GraphContext,
    written: int,
    name: str,
    inputs: list[object],
    attributes: dict[str, object],
    outputs: int,
) -> object:
    """Emit an operator whose meaning or schema has changed between two opsets.

    Args:
        written: the opset whose schema the inputs and attributes follow.

    Returns:
        The result, or None if the operator can be emitted unchanged.
    """
    named = {_stem(key): value for key, value in attributes.items()}
    written_for = _opset_of_call(g, written, name, inputs, named)
    # The function that composes an older meaning is registered at the opset that changed it.
    changes = range(written_for + 1, g.opset + 1)
    symbolic = next(filter(None, (_composition_before(g, change, name) for change in changes)), None)
    if symbolic is None:
        _add_implied_values(g, written, name, attributes, named)
        return None
    input_limit = sum(parameter.value for parameter in symbolic.parameters.values())
    schema = operator_schema(name, written_for) if symbolic.takes_any else None
    argument_names = {*symbolic.parameters, *(schema.attributes if schema is not None else ())}
    if len(inputs) > input_limit or not {*named} <= argument_names:
        # The function uses arguments of a later version.
        return None
    positional = dict(zip(symbolic.parameters, inputs, strict=False))
    count = {"outputs": outputs} if "outputs" in symbolic.parameters else {}
    results = composed_results(symbolic, symbolic(g, {**positional, **named, **count}), outputs)
    return g.constant(results[0]) if outputs == 1 else [g.constant(item) for item in results]


def has_meaning_of_target(g: GraphContext, written: int, name: str) -> bool:
    """Whether an operator has one meaning at an opset and at the target, and a third opset changes it."""
    low, high = sorted((written, g.opset))
    changes = [opset for opset in range(low + 1, MAXIMUM_OPSET + 1) if _composition_before(g, opset, name)]
    return bool(changes) and changes[0] > high and operator_schema(name, g.opset) is not None


def _composition_before(g: GraphContext, change: int, name: str) -> SymbolicFunction | None:
    """The function that composes the meaning that an operator had before an opset."""
    return g.registry.lookup(f"before{change}::{name}", "", g.opset)


def _stem(key: str) -> str:
    return key[:-2] if len(key) > 2 and key[-2] == "_" else key


def _opset_of_call(
    g: GraphContext, written: int, name: str, inputs: list[object], named: dict[str, object]
) -> int:
    """Return the opset whose operator the call uses, or an earlier one with the arguments of the call."""
    versions = operator_schemas(name)
    if operator_schema(name, g.opset) is None and versions:
        return min(written, versions[-1].since_version)
    if name == "Split" and len(inputs) < 2 and not {"split", "num_outputs"} & {*named}:
        return min(written, 17)
    if name == "GridSample" and named.get("mode", "bilinear") in _FORMER_MODES:
        return min(written, 19)
    return written


def _add_implied_values(
    g: GraphContext, written: int, name: str, attributes: dict[str, object], named: dict[str, object]
) -> None:
    """Add arguments that the older version lacks, if the value that it implies differs from the default."""
    before, target = operator_schema(name, written), operator_schema(name, g.opset)
    if before is None or target is None:
        return
    for argument, value in g.registry.implied_values(name).items():
        if (
            argument not in named
            and before.find_argument(argument) == (None, None)
            and argument in target.attributes
        ):
            attributes[argument] = value
