"""`load_session`: opens a session with packed weights if they are valid, else with plain ones."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....registration import InferenceError, PrepackError, UsageError
from ....registration.warning import warn
from ...files.output.locks import lock_folder
from ...running.sessions.checked_session import checked_session_class
from ...running.sessions.session import Providers, open_session, session_options
from . import environment
from .manifest import MANIFEST, PACKED, PLAIN, PROVIDERS, VERIFICATIONS, Manifest, PrepackStatus
from .repacking import NOTHING_TO_PACK, can_help, has_nothing_to_pack, lock_packing, repack
from .verified_files import VerifiedFiles

if TYPE_CHECKING:
    import onnxruntime

ON_MISMATCH = ("fallback", "error", "repack")
MEMORY = ("auto", "fast", "low")
_COMPARES_PACKED_WEIGHTS = (1, 32)
"""The first onnxruntime version that compares packed weights in a file with those that it would pack."""


def load_session(
    path: str | bytes | os.PathLike[str],
    *,
    memory: str = "auto",
    providers: Providers | None = None,
    session_options: onnxruntime.SessionOptions | None = None,
    on_mismatch: str = "fallback",
    verify: str | None = None,
) -> onnxruntime.InferenceSession:
    """Open a folder that `save(..., prepack=True)` or `opsetta prepack` wrote, or an ONNX file.

    Args:
        path: the folder, or the file.
        memory: `"fast"` uses the packed weights of a folder, or lets onnxruntime pack the plain ones. `"low"`
            reads plain weights as they are, mapped if they are external data, without packing: runs take
            longer. `"auto"` uses packed weights if they are valid, else behaves like `"low"`.
        providers: execution providers, as for `onnxruntime.InferenceSession`; by default the CPU's.
        session_options: an `onnxruntime.SessionOptions`, which is not changed. For `"low"`, its entry
            `session.disable_prepacking` must be `"1"`.
        on_mismatch: what to do if the packed weights are not valid. `"fallback"` warns once and uses the
            plain model; `"error"` raises. `"repack"` packs the plain weights and stores them in the folder:
            the first start in an environment takes longer, and later starts use them. Processes that start
            together wait for the first one. If the folder cannot be written, it behaves like `"fallback"`.
        verify: `"size"` compares the sizes of files, and leaves it to onnxruntime to compare packed weights
            with those that it packs. `"full"` also compares the SHA-256 of every file of the folder, which
            takes about 1 s per GB, once until the file changes or the computer restarts. By default
            `"size"`, but `"full"` with onnxruntime before 1.32, which compares nothing.

    Returns:
        An `onnxruntime.InferenceSession`. Its attribute `prepack_status` is a `PrepackStatus`. Its methods
        `run`, `run_async` and `run_with_ort_values` raise DimensionError for sizes for which the model is not
        valid.

    Raises:
        UsageError: an argument has an unknown value or a wrong type.
        PrepackError: the plain model is not the one that was saved, or `on_mismatch` is `"error"` and the
            packed weights are not valid here; or `path` is a file, and `memory` is `"fast"`.
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    check_choice("memory", memory, MEMORY)
    check_choice("on_mismatch", on_mismatch, ON_MISMATCH)
    if verify is not None:
        check_choice("verify", verify, VERIFICATIONS)
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise UsageError(f"path must be a path, not {type(path).__name__}")
    model_path = pathlib.Path(os.fsdecode(path))
    options = _check_options(session_options, memory)
    providers_used: Providers = list(providers) if providers is not None else list(PROVIDERS)

    if model_path.is_file():
        if memory == "fast":
            raise PrepackError(
                f"'{model_path}' is a file, which has no packed weights: memory='fast' needs a folder from "
                "save(..., prepack=True)"
            )
        status = PrepackStatus(False, reason="a file has plain weights")
        options = _unpacked_options(session_options)
        return _open(model_path, options, providers_used, status)
    if not model_path.is_dir():
        raise PrepackError(f"there is no file and no folder '{model_path}'")
    import onnxruntime

    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    level = verify or ("size" if version >= _COMPARES_PACKED_WEIGHTS else "full")
    status = _locked_status(model_path, options, providers_used, level, memory)
    if not status.used and on_mismatch == "repack" and memory != "low":
        status = _repack(model_path, options, providers_used, level, status)
    if status.used:
        try:
            return _open(model_path / PACKED, options, providers_used, status)
        # onnxruntime may refuse packed weights although the fingerprint matches; the plain model still runs.
        except InferenceError as error:
            status = PrepackStatus(False, reason=str(error))
    if memory != "low" and (on_mismatch != "repack" or status.reason != NOTHING_TO_PACK):
        message = f"packed weights of '{model_path}' are not used: {status.reason}"
        if on_mismatch == "error":
            raise PrepackError(message)
        warn(message, UserWarning)
    if memory != "fast":
        options = _unpacked_options(session_options)
    return _open(model_path / PLAIN, options, providers_used, status)


