"""Files that check sizes themselves: plain onnxruntime runs the valid ones, and fails at all others."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch.export import Dim

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.captured_graph.dimensions import SizeRestriction, evaluate, write_restrictions
from opsetta.exporter.captured_graph.size_checks import write_size_checks
from opsetta.exporter.export_model import capture_model, lower_capture

from ...opsets import HIGHEST, OPSETS

LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
)
SIZES = [(n, m) for n in (0, 1, 3, 5, 8) for m in (0, 2, 4, 5)]


class File:
    """A file in onnxruntime alone, which does not read opsetta's metadata."""

    def __init__(self, model: Any, level: Any = LEVELS[1]):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 4
        data = model.model_proto.SerializeToString()
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def __call__(self, *tensors: torch.Tensor) -> list[np.ndarray]:
        names = [entry.name for entry in self._session.get_inputs()]
        feeds = dict(zip(names, (tensor.numpy() for tensor in tensors), strict=True))
        results: list[np.ndarray] = self._session.run(None, feeds)
        return results

    def fails(self, *tensors: torch.Tensor) -> str:
        """The message of the failure; empty if it runs."""
        try:
            self(*tensors)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail as failure:
            return str(failure)
        except onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException as failure:
            return str(failure)
        return ""


def limit_rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1) if x.shape[1] <= 64 else x.mean(1)


@pytest.fixture(scope="module")
def limited() -> opsetta.Program:
    with pytest.warns(UserWarning, match="n <= 64"):
        return opsetta.export(
            limit_rows, torch.randn(2, 5), dynamic_shapes={"x": {1: "n"}}, narrow=True, guard=True
        )


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_fails_at_other_sizes(limited: opsetta.Program, opset: int) -> None:
    program = limited.lower(opset)
    for level in LEVELS:
        file = File(program, level)
        for size in (0, 1, 64):
            x = torch.randn(2, size)
            np.testing.assert_allclose(file(x)[0], x.sum(1), rtol=1e-4, atol=1e-4)
        for size in (65, 150):
            assert "the model is valid for n <= 64 (" in file.fails(torch.randn(2, size))


CONDITIONS = [
    "n <= 3",
    "n % 4 == 0",
    "n != 1 or m <= 2",
    "m % n == 0",
    "n == 0 or m % n == 0",
    "m % n == 0 and n > 1",
    "n / m > 1.25",
    "math.ceil(n / 4) == 2",
    "max(n, m, 3) <= 5",
    "2 <= n < m",
    "not n == m",
    "(n if n > m else m) <= 5",
    "(m % n if n else 0) == 0",
    "n ** 2 <= 20",
    "math.sqrt(n * m) <= 3.5",
    "-n // 2 >= -2",
    "int(n * 0.3) == 1",
    "n & 1 == 0",
    "n - m",
    "abs(n - m) <= 2 and round(n / 2) == 1",
    "math.inf > n >= 1",
]


