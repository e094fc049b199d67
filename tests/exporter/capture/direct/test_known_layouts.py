"""Layouts that follow from arguments with symbolic sizes: those that the operators' kernels find."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment
from opsetta.exporter.torch_boundary.recording.layouts.known_layouts import (
    RULES,
    created_layout,
    keeps_layout,
    known_layout,
)

ATEN = torch.ops.aten
END = (1 << 63) - 1
Tensor = torch.Tensor
Calls = dict[str, tuple[Any, Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]]]


@contextlib.contextmanager
def fakes() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Texts [batch, length, 24], images [batch, 8, 20, 24] and numbers [length], in a mode."""
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True, export=True)
    mode.cache_enabled = False

    def fake(name: str, shape: tuple[int, ...], dynamic: tuple[int, ...]) -> Tensor:
        sizes = [DimDynamic.DYNAMIC if i in dynamic else DimDynamic.STATIC for i in range(len(shape))]
        context = StatelessSymbolicContext(dynamic_sizes=sizes)
        return mode.from_tensor(torch.zeros(shape), source=ConstantSource(name), symbolic_context=context)

    made = fake("x", (3, 7, 24), (0, 1)), fake("image", (3, 8, 20, 24), (0,)), fake("y", (13,), (0,))
    with mode, enable_python_dispatcher(), torch.no_grad():
        yield made


def heads(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], 4, 6).transpose(1, 2)


def last(image: Tensor) -> Tensor:
    return image.contiguous(memory_format=torch.channels_last)


def square(x: Tensor) -> Tensor:
    """Images [batch, 8, length, length]."""
    return torch.zeros(x.shape[0], 8, x.shape[1], x.shape[1])


