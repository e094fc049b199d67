"""`Dim`s of which the export is right at every size of the range, and others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import opsetta


def write_window(x: torch.Tensor) -> torch.Tensor:
    rows = x.new_zeros(x.shape[0], 3, x.shape[1])
    rows[:, 1, 5:] = x[:, :-5]
    return rows


def pad_before_pooling(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(F.pad(x[:, None], (2, 2), "reflect"), 3, 2).squeeze(1)


def parts(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part - part.mean() for part in x.chunk(math.ceil(x.shape[1] / 40), 1)], 1)


def limit_rows(x: torch.Tensor) -> torch.Tensor:
    """No If returns two element types, so the sides stay apart."""
    return x.sum(1) if x.shape[1] <= 64 else x.mean(1).double()


SUPPORTED: dict[str, tuple[Callable[..., Any], Dim, int, tuple[int, ...]]] = {
    "a window from a start": (write_window, Dim("n", min=6), 9, (6, 30)),
    "padding by reflection": (pad_before_pooling, Dim("n", min=3), 8, (3, 17)),
    "one part": (parts, Dim("n", max=40), 7, (1, 40)),
    "four parts": (parts, Dim("n", min=121, max=160), 130, (121, 160)),
    "one branch": (limit_rows, Dim("n", max=64), 5, (1, 64)),
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_dim_is_supported_if_every_size_of_its_range_is_right(name: str) -> None:
    function, dim, size, other_sizes = SUPPORTED[name]
    program = opsetta.export(function, torch.randn(2, size), opset=9, dynamic_shapes={"x": {1: dim}})
    for other_size in (size, *other_sizes):
        program.verify((torch.randn(2, other_size),))


REFUSED: dict[str, tuple[Callable[..., Any], Dim, int, list[str]]] = {
    "another branch": (limit_rows, Dim("n"), 5, ["n <= 64", 'Dim("n", max=64)', "narrow=True"]),
    "a branch in the range": (limit_rows, Dim("n", max=65), 5, ['Dim("n", max=64)']),
    "a reflection needs more": (pad_before_pooling, Dim("n"), 8, ["n >= 3", 'Dim("n", min=3)']),
    "a remainder": (lambda x: x.double() if x.shape[1] % 2 else x, Dim("n"), 4, ["even n"]),
    "the example is outside": (write_window, Dim("n", min=6), 4, ["size 4", "at least 6"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_dim_is_refused_if_a_size_of_its_range_is_not_right(name: str) -> None:
    function, dim, size, phrases = REFUSED[name]
    with pytest.raises(opsetta.CaptureError) as raised:
        opsetta.export(function, torch.randn(2, size), opset=9, dynamic_shapes={"x": {1: dim}})
    assert [phrase for phrase in phrases if phrase not in str(raised.value)] == []


def paddings(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum(1) if x.shape[1] <= y.shape[1] else y.sum(1).double()


NARROWED: dict[str, tuple[Callable[..., Any], list[Any], list[str]]] = {
    "a number of parts": (
        parts,
        ["n"],
        ["dimension 'n'", "n <= 40", 'Dim("n", max=40), or the name "n <= 40"'],
    ),
    "a hint": (limit_rows, [Dim.DYNAMIC], ["x_dim_1 <= 64", "narrow=True (--narrow)"]),
    "a relation": (paddings, ["n", "m"], ["dimensions 'n' and 'm'", "n <= m", "narrow=True"]),
    "a part of the stated range": (limit_rows, ["3 <= n <= 80"], ["n <= 64", '"3 <= n <= 64"']),
}


def arguments(function: Callable[..., Any], requests: list[Any]) -> dict[str, Any]:
    names = ("x", "y")[: len(requests)]
    return {
        "args": tuple(torch.randn(2, 7) for _ in names),
        "opset": 9,
        "dynamic_shapes": {name: {1: request} for name, request in zip(names, requests, strict=True)},
    }


@pytest.mark.parametrize("name", NARROWED)
def test_a_narrowed_dimension_is_an_error_or_allowed(name: str) -> None:
    function, requests, phrases = NARROWED[name]
    with pytest.raises(opsetta.NarrowedError) as raised:
        opsetta.export(function, **arguments(function, requests))
    message = str(raised.value)
    assert [phrase for phrase in (*phrases, "test_promised_ranges.py:") if phrase not in message] == []
    with pytest.warns(UserWarning, match="valid for"):
        program = opsetta.export(function, **arguments(function, requests), narrow=True)
    conditions = {r.condition for dimension in program.dimensions.values() for r in dimension.restrictions}
    assert set(raised.value.conditions) <= conditions
    program.verify()


def test_a_condition_on_a_named_dimension_is_allowed() -> None:
    for name in ("n", "m"):
        with pytest.warns(UserWarning, match="valid for n <= m"):
            opsetta.export(paddings, **arguments(paddings, ["n", "m"]), narrow=[name])
    with pytest.raises(opsetta.NarrowedError, match="n <= 64"):
        opsetta.export(limit_rows, **arguments(limit_rows, ["n"]), narrow=["m"])
    with pytest.raises(opsetta.UsageError, match="names of dimensions in a list, not 'n'"):
        opsetta.export(limit_rows, **arguments(limit_rows, ["n"]), narrow="n")


ALLOWED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "a multiple": (lambda x: x.double() if x.shape[1] % 7 else x, "n", "n % 7 == 0"),
    "small sizes": (lambda x: x * 2 if x.shape[1] < 2 else x, "n", "n >= 2"),
    "an inferred range": (limit_rows, Dim.AUTO, "x_dim_1 <= 64"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_multiples_and_small_sizes_are_warnings(name: str) -> None:
    function, request, condition = ALLOWED[name]
    with pytest.warns(UserWarning, match="valid for"):
        program = opsetta.export(function, **arguments(function, [request]))
    [dimension] = program.dimensions.values()
    assert [restriction.condition for restriction in dimension.restrictions] == [condition]


@pytest.mark.parametrize("text", ["n <= 40", " n<=40", "2 <= n <= 40"])
def test_a_name_states_its_range(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = opsetta.export(parts, **arguments(parts, [text]))
    assert (program.dimensions["n"].maximum, program.dimensions["n"].minimum) == (40, 1 + ("2" in text))
    program.verify((torch.randn(2, 40),))
    with pytest.raises(opsetta.DimensionError, match="n <= 40"):
        program.verify((torch.randn(2, 41),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "is not a name with a range") for text in ("n < 40", "2 <= n >= 3", "n <= m")),
        ("40 <= n <= 2", "no number is in that range"),
        ("2 <= n <= 2", "leave a fixed size out"),
    ],
)
def test_a_range_in_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(parts, **arguments(parts, [text]))


def append(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As in decoders of transformers, a mask that is too short is padded."""
    joined = torch.cat([x, y], 1)
    missing = joined.shape[1] - mask.shape[1]
    return joined * (F.pad(mask, (0, missing)) if missing > 0 else mask)


