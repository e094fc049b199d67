"""`python -m tests.distribution`: try what `make dist` wrote in new environments, one after the other.

First pip resolves what each of make's environments installs, with constraints.txt, for each Python.
The lowest and the highest Python are tried without torch, which has no builds for every Python; the Python
that runs this is tried with torch as well. Interpreters are looked for on PATH, then among those of pyenv.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = pathlib.Path(__file__).resolve().parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
EXTRAS = ("dev", "docs")
"""What the Makefile installs with constraints.txt, on any of these versions."""


def interpreter(version: str) -> str:
    """The path of this Python, such as "3.10"."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    found = shutil.which(f"python{version}")
    # pyenv's own commands stand on PATH for versions that are not selected, and then fail.
    if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
        return found
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    installed = sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))
    if not installed:
        sys.exit(f"Python {version} was not found: install it, or leave it out with --python")
    return str(installed[-1])


class Environment:
    """A new virtual environment, and how it ran so far."""

    def __init__(self, folder: pathlib.Path, version: str, pip_flags: Sequence[str]) -> None:
        self.folder = folder
        self.pip_flags = pip_flags
        self.elsewhere = folder / "elsewhere"
        subprocess.run([interpreter(version), "-m", "venv", str(folder)], check=True)
        self.elsewhere.mkdir()

    def install(self, requirement: str) -> None:
        """Install a file with its dependencies, with extras in brackets after its path."""
        pip = [str(self.folder / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", *self.pip_flags, requirement], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)

    def run(self, script: str, *arguments: str) -> None:
        """Run a script of this folder where the repository cannot be imported."""
        # -I: neither the script's folder nor PYTHONPATH is searched, so opsetta is the installed one.
        command = [str(self.folder / "bin" / "python"), "-I", str(SCRIPTS / script), *arguments]
        subprocess.run(command, cwd=self.elsewhere, check=True)


def resolve_constraints(version: str, pip_flags: Sequence[str]) -> None:
    """Check that pip finds releases that constraints.txt allows on this Python; install nothing.

    Raises:
        SystemExit: it finds none.
    """
    for extra in EXTRAS:
        command = [sys.executable, "-m", "pip", "--python", interpreter(version), "install", "--dry-run"]
        command += ["--ignore-installed", "--quiet", *pip_flags]
        command += ["-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[{extra}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"Python {version}: constraints.txt does not resolve for '{extra}'\n{done.stderr}")
    print(f"Python {version}: constraints.txt resolves", flush=True)


def distribution(pattern: str) -> pathlib.Path:
    """The one file in dist/ of this pattern."""
    found = list((ROOT / "dist").glob(pattern))
    if len(found) != 1:
        sys.exit(f"dist/ has {len(found)} files {pattern}, and not 1: run `make dist`")
    return found[0].resolve()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.distribution", description=__doc__)
    parser.add_argument(
        "--python", nargs="*", default=[PYTHONS[0], PYTHONS[-1]], help="versions without torch"
    )
    parser.add_argument(
        "--resolve", nargs="*", default=PYTHONS, help="versions for which constraints.txt is resolved"
    )
    parser.add_argument("--no-torch", action="store_true", help="leave out the environment with torch")
    parser.add_argument("--pip-flags", default="", help="handed to pip")
    given = parser.parse_args()
    flags = given.pip_flags.split()
    for python in given.resolve:
        resolve_constraints(python, flags)
    wheel, sdist = distribution("*.whl"), distribution("*.tar.gz")
    version = re.match(r"opsetta-([^-]+)-", wheel.name).group(1)
    with tempfile.TemporaryDirectory() as folder:
        for number, python in enumerate(given.python):
            environment = Environment(pathlib.Path(folder, python), python, flags)
            # The source distribution has to build, and to give the same package.
            environment.install(str(sdist if number else wheel))
            environment.run("bare.py", version)
            environment.install(f"{wheel}[cli,runtime]")
            environment.run("without_torch.py")
            print(f"Python {python} without torch: passed", flush=True)
        if not given.no_torch:
            own = f"{sys.version_info.major}.{sys.version_info.minor}"
            environment = Environment(pathlib.Path(folder, "torch"), own, flags)
            environment.install(f"{wheel}[all]")
            environment.run("with_torch.py")
            print(f"Python {own} with torch: passed", flush=True)


if __name__ == "__main__":
    main()