CALLS: Calls = {
    "permute": (ATEN.permute.default, lambda x, i, y: (i, [0, -1, 1, 2])),
    "transpose": (ATEN.transpose.int, lambda x, i, y: (x, -1, 0)),
    "t": (ATEN.t.default, lambda x, i, y: (x[0],)),
    "unsqueeze first": (ATEN.unsqueeze.default, lambda x, i, y: (x, 0)),
    "unsqueeze last": (ATEN.unsqueeze.default, lambda x, i, y: (x.transpose(0, 1), -1)),
    "squeeze": (ATEN.squeeze.dim, lambda x, i, y: (x[:, None], 1)),
    "squeeze nothing": (ATEN.squeeze.dim, lambda x, i, y: (x, 2)),
    "select": (ATEN.select.int, lambda x, i, y: (x, 1, 0)),
    "select the last": (ATEN.select.int, lambda x, i, y: (x, 1, -1)),
    "select of a fixed axis": (ATEN.select.int, lambda x, i, y: (x, -1, -3)),
    "whole slice": (ATEN.slice.Tensor, lambda x, i, y: (x, 1, 0, END)),
    "slice": (ATEN.slice.Tensor, lambda x, i, y: (x, 2, -20, 22, 3)),
    "expand": (ATEN.expand.default, lambda x, i, y: (x[:, None], [-1, x.shape[1], -1, 24])),
    "expand by axes": (ATEN.expand.default, lambda x, i, y: (x, [5, x.shape[1], *x.shape])),
    "view": (ATEN.view.default, lambda x, i, y: (x, [*x.shape[:2], -1, 6])),
    "view of joined axes": (ATEN.view.default, lambda x, i, y: (x, [-1, 24])),
    "view of heads": (ATEN.view.default, lambda x, i, y: (heads(x), [*heads(x).shape[:3], 2, 3])),
    "reshape that copies": (ATEN.reshape.default, lambda x, i, y: (heads(x), [x.shape[0], -1, 6])),
    "reshape of all": (ATEN.reshape.default, lambda x, i, y: (x.transpose(0, 1), [-1, 24])),
    "flatten": (ATEN.flatten.using_ints, lambda x, i, y: (i, 2, 3)),
    "flatten of channels": (ATEN.flatten.using_ints, lambda x, i, y: (last(i), 2)),
    "contiguous": (ATEN.contiguous.default, lambda x, i, y: (heads(x),)),
    "neg of transposed": (ATEN.neg.default, lambda x, i, y: (x.transpose(0, 1),)),
    "neg of a part": (ATEN.neg.default, lambda x, i, y: (heads(x)[..., 3:],)),
    "gelu of images": (ATEN.gelu.default, lambda x, i, y: (last(i),)),
    "clamp": (ATEN.clamp.default, lambda x, i, y: (x, None, 1.0)),
    "softmax": (ATEN.softmax.int, lambda x, i, y: (x, -1)),
    "sum with a number": (ATEN.add.Tensor, lambda x, i, y: (x.long(), 3)),
    "sum with a vector": (ATEN.add.Tensor, lambda x, i, y: (x, torch.zeros(24))),
    "product of heads": (ATEN.mul.Tensor, lambda x, i, y: (heads(x), x[:, None, :, :6])),
    "product of orders": (ATEN.mul.Tensor, lambda x, i, y: (heads(x), heads(x).contiguous())),
    "quotient": (ATEN.div.Tensor, lambda x, i, y: (x, 2)),
    "mask": (ATEN.__and__.Tensor, lambda x, i, y: ((y > 0)[None, :], (x[0, :, 0] > 0)[:, None])),
    "comparison": (ATEN.ge.Scalar, lambda x, i, y: (heads(x), 1)),
    "comparison of tensors": (ATEN.le.Tensor, lambda x, i, y: (x[0, 0], x)),
    "not": (ATEN.bitwise_not.default, lambda x, i, y: (x > 0,)),
    "mask of masks": (
        ATEN.__and__.Tensor,
        lambda x, i, y: ((y > 0)[None, None, :, None], (x[:, None, None, :, 0] > 0).contiguous()),
    ),
    "comparison of positions": (ATEN.le.Tensor, lambda x, i, y: (y[None, :, None], y[None, None, :])),
    "product with a short vector": (
        ATEN.mul.Tensor,
        lambda x, i, y: (x[0, :, 0].contiguous()[None, :, None], torch.zeros(4)),
    ),
    "where with a number": (ATEN.where.ScalarOther, lambda x, i, y: (x[:, :1] > 0, x, -1e30)),
    "where of other orders": (
        ATEN.where.ScalarSelf,
        lambda x, i, y: ((x[:, None] > 0)[:, :, :, :1], 0, heads(x)),
    ),
    "where": (ATEN.where.self, lambda x, i, y: (x[:, :1] > 0, x, torch.zeros(()))),
    "masked_fill": (ATEN.masked_fill.Scalar, lambda x, i, y: (x, x[:, :, :1] > 0, 1.0)),
    "batch_norm": (
        ATEN.batch_norm.default,
        lambda x, i, y: (last(i), *[i[0, :, 0, 0]] * 4, False, 0.1, 1e-5, True),
    ),
    "group_norm": (ATEN.group_norm.default, lambda x, i, y: (i, 4, torch.ones(8), torch.ones(8))),
    "group_norm of sequences of any length": (
        ATEN.group_norm.default,
        lambda x, i, y: (x.transpose(1, 2).contiguous(), 24),
    ),
    "layer_norm of transposed": (ATEN.layer_norm.default, lambda x, i, y: (x.transpose(0, 1), [24])),
    "layer_norm of half": (ATEN.layer_norm.default, lambda x, i, y: (x.half().transpose(0, 1), [24])),
    "linear": (ATEN.linear.default, lambda x, i, y: (x, torch.zeros(5, 24), torch.zeros(5))),
    "linear of transposed": (
        ATEN.linear.default,
        lambda x, i, y: (i[:, :, 0].transpose(1, 2), torch.zeros(5, 8), torch.zeros(5)),
    ),
    "linear of transposed without bias": (
        ATEN.linear.default,
        lambda x, i, y: (i[:, :, 0].transpose(1, 2), torch.zeros(5, 8)),
    ),
    "linear of a part": (ATEN.linear.default, lambda x, i, y: (x[:, 0], torch.zeros(5, 24), torch.zeros(5))),
    "linear of another order": (ATEN.linear.default, lambda x, i, y: (x.transpose(0, 1), torch.zeros(5, 24))),
    "addmm": (ATEN.addmm.default, lambda x, i, y: (torch.zeros(5), x.flatten(0, 1), torch.zeros(24, 5))),
    "addmm of a part": (
        ATEN.addmm.default,
        lambda x, i, y: (torch.zeros(5), x[:, 0], torch.zeros(5, 24).t()),
    ),
    "attention": (ATEN.scaled_dot_product_attention.default, lambda x, i, y: (heads(x),) * 3),
    "attention with a mask": (
        ATEN.scaled_dot_product_attention.default,
        lambda x, i, y: (
            *[heads(x).contiguous()] * 3,
            (x[:, None, :, :1] > 0) | (x[:, None, None, :, 0] > 0),
        ),
    ),
    "attention with a mask of numbers": (
        ATEN.scaled_dot_product_attention.default,
        lambda x, i, y: (*[heads(x)] * 3, x[:, None, None, :, 0]),
    ),
    "attention to other elements": (
        ATEN.scaled_dot_product_attention.default,
        lambda x, i, y: (heads(x), *[torch.zeros(x.shape[0], 4, 9, 6).contiguous()] * 2),
    ),
    "attention of a part": (
        ATEN.scaled_dot_product_attention.default,
        lambda x, i, y: (heads(torch.cat([x] * 3, -1)[..., :24]),) * 3,
    ),
    "causal attention": (
        ATEN.scaled_dot_product_attention.default,
        lambda x, i, y: (*[heads(x)] * 3, None, 0.0, True),
    ),
    "conversion": (ATEN.to.dtype, lambda x, i, y: (heads(x), torch.int64)),
    "conversion of an expanded tensor": (
        ATEN.to.dtype,
        lambda x, i, y: (x[:, :, :1].expand(x.shape), torch.half),
    ),
    "conversion with all arguments": (
        ATEN.to.dtype,
        lambda x, i, y: (heads(x), torch.half, False, True, torch.preserve_format),
    ),
    "conversion on a device": (ATEN.to.device, lambda x, i, y: (heads(x), torch.device("cpu"), torch.bool)),
    "abs of integers": (ATEN.abs.default, lambda x, i, y: (heads(x).long(),)),
    "minimum of integers": (
        ATEN.min.other,
        lambda x, i, y: (x.long(), x.long().transpose(0, 1).transpose(0, 1)),
    ),
    "positions": (
        ATEN.index.Tensor,
        lambda x, i, y: (x[:, :, 0].contiguous(), [x[:, :1, 0].long().contiguous(), y.long()[None]]),
    ),
    "rows": (ATEN.index.Tensor, lambda x, i, y: (torch.zeros(10, 5), [x[:, :, 0].long().contiguous()])),
    "matmul": (ATEN.matmul.default, lambda x, i, y: (heads(x), heads(x).transpose(2, 3))),
    "convolution": (
        ATEN.conv2d.default,
        lambda x, i, y: (i, torch.zeros(6, 4, 3, 5), None, [2], [1, 0], [1], 2),
    ),
    "convolution of a sequence": (
        ATEN.conv1d.default,
        lambda x, i, y: (i[:, :, 0].contiguous(), torch.zeros(6, 8, 3), torch.zeros(6)),
    ),
    "convolution with channels last": (
        ATEN.conv2d.default,
        lambda x, i, y: (last(i), torch.zeros(6, 8, 3, 5), torch.zeros(6), [2], [1, 0]),
    ),
    "convolution of each channel with channels last": (
        ATEN.conv2d.default,
        lambda x, i, y: (last(i), torch.zeros(8, 1, 3, 3), None, [1], [1], [1], 8),
    ),
    "convolution of patches": (
        ATEN.conv2d.default,
        lambda x, i, y: (i.flatten(2).transpose(1, 2).transpose(1, 2).view(i.shape), torch.zeros(6, 8, 4, 4)),
    ),
    "resized": (ATEN.upsample_bilinear2d.vec, lambda x, i, y: (i, [40, 48], False, None)),
    "resized channels": (ATEN.upsample_nearest2d.vec, lambda x, i, y: (last(i), [40, 48], None)),
    "max_pool2d": (ATEN.max_pool2d.default, lambda x, i, y: (i, [3, 2], [2], [1, 0], [1, 2])),
    "max_pool2d by windows": (ATEN.max_pool2d.default, lambda x, i, y: (i, [3, 2])),
    "max_pool2d with channels last": (ATEN.max_pool2d.default, lambda x, i, y: (last(i), [3], [1])),
    "avg_pool2d": (ATEN.avg_pool2d.default, lambda x, i, y: (i, [3], [2], [1], False, False, None)),
    "adaptive_avg_pool2d": (ATEN.adaptive_avg_pool2d.default, lambda x, i, y: (i, [1, 1])),
    "adaptive_avg_pool2d to several": (ATEN.adaptive_avg_pool2d.default, lambda x, i, y: (i, [5, 7])),
    "convolution of images of any size": (
        ATEN.conv2d.default,
        lambda x, i, y: (square(x), torch.zeros(6, 4, 3, 5), None, [2], [1, 2], [1], 2),
    ),
    "convolution of sequences of any length": (
        ATEN.conv1d.default,
        lambda x, i, y: (x.transpose(1, 2).contiguous(), torch.zeros(6, 24, 3), torch.zeros(6), [1], [1]),
    ),
    "convolution of volumes": (
        ATEN.conv3d.default,
        lambda x, i, y: (square(x)[:, :, None], torch.zeros(6, 8, 1, 3, 3), None, [1], [0, 1, 1]),
    ),
    "transposed convolution": (
        ATEN.conv_transpose2d.input,
        lambda x, i, y: (square(x), torch.zeros(8, 3, 2, 3), torch.zeros(6), [2], [0, 1], [0, 1], 2, [2]),
    ),
    "transposed convolution of a sequence": (
        ATEN.conv_transpose1d.default,
        lambda x, i, y: (x.transpose(1, 2).contiguous(), torch.zeros(24, 6, 4), None, [2], [1]),
    ),
    "max_pool2d of images of any size": (ATEN.max_pool2d.default, lambda x, i, y: (square(x), [3], [2], [1])),
    "avg_pool2d of images of any size": (ATEN.avg_pool2d.default, lambda x, i, y: (square(x), [3], [2], [1])),
    "adaptive_avg_pool2d of images of any size": (
        ATEN.adaptive_avg_pool2d.default,
        lambda x, i, y: (square(x), [1, 1]),
    ),
    "resized to the size of another": (
        ATEN.upsample_bilinear2d.vec,
        lambda x, i, y: (square(x), [y.shape[0], 5], False, None),
    ),
    "resized by integers": (
        ATEN.upsample_nearest2d.vec,
        lambda x, i, y: (square(x), None, [2.0, 3.0]),
    ),
    "pad": (ATEN.pad.default, lambda x, i, y: (i, [0, 1, 2, 3], "constant", 0.0)),
    "pad of all axes": (ATEN.pad.default, lambda x, i, y: (x, [0, 1, 2, 0, 1, 1])),
    "pad of integers by nothing": (ATEN.pad.default, lambda x, i, y: (i.long(), [0, 0, 0, 0])),
    "cumsum": (ATEN.cumsum.default, lambda x, i, y: (x, -2)),
    "cumsum of a condition": (ATEN.cumsum.default, lambda x, i, y: (x > 0, 1)),
    "floor_divide": (ATEN.floor_divide.default, lambda x, i, y: (heads(x).long(), 2)),
    "remainder": (ATEN.remainder.Tensor, lambda x, i, y: (x, x[:1])),
    "remainder of a number": (ATEN.remainder.Scalar, lambda x, i, y: (y, 3)),
    "embedding of one row": (
        ATEN.embedding.default,
        lambda x, i, y: (torch.zeros(10, 5), torch.zeros(1, 20, dtype=torch.long)[:, :7]),
    ),
    "rolled": (ATEN.roll.default, lambda x, i, y: (i, [-3, 2], [2, 3])),
    "mean": (ATEN.mean.dim, lambda x, i, y: (x, [-1], True)),
    "sum of an axis": (ATEN.sum.dim_IntList, lambda x, i, y: (i, [1, 3])),
    "embedding": (ATEN.embedding.default, lambda x, i, y: (torch.zeros(10, 5), x[:, :, 0].long())),
    "cat": (ATEN.cat.default, lambda x, i, y: ([x, x * 2], 1)),
    "cat of heads": (ATEN.cat.default, lambda x, i, y: ([heads(x), heads(x)[..., :2]], -1)),
    "cat with an empty cache": (ATEN.cat.default, lambda x, i, y: ([torch.zeros(0), heads(x)], -2)),
    "cat before an empty cache": (ATEN.cat.default, lambda x, i, y: ([x, torch.zeros(0)], 1)),
}


