"""Writes opsets that the installed onnx knows, but opsetta was not tested with.

A model is lowered to `MAXIMUM_OPSET`. If none of its operators has changed since, the same nodes are valid at
the newer opset, and the model only declares it.
"""

from __future__ import annotations

import onnx_ir as ir

from ...registration import MAXIMUM_OPSET, OpsetError
from ...registration.arguments import every_node
from ...registration.opsets import ir_version
from ...registration.schemas import operator_schema
from ...registration.warning import warn


def declare_newer_opset(model: ir.Model, opset: int) -> None:
    """Declare an opset above `MAXIMUM_OPSET` for a model at `MAXIMUM_OPSET`, with a warning.

    Raises:
        OpsetError: operators of the model have changed since `MAXIMUM_OPSET`; the message lists them.
    """
    bodies = (model.graph, *(function.graph for function in model.functions.values()))
    operators = {
        node.op_type for body in bodies for node in every_node(body) if node.domain in ("", "ai.onnx")
    }
    schemas = {name: operator_schema(name, opset) for name in operators}
    # An operator without a schema was removed.
    changed = sorted(
        name for name, schema in schemas.items() if schema is None or schema.since_version > MAXIMUM_OPSET
    )
    if changed:
        raise OpsetError(
            f"opset {opset} changes operators of this model: {', '.join(changed)}; opsetta writes their "
            f"forms of opset {MAXIMUM_OPSET}: use that opset"
        )
    warn(
        f"opsetta was tested with opsets up to {MAXIMUM_OPSET}; the model declares opset {opset} because "
        "none of its operators has changed since"
    )
    for imports in (model.graph.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if imports.get("") == MAXIMUM_OPSET:
            imports[""] = opset
    model.ir_version = max(model.ir_version or 0, ir_version(opset))
