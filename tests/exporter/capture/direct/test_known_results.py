"""Results made like those of an earlier call: the layouts and storages that the operator gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._functorch import config as functorch_config
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext
from torch.nn.attention import SDPBackend, sdpa_kernel

from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment
from opsetta.exporter.torch_boundary.recording.fake_weights import FakeCopies
from opsetta.exporter.torch_boundary.recording.known_results import KnownResults
from opsetta.exporter.torch_boundary.recording.layouts.known_layouts import known_layout

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
    "the same type": (ATEN.to.dtype, lambda x: (x, torch.float32)),
    "in place": (ATEN.relu_.default, lambda x: (x,)),
    "sum in place": (ATEN.add_.Tensor, lambda x: (x, torch.ones(8))),
    "attention": (ATEN.scaled_dot_product_attention.default, lambda x: (x.view(1, -1, 2, 4),) * 3),
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


CREATING: dict[str, tuple[Any, Callable[[torch.Tensor], tuple[Any, ...]]]] = {
    "arange": (ATEN.arange.start_step, lambda x: (0, 9, 2)),
    "full": (ATEN.full.default, lambda x: ([2, 3], 1.5)),
    "zeros_like": (ATEN.zeros_like.default, lambda x: (x,)),
    "rand": (ATEN.rand.default, lambda x: ([4],)),
}


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_writing_counts_as_a_new_version(is_dynamic: bool) -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, is_dynamic)
    with mode, enable_python_dispatcher(), torch.no_grad():
        versions = []
        for _ in range(3):
            assert known.run(ATEN.mul_.Tensor, (x, 2.0), {}) is x
            versions.append(x._version)
    assert versions == [1, 2, 3]


@pytest.mark.parametrize("name", CREATING)
def test_a_created_tensor_is_like_the_operators_and_shares_its_memory_with_another(name: str) -> None:
    operator, arguments = CREATING[name]
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, False)
    with mode, enable_python_dispatcher(), torch.no_grad():
        args, options = arguments(x), {"dtype": torch.float64}
        expected = operator(*args, **options)
        known.keep_created(operator, args, options, expected)
        made, kept = known.make_created(operator, args, options)
        assert layout(made, x) == layout(kept, x) == layout(expected, x)
        assert made is not kept
        assert made.untyped_storage()._cdata == kept.untyped_storage()._cdata
        assert made.untyped_storage()._cdata != expected.untyped_storage()._cdata
        assert known.make_created(operator, args, {"dtype": torch.int8}) is None


def test_a_created_tensor_with_a_dynamic_size_is_left_to_torch() -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, True)
    with mode, enable_python_dispatcher(), torch.no_grad():
        known.keep_created(ATEN.zeros_like.default, (x,), {}, torch.zeros_like(x))
        assert known.make_created(ATEN.zeros_like.default, (x,), {}) is None


def test_an_argument_that_is_given_twice_is_told_apart() -> None:
    """`expand_as` of equal shapes returns a view of its first argument, whatever the second is."""
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x, y = KnownResults(mode), fake(mode, False), fake(mode, False)
    with mode, enable_python_dispatcher(), torch.no_grad():
        for args in ((x, x), (x, y), (y, x)):
            made = known.run(ATEN.expand_as.default, args, {})
            assert layout(made, args[0]) == layout(ATEN.expand_as.default(*args), args[0])


def test_results_of_fixed_sizes_are_known_in_the_next_recording() -> None:
    found = []
    for _ in range(2):
        mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
        x = fake(mode, False)
        with mode, enable_python_dispatcher(), torch.no_grad():
            made = KnownResults(mode).run(ATEN.cumsum.default, (x, 1), {})
        assert made.fake_mode is mode
        found.append(layout(made, x))
    assert found[0] == found[1]


def test_attention_has_the_strides_of_the_kernel_that_may_run() -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, False).view(1, 4, 2, 4).transpose(1, 2)
    operator = ATEN.scaled_dot_product_attention.default
    with mode, enable_python_dispatcher(), torch.no_grad():
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
            with sdpa_kernel(backend):
                assert layout(known.run(operator, (x, x, x), {}), x) == layout(operator(x, x, x), x)


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


def tensor(numbers: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor whose elements lie in one of the usual orders."""
    made = torch.empty(shape)
    order = numbers.randrange(6)
    if order == 0 and len(shape) == 4:
        return made.contiguous(memory_format=torch.channels_last)
    if order == 1 and len(shape) > 1:
        return made.mT.contiguous().mT
    return torch.empty([2 * size for size in shape])[tuple(map(slice, shape))] if order == 2 else made


