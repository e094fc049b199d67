"""Settings that every test runs under: one thread per process, hypothesis profiles, the sweep option."""

import collections
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from .thinning import NUMBER_OF_VARIANTS, spread

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    # Read by torch when it is imported, which is later; several test processes share the cores.
    os.environ.setdefault(_variable, "1")

ROOT = Path(__file__).resolve().parent.parent

INDEPENDENT = (
    "conversion/test_real_graphs.py",
    "exporter/files/test_whole_models.py",
    "exporter/files/graph_file/test_fresh_process.py",
    "fuzz/test_programs.py",
    "models/test_architectures.py",
    "models/test_torchscript_models.py",
)
"""Files of long tests that share nothing with each other: each may run in any test process."""

SHARING = {
    "conversion/test_conversion.py": "the node cases of onnx",
    "exporter/lowering/test_default_attributes.py": "the node cases of onnx",
    "exporter/devices/test_c_runtime.py": "the node cases of onnx",
    "fuzz/test_copied_nodes.py": "the node cases of onnx",
    "fuzz/test_operator_parameters.py": "the node cases of onnx",
    "test_figures.py": "the syntax trees of the package",
    "test_floors.py": "the syntax trees of the package",
    "test_names.py": "the syntax trees of the package",
}
"""Files whose tests share what takes long to make: they run in one test process."""

hypothesis.settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
hypothesis.settings.register_profile("sweep", max_examples=1000, deadline=None)


@pytest.fixture
def two_minutes_at_most() -> Iterator[None]:
    """End the process after two minutes: what never ends must fail, not stop the tests."""
    signal.alarm(120)
    yield
    signal.alarm(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep",
        action="store_true",
        default=os.environ.get("OPSETTA_SWEEP", "") not in ("", "0"),
        help="run the full parametrisation: every operator, model and opset",
    )


class _FlatLayout:
    """Keeps pytest from importing the repository's root, which is the package, under the folder's name."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_FlatLayout(), "opsetta-flat-layout")
    os.environ["OPSETTA_SWEEP"] = "1" if config.getoption("--sweep") else ""
    hypothesis.settings.load_profile("sweep" if config.getoption("--sweep") else "quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, keep the tests of a file, which share captures, in one test process.

    The files of independent tests are spread, and come last, so that no process waits long for the others.
    """
    from xdist.scheduler import LoadFileScheduling

    class FileScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            name = file.removeprefix("tests/")
            return nodeid if name in INDEPENDENT else SHARING.get(name, file)

    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked `sweep`, and further variants of costly tests, to full runs.

    Tests that are chosen by `-k` or by their own names run with all variants.
    """
    if config.getoption("--sweep") or config.option.keyword or any("::" in path for path in config.args):
        return
    quick = [item for item in items if not item.get_closest_marker("sweep")]
    variants = collections.defaultdict[str, list[pytest.Item]](list)
    for item in quick:
        variants[item.nodeid.partition("[")[0].removeprefix("tests/")].append(item)
    later = set(items) - set(quick)
    for file, tests in NUMBER_OF_VARIANTS.items():
        for test, number in tests.items():
            of_test = variants[f"{file}::{test}"]
            chosen = spread(len(of_test), number)
            later.update(item for index, item in enumerate(of_test) if index not in chosen)
    if later:
        config.hook.pytest_deselected(items=[item for item in items if item in later])
        items[:] = [item for item in items if item not in later]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep garbage collections from looking at all that was imported and collected, which stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Look for garbage once: pytest does so five times, and each time looks at all that is imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> bool:
    """Whether the full parametrisation was asked for."""
    return bool(request.config.getoption("--sweep"))
