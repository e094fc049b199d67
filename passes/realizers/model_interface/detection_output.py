"""Replaces the raw boxes and scores of a detector by the boxes that non-maximum suppression keeps.

1. One output of rank 3 has the fields of each box: four coordinates, an objectness on request, a score for
   each class. The fields are on the shorter of the last two axes: YOLOv5 has `[N, boxes, 85]`, YOLOv8
   `[N, 84, boxes]`.
2. Two outputs are boxes `[N, boxes, 4]` and scores `[N, boxes, classes]`.
3. The results are `boxes [K, 4]` as corners x1, y1, x2, y2, `scores [K]`, `classes [K]` and
   `image_indices [K]`, the position of each box's image in the batch. They replace these outputs only.
"""

from __future__ import annotations

import dataclasses
import itertools

import onnx_ir as ir

from ....registration import DataType, GraphContext, GraphError, Registry, UsageError
from ....registration.arguments import every_node
from ..rewriting import Rewriter, list_shapes

_NAMES = ("boxes", "scores", "classes", "image_indices")
_COORDINATES = 4


@dataclasses.dataclass(frozen=True)
class DetectedBoxes:
    """How the boxes of a detector are coded, and which of them are kept.

    Attributes:
        iou: boxes of one class that overlap a better one by more than this are dropped.
        score: the lowest score that is kept.
        count: the most boxes of each class and image.
        coordinates: "cxcywh", centre and size, or "xyxy", corners.
        objectness: whether the fifth field of a box multiplies its scores.
    """

    iou: float = 0.45
    score: float = 0.25
    count: int = 100
    coordinates: str = "cxcywh"
    objectness: bool = False


class AddDetectionOutput(ir.passes.InPlacePass):
    """Replaces the outputs of a detector, as the module's rules say."""

    def __init__(self, detected: DetectedBoxes, registry: Registry):
        if detected.coordinates not in ("cxcywh", "xyxy") or detected.count < 1:
            raise UsageError(f"boxes are in cxcywh or xyxy, and at least one is kept, not {detected}")
        self._detected = detected
        self._registry = registry

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Add the steps behind the model.

        Raises:
            GraphError: the outputs are not those of a detector, or the model has an output of a new name.
            UnsupportedError: the opset has no NonMaxSuppression: it begins at 10.
        """
        graph = model.graph
        raw = _raw_outputs(graph)
        others = graph.outputs[len(raw) :]
        taken_names = {str(value.name) for value in (*graph.inputs, *others)}.intersection(_NAMES)
        if taken_names:
            raise GraphError(f"the model has an input or output '{min(taken_names)}' already")
        seam = ir.node("Identity", [raw[0]], name="detections")
        graph.append(seam)
        rewriter = Rewriter(model, self._registry)
        with rewriter.before(seam) as g:
            results = self._keep_best(g, *self._boxes_and_scores(g, raw))
        graph.remove(seam, safe=True)
        inner_values = (value for node in every_node(graph) for value in node.outputs)
        for value in (*graph.initializers.values(), *inner_values):
            if value.name in _NAMES:
                value.name = rewriter.unique(f"{value.name}/all")
        graph.outputs[: len(raw)] = results
        dims = {str(size) for value in (*graph.inputs, *graph.outputs) for size in value.shape or ()}
        count = next(name for n in itertools.count() if (name := f"detections{n or ''}") not in dims)
        for result, name in zip(results, _NAMES, strict=True):
            result.name = name
            result.shape = ir.Shape([count, _COORDINATES] if name == "boxes" else [count])
        return ir.passes.PassResult(model, True)

    def _boxes_and_scores(self, g: GraphContext, raw: list[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """Boxes `[N, boxes, 4]` and scores `[N, classes, boxes]`, both FLOAT, as the operator takes them."""
        values = [g.cast(value, DataType.FLOAT) for value in raw]
        if len(values) == 2:
            return values[0], g.op("Transpose", values[1], perm=[0, 2, 1])
        fields = g.op("Transpose", values[0], perm=[0, 2, 1]) if _is_transposed(raw[0]) else values[0]

        def part(start: int, end: int) -> ir.Value:
            return g.op("Slice", fields, starts=[start], ends=[end], axes=[2])

        first = _COORDINATES + int(self._detected.objectness)
        scores = part(first, 2**31 - 1)
        if self._detected.objectness:
            scores = g.op("Mul", scores, part(_COORDINATES, first))
        return part(0, _COORDINATES), g.op("Transpose", scores, perm=[0, 2, 1])

    def _keep_best(self, g: GraphContext, boxes: ir.Value, scores: ir.Value) -> list[ir.Value]:
        detected = self._detected
        is_centred = detected.coordinates == "cxcywh"
        # Without centres the operator takes any two opposite corners.
        selected = g.op(
            "NonMaxSuppression",
            boxes,
            scores,
            g.constant([detected.count], DataType.INT64),
            g.constant([detected.iou], DataType.FLOAT),
            g.constant([detected.score], DataType.FLOAT),
            center_point_box=int(is_centred),
        )
        if is_centred:
            centre, size = (
                g.op("Slice", boxes, starts=[start], ends=[start + 2], axes=[2]) for start in (0, 2)
            )
            half = g.op("Mul", size, 0.5)
            boxes = g.op("Concat", g.op("Sub", centre, half), g.op("Add", centre, half), axis=2)
        # A row is an image, a class and a box.
        images, classes, numbers = (
            g.op("Reshape", g.op("Slice", selected, starts=[column], ends=[column + 1], axes=[1]), [-1])
            for column in range(3)
        )
        # Positions in flat tensors need no GatherND, which begins at opset 11.
        class_count, box_count = (g.op("Gather", g.op("Shape", scores), [axis]) for axis in (1, 2))
        box_positions = g.op("Add", g.op("Mul", images, box_count), numbers)
        rows = g.op("Add", g.op("Mul", images, class_count), classes)
        score_positions = g.op("Add", g.op("Mul", rows, box_count), numbers)
        kept = g.op("Gather", g.op("Reshape", boxes, [-1, _COORDINATES]), box_positions)
        best = g.op("Gather", g.op("Reshape", scores, [-1]), score_positions)
        return [kept, best, classes, images]


def _raw_outputs(graph: ir.Graph) -> list[ir.Value]:
    """The outputs with boxes and scores.

    Raises:
        GraphError: the first outputs have other shapes.
    """
    shapes = [value.shape for value in graph.outputs]
    if shapes[0] is None or len(shapes[0]) != 3:
        raise GraphError(
            "nms needs a first output of shape [N, boxes, fields] or [N, fields, boxes]; the model has "
            f"outputs {list_shapes(graph.outputs)}"
        )
    if shapes[0][2] != _COORDINATES:
        return [graph.outputs[0]]
    if len(shapes) < 2 or shapes[1] is None or len(shapes[1]) != 3:
        raise GraphError("boxes without classes need a second output with scores [N, boxes, classes]")
    return list(graph.outputs[:2])


def _is_transposed(fields: ir.Value) -> bool:
    """Whether the fields of a box are on the second axis, which is then the shorter one.

    Raises:
        GraphError: neither size is a number, or they are equal.
    """
    second, third = fields.shape[1:] if fields.shape is not None else (None, None)
    if isinstance(second, int) and isinstance(third, int) and second != third:
        return second < third
    # Only the number of boxes depends on the size of the image.
    if isinstance(second, int) != isinstance(third, int):
        return isinstance(second, int)
    raise GraphError(f"it is not known which axis of '{fields.name}' has the fields of a box: set its sizes")
