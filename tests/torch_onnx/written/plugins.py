"""Plugins of a runtime: operators of its own domain, with attributes of every type and several results."""

import torch
from torch.onnx import register_custom_op_symbolic
from torch.onnx import symbolic_helper as sym_help

OPSET = 1


def grid_sampler(g, input, grid, mode, padding_mode, align_corners):
    mode = sym_help._maybe_get_const(mode, "i")
    padding_mode = sym_help._maybe_get_const(padding_mode, "i")
    return g.op(
        "mmcv::grid_sampler",
        input,
        grid,
        interpolation_mode_i=mode,
        padding_mode_i=padding_mode,
        mode_s=["bilinear", "nearest", "bicubic"][mode],
        align_corners_i=int(sym_help._maybe_get_const(align_corners, "b")),
    )


@sym_help.parse_args("v", "v", "i", "f", "s")
def batched_nms(g, boxes, scores, most, threshold, coding):
    found = g.op(
        "TRT::EfficientNMS_TRT",
        boxes,
        scores,
        plugin_version_s="1",
        max_output_boxes_i=most,
        iou_threshold_f=threshold,
        box_coding_s=coding,
        outputs=4,
    )
    batch = boxes.type().sizes()[0]
    found[1].setType(boxes.type().with_sizes([batch, most, 4]))
    return found


@sym_help.parse_args("v", "is", "v", "v", "f", "b")
def layer_norm(g, input, normalized_shape, weight, bias, eps, cudnn_enable):
    inputs = [input]
    for parameter in (weight, bias):
        if not sym_help._is_none(parameter):
            inputs.append(parameter)
    out = g.op(
        "TRT::LayerNorm", *inputs, epsilon_f=eps, axis_i=-len(normalized_shape), shape_i=normalized_shape
    )
    out.setType(input.type())
    return out


def deform_conv2d(g, input, weight, offset, mask, bias, stride, padding, use_mask):
    if input.node().kind() == "prim::Constant" or not input.type().dim():
        return sym_help._unimplemented("deform_conv2d", "an input without a rank")
    given = [input, offset, weight]
    if sym_help._maybe_get_const(use_mask, "b"):
        given.insert(2, mask)
    if not sym_help._is_none(bias):
        given.append(bias)
    return g.op(
        "custom::DeformConv2d",
        *given,
        stride_i=sym_help._maybe_get_const(stride, "is"),
        padding_i=sym_help._get_const(padding, "is", "padding"),
        scales_f=[0.5, 2.0],
        table_t=torch.tensor([[1.0, 2.0]]),
        omitted_i=None,
    )


def upper(g, self, diagonal):
    return g.op("com.microsoft::Trilu", self, diagonal, upper_i=1).setType(self.type())


register_custom_op_symbolic("::grid_sampler", grid_sampler, OPSET)
register_custom_op_symbolic("portable::batched_nms", batched_nms, OPSET)
register_custom_op_symbolic("aten::layer_norm", layer_norm, 9)
register_custom_op_symbolic("portable::deform_conv2d", deform_conv2d, OPSET)
register_custom_op_symbolic("::triu", upper, OPSET)
