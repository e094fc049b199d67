"""The maxima of heatmaps, which a capture of torchvision's Keypoint R-CNN contains.

Semantics: `heatmaps_to_keypoints` in torchvision/models/detection/roi_heads.py.
"""

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.list_values import loop_inputs
from ..compositions.size_arithmetic import sizes_of


@onnx_symbolic("opsetta::heatmap_maxima")
def heatmap_maxima(g: GraphContext, maps: Value, sizes: Value) -> list[Value]:
    """A loop over the rows, because the maps of each are resized to another size."""

    def build(iteration: Value, keep_going: Value) -> list[Value]:
        row = g.op("Unsqueeze", iteration, axes=[0])
        height, width = (
            g.op("Squeeze", g.op("Slice", size, starts=[axis], ends=[axis + 1], axes=[0]), axes=[0])
            for size in [g.op("Gather", sizes, iteration, axis=0)]
            for axis in (0, 1)
        )
        resized = g.call(
            "aten::upsample_bicubic2d",
            self=g.op("Gather", maps, row, axis=0),
            output_size=[height, width],
            align_corners=False,
        )
        flat = g.op("Reshape", g.op("Squeeze", resized, axes=[0]), [0, -1])
        score = g.op("ReduceMax", flat, axes=[1], keepdims=0)
        return [keep_going, score, g.op("ArgMax", flat, axis=1, keepdims=0)]

    body = g.subgraph(build, loop_inputs(), "rows")
    results = g.op("Loop", g.constant(g.size(maps, 0), DataType.INT64), None, body=body, outputs=2)
    # Without a row the loop stacks nothing, and its results have no known number of columns.
    shape = g.stack(list(sizes_of(g, maps)[:2]))
    for result, dtype in zip(results, (g.dtype(maps), DataType.INT64), strict=True):
        result.shape = ir.Shape([None, None])
        if dtype is not None:
            result.type = ir.TensorType(dtype)
    return [g.op("Reshape", result, shape) for result in results]
