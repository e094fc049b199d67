"""Everything that runs a model accepts and refuses the same arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import opsetta
from opsetta.exporter.captured_graph.dimensions import SizeCheck
from opsetta.exporter.running.comparisons.file_comparison import compare_files
from opsetta.exporter.running.comparisons.file_verification import verify_file
from opsetta.exporter.running.input_sizes import DeclaredInput
from opsetta.exporter.running.model_inputs import ModelInputs
from opsetta.exporter.running.random_inputs import random_inputs


def few(x: torch.Tensor) -> torch.Tensor:
    return x.exp() if x.shape[0] < 7 else x.sin()


def many(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[1] > 3 else x - 1


def in_threes(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) if x.shape[0] % 3 == 0 else x


def weighted(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * weight


def tripled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x, 3, dim=0) - y


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and shapes for which it is valid and not valid."""

    name: str
    model: Callable[..., Any]
    example: list[tuple[int, ...]]
    dynamic_shapes: Any
    valid: list[tuple[int, ...]]
    invalid: list[tuple[int, ...]]
    message: str


N = torch.export.Dim("n")
CASES = [
    Case("upper", few, [(3, 2)], ({0: "n"},), [(6, 2)], [(7, 2)], "n <= 6"),
    Case("lower", many, [(2, 5)], ({1: "n"},), [(2, 4)], [(2, 3)], "n >= 4"),
    Case("multiple", in_threes, [(6,)], ({0: "n"},), [(9,)], [(7,)], "n % 3 == 0"),
    Case(
        "equal", weighted, [(4, 2)] * 2, ({0: "n"},) * 2, [(7, 2)] * 2, [(7, 2), (1, 2)], "the same for both"
    ),
    Case(
        "derived",
        tripled,
        [(2, 2), (6, 2)],
        ({0: N}, {0: 3 * N}),
        [(5, 2), (15, 2)],
        [(5, 2), (1, 2)],
        "15",
    ),
    Case("fixed", weighted, [(4, 2)] * 2, None, [(4, 2)] * 2, [(4, 2), (4, 1)], r"the shape \[4, 2\]"),
    Case("rank", few, [(3, 2)], ({0: "n"},), [(5, 2)], [(5,)], r"the shape \[n, 2\], not \[5\]"),
]


