"""Boxes: non-maximum suppression as detection repositories export it."""

import torch
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args
from torch.onnx.symbolic_opset9 import select, squeeze, unsqueeze


@parse_args("v", "v", "f")
def symbolic_nms(g, boxes, scores, threshold):
    boxes = unsqueeze(g, boxes, 0)
    scores = unsqueeze(g, unsqueeze(g, scores, 0), 0)
    most = g.op("Constant", value_t=torch.tensor([2000], dtype=torch.long))
    threshold = g.op("Constant", value_t=torch.tensor([threshold], dtype=torch.float))
    selected = g.op("NonMaxSuppression", boxes, scores, most, threshold)
    index = g.op("Constant", value_t=torch.tensor([2]))
    return squeeze(g, select(g, selected, 1, index), 1)


register_custom_op_symbolic("portable::nms", symbolic_nms, 10)
