"""The face: what export takes, names, structures, and that everything of the user's stays as it was."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.export import Dim

import opsetta
from opsetta.registration.opsets import OPSET_RANGE
from tests.opsets import OPSETS


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: tuple


def graph_inputs(program: opsetta.Program) -> list[tuple[str, list]]:
    found = []
    for value in program.model_proto.graph.input:
        dims = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        found.append((value.name, dims))
    return found


def test_example_of_the_readme_works() -> None:
    model = TwoLayers().eval()
    x = torch.randn(2, 4)
    program = opsetta.export(
        model,
        (x,),
        opset=12,
        dynamic_shapes={"x": {0: Dim("batch")}},
        input_names=["image"],
        output_names=["logits"],
    )
    assert program.model.opset_imports == {"": 12}
    assert graph_inputs(program) == [("image", ["batch", 4])]
    assert program.output_names == ["logits"]
    assert program.verify((x,)).max_absolute_error < 1e-5
    torch.testing.assert_close(program(torch.ones(5, 4)), model(torch.ones(5, 4)))
    older = program.lower(opset=9)
    assert older.model.opset_imports == {"": 9}
    older.verify((torch.randn(7, 4),))


def test_default_opset_is_17() -> None:
    assert opsetta.DEFAULT_OPSET == 17
    assert opsetta.export(TwoLayers().eval(), torch.ones(1, 4)).opset == 17


@pytest.mark.parametrize("opset", OPSETS)
def test_file_declares_exactly_the_opset(opset: int, tmp_path: Any) -> None:
    path = tmp_path / "model.onnx"
    opsetta.export(TwoLayers().eval(), torch.ones(1, 4), opset=opset).save(path)
    model = onnx.load(path)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
    onnx.checker.check_model(model, full_check=True)


def test_names_default_to_parameters_and_places_in_the_result() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> Any:
        return {"sum": x + y, "parts": [x * 2, Pair(x - y, y)]}

    program = opsetta.export(forward, (torch.ones(2), torch.ones(2)))
    assert program.input_names == ["x", "y"]
    assert program.output_names == ["sum", "parts_0", "parts_1_left", "parts_1_right"]


def test_lone_output_is_called_output() -> None:
    assert opsetta.export(TwoLayers().eval(), torch.ones(1, 4)).output_names == ["output"]


def test_output_that_is_an_input_keeps_both_names() -> None:
    program = opsetta.export(lambda x: (x, x, x + 1), torch.ones(2))
    assert program.input_names == ["x"]
    assert len(set(program.output_names)) == 3
    onnx.checker.check_model(program.model_proto, full_check=True)
    program.verify()


def test_result_has_the_structure_of_the_models() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, scale: float = 2.0, extra: Any = None) -> Result:
            return Result(x * scale, (x, None, 7, x.shape[0]))

    program = opsetta.export(
        Model(), torch.ones(2, 3), {"scale": 3.0}, dynamic_shapes={"x": {0: "n"}, "scale": None}
    )
    result = program(torch.ones(5, 3), scale=3.0)
    assert isinstance(result, Result)
    torch.testing.assert_close(result.logits, torch.full((5, 3), 3.0))
    assert result.hidden[1:] == (None, 7, 5)
    program.verify((torch.ones(4, 3),), {"scale": 3.0})


def test_keywords_may_come_in_any_order_and_by_position() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x + 2 * y + 3 * z

    x, y, z = torch.ones(1), torch.ones(1) * 2, torch.ones(1) * 3
    program = opsetta.export(forward, (x,), {"y": y, "z": z})
    expected = forward(x, y, z)
    assert program(x, z=z, y=y) == expected
    assert program(x, y, z) == expected
    assert program(z=z, x=x, y=y) == expected


def test_call_with_another_structure_is_refused_by_name() -> None:
    program = opsetta.export(lambda x, y: x + y, (torch.ones(1), torch.ones(1)))
    with pytest.raises(opsetta.UsageError, match="'y' is missing"):
        program(torch.ones(1))


def test_initializers_keep_their_state_dict_names_and_tied_weights_are_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("shift", torch.ones(4), persistent=False)

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(i) + self.shift)

    program = opsetta.export(Tied().eval(), torch.tensor([1, 2]))
    names = set(program.model.graph.initializers)
    assert {"embed.weight", "shift"} <= names
    assert "head.weight" not in names
    program.verify()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_keep_their_element_type(dtype: torch.dtype) -> None:
    model = TwoLayers().to(dtype).eval()
    program = opsetta.export(model, torch.randn(2, 4, dtype=dtype), opset=18)
    proto = program.model_proto
    weights = {w.name: w.data_type for w in proto.graph.initializer}
    wanted = {torch.float16: 10, torch.bfloat16: 16, torch.float64: 11}[dtype]
    assert weights["first.weight"] == wanted
    if dtype != torch.bfloat16:  # onnxruntime has no bfloat16 Gemm on CPU.
        program.verify()


def test_weights_are_not_copied() -> None:
    model = TwoLayers().eval()
    program = opsetta.export(model, torch.ones(1, 4))
    tensor = program.model.graph.initializers["first.weight"].const_value
    assert tensor.raw.data_ptr() == model.first.weight.data_ptr()


def test_exported_program_is_taken_as_it_is() -> None:
    model = TwoLayers().eval()
    exported = torch.export.export(model, (torch.ones(2, 4),), dynamic_shapes={"x": {0: Dim("n")}})
    program = opsetta.export(exported, opset=11)
    program.verify()
    program.verify((torch.randn(3, 4),))


def test_functionalised_program_is_refused_with_the_remedy() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    with torch.no_grad():
        exported = torch.export.export(Writes(), (torch.ones(1),)).run_decompositions()
    with pytest.raises(opsetta.CaptureError, match="run_decompositions"):
        opsetta.export(exported)


@pytest.mark.parametrize("training", [False, True])
def test_model_and_arguments_stay_as_they_were(training: bool) -> None:
    model = nn.Sequential(TwoLayers(), nn.Dropout(0.0)).train(training)
    x = torch.randn(2, 4, requires_grad=True)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    before = x.detach().clone()
    hooks = len(model._forward_hooks)
    opsetta.export(model, (x,)).verify()
    with pytest.raises(opsetta.UnsupportedOperatorsError):
        opsetta.export(nn.Sequential(model, Unknown()), (x,))
    assert model.training is training
    assert len(model._forward_hooks) == hooks
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert x.requires_grad
    torch.testing.assert_close(x.detach(), before)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, state[name])


@torch.library.custom_op("mystery::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


unknown.register_fake(torch.empty_like)


@torch.library.custom_op("mystery::nested", mutates_args=())
def nested(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return x.cos(), [x.sin(), x.exp()]


@nested.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.empty_like(x), [torch.empty_like(x), torch.empty_like(x)]


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mystery.unknown(x)


def test_progress_names_the_stages() -> None:
    stages: list[str] = []
    opsetta.export(TwoLayers().eval(), torch.ones(1, 4), progress=stages.append)
    assert stages == ["loading", "capturing", "source passes", "lowering"]


def test_source_lines_on_request() -> None:
    program = opsetta.export(TwoLayers().eval(), torch.ones(1, 4), source_lines=True)
    lines = [node.metadata_props.get("opsetta.line", "") for node in program.model.graph]
    assert any(line.partition(":")[0].endswith("test_export.py") or "linear.py" in line for line in lines)


def test_nodes_carry_the_module_path() -> None:
    program = opsetta.export(TwoLayers().eval(), torch.ones(1, 4))
    paths = {node.metadata_props["opsetta.module"] for node in program.model.graph if node.op_type == "Gemm"}
    assert paths == {"first", "second"}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"opset": 6}, opsetta.OpsetError, OPSET_RANGE),
        ({"opset": onnx.defs.onnx_opset_version() + 1}, opsetta.OpsetError, OPSET_RANGE),
        ({"opset": "12"}, opsetta.OpsetError, "int"),
        ({"opset": True}, opsetta.OpsetError, "int"),
        ({"input_names": ["a", "b"]}, opsetta.OpsettaError, "input_names"),
        ({"input_names": "x"}, opsetta.OpsettaError, "input_names"),
        ({"output_names": ["x"]}, opsetta.OpsettaError, "output_names"),
        ({"mutations": "maybe"}, opsetta.OpsettaError, "mutations"),
        ({"dynamic_shapes": {"y": {0: "n"}}}, opsetta.CaptureError, "'y'"),
        ({"dynamic_shapes": {"x": {5: "n"}}}, opsetta.CaptureError, "axis 5"),
        ({"dynamic_shapes": {"x": {0: 1.5}}}, opsetta.CaptureError, "1.5"),
        ({"dynamic_shapes": {"x": {0: "n"}}, "dynamic_axes": {"x": [0]}}, opsetta.CaptureError, "not both"),
        ({"kwargs": {"y": 1}}, opsetta.CaptureError, "forward"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: dict, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        opsetta.export(TwoLayers().eval(), (torch.ones(1, 4),), **arguments)


def test_model_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match="not int"):
        opsetta.export(3, torch.ones(1))


def test_parameter_on_the_meta_device_is_refused_by_name() -> None:
    with torch.device("meta"):
        model = TwoLayers().eval()
    with pytest.raises(opsetta.CaptureError, match="meta"):
        opsetta.export(model, torch.ones(1, 4, device="meta"))


def test_numpy_free_values_come_back_as_torch() -> None:
    program = opsetta.export(lambda x: (x > 0, x.to(torch.int32)), torch.randn(3))
    flags, numbers = program(torch.tensor([-1.0, 0.0, 2.5]))
    assert flags.dtype == torch.bool
    assert flags.tolist() == [False, False, True]
    assert numbers.dtype == torch.int32
    assert np.array_equal(numbers.numpy(), [-1, 0, 2])


def test_builtin_function_is_taken() -> None:
    opsetta.export(torch.relu, torch.randn(3)).verify()


def test_function_may_return_a_dataclass() -> None:
    result = opsetta.export(lambda x: Result(x + 1, (x,)), torch.ones(2))(torch.ones(2))
    assert isinstance(result, Result)


def test_torchscript_is_taken() -> None:
    opsetta.export(torch.jit.trace(nn.ReLU().eval(), torch.ones(2)), torch.ones(2)).verify()
    opsetta.export(torch.jit.script(nn.ReLU().eval()), torch.ones(2)).verify()


def test_nested_results_of_an_operator_are_refused_by_name() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        first, rest = torch.ops.mystery.nested(x)
        return first + rest[0] + rest[1]

    with pytest.raises(opsetta.UnsupportedOperatorsError, match="mystery::nested"):
        opsetta.export(forward, torch.randn(5, 2))
    opsetta.export(lambda x: torch.histogramdd(x, [3, 3]), torch.randn(5, 2)).verify()


def test_wrappers_without_meaning_in_inference_are_opened() -> None:
    linear = nn.Linear(3, 3).eval()

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = linear(x)
        with torch.autocast("cpu", enabled=False):
            return y + 1

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x)

    program = opsetta.export(Model().eval(), torch.ones(2, 3), optimize="basic")
    assert [node.op_type for node in program.model.graph] == ["Gemm", "Add"]
    program.verify()


def test_model_without_a_tensor_in_its_result_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match="no tensor"):
        opsetta.export(lambda x: (5, None), torch.ones(2))


INVALID = [
    (nn.Linear(4, 2).eval(), (torch.ones(1, 4, dtype=torch.int64),), "same dtype.*Long and Float"),
    (torch.matmul, (torch.ones(2, 2), torch.ones(2, 2).half()), "same dtype"),
    (nn.BatchNorm1d(3).eval(), (torch.ones(2, 3, dtype=torch.int64),), "not implemented for 'Long'"),
    (lambda x: x.softmax(5), (torch.ones(2, 3),), "Dimension out of range"),
]


@pytest.mark.parametrize(("model", "args", "message"), INVALID)
def test_a_model_that_pytorch_refuses_is_told_in_its_words(model, args, message) -> None:
    with pytest.raises(opsetta.CaptureError, match=f"(?s)fails in PyTorch itself.*{message}.*pass example"):
        opsetta.export(model, args, opset=13)