def tensors(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    return [torch.rand(shape) for shape in shapes]


def arrays(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors(shapes)]


def doors(case: Case, folder: pathlib.Path) -> dict[str, Callable[[list[tuple[int, ...]]], Any]]:
    """Everything that runs the model, as functions of shapes."""
    program = opsetta.export(
        case.model, tuple(tensors(case.example)), dynamic_shapes=case.dynamic_shapes, opset=18, narrow=True
    )
    program.save(folder / "model.onnx")
    program.save_source(folder / "source.onnx")
    program.save(folder / "packed", prepack=True)
    loaded = opsetta.load(folder / "model.onnx")
    converted = loaded.lower(11)
    opsetta.save_streaming(converted, folder / "streamed")
    converted.save(folder / "converted.onnx")
    again = opsetta.load(folder / "converted.onnx")
    source = opsetta.load(folder / "source.onnx").lower(9)
    streamed = opsetta.StreamingSession(folder / "streamed")
    packed = opsetta.load_session(folder / "packed", memory="low")
    names = program.input_names

    def by_name(shapes: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
        return dict(zip(names, arrays(shapes), strict=True))

    return {
        "program": lambda shapes: program(*tensors(shapes)),
        "verify": lambda shapes: program.verify(tuple(tensors(shapes))),
        "locate_mismatch": lambda shapes: program.locate_mismatch(tuple(tensors(shapes))),
        "source file": lambda shapes: source(*tensors(shapes)),
        "OnnxModel": lambda shapes: loaded(*tensors(shapes)),
        "OnnxModel.run": lambda shapes: loaded.run(by_name(shapes)),
        "OnnxModel.lower": lambda shapes: converted(**by_name(shapes)),
        "OnnxModel.verify": lambda shapes: converted.verify(tuple(arrays(shapes))),
        "converted and saved": lambda shapes: again(*arrays(shapes)),
        "run_streaming": lambda shapes: opsetta.run_streaming(program, *arrays(shapes)),
        "streaming folder": lambda shapes: streamed.run(by_name(shapes)),
        "prepacked folder": lambda shapes: packed.run(None, by_name(shapes)),
        "verify_file": lambda shapes: verify_file(
            folder / "converted.onnx", case.model, tuple(tensors(shapes)), {}
        ),
    }


@pytest.mark.filterwarnings("ignore:the export is valid for")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_door_refuses_the_sizes_that_a_model_is_not_valid_for(
    case: Case, tmp_path: pathlib.Path
) -> None:
    for run in doors(case, tmp_path).values():
        run(case.valid)
        with pytest.raises(opsetta.DimensionError, match=case.message):
            run(case.invalid)


@pytest.mark.filterwarnings("ignore:the export is valid for")
def test_plans_and_comparisons_check_sizes(tmp_path: pathlib.Path) -> None:
    program = opsetta.export(many, torch.rand(2, 5), dynamic_shapes=({1: "n"},), narrow=True)
    with pytest.raises(opsetta.DimensionError, match="n >= 4"):
        program.plan(dimensions={"n": 3})
    with pytest.raises(opsetta.DimensionError, match=r"the shape \[2, 4\]"):
        opsetta.run_in_arena(program.plan(dimensions={"n": 4}), {"x": np.ones((2, 3), np.float32)})
    program.save(tmp_path / "model.onnx")
    compared = compare_files(tmp_path / "model.onnx", tmp_path / "model.onnx", runs=0)
    assert compared.outputs[0].absolute == 0.0
    with pytest.raises(opsetta.DimensionError, match="n >= 4"):
        compare_files(tmp_path / "model.onnx", tmp_path / "model.onnx", runs=0, dimensions={"n": 3})


@pytest.mark.filterwarnings("ignore:the export is valid for")
def test_training_checks_sizes(tmp_path: pathlib.Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(few(x))

    def loss(result: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (result - targets).square().mean()

    model = Model()
    program = opsetta.export_training(
        model,
        torch.rand(4, 2),
        targets=torch.rand(4, 1),
        loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dynamic_shapes={"x": {0: "n"}, "targets": {0: "n"}},
        narrow=True,
    )
    program.save(tmp_path / "train.onnx")
    opsetta.load(tmp_path / "train.onnx").lower(14).save(tmp_path / "converted.onnx")
    sessions = [opsetta.TrainingSession(program)]
    for name in ("train.onnx", "converted.onnx"):
        sessions.append(opsetta.TrainingSession(tmp_path / name, program.state))
    doors = [session.step for session in sessions]
    doors += [lambda x, t: program(x, targets=t), lambda x, t: program.verify((x,), {"targets": t})]
    for step in doors:
        step(torch.rand(5, 2), torch.rand(5, 1))
        with pytest.raises(opsetta.DimensionError, match="n <= 6"):
            step(torch.rand(7, 2), torch.rand(7, 1))
        with pytest.raises(opsetta.DimensionError, match="the same for both"):
            step(torch.rand(5, 2), torch.rand(1, 1))
        with pytest.raises(opsetta.DimensionError, match=r"the shape \[n, 2\]"):
            step(torch.rand(5, 3), torch.rand(5, 1))


INPUTS = ModelInputs(
    [
        DeclaredInput("x", ir.DataType.FLOAT, ("n", 2)),
        DeclaredInput("count", ir.DataType.INT64, ()),
        DeclaredInput("scale", ir.DataType.FLOAT, (1,), is_optional=True),
    ],
    {},
)
X = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": X}, "'count' is missing"),
        ({"x": X, "count": 1, "other": X}, "there is no input 'other'"),
        ({"x": X.astype(np.float64), "count": 1}, "'x' must have elements of float32, not float64"),
        (
            {"x": torch.ones(3, 2, dtype=torch.int32), "count": 1},
            "'x' must have elements of float32, not int32",
        ),
        ({"x": X, "count": 1.5}, "'count' must have elements of int64, not float64"),
        ({"x": X, "count": None}, "'count'"),
        ({"x": X, "count": "one"}, "'count'"),
        ({"x": X, "count": 1 << 70}, "'count'"),
        ({"x": [[1.0, 2.0], [3.0]], "count": 1}, "'x' cannot be made an array of float32"),
        ({"x": [["a", "b"]], "count": 1}, "'x'"),
        ({"x": torch.eye(2).to_sparse(), "count": 1}, "'x' is sparse"),
        ({"x": torch.ones(3, 2, device="meta"), "count": 1}, "'x' has no data"),
        ([X, 1], "a mapping from names"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(values: Any, message: str) -> None:
    with pytest.raises(opsetta.UsageError, match=message) as caught:
        INPUTS.feed(values)
    assert len(str(caught.value)) < 250


def test_arguments_are_converted() -> None:
    for x in (X, X.tolist(), torch.from_numpy(X), onnxruntime.OrtValue.ortvalue_from_numpy(X), [[1, 1]] * 3):
        for count in (3, np.int64(3), torch.tensor(3), np.array(3), True):
            feed = INPUTS.feed({"x": x, "count": count})
            np.testing.assert_array_equal(feed["x"].numpy(), X)
            assert feed["count"].data_type() == "tensor(int64)"
    assert INPUTS.feed(INPUTS.bind((X, 1), {"scale": [2]}))["scale"].numpy().tolist() == [2.0]
    assert INPUTS.feed({"x": np.zeros((0, 2), np.float32), "count": 1})["x"].shape() == [0, 2]


def test_positions_and_names_are_bound() -> None:
    assert INPUTS.bind((X,), {"count": 1}) == {"x": X, "count": 1}
    for args, kwargs, message in (
        ((X, 1, 2), {}, "3 arguments are passed"),
        ((X, 1), {"x": X}, "'x' is passed twice"),
        ((), {}, "'x' is missing; 'count' is missing"),
    ):
        with pytest.raises(opsetta.UsageError, match=message):
            INPUTS.bind(args, kwargs)


def test_names_of_dimensions_mean_nothing_in_files_of_other_programs(tmp_path: pathlib.Path) -> None:
    """As in files of optimum, whose mask is declared `past + 1` long and takes any length."""
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, ["past"]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, ["past + 1"]),
        helper.make_tensor_value_info("c", TensorProto.FLOAT, ["past"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Concat", ["a", "b", "c"], ["y"], axis=0)], "g", inputs, [output]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="another")
    model.ir_version = 8
    onnx.save(model, tmp_path / "model.onnx")
    a, b, c = (np.ones(size, np.float32) for size in (2, 5, 1))
    for loaded in (opsetta.load(tmp_path / "model.onnx"), opsetta.load(tmp_path / "model.onnx").lower(11)):
        assert loaded(a, b, c).shape == (8,)
        with pytest.raises(opsetta.DimensionError, match=r"'a' must have the shape \[past\], not \[1, 1\]"):
            loaded(np.ones((1, 1), np.float32), b, c)


def test_element_types_that_numpy_lacks(tmp_path: pathlib.Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["n", 3])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "model.onnx")
    loaded = opsetta.load(tmp_path / "model.onnx")
    array = np.arange(6).reshape(2, 3).astype(ir.DataType.BFLOAT16.numpy())
    for value in (array, array[:0]):
        for result in (loaded(value), opsetta.run_streaming(tmp_path / "model.onnx", value)[0]):
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, value)


CONDITIONS = {
    "n <= 4": lambda n, m: n <= 4,
    "2*n - m >= -3": lambda n, m: 2 * n - m >= -3,
    "n % 2 == 0": lambda n, m: n % 2 == 0,
    "n // m != 1": lambda n, m: m != 0 and n // m != 1,
    "n == m and m < 3": lambda n, m: n == m and m < 3,
    "Max(n, m) <= 4": lambda n, m: max(n, m) <= 4,
    "not n == m": lambda n, m: n != m,
    "n == 1 or m == 1": lambda n, m: 1 in (n, m),
    "n**2 < 10": lambda n, m: n**2 < 10,
    "n / (m + 1) > 1.5": lambda n, m: n / (m + 1) > 1.5,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_check_accepts_the_sizes_that_meet_its_condition(condition: str) -> None:
    metadata = {"opsetta.dimensions": json.dumps([{"condition": condition, "reason": "", "line": ""}])}
    check = SizeCheck([("a", ["n", 2]), ("b", ["m", "n + m"])], metadata)
    for n in range(6):
        for m in range(6):
            for third in (n + m, n + m + 1):
                is_valid = third == n + m and CONDITIONS[condition](n, m)
                with contextlib.nullcontext() if is_valid else pytest.raises(opsetta.DimensionError):
                    check([(n, 2), (m, third)])


def test_random_inputs_have_valid_sizes() -> None:
    def entry(condition: str) -> dict[str, str]:
        return {"condition": condition, "reason": "", "line": ""}

    float32 = ir.DataType.FLOAT
    metadata = {"opsetta.dimensions": json.dumps([entry("n + m == t"), entry("n % 4 == 0"), entry("n >= 1")])}
    declared = [DeclaredInput("a", float32, ("n", "m")), DeclaredInput("b", float32, ("t", "2*n", None))]
    inputs = ModelInputs(declared, metadata)
    values = random_inputs(inputs)
    n, m = values["a"].shape
    assert values["b"].shape == (n + m, 2 * n, 2)
    assert random_inputs(inputs, sizes={"n": 8})["a"].shape[0] == 8
    with pytest.raises(opsetta.DimensionError, match="no sizes were found"):
        random_inputs(inputs, sizes={"n": 3})
