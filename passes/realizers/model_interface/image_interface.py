"""Puts the steps before and after a vision model into its graph: pixels to floats, scores to classes.

1. An input of pixels is cast, transposed to the model's layout, resized to the model's sizes, divided, and
   normalized; steps that change nothing are left out.
2. An output of scores becomes probabilities, the largest class, or the k largest with their classes.
3. Nodes are emitted at the model's opset; a step that it cannot express is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ....registration import DataType, GraphContext, GraphError, Registry, UsageError
from ..rewriting import Rewriter, list_shapes
from .detection_output import AddDetectionOutput, DetectedBoxes

PIXEL_TYPES = {"uint8": DataType.UINT8, "float32": DataType.FLOAT, "float16": DataType.FLOAT16}
LAYOUTS = ("NCHW", "NHWC")
STEPS = ("softmax", "argmax", "topk")
NMS = "nms"
_DEFAULT_COUNT = 5


@dataclasses.dataclass(frozen=True)
class PixelInput:
    """The pixels that a caller feeds, and how they become the input of the model.

    Attributes:
        dtype: their element type, "uint8", "float32" or "float16".
        layout: "NHWC" or "NCHW"; the model takes NCHW.
        maximum: pixels are divided by it.
        mean, std: subtracted and divided by afterwards, per channel.
        resizes: whether images of any size are resized, linearly, to the sizes of the model.
        size: the height and width to resize to, for a model whose sizes are dynamic.
    """

    dtype: str = "uint8"
    layout: str = "NHWC"
    maximum: float = 255.0
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    resizes: bool = False
    size: Sequence[int] | None = None


class AddPixelInput(ir.passes.InPlacePass):
    """Replaces the only image input of a model by one of pixels, under the same name."""

    def __init__(self, pixels: PixelInput, registry: Registry):
        if pixels.dtype not in PIXEL_TYPES or pixels.layout not in LAYOUTS:
            raise UsageError(
                f"pixels are {', '.join(PIXEL_TYPES)}, in NCHW or NHWC, not {pixels.dtype} in {pixels.layout}"
            )
        if not 0 < pixels.maximum < float("inf"):
            raise UsageError(
                f"pixels are divided by the end of their range, which cannot be {pixels.maximum:g}"
            )
        if pixels.size is not None and min(pixels.size) < 1:
            raise UsageError(f"images cannot be resized to {list(pixels.size)}: sizes are 1 or more")
        if not all(pixels.std):
            raise UsageError("pixels are divided by std, which must not be 0")
        self._pixels = pixels
        self._registry = registry

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Add the steps in front of the model.

        Raises:
            GraphError: the model has no input of shape [N, C, H, W], or several, or its sizes vary.
        """
        graph = model.graph
        images = [
            (value, value.shape)
            for value in graph.inputs
            if value.dtype is not None and value.shape is not None and len(value.shape) == 4
        ]
        if len(images) != 1:
            raise GraphError(
                "preprocessing needs exactly one input of shape [N, C, H, W]; the model has inputs "
                f"{list_shapes(graph.inputs)}"
            )
        (image, shape), pixels = images[0], self._pixels
        batch, channels, *sizes = shape
        resizes = pixels.resizes or pixels.size is not None
        resized_sizes = sizes if pixels.size is None else list(pixels.size)
        if resizes and not all(isinstance(size, int) for size in resized_sizes):
            raise GraphError(
                f"'{image.name}' has no fixed height and width to resize to: "
                f"give its shape, for example --input-shape {image.name}=1,3,224,224"
            )
        numbers_of_size = [size for size in resized_sizes if isinstance(size, int)]
        if any(isinstance(own, int) and own != size for own, size in zip(sizes, resized_sizes, strict=True)):
            raise GraphError(
                f"'{image.name}' takes images of {sizes}, which are not resized to {resized_sizes}"
            )
        for numbers in (pixels.mean, pixels.std):
            if len(numbers) not in (1, channels):
                raise GraphError(f"mean and std need one number, or one for each of {channels} channels")
        name = str(image.name)
        seam = ir.node("Identity", [image], name=f"{name}/Pixels")
        seam.outputs[0].name, seam.outputs[0].type, seam.outputs[0].shape = None, image.type, image.shape
        readers = list(image.uses())
        for reader, input_index in readers:
            if reader is not seam:
                reader.replace_input_with(input_index, seam.outputs[0])
        graph.insert_before(graph[0], seam)
        free = ("height", "width") if resizes else sizes
        dims = [batch, channels, *free] if pixels.layout == "NCHW" else [batch, *free, channels]
        image.shape, image.type = ir.Shape(dims), ir.TensorType(PIXEL_TYPES[pixels.dtype])
        rewriter = Rewriter(model, self._registry)
        dtype = seam.outputs[0].dtype or DataType.FLOAT
        with rewriter.before(seam, f"{name}/Pixels") as g:
            result = self._emit(g, image, dtype, numbers_of_size if resizes else None)
        rewriter.replace(seam, [result])
        return ir.passes.PassResult(model, True)

    def _emit(self, g: GraphContext, image: ir.Value, dtype: DataType, sizes: list[int] | None) -> ir.Value:
        pixels = self._pixels
        result = g.cast(image, dtype)
        if pixels.layout == "NHWC":
            result = g.op("Transpose", result, perm=[0, 3, 1, 2])
        if sizes is not None:
            result = g.op(
                "Resize",
                result,
                sizes=sizes,
                axes=[2, 3],
                mode="linear",
                coordinate_transformation_mode="half_pixel",
            )
        if pixels.maximum != 1:
            result = g.op("Div", result, g.constant(pixels.maximum, dtype))
        for operator, numbers, neutral in (("Sub", pixels.mean, 0), ("Div", pixels.std, 1)):
            if any(number != neutral for number in numbers):
                per_channel = [[[float(number)]] for number in numbers]
                result = g.op(operator, result, g.constant(per_channel, dtype))
        return result


