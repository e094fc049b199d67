"""Dynamic shapes: every form they may be given in, and examples whose sizes are 0 or 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import opsetta


def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.reshape(x.shape[0], -1), y], dim=1) * x.shape[0]


X, Y = torch.randn(2, 3, 4), torch.randn(2, 5)

FORMS = {
    "dims by name": {"x": {0: Dim("n"), 1: Dim("m")}, "y": {0: Dim("n")}},
    "hints": {"x": {0: Dim.DYNAMIC, 1: Dim.AUTO}, "y": {0: Dim.DYNAMIC}},
    "strings": {"x": {0: "n", 1: "m"}, "y": {0: "n"}},
    "tuple": ({0: "n", 1: "m"}, {0: "n"}),
    "tuples of dims": ((Dim.DYNAMIC, Dim.DYNAMIC, None), (Dim.DYNAMIC, None)),
    "negative axes": {"x": {-3: "n", -2: "m"}, "y": {-2: "n"}},
    "lists": [["n", "m", None], {0: "n", 1: None}],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_dynamic_inputs(form: str) -> None:
    program = opsetta.export(forward, (X, Y), opset=13, dynamic_shapes=FORMS[form])
    for n, m in ((2, 3), (4, 1), (1, 6)):
        program.verify((torch.randn(n, m, 4), torch.randn(n, 5)))


def test_named_dimensions_stand_in_inputs_and_outputs() -> None:
    program = opsetta.export(forward, (X, Y), dynamic_shapes=FORMS["strings"])
    assert [value.shape.dims for value in program.model.graph.inputs] == [("n", "m", 4), ("n", 5)]
    assert [value.shape.dims for value in program.model.graph.outputs] == [("n", "4*m + 5")]


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize("name", ["length", Dim("length")], ids=["name", "Dim"])
def test_dimensions_of_one_name_are_one_size_before_the_model_compares_them(capture: str, name: Any) -> None:
    def count(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() * x.shape[0] + y.sum() * y.shape[0]

    shapes = ({0: name}, {0: name})
    program = opsetta.export(count, (X, Y), dynamic_shapes=shapes, capture=capture)
    assert [node.op_type for node in program.model.graph].count("Shape") == 1
    program.verify((torch.randn(5, 3, 4), torch.randn(5, 5)))
    with pytest.raises(opsetta.DimensionError, match="'length' has size 5 .* it must be the same for both"):
        program.verify((torch.randn(5, 3, 4), torch.randn(4, 5)))


def test_dynamic_axes_of_torch_onnx() -> None:
    program = opsetta.export(
        forward,
        (X, Y),
        dynamic_axes={"a": {0: "n", 1: "m"}, "y": {0: "n"}, "z": {0: "n"}},
        input_names=["a"],
        output_names=["z"],
    )
    assert program.model.graph.inputs[0].shape == ["n", "m", 4]
    program.verify((torch.randn(6, 2, 4), torch.randn(6, 5)))
    listed = opsetta.export(forward, (X, Y), dynamic_axes={"x": [0], "y": [0]})
    listed.verify((torch.randn(6, 3, 4), torch.randn(6, 5)))


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(
    "dim", ["n", Dim("n"), Dim.DYNAMIC, Dim.AUTO], ids=["name", "Dim", "DYNAMIC", "AUTO"]
)
def test_example_of_size_0_or_1_is_no_constant(size: int, dim: object) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    program = opsetta.export(model, torch.randn(size, 4), opset=12, dynamic_shapes=({0: dim},))
    for n in (0, 1, 2, 7):
        program.verify((torch.randn(n, 4),))


def test_sum_of_sizes_stays_a_sum_when_the_example_grows() -> None:
    def attend(token: torch.Tensor, past: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cat([past, token], dim=1) * mask

    shapes = {
        "token": {0: "batch", 1: "new"},
        "past": {0: "batch", 1: "past"},
        "mask": {0: "batch", 1: "total"},
    }
    example = (torch.randn(1, 1), torch.randn(1, 3), torch.randn(1, 4))
    program = opsetta.export(attend, example, opset=11, dynamic_shapes=shapes)
    program.verify()
    program.verify((torch.randn(3, 2), torch.randn(3, 5), torch.randn(3, 7)))
    empty = opsetta.export(
        attend, (torch.randn(1, 3), torch.randn(1, 0), torch.randn(1, 3)), opset=11, dynamic_shapes=shapes
    )
    empty.verify()
    empty.verify((torch.randn(2, 1), torch.randn(2, 4), torch.randn(2, 5)))


def test_reshape_needs_no_shape_chain() -> None:
    def heads(x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        split = x.view(batch, length, 2, 4).transpose(1, 2)
        return split.transpose(1, 2).reshape(batch, length, 8)

    program = opsetta.export(heads, torch.randn(2, 3, 8), opset=12, dynamic_shapes=({0: "b", 1: "s"},))
    assert "Shape" not in {node.op_type for node in program.model.graph}
    program.verify((torch.randn(5, 1, 8),))


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_arithmetic_of_symbolic_sizes(opset: int) -> None:
    def sizes(x: torch.Tensor) -> tuple:
        n = x.shape[0]
        half = x[: n // 2]
        return half.sum(), torch.ones(n * 2 + 1), x.new_zeros(max(n - 1, 1)), n % 3, (n + 1) // 2

    program = opsetta.export(sizes, torch.randn(6, 2), opset=opset, dynamic_shapes=({0: "n"},))
    for n in (6, 7, 2):
        program.verify((torch.randn(n, 2),))


def test_static_dimensions_stay_static() -> None:
    program = opsetta.export(forward, (X, Y), dynamic_shapes={"x": {0: "n", 1: Dim.STATIC}, "y": {0: "n"}})
    assert program.model.graph.inputs[0].shape == ["n", 3, 4]


def test_contradiction_with_the_model_is_reported() -> None:
    def fixed(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 3)

    with pytest.raises(opsetta.CaptureError, match=r"does not support every size of .* .n. and .m."):
        opsetta.export(fixed, torch.ones(2, 3), dynamic_shapes={"x": {0: Dim("n"), 1: Dim("m")}})


def test_a_hint_leaves_the_size_of_the_example_where_the_model_needs_it():
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(1, 5) * 2

    example = torch.randn(1, 5)
    program = opsetta.export(
        Fixed().eval(), (example,), opset=13, dynamic_shapes=(dict.fromkeys(range(2), Dim.AUTO),)
    )
    assert program.source.graph.inputs[0].shape == [1, 5]
    program.verify()


def test_a_hint_is_not_specialised_to_an_enlarged_size():
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_max_pool2d(x, (4, 3))

    # 4 might have been the sum of 1 and 3: it grows with 1 then, and is specialised.
    example = torch.randn(1, 4, 4, 3)
    hints = (dict.fromkeys(range(4), Dim.AUTO),)
    program = opsetta.export(pooled, (example,), opset=13, dynamic_shapes=hints)
    captured = program.source.graph.inputs[0].shape
    assert captured is not None
    kept = [size == own for size, own in zip(captured, example.shape, strict=True) if isinstance(size, int)]
    assert all(kept)
    program.verify()


@pytest.mark.parametrize("hint", ["rows", Dim.DYNAMIC, Dim.AUTO], ids=str)
def test_a_size_that_is_rounded_from_a_float_is_computed(hint):
    def front(x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.shape[0] * 0.7)]

    program = opsetta.export(front, (torch.randn(5, 3),), dynamic_shapes=({0: hint},))
    for rows in (5, 10, 13):
        program.verify((torch.randn(rows, 3),))


@pytest.mark.parametrize("hint", ["width", Dim.AUTO], ids=str)
def test_a_divided_size_that_an_operator_fixes_is_refused(hint):
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_max_pool1d(x, x.shape[2] // 2)

    with pytest.raises(opsetta.CaptureError, match="takes no symbolic size"):
        opsetta.export(pooled, (torch.randn(2, 3, 9),), dynamic_shapes=({2: hint},))


def test_a_size_that_must_divide_is_taken():
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] // 2, 2, 3)

    program = opsetta.export(halves, (torch.randn(6, 3),), dynamic_shapes=({0: "rows"},))
    program.verify((torch.randn(10, 3),))


@pytest.mark.parametrize("capture", ["direct", "torch.export", "strict"])
def test_the_same_tensor_given_twice_is_two_inputs(capture: str) -> None:
    program = opsetta.export(lambda x, y: x - 2 * y, (X, X), capture=capture)
    torch.testing.assert_close(program(X, torch.zeros_like(X)), X)


class Windows(nn.Module):
    """Computes the batch size from the number of windows by a float division, as Swin transformers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        rows = x.reshape(batch, height // 2, 2, width // 2, 2, channels).transpose(2, 3)
        windows = rows.reshape(-1, 4, channels).softmax(1)
        batch = int(windows.shape[0] / (height * width / 2 / 2))
        whole = windows.reshape(batch, height // 2, width // 2, 2, 2, -1).transpose(2, 3)
        return whole.reshape(batch, height, width, -1)


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opset", [9, 18])
def test_a_size_that_python_converts_stays_dynamic(opset: int) -> None:
    program = opsetta.export(
        Windows().eval(), (torch.rand(2, 4, 4, 3),), opset=opset, dynamic_shapes=({0: Dim.DYNAMIC},)
    )
    program.verify((torch.rand(5, 4, 4, 3),))


class PadToLength(nn.Module):
    """Pads one input to the length of the other one, or crops it, as the decoder of a U-Net does."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        missing = x.shape[2] - y.shape[2]
        return F.pad(y, (missing // 2, missing - missing // 2)) + x


def test_computed_padding_crops_where_it_is_negative() -> None:
    example = (torch.randn(1, 2, 7), torch.randn(1, 2, 5))
    program = opsetta.export(PadToLength().eval(), example, opset=7, dynamic_shapes=({2: "n"}, {2: "m"}))
    for opset in (7, 10, 11):
        lowered = program.lower(opset=opset)
        for n, m in ((4, 9), (9, 4), (1, 8)):
            lowered.verify((torch.randn(1, 2, n), torch.randn(1, 2, m)))


class LongSizes(nn.Module):
    """Computes sizes whose expressions get longer and longer."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.cat([x[:, ::3], x[:, : x.shape[1] // 5 + 1], y[:, : y.shape[1] // 7 + 1]], 1)
            y = x[:, 1::2]
        return x.exp()


def test_a_file_with_long_expressions_of_sizes_can_be_loaded(tmp_path: Path) -> None:
    example = (torch.randn(1, 40), torch.randn(1, 30))
    program = opsetta.export(LongSizes().eval(), example, opset=13, dynamic_shapes=({1: "n"}, {1: "m"}))
    program.save(tmp_path / "model.onnx")
    call = (torch.randn(1, 51), torch.randn(1, 9))
    torch.testing.assert_close(opsetta.load(tmp_path / "model.onnx")(*call), LongSizes()(*call))


class Pair(NamedTuple):
    first: Any
    second: Any


def of_pairs(pair: Pair, nested: Pair, largest: Any) -> Pair:
    return Pair(pair.first + nested.first[0], pair.second + nested.second.second + largest.values)


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_named_tuples_have_dynamic_sizes(capture: str) -> None:
    """Their sizes may be given as the same class, a plain tuple, or a dict."""

    def example(rows: int) -> tuple[Any, ...]:
        x, y = torch.randn(rows, 3), torch.randn(rows)
        return Pair(x, y), Pair([x], Pair(y, y)), x.max(1)

    axes = {0: "n"}
    for sizes in (Pair(axes, axes), (axes, axes), {"first": axes, "second": axes}):
        shapes = (sizes, Pair([axes], sizes), (axes, axes))
        program = opsetta.export(of_pairs, example(2), opset=13, dynamic_shapes=shapes, capture=capture)
        program.verify(example(5))
