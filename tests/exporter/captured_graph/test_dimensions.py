"""Dynamic dimensions: contradictions are refused; restrictions are told, kept in files and checked."""

from __future__ import annotations

import pathlib
import warnings

import onnx
import pytest
import torch
from torch.export import Dim
from typer.testing import CliRunner

import opsetta
from opsetta.exporter.captured_graph import dimensions
from opsetta.exporter.captured_graph.dimensions import SizeRestriction, evaluate
from opsetta.exporter.command_line.application import make_application
from opsetta.registration import DIMENSIONS

X = torch.ones(2, 3)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def both(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left + right


def branching(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 4:
        return x * 2
    return x * 3


CAPTURES = {"export": lambda f, *args: f, "script": lambda f, *args: torch.jit.trace(f, args)}


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic_axes": {"xx": {0: "b"}}}, r"'xx' \(did you mean 'x'\?\).*the inputs are 'x'"),
        ({"dynamic_axes": {"z": {0: "b"}}}, r"names 'z', which the model does not have"),
        ({"dynamic_axes": {"out": {0: "b"}}, "output_names": ["result"]}, "the outputs 'result'"),
        ({"dynamic_axes": {"x": {2: "b"}}}, "'x' names axis 2, but the tensor has 2 dimensions"),
        ({"dynamic_axes": {"x": {-3: "b"}}}, "axis -3"),
        ({"dynamic_axes": {"x": {0.5: "b"}}}, r"0\.5 is not the number of an axis"),
        ({"dynamic_axes": {"x": {"0": "b"}}}, "'0' is not the number of an axis"),
        ({"dynamic_axes": {"x": {0: "b", -2: "c"}}}, "axis 0 twice: 'b' and 'c'"),
        ({"dynamic_shapes": {"y": {0: "b"}}}, "dynamic_shapes names 'y'"),
        ({"dynamic_shapes": ({5: "b"},)}, "axis 5"),
        (
            {"dynamic_shapes": ({0: "b", 1: 4},)},
            "axis 1 of 'x' has size 3 in the example, but 4 in dynamic_shapes",
        ),
        ({"dynamic_shapes": ({0: True},)}, "True is not a Dim"),
        ({"dynamic_axes": {"x": {0: "b", 1: "b"}}}, "'b' has size 2 at axis 0 of 'x' and size 3 at axis 1"),
        (
            {"dynamic_axes": {"a": {0: "b"}, "x": {1: "c"}}, "input_names": ["a"]},
            "'a' and 'x' name the same input",
        ),
    ],
)
def test_dynamic_dimensions_that_the_model_does_not_have_are_refused(capture, options, message):
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(CAPTURES[capture](double, X), (X,), **options)


def test_an_axis_from_the_end_and_the_names_of_outputs_are_taken():
    program = opsetta.export(
        double, (X,), dynamic_axes={"x": {-1: "columns"}, "y": {0: "rows"}}, output_names=["y"]
    )
    assert program.model.graph.inputs[0].shape.dims == (2, "columns")


