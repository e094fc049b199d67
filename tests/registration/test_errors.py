"""Messages: what files and models name reaches a terminal without control characters."""

import pytest

import opsetta
from opsetta.registration import OpsettaError, UnsafeAnnotation, UnsupportedOperator
from opsetta.registration.printable import printable

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\x9b31m\u202e\u2028\x00\x7f"


def every_error() -> list[type[OpsettaError]]:
    found, left = [], [OpsettaError]
    while left:
        kind = left.pop()
        found.append(kind)
        left.extend(kind.__subclasses__())
    # torch.onnx's own errors, under its names, take other arguments.
    return [kind for kind in found if kind.__module__ == OpsettaError.__module__]


def test_every_error_escapes_control_characters():
    assert len(every_error()) > 12
    for kind in every_error():
        if issubclass(kind, opsetta.AnnotationError):
            error = kind([UnsafeAnnotation(HOSTILE, HOSTILE, "")])
        elif issubclass(kind, opsetta.UnsupportedOperatorsError):
            error = kind(9, [UnsupportedOperator(HOSTILE, HOSTILE, None, (HOSTILE,), False)])
        elif issubclass(kind, opsetta.TargetError):
            error = kind("rknn", HOSTILE)
        else:
            error = kind(f"a\tb\nc {HOSTILE} ключ 名前 é")
        text = str(error)
        assert not {c for c in text if c != "\n" and c != "\t" and not c.isprintable()}, kind
        assert "\\x1b]0;title\\x07" in text


@pytest.mark.parametrize("text", ["", "plain", "a\tb\nc", "ключ 名前 é", "😀"])
def test_what_can_be_printed_stays(text):
    assert printable(text) == text
