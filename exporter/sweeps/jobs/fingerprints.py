"""Fingerprints: digests of everything that the results of a job depend on."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import pathlib

from ...devices.targets.load_target import load_target
from ...files.digests import file_digest, short_digest
from ..rows import NO_TARGET, Job
from .settings import Settings

_PACKAGE = pathlib.Path(__file__).parents[3]
_FLOORS = ("registration", "symbolics", "passes", "exporter", "torch_onnx")
_LIBRARIES = ("torch", "onnx", "onnx-ir", "onnxruntime", "numpy")


def fingerprint(job: Job, model: str, settings: Settings) -> str:
    """A digest of the model, the target, the settings, and of the versions of opsetta and of libraries.

    Args:
        model: the digest of the model's files.
    """
    target = "" if job.target == NO_TARGET else repr(load_target(job.target))
    parts = [model, target, repr(settings), package_digest(), *map(_version, _LIBRARIES)]
    return short_digest([json.dumps(parts)])


@functools.cache
def package_digest() -> str:
    """A digest of opsetta's own source, which changes between releases of the same version too."""
    files = [file for floor in _FLOORS for file in (_PACKAGE / floor).rglob("*.py")]
    return short_digest(
        f"{file.relative_to(_PACKAGE).as_posix()} {file_digest(file)}" for file in sorted(files)
    )


@functools.cache
def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""
