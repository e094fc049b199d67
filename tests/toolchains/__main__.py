"""Install consumers, write files, run them, and write docs/toolchains.

    python -m tests.toolchains [STEP ...] [--consumers A,B] [--models A,B] [--writers A,B] [--releases A,B]

Without steps all are done. Environments, files and results are kept in `.toolchains`; what is
installed there is not installed again.
"""

from __future__ import annotations

import argparse
import pathlib

from . import releases, report, run
from .consumers import CONSUMERS, install
from .models import MODELS
from .write import WRITERS, write

STEPS = ("install", "write", "run", "report", "releases")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(".toolchains"))
    for name, known in (
        ("consumers", CONSUMERS),
        ("models", MODELS),
        ("writers", WRITERS),
        ("releases", releases.RELEASES),
    ):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=list(known))
    options = parser.parse_args()
    root, steps = options.root.resolve(), options.steps or STEPS
    (root / "files").mkdir(parents=True, exist_ok=True)
    if "install" in steps:
        for name in options.consumers:
            print(f"{name}: {install(root, name) or 'installed'}", flush=True)
    if "write" in steps:
        for model in options.models:
            for problem in write(model, root / "files", options.writers):
                print(problem, flush=True)
    if "run" in steps:
        run.run_all(root, options.consumers, options.models, options.writers)
    if "report" in steps:
        report.write(root)
    if "releases" in steps:
        releases.run_all(root, options.models, options.releases)


if __name__ == "__main__":
    main()