def layout(result: Tensor, given: Any) -> Any:
    storage = given[0] if isinstance(given, list) else given
    is_view = result.untyped_storage()._cdata == storage.untyped_storage()._cdata
    # The stride of an axis with one element has no meaning.
    sizes = list(map(str, result.shape))
    pairs = zip(sizes, result.stride(), strict=True)
    axes = [(size, 0 if size == "1" else str(stride)) for size, stride in pairs]
    return axes, result.dtype, result.device, str(result.storage_offset()) if is_view else None


@pytest.mark.parametrize("name", CALLS)
def test_a_known_layout_is_that_of_the_kernel(name: str) -> None:
    operator, arguments = CALLS[name]
    with fakes() as given:
        args = arguments(*given)
        environment = given[0].fake_mode.shape_env  # type: ignore[attr-defined]
        facts = environment.facts
        found = known_layout(operator, args)
        assert found is not None
        assert environment.facts == facts
        result = operator(*args)
    axes, *others = layout(result, args[0])
    strides = [
        0 if size == "1" else str(stride) for (size, _), stride in zip(axes, found.stride, strict=True)
    ]
    assert [(str(size), stride) for size, stride in zip(found.shape, strides, strict=True)] == axes
    assert [found.dtype, found.device, None if found.offset is None else str(found.offset)] == others


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (ATEN.conv2d.default, lambda x: (last(square(x)), torch.zeros(6, 8, 4, 4), None, [1], [1])),
        (ATEN.conv_transpose2d.input, lambda x: (square(x), torch.zeros(8, 3, 2, 2), None, [2], [2])),
        (ATEN.max_pool2d.default, lambda x: (square(x), [2], [2], [0], [1], True)),
        (ATEN.upsample_nearest2d.vec, lambda x: (square(x), None, [1.5, 2.0])),
    ],
)
def test_windows_that_may_not_fit_are_left_to_the_kernel(operator: Any, arguments: Any) -> None:
    with fakes() as (x, _, _):
        assert known_layout(operator, arguments(x)) is None


