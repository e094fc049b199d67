"""Rewrites nodes that take the handle of a variable so that they take its value."""

from collections.abc import Sequence

from .....registration import CaptureError, Names
from ..messages import NodeDef
from ..node_messages import MessageNode
from .plans import NodePlan, copy_without_inputs, make_node, make_scalar_constant
from .scope_analysis import ScopeAnalysis

_TYPED_OPERATORS = frozenset("Identity Switch Merge Enter Exit NextIteration".split())
_INT32, _BOOL = 3, 10


def plan_handles(node: MessageNode, analysis: ScopeAnalysis, names: Names) -> NodePlan | None:
    """Plan a node that takes handles; None if it takes none."""
    input_variables = [analysis.variables.get(result) for result in node.inputs]
    dtypes = [
        variable.dtype if variable is not None and variable.is_handle else None
        for variable in input_variables
    ]
    variable_dtype = next((dtype for dtype in dtypes if dtype is not None), None)
    if variable_dtype is None:
        return None
    inputs, device = list(node.inputs), node.message.device
    if node.op in ("ReadVariableOp", "DisableCopyOnRead"):
        message = make_node(node.name, "Identity", device, T=variable_dtype)
        return NodePlan(message, inputs, has_single_output=True)
    if node.op in ("VarIsInitializedOp", "IsVariableInitialized"):
        # A frozen variable always has a value.
        return NodePlan(make_scalar_constant(node.name, _BOOL, 1), [], has_single_output=True)
    if node.op == "VariableShape":
        out_type = node.attribute("out_type").type or _INT32
        message = make_node(node.name, "Shape", device, T=variable_dtype, out_type=out_type)
        return NodePlan(message, inputs, has_single_output=True)
    if node.op in ("ResourceGather", "ResourceGatherNd"):
        return _plan_gather(node, variable_dtype, analysis, names)
    if node.op in _TYPED_OPERATORS:
        message = copy_without_inputs(node)
        message.attr["T"].type = variable_dtype
        return NodePlan(message, inputs)
    if node.op == "IdentityN":
        message = copy_without_inputs(node)
        set_types(message, "T", dtypes)
        return NodePlan(message, inputs)
    if all(
        origin is not None and origin.op == "Const"
        for variable in input_variables
        if variable is not None
        for origin in [analysis.scope.nodes.get(variable.origin)]
    ):
        # The handle was a variable before another tool replaced it; this node reads the constant itself.
        return None
    raise CaptureError(f"{node.label} has the handle of a variable as an input, which is not supported")


def set_types(message: NodeDef, attribute: str, dtypes: Sequence[int | None]) -> None:
    """Replace element types in a list attribute; None keeps the type at that index."""
    types = message.attr[attribute].list.type
    for index, dtype in enumerate(dtypes[: len(types)]):
        if dtype is not None:
            types[index] = dtype


def _plan_gather(node: MessageNode, dtype: int, analysis: ScopeAnalysis, names: Names) -> NodePlan:
    types = {"Tparams": dtype, "Tindices": node.attribute("Tindices")}
    if node.op == "ResourceGatherNd":
        return NodePlan(make_node(node.name, "GatherNd", node.message.device, **types), list(node.inputs))
    batch = node.attribute("batch_dims").i
    message = make_node(node.name, "GatherV2", node.message.device, **types, Taxis=_INT32)
    message.attr["batch_dims"].i = batch
    # GatherV2 takes the axis as an input; ResourceGather gathers along the first axis after the batch.
    axis = NodePlan(make_scalar_constant(names.unique(f"{node.name}/axis"), _INT32, batch), [])
    return NodePlan(message, [*node.inputs, analysis.result(axis.message.name, 0)], [axis])
