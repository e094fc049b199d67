"""Arithmetic on dimensions, against the values that their texts have at some sizes."""

from __future__ import annotations

import hypothesis.strategies as st
import onnx_ir as ir
import pytest
from hypothesis import given

from opsetta.exporter.captured_graph.size_expressions import evaluate
from opsetta.registration.inference.tensor_sizes import is_static
from opsetta.registration.size_algebra.dimensions import (
    UNKNOWN,
    Dim,
    broadcast,
    least,
    polynomial_of,
    product,
    quotient,
    same_size,
    text_of,
    total,
)

_BATCH, _LENGTH, _WIDTH = map(ir.SymbolicDim, ("batch", "length", "width"))
_names = st.sampled_from(["batch", "length", "width"])
_texts = st.recursive(
    st.one_of(_names, _names, st.integers(1, 12).map(str)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", "*", "//"]), inner).map(lambda parts: f"({''.join(parts)})"),
        st.tuples(st.sampled_from(["Min", "Max"]), inner, inner).map("{0[0]}({0[1]}, {0[2]})".format),
    ),
    max_leaves=5,
)
_dims = st.one_of(st.integers(0, 40), _texts.map(ir.SymbolicDim))
_sizes = st.fixed_dictionaries({name: st.integers(1, 30) for name in ("batch", "length", "width")})


def _value(dim: Dim, sizes: dict[str, int]) -> int | None:
    return dim if isinstance(dim, int) else evaluate(dim.value or "", sizes)


@given(_dims, _dims, _sizes)
def test_results_have_the_value_of_integers(a: Dim, b: Dim, sizes: dict[str, int]) -> None:
    values = _value(a, sizes), _value(b, sizes)
    if None in values:
        # A division by zero.
        return
    first, second = values
    for dim, expected in (
        (product(a, b), first * second),
        (total([a, b]), first + second),
        (least(a, b), min(first, second)),
    ):
        assert dim == UNKNOWN or _value(dim, sizes) == expected
    if second:
        exact = quotient(a, b)
        assert exact == UNKNOWN or _value(exact, sizes) * second == first
    assert not same_size(a, b) or first == second


@given(_texts, _sizes)
def test_a_text_is_read_as_it_is_written(text: str, sizes: dict[str, int]) -> None:
    if evaluate(text, sizes) is None:
        return
    polynomial = polynomial_of(ir.SymbolicDim(text))
    if not text.isdecimal() and polynomial.atoms != {text}:
        assert evaluate(text_of(polynomial), sizes) == evaluate(text, sizes)
        assert polynomial_of(ir.SymbolicDim(text_of(polynomial))) == polynomial


@given(_dims, _dims)
def test_a_product_is_divided_exactly(a: Dim, b: Dim) -> None:
    area = product(a, b)
    if UNKNOWN not in (area, a, b) and b != 0:
        assert same_size(quotient(area, b), a)


def test_texts_are_those_of_torch() -> None:
    def dim(text: str) -> Dim:
        return product(2, ir.SymbolicDim(text))

    assert str(product(product(_WIDTH, 3), product(_BATCH, _BATCH))) == "3*batch**2*width"
    assert str(dim("batch + 1")) == "2*batch + 2"
    assert str(dim("-batch + width")) == "-2*batch + 2*width"
    assert str(dim("(batch//2)")) == "2*(batch//2)"
    assert str(dim("batch % 4")) == "2*(batch % 4)"
    assert str(dim("Mod(batch, 4)")) == "2*Mod(batch, 4)"
    assert str(total([_LENGTH, 1, _BATCH])) == "batch + length + 1"
    assert str(least(512, _LENGTH)) == "Min(512, length)"


def test_products_and_quotients_of_sizes() -> None:
    windows = product(64, _BATCH)
    assert [str(product(2, windows)), str(quotient(windows, 64))] == ["128*batch", "batch"]
    assert quotient(windows, _BATCH) == 64
    assert quotient(windows, product(16, _BATCH)) == 4
    assert [product(3, 4), quotient(12, 4), product(0, _BATCH), product(-1, 4)] == [12, 3, 0, -4]
    assert str(quotient(product(_BATCH, _LENGTH), _LENGTH)) == "batch"
    rows = product(total([_BATCH, 1]), total([_LENGTH, _WIDTH]))
    assert str(quotient(rows, total([_LENGTH, _WIDTH]))) == "batch + 1"
    unknown = (
        *(quotient(windows, 5), quotient(12, 5), quotient(1, 0), quotient(windows, _LENGTH)),
        *(product(UNKNOWN, 2), product(-1, _BATCH), total([_BATCH, UNKNOWN]), total([_BATCH, -1])),
        *(quotient(UNKNOWN, UNKNOWN), quotient(_BATCH, windows), least(UNKNOWN, 3)),
    )
    assert all(size == UNKNOWN for size in unknown)


