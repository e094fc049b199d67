"""Plans the replacement of each node when its scope is frozen.

A Switch or Merge with a known branch, dropout without effect, and a node that only checks or prints its input
become Identity nodes. A node that takes the handle of a variable takes its value instead: see `handles`.
Nodes keep their names, so that a caller finds results by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from .....registration import CaptureError, Names
from ....files.reading.names import quoted
from ..element_types import numpy_type
from ..messages import AttrValue, NodeDef, message_type
from ..node_messages import OPTIONAL_PLACEHOLDER, SWITCH, MessageNode, ResultName
from ..tensor_protos import set_header
from .dropout import DropoutReplacement, FilledMask
from .scope_analysis import HANDLE_VARIABLES, REFERENCE_VARIABLES, WRITING_OPERATORS, ScopeAnalysis

_PASSING_OPERATORS = frozenset(
    "Print CheckNumerics CheckNumericsV2 PreventGradient DebugIdentity DebugIdentityV2 "
    "DebugIdentityV3".split()
)
"""Operators that return their first input."""
_EFFECT_OPERATORS = re.compile(
    r"Assert|PrintV2|Save.*|Write.*Summary|.*Enqueue.*|Abort|Initialize.*|.*Close(V2)?"
)
"""Operators without results, besides those that change variables."""
_EXTERNAL_OPERATORS = re.compile(
    r".*Iterator.*|.*Queue.*|.*Dataset.*|.*Reader(V2)?|Reader.*|Barrier.*|Stack(V2)?"
    r"|Restore.*|ReadFile|.*PyFunc.*|Stage|Unstage|.*ConditionalAccumulator|.*Recv|.*Summary(V2)?"
)
"""Operators whose results come from outside the graph and its variables."""
_TABLE_OPERATORS = re.compile(r".*HashTable.*|LookupTable.*")
"""Operators that create or read lookup tables, which a graph fills when it is initialized."""
_REFERENCE_OPERATORS = frozenset(
    "RefIdentity RefSwitch RefMerge RefEnter RefExit RefNextIteration RefSelect".split()
)
"""Operators that have a form without references, under the same name without `Ref`."""
_INT32 = 3


@dataclasses.dataclass
class NodePlan:
    """A node of the frozen scope.

    Attributes:
        message: its NodeDef, without inputs.
        inputs: the results that it takes; their nodes have plans of their own.
        helpers: plans of nodes that serve only this one.
        has_single_output: whether it has one result, whose OpDef name is `output`; the replaced node's result
            may have another name.
        controls: the nodes that it runs after if their conditions are needed; None for the control inputs of
            the replaced node.
    """

    message: NodeDef
    inputs: list[ResultName]
    helpers: list[NodePlan] = dataclasses.field(default_factory=list)
    has_single_output: bool = False
    controls: tuple[str, ...] | None = None


def make_node(name: str, op: str, device: str = "", **attributes: int | AttrValue) -> NodeDef:
    """Make a NodeDef; each attribute is the number of an element type, or an AttrValue message."""
    message = message_type("NodeDef")(name=name, op=op, device=device)
    for attribute, value in attributes.items():
        if isinstance(value, int):
            message.attr[attribute].type = value
        else:
            message.attr[attribute].CopyFrom(value)
    return message


def make_scalar_constant(name: str, dtype: int, value: float) -> NodeDef:
    """Make a scalar Const."""
    numpy_dtype = numpy_type(dtype)
    message = make_node(name, "Const", dtype=dtype)
    tensor = message.attr["value"].tensor
    set_header(tensor, dtype, ())
    tensor.tensor_content = numpy_dtype.type(value).tobytes()  # type: ignore[union-attr]
    return message


def copy_without_inputs(node: MessageNode) -> NodeDef:
    """Copy a node's message without its inputs."""
    message = message_type("NodeDef")()
    message.CopyFrom(node.message)
    del message.input[:]
    # These fields name element types and nodes that the frozen graph may not have.
    message.ClearField("experimental_type")
    message.ClearField("experimental_debug_info")
    message.attr.pop("_class", None)
    return message


def has_no_results(node: MessageNode) -> bool:
    """Whether a node only has effects."""
    return node.op == "NoOp" or bool(
        _EFFECT_OPERATORS.fullmatch(node.op) or WRITING_OPERATORS.fullmatch(node.op)
    )


