"""Refuses a capture in which the decisions of the example leave nothing of the inputs in the outputs."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from ...exporter.captured_graph import specializations
from ...registration import CaptureError

_SIZE_READERS = ("numel", "size", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride")
_SECOND_IS_AN_EXAMPLE = ("expand_as", "reshape_as", "to", "type_as", "view_as")


def check_outputs(source: ir.Model) -> None:
    """Refuse outputs that are constant because of the path that the example takes.

    A detector whose example image has no detections, for example, returns empty tensors. A constant with
    elements beside outputs that are computed may be one of the model, and is not refused. An output that
    depends on the sizes of inputs alone, such as `x.new_zeros(0, 4)`, counts as constant.

    Args:
        source: a source graph with the decisions that were fixed at the values of the example.

    Raises:
        CaptureError: no output depends on an input, or an output is always empty.
    """
    fixed = specializations.read_specializations(source.metadata_props)
    outputs = [value for value in source.graph.outputs if value is not None]
    if not fixed or not source.graph.inputs or not outputs:
        return
    computed = set(source.graph.inputs)
    for node in source.graph:
        if not computed.isdisjoint(_operands(node)):
            computed.update(node.outputs)
    if not any(map(_is_empty, source.graph.inputs)):
        computed = {value for value in computed if not _is_empty(value)}
    constant = [value for value in outputs if value not in computed]
    if len(constant) < len(outputs):
        constant = [value for value in constant if _is_empty(value)]
    if constant:
        names = ", ".join(f"'{value.name}'" for value in constant)
        raise CaptureError(
            f"outputs {names} depend on no input, because of decisions that the example takes:\n"
            f"{specializations.describe(fixed)}\n"
            "Pass an example that takes the usual path, such as an image with detections; or write the "
            "decision with operators (torch.where, torch.cond)"
        )


def _operands(node: ir.Node) -> Iterable[ir.Value | None]:
    """The values that a node or its sub-graphs use, apart from those of which it uses only sizes or types."""
    inputs = list(node.inputs)
    if node.domain == "aten":
        name = node.op_type
        if name.startswith("new_") or name.endswith("_like") or name in _SIZE_READERS:
            inputs = inputs[1:]
        elif name in _SECOND_IS_AN_EXAMPLE:
            inputs = inputs[:1]
    yield from inputs
    for attribute in node.attributes.values():
        graphs = [attribute.value] if attribute.type == ir.AttributeType.GRAPH else []
        graphs = list(attribute.value) if attribute.type == ir.AttributeType.GRAPHS else graphs
        for inner in graphs:
            yield from inner.outputs
            for nested in inner:
                yield from _operands(nested)


def _is_empty(value: ir.Value) -> bool:
    return value.shape is not None and 0 in value.shape
