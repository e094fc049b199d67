"""ONNX pass: writes attributes that equal their default, for targets that do not know the default.

1. `coordinate_transformation_mode` of Resize: OpenCV 4 refuses the linear mode without it.
2. `axis` and `epsilon` of LayerNormalization: RKNN's toolkit stops without them.
3. The conventions of a target may name further attributes.
4. The schema of the model's opset has the default. An attribute without a default, or that this version of
   the operator does not have, stays absent.
"""

from __future__ import annotations

import collections
from collections.abc import Collection

import onnx_ir as ir

from ..node_pass import NodePass
from ..pass_order import Run

_ALWAYS = ("Resize.coordinate_transformation_mode", "LayerNormalization.axis", "LayerNormalization.epsilon")


class WriteDefaultAttributes(NodePass):
    """Gives nodes the attributes that they leave out."""

    runs = (Run("none", after={"RemoveUnusedAtEnd": "Nodes that are removed need no change."}),)

    def __init__(self, names: Collection[str] = _ALWAYS):
        """Make the pass.

        Args:
            names: operators and attributes, `Resize.mode`.
        """
        super().__init__()
        self._attributes = collections.defaultdict(list)
        for name in names:
            operator, _, attribute = name.partition(".")
            self._attributes[operator].append(attribute)
        self.op_types = self._attributes.keys()

    def rewrite(self, node: ir.Node) -> bool:
        """Write the attributes of a node."""
        schema = self.schema(node.op_type)
        modified = False
        for name in self._attributes[node.op_type] if schema is not None else ():
            formal = schema.attributes.get(name) if schema is not None else None
            if formal is not None and formal.default is not None and name not in node.attributes:
                node.attributes[name] = ir.Attr(name, formal.type, formal.default)
                modified = True
        return modified
