"""The functions of `torch.onnx.symbolic_helper` for symbolic functions.

Functions whose names begin with an underscore are those of `symbolic_functions/argument_helpers.py` and
`symbolic_functions/emitting_helpers.py`.
"""

from __future__ import annotations

from ..registration import MAXIMUM_OPSET, MINIMUM_OPSET
from ._type_utils import JitScalarType
from .errors import refuse_attribute
from .symbolic_functions import argument_helpers as _argument_helpers
from .symbolic_functions import emitting_helpers as _emitting_helpers
from .symbolic_functions.argument_helpers import (
    args_have_same_dtype,
    check_training_mode,
    is_complex_value,
    parse_args,
    quantized_args,
)
from .symbolic_functions.context import current

__all__ = [
    "JitScalarType",
    "args_have_same_dtype",
    "cast_pytorch_to_onnx",
    "check_training_mode",
    "is_complex_value",
    "parse_args",
    "quantized_args",
    "scalar_name_to_pytorch",
    "scalar_type_to_onnx",
]

scalar_name_to_pytorch = {
    scalar_type.torch_name(): scalar_type.scalar_name()
    for scalar_type in JitScalarType
    if scalar_type <= JitScalarType.BFLOAT16
}
cast_pytorch_to_onnx = {
    scalar_type.scalar_name(): scalar_type.onnx_type()
    for scalar_type in JitScalarType
    if scalar_type.onnx_compatible()
    and scalar_type <= JitScalarType.BFLOAT16
    and not scalar_type.name.startswith("Q")
}
scalar_type_to_onnx = [
    scalar_type.onnx_type() if scalar_type.onnx_compatible() else 0
    for scalar_type in JitScalarType
    if scalar_type <= JitScalarType.BFLOAT16
]

_REMEDIES = {
    "_set_opset_version": "the opset is an argument of opsetta.export",
    "_set_operator_export_type": "there is one way of export",
    "_set_training_mode": "what is exported is what was captured",
    "quantize_helper": "emit QuantizeLinear with g.op",
    "dequantize_helper": "emit DequantizeLinear with g.op",
    "requantize_bias_helper": "emit QuantizeLinear with g.op",
    "_unpack_tuple": "the argument of an operator is no tuple",
    "_unpack_quantized_tensor": "quantized values are QuantizeLinear's and its scale here",
}


def __getattr__(name: str) -> object:
    if name == "_export_onnx_opset_version":
        return current.get().opset
    if name == "scalar_type_to_pytorch_type":
        return [scalar_type.dtype() for scalar_type in JitScalarType if scalar_type <= JitScalarType.BFLOAT16]
    if name == "pytorch_name_to_type":
        return {
            scalar_type.scalar_name(): scalar_type.dtype()
            for scalar_type in JitScalarType
            if scalar_type <= JitScalarType.BFLOAT16
        }
    if name == "_onnx_stable_opsets":
        return list(range(MINIMUM_OPSET, MAXIMUM_OPSET + 1))
    if name.startswith("__"):
        raise AttributeError(name)
    for module in (_argument_helpers, _emitting_helpers):
        if hasattr(module, name):
            return getattr(module, name)
    remedy = _REMEDIES.get(name, "call the operator's function in symbolic_opset9, or emit it with g.op")
    return refuse_attribute("symbolic_helper", name, remedy)
