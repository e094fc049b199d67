"""Writes the models' files by opsetta and by torch.onnx's exporters, with inputs and eager results."""

from __future__ import annotations

import contextlib
import io
import logging
import pathlib
import warnings
from collections.abc import Iterator

import numpy as np
import torch

import opsetta

from .models import build

OPSET = 17
WRITERS = {
    "opsetta": f"opset {OPSET}",
    "dynamo": "torch.onnx.export(dynamo=True), opset 18",
    "torchscript": f"torch.onnx.export(dynamo=False), opset {OPSET}",
}


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Neither warnings nor logs nor prints while a file is written."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(io.StringIO()):
                yield
    finally:
        logging.disable(previous)


def _export(writer: str, name: str, path: pathlib.Path, opset: int) -> None:
    """A new model each time: tracing changes some."""
    model, inputs = build(name)
    args, names = tuple(inputs.values()), list(inputs)
    if writer == "opsetta":
        opsetta.export(model, args, opset=opset, input_names=names).save(path)
    elif writer == "dynamo":
        torch.onnx.export(
            model,
            args,
            path,
            dynamo=True,
            external_data=False,
            input_names=names,
            opset_version=max(18, opset),
        )
    else:
        torch.onnx.export(model, args, path, dynamo=False, input_names=names, opset_version=min(20, opset))


def export_silently(name: str, path: pathlib.Path, opset: int | None, target: str) -> str:
    """Write a model for a target with opsetta; the error's text if it is refused."""
    path.unlink(missing_ok=True)
    model, inputs = build(name)
    try:
        with silent():
            arguments = tuple(inputs.values())
            opsetta.export(model, arguments, opset=opset, target=target, input_names=list(inputs)).save(path)
    except opsetta.OpsettaError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def stem(name: str) -> str:
    """A model's name as the beginning of a file's."""
    return name.lower().replace(" ", "_")


def write(name: str, folder: pathlib.Path, writers: list[str], opset: int = OPSET) -> list[str]:
    """Write one model with each writer, its inputs and its results; what could not be written comes back."""
    problems = []
    model, inputs = build(name)
    with torch.no_grad():
        expected = model(*inputs.values())
    np.savez(folder / f"{stem(name)}-inputs.npz", **{key: value.numpy() for key, value in inputs.items()})
    np.savez(folder / f"{stem(name)}-expected.npz", expected.numpy())
    for writer in writers:
        path = folder / f"{stem(name)}-{writer}.onnx"
        path.unlink(missing_ok=True)
        try:
            with silent():
                _export(writer, name, path, opset)
        except Exception as error:
            path.unlink(missing_ok=True)
            problems.append(f"{name}, {writer}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return problems
