"""Install consumers, write files, run them, and write docs/toolchains.

    python -m tests.toolchains [STEP ...] [--consumers A,B] [--models A,B] [--writers A,B] [--releases A,B]
                               [--seconds N]
    python -m tests.toolchains --operators [--attributes] [--only TEXT] [--variants N] [--consumers A,B]

Without steps all are done. `--models` takes names and groups (timm, transformers, own); a group whose package
is not installed is left out. With `--operators` the records of the parity suite run in the consumers that are
installed; `operators.json` has the verdict about each, and docs/toolchains/operators.md the table.
`--variants` limits the records of one operator. With `--attributes` every attribute that equals its default
is tried in these files, left out and written. Environments, files and results are kept in `.toolchains`; what
is installed there is not installed again.
"""

from __future__ import annotations

import argparse
import pathlib

from . import attribute_trial, operator_files, operator_table, releases, report, run
from .consumers import CONSUMERS, install
from .models import GROUPS, missing_groups
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
        ("models", GROUPS),
        ("writers", WRITERS),
        ("releases", releases.RELEASES),
    ):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=list(known))
    parser.add_argument("--operators", action="store_true", help="run the parity suite's records instead")
    parser.add_argument("--attributes", action="store_true", help="try every attribute in those files")
    parser.add_argument("--only", default="", metavar="TEXT", help="records whose name has this text")
    parser.add_argument("--variants", type=int, metavar="N", help="how many records of one operator run")
    parser.add_argument("--seconds", type=float, default=run.SECONDS, help="how long one file may take")
    options = parser.parse_args()
    models = [name for key in options.models for name in GROUPS.get(key, (key,))]
    for group in missing_groups():
        models = [name for name in models if name not in GROUPS[group]]
        print(f"{group} is not installed: its {len(GROUPS[group])} models are left out", flush=True)
    root, steps = options.root.resolve(), options.steps or STEPS
    (root / "files").mkdir(parents=True, exist_ok=True)
    if options.operators:
        installed = [name for name in options.consumers if (root / name / "installed.json").exists()]
        operator_files.run_operators(root, installed, options.only, options.variants)
        operator_table.write(root)
    if options.attributes:
        attribute_trial.try_attributes(root, options.consumers)
    if options.operators or options.attributes:
        return
    if "install" in steps:
        for name in options.consumers:
            print(f"{name}: {install(root, name) or 'installed'}", flush=True)
    if "write" in steps:
        for model in models:
            for problem in write(model, root / "files", options.writers, options.consumers):
                print(problem, flush=True)
    if "run" in steps:
        run.run_all(root, options.consumers, models, options.writers, options.seconds)
    if "report" in steps:
        report.write(root)
    if "releases" in steps:
        releases.run_all(root, models, options.releases)


if __name__ == "__main__":
    main()
