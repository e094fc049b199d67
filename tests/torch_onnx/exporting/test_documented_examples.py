"""The examples of torch.onnx's documentation, tutorials and docstrings, with small models."""

import dataclasses
from collections.abc import Callable
from typing import Any

import onnx
import onnxscript
import pytest
import torch
from onnxscript import opset18 as op
from torch import nn

import opsetta
from opsetta import torch_onnx

from .files import shapes_of

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(2, 3, generator=GENERATOR)
IMAGE = torch.randn(1, 1, 12, 12, generator=GENERATOR)


@dataclasses.dataclass
class Example:
    """A documented export.

    Attributes:
        model: makes the model.
        args: the arguments of the export.
        options: its keywords.
        others: arguments of a further call, to compare with the model; by default those of the export.
        shapes: the inputs and outputs of the file.
    """

    name: str
    model: Callable[[], Any]
    args: tuple
    options: dict
    others: tuple | None = None
    shapes: list | None = None
    opsets: tuple[int, ...] = (12,)


class Simple(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5)

    def forward(self, x):
        return torch.relu(self.conv1(x))


class Alex(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, 2, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(4, 4, 3),
            nn.ReLU(inplace=True),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Linear(8, 5)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class SuperResolution(nn.Module):
    def __init__(self, upscale_factor=3):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 4, 5, padding=2)
        self.conv4 = nn.Conv2d(4, upscale_factor**2, 3, padding=1)
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)

    def forward(self, x):
        return self.pixel_shuffle(self.conv4(self.relu(self.conv1(x))))


