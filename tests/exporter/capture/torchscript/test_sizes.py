"""What the importer claims of sizes, against sizes of tensors of every small shape."""

import itertools

import onnx_ir as ir
import pytest
import sympy
import torch

import opsetta
from opsetta.exporter.capture.torchscript.fake_values import UNKNOWN, Tensor
from opsetta.exporter.capture.torchscript.fakes import Fakes

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


EXAMPLES = [(2, 3), (4, 4), (5, 1), (1, 8), (16, 2)]


def size_of(known, sizes):
    return known if isinstance(known, int) else int(sympy.sympify(known).subs(sizes))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
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
    assert fakes.difference(*(fakes.describe(ir.Value(), fakes.number_of_size(s)) for s in (n, n))) == 0
    assert fakes.difference(*(fakes.describe(ir.Value(), fakes.number_of_size(s)) for s in (n, m))) is None


def test_a_slice_up_to_a_computed_number_has_no_known_size():
    """The number may be negative, or exceed the size."""
    fakes = Fakes()
    x = fakes.describe(ir.Value(), fakes.tensor([4, 3], torch.float32))
    count = fakes.describe(ir.Value(), fakes.number("int"))
    found = fakes.evaluate(lambda x, k: x[:k], {"x": x, "k": count})
    assert fakes.is_unknown_size(found.shape[0])
    assert found.shape[1] == 3


def test_a_size_of_data_is_no_size_of_another_tensor():
    fakes = Fakes()
    x = fakes.describe(ir.Value(), fakes.tensor([fakes.size("n", 4)], torch.float32))
    found = fakes.evaluate(lambda x: x[x > 0], {"x": x})
    assert fakes.is_unknown_size(found.shape[0])


CUT = {
    "from a number": lambda x, k: x[k:],
    "up to a number": lambda x, k: x[:k],
    "from a remainder": lambda x, k: x[k % 4 :],
    "from a quotient": lambda x, k: x[k // 2 :],
    "a window": lambda x, k: x[abs(k) % 5 : 6],
}


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("cut", CUT)
def test_a_size_claimed_of_a_computed_cut_holds_for_every_number(cut, before):
    """The samples of a number depend on how many sizes and numbers there were before."""
    fakes = Fakes()
    for _ in range(before):
        fakes.number("int")
    x = fakes.describe(ir.Value(), fakes.tensor([7, 3], torch.float32))
    number = fakes.number("int")
    k = fakes.describe(ir.Value(), number)
    first = fakes.evaluate(CUT[cut], {"x": x, "k": k})
    y = fakes.describe(ir.Value(), first)
    for name, function in CASES.items():
        found = fakes.evaluate(lambda y, function=function: function(y, y), {"y": y})
        for value in range(-9, 10) if isinstance(found, Tensor) else ():
            given = CUT[cut](torch.ones(7, 3), value)
            sizes = {number.expression: value, **dict(zip(first.shape, given.shape, strict=True))}
            try:
                real = function(given, given)
            except (RuntimeError, IndexError):
                continue
            for known, actual in zip(found.shape, real.shape, strict=True):
                if isinstance(known, int) or known.free_symbols <= sizes.keys():
                    assert size_of(known, sizes) == actual, (name, found.shape, value)


def rows_up_to_a_comparison(x: torch.Tensor, f: float):
    count = int(int(f) == -2)
    return count, x[:count]


def test_a_comparison_that_holds_for_few_numbers_is_no_constant():
    exported = opsetta.export(torch.jit.script(rows_up_to_a_comparison), (torch.randn(3, 4), 1.5), opset=13)
    for number in (1.5, -2.5, -2.0):
        exported.verify((torch.randn(3, 4), number))


def returned_from_a_loop(x: torch.Tensor, n: int):
    total = x
    for i in range(n):
        if bool((total > 9.0).any()):
            return total * 2, total[:1]
        total = total + i
    return total, total[1:]


def test_a_loop_that_may_not_run_states_no_size_of_a_result_it_sets():
    """Before an iteration sets it, the result is a placeholder, with 1 in the place of a dynamic size."""
    exported = opsetta.export(
        torch.jit.script(returned_from_a_loop),
        (torch.zeros(4, 2), 3),
        opset=13,
        dynamic_shapes={"x": {0: "rows"}},
    )
    [loop] = [node for node in exported.model.graph if node.op_type == "Loop"]
    formals = list(loop.attributes["body"].value.inputs)[2:]
    triples = zip(list(loop.inputs)[2:], formals, loop.outputs, strict=False)
    stated = [value.shape for given, *others in triples if given.const_value is not None for value in others]
    assert len(stated) > 2
    assert all(isinstance(size, int) or size.value is None for shape in stated for size in shape)
    for rows, count in ((4, 3), (1, 0), (3, 9), (3, 0)):
        exported.verify((torch.ones(rows, 2), count))
