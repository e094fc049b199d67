"""Compares the sizes that a file declares for results with those that follow from its inputs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ....passes.onnx_graph.inplace.memory_sharing import STANDARD_DOMAINS
from ....registration import PlanError
from ....registration.arguments import every_node, qualified_name
from ...captured_graph.dimensions import evaluate
from ...files.reading import Bounds
from ...lowering.conversion.prepared_models.preparation import (
    copy_of,
    message_without_weights,
    prepare_source,
)
from ...lowering.inference import InferenceError, infer_shapes


def check_declared_sizes(
    model: ir.Model, declared: Mapping[str, ir.Shape | None], sizes: Mapping[str, int], bounds: Bounds
) -> None:
    """Refuse a model whose declared sizes differ from the sizes inferred from its inputs and weights.

    A tool that edits the inputs of a file may leave the sizes of results as they were. Sizes that onnx cannot
    infer are not compared.

    Args:
        model: the model, with functions inlined.
        declared: the shapes of results in the file by name; the model may lack some of these values now.
        sizes: the sizes of symbolic dimensions.
        bounds: the limits on inference.

    Raises:
        PlanError: a declared size differs, or the sizes of a node's operands contradict each other.
    """
    inferred = copy_of(model)
    _forget_shapes(inferred)
    prepare_source(inferred, bounds)
    refused = None
    for node, inferred_node in zip(every_node(model.graph), every_node(inferred.graph), strict=True):
        for value, inferred_value in zip(node.outputs, inferred_node.outputs, strict=True):
            shape = declared.get(value.name or "") or value.shape
            if shape is not None and inferred_value.shape is not None:
                _compare(value.name or "", shape, inferred_value.shape, sizes)
        if refused is None and _is_refused(inferred_node):
            refused = node
    # The error of strict inference names the node, so one run is enough.
    if refused is not None:
        _check_operands(inferred, refused, bounds)


def _forget_shapes(model: ir.Model) -> None:
    for node in every_node(model.graph):
        for value in node.outputs:
            value.shape = None


def _compare(name: str, declared: ir.Shape, computed: ir.Shape, sizes: Mapping[str, int]) -> None:
    pairs = list(zip(declared, computed, strict=False))
    numbers = [
        [dim if isinstance(dim, int) else evaluate(dim.value or "", sizes) for dim in pair] for pair in pairs
    ]
    if len(declared) != len(computed) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in numbers
    ):
        declared_text, computed_text = (
            ", ".join("?" if dim is None else str(dim) for dim in shape) for shape in (declared, computed)
        )
        raise PlanError(
            f"'{name}' is declared with the shape [{declared_text}], but the inputs give it "
            f"[{computed_text}]: remove or correct the shapes that the file declares for results"
        )


def _is_refused(node: ir.Node) -> bool:
    """Whether onnx infers no shape for a standard operator although all operands have sizes."""
    return (
        node.domain in STANDARD_DOMAINS
        and all(value.shape is None for value in node.outputs)
        and all(
            value is None or (value.shape is not None and all(isinstance(dim, int) for dim in value.shape))
            for value in node.inputs
        )
    )


def _check_operands(model: ir.Model, node: ir.Node, bounds: Bounds) -> None:
    """Refuse a model that onnx's strict inference refuses; some operators onnx can never infer."""
    _forget_shapes(model)
    try:
        infer_shapes(message_without_weights(model), strict=True, bounds=bounds)
    except (InferenceError, RuntimeError, ValueError) as error:
        cause = " ".join(str(error).split())
        raise PlanError(
            f"the sizes of node '{node.name}' ({qualified_name(node)}) contradict each other: {cause}"
        ) from error
