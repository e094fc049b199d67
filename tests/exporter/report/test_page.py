"""The page of a report: one file without network, safe for any text, looked at in headless Chromium."""

from __future__ import annotations

import html
import json
import math
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.captured_graph.specializations import Specialization
from opsetta.exporter.captured_graph.stages import Stage
from opsetta.exporter.report.page import render
from opsetta.exporter.report.records import (
    AtOpset,
    Compared,
    InterfaceValue,
    Parity,
    Picture,
    Problem,
    Report,
    WrittenModel,
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>&amp;"
STYLE = pathlib.Path(opsetta.__file__).parent / "exporter" / "report" / "page" / "style.css"


def hostile() -> Report:
    """A report in which every text of the model is markup."""
    node = [HOSTILE, HOSTILE, 1, 0, HOSTILE, HOSTILE, HOSTILE, HOSTILE]
    modules = [
        ["", "", HOSTILE, -1, [2, 0, 0, 0, 0], False],
        [HOSTILE, HOSTILE, HOSTILE, 0, [2, 0, 0, 0, 0], False],
    ]
    picture = Picture(modules, [node, node], [[0, 1]], 3)
    compared = Compared(HOSTILE, HOSTILE, HOSTILE, 0, HOSTILE, math.inf, 1.0, math.inf, (0,), HOSTILE)
    return Report(
        HOSTILE,
        {"opset": "12", "target": HOSTILE},
        WrittenModel({HOSTILE: 12}, 8, 2, 1, 4, (InterfaceValue("input", HOSTILE, HOSTILE),)),
        (Stage(HOSTILE, 0.1, None, None),),
        "file",
        picture,
        picture,
        Parity(HOSTILE, (compared,), (compared, compared), {HOSTILE: (0.1, 0.1)}, HOSTILE),
        (Problem(HOSTILE, (HOSTILE,), HOSTILE, HOSTILE),),
        (AtOpset(12, 2, 0, 0, 0.1, HOSTILE), AtOpset(13, None, note=HOSTILE)),
        ({"condition": HOSTILE, "line": HOSTILE, "reason": HOSTILE},),
        (Specialization(HOSTILE, HOSTILE, "branch", True),),
        {HOSTILE: HOSTILE},
    )


class Layers(nn.Module):
    """Enough modules that some are folded at first."""

    def __init__(self):
        super().__init__()
        layer = [nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)]
        self.layers = nn.Sequential(*(nn.Sequential(*layer) for _ in range(20)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1)


def eigenvalues(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvals(x.exp()).real


def facts_of(page: str) -> dict[str, Any]:
    [text] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page)
    return json.loads(text)


def test_a_page_is_one_file_without_network():
    page = render(Report("model", {"opset": "12"}).to_json())
    assert re.findall(r"(?:src|href)=\"(?!#)|url\((?!#)|@import", page) == []
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert "<!--" not in page


def test_texts_of_a_model_are_no_markup():
    page = render(hostile().to_json())
    assert "window.hostile" not in re.sub(r'<script type="application/json".*', "", page).replace(
        html.escape(HOSTILE), ""
    )
    assert facts_of(page) == hostile().to_json()
    assert page.count("<script") == len(list(STYLE.parent.glob("*.js"))) + 2


def test_the_page_is_written_as_a_whole(tmp_path):
    path = tmp_path / "report.html"
    Report("model", {"opset": "12"}).save(path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(opsetta.ModelFileError):
        Report("model", {"opset": "12"}).save(tmp_path / "missing" / "report.html")


def test_the_dark_theme_of_the_system_is_the_one_that_the_switch_chooses():
    style = STYLE.read_text(encoding="utf-8")
    chosen, by_system = (
        re.search(rf"{selector} \{{(.*?)\}}", style, re.DOTALL)[1].split()
        for selector in (r':root\[data-theme="dark"\]', r":root:not\(\[data-theme\]\)")
    )
    assert chosen == by_system


PROBE = pathlib.Path(__file__).with_name("probe.js")
"""Works through the pages as a user does, and writes what it sees into the page of frames."""


def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(
            "these tests need Chromium: apt-get install chromium (none of these commands was found: "
            f"{', '.join(BROWSERS)})"
        )
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What the browser shows of several reports, by name, from one launch; wide, and as on a phone."""
    folder = tmp_path_factory.mktemp("browser")
    options: dict[str, Any] = {"opset": 12, "opsets": [17]}
    reports = {
        "layers": opsetta.export_report(Layers().eval(), (torch.randn(2, 4),), **options),
        "refused": opsetta.export_report(eigenvalues, (torch.eye(3),), **options),
        "hostile": hostile(),
        "empty": Report("model", {"opset": "12"}, problems=(Problem("capturing", (), "why", "what"),)),
    }
    pages = {name: html.escape(render(report.to_json())) for name, report in reports.items()}
    frames = [
        f'<iframe id="{name}-{width}" width="{width}" height="900" data-page="{page}"></iframe>'
        for name, page in pages.items()
        for width in (1200, 390)
    ]
    page, script = folder / "frames.html", PROBE.read_text(encoding="utf-8")
    page.write_text(
        f'<!DOCTYPE html>{"".join(frames)}<pre id="results"></pre><script>{script}</script>', encoding="utf-8"
    )
    command = [
        *(browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--no-first-run", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
        *("--virtual-time-budget=20000", "--window-size=1280,1000", "--dump-dom", page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    [text] = re.findall(r'<pre id="results">(.*?)</pre>', done.stdout, re.DOTALL)
    return json.loads(html.unescape(text))


WIDTHS = pytest.mark.parametrize("width", [1200, 390])


@WIDTHS
@pytest.mark.parametrize("name", ["layers", "refused", "hostile", "empty"])
def test_pages_fit_without_errors(shown, name, width):
    found = shown[f"{name}-{width}"]
    assert "failure" not in found, found
    assert found["errors"] == []
    assert found["overflow"] <= 0
    assert found["unnamed"] == 0
    assert not found["hostile"]


@WIDTHS
def test_plots_and_graphs_are_drawn(shown, width):
    found = shown[f"layers-{width}"]
    assert found["title"] == "Layers"
    assert found["headings"] == ["Asked and written", "Graph", "Parity", "Across opsets", "Stages"]
    assert found["plots"] == 5
    assert found["points"] == 81
    assert found["tolerances"] == 1
    assert found["folded"] < found["boxes"] < found["unfolded"]
    assert found["folded"] < found["opened"]
    assert found["chosen"] == found["revealed"] == 1
    assert found["details"] > 3
    assert found["search"].startswith("1 of ")
    assert found["byError"] > 20


def test_a_model_that_cannot_be_written_has_a_page(shown):
    found = shown["refused-1200"]
    assert found["headings"][0] == "Why nothing was written"
    assert found["boxes"] == 5
    assert shown["empty-1200"]["headings"] == ["Why nothing was written", "Asked and written"]


def test_hostile_texts_are_shown_as_they_are(shown):
    assert shown["hostile-1200"]["title"] == HOSTILE


def test_the_theme_can_be_changed(shown):
    names, grounds, texts = zip(*shown["layers-1200"]["themes"], strict=True)
    assert [name.split()[1] for name in names] == ["Auto", "Light", "Dark"]
    assert grounds[1] != grounds[2]
    assert texts[1] != texts[2]


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    digits = colour.lstrip("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [r":root", r':root\[data-theme="dark"\]'])
def test_texts_have_contrast(theme):
    block = re.search(rf"^{theme} \{{(.*?)\}}", STYLE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[
        1
    ]
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", block))
    grounds = ["card", "page", "module"]
    pairs = [(text, ground) for text in ("text", "quiet", "accent", "bad", "good") for ground in grounds]
    pairs += [
        ("text", name)
        for name in ("as-is", "composed", "recognised", "folded", "unsupported", "interface", "notice")
    ]
    for text, ground in pairs:
        light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
