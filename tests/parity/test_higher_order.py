"""Higher-order operators of torch.export against eager PyTorch: torch's own samples, and whole models."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import pytest
import torch
import torch._dynamo
from torch.testing._internal.hop_db import hop_db

import opsetta

from ..opsets import choose, emission, is_full_run, named
from .higher_order_models import CASES, OPSETS, Case
from .records import lowered_from

NOT_INFERENCE = {
    "flex_attention_backward-simple": "a gradient",
    "flex_attention_backward-explicit_buffers": "a gradient",
    "register_hook-simple": "a hook on a gradient; eager PyTorch refuses it without one",
    "inline_asm_elementwise-simple": "instructions of another device",
    "local_map_hop-simple": "tensors spread over devices; torch.export refuses it",
    "invoke_quant-simple": "torch.export refuses it: its node says nothing of its results",
}
_NOT_FLOATS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
# Eager PyTorch or torch.export refuses these element types of the samples.
REFUSED_TYPES = {
    "scan-simple": {torch.bool},
    "auto_functionalize-simple": {torch.bool},
    "while_loop-simple": _NOT_FLOATS,
    "while_loop_stack_output-simple": _NOT_FLOATS,
}
_REASON = "no meaning in inference, or torch.export refuses it: {}"


@pytest.fixture(autouse=True)
def _no_memory() -> Iterator[None]:
    """Eager PyTorch compiles these operators, and fails where it has seen other sizes of them before."""
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        yield


class _Sample(torch.nn.Module):
    """A sample of torch's database: tensors are inputs, functions and masks belong to the model."""

    def __init__(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]):
        super().__init__()
        self._operator, self._arguments, self._keywords = operator, arguments, keywords

    def forward(self, *tensors: Any) -> Any:
        given = iter(tensors)
        arguments = [next(given) if _is_input(item) else item for item in self._arguments]
        return self._operator(*arguments, **self._keywords)


def _is_input(item: Any) -> bool:
    return isinstance(item, torch.Tensor) or (isinstance(item, list) and all(map(_is_input, item)))


def _name(info: Any) -> str:
    return f"{info.name}-{info.variant_test_name}"


def _samples(info: Any, dtype: torch.dtype) -> list[tuple[_Sample, tuple[Any, ...]]]:
    found = []
    for sample in info.sample_inputs_func(info, "cpu", dtype, False):
        arguments = (sample.input, *sample.args)
        model = _Sample(info.op, arguments, sample.kwargs).eval()
        found.append((model, tuple(item for item in arguments if _is_input(item))))
    return found


def _mutating_custom_op(g: Any, x: Any, z: Any) -> list[Any]:
    """Its results, and then the new values of what it writes to."""
    x, z = g.call("aten::add", x, 5), g.call("aten::add", z, 5)
    return [x, z, g.call("aten::add", x, z), x, z]


@functools.lru_cache(maxsize=2)
def _registry() -> opsetta.Registry:
    registry = opsetta.default_registry.fork()
    name = "testlib::mutating_custom_op"
    opsetta.onnx_symbolic(name, opset=9, registry=registry)(_mutating_custom_op)
    return registry


@functools.lru_cache(maxsize=2)
def _programs(name: str, dtype: torch.dtype) -> list[tuple[opsetta.Program, tuple[Any, ...]]]:
    [info] = (info for info in hop_db if _name(info) == name)
    return [
        (opsetta.export(model, inputs, opset=28, registry=_registry(), mutations="outputs"), inputs)
        for model, inputs in _samples(info, dtype)
    ]


def _database() -> Iterator[Any]:
    for info in hop_db:
        name = _name(info)
        if name in NOT_INFERENCE:
            mark = pytest.mark.xfail(strict=True, reason=_REASON.format(NOT_INFERENCE[name]))
            yield pytest.param(name, torch.float32, (18,), marks=mark, id=name)
            continue
        yield pytest.param(name, torch.float32, OPSETS, id=name)
        for dtype in sorted(info.dtypes - {torch.float32}, key=str):
            identifier = f"{name}-{str(dtype).removeprefix('torch.')}"
            marks = [pytest.mark.sweep]
            if dtype in REFUSED_TYPES.get(name, ()):
                marks.append(pytest.mark.xfail(strict=True, reason="torch refuses this element type"))
            yield pytest.param(name, dtype, (18,), id=identifier, marks=marks)


def lowered_at(
    program: opsetta.Program, opsets: Iterable[int], lowest: int, turn: int
) -> Iterator[tuple[int, opsetta.Program]]:
    """The program at each opset where what it emits changes, unless it is refused below the lowest.

    Args:
        turn: which of the opsets a quick run takes, see `choose`.
    """
    before = None
    below = min(opsets)
    for opset in sorted({below, *choose((opset for opset in opsets if opset >= lowest), turn)}):
        lowered = lowered_from(program, opset, lowest)
        if lowered is None:
            continue
        emitted = emission(lowered)
        if emitted != before or is_full_run():
            yield opset, lowered
        before = emitted


def _checked(program: opsetta.Program) -> opsetta.Program:
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


@pytest.mark.parametrize(("name", "dtype", "opsets"), _database())
def test_the_operators_of_torchs_own_database_agree(
    name: str, dtype: torch.dtype, opsets: tuple[int, ...]
) -> None:
    lowest = 9 if name.startswith(("while_loop", "flex")) else 7
    for turn, (program, inputs) in enumerate(_programs(name, dtype)):
        for opset, lowered in lowered_at(program, opsets, lowest, turn):
            with named(opset):
                _checked(lowered).verify(inputs)


def _exported(case: Case) -> opsetta.Program:
    return opsetta.export(
        case.model(), case.inputs, opset=28, dynamic_shapes=case.dynamic, **dict(case.options)
    )


@pytest.mark.parametrize(
    ("turn", "case"), [pytest.param(turn, case, id=case.name) for turn, case in enumerate(CASES)]
)
def test_models_agree_on_every_path(turn: int, case: Case) -> None:
    for opset, lowered in lowered_at(_exported(case), OPSETS, case.lowest, turn):
        with named(opset):
            _checked(lowered)
            for inputs in (case.inputs, *case.others):
                lowered.verify(inputs, rtol=case.tolerance, atol=case.tolerance)
