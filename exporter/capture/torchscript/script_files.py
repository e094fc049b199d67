"""Loads files of `torch.jit.save` and `torch.export.save`, and describes files of other kinds in errors."""

from __future__ import annotations

import itertools
import os
import pickletools
import zipfile
from collections.abc import Iterator
from typing import IO

import torch

from ....registration import CaptureError
from ....registration.printable import one_line, printable
from ...files.reading.encodings.other_formats import describe_format
from ...files.small_files import open_regular, reason_of
from ...files.zip_entries import oversized_entry
from ...torch_boundary.pickles import is_of_tensors
from ...torch_boundary.state.saved_programs import load_program
from .program_nesting import MAXIMUM_NESTING, nests_deeply, pickle_excess

_MAXIMUM_OPERATIONS = 2**18
"""How many operations of a pickle are read: its beginning shows its contents. Bounds hostile files."""


_EXPORTED_PROGRAM = "is a file of torch.export.save"


def load(path: str | os.PathLike[str]) -> torch.jit.ScriptModule | torch.export.ExportedProgram:
    """Load a file that `torch.jit.save` or `torch.export.save` wrote; TorchScript onto the CPU.

    Raises:
        CaptureError: it is not such a file; the message names its format, if recognised.
    """
    name = os.fspath(path)
    if not os.path.exists(name):
        raise CaptureError(f"there is no file '{name}'")
    if os.path.isdir(name):
        folder_format = describe_format(name) or "a folder, not a file that torch.jit.save wrote"
        raise CaptureError(f"'{name}' is {folder_format}")
    # torch's own loader ends the process for some damaged files, and says little about files of other kinds.
    description = _other_kind(name)
    if description == _EXPORTED_PROGRAM:
        try:
            return load_program(name)
        # The loader raises errors of many types for programs of other releases of torch.
        except Exception as error:
            raise CaptureError(f"torch.export.load cannot read '{name}': {one_line(error)}") from error
    if description is not None:
        raise CaptureError(f"'{name}' {description}")
    try:
        result: torch.jit.ScriptModule = torch.jit.load(name, map_location="cpu")
        return result
    except (RuntimeError, ValueError, EOFError) as error:
        first = " ".join(str(error).strip().splitlines()[:1])
        raise CaptureError(f"'{name}' is not a file that torch.jit.save wrote: {first}") from error


def _other_kind(name: str) -> str | None:
    """Describe a file that is not TorchScript, with a remedy; None if it may be TorchScript."""
    try:
        with open_regular(name) as file:
            return _kind_of_archive(file, name) if zipfile.is_zipfile(file) else _kind_of_stream(file, name)
    except OSError as error:
        return f"cannot be read: {reason_of(error)}"
    except (zipfile.BadZipFile, ValueError):
        return None


def _kind_of_archive(file: IO[bytes], name: str) -> str | None:
    with zipfile.ZipFile(file) as archive:
        large = oversized_entry(archive, os.fstat(file.fileno()).st_size)
        if large is not None:
            return large
        names = {entry.partition("/")[2] or entry: entry for entry in archive.namelist()}
        if "constants.pkl" in names:
            return _excess_of_program(archive)
        if "archive_format" in names or any(
            "exported_program" in n or n.endswith("model.json") for n in names
        ):
            return _EXPORTED_PROGRAM
        if "data.pkl" not in names:
            return f"is {describe_format(name)}"
        with archive.open(names["data.pkl"]) as pickled:
            return _kind_of_pickle(pickled)


def _excess_of_program(archive: zipfile.ZipFile) -> str | None:
    """Describe an entry that PyTorch cannot read, and which would end the process."""
    for entry in archive.infolist():
        excess = ""
        if entry.filename.endswith(".py") and nests_deeply(archive.read(entry).decode(errors="replace")):
            excess = f"nests expressions or statements more than {MAXIMUM_NESTING} deep"
        if entry.filename.endswith(".pkl"):
            with archive.open(entry) as file:
                excess = pickle_excess(file)
        if excess:
            return f"has an entry '{printable(entry.filename)[:100]}' that {excess}"
    return None


def _kind_of_stream(file: IO[bytes], name: str) -> str | None:
    file.seek(0)
    first = file.read(2)
    # Pickles begin with the opcode of the protocol and its number, at most 5.
    if first[:1] != b"\x80" or len(first) < 2 or first[1] > 5:
        other_format = describe_format(name)
        if other_format is not None:
            return f"is {other_format}"
        return (
            "is not a file that torch.jit.save wrote; to convert a file of ONNX, TensorFlow or Caffe2, use "
            f"`opsetta convert` or opsetta.load({name!r}).lower(opset)"
        )
    file.seek(0)
    # Files of torch.save before its archives: a number, a version, and the machine come first.
    for _ in range(3):
        for _ in itertools.islice(pickletools.genops(file), _MAXIMUM_OPERATIONS):
            pass
    return _kind_of_pickle(file)


def _kind_of_pickle(file: IO[bytes]) -> str:
    foreign = [name for name in _classes(file) if not _is_of_tensors(name)]
    if foreign:
        return (
            f"holds a pickled object ({foreign[0]}), not TorchScript: load it where its class can be "
            "imported, and export it, or torch.jit.save what torch.jit.script or torch.jit.trace makes of it"
        )
    return (
        "contains tensors and no program, like a state_dict: load them into their module (load_state_dict) "
        "and export the module"
    )


def _classes(file: IO[bytes]) -> Iterator[str]:
    """The functions and classes that a pickle names; nothing is imported."""
    texts: list[str] = []
    for opcode, argument, _ in itertools.islice(pickletools.genops(file), _MAXIMUM_OPERATIONS):
        if opcode.name == "GLOBAL":
            yield str(argument).replace(" ", ".")
        elif opcode.name == "STACK_GLOBAL":
            yield ".".join(texts[-2:])
        elif isinstance(argument, str):
            texts.append(argument)


def _is_of_tensors(name: str) -> bool:
    module, _, base_name = name.rpartition(".")
    if name == "collections.OrderedDict" or module == "builtins" or is_of_tensors(name):
        return True
    return module == "torch" and base_name != "nn"
