"""The parts of torch.export that a recording uses: constraints on sizes, clean-up passes, contexts."""

from __future__ import annotations

from torch._dynamo import config as dynamo_config
from torch._export import non_strict_utils
from torch._export.passes.lift_constants_pass import ConstantAttrMap, lift_constants_pass
from torch._export.passes.replace_autocast_with_hop_pass import replace_autocast_with_hop_pass
from torch._export.utils import _compiling_state_context as compiling_state
from torch._export.utils import _name_hoo_subgraph_placeholders as name_operand_placeholders
from torch._export.utils import apply_runtime_assertion_pass
from torch._guards import TracingContext, tracing

__all__ = [
    "ConstantAttrMap",
    "TracingContext",
    "apply_runtime_assertion_pass",
    "compiling_state",
    "dynamo_config",
    "lift_constants_pass",
    "name_operand_placeholders",
    "non_strict_utils",
    "replace_autocast_with_hop_pass",
    "tracing",
]
