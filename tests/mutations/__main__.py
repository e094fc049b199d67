"""Seed bugs into symbolic functions, one at a time, and count how many the tests find.

    python -m tests.mutations [--functions PATH] [--count 40] [--seed 0] [--workers N] [--limit N]
        [-- PYTEST_ARGUMENTS]

Every bug is one operator or one constant of one function, in a copy of the repository. A first run of the
tests notes which of them reach which of the functions; then each bug is tried with the tests that reach it,
until one fails. What follows `--` chooses the tests, such as `tests/parity` or `--sweep`. The tests of
conversion are always among them, because they alone reach much of the version ladder. A bug is also missed
if it changes no result, such as `zip(..., strict=False)` for lists of one length: read what is missed.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from .mutants import Mutant, mutants

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = "registration symbolics passes exporter torch_onnx tests docs examples __init__.py pyproject.toml"


CONVERSION = "tests/conversion"


def with_conversion(arguments: list[str]) -> list[str]:
    """pytest's arguments, with the tests of conversion if they choose files or folders."""
    chooses = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
    return [*arguments, CONVERSION] if chooses else arguments


def sample(tests: list[str], limit: int, seed: int) -> list[str]:
    """At most so many tests: those of conversion first, the others at random."""
    if len(tests) <= limit:
        return tests
    first = [name for name in tests if name.startswith(CONVERSION)][:limit]
    others = [name for name in tests if not name.startswith(CONVERSION)]
    return first + random.Random(seed).sample(others, min(limit - len(first), len(others)))


def _copy(folder: pathlib.Path) -> pathlib.Path:
    """The repository under the package's name, without its history and its environment."""
    target = folder / "opsetta"
    target.mkdir(parents=True)
    for name in COPIED.split():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)
    return target


def _run(root: pathlib.Path, arguments: list[str], **variables: str) -> int:
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([str(root.parent), str(root)])}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", *arguments]
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode


def reaching(chosen: list[Mutant], folder: pathlib.Path, arguments: list[str]) -> dict[int, list[str]]:
    """The names of the tests that reach the function of each mutant, by the mutant's number."""
    root = _copy(folder / "noted")
    entries: dict[str, list[tuple[tuple[int, int], int]]] = collections.defaultdict(list)
    for number, mutant in enumerate(chosen):
        entries[mutant.path].append((mutant.entry, number))
    for path, found in entries.items():
        lines = (root / path).read_text(encoding="utf-8").splitlines(keepends=True)
        for (line, column), number in sorted(found, reverse=True):
            call = f"__import__('tests.mutations.noted_calls', fromlist=['note']).note({number})\n"
            lines.insert(line - 1, " " * column + call)
        (root / path).write_text("".join(lines), encoding="utf-8")
        compile((root / path).read_text(encoding="utf-8"), path, "exec")
    noted = folder / "calls"
    noted.mkdir()
    _run(root, ["-p", "tests.mutations.noted_calls", *arguments], OPSETTA_NOTED_CALLS=str(noted))
    tests: dict[int, list[str]] = collections.defaultdict(list)
    for file in sorted(noted.iterdir()):
        for line in file.read_text(encoding="utf-8").splitlines():
            name, *numbers = line.split("\t")
            for number in numbers:
                tests[int(number)].append(name)
    return tests


def found_by(mutant: Mutant, tests: list[str], folder: pathlib.Path, workers: int) -> bool:
    """Whether one of the tests fails with the mutant in place."""
    root = _copy(folder)
    path = root / mutant.path
    path.write_text(mutant.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
    names = folder / "names.txt"
    names.write_text("\n".join(tests), encoding="utf-8")
    code = _run(root, ["-x", "-n", str(workers), f"@{names}"])
    shutil.rmtree(folder)
    if code not in (0, 1, 2):
        raise RuntimeError(f"pytest ended with {code} for {mutant}")
    return code != 0


def main() -> int:
    """Run the command; 0 whatever is found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--functions", default="symbolics", help="the file or folder of symbolic functions that get bugs"
    )
    parser.add_argument("--count", type=int, default=40, help="how many functions get a bug")
    parser.add_argument("--seed", type=int, default=0, help="which functions, and which bugs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=200, help="the most tests that are run for one bug")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after `--`")
    options = parser.parse_args()
    if not (ROOT / options.functions).exists():
        parser.error(f"there is no file or folder {options.functions!r} in the repository")
    chosen = mutants(ROOT, options.count, options.seed, options.functions)
    found = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="opsetta-mutations-") as temporary:
        folder = pathlib.Path(temporary)
        tests = reaching(chosen, folder, ["-n", str(options.workers), *with_conversion(options.pytest)])
        print(f"{time.monotonic() - begin:.0f} s to see which tests reach which function", flush=True)
        for number, mutant in enumerate(chosen):
            names = sample(tests[number], options.limit, number)
            is_found = bool(names) and found_by(mutant, names, folder / f"mutant{number}", options.workers)
            found += is_found
            outcome = "found" if is_found else "MISSED" if names else "NOT REACHED"
            text = (ROOT / mutant.path).read_text(encoding="utf-8")
            print(f"{outcome:12} {len(names):4} tests  {mutant.describe(text)}", flush=True)
    print(f"{found} of {len(chosen)} found, in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
