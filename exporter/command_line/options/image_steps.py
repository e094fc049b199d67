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
        "are divided by the end of their range; resize takes images of any size.",
    ),
]
Postprocess = Annotated[
    str | None,
    typer.Option(
        metavar="softmax | argmax | topk=N",
        help="Return probabilities, classes, or the largest scores and their classes, over the last axis of "
        "the first output.",
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
            elif word in ("NHWC", "NCHW"):
                arguments["layout"] = word
            elif word in ("uint8", "float32", "float16"):
                arguments["dtype"] = word
            else:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--preprocess: '{word}' is not a type (uint8, float32, float16), a layout (NHWC, NCHW), a "
                "range (0..255), mean=…, std=… or resize"
            ) from None
    return arguments


def score_arguments(text: str | None) -> dict[str, Any] | None:
    """The arguments of `OnnxModel.postprocess`; None without the option.

    Raises:
        UsageError: the number is none.
    """
    if text is None:
        return None
    step, equals, count = text.partition("=")
    if equals and not count.isdecimal():
        raise UsageError(f"--postprocess: '{count}' is not a number")
    return {"step": step, **({"count": int(count)} if equals else {})}
