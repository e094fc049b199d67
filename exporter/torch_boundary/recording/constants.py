"""Makes the tensors that a recorded graph holds as attributes into placeholders, as torch.export does."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._export.non_strict_utils import _gather_constant_attrs
from torch._export.passes.lift_constants_pass import lift_constants_pass


class Constants:
    """The tensors in plain attributes of a model's modules; made before the model runs.

    Attributes:
        lifted: after `lift`, the constants by name.
    """

    def __init__(self, model: torch.nn.Module):
        self._attributes = _gather_constant_attrs(model)
        self.lifted: dict[str, Any] = {}

    def lift(self, graph: torch.fx.Graph, root: torch.nn.Module, signature: Any) -> None:
        """Replace `get_attr` nodes of tensors by placeholders before those of the call.

        Args:
            root: has what the nodes name.
            signature: its `input_specs` get an entry for each constant.
        """
        if any(node.op == "get_attr" for node in graph.nodes):
            module: Any = root
            self.lifted = lift_constants_pass(module, signature, self._attributes)