class Planner:
    """Plans the nodes of a scope when their results turn out to be needed.

    Args:
        constants: the Const nodes of variables, by the names of the variables' nodes.
        simplified: the replacements of dropout nodes without effect.
        plan_handles: plans a node that takes handles or calls a function; returns None for other nodes.
        keep_tables: keep nodes that create or read lookup tables.
    """

    def __init__(
        self,
        analysis: ScopeAnalysis,
        constants: Mapping[str, NodeDef],
        simplified: Mapping[str, DropoutReplacement],
        plan_handles: Callable[[MessageNode, ScopeAnalysis, Names], NodePlan | None],
        names: Names,
        *,
        keep_tables: bool = False,
    ):
        self._keep_tables = keep_tables
        self._analysis, self._constants, self._simplified = analysis, constants, simplified
        self._plan_handles, self._names = plan_handles, names
        self._plans: dict[str, NodePlan] = {}

    def __call__(self, name: str) -> NodePlan:
        """The plan of a node."""
        if name not in self._plans:
            self._plans[name] = self._plan(self._analysis.scope.nodes[name])
        return self._plans[name]

    def add_value_index(self, name: str) -> ResultName:
        """Add a constant for the second result of a Merge whose branch is known."""
        index = self._analysis.live_inputs[name]
        plan = self(name)
        if not plan.helpers:
            constant = make_scalar_constant(self._names.unique(f"{name}/value_index"), _INT32, index)
            plan.helpers.append(NodePlan(constant, []))
        return self._analysis.result(plan.helpers[0].message.name, 0)

    def _plan(self, node: MessageNode) -> NodePlan:
        analysis = self._analysis
        if has_no_results(node):
            return self._plan_effect(node)
        if node.name in self._constants:
            return NodePlan(self._constants[node.name], [], has_single_output=True)
        if node.name in analysis.dead_results:
            return self._plan_identity(node, node.inputs[0])
        if node.name in analysis.live_inputs:
            return self._plan_identity(node, node.inputs[analysis.live_inputs[node.name]])
        simplified = self._simplified.get(node.name)
        if isinstance(simplified, FilledMask):
            return self._plan_fill(node, simplified)
        if simplified is not None or node.op in _PASSING_OPERATORS:
            return self._plan_identity(node, node.inputs[0] if simplified is None else simplified)
        if node.op == OPTIONAL_PLACEHOLDER and node.name in analysis.ranges:
            return self._plan_identity(node, node.inputs[0])
        # Variables of the graph are replaced above; a variable that is left is one within a function.
        self._check(node)
        plan = self._plan_handles(node, analysis, self._names)
        if plan is not None:
            return plan
        # Only functions of the operators above are specialized, and the library has the specialized ones
        # only.
        if any(value.HasField("func") or value.list.func for value in node.message.attr.values()):
            raise CaptureError(f"{node.label} calls a function, which is not supported for this operator")
        message = copy_without_inputs(node)
        if node.op in _REFERENCE_OPERATORS:
            message.op = node.op.removeprefix("Ref")
        return NodePlan(message, list(node.inputs))

    def _plan_effect(self, node: MessageNode) -> NodePlan:
        """Make a NoOp with the control inputs of the node that it replaces."""
        controls, pivots = list(node.controls), []
        for result in node.inputs:
            producer = self._analysis.scope.nodes.get(result.node)
            if (
                producer is not None
                and producer.op in SWITCH
                and producer.name not in self._analysis.dead_results
            ):
                # A control input from a Switch itself would not say which branch.
                pivot = make_node(
                    self._names.unique(f"{result.node}/pivot"), "Identity", T=producer.attribute("T")
                )
                pivots.append(NodePlan(pivot, [result]))
                controls.append(pivot.name)
            elif producer is not None:
                controls.append(result.node)
        message = make_node(node.name, "NoOp", node.message.device)
        return NodePlan(message, [], pivots, controls=tuple(controls))

    def _check(self, node: MessageNode) -> None:
        if node.op in REFERENCE_VARIABLES | HANDLE_VARIABLES:
            raise CaptureError(
                f"{node.label} in {self._analysis.scope.label} is a variable within a function"
            )
        is_lookup = not self._keep_tables and _TABLE_OPERATORS.fullmatch(node.op)
        if is_lookup or _EXTERNAL_OPERATORS.fullmatch(node.op):
            raise CaptureError(
                f"{node.label} cannot be frozen: its results come from outside of the graph; name them as "
                "inputs, or name other outputs"
            )
        for result in node.inputs:
            variable = self._analysis.variables.get(result)
            # A call that itself changes the variable is checked when its function is frozen.
            if (
                variable is not None
                and variable.origin in self._analysis.written_variables
                and self._analysis.runs_after_write(node)
            ):
                raise CaptureError(
                    f"{node.label} reads the variable {quoted(variable.origin)} after the graph has changed "
                    "it, so it is not a constant"
                )

    def _plan_identity(self, node: MessageNode, source: ResultName) -> NodePlan:
        # PlaceholderWithDefault states its type as `dtype`.
        dtype = node.attribute("T" if "T" in node.message.attr else "dtype")
        variable = self._analysis.variables.get(source)
        if variable is not None and variable.is_handle:
            dtype = variable.dtype
        message = make_node(node.name, "Identity", node.message.device, T=dtype)
        return NodePlan(message, [source], has_single_output=True)

    def _plan_fill(self, node: MessageNode, filled: FilledMask) -> NodePlan:
        constant = make_scalar_constant(self._names.unique(f"{node.name}/value"), filled.dtype, filled.value)
        message = make_node(
            node.name, "Fill", node.message.device, T=filled.dtype, index_type=filled.shape_dtype
        )
        value = self._analysis.result(constant.name, 0)
        return NodePlan(message, [filled.shape, value], [NodePlan(constant, [])], has_single_output=True)
