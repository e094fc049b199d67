"""Arguments and options of `sweep`."""

from __future__ import annotations

import pathlib
import re
from typing import Annotated

import typer

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_bytes(text: str) -> int:
    """An amount of memory, such as `4GB`, in bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise typer.BadParameter(
            f"'{text}' is not an amount of memory: write 500MB, 4GB or a number of bytes"
        )
    return int(float(match[1]) * _UNITS[match[2]])


Zoo = Annotated[
    pathlib.Path,
    typer.Argument(
        metavar="ZOO.py | FOLDER | RESULTS",
        help="A Python file with a factory for each model, or a folder of .onnx files. With --html alone "
        "the results of a sweep, .parquet or .sqlite, to draw.",
    ),
]
Results = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The results, .parquet or .sqlite. Jobs whose results the file has are skipped.",
    ),
]
Opsets = Annotated[str, typer.Option(metavar="N,N-N,...", help="The opsets, 9,13-15,18.")]
Dtypes = Annotated[
    str,
    typer.Option(metavar="NAME,...", help="Element types: own, float16, bfloat16, float32, float64."),
]
Shapes = Annotated[
    str,
    typer.Option(
        metavar="SHAPE,...",
        help="Shapes: own; static, without dynamic dimensions; sizes for the parameters of factories, "
        "batch=8; or several of these with + between them.",
    ),
]
Targets = Annotated[
    str, typer.Option(metavar="NAME,...", help="The runtimes and devices to write for, or none.")
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="local | ray | ray://HOST:PORT", help="Where jobs run: on this machine or a Ray cluster."
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Jobs at a time; by default one for each processor.")
]
Seconds = Annotated[float, typer.Option(help="The time limit of a job, in seconds.")]
Memory = Annotated[
    int | None,
    typer.Option(parser=parse_bytes, metavar="BYTES", help="The memory limit of a job: 4GB. Linux only."),
]
Only = Annotated[str, typer.Option(metavar="REGEX", help="Only models whose names match.")]
Again = Annotated[
    str, typer.Option(metavar="STATUS,...", help="Repeat jobs with these statuses: timeout,died.")
]
Compare = Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the results with the original.")]
Runs = Annotated[int, typer.Option(min=0, help="Runs to measure the latency with; 0 measures none.")]
Html = Annotated[
    pathlib.Path | None,
    typer.Option("--html", metavar="FILE", help="Draw the matrix of the results into an HTML page."),
]
