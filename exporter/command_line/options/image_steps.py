"""The options of `opsetta convert` for steps before and after a vision model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....registration import UsageError

Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS",
        help="Take pixels as the input, in words: 'uint8 NHWC 0..255 mean=R,G,B std=R,G,B resize'. Pixels "
        "are divided by the end of their range; resize takes images of any size, and resize=640 or "
        "resize=480x640 gives a model with dynamic sizes this one.",
    ),
]
Postprocess = Annotated[
    str | None,
    typer.Option(
        metavar="softmax | argmax | topk=N | nms",
        help="Return probabilities, classes, or the largest scores and their classes, over the last axis of "
        "the first output; or the boxes of a detector, in words: 'nms iou=0.45 score=0.25 count=100 xyxy "
        "objectness'.",
    ),
]


def pixel_arguments(text: str | None) -> dict[str, Any] | None:
    """The arguments of `OnnxModel.preprocess`; None without the option.

    Raises:
        UsageError: a word is unknown.
    """
    if text is None:
        return None
    arguments: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        try:
            if equals and name in ("mean", "std"):
                arguments[name] = [float(number) for number in value.split(",")]
            elif word.startswith("0.."):
                arguments["maximum"] = float(word.removeprefix("0.."))
            elif word == "resize":
                arguments["resizes"] = True
            elif equals and name == "resize":
                height, by, width = value.partition("x")
                arguments["size"] = int(height), int(width if by else height)
            elif word in ("NHWC", "NCHW"):
                arguments["layout"] = word
            elif word in ("uint8", "float32", "float16"):
                arguments["dtype"] = word
            else:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--preprocess: '{word}' is not a type (uint8, float32, float16), a layout (NHWC, NCHW), a "
                "range (0..255), mean=…, std=…, resize, resize=N or resize=HxW"
            ) from None
    return arguments


def score_arguments(text: str | None) -> dict[str, Any] | None:
    """The arguments of `OnnxModel.postprocess`; None without the option.

    Raises:
        UsageError: a word is unknown, or a number is none.
    """
    if text is None:
        return None
    first, *words = text.split() or [""]
    step, equals, count = first.partition("=")
    arguments: dict[str, Any] = {"step": step}
    for word in [f"count={count}"] * bool(equals) + words:
        name, equals, value = word.partition("=")
        try:
            if equals and name in ("iou", "score"):
                arguments[name] = float(value)
            elif equals and name == "count":
                arguments[name] = int(value)
            elif word in ("xyxy", "cxcywh"):
                arguments["coordinates"] = word
            elif word == "objectness":
                arguments[word] = True
            else:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--postprocess: '{word}' is not a count, iou=…, score=…, xyxy, cxcywh or objectness"
            ) from None
    return arguments