def test_names_that_the_model_makes_equal_are_refused_with_the_line_that_does():
    shapes = ({0: "rows"}, {0: "lines"})
    with pytest.raises(opsetta.CaptureError, match=r"'rows' \(axis 0 of 'left'\) and 'lines' .*same name"):
        opsetta.export(both, (X, X), dynamic_shapes=shapes)

    def compared(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if left.shape[0] == right.shape[0]:
            return left * 2
        return left * 3

    with pytest.raises(opsetta.CaptureError, match=r"equal at .*test_dimensions\.py:\d+: give both"):
        opsetta.export(compared, (X, X), dynamic_shapes=shapes)


def test_the_command_line_refuses_them(tmp_path: pathlib.Path):
    (tmp_path / "factories.py").write_text(
        "import torch\n"
        "def plain(): return torch.nn.ReLU(), (torch.ones(2, 3),)\n"
        "def named(): return {'model': torch.nn.ReLU(), 'args': (torch.ones(2, 3),),\n"
        "                     'dynamic_axes': {'inputt': {0: 'b'}}}\n"
    )
    for arguments in (["plain", "--dynamic", "inputt:0=b"], ["named"]):
        factory = f"{tmp_path / 'factories.py'}:{arguments[0]}"
        target = tmp_path / "model.onnx"
        result = CliRunner().invoke(
            make_application(), ["export", factory, "-o", str(target), *arguments[1:]]
        )
        assert isinstance(result.exception, opsetta.CaptureError)
        assert "did you mean 'input'?" in str(result.exception)
        assert not target.exists()


def exported(function, *inputs, **options) -> tuple[opsetta.Program, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = opsetta.export(function, inputs, **options)
    return program, [str(entry.message) for entry in caught if entry.category is UserWarning]


def test_a_branch_on_a_size_is_told_kept_and_checked():
    program, told = exported(branching, torch.ones(6, 2), dynamic_shapes=({0: "rows"},), narrow=True)
    line = branching.__code__.co_firstlineno + 1
    assert len(told) == 1
    assert "rows >= 5" in told[0]
    assert f"(tests/exporter/captured_graph/test_dimensions.py:{line}: " in told[0]
    rows = program.dimensions["rows"]
    assert (rows.minimum, rows.maximum, rows.conditions) == (5, None, ())
    program.verify((torch.ones(9, 2),))
    for call in (program, lambda x: program.verify((x,)), lambda x: program.locate_mismatch((x,))):
        with pytest.raises(opsetta.DimensionError, match=r"'rows' is 3 \(axis 0 of input 'x'\).*rows >= 5"):
            call(torch.ones(3, 2))


def test_restrictions_survive_files(tmp_path: pathlib.Path):
    program, _ = exported(branching, torch.ones(6, 2), dynamic_shapes=({0: "rows"},), narrow=True)
    program.save_source(tmp_path / "model.source.onnx")
    loaded = opsetta.load(tmp_path / "model.source.onnx")
    assert loaded.lower(9).dimensions == program.dimensions
    with pytest.raises(opsetta.DimensionError):
        loaded.lower(9)(torch.ones(3, 2))
    path = tmp_path / "model.onnx"
    program.save(path)
    assert DIMENSIONS in {entry.key for entry in onnx.load(path).metadata_props}
    shown = CliRunner().invoke(make_application(), ["info", str(path)])
    assert "valid for rows >= 5" in shown.stdout


def test_a_file_is_not_verified_at_sizes_that_it_does_not_hold_for(tmp_path: pathlib.Path):
    from opsetta.exporter.running.comparisons.file_verification import verify_file

    program, _ = exported(branching, torch.ones(6, 2), dynamic_shapes=({0: "rows"},), narrow=True)
    path = tmp_path / "model.onnx"
    program.save(path)
    verify_file(path, branching, (torch.ones(7, 2),), {})
    with pytest.raises(opsetta.DimensionError, match="rows"):
        verify_file(path, branching, (torch.ones(2, 2),), {})


@pytest.mark.parametrize("strict", [False, True])
def test_what_holds_at_every_size_is_not_restricted(strict):
    def ordinary(x: torch.Tensor) -> torch.Tensor:
        written = torch.nn.functional.layer_norm(x, (4,)) * 2
        written[:3] = 7
        return torch.softmax(written @ written.mT, -1)

    example = torch.ones(5, 4)
    program, told = exported(ordinary, example, dynamic_shapes=({0: "rows"},), strict=strict)
    assert told == []
    assert program.dimensions["rows"].restrictions == ()
    assert DIMENSIONS not in program.model.metadata_props
    for rows in (0, 1, 2, 9):
        program.verify((torch.randn(rows, 4),))


def test_sizes_that_the_model_itself_refuses_are_checked_without_a_warning():
    def table(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(8.0)[: x.shape[0]]

    program, told = exported(table, torch.ones(5), dynamic_shapes=({0: "length"},))
    assert told == []
    assert program.dimensions["length"].maximum == 8
    with pytest.raises(opsetta.DimensionError, match="length <= 8"):
        program(torch.ones(9))


def test_further_conditions_are_written_as_python_writes_them():
    def remainder(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] % 2 == 0 else x.double()

    program, told = exported(remainder, torch.ones(6), dynamic_shapes=({0: "n"},))
    assert len(told) == 1
    assert program.dimensions["n"].conditions == ("n % 2 == 0",)
    program.verify((torch.ones(4),))
    with pytest.raises(opsetta.DimensionError, match="n % 2 == 0"):
        program(torch.ones(5))


def test_the_range_of_a_dim_is_kept():
    program, told = exported(double, X, dynamic_shapes=({0: Dim("n", min=2, max=6)},))
    assert told == []
    assert (program.dimensions["n"].minimum, program.dimensions["n"].maximum) == (2, 6)
    with pytest.raises(opsetta.DimensionError):
        program(torch.ones(7, 3))
    given = torch.export.export(torch.nn.ReLU(), (X,), dynamic_shapes=({0: Dim("n", max=6)},))
    assert next(iter(opsetta.export(given).dimensions.values())).maximum == 6


def test_sizes_under_one_name_must_be_equal():
    program, _ = exported(both, X, X, dynamic_shapes=({0: "n"}, {0: "n"}))
    with pytest.raises(
        opsetta.DimensionError, match="'n' has size 4 at axis 0 of input 'left', and size 1 at axis 0"
    ):
        program(torch.ones(4, 3), torch.ones(1, 3))


def test_the_model_is_left_as_it_was():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] != 1 else x + self.seen

    model = Counting().eval()
    before = {name: id(item) for name, item in vars(model).items()}
    exported(model, X, dynamic_shapes=({0: "n"},))
    assert {name: id(item) for name, item in vars(model).items()} == before
    assert type(model.seen) is torch.Tensor


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n", 6),
        ("2*n + batch size", 15),
        ("n // 4 == 1", True),
        ("not (n > 3)", False),
        ("(n > 7) or (n == 6)", True),
        ("Max(1, n - 9)", 1),
        ("unknown + 1", None),
        ("n // 0", None),
        ("__import__('os')", None),
        ("n ** 9999999", None),
    ],
)
def test_expressions_over_dimensions(text, value):
    assert evaluate(text, {"n": 6, "batch size": 3}) == value