def size(numbers: random.Random) -> int:
    return numbers.choice([1, 1, 2, 3, 8])


def linear(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.linear.default, x, tensor(numbers, [size(numbers), x.shape[-1]])


def batch_norm(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.batch_norm.default, x, *[torch.ones(x.shape[1])] * 4, False, 0.1, 1e-5, True


def layer_norm(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    normalized = list(x.shape[-numbers.randint(1, x.dim()) :])
    return ATEN.layer_norm.default, x, normalized, torch.ones(normalized)


def elementwise(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return numbers.choice([ATEN.relu, ATEN.gelu, ATEN.silu, ATEN.hardtanh]).default, x


def arithmetic(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    other = numbers.choice([tensor(numbers, list(x.shape)), torch.ones(()), 2, 0.5])
    return numbers.choice([ATEN.add, ATEN.mul]).Tensor, x, other


def conv2d(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    groups, channels = numbers.choice([1, 2]), size(numbers)
    image = tensor(numbers, [size(numbers), groups * channels, numbers.choice([1, 5]), 7])
    weight = tensor(numbers, [groups * size(numbers), channels, *numbers.choices([1, 2, 3], k=2)])
    options = [numbers.choices(each, k=2) for each in ([1, 2], [0, 1], [1, 2])]
    return ATEN.conv2d.default, image, weight, None, *options, groups


def transposed(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.transpose.int, x, *numbers.choices(range(-x.dim(), x.dim()), k=2)


def permuted(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.permute.default, x, numbers.sample(range(-x.dim(), 0), x.dim())


def unsqueezed(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.unsqueeze.default, x, numbers.randint(-x.dim() - 1, x.dim())


def viewed(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.view.default, x, numbers.choice([[-1], [1, *x.shape], [x.shape[0], -1], [*x.shape[1:], -1]])


def matmul(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    batch = x.shape[:-2] if numbers.random() < 0.5 else x.shape[:0]
    return ATEN.matmul.default, x, tensor(numbers, [*batch, x.shape[-1], size(numbers)])


def expanded(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    sizes = [numbers.choice([-1, 4]) if length == 1 else length for length in x.shape]
    return ATEN.expand.default, x, [2, *sizes] if numbers.random() < 0.5 else sizes


def sliced(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    axis, ends = numbers.randrange(-x.dim(), x.dim()), [None, -3, -1, 0, 1, 2, 100]
    return ATEN.slice.Tensor, x, axis, numbers.choice(ends), numbers.choice(ends), numbers.randint(1, 3)


def selected(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    axis = numbers.randrange(-x.dim(), x.dim())
    return ATEN.select.int, x, axis, numbers.randrange(-x.shape[axis], x.shape[axis])


def squeezed(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.squeeze.dim, x, numbers.randrange(-x.dim(), x.dim())


def flattened(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    start, end = sorted(numbers.choices(range(x.dim()), k=2))
    return ATEN.flatten.using_ints, x, start, end - numbers.choice([0, x.dim()])


def reshaped(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.reshape.default, *viewed(numbers, x)[1:]


def joined(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    parts = [x, tensor(numbers, list(x.shape)), *[tensor(numbers, [0])] * numbers.randrange(2)]
    return ATEN.cat.default, parts, numbers.randrange(-x.dim(), x.dim())


def reduced(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    axes = numbers.sample(range(-x.dim(), 0), numbers.randint(0, x.dim()))
    operator = numbers.choice([ATEN.mean.dim, ATEN.sum.dim_IntList])
    return operator, x, numbers.choice([axes, axes, None]), numbers.choice([True, False])


def softmax(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    return ATEN.softmax.int, x, numbers.randrange(-x.dim(), x.dim())


def where(numbers: random.Random, x: torch.Tensor) -> tuple[Any, ...]:
    condition = tensor(numbers, list(x.shape[numbers.randint(0, 1) :])) > 0
    return ATEN.where.self, condition, x, numbers.choice([tensor(numbers, list(x.shape)), torch.ones(())])


DRAWN = (
    linear,
    batch_norm,
    layer_norm,
    elementwise,
    arithmetic,
    conv2d,
    transposed,
    permuted,
    unsqueezed,
    viewed,
    matmul,
    expanded,
    sliced,
    selected,
    squeezed,
    flattened,
    reshaped,
    joined,
    reduced,
    softmax,
    where,
)


@pytest.mark.parametrize("draw", DRAWN)
def test_layouts_that_follow_from_the_arguments_are_those_of_the_kernels(draw: Any) -> None:
    numbers, checked = random.Random(0), 0
    mode = FakeTensorMode()
    with mode, enable_python_dispatcher(), torch.no_grad():
        for _ in range(40):
            operator, *args = draw(
                numbers, tensor(numbers, [size(numbers) for _ in range(numbers.randint(2, 5))])
            )
            found = known_layout(operator, args)
            if found is None:
                continue
            real = operator(*args)
            assert (found.dtype, list(found.shape), list(found.stride)) == (
                real.dtype,
                list(real.shape),
                list(real.stride()),
            )
            viewed_storage = args[0].untyped_storage()._cdata if torch.is_tensor(args[0]) else None
            is_view = real.untyped_storage()._cdata == viewed_storage
            assert found.offset == (real.storage_offset() if is_view else None)
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_copied_fake_tensor_is_like_torchs(requires_grad: bool) -> None:
    with functorch_config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
        mode = FakeTensorMode()
    meta = torch.empty_strided((2, 3), (1, 2), device="meta")
    cpu = torch.device("cpu")
    made = FakeCopies(mode)(meta, cpu, requires_grad=requires_grad)
    expected = FakeTensor(mode, meta, cpu, requires_grad=requires_grad)
    assert type(made) is FakeTensor
    assert vars(made) == vars(expected)
    assert made.untyped_storage()._cdata == expected.untyped_storage()._cdata
    for name in ("device", "dtype", "shape", "requires_grad", "is_leaf"):
        assert getattr(made, name) == getattr(expected, name)
    assert made.stride() == expected.stride()
    for each in (made, expected):
        with pytest.raises(RuntimeError, match="Cannot access data pointer"):
            each.data_ptr()


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_views_of_known_results_are_in_their_storage(is_dynamic: bool) -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, is_dynamic)
    calls = [(ATEN.transpose.int, (0, 1)), (ATEN.unsqueeze.default, (1,)), (ATEN.select.int, (0, -1))]
    with mode, enable_python_dispatcher(), torch.no_grad():
        for _ in range(3):
            base = made = known.run(ATEN.relu.default, (x,), {})
            expected = ATEN.relu.default(x)
            given = expected
            for operator, rest in calls:
                made, expected = known.run(operator, (made, *rest), {}), operator(expected, *rest)
                assert layout(made, base) == layout(expected, given)
            assert base.untyped_storage()._cdata != x.untyped_storage()._cdata


def test_views_of_a_tensor_with_another_storage_than_before_are_in_the_new_one() -> None:
    mode = FakeTensorMode(shape_env=SizeEnvironment(), allow_non_fake_inputs=True)
    known, x = KnownResults(mode), fake(mode, True)
    with mode, enable_python_dispatcher(), torch.no_grad():
        base, other = (known.run(ATEN.relu.default, (x,), {}) for _ in range(2))
        for _ in range(2):
            known.run(ATEN.t.default, (base,), {})
        base.set_(other)
        made = known.run(ATEN.t.default, (base,), {})
        assert made.untyped_storage()._cdata == other.untyped_storage()._cdata
