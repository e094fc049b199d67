"""The same as `python -m tests.fuzz`, with inputs that atheris finds by the branches that they take.

    pip install atheris
    python -m tests.fuzz.guided FOLDER [-max_total_time=SECONDS] [other options of libFuzzer]

FOLDER keeps the inputs between runs; an empty one is filled with the corpus. What fails is written to the
current folder as `crash-*`, and is run again by giving its path. atheris is not among what the project needs.
"""

from __future__ import annotations

import hashlib
import logging
import pathlib
import resource
import sys
import tempfile
import warnings

import atheris

with atheris.instrument_imports(include=["opsetta.exporter.files.reading", "opsetta.exporter.files.summary"]):
    from . import cases


def main() -> None:
    """Fill an empty folder, and hand over to libFuzzer."""
    warnings.simplefilter("ignore")
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (cases.MEMORY, cases.MEMORY))
    with tempfile.TemporaryDirectory(prefix="opsetta-fuzz-") as root:
        setting = cases.Setting(pathlib.Path(root))
        for folder in (pathlib.Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")):
            if folder.is_dir() and not any(folder.iterdir()):
                for data in setting.files:
                    (folder / hashlib.sha256(data).hexdigest()).write_bytes(data)

        def read(data: bytes) -> None:
            end, problem = cases.run_data(setting, data)
            if problem:
                raise AssertionError(f"{end}: {problem}")

        atheris.Setup([*sys.argv, f"-timeout={cases.SECONDS:.0f}"], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
