"""The entry point of the command line `opsetta`; `commands/` has the commands."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Sequence

from ...registration.warning import command_line_text
from ..files.garbage_collection import rare_collections

_OBJECTS = 300_000
"""Objects before the first garbage collection. Imports make two thirds of them, none of which is garbage."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 for success, 1 for an error, 2 for wrong usage.

    Args:
        arguments: the arguments after the program's name; by default those of this process.
    """
    written = warnings.formatwarning
    warnings.formatwarning = command_line_text
    try:
        with rare_collections(_OBJECTS):
            try:
                _run(list(sys.argv[1:] if arguments is None else arguments))
            finally:
                # The process ends: Python would look through all objects several times, at exit too.
                if arguments is None:
                    gc.freeze()
    finally:
        warnings.formatwarning = written


def _run(arguments: list[str]) -> None:
    from ...registration import OpsetError, OpsettaError, UsageError

    try:
        from .application import make_application

        application = make_application(arguments)
        application(args=arguments, prog_name="opsetta")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        # Any other missing module is an error of opsetta or of the environment, and keeps its traceback.
        if missing not in ("typer", "rich"):
            raise
        sys.exit(f"opsetta: the command line needs {missing}: pip install 'opsetta[cli]'")
    # Shells and make tell 2, wrong usage, from 1.
    except (OpsetError, UsageError) as error:
        print(f"opsetta: {error}", file=sys.stderr)
        sys.exit(2)
    except OpsettaError as error:
        sys.exit(f"opsetta: {error}")


if __name__ == "__main__":
    main()
