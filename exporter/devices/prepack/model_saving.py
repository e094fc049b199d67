"""Writes a model to a file, or prepacked to a folder."""

from __future__ import annotations

import os
from typing import IO

import onnx_ir as ir

from ....registration import UsageError
from ...files import writing
from ...files.garbage_collection import rare_collections


@rare_collections()
def save(
    model: ir.Model,
    target: str | bytes | os.PathLike[str] | IO[bytes],
    external_data: bool | str | os.PathLike[str] | None,
    prepack: bool,
    layout: str,
    weights: str = "copy",
) -> None:
    """Write a model to a file, or to a folder with packed weights; see `Program.save`."""
    if prepack:
        if weights != "copy":
            raise UsageError(
                f"prepack=True copies the weights, and cannot be combined with weights={weights!r}"
            )
        # Most models are written to a file.
        from .saving import save_prepacked

        save_prepacked(model, target, layout=layout, external_data=external_data)
    elif layout != "portable":
        raise UsageError(f"layout={layout!r} needs prepack=True")
    else:
        writing.save(model, target, external_data=external_data, weights=weights)
