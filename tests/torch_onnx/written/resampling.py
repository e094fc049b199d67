"""Replacements for functions of torch.onnx itself: resizing, padding that is computed, pooling."""

import torch
import torch.onnx.symbolic_helper as sym_help
from torch.nn.modules.utils import _pair
from torch.onnx import register_custom_op_symbolic, symbolic_opset10


def resized(mode):
    def symbolic(g, input, output_size, *rest):
        scales, align_corners = sym_help._get_interpolate_attributes(g, mode, rest)
        corners = sym_help._maybe_get_scalar(align_corners)
        how = "asymmetric" if mode == "nearest" else "align_corners" if corners else "pytorch_half_pixel"
        empty = g.op("Constant", value_t=torch.tensor([], dtype=torch.float32))
        inputs = [input, empty, scales]
        if scales is None:
            first = sym_help._slice_helper(g, g.op("Shape", input), axes=[0], starts=[0], ends=[2])
            size = g.op("Cast", output_size, to_i=sym_help.cast_pytorch_to_onnx["Long"])
            inputs = [input, empty, empty, g.op("Concat", first, size, axis_i=0)]
        return g.op(
            "Resize", *inputs, coordinate_transformation_mode_s=how, mode_s=mode, nearest_mode_s="floor"
        )

    return symbolic


def padded(g, input, padding, value=None):
    rank = input.type().dim()
    value = sym_help._if_scalar_type_as(sym_help._maybe_get_scalar(value), input)
    count = g.op("Constant", value_t=torch.tensor([2 * rank]))
    missing = g.op("Sub", count, g.op("Shape", padding))
    zeros = g.op("ConstantOfShape", missing, value_t=torch.tensor([0]))
    pairs = g.op("Concat", g.op("Cast", padding, to_i=7), zeros, axis_i=0)
    pairs = g.op("Reshape", pairs, g.op("Constant", value_t=torch.tensor([-1, 2])))
    pairs = g.op("Transpose", symbolic_opset10.flip(g, pairs, [0]), perm_i=[1, 0])
    pads = sym_help._reshape_helper(g, pairs, g.op("Constant", value_t=torch.tensor([-1])))
    return g.op("Pad", input, pads, value, mode_s="constant")


@sym_help.parse_args("v", "is", "is", "is", "i", "i", "none")
def pooled(g, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
    padding = sym_help._avgpool_helper(_pair, padding, kernel_size, stride, divisor_override, "avg_pool2d")
    if count_include_pad:
        around = g.op("Constant", value_t=torch.tensor(((0,) * 2 + tuple(padding)) * 2))
        input = g.op("Pad", input, around, mode_s="constant")
        padding = (0,) * len(padding)
    return g.op(
        "AveragePool",
        input,
        kernel_shape_i=_pair(kernel_size),
        strides_i=_pair(stride or kernel_size),
        pads_i=tuple(padding) * 2,
        ceil_mode_i=ceil_mode,
    )


upsample_nearest2d = resized("nearest")
upsample_bilinear2d = resized("linear")

register_custom_op_symbolic("aten::upsample_nearest2d", upsample_nearest2d, 11)
register_custom_op_symbolic("aten::upsample_bilinear2d", upsample_bilinear2d, 11)
register_custom_op_symbolic("aten::constant_pad_nd", padded, 11)
register_custom_op_symbolic("aten::avg_pool2d", pooled, 11)
