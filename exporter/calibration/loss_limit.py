"""Keeps the nodes that lose most in float, until a quantized model loses no more than a limit."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ...registration import UsageError
from .accuracy import Checks, OutputAccuracy, TensorLoss, tensor_losses
from .batches import Batches
from .calibrated_model import CalibratedModel, quiet_quantizer
from .scheme import QuantizationScheme

Candidate = tuple[ir.Model, tuple[OutputAccuracy, ...], tuple[str, ...]]
"""A quantized model, the errors of its outputs, and the names of the nodes that stay in float."""


def limit_loss(
    calibrated: CalibratedModel,
    scheme: QuantizationScheme,
    checks: Checks,
    quantized: ir.Model,
    outputs: tuple[OutputAccuracy, ...],
) -> Candidate:
    """The quantized model within `scheme.max_loss` with the fewest nodes in float that a bisection finds.

    A bisection finds how many nodes of an order must stay in float, with a number of evaluations that grows
    as the logarithm of the nodes. There are two orders: by the noise that the quantization of a tensor adds,
    and by the noise that a node adds to that of its inputs. In a tensor with a few large channels, the first
    noise is small, although the other channels are lost.

    Args:
        quantized: the model with all nodes quantized.
        outputs: its errors.

    Raises:
        UsageError: the loss is within the limit only if no node is quantized.
    """
    limit = scheme.max_loss
    if limit is None:
        return quantized, outputs, ()

    def loss(accuracies: tuple[OutputAccuracy, ...]) -> float:
        return max((accuracy.loss(scheme.loss) for accuracy in accuracies), default=0.0)

    first_loss = loss(outputs)
    if first_loss <= limit:
        return quantized, outputs, ()
    losses = losses_by_tensor(calibrated, scheme, checks.batches)
    nodes = calibrated.quantizable_nodes()
    evaluated = {0: first_loss}
    candidate: Candidate | None = None
    for order in (_order_by_tensors(calibrated, losses, nodes), _order_by_nodes(losses, nodes)):
        # With all nodes in float nothing is lost, and nothing is quantized. The second order is used only if
        # it needs fewer nodes than the first.
        fewest, most = 0, len(nodes) if candidate is None else len(candidate[2])
        while most - fewest > 1:
            count = (fewest + most) // 2
            names = tuple(order[:count])
            model = calibrated.quantize(scheme.form, names)
            if all(node.op_type != "QuantizeLinear" for node in model.graph):
                # onnxruntime quantizes some operators, such as Relu, only beside others.
                most = count
                continue
            accuracies = checks.outputs_of(model)
            evaluated[count] = loss(accuracies)
            if evaluated[count] <= limit:
                candidate, most = (model, accuracies, names), count
            else:
                fewest = count
    if candidate is None:
        count = min(evaluated, key=lambda count: evaluated[count])
        raise UsageError(
            f"a loss of {limit:g} cannot be reached: the loss is {first_loss:.3g} with all nodes "
            f"quantized, and {evaluated[count]:.3g} with {count} of {len(nodes)} nodes in float"
        )
    # The file of the candidate is not always the last one, which the errors of tensors are measured of.
    return calibrated.quantize(scheme.form, candidate[2]), *candidate[1:]


def losses_by_tensor(
    calibrated: CalibratedModel,
    scheme: QuantizationScheme,
    batches: Batches,
    float_nodes: Collection[str] = (),
) -> tuple[TensorLoss, ...]:
    """The losses of the tensors of the last quantized model.

    Args:
        float_nodes: names of the nodes that stay in float in it.
    """
    if scheme.form != "qdq":
        # The tensors of integer operators are not known; those of a QDQ file have the same ranges.
        calibrated.quantize("qdq", float_nodes)
    with quiet_quantizer():
        return tensor_losses(calibrated.original, calibrated.quantized, batches)


def _order_by_tensors(
    calibrated: CalibratedModel, losses: tuple[TensorLoss, ...], nodes: list[ir.Node]
) -> list[str]:
    """The names of nodes, those around the tensors with the smallest ratio of signal to own noise first."""
    values = ir.convenience.create_value_mapping(calibrated.model.graph)
    order = [
        node for tensor in losses if tensor.name in values for node in _nodes_around(values[tensor.name])
    ]
    return _names_in_order(order, nodes)


def _order_by_nodes(losses: tuple[TensorLoss, ...], nodes: list[ir.Node]) -> list[str]:
    """The names of nodes, those first whose results have much more noise than their inputs."""
    total = {tensor.name: tensor.total_decibels for tensor in losses}

    def added_noise(node: ir.Node) -> float:
        before = min(
            (total[str(v.name)] for v in node.inputs if v is not None and v.name in total), default=0
        )
        return min((total[str(v.name)] for v in node.outputs if v.name in total), default=before) - before

    order = [
        candidate
        for node in sorted(nodes, key=added_noise)
        for value in node.inputs
        if value is not None and value.name in total
        for candidate in (node, *_nodes_around(value))
    ]
    return _names_in_order(order, nodes)


def _nodes_around(value: ir.Value) -> list[ir.Node]:
    """The nodes that write and read a tensor, which is quantized as long as one of them is."""
    producer = value.producer()
    return [*([] if producer is None else [producer]), *(use.node for use in value.uses())]


def _names_in_order(order: list[ir.Node], nodes: list[ir.Node]) -> list[str]:
    """The names of the nodes that can be quantized: first as in the order, then those that it lacks."""
    quantizable = set(nodes)
    return [str(node.name) for node in dict.fromkeys([*order, *nodes]) if node in quantizable]
