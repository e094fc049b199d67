"""The options of commands that convert element types."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....registration import UsageError

Fp16 = Annotated[bool, typer.Option("--fp16", help="Store weights and compute in half precision.")]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Store weights and compute in bfloat16.")]
ConvertInterface = Annotated[
    bool,
    typer.Option("--convert-io", help="With --fp16 or --bf16, also give inputs and outputs this type."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPERATOR | NODE",
        help="An operator or a node to leave as it is, by --fp16 and --bf16. May be repeated.",
    ),
]


def type_arguments(
    fp16: bool, bf16: bool, converts_interface: bool, exclude: list[str] | None
) -> dict[str, Any] | None:
    """The arguments of `OnnxModel.convert_types`; None if no type is asked for.

    Raises:
        UsageError: two types are asked for, or none and further options.
    """
    if fp16 and bf16:
        raise UsageError("--fp16 and --bf16 exclude each other")
    if not fp16 and not bf16:
        if converts_interface or exclude:
            raise UsageError("--convert-io and --exclude need --fp16 or --bf16")
        return None
    return {"dtype": "fp16" if fp16 else "bf16", "keep_io": not converts_interface, "exclude": exclude or ()}
