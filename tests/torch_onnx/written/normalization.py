"""Layer normalization out of primitives, with optional weights; overrides and calls of other functions."""

import torch
from torch.onnx import register_custom_op_symbolic, symbolic_helper
from torch.onnx.symbolic_helper import _get_tensor_rank, _is_none, parse_args
from torch.onnx.symbolic_opset9 import add, mul, sqrt, sub


# The parameters are not called as the schema calls them.
@parse_args("v", "v", "v", "f", "b")
def channel_norm(g, input, gamma, beta, epsilon, unbiased):
    rank = _get_tensor_rank(input)
    if rank is None:
        return symbolic_helper._unimplemented("channel_norm", "unknown rank", input)
    mean = g.op("ReduceMean", input, axes_i=[1], keepdims_i=1)
    centred = sub(g, input, mean)
    two = g.op("Constant", value_t=torch.tensor(2))
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes_i=[1], keepdims_i=1)
    if unbiased:
        channels = symbolic_helper._get_tensor_dim_size(input, 1)
        variance = mul(g, variance, g.op("Constant", value_t=torch.tensor(channels / (channels - 1))))
    stable = add(g, variance, g.op("Constant", value_t=torch.tensor(epsilon, dtype=torch.double)))
    normalized = g.op("Div", centred, sqrt(g, stable))
    shape = g.op("Constant", value_t=torch.tensor([1, -1] + [1] * (rank - 2)))
    if not _is_none(gamma):
        normalized = g.op("Mul", normalized, symbolic_helper._reshape_helper(g, gamma, shape))
    if not beta.node().mustBeNone():
        normalized = g.op("Add", normalized, g.op("Reshape", beta, shape))
    return g.op("Mul", normalized, two).setType(input.type())


def soft_clip(g, x, limit):
    value = symbolic_helper._get_const(limit, "f", "limit")
    bound = g.op("Constant", value_t=torch.tensor(value, dtype=torch.float32))
    scaled = g.op("Div", x, limit)
    if x.type().scalarType() not in ("Float", "Half"):
        return symbolic_helper._onnx_unsupported("soft_clip", x)
    return g.op("Mul", g.op("Tanh", scaled), bound)


register_custom_op_symbolic("portable::channel_norm", channel_norm, 9)
register_custom_op_symbolic("portable::soft_clip", soft_clip, 9)
