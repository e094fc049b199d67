"""Chains of operators over constants are converted within the bounds on memory and time."""

import subprocess
import sys

import pytest

from . import limits


@pytest.mark.parametrize("count", [2, pytest.param(300, marks=pytest.mark.sweep)])
def test_random_chains_take_no_more_than_their_size_allows(count):
    command = [sys.executable, "-m", "tests.fuzz.folding_chains", "--seed", "1", "--count", str(count)]
    done = subprocess.run(command, cwd=limits.ROOT, capture_output=True, text=True, check=False)
    assert f"{count} chains" in done.stdout
    assert done.returncode == 0, done.stdout
