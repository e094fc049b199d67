"""Writes a folder that a C compiler turns into a program: a model for a device, and the runtime in C."""

from __future__ import annotations

import importlib.resources
import os

from ....files.output.output_paths import folder_of
from ..forms.saving import write_file
from ..records import PlanFacts
from .plan_files import plan_file_contents

SOURCES = (
    *("main.c", "opsetta_runtime.c", "opsetta_runtime.h", "operators.c", "kernels.h", "control.c"),
    *("elementwise.c", "matrices.c", "movement.c", "planes.c", "recurrent.c"),
    *("reductions.c", "windows.c"),
)
# Only x86 has -mprefer-vector-width. -std=c99 alone forbids fused multiply-add, so -ffp-contract allows it.
_MAKEFILE = """CFLAGS ?= -O3 -march=native -ffp-contract=fast \\
\t$(shell $(CC) -mprefer-vector-width=512 -E -x c /dev/null >/dev/null 2>&1 && echo -mprefer-vector-width=512)
app: $(wildcard *.c *.h)
\t$(CC) -std=c99 -Wall -Wextra $(CFLAGS) -o $@ $(wildcard *.c) -lm
"""


def build_application(plan: PlanFacts, folder: str | bytes | os.PathLike[str]) -> None:
    """Write `model.plan`, `model.weights`, the runtime, a program for it and a makefile.

    Raises:
        PlanError: the plan has no sizes, or the runtime does not support all nodes; the message lists them.
        ModelFileError: the folder cannot be written.
    """
    plan_bytes, weights = plan_file_contents(plan)
    folder_path = folder_of(folder)
    files = {"model.plan": plan_bytes, "model.weights": weights, "Makefile": _MAKEFILE.encode()}
    runtime = importlib.resources.files(__package__).joinpath("runtime")
    files |= {name: runtime.joinpath(name).read_bytes() for name in SOURCES}
    for name, content in files.items():
        write_file(folder_path / name, content)
