"""Compares the source graphs of direct capture and of torch.export."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import torch

from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.capture.pytorch.capture_model import capture
from opsetta.exporter.captured_graph.capture import Capture
from opsetta.exporter.files.graph_file.equality import difference
from opsetta.exporter.torch_boundary.boundary import boundary
from opsetta.registration import DIMENSIONS, RANGES

_NUMBERED = re.compile(r"_\d+$")


def unlike(model: Any, args: tuple, kwargs: dict[str, Any] | None = None, **options: Any) -> str | None:
    """The first difference of the two captures of a model that is not explained; None if they are equal."""
    direct, exported = (
        _captured(by, model, args, kwargs or {}, options) for by in ("direct", "torch.export")
    )
    _leave_out_explained(direct, exported)
    if options.get("dynamic_shapes") is not None:
        for found in (direct, exported):
            _renumber(found.source.graph, collections.Counter())
    return difference(direct, exported)


def _captured(by: str, model: Any, args: tuple, kwargs: dict[str, Any], options: dict[str, Any]) -> Capture:
    with boundary():
        torch.manual_seed(0)
        return capture(model, args, kwargs, CaptureOptions(capture=by, narrow=True, **options))


def _leave_out_explained(direct: Capture, exported: Capture) -> None:
    """Remove the differences that are expected.

    torch's bookkeeping of tensors compares sizes, which direct capture does not. So the ranges of sizes may
    be wider in direct capture, and conditions that torch.export derives from such comparisons are absent.
    """
    metadata = [found.source.metadata_props for found in (direct, exported)]
    for each in metadata:
        each.pop(DIMENSIONS, None)
    wide, narrow = (json.loads(each.pop(RANGES, "{}")) for each in metadata)
    assert wide.keys() == narrow.keys()
    assert all(_contains(wide[name], narrow[name]) for name in wide)


def _renumber(graph: ir.Graph, numbers: collections.Counter[str]) -> None:
    """Number nodes and their results anew, by their order.

    torch.export also numbers the sizes of every tensor and their arithmetic, most of which it removes again.
    Direct capture knows that most of them are equal, and makes fewer.
    """
    for node in graph:
        for named in (node, *node.outputs):
            stem = _NUMBERED.sub("", named.name or "")
            numbers[stem] += 1
            named.name = f"{stem}_{numbers[stem]}"
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _renumber(attribute.as_graph(), numbers)


def _contains(outer: list[int | None], inner: list[int | None]) -> bool:
    below = outer[0] is None or (inner[0] is not None and outer[0] <= inner[0])
    return below and (outer[1] is None or (inner[1] is not None and inner[1] <= outer[1]))


def records_of(module: Any) -> Iterator[Any]:
    """The parity records of a test module, each once."""
    from ...parity.records import Record

    seen: set[int] = set()
    for item in vars(module).values():
        members = item if isinstance(item, (list, tuple)) else _parameters(item)
        for record in members:
            if isinstance(record, Record) and id(record) not in seen:
                seen.add(id(record))
                yield record


def _parameters(test: Any) -> Iterator[Any]:
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            for case in mark.args[1]:
                values = getattr(case, "values", case)
                yield from values if isinstance(values, tuple) else (case,)
