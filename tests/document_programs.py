"""Runs the program of a document in a process and a folder of its own.

The processes import this module by its name, which they cannot do with a module that pytest loads.
"""

import contextlib
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
        "opsetta.exporter.running.verification",
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
    sys.path.insert(0, str(ROOT))
    # This process ends with an exit code; the traceback is for the one that reads the log.
    with (
        output.open("w", encoding="utf-8") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        try:
            runpy.run_path(str(script), {"opsetta_command": opsetta_command}, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=stream)
            raise SystemExit(1) from None


def run_program(program: str, folder: pathlib.Path) -> str:
    """Run a program in a process and a folder of its own; gives what it printed."""
    script, output = folder / "document.py", folder / "document.log"
    script.write_text(program, encoding="utf-8")
    process = _FORKS.Process(target=run, args=(script, output))
    process.start()
    process.join(600)
    if process.is_alive():
        process.kill()
    said = output.read_text(encoding="utf-8") if output.exists() else ""
    assert process.exitcode == 0, said
    return said
