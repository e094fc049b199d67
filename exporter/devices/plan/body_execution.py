"""Runs the sub-graphs of If, Loop and Scan in the arena."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from ....passes.onnx_graph.inplace.memory_sharing import STANDARD_DOMAINS


class Frame(Protocol):
    """A graph that runs in a block of memory; see `arena._Frame`."""

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs that have a buffer."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the graph and return copies of the outputs."""

    def read_value(self, name: str) -> np.ndarray:
        """Read a value of the graph, or of an enclosing one."""

    def body(self, index: int, attribute: str) -> Frame | None:
        """Return the sub-graph in an attribute of a node; None if it has no plan."""


def run_bodies(node: ir.Node, index: int, frame: Frame) -> list[np.ndarray] | None:
    """Run the sub-graphs of a control flow node.

    Returns:
        The outputs of the node. None if the node must run as a whole: it has no sub-graphs, one has no plan,
        or no iteration runs, so that the shapes of its empty results are unknown.
    """
    if node.domain not in STANDARD_DOMAINS:
        return None
    if node.op_type == "If":
        branch = "then_branch" if frame.read_value(node.inputs[0].name or "").item() else "else_branch"  # type: ignore[union-attr]
        body = frame.body(index, branch)
        return None if body is None else body.run([])
    body = frame.body(index, "body") if node.op_type in ("Loop", "Scan") else None
    if body is None:
        return None
    inputs = [None if value is None else frame.read_value(value.name or "").copy() for value in node.inputs]
    return _loop(node, body, inputs) if node.op_type == "Loop" else _scan(node, body, inputs)


def _loop(node: ir.Node, body: Frame, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    trips, condition = (inputs[index] if len(inputs) > index else None for index in (0, 1))
    carried = [array for array in inputs[2:] if array is not None]
    count = len(carried)
    scanned: list[list[np.ndarray]] = [[] for _ in node.outputs[count:]]
    continues = True if condition is None else bool(condition.item())
    for iteration in itertools.count():
        if not continues or (trips is not None and iteration >= trips.item()):
            break
        outputs = body.run([np.array(iteration, np.int64), np.array(continues), *carried])
        continues = bool(outputs[0].item())
        carried = outputs[1 : 1 + count]
        for results, array in zip(scanned, outputs[1 + count :], strict=True):
            results.append(array)
    if scanned and not scanned[0]:
        # Without an iteration, only onnxruntime's shape inference gives the shapes of the empty outputs.
        return None
    return [*carried, *map(np.stack, scanned)]


def _scan(node: ir.Node, body: Frame, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    present = [array for array in inputs if array is not None]
    scans = node.attributes["num_scan_inputs"].as_int()
    states, sequences = present[: len(present) - scans], present[len(present) - scans :]
    count = len(states)
    axes = node.attributes.get_ints("scan_input_axes", [0] * scans)
    backward = node.attributes.get_ints("scan_input_directions", [0] * scans)
    scanned = [np.moveaxis(array, axis, 0) for array, axis in zip(sequences, axes, strict=True)]
    scanned = [array[::-1] if flag else array for array, flag in zip(scanned, backward, strict=True)]
    results: list[list[np.ndarray]] = [[] for _ in node.outputs[count:]]
    for step in range(len(scanned[0])):
        outputs = body.run([*states, *(array[step] for array in scanned)])
        states = outputs[:count]
        for steps, array in zip(results, outputs[count:], strict=True):
            steps.append(array)
    # For an empty sequence, only onnxruntime's shape inference gives the shapes of the empty outputs.
    if results and not results[0]:
        return None
    axes = node.attributes.get_ints("scan_output_axes", [0] * len(results))
    backward = node.attributes.get_ints("scan_output_directions", [0] * len(results))
    return [
        *states,
        *(
            np.stack(steps[::-1] if flag else steps, axis)
            for steps, axis, flag in zip(results, axes, backward, strict=True)
        ),
    ]