@pytest.mark.parametrize(
    ("operator", "arguments", "smallest"),
    [
        (
            ATEN.conv1d.default,
            lambda x: (x.transpose(1, 2).contiguous(), torch.zeros(6, 24, 5), None, [2]),
            5,
        ),
        (ATEN.conv2d.default, lambda x: (square(x), torch.zeros(6, 8, 3, 3)), 3),
        (ATEN.conv2d.default, lambda x: (square(x), torch.zeros(6, 8, 5, 1), None, [1], [1, 0]), 3),
        (ATEN.max_pool2d.default, lambda x: (square(x), [3]), 3),
    ],
)
def test_windows_that_fit_the_example_add_the_guard_of_the_kernel(
    operator: Any, arguments: Any, smallest: int
) -> None:
    with fakes() as (x, _, _):
        guards = x.fake_mode.shape_env.guards  # type: ignore[attr-defined]
        args, before = arguments(x), len(guards)
        found = known_layout(operator, args)
        assert found is not None
        [condition] = [guard.expr for guard in guards[before:]]
        length = x.shape[1].node.expr
        values = [condition.subs(length, size) for size in (smallest - 1, smallest, smallest + 1)]
        assert values == [False, True, True]
        result = operator(*args)
        assert list(map(str, found.shape)) == list(map(str, result.shape))
        assert list(map(str, found.stride)) == list(map(str, result.stride()))
    # A window that does not fit into the example either is the kernel's error.
    with fakes() as (x, _, _):
        assert known_layout(ATEN.conv2d.default, (square(x), torch.zeros(6, 8, 9, 9))) is None


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        (ATEN.add_.Tensor, lambda x, i, y: (square(x), square(x)), True),
        (ATEN.relu_.default, lambda x, i, y: (last(i),), True),
        (ATEN.add_.Tensor, lambda x, i, y: (x, x[:1]), True),
        (ATEN.mul_.Tensor, lambda x, i, y: (x.long(), 0.5), False),
        (ATEN.add_.Tensor, lambda x, i, y: (x[:, :, :1].expand(x.shape), x), False),
        (ATEN.add_.Tensor, lambda x, i, y: (x, i), False),
    ],
    ids=["sum", "channels last", "broadcast", "another type", "overlapping", "larger operand"],
)
def test_an_operator_that_writes_to_its_argument_keeps_its_layout(
    operator: Any, arguments: Any, expected: bool
) -> None:
    with fakes() as given:
        args = arguments(*given)
        environment = given[0].fake_mode.shape_env  # type: ignore[attr-defined]
        facts = environment.facts
        assert keeps_layout(operator, args) is expected
        assert environment.facts == facts
        if expected:
            before = layout(args[0], args[0])
            assert layout(operator(*args), args[0]) == before


