"""Runs the sub-graphs of If, Loop and Scan in the arena."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from ....passes.onnx_graph.inplace.memory_sharing import STANDARD_DOMAINS


class Frame(Protocol):
    """A graph that runs in memory."""

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs that have memory."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Copies of the outputs."""

    def read(self, name: str) -> np.ndarray:
        """Read a value of the graph, or of an enclosing one."""

    def body(self, index: int, attribute: str) -> Frame | None:
        """The sub-graph of a node; None if it has no plan."""


def run_bodies(node: ir.Node, index: int, frame: Frame) -> list[np.ndarray] | None:
    """The outputs of a control flow node, by running its sub-graphs.

    Returns:
        None if the node has to be run as a whole: it has no sub-graphs, one without a plan, or one that does
        not run, so that nothing tells the sizes of empty results.
    """
    if node.domain not in STANDARD_DOMAINS:
        return None
    if node.op_type == "If":
        branch = "then_branch" if frame.read(node.inputs[0].name or "").item() else "else_branch"  # type: ignore[union-attr]
        body = frame.body(index, branch)
        return None if body is None else body.run([])
    body = frame.body(index, "body") if node.op_type in ("Loop", "Scan") else None
    if body is None:
        return None
    inputs = [None if value is None else frame.read(value.name or "").copy() for value in node.inputs]
    return _loop(node, body, inputs) if node.op_type == "Loop" else _scan(node, body, inputs)


def _loop(node: ir.Node, body: Frame, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    trips, condition = (inputs[place] if len(inputs) > place else None for place in (0, 1))
    carried = [array for array in inputs[2:] if array is not None]
    count = len(carried)
    scanned: list[list[np.ndarray]] = [[] for _ in node.outputs[count:]]
    goes_on = True if condition is None else bool(condition.item())
    for iteration in itertools.count():
        if not goes_on or (trips is not None and iteration >= trips.item()):
            break
        outputs = body.run([np.array(iteration, np.int64), np.array(goes_on), *carried])
        goes_on = bool(outputs[0].item())
        carried = outputs[1 : 1 + count]
        for results, array in zip(scanned, outputs[1 + count :], strict=True):
            results.append(array)
    if scanned and not scanned[0]:
        return None
    return [*carried, *map(np.stack, scanned)]


def _scan(node: ir.Node, body: Frame, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    given = [array for array in inputs if array is not None]
    scans = node.attributes["num_scan_inputs"].as_int()
    states, sequences = given[: len(given) - scans], given[len(given) - scans :]
    count = len(states)
    axes = node.attributes.get_ints("scan_input_axes", [0] * scans)
    backward = node.attributes.get_ints("scan_input_directions", [0] * scans)
    turned = [np.moveaxis(array, axis, 0) for array, axis in zip(sequences, axes, strict=True)]
    turned = [array[::-1] if flag else array for array, flag in zip(turned, backward, strict=True)]
    results: list[list[np.ndarray]] = [[] for _ in node.outputs[count:]]
    for step in range(len(turned[0])):
        outputs = body.run([*states, *(array[step] for array in turned)])
        states = outputs[:count]
        for found, array in zip(results, outputs[count:], strict=True):
            found.append(array)
    if results and not results[0]:
        return None
    axes = node.attributes.get_ints("scan_output_axes", [0] * len(results))
    backward = node.attributes.get_ints("scan_output_directions", [0] * len(results))
    return [
        *states,
        *(
            np.stack(found[::-1] if flag else found, axis)
            for found, axis, flag in zip(results, axes, backward, strict=True)
        ),
    ]
