"""Old releases of runtimes, each with the files of its time: `python -m tests.toolchains releases`.

Each release is installed on a Python that has its wheel, through pyenv or `python3.N` on the path; a release
whose Python is missing is left out. Every model is written for `runtime@release`, and for onnxruntime also at
the lowest opset; docs/toolchains/releases.md has the results.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil

from . import report, run
from .consumers import CONSUMERS, Consumer, install
from .write import export_silently, stem, write

PAGE = report.FOLDER / "releases.md"


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of a runtime.

    Attributes:
        target: the target that the files are written for.
        opsets: the opsets of the files; None is the target's own.
        python: the version of Python that has a wheel.
        packages: what pip installs.
    """

    target: str
    opsets: tuple[int | None, ...]
    python: str
    packages: tuple[str, ...]


def _onnxruntime(release: str, package: str, python: str, numpy: str) -> Release:
    return Release(f"onnxruntime@{release}", (7, None), python, (f"onnxruntime=={package}", numpy))


RELEASES = {
    release.target: release
    for release in (
        _onnxruntime("1.0", "1.0.0", "3.7", "numpy<1.22"),
        _onnxruntime("1.2", "1.2.0", "3.7", "numpy<1.22"),
        _onnxruntime("1.4", "1.4.0", "3.7", "numpy<1.22"),
        _onnxruntime("1.6", "1.6.0", "3.8", "numpy<1.24"),
        _onnxruntime("1.8", "1.8.1", "3.8", "numpy<1.24"),
        _onnxruntime("1.10", "1.10.0", "3.8", "numpy<1.24"),
        _onnxruntime("1.12", "1.12.1", "3.8", "numpy<1.24"),
        _onnxruntime("1.14", "1.14.1", "3.8", "numpy<1.24"),
        _onnxruntime("1.16", "1.16.3", "3.8", "numpy<1.25"),
        _onnxruntime("1.18", "1.18.1", "3.11", "numpy<2"),
        _onnxruntime("1.20", "1.20.1", "3.11", "numpy"),
        _onnxruntime("1.22", "1.22.1", "3.11", "numpy"),
        _onnxruntime("1.24", "1.24.1", "3.11", "numpy"),
        Release("openvino@2021.4", (None,), "3.8", ("openvino==2021.4.2", "numpy<1.20")),
        Release("openvino@2022.3", (None,), "3.8", ("openvino==2022.3.2", "numpy<1.24")),
        Release("openvino@2023.3", (None,), "3.8", ("openvino==2023.3.0", "numpy<1.25")),
        Release("openvino@2024.6", (None,), "3.11", ("openvino==2024.6.0", "numpy<2.2")),
        Release("opencv@4.5.4", (None,), "3.8", ("opencv-python-headless==4.5.4.60", "numpy<1.24")),
        Release("opencv@4.5.5", (None,), "3.8", ("opencv-python-headless==4.5.5.64", "numpy<1.24")),
        Release("opencv@4.6", (None,), "3.8", ("opencv-python-headless==4.6.0.66", "numpy<1.24")),
        Release("opencv@4.8", (None,), "3.8", ("opencv-python-headless==4.8.1.78", "numpy<1.25")),
        Release("opencv@4.10", (None,), "3.8", ("opencv-python-headless==4.10.0.84", "numpy<1.25")),
    )
}


def python_path(version: str) -> str | None:
    """The interpreter of a version of Python, if there is one."""
    found = sorted(pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def consumer(release: Release) -> Consumer:
    """The release as a consumer."""
    runtime = release.target.partition("@")[0]
    return Consumer(release.target, runtime, release.packages, tolerance=1e-4, python=release.python)


def run_all(root: pathlib.Path, models: list[str], targets: list[str]) -> None:
    """Install the releases, write and run the files, and write the page."""
    CONSUMERS.update({target: consumer(RELEASES[target]) for target in targets})
    path = root / "releases.json"
    outcomes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    folder = root / "files"
    for model in models:
        write(model, folder, [])
    for target in targets:
        release = RELEASES[target]
        python = python_path(release.python)
        problem = install(root, target, python) if python else f"Python {release.python} is missing"
        if problem:
            print(f"{target}: {problem}", flush=True)
            continue
        refused = {}
        for model in models:
            for opset in release.opsets:
                name = f"{target}-{opset or 'own'}"
                refusal = export_silently(model, folder / f"{stem(model)}-{name}.onnx", opset, target)
                if refusal:
                    refused[model, name] = {"error": refusal}
        work = run.jobs(folder, models, [f"{target}-{opset or 'own'}" for opset in release.opsets])
        for (model, name), outcome in {**refused, **run.run(target, work, root)}.items():
            outcomes.setdefault(name, {})[model] = outcome
        path.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
        print(f"{target}: {len(work)} files", flush=True)
    write_page(outcomes)


def table(outcomes: dict) -> list[str]:
    """A line for each release and opset, and one for each file that is not right."""
    lines = ["| release | opset | right | wrong | refused by opsetta | fails |", "|---|---|---|---|---|---|"]
    causes = []
    for target, release in RELEASES.items():
        for opset in release.opsets:
            results = outcomes.get(f"{target}-{opset or 'own'}", {})
            verdicts = {model: _verdict(outcome) for model, outcome in results.items()}
            counts = [
                sum(v == word for v in verdicts.values()) for word in ("agrees", "wrong", "not written")
            ]
            others = len(verdicts) - sum(counts)
            if verdicts:
                lines.append(
                    f"| `{target}` | {opset or 'its own'} | {' | '.join(map(str, [*counts, others]))} |"
                )
            for model, verdict in verdicts.items():
                if verdict != "agrees":
                    error = report.reason(results[model].get("error", "other numbers"))
                    causes.append(f"- {target}, opset {opset or 'its own'}, {model}: {verdict}: {error}")
    return [*lines, "", *causes]


def _verdict(outcome: dict) -> str:
    if outcome.get("error", "").startswith("TargetError"):
        return "not written"
    return report.verdict(outcome, 1e-4)


def write_page(outcomes: dict, page: pathlib.Path = PAGE) -> None:
    """Write the results into the page, between the marks of its generated part."""
    report.replace_generated(page, table(outcomes))
