"""What tests of devices share."""

import pathlib

import pytest

from .c_programs import compile_runner


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program of one application; all of them have the same sources."""
    return compile_runner(tmp_path_factory.mktemp("runtime"))
