"""Operators that torch decomposes, for sizes that are computed from others and may be small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import opsetta
from opsetta.exporter.capture.fx_import.decomposition import Decomposer


def deep(x: torch.Tensor) -> torch.Tensor:
    """The size at the bottom is 1 up to 16 rows and columns."""
    x = F.max_pool2d(x, 8, ceil_mode=True)
    values, places = F.max_pool2d(x, 2, return_indices=True, ceil_mode=True)
    return F.max_unpool2d(values * 2, places, 2)


def of_each_sixteenth(x: torch.Tensor) -> torch.Tensor:
    values, places = F.max_pool2d(x[..., ::16, ::16], 2, return_indices=True)
    return F.max_unpool2d(values * 2, places, 2)


@pytest.mark.parametrize("model", [deep, of_each_sixteenth])
def test_a_size_that_is_computed_from_others_is_not_taken_for_1(model: Callable[..., torch.Tensor]) -> None:
    program = opsetta.export(
        model, (torch.randn(2, 3, 64, 64),), opset=17, dynamic_shapes=({0: "batch", 2: "h", 3: "w"},)
    )
    for shape in [(2, 3, 64, 64), (3, 3, 96, 128), (1, 3, 32, 64), (2, 3, 32, 32)]:
        program.verify((torch.randn(shape),))


@pytest.mark.parametrize(
    "operator",
    [
        lambda x: torch.rot90(x, 1, (0, 1)),
        lambda x: torch.fft.fftshift(x, (0, 1)),
        lambda x: torch.diag_embed(x, offset=1),
        lambda x: torch.tensordot(x, x, dims=([1], [1])),
        lambda x: torch.cumulative_trapezoid(x, dim=0),
    ],
    ids=["rot90", "fftshift", "diag_embed", "tensordot", "cumulative_trapezoid"],
)
@pytest.mark.parametrize("opset", [9, 17])
def test_a_size_without_a_name_stays_dynamic(operator: Callable[..., torch.Tensor], opset: int) -> None:
    """The size of `x[-3:]` is the smaller of two, which a dimension cannot say."""
    program = opsetta.export(
        lambda x: operator(x[-3:]), (torch.randn(4, 5),), opset=opset, dynamic_shapes=({0: "n"},)
    )
    for rows in (4, 3, 2, 7):
        program.verify((torch.randn(rows, 5),))


@pytest.mark.parametrize("opset", [9, 17])
def test_a_size_that_no_expression_of_onnx_has_stays_dynamic(opset: int) -> None:
    """The size of a range of floating-point numbers is a quotient rounded up."""

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        return torch.meshgrid(
            torch.arange(-rows / 2, rows / 2) / rows, torch.arange(columns).float(), indexing="ij"
        )

    program = opsetta.export(
        model, (torch.randn(4, 5),), opset=opset, dynamic_shapes=({0: "rows", 1: "columns"},)
    )
    for rows, columns in ((4, 5), (3, 2), (8, 7)):
        program.verify((torch.randn(rows, columns),))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize(
    "change", [lambda x: x[None], lambda x: x.reshape(1, -1, 1), lambda x: x.new_zeros(4)]
)
def test_a_rule_of_another_shape_than_the_kernel_is_refused(
    change: Callable[..., torch.Tensor], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rules of torch return a shape of rank 1 where the kernel returns one of rank 0."""
    operator = torch.ops.aten.soft_margin_loss.default
    monkeypatch.setitem(torch._decomp.decomposition_table, operator, lambda x, target, reduction: change(x))
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="soft_margin_loss"):
        opsetta.export(lambda x: operator(x, x, 0), (torch.randn(shape),), opset=17)


def of_two_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where `x` has the 11 rows of a trace, the image has 2, and quotients and differences of them are 1."""
    image = F.conv2d(x, torch.ones(2, 3, 1, 1), stride=8)
    return F.unfold(image, 2, stride=2), torch.cumulative_trapezoid(image, dim=2)


def larger_than_the_trace(x: torch.Tensor) -> torch.Tensor:
    return F.unfold(x, (12, 14), stride=8)


@pytest.mark.parametrize("model", [of_two_rows, larger_than_the_trace])
def test_a_size_within_a_decomposition_is_not_taken_for_1(model: Callable[..., object]) -> None:
    program = opsetta.export(
        model, (torch.randn(2, 3, 32, 48),), opset=13, dynamic_shapes=({0: "batch", 2: "h"},)
    )
    for shape in [(2, 3, 32, 48), (1, 3, 49, 48), (3, 3, 63, 48)]:
        program.verify((torch.randn(shape),))


def padded(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    numbers = [x[:, 0].long(), y[:, 0].long(), z[:, 0].int()]
    return (
        torch.nn.utils.rnn.pad_sequence([x, y, z], batch_first=True, padding_value=2.5),
        torch.nn.utils.rnn.pad_sequence(numbers, padding_value=-1, padding_side="left"),
    )


@pytest.mark.parametrize("opset", [9, 17])
def test_any_sequence_may_be_the_longest(opset: int) -> None:
    shapes = ({0: "a"}, {0: "b"}, {0: "c"})
    example = torch.randn(5, 3), torch.randn(3, 3), torch.randn(4, 3)
    program = opsetta.export(padded, example, opset=opset, dynamic_shapes=shapes)
    for sizes in [(5, 3, 4), (1, 1, 1), (2, 9, 4), (3, 4, 8)]:
        program.verify(tuple(torch.randn(size, 3) for size in sizes))


def test_a_decomposition_that_compares_independent_sizes_is_not_used() -> None:
    """Up to torch 2.14, the longest sequence of the decomposed `pad_sequence` is always the same one."""
    example = torch.randn(5, 3), torch.randn(3, 3), torch.randn(4, 3)
    shapes = ({0: "a"}, {0: "b"}, {0: "c"})
    compares_sizes = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)
    for dynamic_shapes, is_decomposed in ((shapes, not compares_sizes), (None, True)):
        program = opsetta.export(padded, example, opset=17, dynamic_shapes=dynamic_shapes)
        node = next(node for node in program.source.graph if node.op_type == "pad_sequence")
        assert (Decomposer()(node, lambda inner: True) is not None) is is_decomposed