class Sum(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc0 = nn.Linear(3, 8)
        self.fc1 = nn.Linear(8, 4)

    def forward(self, tensor_x):
        return torch.sigmoid(self.fc1(torch.sigmoid(self.fc0(tensor_x))))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return torch.cond(self.layer(x).sum() > 0, lambda x: x * 2, lambda x: -x, (x,))


@torch.jit.script
def repeated(x, y):
    for i in range(int(y)):
        x = x + i
    return x


class CallsLoop(nn.Module):
    def forward(self, x, y):
        return repeated(x, y)


class Captioning(nn.Module):
    """An encoder of images, and a decoder that chooses a word after the other."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.embedding = nn.Embedding(10, 4)
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.words = nn.Linear(6, 10)

    def forward(self, image):
        inputs, states, chosen = self.encoder(image).unsqueeze(1), None, []
        for _ in range(3):
            hidden, states = self.lstm(inputs, states)
            word = self.words(hidden.squeeze(1)).argmax(1)
            chosen.append(word)
            inputs = self.embedding(word).unsqueeze(1)
        return torch.stack(chosen, 1)


class Keywords(nn.Module):
    def forward(self, x, y=None, z=None):
        return x * 2 if z is None else x * 2 + z["value"]


@torch.library.custom_op("mylibrary::add_and_round", mutates_args=())
def add_and_round(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x + x)


@add_and_round.register_fake
def _(x):
    return torch.empty_like(x)


class Rounds(nn.Module):
    def forward(self, x):
        return torch.ops.mylibrary.add_and_round(x)


class Adds(nn.Module):
    def forward(self, input_x, input_y):
        return torch.ops.aten.add(input_x, input_y)


microsoft = onnxscript.values.Opset("com.microsoft", 1)


@onnxscript.script(microsoft)
def microsoft_gelu(x, approximate: str = "none"):
    return microsoft.Gelu(x)


class Attends(nn.Module):
    def forward(self, q, k, v):
        return torch.onnx.ops.attention(q, k, v, is_causal=True)[0]


class Rotates(nn.Module):
    def forward(self, x, cos, sin, places):
        return torch.onnx.ops.rotary_embedding(x, cos, sin, places)


QUERY = torch.randn(1, 2, 3, 4, generator=GENERATOR)
ANGLES = torch.randn(5, 2, generator=GENERATOR)

EXAMPLES = [
    Example("simple model", Simple, (IMAGE,), {"input_names": ["input"], "dynamo": True}),
    Example(
        "AlexNet with names of weights",
        Alex,
        (IMAGE,),
        {
            "verbose": True,
            "dynamo": False,
            "input_names": ["actual_input_1", *(f"learned_{i}" for i in range(8))],
            "output_names": ["output1"],
        },
        opsets=(9, 12),
    ),
    Example(
        "super resolution with a dynamic batch",
        SuperResolution,
        (IMAGE,),
        {
            "export_params": True,
            "do_constant_folding": True,
            "dynamo": False,
            "input_names": ["input"],
            "output_names": ["output"],
            "dynamic_axes": {"input": {0: "batch_size"}, "output": {0: "batch_size"}},
        },
        (torch.randn(3, 1, 12, 12, generator=GENERATOR),),
        [("input", ["batch_size", 1, 12, 12]), ("output", ["batch_size", 1, 36, 36])],
        (10, 12),
    ),
    Example(
        "sum with fixed axes",
        Sum,
        (torch.ones(2, 2),),
        {"input_names": ["x"], "output_names": ["sum"]},
        shapes=[("x", [2, 2]), ("sum", [2])],
    ),
    Example(
        "sum with named axes",
        Sum,
        (torch.ones(2, 2),),
        {
            "input_names": ["x"],
            "output_names": ["sum"],
            "dynamic_axes": {"x": {0: "my_custom_axis_name"}, "sum": [0]},
        },
        (torch.ones(5, 2),),
        # The sum has the size of x's first axis, and so its name; torch.onnx writes sum_dynamic_axes_1.
        [("x", ["my_custom_axis_name", 2]), ("sum", ["my_custom_axis_name"])],
    ),
    Example(
        "perceptron with dynamic shapes",
        Perceptron,
        (X,),
        {
            "dynamic_shapes": {"tensor_x": {0: torch.export.Dim("batch_size")}},
            "report": False,
            "verify": True,
        },
        (torch.randn(7, 3, generator=GENERATOR),),
        [("tensor_x", ["batch_size", 3]), ("output", ["batch_size", 4])],
    ),
    Example("control flow with torch.cond", Branch, (X,), {}, (-X,)),
    Example(
        "loop of a script in a traced model",
        CallsLoop,
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor(5)),
        {"dynamo": False},
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor(9)),
        opsets=(9, 13),
    ),
    Example("image captioning", Captioning, (torch.randn(2, 1, 12, 12, generator=GENERATOR),), {}),
    Example("named arguments", Keywords, (X, {"z": {"value": X}}), {}),
    Example("a dict as last argument", Keywords, (X, None, {"value": X}, {}), {}),
    Example(
        "operator replaced by ONNX Script",
        Adds,
        (X, X + 1),
        {
            "custom_translation_table": {
                torch.ops.aten.add.Tensor: lambda self, other, alpha=1: op.Sum(self, other)
            }
        },
    ),
    Example(
        "operator of onnxruntime",
        nn.GELU,
        (X,),
        {"custom_translation_table": {torch.ops.aten.gelu.default: microsoft_gelu}},
    ),
    Example(
        "custom operator",
        Rounds,
        (X,),
        {
            "custom_translation_table": {
                torch.ops.mylibrary.add_and_round.default: lambda input: op.Round(op.Add(input, input))
            }
        },
    ),
    Example("attention of ONNX", Attends, (QUERY, QUERY + 1, QUERY + 2), {}, opsets=(23,)),
    Example(
        "rotary embedding of ONNX",
        Rotates,
        (QUERY, ANGLES, ANGLES, torch.zeros(1, 3, dtype=torch.int64)),
        {},
        opsets=(23,),
    ),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_written_at_its_opsets(example, tmp_path):
    torch.manual_seed(0)
    model = example.model().eval()
    path = tmp_path / "model.onnx"
    for opset in example.opsets:
        result = torch_onnx.export(model, example.args, path, opset_version=opset, **example.options)
        file = onnx.load(path)
        assert {entry.domain: entry.version for entry in file.opset_import}[""] == opset
        args, kwargs = called(example.others or example.args)
        expected = model(*args, **kwargs)
        torch.testing.assert_close(result(*args, **kwargs), (expected.detach(),), rtol=1e-4, atol=1e-5)
        if example.shapes is not None:
            assert shapes_of([*file.graph.input, *file.graph.output]) == example.shapes


def called(args):
    """The arguments of a call; a dict at their end has keywords, as torch.onnx says."""
    return (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})


def test_the_names_of_weights_are_those_given():
    example = EXAMPLES[1]
    result = torch_onnx.export(Alex().eval(), example.args, opset_version=12, **example.options)
    assert set(result.model.graph.initializers) >= {f"learned_{i}" for i in range(8)}


class CustomOperator(nn.Module):
    def forward(self, x):
        value = torch.onnx.ops.symbolic(
            "custom_domain::CustomOp",
            (x + 1, None),
            {"attr_key": "attr_value", "numbers": [1, 2], "factor": 0.5},
            dtype=x.dtype,
            shape=x.shape,
            version=3,
            metadata_props={"made": "here"},
        )
        first, second = torch.onnx.ops.symbolic_multi_out(
            "custom_domain::Both",
            (value,),
            {},
            dtypes=(x.dtype, torch.int64),
            shapes=(x.shape, [1, 2]),
            version=3,
        )
        return torch.relu(first) + second.sum()


def test_operators_of_any_domain():
    result = torch_onnx.export(CustomOperator().eval(), (X,), opset_version=12)
    [custom, both] = [node for node in result.model.graph if node.domain == "custom_domain"]
    assert (custom.op_type, both.op_type, len(both.outputs)) == ("CustomOp", "Both", 2)
    assert [custom.attributes[name].value for name in ("attr_key", "numbers", "factor")] == [
        "attr_value",
        (1, 2),
        0.5,
    ]
    assert result.model.opset_imports == {"": 12, "custom_domain": 3}
    assert custom.metadata_props["made"] == "here"
    assert both.outputs[1].dtype == onnx.TensorProto.INT64


def test_axes_are_renamed_and_values_computed():
    dynamic = torch.export.Dim.DYNAMIC
    result = torch_onnx.export(Perceptron().eval(), (X,), dynamic_shapes=({0: dynamic},))
    size = result.model.graph.inputs[0].shape[0]
    result.rename_axes({size: "batch"})
    assert result.model.graph.outputs[0].shape[0].value == "batch"
    [sigmoid] = [node for node in result.model.graph if node.op_type == "Sigmoid"][:1]
    [value] = result.compute_values([sigmoid.outputs[0].name], (X,))
    torch.testing.assert_close(value, torch.sigmoid(result.program._calls.module().fc0(X)).detach())
    [from_reference] = result.call_reference(X)
    torch.testing.assert_close(from_reference, result(X)[0])


def test_weights_are_applied():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    result = torch_onnx.export(model, (IMAGE,), opset_version=12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25)
    with pytest.warns(torch.onnx.errors.OnnxExporterWarning, match="no weight 'other'"):
        result.apply_weights({**{k: v.clone() for k, v in model.named_parameters()}, "other": X})
    torch.testing.assert_close(result(IMAGE)[0], model(IMAGE).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(opsetta.UsageError, match="the weight '0.bias' is FLOAT of shape"):
        result.apply_weights({"0.bias": torch.zeros(3)})
    sessions = []
    result.initialize_inference_session(lambda model: sessions.append(type(model)))
    assert sessions == [bytes]


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope=0.1):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, x * slope)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None

    @staticmethod
    def symbolic(g, x, slope=0.1):
        return g.op("LeakyRelu", x, alpha_f=slope)


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, x + y

    @staticmethod
    def symbolic(g, x, y):
        return g.op("Identity", x), g.op("custom::Sum", x, y)


class WithFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return Leaky.apply(self.layer(x), 0.3) * 2


def test_static_symbolic_methods_are_called_in_a_trace():
    model = WithFunctions().eval()
    result = torch_onnx.export(model, (X,), opset_version=9, dynamo=False, verify=True)
    assert [node.op_type for node in result.model.graph] == ["Gemm", "LeakyRelu", "Mul"]
    lowered = result.program.lower(16).model.graph
    assert [node.op_type for node in lowered] == ["Gemm", "LeakyRelu", "Mul"]
    plain = torch_onnx.export(model, (X,), opset_version=9)
    assert "Where" in {node.op_type for node in plain.model.graph}
    model(X).sum().backward()
    assert model.layer.weight.grad is not None


def test_a_static_symbolic_method_may_have_several_results():
    def difference(x, y):
        first, second = Pair.apply(x, y)
        return first - second

    result = torch_onnx.export(difference, (X, X), opset_version=9, dynamo=False)
    assert [(node.domain, node.op_type) for node in result.model.graph] == [("custom", "Sum"), ("", "Sub")]
    assert torch.autograd.Function.apply.__func__.__module__ == "torch.autograd.function"
