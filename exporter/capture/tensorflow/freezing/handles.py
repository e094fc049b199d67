"""Nodes that take the handle of a variable, rewritten to take its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....registration import CaptureError, Names
from .conditions import Conditions
from .plans import Plan, make_node, scalar_constant, without_inputs
from .scope import Node, Reference

_TYPED = frozenset("Identity Switch Merge Enter Exit NextIteration".split())
_INT32, _BOOL = 3, 10


def plan_of_handles(node: Node, found: Conditions, names: Names) -> Plan | None:
    """The plan of a node that takes handles, None if it takes none.

    Raises:
        CaptureError: the operator takes handles, and is not known to read variables.
    """
    held = [found.carried.get(result) for result in node.inputs]
    dtypes = [carried.dtype if carried is not None and carried.is_handle else None for carried in held]
    first = next((dtype for dtype in dtypes if dtype is not None), None)
    if first is None:
        return None
    inputs, device = list(node.inputs), node.message.device
    if node.op in ("ReadVariableOp", "DisableCopyOnRead"):
        return Plan(make_node(node.name, "Identity", device, T=first), inputs, is_single=True)
    if node.op in ("VarIsInitializedOp", "IsVariableInitialized"):
        return Plan(scalar_constant(node.name, _BOOL, 1), [], is_single=True)
    if node.op == "VariableShape":
        out_type = node.attribute("out_type").type or _INT32
        return Plan(make_node(node.name, "Shape", device, T=first, out_type=out_type), inputs, is_single=True)
    if node.op in ("ResourceGather", "ResourceGatherNd"):
        return _gather(node, first, found, names)
    if node.op in _TYPED:
        message = without_inputs(node)
        message.attr["T"].type = first
        return Plan(message, inputs)
    if node.op == "IdentityN":
        message = without_inputs(node)
        set_types(message, "T", dtypes)
        return Plan(message, inputs)
    raise CaptureError(f"{node.shown} has the handle of a variable as an input, which is not supported")


def set_types(message: Any, attribute: str, dtypes: Sequence[int | None]) -> None:
    """Set the element types of a list that were those of handles; None keeps one."""
    types = message.attr[attribute].list.type
    for index, dtype in enumerate(dtypes[: len(types)]):
        if dtype is not None:
            types[index] = dtype


def _gather(node: Node, dtype: int, found: Conditions, names: Names) -> Plan:
    types = {"Tparams": dtype, "Tindices": node.attribute("Tindices")}
    if node.op == "ResourceGatherNd":
        return Plan(make_node(node.name, "GatherNd", node.message.device, **types), list(node.inputs))
    batch = node.attribute("batch_dims").i
    message = make_node(node.name, "GatherV2", node.message.device, **types, Taxis=_INT32)
    message.attr["batch_dims"].i = batch
    # The dimension after those of the batch.
    axis = Plan(scalar_constant(names.unique(f"{node.name}/axis"), _INT32, batch), [])
    value = Reference(axis.message.name, "output:0" if found.scope.is_function else "")
    return Plan(message, [*node.inputs, value], [axis])
