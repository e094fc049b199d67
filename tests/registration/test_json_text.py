"""JSON is parsed within bounds of memory and nesting."""

import pytest

from opsetta.registration.json_text import parse_json


def test_bytes_and_texts_are_parsed():
    assert parse_json('[{}, 1, "é"]'.encode()) == parse_json('[{}, 1, "é"]') == [{}, 1, "é"]
    assert parse_json(b"{}", object_pairs_hook=len) == 0


@pytest.mark.parametrize("piece", [b"1,", b"[],", b"{},", b'{"a":0},', b'"abc",'])
def test_values_that_would_take_much_memory_are_refused(piece):
    count = 30_000_000 // len(piece)
    with pytest.raises(ValueError, match="bytes of memory, more than the limit of"):
        parse_json(b"[" + piece * count + b"0]")
    assert len(parse_json(b"[" + piece * 1000 + b"0]")) == 1001


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 50_000, "[" * 50_000 + "]" * 50_000])
def test_deep_nesting_is_refused(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)


@pytest.mark.parametrize("text", ["", "[1,", "7" * 5_000, "\x00"])
def test_malformed_text_is_refused(text):
    with pytest.raises(ValueError, match="Expecting value|[Ee]xceeds the limit|[Ee]xpecting"):
        parse_json(text)
    with pytest.raises(UnicodeDecodeError):
        parse_json(b'"\xe9"')
