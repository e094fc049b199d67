"""Written for opset 9, with operators that mean something else, or are gone, at later ones."""

import torch
from torch.onnx import register_custom_op_symbolic, symbolic_helper


@symbolic_helper.parse_args("v", "i")
def rows_softmax(g, x, start):
    return g.op("Softmax", x, axis_i=start)


@symbolic_helper.parse_args("v", "i")
def enlarged(g, x, by):
    scales = g.op("Constant", value_t=torch.tensor([1.0, 1.0, by, by]))
    return g.op("Upsample", x, scales, mode_s="nearest")


@symbolic_helper.parse_args("v", "f", "f")
def squashed(g, x, low, high):
    x = g.op("Clip", x, min_f=low, max_f=high)
    x = g.op("Pad", x, pads_i=[0, 1, 0, 1], value_f=1.5)
    first, second = g.op("Split", x, axis_i=1, split_i=[2, 3], outputs=2)
    x = g.op("Concat", second, first, axis_i=1)
    return g.op("Dropout", g.op("Unsqueeze", x, axes_i=[0]), ratio_f=0.5)


@symbolic_helper.parse_args("v", "v", "v")
def replaced(g, x, index, source):
    return g.op("Scatter", x, index, source, axis_i=1)


register_custom_op_symbolic("portable::rows_softmax", rows_softmax, 9)
register_custom_op_symbolic("portable::enlarged", enlarged, 9)
register_custom_op_symbolic("portable::squashed", squashed, 9)
register_custom_op_symbolic("portable::replaced", replaced, 9)
