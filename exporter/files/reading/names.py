"""Formats names from a file, which may contain any characters, for messages."""

from __future__ import annotations

from collections.abc import Sequence

import onnx


def quoted(name: str | bytes) -> str:
    """A name in quotes, with control characters escaped, truncated if long."""
    text = repr(name) if isinstance(name, bytes) else f"'{_escape(name)}'"
    return text if len(text) <= 120 else f"{text[:110]}...'"


def _escape(name: str) -> str:
    name = name[:200]
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


def node_title(node: onnx.NodeProto) -> str:
    """The title of a node: its name, or its outputs."""
    if node.name:
        return f"node {quoted(node.name)}"
    return (
        f"the {_escape(node.op_type) or 'node'} of {listed(list(map(quoted, node.output[:5]))) or 'nothing'}"
    )


def listed(names: Sequence[object], most: int = 4) -> str:
    """A list of names, truncated after the first few."""
    text = ", ".join(str(name) for name in names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text
