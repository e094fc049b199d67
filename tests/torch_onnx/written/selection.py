"""Selection: the helpers that emit operators, several results, and a look at the opset."""

import torch
import torch.onnx.symbolic_helper as sym_help
from torch.onnx import register_custom_op_symbolic


@sym_help.parse_args("v", "i", "i")
def best_rows(g, x, k, dim):
    values, indices = sym_help._topk_helper(g, x, k, dim, largest=True, sorted=True)
    total = sym_help._reducesum_helper(g, values, axes_i=[dim], keepdims_i=0)
    first = sym_help._slice_helper(g, indices, axes=[dim], starts=[0], ends=[1])
    return total, sym_help._squeeze_helper(g, first, [dim])


@sym_help.parse_args("v", "is", "none")
def window(g, x, bounds, unused):
    start, end = bounds
    if g.opset >= 10:
        axes = g.op("Constant", value_t=torch.tensor([1]))
        part = g.op(
            "Slice",
            x,
            g.op("Constant", value_t=torch.tensor([start])),
            g.op("Constant", value_t=torch.tensor([end])),
            axes,
        )
    else:
        part = g.op("Slice", x, axes_i=[1], starts_i=[start], ends_i=[end])
    part = sym_help._unsqueeze_helper(g, part, [0])
    return g.op("Squeeze", part, axes_i=[0]) if g.opset < 13 else sym_help._squeeze_helper(g, part, [0])


def joined(g, tensors, dim):
    axis = sym_help._get_const(dim, "i", "dim")
    assert sym_help._is_packed_list(tensors)
    members = sym_help._unpack_list(tensors)
    kind = members[0].type().scalarType()
    members = [g.op("Cast", m, to_i=sym_help.cast_pytorch_to_onnx[kind]) for m in members]
    return g.op("Concat", *members, axis_i=axis)


register_custom_op_symbolic("portable::best_rows", best_rows, 9)
register_custom_op_symbolic("portable::window", window, 9)
register_custom_op_symbolic("portable::joined", joined, 9)
