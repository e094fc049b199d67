"""Writes the models' files by opsetta and by torch.onnx's exporters, with inputs and eager results."""

from __future__ import annotations

import contextlib
import io
import logging
import pathlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

import opsetta

from .consumers import TARGETS
from .models import build

OPSET = 17
WRITERS = {
    "opsetta": f"opset {OPSET}",
    "target": "opsetta, target= of the consumer",
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
    """Write a file with an exporter of torch.onnx. A new model each time: tracing changes some."""
    model, inputs = build(name)
    args, names = tuple(inputs.values()), list(inputs)
    if writer == "dynamo":
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


def path_of(folder: pathlib.Path, model: str, writer: str, consumer: str) -> pathlib.Path:
    """The file that a writer makes of a model for a consumer; only those of targets differ between them."""
    target = f"-{TARGETS.get(consumer, 'none')}" if writer == "target" else ""
    return folder / f"{stem(model)}-{writer}{target}.onnx"


def outputs_of(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a result, which is one tensor or several of them."""
    values = result if isinstance(result, tuple | list) else (result,)
    return tuple(value for value in values if isinstance(value, torch.Tensor))


def write(
    name: str, folder: pathlib.Path, writers: list[str], consumers: Iterable[str] = (), opset: int = OPSET
) -> list[str]:
    """Write one model with each writer, its inputs and its results; what could not be written comes back.

    Args:
        name: the model's name.
        folder: the folder of the files.
        writers: names of `WRITERS`.
        consumers: the consumers for whose targets the writer "target" makes files. The error of a target that
            refuses the model is in a file with the suffix `.refused`.
        opset: the opset of the files; torch's exporters may write another.
    """
    problems = []
    model, inputs = build(name)
    with torch.no_grad():
        result = model(*inputs.values())
    np.savez(folder / f"{stem(name)}-inputs.npz", **{key: value.numpy() for key, value in inputs.items()})
    np.savez(folder / f"{stem(name)}-expected.npz", *(value.numpy() for value in outputs_of(result)))
    if {"opsetta", "target"} & set(writers):
        problems += _write_with_opsetta(name, folder, writers, consumers, opset)
    for writer in (name for name in writers if name in ("dynamo", "torchscript")):
        path = folder / f"{stem(name)}-{writer}.onnx"
        path.unlink(missing_ok=True)
        try:
            with silent():
                _export(writer, name, path, opset)
        except Exception as error:
            path.unlink(missing_ok=True)
            problems.append(_problem(name, writer, error))
    return problems


def _write_with_opsetta(
    name: str, folder: pathlib.Path, writers: list[str], consumers: Iterable[str], opset: int
) -> list[str]:
    """Capture a model once, and write the plain file and those of the targets."""
    problems = []
    files: dict[pathlib.Path, str | None] = {}
    if "opsetta" in writers:
        files[path_of(folder, name, "opsetta", "")] = None
    if "target" in writers:
        files |= {path_of(folder, name, "target", key): TARGETS[key] for key in consumers if key in TARGETS}
    for path in files:
        path.unlink(missing_ok=True)
        path.with_suffix(".refused").unlink(missing_ok=True)
    model, inputs = build(name)
    try:
        with silent():
            program = opsetta.export(model, tuple(inputs.values()), opset=opset, input_names=list(inputs))
    except Exception as error:
        return [_problem(name, "opsetta", error)]
    for path, target in files.items():
        try:
            with silent():
                (program if target is None else program.lower(target=target)).save(path)
        except Exception as error:
            problems.append(_problem(name, f"target {target}", error))
            path.with_suffix(".refused").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
    return problems


def _problem(model: str, writer: str, error: Exception) -> str:
    return f"{model}, {writer}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