def test_a_shape_with_a_computed_size_is_not_static() -> None:
    assert not is_static(ir.Shape([product(4, _BATCH), 3]))
    assert is_static(ir.Shape([product(4, 2), quotient(product(6, _BATCH), _BATCH)]))


def test_the_lesser_of_two_sizes_is_decided_where_sizes_allow_it() -> None:
    longer = total([_LENGTH, 3])
    assert [least(longer, _LENGTH), least(3, longer), least(5, 7)] == [_LENGTH, 3, 5]
    assert str(least(_LENGTH, least(512, _LENGTH))) == "Min(512, length)"


def test_the_same_size_is_written_in_several_ways() -> None:
    def same(a: str, b: str) -> bool:
        return same_size(ir.SymbolicDim(a), ir.SymbolicDim(b))

    assert same("2*(batch + 1)", "2 + batch*2")
    assert same("Min(length, 512)", "min(512, length)")
    assert same("(4*batch + 7)//4", "batch + 1")
    assert not same("batch", "length")
    assert not same("batch//2", "length//2")
    assert not same_size(UNKNOWN, UNKNOWN)
    assert not same_size(1, ir.SymbolicDim("1"))


@pytest.mark.parametrize("name", ["batch size", "batch-size", "batch.1", "?", "N-N", "lambda", "a)("])
def test_a_name_that_is_no_expression_stands_for_any_size(name: str) -> None:
    dim = ir.SymbolicDim(name)
    windows = product(64, dim)
    assert str(windows) == f"64*{name}"
    assert str(quotient(product(2, windows), 64)) == f"2*{name}"
    assert not same_size(dim, ir.SymbolicDim("batch"))


def test_the_lesser_size_is_broadcast_to_the_whole() -> None:
    cut = least(512, _LENGTH)
    sizes = broadcast([(_BATCH, _LENGTH, 4), (cut, 4)])
    assert [str(size) for size in sizes] == ["batch", "length", "4"]
    assert broadcast([(cut,), (_BATCH,)]) == (UNKNOWN,)
    assert broadcast([(least(1, _LENGTH),), (_LENGTH,)]) == (UNKNOWN,)
    assert broadcast([(cut,), (_LENGTH,), (_BATCH,)]) == (UNKNOWN,)
    assert broadcast([(cut,), (1,)]) == (cut,)


@pytest.mark.parametrize("name", ["1", "-1", "2*3"])
def test_a_name_that_is_a_number_stands_for_any_size(name: str) -> None:
    dim = ir.SymbolicDim(name)
    assert product(64, dim) == UNKNOWN
    assert quotient(dim, dim) == 1
    assert not same_size(dim, 1)


def test_names_that_cannot_be_read_in_a_product_have_none() -> None:
    assert product(ir.SymbolicDim("batch size"), _LENGTH) == UNKNOWN


_HOSTILE = (
    *("(" * 200 + "a" + ")" * 200, "(a + b + c + d)**8" * 8, "*".join("abcdefghij" * 20)),
    *("(a + b + c + d)**8*(a + b)**8", "9**9**9**9", "-" * 250 + "a", "a**" * 80 + "a", "a" * 10**6),
    *("Min(" * 60 + "a" + ")" * 60, "Min(" + ", ".join("abcdefghijklmnopqrstuvwxyz" * 3) + ")"),
    " + ".join(f"(a + {letter})**2" for letter in "bcdefghijklmnopqr"),
)


@pytest.mark.parametrize("text", _HOSTILE, ids=lambda text: text[:9])
@pytest.mark.usefixtures("two_minutes_at_most")
def test_texts_of_files_are_read_without_computing_what_they_say(text: str) -> None:
    dim = ir.SymbolicDim(text)
    for result in (product(dim, dim), total([dim, 1]), least(dim, 7), quotient(product(dim, 4), 2)):
        assert isinstance(result, ir.SymbolicDim)
    assert same_size(dim, dim)
