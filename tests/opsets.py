"""The opsets of the tests, and tests that go through several of them."""

import contextlib
import os
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

import opsetta

HIGHEST = opsetta.MAXIMUM_OPSET
OPSETS = range(opsetta.MINIMUM_OPSET, HIGHEST + 1)


def is_full_run() -> bool:
    """Whether the full parametrisation was asked for."""
    return os.environ.get("OPSETTA_SWEEP", "") not in ("", "0")


@contextlib.contextmanager
def named(opset: int) -> Iterator[None]:
    """A failure inside says at which opset it was."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"at opset {opset}: {error}") from error


def checked(program: opsetta.Program, opset: int) -> opsetta.Program:
    """The program, whose file must declare the opset and be valid there."""
    assert program.model.opset_imports[""] == opset
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def emission(program: opsetta.Program) -> tuple[bytes, frozenset[tuple[str, int]]]:
    """What a program emits: its graph, and the versions that its operators have at its opset."""
    versions = set()
    for node in program.model.graph.all_nodes():
        if node.domain == "":
            version = onnx.defs.get_schema(node.op_type, program.opset).since_version
            versions.add((node.op_type, version))
    graph = ir.to_proto(program.model).graph.SerializeToString(deterministic=True)
    return graph, frozenset(versions)


def choose(opsets: Iterable[int], turn: int) -> list[int]:
    """The lowest, the highest, and one in between, at each turn another one; all of them in a full run."""
    ordered = sorted(opsets)
    if len(ordered) < 4 or is_full_run():
        return ordered
    lowest, *between, highest = ordered
    return [lowest, between[turn % len(between)], highest]


def changes(
    program: opsetta.Program, opsets: Iterable[int], turn: int
) -> Iterator[tuple[int, opsetta.Program]]:
    """A program at those of some opsets where its graph is another than at the one before.

    Args:
        turn: which of the opsets a quick run takes, see `choose`.
    """
    before = None
    for opset in choose(opsets, turn):
        with named(opset):
            lowered = program.lower(opset)
        graph = ir.to_proto(lowered.model).graph.SerializeToString(deterministic=True)
        if graph != before or is_full_run():
            yield opset, lowered
        before = graph
