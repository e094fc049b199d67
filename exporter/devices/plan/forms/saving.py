"""Writes a plan's files into a folder."""

from __future__ import annotations

import os
import pathlib

from ....files import writing
from ....files.output.output_paths import folder_of
from ....files.output.publishing import publish
from ..records import PlanFacts
from . import c_form, json_form, picture
from .metadata import annotate


def save_plan(plan: PlanFacts, folder: str | bytes | os.PathLike[str], *, html: bool, prefix: str) -> None:
    """Write a plan's files; see `Plan.save`.

    Raises:
        UsageError: the prefix is not a C identifier.
        ModelFileError: the folder cannot be written.
    """
    c_form.check_prefix(prefix)
    folder_path = folder_of(folder)
    texts: dict[str, str | bytes] = {
        "plan.json": json_form.to_json(plan),
        json_form.SCHEMA: json_form.schema(),
        "plan.svg": picture.svg(plan),
    }
    if html:
        texts["plan.html"] = picture.html(plan)
    if plan.peak is not None:
        texts["plan.h"] = c_form.header(plan, prefix)
        texts["plan.bin"] = c_form.binary(plan)
    for name, text in texts.items():
        write_file(folder_path / name, text.encode() if isinstance(text, str) else text)
    if plan.model is not None:
        writing.save(annotate(plan), folder_path / "model.onnx")


def write_file(path: pathlib.Path, content: bytes) -> None:
    """Write a file atomically: it appears completely or not at all."""
    publish(path, lambda file, _: file.write(content))
