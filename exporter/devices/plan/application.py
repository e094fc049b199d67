"""Writes a folder that a C compiler turns into a program: a model for a device, and the runtime in C."""

from __future__ import annotations

import importlib.resources
import os
import re
from collections import Counter

from ....registration import PlanError
from ...files.targets import folder_of
from .device_form import device_form
from .records import PlanFacts
from .saving import write_file

SOURCES = ("main.c", "opsetta_runtime.c", "opsetta_runtime.h")
_MAKEFILE = """CFLAGS ?= -O2
app: main.c opsetta_runtime.c opsetta_runtime.h
\t$(CC) -std=c99 -Wall -Wextra $(CFLAGS) -o $@ main.c opsetta_runtime.c -lm
"""


def supported_operators() -> frozenset[str]:
    """The operators of the runtime, from its own table."""
    table = _source("opsetta_runtime.c").partition("OPERATORS[] = {")[2].partition("};")[0]
    return frozenset(re.findall(r'\{"(\w+)", run_', table))


def build_application(plan: PlanFacts, folder: str | bytes | os.PathLike[str]) -> None:
    """Write `model.plan`, `model.weights`, the runtime, a program for it and a makefile.

    Raises:
        PlanError: the plan has no sizes, or the runtime lacks operators of the model; lists all of them.
        ModelFileError: the folder cannot be written.
    """
    operators = supported_operators()
    # A view computes nothing, and the values of constants are in the file.
    missing = Counter(
        node.op_type
        for node in plan.nodes
        if not node.view and node.op_type not in operators and node.op_type != "Constant"
    )
    if missing:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        raise PlanError(f"the runtime in C has no kernels for {listed}")
    plan_bytes, weights = device_form(plan)
    folder_path = folder_of(folder)
    files = {"model.plan": plan_bytes, "model.weights": weights, "Makefile": _MAKEFILE.encode()}
    files |= {name: _source(name).encode() for name in SOURCES}
    for name, content in files.items():
        write_file(folder_path / name, content)


def _source(name: str) -> str:
    runtime = importlib.resources.files(__package__).joinpath("runtime")
    return runtime.joinpath(name).read_text(encoding="utf-8")
