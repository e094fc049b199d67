"""Target pass: fuses root-mean-square normalization, written as separate operators, into RMSNormalization.

    Pow(x, 2) or Mul(x, x) -> ReduceMean over the last dim -> Add(epsilon) -> Sqrt -> Reciprocal -> Mul(x, .)

optionally followed by `Mul(scale, .)` with a one-dimensional scale. Applies from opset 23, where the operator
begins (https://onnx.ai/onnx/operators/onnx__RMSNormalization.html).

1. No intermediate result has another reader or is a graph output.
2. Without a scale of one dimension the pattern is not fused: the operator needs one.
3. Scale and x have the same element type; a Cast between them prevents fusion.
"""

from __future__ import annotations

import onnx_ir as ir

from ...registration import schemas

FIRST_OPSET = 23


class FuseRMSNormalization(ir.passes.InPlacePass):
    """Replaces the composition by RMSNormalization, if the model's opset has it."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and report whether anything changed."""
        modified = False
        if model.opset_imports.get("", 0) >= FIRST_OPSET:
            for node in list(model.graph):
                modified |= _fuse(model.graph, node)
        return ir.passes.PassResult(model, modified)


def _only_reader(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes the value, if it has this type and the value has one reader."""
    node = value.producer() if value is not None else None
    if node is None or node.domain or node.op_type != op_type or not _only_reader(node.outputs[0]):
        return None
    return node


def _operands(node: ir.Node, wanted: str) -> tuple[ir.Node, ir.Value] | None:
    """The operand of a binary node that an operator of this type makes, and the other operand."""
    a, b = node.inputs
    for first, second in ((a, b), (b, a)):
        made = _made_by(first, wanted)
        if made is not None and second is not None:
            return made, second
    return None


def _number(value: ir.Value | None) -> float | None:
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    return float(value.const_value.numpy().item())


def _is_square(value: ir.Value | None, x: ir.Value) -> ir.Node | None:
    power = _made_by(value, "Pow")
    if power is not None and power.inputs[0] is x and _number(power.inputs[1]) == 2:
        return power
    product = _made_by(value, "Mul")
    return product if product is not None and all(operand is x for operand in product.inputs) else None


def _fuse(graph: ir.Graph, scaling: ir.Node) -> bool:
    """Fuse the pattern that ends in `scaling`, a Mul of the normalized value by the scale."""
    if scaling.domain or scaling.op_type != "Mul" or scaling.graph is not graph:
        return False
    found = _operands(scaling, "Mul")
    if found is None:
        return False
    normalized, scale = found
    chain = _normalization(normalized)
    if chain is None or scale.shape is None or len(scale.shape) != 1:
        return False
    x, epsilon, nodes = chain
    if x.dtype is None or x.dtype != scale.dtype:
        return False
    given = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon)]
    opset = graph.opset_imports[""]
    attributes = [each for each in given if not schemas.omissible("RMSNormalization", "", opset, each)]
    name = f"{scaling.name or scaling.outputs[0].name}_fused"
    fused = ir.Node("", "RMSNormalization", [x, scale], attributes, num_outputs=1, name=name)
    result, old = fused.outputs[0], scaling.outputs[0]
    result.type, result.shape, result.name = old.type, old.shape, f"{old.name}_fused"
    fused.metadata_props.update(scaling.metadata_props)
    graph.insert_before(scaling, fused)
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove([scaling, *nodes], safe=True)
    return True


def _normalization(product: ir.Node) -> tuple[ir.Value, float, list[ir.Node]] | None:
    """x, epsilon and the nodes of `x * reciprocal(sqrt(mean(x**2) + epsilon))`."""
    found = _operands(product, "Reciprocal")
    if found is None:
        return None
    reciprocal, x = found
    root = _made_by(reciprocal.inputs[0], "Sqrt")
    shifted = _made_by(root.inputs[0], "Add") if root is not None else None
    summands = _operands(shifted, "ReduceMean") if shifted is not None else None
    if root is None or shifted is None or summands is None:
        return None
    mean, shift = summands
    epsilon = _number(shift)
    axes = mean.inputs[1] if len(mean.inputs) > 1 else None
    square = _is_square(mean.inputs[0], x)
    if epsilon is None or square is None or not _over_last_dim(axes, x):
        return None
    keepdims = mean.attributes.get("keepdims")
    if keepdims is not None and keepdims.as_int() != 1:
        return None
    return x, epsilon, [product, reciprocal, root, shifted, mean, square]


def _over_last_dim(axes: ir.Value | None, x: ir.Value) -> bool:
    if axes is None or axes.const_value is None:
        return False
    [*rest] = axes.const_value.numpy().reshape(-1).tolist()
    return rest == [-1] or (x.shape is not None and rest == [len(x.shape) - 1])
