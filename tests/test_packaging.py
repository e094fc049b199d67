"""The product around the code: metadata, package list, wheel, constraints, make's targets."""

import email
import importlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import opsetta

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = ("registration", "symbolics", "passes", "exporter", "torch_onnx")
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = CONFIGURATION["project"]
CITATION_KEYS = ("abstract", "keywords", "license", "type")


def sources() -> list[pathlib.Path]:
    """Every Python file of the package, relative to the root."""
    found = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    return sorted(path.relative_to(ROOT) for path in [*found, *ROOT.glob("*.py")])


def test_the_package_list_is_the_tree():
    tree = {".".join(["opsetta", *path.parent.parts]) for path in sources()}
    assert sorted(CONFIGURATION["tool"]["setuptools"]["packages"]) == sorted(tree)


def test_every_package_has_an_init():
    folders = {path.parent for path in sources()}
    assert [folder for folder in folders if not (ROOT / folder / "__init__.py").is_file()] == []


def package_data() -> list[str]:
    """The files besides Python that pyproject.toml puts into the package, relative to the root."""
    found = []
    for package, patterns in CONFIGURATION["tool"]["setuptools"]["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for pattern in patterns:
            files = [path.relative_to(ROOT).as_posix() for path in folder.glob(pattern)]
            assert files, f"{package} has no {pattern}"
            found += files
    return sorted(found)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Iterator[zipfile.ZipFile]:
    """A wheel, built from what Docker is given for it, beside some files that must stay out."""
    copy = tmp_path_factory.mktemp("wheel") / "source"
    copy.mkdir()
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line[1:] for line in lines if line.startswith("!")]
    for name in [*sent, "docs", "examples", "Makefile"]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    code = "import setuptools.build_meta as backend; print(backend.build_wheel('dist'))"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True, timeout=300)
    [built] = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    held = [name for name in wheel.namelist() if ".dist-info/" not in name]
    files = [*map(pathlib.Path.as_posix, sources()), *package_data()]
    assert sorted(held) == sorted(f"opsetta/{path}" for path in files)


def test_files_that_the_package_opens_are_package_data():
    beside = {
        path.relative_to(ROOT).as_posix()
        for floor in FLOORS
        for path in (ROOT / floor).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".proto")
    }
    assert beside == set(package_data()) - {"py.typed"}


def test_the_wheel_says_what_it_is(wheel):
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    fields = email.message_from_bytes(wheel.read(metadata))
    assert fields["Name"] == "opsetta"
    assert fields["Version"] == opsetta.__version__
    assert fields["Requires-Python"] == "<3.14,>=3.10"
    assert fields["License-Expression"] == "Apache-2.0"
    assert set(fields.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert {Requirement(text) for text in PROJECT["dependencies"]} <= {
        Requirement(text) for text in fields.get_all("Requires-Dist")
    }
    [entry_points] = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert wheel.read(entry_points).decode().split("\n")[:2] == [
        "[console_scripts]",
        f"opsetta = {PROJECT['scripts']['opsetta']}",
    ]


def test_the_wheel_holds_the_licence(wheel):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"


def test_the_version_is_one():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(opsetta.__version__)}\b", changelog, re.MULTILINE)


def requirements() -> list[Requirement]:
    texts = [
        *PROJECT["dependencies"],
        *(t for group in PROJECT["optional-dependencies"].values() for t in group),
    ]
    return [found for found in map(Requirement, texts) if found.name != "opsetta"]


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {(r := Requirement(line)).name: r for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_a_requirement_is_pinned_within_its_range(requirement):
    [pin] = constraints()[requirement.name].specifier
    assert pin.operator == "=="
    assert requirement.specifier.contains(pin.version)


def _pythons() -> list[str]:
    """The Python versions that the metadata lists: "3.10" to "3.13"."""
    words = [classifier.rpartition(" :: ")[2] for classifier in PROJECT["classifiers"]]
    return [word for word in words if re.fullmatch(r"3\.\d+", word)]


def test_a_pin_is_left_to_the_pythons_that_its_release_supports():
    assert _pythons() == ["3.10", "3.11", "3.12", "3.13"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    refused, checked = [], 0
    for pin in (Requirement(line) for line in lines if line and not line.startswith("#")):
        try:
            release = importlib.metadata.distribution(pin.name)
        except importlib.metadata.PackageNotFoundError:
            continue  # Of another extra: `make test-dist` resolves all of them.
        if not pin.specifier.contains(release.version):
            continue
        checked += 1
        supported = SpecifierSet(release.metadata["Requires-Python"] or "")
        for python in _pythons():
            applies = pin.marker is None or pin.marker.evaluate({"python_version": python})
            # Patch releases that are long replaced, as 3.12.0, do not count.
            if applies and not supported.contains(f"{python}.99"):
                refused.append(f"{pin.name} {release.version} does not support Python {python}")
    assert checked > 40
    assert refused == []


def test_only_the_core_is_needed_without_extras():
    assert {requirement.name for requirement in map(Requirement, PROJECT["dependencies"])} == {
        "beartype",
        "ml-dtypes",
        "numpy",
        "onnx",
        "onnx-ir",
        "tomli",
    }
    assert set(PROJECT["optional-dependencies"]) == {
        *("torch", "runtime", "cli", "safetensors", "huggingface", "keras", "fleet", "docs", "all", "dev"),
        "tflite",
    }


def test_the_console_script_leads_somewhere():
    module, _, function = PROJECT["scripts"]["opsetta"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_ci_runs_what_a_developer_runs():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text(encoding="utf-8")
    assert "make test" in text
    assert "make lint" in text


@pytest.mark.parametrize(
    ("target", "environment", "extra"),
    [
        *(
            (target, ".venv", "dev")
            for target in ("demo", "test", "lint", "sweep", "bench", "dist", "test-dist")
        ),
        ("docs", ".venv-docs", "docs"),
    ],
)
def test_a_target_makes_its_own_environment(target, environment, extra):
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"-m venv {environment}\n" in done.stdout
    assert f"-c constraints.txt -e '.[{extra}]'" in done.stdout


def test_the_source_distribution_names_files_that_exist():
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    named = [name for command, *names in words if command in ("include", "graft") for name in names]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_citation_has_what_the_format_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    # Of the schema of the Citation File Format 1.2.0: the required keys, and those used here.
    assert set(citation) >= {"authors", "cff-version", "message", "title"}
    assert set(citation) <= {*("authors", "cff-version", "message", "title"), *CITATION_KEYS}
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["license"] == PROJECT["license"]
    assert all(set(author) == {"name"} for author in citation["authors"])


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[0-9]*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_is_valid(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert set(content) == {"name", "description", "labels", "body"}
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    labels = [field["attributes"]["label"] for field in fields]
    assert len(set(names)) == len(set(labels)) == len(fields) > 0
    for field in fields:
        assert field["type"] in ("input", "textarea")
        allowed = {"label", "description", "placeholder", "value"} | (
            {"render"} if field["type"] == "textarea" else set()
        )
        assert set(field["attributes"]) <= allowed
        assert set(field) <= {"type", "id", "attributes", "validations"}
        assert set(field.get("validations", {})) <= {"required"}


def test_commits_run_what_make_lint_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0][
        "hooks"
    ]
    entries = {hook["id"]: hook["entry"] for hook in hooks}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert entries["ruff-check"].startswith(".venv/bin/ruff check")
    assert entries["ruff-format"].startswith(".venv/bin/ruff format")
    assert entries["mypy"] == "make --silent mypy"
    assert all(text in makefile for text in ("ruff check .", "ruff format --check .", "/mypy -m opsetta"))
