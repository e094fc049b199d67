"""Runs the program of a document in a process and a folder of its own.

The processes import this module by its name, which they cannot do with a module that pytest loads.
"""

import multiprocessing
import os
import pathlib
import runpy
import shlex
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent

_FORKS = multiprocessing.get_context("forkserver")
# Importing takes longer than most documents; the processes that run them are forks of one that has done it.
_FORKS.set_forkserver_preload(
    [
        "networkx",  # torch imports it late.
        "onnxruntime",
        "torch.export",
        "torch.fx.experimental.symbolic_shapes",
        "opsetta.symbolics",
        "opsetta.exporter.export_model",
        "opsetta.exporter.capture.direct.recording",
        "opsetta.exporter.running.comparisons.verification",
        "opsetta.exporter.torch_boundary.recording.recorder",
    ]
)


def opsetta_command(arguments: list[str]) -> None:
    from opsetta.exporter.command_line import cli

    code = None
    try:
        cli.main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert not code, f"opsetta {shlex.join(arguments)}: {code}"


def run(script: pathlib.Path, output: pathlib.Path) -> None:
    """Run a program in its folder, in this new process."""
    os.chdir(script.parent)
    # The folder of a script is where Python looks for modules first.
    sys.path[:0] = [str(script.parent), str(ROOT)]
    # Libraries in C write to the descriptors, so those are redirected, and not only Python's streams.
    with output.open("wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, closefd=False)
    # This process ends with an exit code; the traceback is for the one that reads the log.
    try:
        runpy.run_path(str(script), {"opsetta_command": opsetta_command}, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        sys.stdout.flush()


def run_program(program: str, folder: pathlib.Path, name: str = "document.py") -> str:
    """Run a program in a process and a folder of its own; gives what it printed."""
    script, output = folder / name, folder / "document.log"
    script.write_text(program, encoding="utf-8")
    process = _FORKS.Process(target=run, args=(script, output))
    process.start()
    process.join(600)
    if process.is_alive():
        process.kill()
    said = output.read_text(encoding="utf-8") if output.exists() else ""
    assert process.exitcode == 0, said
    return said
