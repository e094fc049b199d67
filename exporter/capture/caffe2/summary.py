"""Describes a file with a net as plain data for tables and JSON."""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping
from typing import Any

from ...files.reading import bounds_of
from .arguments import text_of
from .fillers import is_filler
from .reading import form_of, read_net
from .shapes import Description, read_value_info


def describe_net(path: str | os.PathLike[str], *, trusted: bool = False) -> dict[str, Any]:
    """Describe a net: external inputs without those that its fillers write, outputs, operators, weights.

    Args:
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: see `read_net`.
    """
    net = read_net(path, bounds_of(trusted))
    known = read_value_info(path)
    counts = collections.Counter(text_of(operator.type, "an operator") for operator in net.op)
    fillers = [operator for operator in net.op if is_filler(operator)]
    filled = {name for operator in fillers for name in operator.output}
    return {
        "file": os.fspath(path),
        "bytes": os.path.getsize(path),
        "kind": "Caffe2 net",
        "form": form_of(path),
        "producer": text_of(net.name, "the net") or "without a name",
        "inputs": [_value(name, known) for name in net.external_input if name not in filled],
        "outputs": [_value(name, {}) for name in net.external_output],
        "nodes": counts.total(),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "constants": {"count": len(fillers), "bytes": sum(operator.ByteSize() for operator in fillers)},
    }


def _value(name: str, known: Mapping[str, Description]) -> dict[str, Any]:
    found = known.get(text_of(name, "a blob"))
    return {
        "name": name,
        "type": found.dtype.name if found is not None and found.dtype is not None else "unknown",
        "shape": list(found.shape) if found is not None else None,
    }