def add_lengths(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() + y.sum()


def checked(conditions: Sequence[str], model: Callable[..., Any] = add_lengths) -> Any:
    """A capture of a model of two lengths with these restrictions as checks."""
    inputs = torch.ones(3), torch.ones(4)
    options = CaptureOptions(dynamic_shapes=({0: "n"}, {0: "m"}))
    capture = capture_model(model, inputs, {}, options)
    restrictions = [SizeRestriction(condition, "a reason") for condition in conditions]
    write_restrictions(capture.source.metadata_props, restrictions)
    write_size_checks(capture.source)
    return capture


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_check_has_the_value_of_its_condition(condition: str) -> None:
    capture = checked([condition])
    for opset in (7, 9, HIGHEST):
        file = File(lower_capture(capture, opset))
        for n, m in SIZES:
            is_valid = bool(evaluate(condition, {"n": n, "m": m}))
            message = file.fails(torch.ones(n), torch.ones(m))
            assert (message == "") is is_valid, (n, m, opset)


def test_each_condition_has_its_message() -> None:
    file = File(lower_capture(checked(["n <= 3", "m >= 2", "n < m"]), 13))
    assert file(torch.ones(3), torch.ones(4))[0] == 7
    assert "valid for n <= 3 (a reason)" in file.fails(torch.ones(4), torch.ones(5))
    assert "valid for m >= 2 (a reason)" in file.fails(torch.ones(0), torch.ones(1))
    assert "valid for n < m (a reason)" in file.fails(torch.ones(2), torch.ones(2))


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("math.sin(n) > 0", r"contains math.sin\(n\)"),
        ("k <= 3", "names 'k'"),
        ("not (n == 1 or m == 2)", "negates a condition of several parts"),
        ("n ** m > 4", "has a power that is not a constant integer"),
        ("n % 0 == 0", "divides by 0"),
        ("n <", "is not an expression"),
        ("~n < 3", "contains ~n"),
        ("n << 2 < 9", "contains n << 2"),
    ],
)
def test_a_condition_that_a_file_cannot_check_is_refused(condition: str, reason: str) -> None:
    with pytest.raises(opsetta.CaptureError, match=f"cannot check .* because it {reason}"):
        checked([condition])


def test_an_input_must_be_read() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.arange(x.shape[0]) + y.shape[0]

    with pytest.raises(opsetta.CaptureError, match="needs an input tensor whose values the model reads"):
        checked(["n <= 3"], model)


def test_an_input_that_is_returned_is_checked() -> None:
    file = File(lower_capture(checked(["n <= 3"], lambda x, y: (x, y.shape[0])), 9))
    np.testing.assert_equal(file(torch.ones(3), torch.ones(2))[0], np.ones(3))
    assert "n <= 3" in file.fails(torch.ones(4), torch.ones(2))


def test_a_model_without_operators_is_checked() -> None:
    file = File(lower_capture(checked(["n <= 3"], lambda x, y: x), 9))
    np.testing.assert_equal(file(torch.ones(3), torch.ones(2))[0], np.ones(3))
    assert "n <= 3" in file.fails(torch.ones(4), torch.ones(2))


class Steps(torch.nn.Module):
    """A body of a loop reads the input that is checked."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(x.shape[0])
        for t in range(x.shape[1]):
            total = total * 0.5 + x[:, t] if x.shape[1] <= 7 else total + x[:, t]
        return total


@pytest.mark.parametrize("request_of_time", [Dim("time", max=7), "1 <= time <= 7"], ids=["Dim", "name"])
def test_a_stated_range_is_checked(request_of_time: Any) -> None:
    program = opsetta.export(
        Steps(), torch.randn(2, 4), opset=13, dynamic_shapes=({1: request_of_time},), guard=True
    )
    file = File(program)
    for time in (1, 7):
        x = torch.randn(2, time)
        np.testing.assert_allclose(file(x)[0], Steps()(x), rtol=1e-5)
    assert "time <= 7" in file.fails(torch.randn(2, 8))
    with pytest.raises(opsetta.DimensionError, match="time <= 7"):
        program(torch.randn(2, 8))
    program.verify()


def test_a_file_of_the_source_graph_keeps_the_checks(
    limited: opsetta.Program, tmp_path: pathlib.Path
) -> None:
    limited.source_model.save_source(tmp_path / "source.onnx")
    loaded = opsetta.load(tmp_path / "source.onnx")
    assert isinstance(loaded, opsetta.SourceModel)
    assert "n <= 64" in File(loaded.lower(11)).fails(torch.randn(2, 65))


def test_a_model_for_all_sizes_has_no_checks() -> None:
    program = opsetta.export(
        lambda x: x.relu(), torch.randn(2, 3), opset=13, dynamic_shapes=({0: "n", 1: "m"},), guard=True
    )
    assert [node.op_type for node in program.model.graph] == ["Relu"]
