"""Runs another program as `python SCRIPT` or `python -m MODULE` would, with torch.onnx replaced."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Sequence

from ...registration import MAXIMUM_OPSET, MINIMUM_OPSET, OpsettaError
from ...registration.opsets import OPSET_RANGE
from .replacement import replaced

USAGE = """usage: python -m opsetta.torch_onnx [--opset N] (SCRIPT | -m MODULE) [ARGUMENTS...]

Runs SCRIPT or MODULE with its ARGUMENTS, and sends its calls of torch.onnx.export to opsetta.

  --opset N   write every file at opset N, whatever the program asks for
"""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_OURS = (os.path.dirname(os.path.abspath(__file__)), "<frozen runpy>", runpy.__file__)


def main(arguments: Sequence[str]) -> int:
    """Run a program; return its exit code, 2 for wrong usage."""
    remaining = list(arguments)
    opset: int | None = None
    if remaining and (remaining[0] == "--opset" or remaining[0].startswith("--opset=")):
        text = remaining.pop(0).partition("=")[2] or (remaining.pop(0) if remaining else "")
        if not text.isdigit():
            return _usage_error(f"--opset takes a number, not {text!r}")
        opset = int(text)
        if not MINIMUM_OPSET <= opset <= MAXIMUM_OPSET:
            return _usage_error(f"--opset takes a number from {OPSET_RANGE}, not {opset}")
    if remaining[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    as_module = remaining[:1] == ["-m"]
    program = remaining[1:] if as_module else remaining
    if not program or (program[0].startswith("-") and not as_module):
        missing = "-m needs the name of a module" if as_module else "a script or -m MODULE is missing"
        return _usage_error(missing if not program else f"unknown option {remaining[0]}")
    if not as_module and not os.path.exists(program[0]):
        print(f"python -m opsetta.torch_onnx: there is no file {program[0]!r}", file=sys.stderr)
        return 2
    saved_state = sys.argv[:], sys.path[:], sys.modules.get("__main__")
    try:
        with replaced(opset):
            if as_module:
                _run_module(program)
            else:
                _run_script(program)
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
    except SystemExit:
        raise
    except BaseException as error:
        return _report_error(error)
    finally:
        sys.argv, sys.path[:] = saved_state[0], saved_state[1]
        if saved_state[2] is not None:
            sys.modules["__main__"] = saved_state[2]
    return 0


def _usage_error(text: str) -> int:
    print(f"{USAGE}\npython -m opsetta.torch_onnx: {text}", file=sys.stderr)
    return 2


def _run_module(program: list[str]) -> None:
    sys.argv = program[:]
    if not _safe_path():
        sys.path[0] = os.getcwd()
    runpy.run_module(program[0], run_name="__main__", alter_sys=True)


def _run_script(program: list[str]) -> None:
    path = program[0]
    sys.argv = program[:]
    if os.path.isdir(path) or not _is_source(path):
        if not _safe_path():
            del sys.path[0]
        runpy.run_path(path, run_name="__main__")
        return
    if not _safe_path():
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    with io.open_code(os.path.abspath(path)) as file:
        code = compile(file.read(), path, "exec")
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _is_source(path: str) -> bool:
    """Whether a file is Python source rather than compiled code or an archive."""
    with open(path, "rb") as file:
        return b"\0" not in file.read(1024)


def _safe_path() -> bool:
    """Whether Python's safe-path mode keeps the folder of the program out of `sys.path`."""
    return bool(getattr(sys.flags, "safe_path", False))


def _frames_of_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The frames of a traceback before the first one of this package."""
    if trace is None or trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    inner_frames = _frames_of_program(trace.tb_next)
    return types.TracebackType(inner_frames, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _report_error(error: BaseException) -> int:
    """Print an error as Python does, without this package's frames above the program's first frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    if trace is None and isinstance(error, ImportError):
        # There is no such program: none of its lines ran.
        print(f"python -m opsetta.torch_onnx: {error}", file=sys.stderr)
        return 1
    if trace is None and not isinstance(error, SyntaxError):
        trace = error.__traceback__
    if isinstance(error, OpsettaError):
        # Its message says the cause, and the lines of this package say nothing to the program's author.
        error.__cause__, error.__suppress_context__ = None, True
        trace = _frames_of_program(trace)
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    if isinstance(error, KeyboardInterrupt):
        # As Python itself ends: shells then see that the program was interrupted.
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1