def output_pass(
    step: str, registry: Registry, count: int | None, boxes: Mapping[str, Any]
) -> ir.passes.InPlacePass:
    """The pass that adds a step behind a model; None is the step's own count.

    Raises:
        UsageError: the step or a field of `boxes` is unknown.
    """
    if step != NMS and not boxes:
        return AddScoreOutput(step, registry, count)
    fields = {field.name for field in dataclasses.fields(DetectedBoxes)} - {"count"}
    if step != NMS or not fields.issuperset(boxes):
        raise UsageError(f"'{step}' takes no {', '.join(boxes)}; nms takes {', '.join(sorted(fields))}")
    counted = boxes if count is None else {**boxes, "count": count}
    return AddDetectionOutput(DetectedBoxes(**counted), registry)


class AddScoreOutput(ir.passes.InPlacePass):
    """Replaces the first output of a model, scores on the last axis, by what they say.

    Args:
        step: "softmax" for probabilities, "argmax" for classes, "topk" for the largest with their classes.
        count: how many of "topk"; by default five, or all of fewer.
    """

    def __init__(self, step: str, registry: Registry, count: int | None = None):
        if step not in STEPS:
            raise UsageError(f"the step after the model is {', '.join(STEPS)} or {NMS}, not '{step}'")
        if count is not None and count < 1:
            raise UsageError(f"the number of {step} must be 1 or more, not {count}")
        self._step = step
        self._count = count
        self._registry = registry

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Add the step behind the model.

        Raises:
            GraphError: the model has an output of the new name, or fewer classes than are to be returned.
        """
        graph = model.graph
        scores = graph.outputs[0]
        new_names = {"softmax": ["probabilities"], "argmax": ["classes"], "topk": ["scores", "classes"]}
        names = new_names[self._step]
        taken_names = {str(value.name) for value in graph.outputs[1:]}.intersection(names)
        if taken_names:
            raise GraphError(f"the model has an output '{min(taken_names)}' already")
        classes = scores.shape[-1] if scores.shape is not None and len(scores.shape) else None
        count = _DEFAULT_COUNT if self._count is None else self._count
        if isinstance(classes, int):
            if self._count is not None and self._count > classes:
                raise GraphError(f"'{scores.name}' has {classes} classes: topk cannot return {self._count}")
            count = min(count, classes)
        seam = ir.node("Identity", [scores], name=f"{scores.name}/{self._step}")
        graph.append(seam)
        rewriter = Rewriter(model, self._registry)
        with rewriter.before(seam) as g:
            if self._step == "softmax":
                results = [g.op("Softmax", scores, axis=-1)]
            elif self._step == "argmax":
                results = [g.op("ArgMax", scores, axis=-1, keepdims=0)]
            else:
                results = list(g.op("TopK", scores, k=count, axis=-1, outputs=2))
        graph.remove(seam, safe=True)
        graph.outputs[0] = results[0]
        graph.outputs[1:1] = results[1:]
        if scores.name in names:
            scores.name = rewriter.unique(f"{scores.name}/all")
        for result, name in zip(results, names, strict=True):
            result.name = name
        return ir.passes.PassResult(model, True)
