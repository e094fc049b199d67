"""The parts of torch.export that a recording uses: constraints on sizes, clean-up passes, contexts.

None of them imports the module that traces for torch.export, because it imports torch's compilers as well.
"""

from __future__ import annotations

import logging
import warnings

from torch._dynamo import config as dynamo_config
from torch._export import non_strict_utils
from torch._export.passes.lift_constants_pass import ConstantAttrMap, lift_constants_pass
from torch._export.passes.replace_autocast_with_hop_pass import replace_autocast_with_hop_pass
from torch._export.utils import _compiling_state_context as compiling_state
from torch._export.utils import _name_hoo_subgraph_placeholders as name_operand_placeholders
from torch._export.utils import apply_runtime_assertion_pass
from torch._guards import TracingContext, tracing
from torch.export.dynamic_shapes import _combine_args as combine_arguments

__all__ = [
    "ConstantAttrMap",
    "TracingContext",
    "apply_runtime_assertion_pass",
    "combine_arguments",
    "compiling_state",
    "dynamo_config",
    "lift_constants_pass",
    "name_operand_placeholders",
    "non_strict_utils",
    "replace_autocast_with_hop_pass",
    "tracing",
]

_LOGGING = (
    logging.critical,
    logging.debug,
    logging.error,
    logging.exception,
    logging.info,
    logging.log,
    logging.warning,
    print,
    warnings.warn,
)
_SETTINGS: dict[str, object] = {
    "allow_rnn": True,
    "assume_static_by_default": False,
    "automatic_dynamic_shapes": False,
    "capture_dynamic_output_shape_ops": True,
    "capture_scalar_outputs": True,
    "do_not_emit_runtime_asserts": True,
    "prefer_deferred_runtime_asserts_over_guards": False,
    "reorderable_logging_functions": set(_LOGGING),
    "replay_side_effects": False,
    "side_effect_replay_policy": "warn",
    "specialize_float": True,
    "specialize_int": True,
}
DYNAMO_SETTINGS = {name: value for name, value in _SETTINGS.items() if hasattr(dynamo_config, name)}
"""The settings with which torch.export lets TorchDynamo trace the functions of higher-order operators."""
