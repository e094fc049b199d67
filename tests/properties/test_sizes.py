"""Programs with dynamic dimensions at every size: equal to eager PyTorch, or refused."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch.export import Dim

import opsetta
from opsetta.exporter.captured_graph.dimensions import evaluate
from opsetta.exporter.sweeps.engines.outcomes import Limits
from opsetta.exporter.sweeps.engines.processes import LocalEngine

from .. import parity
from ..parity.records import Record, floats

LARGE = 37
SIZES = (0, 1, 2, 3, LARGE)
AUTO = {0: Dim.AUTO}


_RECURRENT = "plain, without-bias, layers, bidirectional, batch-first, everything".split(", ")
DEFECTS = (
    dict.fromkeys(
        [
            *(
                f"test_recurrent-{kind}-{form}-state-dynamic"
                for kind in ("lstm", "gru")
                for form in _RECURRENT
            ),
            *(
                f"test_recurrent-{layer}-{form}-dynamic"
                for layer in ("lstm", "gru", "lstm-projected")
                for form in ("everything", "everything-without-bias", "everything-without-bias-state")
                if layer != "lstm-projected" or form == "everything"
            ),
            *(
                f"test_recurrent-lstm-projected-{form}-dynamic"
                for form in ("state", "everything-state", "without-bias-state")
            ),
            "test_recurrent-lstm-expanded-state",
        ],
        (0, "onnxruntime's LSTM and GRU end the process at batches of 0"),
    )
    | {
        "test_linalg-einsum-bqhd,bkhd->bhqk-dynamic": (
            0,
            "onnxruntime's Einsum ends the process at sizes of 0",
        )
    }
    | {"test_pooling-max_pool2d-dilated-dynamic": (1, "onnxruntime's MaxPool over padding alone")}
    | {"test_statistics-cov-dynamic": (1, "fake tensors do not run cov: sizes of 0 and 1 are not tried")}
)
"""Records that are wrong where a dimension has a certain size, with the reason."""

OF_VALUES = {
    *(f"test_grouped_products-fallback-{name}" for name in ("even", "some-empty", "all-in-one", "many")),
    "test_pooling-max_unpool2d",
    "test_pooling-max_unpool3d",
    "test_factorization-cholesky-dynamic",
    *(
        f"test_sequence_losses-{reduction} of {form}, dynamic"
        for reduction in ("none", "mean", "sum")
        for form in ("rows", "end to end")
    ),
}
"""Records whose inputs are positions or lengths that other sizes do not have, or a matrix of a kind."""


def resized(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """The tensor with other sizes, of its own entries.

    They are repeated, or drawn where they are floats: a matrix of repeated rows would be singular.
    """
    if tensor.is_floating_point() and tensor.numel() and list(tensor.shape) != shape:
        drawn = torch.randint(tensor.numel(), shape, generator=torch.Generator().manual_seed(0))
        return tensor.flatten()[drawn]
    for axis, size in enumerate(shape):
        length = tensor.shape[axis]
        if length != size:
            tensor = (
                tensor.index_select(axis, torch.arange(size) % length)
                if length
                else tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
            )
    return tensor


def arguments(program: opsetta.Program, inputs: tuple, sizes: dict[str, int]) -> tuple | None:
    """The inputs at other sizes; None where a size that follows from them is none."""
    leaves, structure = pytree.tree_flatten(inputs)
    declared = iter(program.source.graph.inputs)
    made = []
    for leaf, name in zip(leaves, program.interface.inputs, strict=True):
        value = next(declared) if name is not None else None
        if value is None or not isinstance(leaf, torch.Tensor):
            made.append(leaf)
            continue
        dims = value.shape.dims[: leaf.ndim]
        shape = [dim if isinstance(dim, int) else evaluate(dim.value, sizes) for dim in dims]
        if any(size is None or size < 0 for size in shape):
            return None
        made.append(resized(leaf, shape))
    return pytree.tree_unflatten(made, structure)


def check(
    program: opsetta.Program,
    function: Callable[..., Any],
    inputs: tuple,
    sizes: dict[str, int],
    is_of_values: bool = False,
) -> str:
    """See that a program does as its function does, or refuses; what happened is returned.

    Where the values of inputs refer to sizes, the program need not refuse what PyTorch refuses.

    Of empty tensors, onnxruntime's kernels refuse some that PyTorch takes, and end the process at some that
    PyTorch refuses, which its fake tensors do not always know: there the program is not run.
    """
    given = arguments(program, inputs, sizes)
    if given is None:
        return "no such sizes"
    expected: Exception | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():
                function(*pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, given))
        except Exception as error:
            expected = error
        is_empty = 0 in sizes.values()
        if (is_empty or is_of_values) and expected is not None:
            return "refused by PyTorch"
        try:
            program(*given)
        except opsetta.DimensionError:
            return "refused by name"
        except opsetta.InferenceError:
            assert expected is not None or is_empty or is_of_values, (
                f"onnxruntime refuses {sizes}, and PyTorch does not"
            )
            return "refused by onnxruntime"
        assert expected is None, f"eager PyTorch refuses {sizes} ({expected}), and the program does not"
        program.verify(given)
    return "equal"


def points(names: list[str], example: dict[str, int]) -> Iterator[dict[str, int]]:
    for size in SIZES:
        yield dict.fromkeys(names, size)
    for name in names if len(names) > 1 else ():
        for size in SIZES:
            yield {**example, name: size}


def example_sizes(program: opsetta.Program, inputs: tuple) -> dict[str, int]:
    found: dict[str, int] = {}
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    values = [value for value in program.source.graph.inputs if value.shape is not None and len(value.shape)]
    for leaf, value in zip([leaf for leaf in leaves if leaf.ndim], values, strict=False):
        for dim, size in zip(value.shape.dims, leaf.shape, strict=False):
            if not isinstance(dim, int):
                found.setdefault(dim.value, size)
    return {name: size for name, size in found.items() if name in program.dimensions}


def write_front(x: torch.Tensor) -> torch.Tensor:
    v = x * 2
    v[:3] = 7
    return v


def write_back(x: torch.Tensor) -> torch.Tensor:
    v = x * 2
    v[-3:] = v[-3:] + 1
    return v


def add_to_strided(x: torch.Tensor) -> torch.Tensor:
    v = x * 2
    v[1:4:2] += 1
    return v


def branch(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 4 else x * 3


def branch_at_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] == 1 else x * 3


def even_only(x: torch.Tensor) -> torch.Tensor:
    return x + (1 if x.shape[0] % 2 == 0 else 2)


def one_of_two(x: torch.Tensor) -> torch.Tensor:
    less, more = x - 1, x + 1
    return more if x.shape[0] > 4 else less


PROGRAMS = {
    "write to the front": (write_front, (floats(5, 2),), (AUTO,)),
    "write to the back": (write_back, (floats(5, 2),), (AUTO,)),
    "write with a step": (add_to_strided, (floats(5, 2),), (AUTO,)),
    "squeeze": (lambda x: x.squeeze(-1), (floats(3, 4),), ({1: Dim.AUTO},)),
    "squeeze all": (lambda x: x.squeeze() + 1, (floats(3, 4),), ({1: Dim.AUTO},)),
    "branch": (branch, (floats(6, 2),), (AUTO,)),
    "branch at one": (branch_at_one, (floats(6, 2),), ({0: "rows"},)),
    "branch on a remainder": (even_only, (floats(6, 2),), ({0: "rows"},)),
    "pairs": (lambda x: x.reshape(x.shape[0] // 2, 2), (floats(6),), ({0: "rows"},)),
    "slice": (lambda x: x[:, :3] + 1, (floats(6, 6),), ({1: "columns"},)),
    "slice from the back": (lambda x: x[-3:].sum(0), (floats(6, 6),), ({0: "rows"},)),
    "select": (lambda x: x[3], (floats(6, 6),), ({0: "rows"},)),
    "narrow": (lambda x: x.narrow(0, 1, 2), (floats(6, 6),), ({0: "rows"},)),
    "maximum": (lambda x: x.amax(0), (floats(6, 6),), ({0: "rows"},)),
    "chunks": (lambda x: x.chunk(3)[0], (floats(6),), ({0: "rows"},)),
    "all chunks": (lambda x: x.chunk(3), (floats(6),), ({0: "rows"},)),
    "one of two results": (one_of_two, (floats(6),), ({0: "rows"},)),
    "returned size of a part": (lambda x: (x, x.tensor_split(3)[0].shape[0]), (floats(6),), ({0: "rows"},)),
    "size of a part": (lambda x: x.new_ones(x.tensor_split(3)[0].shape), (floats(5),), ({0: "rows"},)),
    "all parts": (lambda x: x.tensor_split(3), (floats(5),), (AUTO,)),
    "parts between positions": (lambda x: x.tensor_split((2, 5)), (floats(9),), (AUTO,)),
    "size of the last two": (lambda x: x.new_ones(x[-2:].shape[0]), (floats(6),), (AUTO,)),
    "all but the ends": (lambda x: (x[1:-1], x[:-3]), (floats(6),), ({0: "rows"},)),
    "convolution": (lambda x: torch.conv1d(x[None], torch.ones(1, 1, 3)), (floats(1, 6),), ({1: "length"},)),
    "shape of a slice": (lambda x: x.new_ones(x[:3].shape), (floats(6),), ({0: "rows"},)),
    "cat": (lambda x: torch.cat([x, torch.ones(3)]), (floats(6),), ({0: "rows"},)),
    "broadcast": (lambda x, y: x * y, (floats(4, 3), floats(4, 1)), (AUTO, AUTO)),
    "expand": (lambda x, y: x.expand(y.shape[0], 3), (floats(1, 3), floats(4)), (None, {0: "rows"})),
    "unfold": (lambda x: x.unfold(0, 3, 2), (floats(7),), ({0: "rows"},)),
    "pixel shuffle": (
        lambda x: torch.pixel_shuffle(x, 2),
        (floats(1, 8, 3, 3),),
        ({1: "channels", 2: "height"},),
    ),
    "adaptive pooling": (
        lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 2),
        (floats(1, 2, 8),),
        ({2: "length"},),
    ),
    "matrix product": (lambda x, y: x @ y, (floats(4, 5), floats(5, 3)), ({0: "n", 1: "k"}, {0: "k"})),
    "attention": (
        lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        (floats(1, 2, 5, 4),),
        ({2: "sequence"},),
    ),
}
"""Functions, their inputs and dynamic shapes."""


def exported(function: Callable[..., Any], inputs: tuple, shapes: Any, opset: int) -> opsetta.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return opsetta.export(function, inputs, opset=opset, dynamic_shapes=shapes, narrow=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right_or_refused_at_every_size(name: str) -> None:
    function, inputs, shapes = PROGRAMS[name]
    program = exported(function, inputs, shapes, 13)
    example = example_sizes(program, inputs)
    results = [check(program, function, inputs, point) for point in points(list(example), example)]
    assert "equal" in results


@functools.cache
def records() -> dict[str, Record]:
    """Every record with dynamic dimensions, by the name of its test module and its own."""
    found: dict[str, Record] = {}
    for module in pkgutil.iter_modules(parity.__path__):
        if not module.name.startswith("test_"):
            continue
        for item in vars(importlib.import_module(f"{parity.__name__}.{module.name}")).values():
            if isinstance(item, (list, tuple)):
                listed = [r for r in item if isinstance(r, Record) and r.dynamic is not None]
                found |= {f"{module.name}-{record.name}": record for record in listed}
    return found


class _Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


@functools.lru_cache(maxsize=1)
def program_of(name: str) -> opsetta.Program:
    record = records()[name]
    return exported(_Call(record.function).eval(), record.inputs, (record.dynamic,), max(record.opsets))


def work(job: tuple[str, list[dict[str, int]]]) -> list[str]:
    """What is wrong with a record at each of some sizes, in words."""
    name, sizes = job
    record = records()[name]
    program, found = program_of(name), []
    for point in sizes:
        try:
            check(program, record.function, record.inputs, point, name in OF_VALUES)
            found.append("")
        except Exception:
            found.append(traceback.format_exc())
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Runs jobs in other processes, which onnxruntime may end; they share what this module imports."""
    with LocalEngine(1, (__name__,)) as opened:
        yield opened


def problems(engine: LocalEngine, name: str, sizes: list[dict[str, int]]) -> list[str]:
    """What is wrong at each of the sizes; where they end their process, one by one."""
    ended = engine.call(work, (name, sizes), Limits(600.0))
    if not ended.problem:
        return ended.result
    if len(sizes) == 1:
        return [ended.detail]
    return [problems(engine, name, [point])[0] for point in sizes]


@pytest.mark.sweep
@pytest.mark.parametrize("name", records())
def test_a_record_is_right_or_refused_at_every_size(name: str, engine: LocalEngine) -> None:
    example = example_sizes(program_of(name), records()[name].inputs)
    sizes = list(points(list(example), example))
    known, reason = DEFECTS.get(name, (None, ""))
    outcomes = zip(sizes, problems(engine, name, sizes), strict=True)
    wrong = [(point, problem) for point, problem in outcomes if problem]
    others = [f"{point}: {text}" for point, text in wrong if known not in point.values()]
    assert not others, "\n".join(others)
    if wrong:
        pytest.xfail(reason)
    assert name not in DEFECTS, f"right at every size: {reason}"
