"""Packs the plain weights of a folder again if its packed weights are not valid in this environment."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator

from ....registration import OpsettaError, PrepackError
from ...files.output.locks import Lock, acquire, release
from ...running.sessions.session import session_options
from ..file_records import read_signed, sign_json
from . import environment
from .manifest import MANIFEST, PLAIN, PROVIDERS, UNPACKED, Manifest

NOTHING_TO_PACK = "onnxruntime packs no weight of this model"
_FORMAT = 1
_PATIENCE = 600.0
"""Seconds to wait for another process, which may pack gigabytes."""


def can_help(current: environment.Fingerprint, level: str) -> bool:
    """Whether packing again can make the packed weights valid: not if the caller's own options prevent it."""
    return not environment.differences(environment.session(session_options(), PROVIDERS, level), current)


def has_nothing_to_pack(folder: pathlib.Path, current: environment.Fingerprint) -> bool:
    """Whether an earlier start recorded that this environment packs no weight of the model."""
    try:
        record = read_signed(folder / UNPACKED, _FORMAT, PrepackError)
        return not environment.differences(record["fingerprint"], current)
    except (FileNotFoundError, PrepackError, LookupError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def lock_packing(folder: pathlib.Path) -> Iterator[None]:
    """Lock the packing of a folder's weights for this process, within the context.

    Raises:
        PrepackError: another process has been packing for ten minutes; or the model cannot be opened.
    """
    try:
        # Locks the model file, not the folder, which every `load_session` locks for a moment.
        descriptor = os.open(folder / PLAIN, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise PrepackError(f"'{folder / PLAIN}' cannot be opened: {error.strerror}") from error
    try:
        # On a system without locks several processes may pack at once; the last one's files stay.
        if acquire(descriptor, wait=True, patience=_PATIENCE) is Lock.BUSY:
            raise PrepackError(f"another process packs the weights of '{folder}'")
        yield
    finally:
        release(descriptor)
        os.close(descriptor)


def repack(folder: pathlib.Path, level: str) -> str | None:
    """Pack the plain weights of a folder for this environment, and store them in the folder.

    Args:
        level: the graph optimization level of the sessions that will use them.

    Returns:
        The reason why there are no packed weights now; None if there are.
    """
    # Imported here, because they take long to import and a valid folder needs none of them.
    from ...files.reading import ModelFolder, bounds_of, map_external_data, read_model, to_ir
    from .saving import save_prepacked

    path = folder / PLAIN
    try:
        try:
            layout = Manifest.from_folder(folder).layout
        except PrepackError:
            layout = "portable"
        model_folder, bounds = ModelFolder.of(path), bounds_of(True)
        model = to_ir(read_model(path, bounds), model_folder, bounds)
        map_external_data(model, model_folder)
        save_prepacked(model, folder, layout=layout)
    except OpsettaError as error:
        return f"packing them here failed: {error}"
    if (folder / MANIFEST).exists():
        return None
    fingerprint = environment.session(session_options(), PROVIDERS, level)
    with contextlib.suppress(OSError):
        # The record tells later starts that packing has no effect.
        (folder / UNPACKED).write_bytes(sign_json({"format": _FORMAT, "fingerprint": fingerprint}))
    return NOTHING_TO_PACK