def _check_options(options: object, memory: str) -> onnxruntime.SessionOptions:
    """Return the caller's options, or new ones.

    Raises:
        UsageError: the options have a wrong type, or let onnxruntime pack weights although memory is `"low"`.
    """
    new_options = session_options()
    if options is None:
        return new_options
    if not isinstance(options, type(new_options)):
        raise UsageError(f"session_options must be onnxruntime.SessionOptions, not {type(options).__name__}")
    key = environment.PACKING_ENTRY
    if memory == "low" and environment.session_entries(options).get(key) != "1":
        raise UsageError(
            f"memory='low' needs session_options with the entry {key}: call "
            f"add_session_config_entry('{key}', '1')"
        )
    return options


def _unpacked_options(
    options: onnxruntime.SessionOptions | None,
) -> onnxruntime.SessionOptions:
    """Return the caller's options unchanged, or new ones that disable packing, so weights stay mapped."""
    if options is not None:
        return options
    new_options = session_options()
    new_options.add_session_config_entry(environment.PACKING_ENTRY, "1")
    return new_options


def _locked_status(
    folder: pathlib.Path,
    options: onnxruntime.SessionOptions,
    providers: Sequence[object],
    verify: str,
    memory: str,
) -> PrepackStatus:
    # A save into the folder must not replace files between the checks of two of them.
    with lock_folder(folder):
        return _status(folder, options, providers, verify, memory)


def _repack(
    folder: pathlib.Path,
    options: onnxruntime.SessionOptions,
    providers: Sequence[object],
    verify: str,
    status: PrepackStatus,
) -> PrepackStatus:
    """Pack the weights of a folder for this environment, unless another process has just done so.

    Args:
        status: the status before packing.

    Returns:
        The status afterwards.

    Raises:
        PrepackError: the plain model is not the one that was saved.
    """
    current = environment.session(options, providers, options.graph_optimization_level.name)
    default_level = session_options().graph_optimization_level.name
    if not can_help(current, default_level):
        reason = f"{status.reason}; packing them again does not help, because the caller's options differ"
        return dataclasses.replace(status, reason=reason)
    if has_nothing_to_pack(folder, current):
        return PrepackStatus(False, reason=NOTHING_TO_PACK)
    try:
        with lock_packing(folder):
            after_waiting = _locked_status(folder, options, providers, verify, "fast")
            if after_waiting.used:
                return after_waiting
            if has_nothing_to_pack(folder, current):
                return PrepackStatus(False, reason=NOTHING_TO_PACK)
            failure = repack(folder, default_level)
    except PrepackError as error:
        return dataclasses.replace(status, reason=f"{status.reason}; {error}")
    if failure is not None:
        reason = failure if failure == NOTHING_TO_PACK else f"{status.reason}; {failure}"
        return dataclasses.replace(status, reason=reason)
    repacked = _locked_status(folder, options, providers, verify, "fast")
    return dataclasses.replace(repacked, notes=(*repacked.notes, f"packed again: {status.reason}"))


def _status(
    folder: pathlib.Path,
    options: onnxruntime.SessionOptions,
    providers: Sequence[object],
    verify: str,
    memory: str,
) -> PrepackStatus:
    """Determine whether the packed weights of a folder are valid in this process.

    Raises:
        PrepackError: the plain model is not the one that was saved.
    """
    try:
        manifest = Manifest.from_folder(folder)
    except PrepackError as error:
        if not (folder / PLAIN).is_file():
            raise PrepackError(f"'{folder}' is not a prepacked folder: it has no '{PLAIN}'") from error
        return PrepackStatus(False, reason=str(error))
    digest_of = VerifiedFiles(folder).digest_of
    # A damaged plain model is always an error, because it is the fallback.
    for record in manifest.plain:
        problem = record.problem(folder, verify, digest_of)
        if problem is not None:
            raise PrepackError(f"{problem}; '{MANIFEST}' describes another model: save it again")
    # `damage` raises an error for weights that the plain model reads too.
    damage = manifest.damage(folder, verify, digest_of)
    if memory == "low":
        return PrepackStatus(False, reason="memory='low' uses the plain weights")
    current = environment.session(options, providers, options.graph_optimization_level.name)
    different = tuple(environment.differences(manifest.fingerprint, current))
    if different:
        return PrepackStatus(False, different, ", ".join(map(str, different)))
    if damage is not None:
        return PrepackStatus(False, reason=damage)
    notes = environment.advisory(manifest.fingerprint, current)
    return PrepackStatus(True, notes=tuple(map(str, notes)))


def _open(
    path: pathlib.Path,
    options: onnxruntime.SessionOptions,
    providers: Providers,
    status: PrepackStatus,
) -> onnxruntime.InferenceSession:
    opened = open_session(os.fspath(path), f"'{path}'", providers, options, checked_session_class())
    opened.prepack_status = status
    return opened


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise UsageError if a value is not allowed; the message names the argument."""
    if value not in allowed:
        raise UsageError(f"{name} must be {' or '.join(map(repr, allowed))}, not {value!r}")