@pytest.mark.parametrize(("rows", "total"), [((5, 3), "p + n"), ((0, 1), "p+n"), ((1, 4), "p + 4")])
@pytest.mark.parametrize("capture", ["auto", "torch.export"])
def test_a_name_states_a_sum(rows: tuple[int, int], total: str, capture: str) -> None:
    """No other length of the mask is tried, so the sides of the condition need no If."""
    inputs = [torch.randn(2, size) for size in (*rows, sum(rows))]
    shapes = {"x": {1: "p"}, "y": {1: "n"}, "mask": {1: f"total = {total}"}}
    if total == "p + 4":
        del shapes["y"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = opsetta.export(append, tuple(inputs), opset=9, dynamic_shapes=shapes, capture=capture)
    assert not {"If", "Pad"} & {node.op_type for node in program.model.graph}
    sizes = (7, rows[1], 7 + rows[1])
    program.verify(tuple(torch.randn(2, size) for size in sizes))
    with pytest.raises(opsetta.DimensionError):
        program(*(torch.randn(2, size) for size in (7, rows[1], 6 + rows[1])))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("total = p + m", "'m' in 'total = p [+] m'"),
        ("total = p + 2", "has size 8 in the example, which is not 'total = p [+] 2'"),
        ("total = 2 * p", "is not a name with a range"),
    ],
)
def test_another_sum_is_refused(text: str, message: str) -> None:
    inputs = tuple(torch.randn(2, size) for size in (5, 3, 8))
    shapes = {"x": {1: "p"}, "y": {1: "n"}, "mask": {1: text}}
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(append, inputs, dynamic_shapes=shapes)


def test_one_use_of_a_name_states_its_range() -> None:
    program = opsetta.export(lambda x, y: limit_rows(x + y), **arguments(parts, ["n <= 64", "n"]))
    assert program.dimensions["n"].maximum == 64


def test_dims_of_one_name_share_their_range() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return limit_rows(x + y)

    dims = {"x": {1: Dim("n", max=64)}, "y": {1: Dim("n", max=64)}}
    program = opsetta.export(add, (torch.randn(2, 3), torch.randn(2, 3)), opset=9, dynamic_shapes=dims)
    program.verify((torch.randn(2, 64), torch.randn(2, 64)))
