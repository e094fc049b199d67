"""Results made like those of an earlier call: the layouts and storages that the operator gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment
from opsetta.exporter.torch_boundary.recording.known_results import KnownResults

ATEN = torch.ops.aten
CALLS: dict[str, tuple[Any, Callable[[torch.Tensor], tuple[Any, ...]]]] = {
    "linear": (ATEN.linear.default, lambda x: (x, torch.zeros(5, 8))),
    "linear without bias": (ATEN.linear.default, lambda x: (x, torch.zeros(5, 8))),
    "linear of transposed": (ATEN.linear.default, lambda x: (x.t().contiguous().t(), torch.zeros(5, 8))),
    "linear of many": (
        ATEN.linear.default,
        lambda x: (x[:, None, None] + torch.zeros(2, 3, 8), torch.zeros(5, 8), torch.zeros(5)),
    ),
    "linear of transposed blocks": (
        ATEN.linear.default,
        lambda x: ((x[:, None] + torch.zeros(3, 8)).transpose(0, 1), torch.zeros(5, 8)),
    ),
    "relu": (ATEN.relu.default, lambda x: (x,)),
    "relu of transposed": (ATEN.relu.default, lambda x: (x.t(),)),
    "relu of integers": (ATEN.relu.default, lambda x: (x.long(),)),
    "gelu": (ATEN.gelu.default, lambda x: (x,)),
    "silu of half": (ATEN.silu.default, lambda x: (x.half(),)),
    "hardtanh": (ATEN.hardtanh.default, lambda x: (x, 0.0, 6.0)),
    "sigmoid of integers": (ATEN.sigmoid.default, lambda x: (x.long(),)),
    "batch_norm": (ATEN.batch_norm.default, lambda x: (x, *[torch.ones(8)] * 4, False, 0.1, 1e-5, True)),
    "batch_norm of images": (
        ATEN.batch_norm.default,
        lambda x: (x[:, :, None, None] + x[0, 0], *[torch.ones(8)] * 4, False, 0.1, 1e-5, True),
    ),
    "layer_norm": (ATEN.layer_norm.default, lambda x: (x, [8], torch.ones(8), None)),
    "layer_norm of half": (ATEN.layer_norm.default, lambda x: (x.half(), [8], torch.ones(8), None)),
    "sum of two": (ATEN.add.Tensor, lambda x: (x, x)),
    "transpose": (ATEN.transpose.int, lambda x: (x, 0, 1)),
    "slice": (ATEN.slice.Tensor, lambda x: (x, 1, 2, 6)),
    "view": (ATEN.view.default, lambda x: (x, [x.shape[0], 2, -1])),
    "reshape that copies": (ATEN.reshape.default, lambda x: (x.transpose(0, 1), [-1])),
    "expand": (ATEN.expand.default, lambda x: (x, [3, *x.shape])),
    "parts": (ATEN.split.Tensor, lambda x: (x, 3, 1)),
    "several results": (ATEN.native_layer_norm.default, lambda x: (x, [8], None, None, 1e-5)),
    "itself": (ATEN.contiguous.default, lambda x: (x,)),
}


def fake(mode: FakeTensorMode, is_dynamic: bool) -> torch.Tensor:
    sizes = [DimDynamic.DYNAMIC if is_dynamic else DimDynamic.STATIC, DimDynamic.STATIC]
    context = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(torch.zeros(4, 8), source=ConstantSource("x"), symbolic_context=context)


def layout(result: Any, given: torch.Tensor) -> Any:
    if isinstance(result, (list, tuple)):
        return [layout(item, given) for item in result]
    storage = result.untyped_storage()
    sizes = [*result.shape, *result.stride(), result.storage_offset(), storage.nbytes()]
    is_view = storage._cdata == given.untyped_storage()._cdata
    return (
        result.dtype,
        result.device,
        list(map(str, sizes)),
        result.is_contiguous(),
        is_view,
        result is given,
    )


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CALLS)
def test_a_known_result_is_like_the_operators(name: str, is_dynamic: bool) -> None:
    operator, arguments = CALLS[name]
    environment = SizeEnvironment()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    known = KnownResults(mode)
    x = fake(mode, is_dynamic)
    with mode, enable_python_dispatcher(), torch.no_grad():
        args = arguments(x)
        first, second = known.run(operator, args, {}), known.run(operator, args, {})
        assert layout(second, x) == layout(first, x) == layout(operator(*args), x)
    made = second[0] if isinstance(second, (list, tuple)) else second
    assert made is x or made is not (first[0] if isinstance(first, (list, tuple)) else first)
    assert not environment.guards


WRONG: dict[str, tuple[Any, Callable[[torch.Tensor], tuple[Any, ...]]]] = {
    "linear": (ATEN.linear.default, lambda x: (x, torch.zeros(5, 7))),
    "bias": (ATEN.linear.default, lambda x: (x, torch.zeros(5, 8), torch.zeros(6))),
    "batch_norm": (ATEN.batch_norm.default, lambda x: (x, *[torch.ones(7)] * 4, False, 0.1, 1e-5, True)),
    "layer_norm": (ATEN.layer_norm.default, lambda x: (x, [7])),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_an_operator_refuses_is_refused(name: str) -> None:
    operator, arguments = WRONG[name]
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, True)
    with (
        mode,
        enable_python_dispatcher(),
        torch.no_grad(),
        pytest.raises(RuntimeError, match="size|shape|elements|dim"),
    ):
        known.run(operator, arguments(x), {})


def test_sizes_that_depend_on_data_are_new_with_each_call() -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known = KnownResults(mode)
    x = fake(mode, True)
    with mode, enable_python_dispatcher(), torch.no_grad():
        results = [known.run(ATEN.argwhere.default, (x.clone(),), {}) for _ in range(2)]
    assert str(results[0].shape[0]) != str(results[1].shape[0])


def test_sizes_that_a_guard_made_equal_stay_equal_in_known_results() -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known = KnownResults(mode)
    x, y = (
        fake(mode, True),
        mode.from_tensor(
            torch.zeros(6, 8),
            source=ConstantSource("y"),
            symbolic_context=StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC]),
        ),
    )
    with mode, enable_python_dispatcher(), torch.no_grad():
        known.run(ATEN.relu.default, (y,), {})
        assert x.shape[0] + 2 == y.shape[0]
        again = known.run(ATEN.relu.default, (y,), {})
    assert str(again.shape[0]) == str(x.shape[0] + 2)
