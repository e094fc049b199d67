"""Lines of code are named by module path or file name."""

from __future__ import annotations

import importlib
import json.decoder
import pathlib
import sys

import pytest

from opsetta.exporter.captured_graph.code_lines import shown_frame, shown_line


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/somebody/models/net.py", "net.py:3"),
        ("net.py", "net.py:3"),
        ("../lib/net.py", "net.py:3"),
        (r"C:\Users\somebody\net.py", "net.py:3"),
        ("/opt/venv/lib/python3.12/site-packages/timm/models/vit.py", "timm/models/vit.py:3"),
        (r"C:\Python\Lib\site-packages\timm\layers.py", "timm/layers.py:3"),
        ("/usr/lib/python3/dist-packages/torch/nn/functional.py", "torch/nn/functional.py:3"),
        ("<stdin>", "<stdin>:3"),
        ("", "<unknown>:3"),
        ("<ipython-input-3-abc>", "<ipython-input-3-abc>:3"),
        (json.decoder.__file__, "json/decoder.py:3"),
        (json.__file__, "json/__init__.py:3"),
        (__file__, "tests/exporter/captured_graph/test_code_lines.py:3"),
    ],
)
def test_no_line_has_the_path_of_a_machine(file: str, shown: str) -> None:
    assert shown_line(file, 3) == shown
    assert shown_frame(f'  File "{file}", line 3, in forward') == shown


def test_an_imported_module_has_its_path_in_any_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("first", "second/deeper"):
        package = tmp_path / folder / "nets_of_this_test"
        package.mkdir(parents=True)
        (package / "small.py").write_text("import nets_of_this_test\n", encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(package.parent))
            module = importlib.import_module("nets_of_this_test.small")
            assert shown_line(str(module.__file__), 1) == "nets_of_this_test/small.py:1"
        for name in ("nets_of_this_test.small", "nets_of_this_test"):
            sys.modules.pop(name)
