"""README, CONTRIBUTING, docs and notebooks: the Python runs, the commands exist, links lead somewhere.

A document's Python is one program. Documents in `COMMANDS` also run the commands of their `sh` blocks, in
between. A block with `title="NAME"` is written to a file of that name first, as its reader does.
"""

import dataclasses
import json
import pathlib
import re
import shlex

import pytest
from markdown.extensions.toc import slugify
from typer.main import get_command

from opsetta.tests.document_programs import run_program

from . import stated_opsets

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS = (
    "docs/calibration.md",
    "docs/command-line.md",
    "docs/editing.md",
    "docs/huggingface.md",
    "docs/inspection.md",
    "docs/quickstart.md",
    "docs/recipes.md",
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\s*$")
INLINE = re.compile(r"`(opsetta [^`]+)`")


def named(document: pathlib.Path) -> str:
    return document.relative_to(ROOT).as_posix()


@dataclasses.dataclass
class Block:
    """A fenced block. `title` is the file that it stands for, `start` the index of its first line."""

    language: str
    title: str | None
    start: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def blocks_of(text: str) -> list[Block]:
    found, inside, indent = [], None, 0
    for number, line in enumerate(text.splitlines()):
        fence = FENCE.match(line)
        if fence and inside is None:
            inside, indent = Block(fence["language"], fence["title"], number + 1, []), len(fence["indent"])
        elif fence:
            found.append(inside)
            inside = None
        elif inside is not None:
            inside.lines.append(line[indent:])
    assert inside is None, f"the fence in line {inside.start} is left open"
    return found


def commands_of(block: Block) -> list[tuple[int, str]]:
    """The commands of opsetta in a block, each with the number of its first line."""
    found, joined = [], ""
    for number, line in enumerate(block.lines):
        joined += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if joined.startswith("opsetta "):
            found.append((block.start + number, joined))
        joined = ""
    return found


def program_of(text: str, with_commands: bool = False) -> str:
    """The document as a program: its Python, and its commands as calls, each at its own line."""
    lines = [""] * len(text.splitlines())
    for block in blocks_of(text):
        if block.language == "python":
            lines[block.start : block.start + len(block.lines)] = block.lines
        elif block.language == "sh" and with_commands:
            for number, command in commands_of(block):
                lines[number] = f"opsetta_command({shlex.split(command, comments=True)[1:]})"
    return "\n".join(lines) + "\n"


def with_programs() -> list[pathlib.Path]:
    return [
        path
        for path in DOCUMENTS
        if program_of(path.read_text(encoding="utf-8"), named(path) in COMMANDS).strip()
    ]


@pytest.mark.parametrize("document", with_programs(), ids=named)
def test_the_python_of_a_document_runs(document, tmp_path):
    text = document.read_text(encoding="utf-8")
    for block in blocks_of(text):
        if block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    printed = run_program(program_of(text, named(document) in COMMANDS), tmp_path)
    for shown in re.findall(r"^prints\n\n```text\n(.*?)```", text, re.DOTALL | re.MULTILINE):
        assert shown in printed


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=named)
def test_a_notebook_prints_what_it_shows(notebook, tmp_path):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = [
        "".join(text for output in cell["outputs"] for text in output["text"])
        for cell in cells
        if cell["cell_type"] == "code"
    ]
    between = "-- next cell --\n"
    said = run_program(f"\nprint({between!r}, end='')\n".join(code), tmp_path)
    assert said.split(between) == shown


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_commands_and_their_options_exist(document):
    from opsetta.exporter.command_line.application import make_application

    group = get_command(make_application())
    text = document.read_text(encoding="utf-8")
    shown = [command for block in blocks_of(text) for _, command in commands_of(block)]
    for command in shown + INLINE.findall(text):
        words = re.split(r" [|>&] ", command)[0].split()
        if re.fullmatch(r"[a-z][a-z-]*", words[1]):
            chosen, options = group.commands.get(words[1]), words[2:]
            assert chosen is not None, command
        else:
            chosen, options = group, words[1:]
        known = {name for parameter in chosen.params for name in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"-h", "--help"}
        given = [re.match(r"--?[\w-]+", option)[0] for option in options if re.match(r"--?[a-z]", option)]
        assert set(given) <= known, command


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_inside_the_repository_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s#]+)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def anchors_of(document: pathlib.Path) -> set[str]:
    """What a link to the document may name after `#`: its headings, and what its API shows."""
    text = document.read_text(encoding="utf-8")
    fenced = {block.start + number for block in blocks_of(text) for number in range(len(block.lines))}
    lines = [line for number, line in enumerate(text.splitlines()) if number not in fenced]
    headings = [
        re.sub(r"[`*\[]|\]\([^)]*\)", "", line.lstrip("# ")) for line in lines if re.match("#+ ", line)
    ]
    return {slugify(heading, "-") for heading in headings} | set(
        re.findall(r"^::: (\S+)", text, re.MULTILINE)
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_to_headings_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s#:]*)#([^)\s]+)\)", document.read_text(encoding="utf-8"))
    for path, anchor in links:
        target = document.parent / path if path else document
        assert target.suffix != ".md" or anchor in anchors_of(target), f"{path}#{anchor}"


@pytest.mark.parametrize("path", stated_opsets.PATHS)
def test_texts_state_the_opsets_that_can_be_written(path):
    text = (stated_opsets.ROOT / path).read_text(encoding="utf-8")
    assert stated_opsets.states_range(text)
    assert stated_opsets.with_current_range(text) == text, "run `python -m tests.stated_opsets`"


def test_blocks_keep_their_line_numbers():
    text = "# Title\n\n```python\na = 1\n```\n\n1. item\n\n   ```python\n   b = 2\n   ```\n```sh\nrm\n```\n"
    assert program_of(text) == "\n\n\na = 1\n\n\n\n\n\nb = 2\n\n\n\n\n"


def test_commands_become_calls():
    text = "```sh\nopsetta ops \\\n  --opset 9   # why\nls\n```\n"
    assert program_of(text, with_commands=True) == "\n\nopsetta_command(['ops', '--opset', '9'])\n\n\n"


def test_a_program_that_fails_is_noticed(tmp_path):
    with pytest.raises(AssertionError, match=r"line 2, in <module>(\n.*)+ZeroDivisionError"):
        run_program("\n1 / 0\n", tmp_path)
