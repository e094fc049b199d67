"""Describes the file of a net as plain data for tables and JSON."""

import collections
import os
from collections.abc import Mapping
from typing import Any

from ...files.reading import bounds_of
from .arguments import text_of
from .fillers import is_filler
from .input_descriptions import Description, read_value_info
from .net_reading import encoding_of, read_net


def describe_net(path: str | os.PathLike[str], *, trusted: bool = False) -> dict[str, Any]:
    """Describe a net: external inputs that its fillers do not write, outputs, operators, weights.

    Args:
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: see `read_net`.
    """
    net = read_net(path, bounds_of(trusted))
    descriptions = read_value_info(path)
    counts = collections.Counter(text_of(operator.type, "an operator") for operator in net.op)
    fillers = [operator for operator in net.op if is_filler(operator)]
    filled_names = {name for operator in fillers for name in operator.output}
    return {
        "file": os.fspath(path),
        "bytes": os.path.getsize(path),
        "kind": "Caffe2 net",
        "form": encoding_of(path),
        "producer": text_of(net.name, "the net") or "without a name",
        "inputs": [_value(name, descriptions) for name in net.external_input if name not in filled_names],
        "outputs": [_value(name, {}) for name in net.external_output],
        "nodes": counts.total(),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "constants": {"count": len(fillers), "bytes": sum(operator.ByteSize() for operator in fillers)},
    }


def _value(name: str, descriptions: Mapping[str, Description]) -> dict[str, Any]:
    description = descriptions.get(text_of(name, "a blob"))
    return {
        "name": name,
        "type": description.dtype.name
        if description is not None and description.dtype is not None
        else "unknown",
        "shape": list(description.shape) if description is not None else None,
    }
