"""Exporters of other projects at opset 12, through `replaced`."""

import io
import warnings

import onnx
import pytest
import torch
from torch import nn

from opsetta import torch_onnx

from .files import check, shapes_of

pytestmark = pytest.mark.filterwarnings("ignore")
IMAGE = torch.rand(1, 3, 20, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def to_opsetta():
    with warnings.catch_warnings(), torch_onnx.replaced():
        yield


def test_lightning(tmp_path):
    import pytorch_lightning as lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 4)
            self.example_input_array = torch.randn(2, 12)

        def forward(self, x):
            return torch.relu(self.layer(x.view(x.size(0), -1)))

    model = Classifier()
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    names = {"input_names": ["x"], "output_names": ["y"]}
    path = tmp_path / "model.onnx"
    result = model.to_onnx(path, opset_version=12, dynamic_axes=axes, **names)
    file = check(path, model, torch.randn(5, 12))
    assert shapes_of(file.graph.output) == [("y", ["batch", 4])]
    assert isinstance(result, torch.onnx.ONNXProgram)
    assert model.training
    buffer = io.BytesIO()
    model.to_onnx(buffer, torch.randn(1, 12), opset_version=12, export_params=True, dynamo=False)
    assert onnx.load_from_string(buffer.getvalue()).opset_import[0].version == 12


def test_kornia(tmp_path):
    import kornia

    pipeline = kornia.core.ImageSequential(
        kornia.color.RgbToGrayscale(),
        kornia.filters.GaussianBlur2d((3, 3), (1.0, 1.0)),
        kornia.filters.Sobel(),
    )
    path = str(tmp_path / "model.onnx")
    pipeline.to_onnx(path, opset_version=12)
    file = check(path, pipeline, IMAGE)
    assert shapes_of(file.graph.input) == [("input", ["dim_0", 3, "dim_2", "dim_3"])]


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"dynamo": False}, marks=pytest.mark.sweep),
        pytest.param({"use_trace": False}, marks=pytest.mark.sweep),
    ],
)
def test_monai(options, tmp_path):
    from monai.networks.utils import convert_to_onnx

    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4), nn.PReLU(), nn.Flatten(2)
    ).eval()
    path = str(tmp_path / "model.onnx")
    convert_to_onnx(
        model,
        (IMAGE,),
        input_names=["image"],
        output_names=["features"],
        opset_version=12,
        dynamic_axes={"image": {0: "batch", 2: "height"}, "features": {0: "batch", 2: "pixels"}},
        filename=path,
        verify=True,
        use_ort=True,
        rtol=1e-3,
        atol=1e-4,
        device="cpu",
        **options,
    )
    file = check(path, model, torch.rand(2, 3, 16, 24))
    assert shapes_of(file.graph.output) == [("features", ["batch", 4, "pixels"])]


@pytest.mark.sweep
def test_transformers():
    from transformers import BertConfig, BertModel
    from transformers.exporters import exporter_onnx as exporter

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=50, **sizes)).eval()
    inputs = {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    configuration = exporter.OnnxConfig(dynamic=False, opset_version=12)
    exported = exporter.OnnxExporter().export(model, inputs, config=configuration)
    assert exported.program.opset_imports == {"": 12}
    found = exported(**inputs)["last_hidden_state"]
    torch.testing.assert_close(
        torch.as_tensor(found), model(**inputs).last_hidden_state, rtol=1e-4, atol=1e-5
    )


def test_contrib_operators_of_onnxruntime(tmp_path):
    from onnxruntime.tools import pytorch_export_contrib_ops as contrib

    contrib.register()
    try:
        torch.onnx.export(
            nn.GELU(), (IMAGE,), tmp_path / "m.onnx", opset_version=12, custom_opsets={"com.microsoft": 1}
        )
    finally:
        contrib.unregister()
    file = check(tmp_path / "m.onnx", nn.GELU(), IMAGE)
    assert [(node.domain, node.op_type) for node in file.graph.node] == [("com.microsoft", "Gelu")]