def test_a_reshape_of_a_part_asks_only_what_its_layout_depends_on() -> None:
    with fakes() as (x, _, _):
        environment = x.fake_mode.shape_env  # type: ignore[attr-defined]
        part = x[:, 1:]
        before = len(environment.guards)
        found = known_layout(ATEN.reshape.default, (part, [x.shape[0], -1, 8]))
        asked = [str(guard.expr) for guard in environment.guards[before:]]
    assert found is not None
    assert found.offset is not None
    rows, columns = x.shape[0].node.expr, x.shape[1].node.expr
    assert list(map(str, found.shape)) == [str(rows), f"3*{columns} - 3", "8"]
    assert asked == [f"{columns} - 1 > 1"]


CREATED: Calls = {
    "range": (ATEN.arange.default, lambda x, i, y: (x.shape[1],)),
    "range from a number": (ATEN.arange.start, lambda x, i, y: (1, x.shape[1])),
    "range between sizes": (ATEN.arange.start, lambda x, i, y: (x.shape[1], x.shape[1] + y.shape[0])),
    "zeros": (ATEN.zeros.default, lambda x, i, y: ([x.shape[0], 3, x.shape[1]],)),
    "ones": (ATEN.ones.default, lambda x, i, y: ([y.shape[0]],)),
}
TYPES: dict[str, dict[str, Any]] = {
    "as usual": {},
    "float64": {"dtype": torch.float64},
    "on the cpu": {"dtype": torch.int64, "device": torch.device("cpu"), "pin_memory": False},
}


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", CREATED)
def test_a_known_layout_of_a_new_tensor_is_that_of_the_kernel(name: str, types: str) -> None:
    operator, arguments = CREATED[name]
    with fakes() as given:
        args = arguments(*given)
        found = created_layout(operator, args, TYPES[types])
        result = operator(*args, **TYPES[types])
    assert found is not None
    assert (list(map(str, found.shape)), list(map(str, found.stride))) == (
        list(map(str, result.shape)),
        list(map(str, result.stride())),
    )
    assert (found.dtype, found.device) == (result.dtype, result.device)


