"""Written for opsets 10 and 16, with attributes that have other defaults or names at later ones."""

from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args


@parse_args("v", "v", "v", "i", "f")
def pooled_rois(g, features, boxes, batch, size, scale):
    return g.op(
        "RoiAlign",
        features,
        boxes,
        batch,
        output_height_i=size,
        output_width_i=size,
        spatial_scale_f=scale,
        sampling_ratio_i=2,
        mode_s="avg",
    )


@parse_args("v", "v")
def sampled(g, x, grid):
    return g.op("GridSample", x, grid, mode_s="bilinear", padding_mode_s="zeros", align_corners_i=0)


register_custom_op_symbolic("portable::pooled_rois", pooled_rois, 10)
register_custom_op_symbolic("portable::sampled", sampled, 16)
