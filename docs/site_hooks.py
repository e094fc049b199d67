"""Functions that mkdocs calls while it builds the site; `hooks` in mkdocs.yml names this file.

- CONTRIBUTING.md, CHANGELOG.md and SECURITY.md of the repository and its examples become pages.
- `docs/toolchains/NAME.md` get their part of the table of all toolchains.
- The page of operators gets its data.
- The finished site is searched for what would load from a network.
"""

from __future__ import annotations

import json
import pathlib
import posixpath
import re
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parent.parent

FROM_ROOT = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Pages of the site that are files at the root of the repository."""

LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
LETTERS = {"symbolic": "s", "decomposed": "d", "refused": "r", None: "."}


@event_priority(100)  # Before mkdocstrings reads its configuration.
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the package."""
    folder = package_folder()
    handlers = config.plugins["mkdocstrings"].config.handlers
    handlers["python"]["paths"] = [folder.name]
    # It is deleted together with the configuration.
    config.extra["package_folder"] = folder
    return config


def package_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with the package under its name: in the repository the package is the root."""
    folder = tempfile.TemporaryDirectory()
    package = pathlib.Path(folder.name, "opsetta")
    package.mkdir()
    for name in ("__init__.py", "registration", "symbolics", "passes", "exporter", "torch_onnx"):
        (package / name).symlink_to(ROOT / name)
    return folder


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere in the repository."""
    for name, page in FROM_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=from_root(text)))
    return files


def from_root(text: str) -> str:
    """Markdown of the repository's root, with links as a page of docs/ has them."""

    def moved(link: re.Match[str]) -> str:
        path, anchor = link["path"], link["anchor"] or ""
        return (path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}") + anchor

    return LINK.sub(moved, text)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of docs/ to the pages that the site has for them, and fill in generated parts."""
    here = posixpath.dirname(page.file.src_uri)

    def inside(link: re.Match[str]) -> str:
        root = posixpath.normpath(posixpath.join("docs", here, link["path"]))
        if root not in FROM_ROOT:
            return link[0]
        return posixpath.relpath(FROM_ROOT[root], here or ".") + (link["anchor"] or "")

    markdown = LINK.sub(inside, markdown)
    if "<!-- operators -->" in markdown:
        markdown = markdown.replace("<!-- operators -->", operator_data())
    return markdown


def operator_data() -> str:
    """The support of every operator at every opset, as an element with JSON.

    An operator is its name, a letter for each opset (upper case: some samples were refused), and remarks.
    """
    from opsetta.exporter.command_line.operator_support import REFUSED, operator_support, remarks
    from opsetta.registration import MAXIMUM_OPSET, MINIMUM_OPSET

    opsets = list(range(MINIMUM_OPSET, MAXIMUM_OPSET + 1))
    operators = []
    for name, entries in operator_support(opsets).items():
        letters = ""
        for entry in entries.values():
            letter = LETTERS[entry.support]
            letters += letter.upper() if entry.reasons and entry.support != REFUSED else letter
        operators.append([name, letters, "; ".join(remarks(entries))])
    data = {"opsets": opsets, "operators": operators}
    # "</" would end the element.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    return f'<script type="application/json" id="operator-data">{text}</script>'


class Loads(HTMLParser):
    """Collects the addresses from which a page loads something by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Look at the attributes that make a browser load."""
        given = dict(attributes)
        names = {"link": ["href"], "a": [], "form": []}.get(tag, ["src", "srcset", "data", "poster", "href"])
        self.found += [given[name] or "" for name in names if name in given]


def network_loads(site: pathlib.Path) -> Iterator[str]:
    """Everything in a finished site that a browser would load from a network."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            page = Loads()
            page.feed(path.read_text(encoding="utf-8"))
            loads = page.found
        elif path.suffix == ".css":
            loads = re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text(encoding="utf-8"))
        else:
            continue
        yield from (f"{path.relative_to(site)}: {url}" for url in loads if re.match(r"(https?:)?//", url))


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that would load from a network."""
    found = list(network_loads(pathlib.Path(config.site_dir)))
    if found:
        raise PluginError("the site would load from a network:\n" + "\n".join(found))
