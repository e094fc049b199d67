"""Turns tensors that are attributes of a recorded graph into placeholders, as torch.export does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from ...export_internals import ConstantAttrMap, lift_constants_pass
from ...state.module_tree import ModuleTree


class Constants:
    """The tensors in plain attributes of a model's modules.

    Args:
        tree: the modules, parameters, buffers and attributes of the model, collected before it runs.

    Attributes:
        lifted: after `lift`, the constants by name.
    """

    def __init__(self, tree: ModuleTree):
        self._tree = tree
        self.lifted: Mapping[str, object] = {}

    def lift(self, graph: torch.fx.Graph, root: torch.nn.Module, signature: Any) -> None:
        """Replace `get_attr` nodes of tensors by placeholders before those of the call.

        Args:
            root: the module whose attributes the `get_attr` nodes name.
            signature: the graph's signature; each constant is added to its `input_specs`.
        """
        if any(node.op == "get_attr" for node in graph.nodes):
            module: Any = root
            self.lifted = lift_constants_pass(module, signature, self._attribute_names())

    def _attribute_names(self) -> ConstantAttrMap:
        """Return the names of the tensors as the map that torch's pass takes."""
        names = ConstantAttrMap()
        weights = {*map(id, self._tree.parameters.values()), *map(id, self._tree.buffers.values())}
        for name, item in self._tree.attributes.items():
            # A weight that is also a plain attribute has a placeholder already.
            if id(item) not in weights:
                names.add(item, name)
        return names
