"""Plans the replacement of each node when its scope is frozen.

Branches that are decided, dropout that does nothing, and nodes that only check or print what passes through
them become Identity nodes. Nodes that take the handle of a variable take its value: see `handles`. Nodes keep
their names, so that results can be found.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from .....registration import CaptureError, Names
from ....files.reading.names import quoted
from ..element_types import numpy_type
from ..messages import message_type
from .conditions import HANDLES, SWITCH, VARIABLES, WRITERS, Conditions
from .dropout import Filled, Simplified
from .scope import Node, Reference

_THROUGH = frozenset(
    "Print CheckNumerics CheckNumericsV2 PreventGradient DebugIdentity DebugIdentityV2 "
    "DebugIdentityV3".split()
)
"""Operators that pass on their first input."""
_EFFECTS = re.compile(r"Assert|PrintV2|Save.*|Write.*Summary|.*Enqueue.*|Abort|Initialize.*|.*Close(V2)?")
"""Operators that have no results, beside those that change variables."""
_OUTSIDE = re.compile(
    r".*HashTable.*|LookupTable.*|.*Iterator.*|.*Queue.*|.*Dataset.*|.*Reader(V2)?|Reader.*|Barrier.*|Stack(V2)?"
    r"|Restore.*|ReadFile|.*PyFunc.*|Stage|Unstage|.*ConditionalAccumulator|.*Recv|.*Summary(V2)?"
)
"""Operators whose results come from outside of the graph and its variables."""
_REFERENCES = frozenset("RefIdentity RefSwitch RefMerge RefEnter RefExit RefNextIteration RefSelect".split())
"""Operators that have a form without references, under the same name without `Ref`."""
_INT32 = 3


@dataclasses.dataclass
class Plan:
    """A node of the frozen scope.

    Attributes:
        message: its NodeDef, without inputs.
        inputs: what it takes; the nodes of these have plans of their own.
        added: plans of nodes that only serve this one.
        is_single: whether it has one result, called `output`, whatever that of the replaced node is called.
        controls: the nodes that it runs after if their conditions are needed; the node's own unless given.
    """

    message: Any
    inputs: list[Reference]
    added: list[Plan] = dataclasses.field(default_factory=list)
    is_single: bool = False
    controls: tuple[str, ...] | None = None


def make_node(name: str, op: str, device: str = "", **attributes: Any) -> Any:
    """A node message with attributes that are element types: numbers, or AttrValue messages."""
    message = message_type("NodeDef")(name=name, op=op, device=device)
    for attribute, value in attributes.items():
        if isinstance(value, int):
            message.attr[attribute].type = value
        else:
            message.attr[attribute].CopyFrom(value)
    return message


def scalar_constant(name: str, dtype: int, value: float) -> Any:
    """Make a scalar Const."""
    kind = numpy_type(dtype)
    message = make_node(name, "Const", dtype=dtype)
    tensor = message.attr["value"].tensor
    tensor.dtype = dtype
    tensor.tensor_shape.SetInParent()
    tensor.tensor_content = kind.type(value).tobytes()  # type: ignore[union-attr]
    return message


def without_inputs(node: Node) -> Any:
    """Copy a node's message without its inputs."""
    message = message_type("NodeDef")()
    message.CopyFrom(node.message)
    del message.input[:]
    # The notes on element types and colocation speak of nodes that are gone.
    message.ClearField("experimental_type")
    message.ClearField("experimental_debug_info")
    message.attr.pop("_class", None)
    return message


def has_no_results(node: Node) -> bool:
    """Whether a node only has effects."""
    return node.op == "NoOp" or bool(_EFFECTS.fullmatch(node.op) or WRITERS.fullmatch(node.op))