def test_a_filled_tensor_has_the_given_type() -> None:
    with fakes() as (x, _, _):
        size, types = [x.shape[0], 2], {"dtype": torch.bool}
        found, result = (
            function(size, 1.5, **types)
            for function in (lambda *a, **k: created_layout(ATEN.full.default, a, k), ATEN.full.default)
        )
        assert found.dtype == result.dtype == torch.bool
        assert created_layout(ATEN.full.default, (size, 1.5)) is None


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (ATEN.arange.default, lambda x: (x.shape[1] / 2,)),
        (ATEN.arange.start, lambda x: (x.shape[1], 100)),
        (ATEN.arange.start_step, lambda x: (0, x.shape[1], 2)),
        (ATEN.zeros.default, lambda x: ([x.shape[1] - 3],)),
    ],
    ids=["quotient", "may be empty", "step", "zeros that may be empty"],
)
def test_new_tensors_of_other_lengths_are_left_to_the_kernel(operator: Any, arguments: Any) -> None:
    with fakes() as (x, _, _):
        assert created_layout(operator, arguments(x)) is None


def test_the_first_elements_are_at_most_those_that_there_are() -> None:
    with fakes() as (x, _, _):
        environment = x.fake_mode.shape_env  # type: ignore[attr-defined]
        table, args = torch.zeros(1, 50, 4), (1, None, x.shape[1])
        found = known_layout(ATEN.slice.Tensor, (table, *args))
        assert [str(guard.expr) for guard in environment.guards] == [f"{x.shape[1].node.expr} <= 50"]
        result = ATEN.slice.Tensor(table, *args)
        assert found is not None
        assert list(map(str, found.shape)) == list(map(str, result.shape))
        assert list(map(str, found.stride)) == list(map(str, result.stride()))
        assert known_layout(ATEN.slice.Tensor, (torch.zeros(1, 5, 4), *args)) is None