def test_a_restriction_reads_as_a_sentence():
    assert str(SizeRestriction("n >= 5", "why", "model.py:2")) == "n >= 5 (model.py:2: why)"


@pytest.mark.parametrize("dimension", [Dim("n"), Dim.AUTO])
def test_a_range_that_torch_has_no_words_for_is_found_by_trials(dimension: object) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x[1:-1] + 1

    program = opsetta.export(model, (torch.ones(6, 3),), opset=17, dynamic_shapes=({0: dimension},))
    for rows in (1, 2, 9):
        program.verify((torch.ones(rows, 3),))


def test_a_long_condition_is_shortened_in_messages_only() -> None:
    condition = " + ".join(f"n // {number}" for number in range(2, 80)) + " != 7"
    shown = str(SizeRestriction(condition, "the model computes something else"))
    assert len(shown) < 300
    assert shown.startswith("n // 2 + ")
    assert " … " in shown
    assert shown.endswith("n // 79 != 7 (the model computes something else)")


def test_multiples_that_one_line_asks_for_are_one_phrase():
    def even(name: str, line: str = "m.py:7") -> SizeRestriction:
        return SizeRestriction(f"{name} % 2 == 0", "why", line)

    restrictions = [even("h"), SizeRestriction("n <= 4", "why", "m.py:7"), even("w"), even("h", "m.py:9")]
    restrictions.append(SizeRestriction("c % 8 == 0", "why"))
    assert dimensions.in_words(restrictions) == [
        "even h and w (m.py:7: why)",
        "n <= 4 (m.py:7: why)",
        "even h (m.py:9: why)",
        "multiples of 8 of c (why)",
    ]
