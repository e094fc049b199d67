"""Every Python block of README, CONTRIBUTING and docs runs, one namespace and one process per document."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")


def python_of(text: str) -> str:
    """The document's Python blocks, each line at its own number; everything else is blank."""
    lines, inside, indent = [], "", 0
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence:
            inside = "" if inside else fence["language"] or "text"
            indent = len(fence["indent"])
            lines.append("")
        else:
            lines.append(line[indent:] if inside == "python" else "")
    assert not inside, "a fence is left open"
    return "\n".join(lines) + "\n"


def with_python() -> list[pathlib.Path]:
    return [path for path in DOCUMENTS if python_of(path.read_text(encoding="utf-8")).strip()]


@pytest.mark.parametrize("document", with_python(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_python_of_a_document_runs(document, tmp_path):
    script = tmp_path / f"{document.name}.py"
    script.write_text(python_of(document.read_text(encoding="utf-8")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_inside_the_repository_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s#]+)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_blocks_keep_their_line_numbers():
    text = "# Title\n\n```python\na = 1\n```\n\n1. item\n\n   ```python\n   b = 2\n   ```\n```sh\nrm\n```\n"
    assert python_of(text) == "\n\n\na = 1\n\n\n\n\n\nb = 2\n\n\n\n\n"
