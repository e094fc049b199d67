"""Adds a prefix to every name, so that one engine can load several models side by side."""

from __future__ import annotations

import onnx_ir as ir

from ....registration import GraphError, UsageError, names_of
from ....registration.arguments import graphs_of
from ...onnx_graph.constants.initializers import rename_tensor


class PrefixNames(ir.passes.InPlacePass):
    """Renames the values, inputs, outputs, weights and nodes of a model.

    A name that begins with the prefix stays. Symbolic dimensions, functions and attributes keep their names.
    """

    def __init__(self, prefix: str):
        if not prefix:
            raise UsageError("the prefix of names is empty")
        self._prefix = prefix

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rename everything and report whether a name changed.

        Raises:
            GraphError: two values or two nodes would have one name.
        """
        names = dict.fromkeys(name for graph in graphs_of(model.graph) for name in names_of(graph))
        for name in names:
            if not name.startswith(self._prefix) and self._prefix + name in names:
                raise GraphError(
                    f"'{name}' cannot be renamed to '{self._prefix}{name}', because that name exists: "
                    "choose another prefix"
                )
        modified = False
        for graph in graphs_of(model.graph):
            for value in list(graph.initializers.values()):
                modified |= self._rename(value)
            for value in graph.inputs:
                modified |= self._rename(value)
            for node in graph:
                if node.name and not node.name.startswith(self._prefix):
                    node.name = self._prefix + node.name
                    modified = True
                for value in node.outputs:
                    modified |= self._rename(value)
        return ir.passes.PassResult(model, modified)

    def _rename(self, value: ir.Value) -> bool:
        if not value.name or value.name.startswith(self._prefix):
            return False
        name = self._prefix + value.name
        if value.const_value is not None:
            value.const_value = rename_tensor(value.const_value, name)
        value.name = name
        return True
