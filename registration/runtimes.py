"""Kernels that runtimes lack, by ONNX operator, element type and opset.

Symbolic functions call `GraphContext.has_kernel`, and compose operators that have no kernel.
"""

from __future__ import annotations

from onnx_ir import DataType

from .dtypes import INTEGERS

_DOUBLE = frozenset({DataType.DOUBLE})
_SHORT = frozenset({DataType.INT16, DataType.UINT16})
_WHOLE = INTEGERS | {DataType.BOOL}
_HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
_UNSIGNED = frozenset({DataType.UINT16, DataType.UINT32, DataType.UINT64})

ONNXRUNTIME: dict[str, frozenset[DataType]] = {
    **dict.fromkeys("Acos Acosh Asin Asinh Atan Atanh Cosh Sinh Tan".split(), _DOUBLE),
    **dict.fromkeys("Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Selu".split(), _DOUBLE),
    **dict.fromkeys(("Clip", "Det", "Erf"), _DOUBLE),
    **dict.fromkeys(("AveragePool", "GlobalMaxPool", "Resize"), _DOUBLE),
    # Their kernels of DOUBLE fail when they run.
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _DOUBLE | _HALVES),
    "Col2Im": _DOUBLE | _HALVES | _WHOLE,
    "Gemm": _WHOLE,
    "InstanceNormalization": _DOUBLE | _HALVES,
    "MaxRoiPool": _DOUBLE,
    **dict.fromkeys(("ArgMax", "ArgMin", "Max", "Min", "Pad", "Where"), _SHORT),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _WHOLE),
    "NonZero": _SHORT
    | {DataType.INT8, DataType.UINT32, DataType.UINT64}
    | {DataType.FLOAT16, DataType.BFLOAT16, DataType.DOUBLE},
    # Its kernel of FLOAT16 gives infinity above 88.
    "Softplus": _DOUBLE | _HALVES,
    "SplitToSequence": _UNSIGNED | {DataType.INT8, DataType.UINT8, DataType.INT16},
}
"""Element types of an operator's first tensor without a kernel in onnxruntime's CPU provider.

The kernel is missing at one or more of the opsets that allow the type.
"""


LAST_OPSET = {
    # Its function has Casts and masks that cost more than the composition.
    "Attention": 24,
    "DequantizeLinear": 27,
    # It has been an operator since 27; onnxruntime runs its function, a Scan over the tokens.
    "LinearAttention": 26,
    "MaxRoiPool": 21,
    "QuantizeLinear": 27,
    "ReduceLogSumExp": 27,
    "RoiAlign": 21,
    # It runs Swish's function at 24 and 25 only.
    **dict.fromkeys(("SwiGLU", "Swish"), 0),
}
"""The last opset at which onnxruntime 1.32 has any kernel of an operator: none of the next version.

The target of a model may have kernels that onnxruntime lacks: `kernels` of its conventions names them.
"""


def has_kernel(op_type: str, dtype: DataType | None, opset: int = 0) -> bool:
    """Whether every known runtime has a kernel of an operator for an element type, or the type is unknown."""
    if opset > LAST_OPSET.get(op_type, opset):
        return False
    return dtype is None or dtype not in ONNXRUNTIME.get(op_type, frozenset())