class Planner:
    """Plans the nodes of a scope when their results turn out to be needed.

    Args:
        found: what is known of them.
        constants: the Const nodes of variables, by the names of their nodes.
        simplified: what stands for nodes of dropout that do nothing.
        of_handles: plans a node that takes handles, or calls a function; None for other nodes.
        names: the names of the scope's nodes.
    """

    def __init__(
        self,
        found: Conditions,
        constants: Mapping[str, Any],
        simplified: Mapping[str, Simplified],
        of_handles: Callable[[Node, Conditions, Names], Plan | None],
        names: Names,
    ):
        self._found, self._constants, self._simplified = found, constants, simplified
        self._of_handles, self._names = of_handles, names
        self._plans: dict[str, Plan] = {}

    def __call__(self, name: str) -> Plan:
        """The plan of a node.

        Raises:
            CaptureError: the node cannot be frozen.
        """
        if name not in self._plans:
            self._plans[name] = self._planned(self._found.scope.nodes[name])
        return self._plans[name]

    def value_index(self, name: str) -> Reference:
        """Make a constant for the second result of a Merge whose branch is known."""
        index = self._found.taken[name]
        added = f"{name}/value_index"
        plan = self(name)
        if not plan.added:
            plan.added.append(Plan(scalar_constant(self._names.unique(added), _INT32, index), []))
        return Reference(plan.added[0].message.name, "output:0" if self._found.scope.is_function else "")

    def _planned(self, node: Node) -> Plan:
        found = self._found
        if has_no_results(node):
            return self._without_effect(node)
        if node.name in self._constants:
            return Plan(self._constants[node.name], [], is_single=True)
        if node.name in found.untaken:
            return self._identity(node, node.inputs[0])
        if node.name in found.taken:
            return self._identity(node, node.inputs[found.taken[node.name]])
        simplified = self._simplified.get(node.name)
        if isinstance(simplified, Filled):
            return self._fill(node, simplified)
        if simplified is not None or node.op in _THROUGH:
            return self._identity(node, node.inputs[0] if simplified is None else simplified)
        if node.op == "PlaceholderWithDefault" and node.name in found.ranges:
            return self._identity(node, node.inputs[0])
        self._check(node)
        plan = self._of_handles(node, found, self._names)
        if plan is not None:
            return plan
        if any(value.HasField("func") or value.list.func for value in node.message.attr.values()):
            raise CaptureError(f"{node.shown} calls a function, which is not supported for this operator")
        message = without_inputs(node)
        if node.op in _REFERENCES:
            message.op = node.op.removeprefix("Ref")
        return Plan(message, list(node.inputs))

    def _without_effect(self, node: Node) -> Plan:
        """Make a NoOp with the control inputs of the node that it replaces."""
        controls, pivots = list(node.controls), []
        for result in node.inputs:
            producer = self._found.scope.nodes.get(result.node)
            if producer is not None and producer.op in SWITCH and producer.name not in self._found.untaken:
                # A control input from a Switch itself would not say which branch.
                pivot = make_node(
                    self._names.unique(f"{result.node}/pivot"), "Identity", T=producer.attribute("T")
                )
                pivots.append(Plan(pivot, [result]))
                controls.append(pivot.name)
            elif producer is not None:
                controls.append(result.node)
        message = make_node(node.name, "NoOp", node.message.device)
        return Plan(message, [], pivots, controls=tuple(controls))

    def _check(self, node: Node) -> None:
        if node.op in VARIABLES | HANDLES:
            raise CaptureError(f"{node.shown} in {self._found.scope.shown} is a variable within a function")
        if _OUTSIDE.fullmatch(node.op):
            raise CaptureError(
                f"{node.shown} cannot be frozen: its results come from outside of the graph; name them as "
                "inputs, or name other outputs"
            )
        for result in node.inputs:
            carried = self._found.carried.get(result)
            if (
                carried is not None
                and carried.origin in self._found.written
                and node.name in self._found.later
            ):
                raise CaptureError(
                    f"{node.shown} reads the variable {quoted(carried.origin)} after the graph has changed "
                    "it, so it is not a constant"
                )

    def _identity(self, node: Node, source: Reference) -> Plan:
        dtype = node.attribute("T" if "T" in node.message.attr else "dtype")
        carried = self._found.carried.get(source)
        if carried is not None and carried.is_handle:
            dtype = carried.dtype
        message = make_node(node.name, "Identity", node.message.device, T=dtype)
        return Plan(message, [source], is_single=True)

    def _fill(self, node: Node, filled: Filled) -> Plan:
        added = scalar_constant(self._names.unique(f"{node.name}/value"), filled.dtype, filled.value)
        message = make_node(
            node.name, "Fill", node.message.device, T=filled.dtype, index_type=filled.shape_dtype
        )
        value = Reference(added.name, "output:0" if self._found.scope.is_function else "")
        return Plan(message, [filled.shape, value], [Plan(added, [])], is_single=True)
