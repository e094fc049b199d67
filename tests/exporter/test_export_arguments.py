"""The arguments of export: torch.onnx's names, wrong types, and calls in torch.onnx's form."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter import export_arguments

X = torch.ones(2, 4)
LINEAR = nn.Linear(4, 3).eval()


class Optional(nn.Module):
    def forward(self, x: torch.Tensor, y: Any = None, *, z: Any = None) -> torch.Tensor:
        return x + (0 if y is None else 2 * y) + (0 if z is None else 3 * z)


class Nested(nn.Module):
    def forward(self, x: torch.Tensor, d: dict[str, torch.Tensor]) -> torch.Tensor:
        return x + d["a"]


class Keywords(nn.Module):
    def forward(self, x: torch.Tensor, **rest: torch.Tensor) -> torch.Tensor:
        return x + rest["a"]


class Scripted(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - y


@pytest.mark.parametrize(
    ("model", "args", "names", "same"),
    [
        (Optional(), (X, {"y": X}), ["x", "y"], (X, X)),
        (Optional(), (X, {"z": X}), ["x", "z"], None),
        (Optional(), (X, X, {"z": X}), ["x", "y", "z"], None),
        (Optional(), (X, {}), ["x"], (X,)),
        (Nested(), (X, {"a": X}), ["x", "d_a"], (X, {"a": X})),
        (Nested(), (X, {"a": X}, {}), ["x", "d_a"], (X, {"a": X})),
        (Nested(), (X, {"d": {"a": X}}), ["x", "d_a"], (X, {"a": X})),
        (Keywords(), (X, {"a": X}), ["x", "a"], None),
        (torch.jit.script(Scripted()), (X, {"y": X}), ["x", "y"], (X, X)),
        (lambda d: d["a"] + 1, ({"a": X},), ["d_a"], ({"a": X},)),
        (lambda a: a + 1, ({"a": X},), ["a"], (X,)),
    ],
)
def test_a_dict_at_the_end_of_the_arguments_holds_keywords(model, args, names, same):
    program = opsetta.export(model.eval() if isinstance(model, nn.Module) else model, args)
    assert program.input_names == names
    program.verify()
    if same is not None:
        program(*same)


def test_every_keyword_of_torch_onnx_is_known_or_explained():
    known = set(inspect.signature(opsetta.export).parameters)
    for name in inspect.signature(torch.onnx.export).parameters:
        assert name in known or name in export_arguments._OTHERWISE, name
    assert not known & set(export_arguments._OTHERWISE)


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"f": "model.onnx"}, r"no argument 'f' \(export returns a program.*save\(path\)"),
        ({"opset_version": 12}, r"'opset_version' \(it is called opset here\)"),
        ({"verify": True, "report": True}, r"'verify' \(program.verify\(\).*'report' \("),
        ({"dynamic_shape": {}}, r"'dynamic_shape' \(did you mean 'dynamic_shapes'\?\)"),
        ({"zzz": 1}, "no argument 'zzz'$"),
    ],
)
def test_other_keywords_are_a_type_error_that_says_what_they_are_called(keywords, text):
    with pytest.raises(TypeError, match=text) as caught:
        opsetta.export(LINEAR, (X,), **keywords)
    assert isinstance(caught.value, opsetta.UsageError)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"kwargs": "model.onnx"}, opsetta.UsageError, r"third argument.*not str; .*save\(path\)"),
        ({"kwargs": [1]}, opsetta.UsageError, "third argument, kwargs, must be a dict .*not list$"),
        ({"kwargs": {1: X}}, opsetta.UsageError, "third argument"),
        ({"registry": {}}, opsetta.UsageError, "registry must be an opsetta.Registry.*not dict"),
        ({"progress": 3}, opsetta.UsageError, "progress"),
        ({"dynamic_axes": [0]}, opsetta.CaptureError, "dynamic_axes must be a dict .*not list"),
        ({"input_names": 3}, opsetta.OpsettaError, "input_names must be a list of names"),
        ({"output_names": [""]}, opsetta.OpsettaError, "output_names must be a list of names"),
        ({"output_names": ["a", "a"]}, opsetta.OpsettaError, "output_names: 'a' occurs twice"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused_by_name(arguments, error, text):
    with pytest.raises(error, match=text):
        opsetta.export(LINEAR, (X,), **arguments)


def test_a_registry_of_a_wrong_type_is_refused_when_lowering(tmp_path):
    program = opsetta.export(LINEAR, (X,))
    with pytest.raises(opsetta.UsageError, match="registry"):
        program.lower(9, registry={})
    program.save(tmp_path / "m.onnx")
    with pytest.raises(opsetta.UsageError, match="registry"):
        opsetta.load(tmp_path / "m.onnx").lower(9, registry={})


@pytest.mark.parametrize("path", [3, None, b"m.onnx"])
def test_what_is_no_path_is_not_loaded(path):
    with pytest.raises(opsetta.UsageError, match="load needs a path"):
        opsetta.load(path)


def quantized_modules() -> dict[str, Any]:
    quantization = torch.ao.quantization
    model = nn.Sequential(quantization.QuantStub(), nn.Linear(4, 3), quantization.DeQuantStub()).eval()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    prepared(X)
    static = quantization.convert(prepared)
    dynamic = quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)).eval(), {nn.Linear})
    return {
        "static": static,
        "dynamic": dynamic,
        "scripted": torch.jit.script(static),
        "traced": torch.jit.trace(dynamic, X),
    }


@pytest.mark.filterwarnings("ignore")
def test_modules_of_eager_quantization_are_refused_by_name():
    for model in quantized_modules().values():
        with pytest.raises(opsetta.CaptureError, match=r"'0' is a torch\.ao\.nn\.quantized.*convert_pt2e"):
            opsetta.export(model, (X,))


def test_a_call_with_what_is_no_tensor_is_refused_by_name():
    program = opsetta.export(LINEAR, (X,))
    with pytest.raises(opsetta.OpsettaError, match="input 'input' must be a tensor or a number, not str"):
        program("x")
    with pytest.raises(opsetta.DimensionError, match=r"'input' must have the shape \[2, 4\], not \[2, 5\]"):
        program.verify((torch.ones(2, 5),))


def test_without_onnxruntime_the_message_says_what_to_install(monkeypatch):
    program = opsetta.export(LINEAR, (X,))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for run in (lambda: program(X), program.verify):
        with pytest.raises(opsetta.InferenceError, match=r"pip install 'opsetta\[runtime\]'"):
            run()


def test_weights_without_a_model_are_refused_with_the_remedy():
    with pytest.raises(
        opsetta.CaptureError, match="not OrderedDict: build the model, and load these weights"
    ):
        opsetta.export(LINEAR.state_dict(), (X,))


def test_dynamic_shapes_of_another_number_of_arguments_are_refused():
    with pytest.raises(opsetta.CaptureError, match="dynamic_shapes has 2 entries for input"):
        opsetta.export(LINEAR, (X,), dynamic_shapes=({0: "batch"}, None))


def test_without_torch_the_message_says_what_to_install(tmp_path):
    source = tmp_path / "m.source.onnx"
    opsetta.export(LINEAR, (X,)).save_source(source)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import opsetta\n"
        "program = opsetta.load(sys.argv[1]).lower(9)\n"
        "for call in (lambda: opsetta.export(abs, (1,)), program, program.verify, program.locate_mismatch):\n"
        "    try:\n"
        "        call()\n"
        "    except opsetta.OpsettaError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, source], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.endswith("needs PyTorch: pip install 'opsetta[torch]'") for line in lines)
