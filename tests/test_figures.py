"""Figures of the package that drift unless they are held: types, comments, helpers, private names of torch.

The limits are what the package has now, rounded. A change may tighten them, and never loosens them.
"""

import ast
import collections
import re
import sys

from .test_floors import FILES, ROOT, nodes_of, without_collections  # noqa: F401

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ANY_PER_100_LINES = 0.9
"""`typing.Any` is for what has no type, not for what is hard to write."""
TYPE_IGNORES = 150
COMMENTS = 2.0
"""The least share of lines with a comment that says why, in percent."""
ONE_CALLER = 120
"""Private functions of at most six lines that one place calls: most of them read better there."""
PRIVATE_NAMES_OF_TORCH = 70
"""The private names of torch, counted once in each file; a release of torch may change any of them."""

TEXTS = {path: path.read_text(encoding="utf-8") for path in FILES}
LINES = sum(text.count("\n") for text in TEXTS.values())


def count(pattern: str) -> int:
    """How often a pattern occurs in the package."""
    return sum(len(re.findall(pattern, text, re.MULTILINE)) for text in TEXTS.values())


def test_few_types_are_any():
    assert 100 * count(r"\bAny\b") / LINES <= ANY_PER_100_LINES


def test_mypy_is_strict_everywhere():
    with open(ROOT / "pyproject.toml", "rb") as file:
        settings = tomllib.load(file)["tool"]["mypy"]
    assert settings["strict"] is True
    loosened = [
        override
        for override in settings["overrides"]
        if any(module.startswith("opsetta") for module in override["module"])
    ]
    assert loosened == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for package in ("registration", "symbolics", "passes", "exporter", "torch_onnx"):
        assert f"-p opsetta.{package}" in makefile
    assert count(r"# type: ignore") <= TYPE_IGNORES


def test_comments_say_why():
    assert 100 * count(r"^[ \t]*# |  # ") / LINES >= COMMENTS


def test_few_helpers_have_one_caller():
    calls = collections.Counter()
    helpers = []
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                is_private = node.name.startswith("_") and not node.name.startswith("__")
                if is_private and node.end_lineno - node.lineno < 6:
                    helpers.append((node.name, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"))
            elif isinstance(node, ast.Call):
                calls[getattr(node.func, "id", getattr(node.func, "attr", ""))] += 1
    with_one_caller = [title for name, title in helpers if calls[name] == 1]
    assert len(with_one_caller) <= ONE_CALLER, "\n".join(with_one_caller)


def test_few_names_of_torch_are_private():
    private = re.compile(r"\btorch\._[a-z]\w*|from torch\._\w+|torch\.[a-z_.]+\._[a-z]\w*")
    names = {
        f"{path.relative_to(ROOT)}: {name}" for path, text in TEXTS.items() for name in private.findall(text)
    }
    assert len(names) <= PRIVATE_NAMES_OF_TORCH, "\n".join(sorted(names))


def test_measured_figures_name_their_benchmark():
    """A section with times or a table of measurements names the file in `benchmarks/` that makes them."""
    missing = []
    for page in ("plan", "prepack", "streaming", "training"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for section in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n## "):
            figures = re.findall(
                r"^\|.*\| *\d+\.\d+ *\|.*$|\d (?:ms|s|seconds|minutes)\b", section, re.MULTILINE
            )
            names = re.findall(r"`python (benchmarks/\w+\.py)", section)
            if figures and not any((ROOT / name).is_file() for name in names):
                missing.append((page, section.partition("\n")[0], figures[0]))
    assert not missing
