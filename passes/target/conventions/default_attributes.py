"""Target pass: writes attributes that equal their default, where a consumer does not know the default.

1. `coordinate_transformation_mode` of Resize: OpenCV 4 refuses the linear mode without it.
2. `axis` and `epsilon` of LayerNormalization: RKNN's toolkit stops without them.
3. Versions of an operator without the attribute stay as they are.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration import schemas

_WRITTEN = {"Resize": ("coordinate_transformation_mode",), "LayerNormalization": ("axis", "epsilon")}


class WriteDefaultAttributes(ir.passes.InPlacePass):
    """Gives nodes the attributes that they leave out."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        opset = model.opset_imports.get("", 0)
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            names = () if node.domain else _WRITTEN.get(node.op_type, ())
            schema = schemas.operator_schema(node.op_type, opset) if names else None
            for name in names:
                formal = schema.attributes.get(name) if schema is not None else None
                if formal is not None and name not in node.attributes:
                    node.attributes[name] = ir.Attr(name, formal.type, formal.default)
                    modified = True
        return ir.passes.PassResult(model, modified)
