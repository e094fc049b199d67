"""Random programs of views, writes and reads in branches and loops compute, exported, what eager does."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import hypothesis
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import opsetta
from opsetta.passes import remove_inplace
from opsetta.passes.inplace.mutating_operators import is_inplace_name, is_out_overload
from opsetta.registration import MUTATES, GraphError

from ..onnxruntime_sessions import open_session
from ..passes.scripted_graph import source_graph
from ..passes.source_interpreter import run, run_sharing
from .inplace_programs import Program, random_program

NAMES = ("a", "b", "index", "n")
OPSETS = (11, 13, 18, 24)
QUICK, SWEEP = 25, 2000


def _copied(arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(item.clone() if isinstance(item, torch.Tensor) else item for item in arguments)


def _called(
    function: Callable[..., Sequence[Any]], given: Sequence[Any]
) -> tuple[list[Any], tuple[Any, ...]]:
    """The results of a call, and the arguments as it left them."""
    after = _copied(given)
    return [result.clone() for result in function(*after)], after


def _same(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return all(np.array_equal(np.array(a), np.array(b)) for a, b in zip(found, wanted, strict=True))


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _nodes(attribute.as_graph())


def _check_graph(program: Program) -> None:
    """The pass alone, where nothing is known of any type or shape."""
    model = source_graph(program.function())

    def eager(*given: Any) -> list[Any]:
        return run_sharing(model, dict(zip(NAMES, given, strict=True)))

    calls = [(given, *_called(eager, given)) for given in program.inputs]
    try:
        remove_inplace(model, mutations="outputs")
    except GraphError as error:
        # Without strides nobody knows whether these are views.
        if "aten::reshape" in str(error) or "aten::flatten" in str(error):
            return
        raise
    assert not any(is_inplace_name(node.op_type) or is_out_overload(node) for node in _nodes(model.graph))
    for given, results, after in calls:
        found = run(model, dict(zip(NAMES, given, strict=True)))
        torch.testing.assert_close(found[: len(results)], results, rtol=0, atol=0, equal_nan=True)
        changed = list(model.graph.outputs)[len(results) :]
        new = {o.metadata_props[MUTATES]: v for o, v in zip(changed, found[len(results) :], strict=True)}
        for name, before, item in zip(NAMES, given, after, strict=True):
            torch.testing.assert_close(new.get(name, before), item, rtol=0, atol=0, equal_nan=True)
    assert not remove_inplace(model)


def _session(model: bytes) -> onnxruntime.InferenceSession:
    return open_session(model, optimized=False)


def _check_export(program: Program, opset: int) -> None:
    """The way through TorchScript, capture, every pass, lowering and onnxruntime."""
    scripted = torch.jit.script(program.function())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = opsetta.export(scripted, _copied(program.inputs[0]), opset=opset, mutations="outputs")
    session = _session(exported.model_proto.SerializeToString())
    taken = {each.name for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    for given in program.inputs:
        feed = {name: np.array(item) for name, item in zip(NAMES, given, strict=True) if name in taken}
        found = session.run(None, feed)
        new = {name.removesuffix("_mutated"): array for name, array in zip(names, found, strict=True)}
        left = [new.get(name, before) for name, before in zip(NAMES, given, strict=True)]
        results, after = _called(program.function(), given)
        if not _same([*found[: len(results)], *left], [*results, *after]):
            # torch.jit.script drops some writes to what may be an input, and the program then means that.
            with torch.jit.optimized_execution(False):
                results, after = _called(scripted, given)
            for array, wanted in zip([*found[: len(results)], *left], [*results, *after], strict=True):
                np.testing.assert_array_equal(np.array(array), np.array(wanted))


_unhurried = settings(suppress_health_check=list(HealthCheck))


@_unhurried
@hypothesis.given(st.randoms(use_true_random=False), st.integers(1, 10))
def test_pass_alone_agrees_with_eager(random: Random, statements: int) -> None:
    _check_graph(random_program(random, statements))


@pytest.fixture
def count(sweep: bool) -> int:
    return SWEEP if sweep else QUICK


def test_exported_programs_agree_with_eager(count: int) -> None:
    @settings(_unhurried, max_examples=count)
    @hypothesis.given(st.randoms(use_true_random=False), st.integers(1, 8), st.sampled_from(OPSETS))
    def check(random: Random, statements: int, opset: int) -> None:
        _check_export(random_program(random, statements), opset)

    check()
