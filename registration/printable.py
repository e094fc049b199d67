"""Makes text safe to print: escapes control characters of names from files, and shortens long values."""

from __future__ import annotations

import re
import reprlib

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and newline, DEL, C1
    r"\u200e\u200f\u2028-\u202e\u2066-\u2069"  # separators, and what changes the direction of writing
    r"\ud800-\udfff]"  # halves of a character
)

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 20
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 200


def shortened(value: object) -> str:
    """The `repr` of a value, without the middle of a long text and the end of a long list."""
    return _SHORT.repr(value)


def printable(text: str) -> str:
    r"""The text with control characters as escapes, such as `\x1b`; newlines and tabs stay."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(error: BaseException) -> str:
    """The message of an exception on one line, also if its class fails to give one."""
    try:
        text = str(error)
    except Exception:
        text = "<exception str() failed>"
    return " ".join(text.split())
