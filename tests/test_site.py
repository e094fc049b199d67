"""The site of the documentation: its pages and data; in full runs, as a browser shows it."""

import html
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys

import griffe
import pytest
import yaml

import opsetta
from opsetta.exporter.command_line.operator_support import operator_support

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hooks():
    specification = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def pages_of(navigation) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    entries = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for entry in entries for page in pages_of(entry)]


def test_the_navigation_has_every_page_once(hooks):
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages_of(CONFIGURATION["nav"])) == sorted([*pages, *hooks.FROM_ROOT.values()])


def test_the_api_has_every_public_name():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    shown = {*re.findall(r"^::: opsetta\.(\w+)$", text, re.MULTILINE), *re.findall(r"`opsetta\.(\w+)`", text)}
    assert set(opsetta.__all__) <= shown
    assert "::: opsetta.torch_onnx\n" in text


def test_the_docstrings_of_the_api_are_read_without_warnings(hooks, caplog):
    """What `make docs` refuses, but in a second: names that do not exist, and parameters without a type."""
    with hooks.package_folder() as folder:
        options = {"docstring_parser": "google", "docstring_options": {"warn_unknown_params": False}}
        loader = griffe.GriffeLoader(search_paths=[folder], **options)
        loader.load("opsetta")
        loader.resolve_aliases(implicit=False, external=False)
        for page in (DOCS / "api").glob("*.md"):
            for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
                found = loader.modules_collection[name]
                found = found.final_target if found.is_alias else found
                for each in (found, *found.members.values()):
                    if not each.is_alias and each.docstring and not each.name.startswith("_"):
                        assert each.docstring.parsed
    assert [record.getMessage() for record in caplog.records] == []


def test_pictures_need_no_script_from_a_network():
    for path in DOCS.rglob("*.md"):
        # The theme would load mermaid from a network.
        assert "```mermaid" not in path.read_text(encoding="utf-8"), path


def test_the_operators_are_those_of_the_command(hooks):
    text = re.fullmatch(r"<script[^>]*>(.*)</script>", hooks.operator_data())[1]
    data = json.loads(text)
    support = operator_support(data["opsets"])
    assert [name for name, _, _ in data["operators"]] == list(support)
    for name, letters, remarks in data["operators"]:
        entries = support[name].values()
        kinds = {"s": "symbolic", "d": "decomposed", "r": "refused", ".": None}
        assert [kinds[letter.lower()] for letter in letters] == [entry.support for entry in entries]
        partly = any(entry.reasons and entry.support != "refused" for entry in entries)
        assert partly == any(letter.isupper() for letter in letters)
        assert bool(remarks) == any(entry.reasons for entry in entries)


def test_links_of_the_root_lead_to_pages(hooks):
    text = "[a](docs/limits.md#x) [b](LICENSE) [c](https://example.org/docs/a) [d](#here) `x`"
    moved = "[a](limits.md#x) [b](../LICENSE) [c](https://example.org/docs/a) [d](#here) `x`"
    assert hooks.from_root(text) == moved


def test_what_loads_from_a_network_is_found(hooks, tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">x</a><img src="a.png"><link rel="canonical" href="page.html">'
        '<script src="https://cdn.example/a.js"></script><link rel="stylesheet" href="//fonts.example/b.css">'
    )
    (tmp_path / "style.css").write_text('@import "https://c.example/c.css"; a { background: url(d.png) }')
    assert list(hooks.network_loads(tmp_path)) == [
        "page.html: https://cdn.example/a.js",
        "page.html: //fonts.example/b.css",
        "style.css: https://c.example/c.css",
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def opened(page: str) -> str:
    """A page as Chromium shows it, opened from the disk, without a network."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [chromium, *flags, "--virtual-time-budget=8000", "--dump-dom", f"file://{page}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return html.unescape(done.stdout)


@pytest.mark.sweep
def test_the_search_for_operators_filters(site):
    page = opened(f"{site}/operator-matrix.html?name=topk&opset=9&state=supported")
    found = re.findall(r'<th scope="row"><code>([^<]+)</code>', page)
    expected = operator_support([9], "topk")
    assert found == [name for name, at in expected.items() if at[9].support in ("symbolic", "decomposed")]
    assert found
    none = opened(f"{site}/operator-matrix.html?name=topk&opset=9&state=refused")
    assert not re.findall(r'<th scope="row"><code>', none)


@pytest.mark.sweep
def test_the_text_search_works_from_disk(site):
    page = opened(f"{site}/index.html?q=locate_mismatch")
    results = re.findall(r'<a href="([^"]+)" class="md-search-result__link"', page)
    assert any("api/programs.html" in link for link in results), results
