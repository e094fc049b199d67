"""Parses the text forms of a model (protobuf's text format and JSON, ONNX's syntax) within bounds.

Protobuf's parsers for these forms are written in Python: they recurse for each level of brackets, take
microseconds for each value, and need a hundred times the memory of a long string. So levels and values are
counted first, and long strings are split into pieces, which the text format joins again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx
import onnx.parser
from google.protobuf import json_format, text_format
from google.protobuf.message import Message

from ..bounds import BOUNDS, REMEDY, Bounds
from .wire import BoundError as BoundError

MAXIMUM_DEPTH = 100
"""Bound on the nesting of messages, as in a binary file."""

_MARKS = re.compile(r"[{}<>\[\],:;\"'#]")
_INSIDE = {
    quote: re.compile(rf"[^{quote}\\\n]{{0,65536}}(?:\\(?s:.)[^{quote}\\\n]{{0,65536}}){{0,64}}")
    for quote in "\"'"
}
"""A piece of a string that ends between two characters. It is short, because protobuf rescans runs of
backslashes from each one, and a repeated group in a regular expression stores every step.
"""
_FIRST_WORD = re.compile(rb"(?:\s|#[^\n]*\n){0,10000}([a-z_]{2,40})\s*[:{<]")
_ONNX_START = re.compile(rb"(?:\s|#[^\n]*\n){0,10000}<")
_OPENING, _CLOSING = "{<", "}>"
_STRING = r'"[^"\\]*(?:\\(?s:.)[^"\\]*)*(?:"|\\?\Z)'
"""A string with its quotes, to the end of the text where it is not closed."""
_ONNX_MARKS = re.compile(rf"{_STRING}|#[^\n]*|=>|[(){{}}\[\]<>]")
_LARGEST_FLOAT = re.compile(
    rf'"double(?:_d|D)ata"\s*:\s*\[[^\]]*\]|{_STRING}|(?P<sign>-?)\b3\.4028235e\+38\b'
)
_ONNX_OPENING, _ONNX_CLOSING = ("(", "{", "[", "<"), (")", "}", "]", ">")


class SyntaxFault(Exception):
    """The text is not a valid model in its detected form."""


def form_of(data: bytes) -> str:
    """The form that the first bytes indicate: "binary", "text", "JSON", "onnx text", or "" for none."""
    start = _start(data)
    if data[0] == onnx.ModelProto.IR_VERSION_FIELD_NUMBER << 3:
        return "binary"
    if start.lstrip().startswith(b"{"):
        return "JSON"
    if _ONNX_START.match(start):
        return "onnx text"
    return "text" if first_word(data) in onnx.ModelProto.DESCRIPTOR.fields_by_name else ""


def first_word(data: bytes) -> str:
    """The first field of a text; "" if the text does not begin like a message."""
    word = _FIRST_WORD.match(_start(data))
    return "" if word is None else word[1].decode()


def _start(data: bytes) -> bytes:
    return data[:1_000_000].removeprefix(b"\xef\xbb\xbf")


def check_length(size: int, form: str, bounds: Bounds) -> None:
    """Refuse a text that is too long.

    Raises:
        BoundError: with the bound.
    """
    if size > bounds.text_bytes:
        raise BoundError(
            f"it has {size} bytes, and {form} is read up to {bounds.text_bytes}",
            remedy=f"save it as binary, or {REMEDY}",
        )


def parse(data: bytes, form: str, model: Message, bounds: Bounds = BOUNDS) -> None:
    """Read "text", "JSON" or "onnx text" into a model, "text" into a message of any type.

    Raises:
        BoundError: it is too long, too deep, or has too many values.
        SyntaxFault: it is not a model in this form.
    """
    check_length(len(data), form, bounds)
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SyntaxFault(f"it is not {form} in UTF-8, at byte {error.start}") from None
    try:
        if form == "onnx text":
            _check_brackets(decoded)
            model.CopyFrom(onnx.parser.parse_model(decoded))
        elif form == "JSON":
            # Only for the bounds: the JSON parser itself has none on the number of values.
            for _ in _pieces(decoded, '"', bounds.text_values):
                pass
            json_format.Parse(exact_largest_floats(decoded), model, max_recursion_depth=MAXIMUM_DEPTH)
        else:
            pieces = _pieces(decoded, "\"'#", bounds.text_values)
            text_format.Parse("".join(pieces), model, descriptor_pool=model.DESCRIPTOR.file.pool)
    except text_format.ParseError as error:
        where = f"line {error.GetLine()}, column {error.GetColumn()}: " if error.GetLine() else ""
        raise SyntaxFault(f"{where}{_short(error)}") from None
    except onnx.parser.ParseError as error:
        raise SyntaxFault(_onnx_reason(error)) from None
    except (json_format.ParseError, ValueError) as error:
        # The text format does not check the range of an enumeration's numbers, and setting one fails.
        raise SyntaxFault(_short(error)) from None
    except RecursionError:
        raise BoundError("the caller's stack is too deep to read it", remedy="") from None


def exact_largest_floats(text: str) -> str:
    """Write the largest float32 of a model in JSON with all its digits.

    Protobuf prints the shortest number that rounds to it, 3.4028235e+38, and refuses to read that number,
    because as a double it is larger.
    """

    def exact(match: re.Match[str]) -> str:
        return match[0] if match["sign"] is None else f"{match['sign']}3.4028234663852886e+38"

    return _LARGEST_FLOAT.sub(exact, text)


def _short(error: Exception) -> str:
    """The parser's message without file contents: text format repeats the line, JSON the path."""
    lines = str(error).splitlines() or [""]
    reason = lines[0].rsplit("': ", 1)[-1] if isinstance(error, text_format.ParseError) else lines[0]
    reason = reason if len(reason) <= 200 else f"...{reason[-200:]}"
    return reason.encode("unicode_escape").decode("ascii")


