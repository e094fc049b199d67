"""`load_session`: opens a session with packed weights if they are valid, else with plain ones."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from ....registration import InferenceError, PrepackError, UsageError
from ....registration.warning import warn
from ...running import session
from ...running.checked_session import checked_session_class
from . import environment
from .manifest import MANIFEST, PACKED, PLAIN, VERIFICATIONS, Manifest, PrepackStatus
from .saving import PROVIDERS

ON_MISMATCH = ("fallback", "error")


def load_session(
    folder: str | bytes | os.PathLike[str],
    *,
    providers: Sequence[object] | None = None,
    session_options: object = None,
    on_mismatch: str = "fallback",
    verify: str = "full",
) -> Any:
    """Open a folder that `save(..., prepack=True)` or `opsetta prepack` wrote.

    Args:
        folder: the folder.
        providers: execution providers, as for `onnxruntime.InferenceSession`; by default the CPU's.
        session_options: an `onnxruntime.SessionOptions`.
        on_mismatch: where the packed weights are not valid, `"fallback"` warns once and takes the plain
            model, and `"error"` raises.
        verify: `"full"` compares the SHA-256 of every file, which takes about 1 s per GB. `"size"` compares
            the sizes only: wrong bytes in a packed weight then give wrong numbers.

    Returns:
        An `onnxruntime.InferenceSession`. Its attribute `prepack_status` is a `PrepackStatus`. Its methods
        `run`, `run_async` and `run_with_ort_values` raise DimensionError for sizes for which the model is not
        valid.

    Raises:
        UsageError: an argument is none of these.
        PrepackError: the plain model is not the one that was saved, or `on_mismatch` is `"error"` and the
            packed weights are not valid here.
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    check_choice("on_mismatch", on_mismatch, ON_MISMATCH)
    check_choice("verify", verify, VERIFICATIONS)
    if not isinstance(folder, (str, bytes, os.PathLike)):
        raise UsageError(f"folder must be a path, not {type(folder).__name__}")
    folder_path = pathlib.Path(os.fsdecode(folder))
    if not folder_path.is_dir():
        raise PrepackError(f"there is no folder '{folder_path}'")
    options = session.session_options()
    if session_options is not None:
        if not isinstance(session_options, type(options)):
            type_name = type(session_options).__name__
            raise UsageError(f"session_options must be onnxruntime.SessionOptions, not {type_name}")
        options = session_options
    used = list(providers) if providers is not None else list(PROVIDERS)

    status = _status(folder_path, options, used, verify)
    if status.used:
        try:
            return _open(folder_path / PACKED, options, used, status)
        # onnxruntime itself may refuse what the fingerprint lets through; the plain model still runs.
        except InferenceError as error:
            status = PrepackStatus(False, reason=str(error))
    message = f"packed weights of '{folder_path}' are not used: {status.reason}"
    if on_mismatch == "error":
        raise PrepackError(message)
    warn(message, UserWarning)
    return _open(folder_path / PLAIN, options, used, status)


def _status(folder: pathlib.Path, options: Any, providers: Sequence[object], verify: str) -> PrepackStatus:
    """Whether the packed weights of a folder are valid in this process.

    Raises:
        PrepackError: the plain model is not the one that was saved.
    """
    try:
        manifest = Manifest.from_folder(folder)
    except PrepackError as error:
        if not (folder / PLAIN).is_file():
            raise PrepackError(f"'{folder}' is not a prepacked folder: it has no '{PLAIN}'") from error
        return PrepackStatus(False, reason=str(error))
    # Without an intact plain model there is nothing to fall back to.
    for record in manifest.plain:
        problem = record.problem(folder, verify)
        if problem is not None:
            raise PrepackError(f"{problem}; '{MANIFEST}' describes another model: save it again")
    level = options.graph_optimization_level.name
    current = environment.session(options, providers, level)
    saved = manifest.fingerprint
    different = tuple(environment.differences(saved, current))
    if different:
        return PrepackStatus(False, different, f"{', '.join(map(str, different))}")
    damage = manifest.damage(folder, verify)
    if damage is not None:
        return PrepackStatus(False, reason=damage)
    return PrepackStatus(True, notes=tuple(map(str, environment.advisory(saved, current))))


def _open(path: pathlib.Path, options: Any, providers: Sequence[Any], status: PrepackStatus) -> Any:
    checked = checked_session_class()
    opened = session.open_session(os.fspath(path), f"'{path}'", providers, options, checked)
    opened.prepack_status = status
    return opened


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not allowed."""
    if value not in allowed:
        raise UsageError(f"{name} must be {' or '.join(map(repr, allowed))}, not {value!r}")