UNKNOWN: Calls = {
    "sizes that only a guard makes equal": (ATEN.add.Tensor, lambda x, i, y: (x[0, :, 0], y)),
    "elements that only a guard makes fit": (ATEN.view.default, lambda x, i, y: (x, [-1, y.shape[0], 24])),
    "shape without room": (ATEN.view.default, lambda x, i, y: (i, [x.shape[0], 7])),
    "view that needs a copy": (ATEN.view.default, lambda x, i, y: (heads(x), [-1, 6])),
    "element that may be missing": (ATEN.select.int, lambda x, i, y: (x, 1, 2)),
    "slice of a dynamic axis": (ATEN.slice.Tensor, lambda x, i, y: (x, 1, 1, END)),
    "other element types": (ATEN.mul.Tensor, lambda x, i, y: (x, x.double())),
    "integer quotient": (ATEN.div.Tensor, lambda x, i, y: (x.long(), 2)),
    "integers that become floats": (ATEN.mul.Tensor, lambda x, i, y: (x.long(), 2.0)),
    "expansion to a size that may be 1": (
        ATEN.expand.default,
        lambda x, i, y: (x[:1], [y.nonzero().shape[0], -1, 24]),
    ),
    "size that depends on data": (ATEN.view.default, lambda x, i, y: (y.nonzero(), [1, -1])),
    "conversion to another order": (
        ATEN.to.dtype,
        lambda x, i, y: (i, torch.half, False, False, torch.channels_last),
    ),
    "training": (ATEN.dropout.default, lambda x, i, y: (x, 0.1, True)),
    # Some releases of torch return the argument, and others a copy.
    "dropout": (ATEN.dropout.default, lambda x, i, y: (heads(x), 0.1, False)),
    "products of other numbers of matrices": (ATEN.matmul.default, lambda x, i, y: (i, torch.zeros(24, 5))),
    "channels that do not fit": (ATEN.conv2d.default, lambda x, i, y: (i, torch.zeros(6, 5, 3, 3))),
    "matrix that does not fit": (ATEN.linear.default, lambda x, i, y: (x, torch.zeros(5, 23))),
    "no tensors": (ATEN.cat.default, lambda x, i, y: ([],)),
    "axis that is not there": (ATEN.unsqueeze.default, lambda x, i, y: (x, 4)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_depends_on_sizes_is_left_to_the_kernel(name: str) -> None:
    operator, arguments = UNKNOWN[name]
    with fakes() as given:
        assert known_layout(operator, arguments(*given)) is None
        assert not given[0].fake_mode.shape_env.guards  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_takes_all_arguments_of_its_operator(name: str) -> None:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    schema = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")._schema
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    inspect.signature(RULES[name]).bind(*positional)
