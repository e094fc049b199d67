"""The range of opsets in texts that people read: `python -m tests.stated_opsets` writes the current one."""

from __future__ import annotations

import argparse
import pathlib
import re

import opsetta

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATHS = (
    "CITATION.cff",
    "CONTRIBUTING.md",
    "README.md",
    "docs/compatibility.md",
    "docs/conversion.md",
    "docs/index.md",
    "docs/sweep.md",
    "docs/torch-onnx.md",
    "pyproject.toml",
)
_RANGE = re.compile(rf"\b{opsetta.MINIMUM_OPSET}(-| to )\d\d\b")


def with_current_range(text: str) -> str:
    """A text that states the opsets from `MINIMUM_OPSET` to `MAXIMUM_OPSET`."""
    return _RANGE.sub(rf"{opsetta.MINIMUM_OPSET}\g<1>{opsetta.MAXIMUM_OPSET}", text)


def states_range(text: str) -> bool:
    """Whether a text states a range of opsets."""
    return _RANGE.search(text) is not None


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in PATHS:
        text = (ROOT / path).read_text(encoding="utf-8")
        if with_current_range(text) != text:
            (ROOT / path).write_text(with_current_range(text), encoding="utf-8")
            print(path)
