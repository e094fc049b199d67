"""The output of a command: its model and its messages; only one of them uses standard output."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TextIO, Union, cast

from ....registration import ModelFileError
from ....registration.printable import printable
from ...files.output.output_paths import ResolvedPath, Stream, reason, resolve, write_into

if TYPE_CHECKING:
    from ...onnx_model import OnnxModel
    from ...program import Program

_STANDARD_OUTPUT = "-"


def say(text: object, end: str = "\n") -> None:
    """Print a line, or a part of one, that may contain names from a file."""
    print(printable(str(text)), end=end, flush=not end)


class Written:
    """The output of a writing function, with the method `save` of a model.

    Args:
        write: writes all of it to a binary file object.
    """

    def __init__(self, write: Callable[[IO[bytes]], None]):
        self._write = write

    def save(self, target: pathlib.Path | Stream, *, external_data: bool | None = None) -> None:
        """Write to a path, completely or not at all, or to a stream."""
        if isinstance(target, Stream):
            self._write(cast("IO[bytes]", target))
        else:
            from ...files.output.publishing import publish

            publish(target, lambda file, location: self._write(file))


Savable = Union["Program", "OnnxModel", Written]
"""What a command writes."""


class Output:
    """The `-o` of a command: a path, or `-` for standard output.

    Raises:
        ModelFileError: the output cannot be written.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._count: int | None = None
        self._target: ResolvedPath | None = None
        self._stdout: TextIO | None = None
        if str(path) == _STANDARD_OUTPUT:
            # pythonw has no standard output, and a captured one may have no bytes.
            if sys.stdout is None or not hasattr(sys.stdout, "buffer"):
                raise ModelFileError("standard output is closed")
            if sys.stdout.isatty():
                raise ModelFileError(
                    "standard output is a terminal, and a model is not text: redirect it, or pass a "
                    "file with -o"
                )
            # `sys.stdout` is redirected while the user's code runs.
            self._stdout = sys.stdout
        else:
            self._target = resolve(path)

    def save(self, model: Savable, external_data: bool | None, **options: Any) -> None:
        """Write a model with its `save` method, and further options of it."""
        if self._stdout is not None:
            try:
                # Text that was printed before must not come in the middle of the model.
                self._stdout.flush()
                buffer = self._stdout.buffer
                self._write(model, external_data, Stream(getattr(buffer, "raw", buffer).write), options)
            except OSError as error:
                if isinstance(error, ModelFileError):
                    raise
                raise ModelFileError(f"standard output cannot be written: {reason(error)}") from error
        elif self._target is not None and self._target.is_stream:
            write_into(self._target, lambda stream: self._write(model, external_data, stream, options))
        else:
            model.save(self._path, external_data=external_data, **options)

    def _write(self, model: Any, external_data: bool | None, stream: Stream, options: dict[str, Any]) -> None:
        model.save(stream, external_data=external_data, **options)
        self._count = stream.count

    @property
    def size(self) -> int:
        """The size of the file in bytes, with the data file that was written beside it."""
        from ...files.output.data_names import data_bytes

        return self._path.stat().st_size + data_bytes(self._path) if self._count is None else self._count

    def report(self, facts: dict[str, object], text: str, *, as_json: bool) -> None:
        """Print the result, to standard error if the model is on standard output."""
        print(
            json.dumps(facts, indent=2) if as_json else printable(text),
            file=sys.stderr if self._is_standard_output() else sys.stdout,
        )

    def _is_standard_output(self) -> bool:
        if self._target is None:
            return True
        # `-o /dev/stdout` is standard output under another name.
        if not self._target.is_stream or self._target.status is None:
            return False
        try:
            return os.path.samestat(self._target.status, os.fstat(1))
        except OSError:
            return False
