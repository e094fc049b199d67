"""Arguments for which a symbolic function needs no parameter.

ATen operators have arguments about storage, devices and differentiation. A TensorFlow node has every
attribute of its operator; many repeat properties of its inputs, their element types (`T`) and their number
(`N`), or configure a kernel.
"""

from __future__ import annotations

from onnx_ir import DataType

ATEN_HINTS = frozenset(
    "allow_tf32 benchmark cudnn_enable cudnn_enabled deterministic device generator layout memory_format "
    "non_blocking pin_memory check_errors compute_mode driver grad_factor path scale_grad_by_freq sparse "
    "sparse_grad stable unsafe".split()
)
TENSORFLOW_HINTS = frozenset(
    "N use_cudnn_on_gpu validate_indices validate_shape parallel_iterations RAGGED_RANK PARAMS_RAGGED_RANK "
    "num_row_partition_tensors "
    "grad_a grad_b grad_x grad_y".split()
)
"""Arguments that change no result."""

_FOREIGN_TYPES = frozenset("resource variant qint8 quint8 qint16 quint16 qint32".split())
"""The names of TensorFlow's element types that ONNX lacks."""


def is_surplus(operator: str, name: str, argument: object) -> bool:
    """Whether an argument may be dropped if the symbolic function has no parameter for it.

    An element type may: the driver compares the types of the results with those of the source graph.
    """
    if argument is None:
        return True
    if operator.startswith("aten::"):
        return name in ATEN_HINTS
    if not operator.startswith(("tf::", "tf_complex::")):
        return False
    types = argument if isinstance(argument, list) else [argument]
    # An operator without such inputs has an empty list of their types.
    return name in TENSORFLOW_HINTS or all(
        isinstance(item, DataType) or (isinstance(item, str) and item in _FOREIGN_TYPES) for item in types
    )
