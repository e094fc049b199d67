"""The options of `opsetta convert` for Caffe2's nets."""

from __future__ import annotations

import pathlib
from typing import Annotated, Any

import typer

from ....registration import UsageError

InitNet = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--init-net",
        help="Of a Caffe2 net, the net that makes its weights; by default the init_net beside a predict_net.",
    ),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        help="The shape of an input: data=1,3,224,224, with names for dynamic sizes, data=batch,3,224,224, "
        "or, of a Caffe2 net, with an element type, ids=int64[batch,7]. Repeat it for each input.",
    ),
]


def is_net_file(model: pathlib.Path, init_net: pathlib.Path | None) -> bool:
    """Whether the options of Caffe2's nets apply to a file."""
    from ...capture.caffe2.net_reading import is_net

    return init_net is not None or is_net(model)


def load_options(init_net: pathlib.Path | None, input_shapes: list[str] | None) -> dict[str, Any]:
    """The arguments of `opsetta.load`; without an option none.

    Raises:
        UsageError: a shape has no name of an input, or an input has two.
    """
    shapes: dict[str, str] = {}
    for text in input_shapes or ():
        name, equals, shape = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--input-shape '{text}' is not NAME=SIZE,SIZE,…")
        if name in shapes:
            raise UsageError(f"--input-shape: '{name}' occurs twice")
        shapes[name] = shape
    return {
        **({} if init_net is None else {"init_net": init_net}),
        **({"shapes": shapes} if shapes else {}),
    }
