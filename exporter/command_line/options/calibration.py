"""The options of `opsetta quantize`."""

from __future__ import annotations

from typing import Annotated

import typer

Calibrate = Annotated[
    str,
    typer.Option(
        metavar="DATA",
        help="An .npz file with an array of samples for each input, a folder of .npy, .npz or image files, "
        "or PATH.py:FUNCTION, which returns batches.",
    ),
]
Form = Annotated[str, typer.Option("--format", help="qdq, or qoperator for operators of integers.")]
Activations = Annotated[
    str | None, typer.Option(help="int8, uint8, int16 or uint16; by default the target's, or int8.")
]
Weights = Annotated[str | None, typer.Option(help="int8 or uint8; by default the target's, or int8.")]
PerChannel = Annotated[
    bool | None,
    typer.Option("--per-channel/--per-tensor", help="Whether output channels have their own scales."),
]
Symmetric = Annotated[
    bool | None,
    typer.Option("--symmetric/--asymmetric", help="Whether zero is in the middle of activations' range."),
]
Method = Annotated[str, typer.Option(help="How ranges are chosen: minmax, entropy or percentile.")]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATOR | NODE", help="An operator or a node that stays in float."),
]
Equalize = Annotated[
    bool,
    typer.Option(
        "--equalize",
        help="Give the channels between two convolutions weights of one range, for --per-tensor.",
    ),
]
ReduceRange = Annotated[
    bool,
    typer.Option("--reduce-range", help="Weights of 7 bits, for x86 processors without VNNI instructions."),
]
WeightRounding = Annotated[
    str,
    typer.Option(
        help="calibrated rounds weights so that products with the data change least; nearest is faster."
    ),
]
MaxLoss = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="The most that may be lost on batches that are not used for calibration, such as 0.01: nodes "
        "that lose most stay in float until the loss is within it.",
    ),
]
Loss = Annotated[
    str,
    typer.Option(
        help="What --max-loss limits: labels, the share of samples whose largest entry changes, or error, "
        "the relative error of outputs."
    ),
]
Mean = Annotated[str, typer.Option(metavar="R,G,B", help="Of images: subtracted from pixels of 0 to 1.")]
Std = Annotated[str, typer.Option(metavar="R,G,B", help="Of images: pixels are divided by it.")]
