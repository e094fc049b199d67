"""What the importer claims of sizes, against sizes of tensors of every small shape."""

import itertools

import onnx_ir as ir
import pytest
import sympy
import torch

import opsetta
from opsetta.exporter.capture.torchscript.fakes import UNKNOWN, Fakes, Tensor

_EXTENTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 33, 64, 100)


def pooled(x):
    return torch.nn.functional.max_pool1d(x[None], 3, 2, 1, ceil_mode=True)[0]


CASES = {
    "first": lambda x, y: x[:1],
    "first five": lambda x, y: x[:5],
    "first hundred": lambda x, y: x[:100],
    "last two": lambda x, y: x[-2:],
    "without the ends": lambda x, y: x[1:-1],
    "every third": lambda x, y: x[::3],
    "from the third": lambda x, y: x[2:],
    "a window": lambda x, y: x[2:6],
    "broadcast": lambda x, y: x[:, None] + y[None],
    "rows with rows": lambda x, y: x + y,
    "with one row": lambda x, y: x + y[:1],
    "joined": lambda x, y: torch.cat([x, y, x]),
    "halved": lambda x, y: x[: x.size(0) // 2],
    "flat": lambda x, y: (x[:, None] * y[None]).flatten(),
    "in pairs": lambda x, y: x.reshape(-1, 6),
    "padded": lambda x, y: torch.nn.functional.pad(x, (0, 0, 2, 1)),
    "cropped": lambda x, y: torch.nn.functional.pad(x, (0, 0, -1, -1)),
    "unfolded": lambda x, y: x.unfold(0, 3, 2),
    "convolved": lambda x, y: torch.nn.functional.conv1d(x.t()[None], torch.ones(2, 3, 3), stride=2),
    "pooled with ceil": lambda x, y: pooled(x.t()),
    "repeated": lambda x, y: x.repeat(3, 2),
    "diagonal": lambda x, y: (x @ y.t()).diagonal(),
    "upper": lambda x, y: x.t()[:, :3],
    "chunk": lambda x, y: torch.chunk(x, 2)[0],
    "split": lambda x, y: torch.split(x, 4)[0],
    "top": lambda x, y: x.topk(2, 0)[0],
    "narrowed": lambda x, y: x.narrow(0, 1, 2),
}


def size_of(known, sizes):
    return known if isinstance(known, int) else int(sympy.sympify(known).subs(sizes))


@pytest.mark.parametrize("example", [(2, 3), (4, 4), (5, 1), (1, 8), (16, 2)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_claimed_size_holds_for_every_size(name, example):
    """Static sizes and expressions alike; a size that is said to be unknown claims nothing.

    Sizes are sampled as 0 together: what holds for all of 1 and more, and for none, is believed.
    """
    fakes = Fakes()
    n, m = fakes.size("n", example[0]), fakes.size("m", example[1])
    x, y = (
        fakes.describe(ir.Value(name=k), fakes.tensor([s, 3], torch.float32)) for k, s in (("x", n), ("y", m))
    )
    found = fakes.evaluate(lambda x, y: CASES[name](x, y), {"x": x, "y": y})
    if found is UNKNOWN:
        return
    assert isinstance(found, Tensor)
    held = 0
    for a, b in itertools.product(_EXTENTS, (0, 1, 2, 3, 5, 8, 64)):
        if (a == 0) != (b == 0):
            continue
        try:
            real = CASES[name](torch.ones(a, 3), torch.ones(b, 3))
        except (RuntimeError, IndexError):
            continue
        assert len(found.shape) == real.dim()
        for known, actual in zip(found.shape, real.shape, strict=True):
            if isinstance(known, int) or set(known.free_symbols) <= {n, m}:
                assert size_of(known, {n: a, m: b}) == actual, (name, found.shape, a, b)
        held += 1
    assert held > 3


KEPT = {
    "rows": (lambda x, y: x * 2, "n"),
    "joined": (lambda x, y: torch.cat([x, y]), "m + n"),
    "flat": (lambda x, y: x.flatten(), "3*n"),
    "product": (lambda x, y: (x[:, None, 0] * y[None, :, 0]).flatten(), "m*n"),
    "padded": (lambda x, y: torch.nn.functional.pad(x, (0, 0, 2, 1)), "n + 3"),
    "first": (lambda x, y: x.t()[:1], 1),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_simple_expression_is_found(name):
    fakes = Fakes()
    shapes = [fakes.size("n", 4), 3], [fakes.size("m", 4), 3]
    x, y = (fakes.describe(ir.Value(), fakes.tensor(shape, torch.float32)) for shape in shapes)
    function, expected = KEPT[name]
    size = fakes.evaluate(function, {"x": x, "y": y}).shape[0]
    assert str(size) == str(expected)


def test_two_sizes_that_are_equal_in_the_example_stay_two():
    fakes = Fakes()
    n, m = fakes.size("n", 4), fakes.size("m", 4)
    assert fakes.difference(*(fakes.describe(ir.Value(), fakes.sized(s)) for s in (n, n))) == 0
    assert fakes.difference(*(fakes.describe(ir.Value(), fakes.sized(s)) for s in (n, m))) is None


def test_a_slice_up_to_a_computed_number_has_no_known_size():
    """The number may be negative, or exceed the size."""
    fakes = Fakes()
    x = fakes.describe(ir.Value(), fakes.tensor([4, 3], torch.float32))
    count = fakes.describe(ir.Value(), fakes.number("int"))
    found = fakes.evaluate(lambda x, k: x[:k], {"x": x, "k": count})
    assert fakes.is_free(found.shape[0])
    assert found.shape[1] == 3


def test_a_size_of_data_is_no_size_of_another_tensor():
    fakes = Fakes()
    x = fakes.describe(ir.Value(), fakes.tensor([fakes.size("n", 4)], torch.float32))
    found = fakes.evaluate(lambda x: x[x > 0], {"x": x})
    assert fakes.is_free(found.shape[0])


def rows_up_to_a_comparison(x: torch.Tensor, f: float):
    count = int(int(f) == -2)
    return count, x[:count]


def test_a_comparison_that_holds_for_few_numbers_is_no_constant():
    exported = opsetta.export(torch.jit.script(rows_up_to_a_comparison), (torch.randn(3, 4), 1.5), opset=13)
    for number in (1.5, -2.5, -2.0):
        exported.verify((torch.randn(3, 4), number))
