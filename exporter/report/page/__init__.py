"""The page of a report: one HTML file with its style, its scripts and its facts."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from importlib import resources

from ....registration.printable import printable
from ...files.output.publishing import publish

_SCRIPTS = ("elements.js", "layout.js", "drawing.js", "graph.js", "plots.js", "sections.js", "page.js")


def render(facts: Mapping[str, object]) -> str:
    """The page. Texts of the model stand in one block of JSON, in which `<`, `>` and `&` are escaped."""
    text = json.dumps(facts, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    scripts = "\n".join(f"<script>\n{_text(name)}</script>" for name in _SCRIPTS)
    parts = {
        "title": html.escape(printable(str(facts["title"]))),
        "style": f"<style>\n{_text('style.css')}</style>",
        "facts": f'<script type="application/json" id="facts">{text}</script>',
        "scripts": scripts,
    }
    page = _text("page.html")
    for name, part in parts.items():
        before, _, after = page.partition(f"<!--{name}-->")
        page = f"{before}{part}{after}"
    return page


def save(facts: Mapping[str, object], path: str | bytes | os.PathLike[str]) -> None:
    """Write the page of the facts of `Report.to_json`, completely or not at all.

    Raises:
        ModelFileError: the file cannot be written.
    """
    content = render(facts).encode()
    publish(path, lambda file, _: file.write(content))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
