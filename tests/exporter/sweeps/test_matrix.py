"""The matrix of a sweep as an HTML page."""

import html
import json
import math
import re
import shutil
import subprocess

import pytest

from opsetta.exporter.sweeps.results.matrix import matrix_page, write_matrix
from opsetta.exporter.sweeps.rows import DIFFERS, PASSED, REFUSED, STATUSES, Row

EVIL = "<script>document.title='broken'</script>&\"'"
ROWS = [
    Row("linear", 13, "own", "own", "none", PASSED, nodes=3, latency_ms=0.25, peak_memory=412_000_000),
    Row("linear", 9, "own", "float16", "none", PASSED, nodes=4),
    Row("linear", 9, "own", "own", "none", DIFFERS, "VerificationError", "differs", parity_error=math.inf),
    Row(EVIL, 9, "own", "own", "none", REFUSED, "TargetError", f"{EVIL}\u2028</script>"),
]


@pytest.fixture(scope="module")
def page():
    return matrix_page(ROWS)


def test_names_and_messages_are_escaped(page):
    assert page.count("<script") == page.count("</script>") == 2
    assert html.escape(EVIL) in page
    [data] = re.findall(r'<script type="application/json" id="rows">(.*?)</script>', page)
    rows = json.loads(data, parse_constant=lambda name: pytest.fail(name))
    assert [row["model"] for row in rows] == [row.model for row in ROWS]
    assert rows[2]["parity_error"] == "inf"
    assert rows[3]["error"] == ROWS[3].error


def test_a_row_for_each_model_and_a_column_for_each_opset_and_variant(page):
    head, body = page[page.index("<thead") : page.index("</thead")], page[page.index("<tbody") :]
    assert re.findall(r'colspan="(\d)"[^>]*>(\d+)<', head) == [("2", "9"), ("1", "13")]
    assert re.findall(r'<th scope="col"[^>]*>(\w+)</th>', head) == ["float16", "own", "own"]
    lines = re.findall(r"<tr data-model=.*?</tr>", body, re.DOTALL)
    assert [re.findall(r'data-row="(\d)"', line) for line in lines] == [["1", "2", "0"], ["3"]]


def test_the_page_needs_no_network(page):
    assert not re.search(r"(src|href)\s*=|https?:|url\(|@import", page)


def test_every_status_has_a_colour(page):
    style = page[: page.index("</style>")]
    assert [name for name in STATUSES if f".{name.replace(' ', '-')}" not in style] == []


def test_a_page_without_rows_is_a_page(tmp_path):
    write_matrix(tmp_path / "matrix.html", [])
    assert "0 jobs" in (tmp_path / "matrix.html").read_text()


SCRIPT = """
<script>
const seen = [];
const visible = () => [...document.querySelectorAll("tbody tr")].filter(line => !line.hidden).length;
document.querySelector('[data-row="3"]').click();
seen.push(card.hidden, card.querySelector("pre").textContent);
document.querySelector('[data-row="0"]').click();
seen.push(card.querySelector("dl").textContent);
dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
seen.push(card.hidden, visible());
search.value = "LIN"; search.dispatchEvent(new Event("input"));
seen.push(visible());
search.value = "none such"; search.dispatchEvent(new Event("input"));
seen.push(visible(), document.getElementById("none").hidden);
search.value = ""; chips[chips.length - 2].click();
seen.push(chips[chips.length - 2].dataset.status, visible());
shown.value = "nodes"; shown.dispatchEvent(new Event("change"));
seen.push(document.querySelector('[data-row="1"]').textContent, document.title);
document.documentElement.dataset.seen = JSON.stringify(seen);
</script>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_the_page_in_a_browser(page, tmp_path):
    path = tmp_path / "matrix.html"
    path.write_text(page.replace("</body>", f"{SCRIPT}</body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        ["chromium", *options, "--enable-logging=stderr", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    [seen] = re.findall(r'<html[^>]* data-seen="([^"]*)"', done.stdout)
    figures = "nodes3latency0.25 mspeak memory412 MB"
    assert json.loads(html.unescape(seen)) == [
        *(False, f"TargetError: {ROWS[3].error}", figures),
        *(True, 2, 1, 0, False, "refused", 1, "4", "opsetta sweep"),
    ]
