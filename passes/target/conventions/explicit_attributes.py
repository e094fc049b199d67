"""Target pass: writes attributes that equal their default, for consumers that demand them.

1. The schema of the node's opset gives the default; an attribute without a default stays absent.
"""

from __future__ import annotations

import collections
from collections.abc import Collection

import onnx_ir as ir

from ....registration.schemas import operator_schema


class WriteDefaults(ir.passes.InPlacePass):
    """Adds the attributes of some operators, `Resize.mode`, where nodes leave them out."""

    def __init__(self, names: Collection[str]):
        super().__init__()
        self._names = collections.defaultdict(list)
        for name in names:
            operator, _, attribute = name.partition(".")
            self._names[operator].append(attribute)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        opset = model.graph.opset_imports.get("")
        modified = False
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            wanted = self._names.get(node.op_type, ()) if not node.domain else ()
            schema = operator_schema(node.op_type, opset) if wanted and opset is not None else None
            for name in wanted if schema is not None else ():
                formal = schema.attributes.get(name) if schema is not None else None
                if formal is not None and formal.default is not None and name not in node.attributes:
                    node.attributes[name] = ir.Attr(name, formal.type, formal.default)
                    modified = True
        return ir.passes.PassResult(model, modified)