def _check_brackets(text: str) -> None:
    """Bound the nesting of ONNX's own syntax, whose parser recurses for each level."""
    depth = 0
    for mark in _ONNX_MARKS.finditer(text):
        depth += (mark[0] in _ONNX_OPENING) - (mark[0] in _ONNX_CLOSING)
        if depth > MAXIMUM_DEPTH:
            raise BoundError(f"its brackets are nested more than {MAXIMUM_DEPTH} deep", remedy="")


def _onnx_reason(error: Exception) -> str:
    """The position and reason of an error from ONNX's parser, without the repeated line of the file."""
    lines = str(error).removeprefix("b'").removesuffix("'").replace("\\n", "\n").splitlines() or [""]
    position = re.search(r"line: (\d+) column: (\d+)", lines[0])
    where = f"line {position[1]}, column {position[2]}: " if position else ""
    return where + lines[-1][-200:].encode("unicode_escape").decode("ascii")


def _pieces(text: str, special: str, most: int) -> Iterator[str]:
    """Split the text into pieces, with long strings split too, and count brackets and values.

    Args:
        special: the quotes of strings, and the character that begins a comment.
        most: how many values there may be.
    """
    depth = values = position = copied = 0
    while True:
        mark = _MARKS.search(text, position)
        if mark is None:
            break
        character, position = mark[0], mark.end()
        if character in "\"'#":
            if character not in special:
                continue
            if character == "#":
                line = text.find("\n", position)
                position = len(text) if line < 0 else line
                continue
            for cut in _cuts(text, position, character):
                yield text[copied:cut]
                yield f"{character}\n{character}"
                copied = position = cut
            end = _INSIDE[character].match(text, position)
            position = end.end() + 1 if end is not None else position
            continue
        values += 1
        if values > most:
            raise BoundError(f"it holds more than {most} values")
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth > MAXIMUM_DEPTH:
            raise BoundError(f"its brackets are nested more than {MAXIMUM_DEPTH} deep", remedy="")
    yield text[copied:]


def _cuts(text: str, position: int, quote: str) -> Iterator[int]:
    """The positions at which a string is split, so that `_INSIDE` matches each piece."""
    while True:
        end = _INSIDE[quote].match(text, position)
        assert end is not None  # The pattern also matches the empty string.
        if end.end() >= len(text) or text[end.end()] in (quote, "\n") or end.end() == position:
            return
        position = end.end()
        yield position
