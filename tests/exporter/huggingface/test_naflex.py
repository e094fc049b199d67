"""Images as padded rows of patches, with positions that are resized to each image."""

import pathlib

import torch
import transformers

from opsetta.exporter.huggingface.graphs import TaskModel
from opsetta.exporter.huggingface.images import naflex
from opsetta.exporter.huggingface.images.resized_positions import resize_table

from .test_image_text import TEXT, VISION


def test_positions_are_resized_with_antialiasing_as_torch_does():
    table = torch.randn(5, 6, 3)
    for height, width in ((2, 9), (5, 3), (1, 6)):
        index = torch.arange(height * width)
        sizes = torch.tensor([[height, width]]).expand(len(index), -1)
        result = resize_table(table, index // width, sizes[:, 0], index % width, sizes[:, 1])
        expected = torch.nn.functional.interpolate(
            table.permute(2, 0, 1)[None], size=(height, width), mode="bilinear", antialias=True
        )
        torch.testing.assert_close(result, expected[0].flatten(1).T)


def test_features_of_padded_patches_are_those_of_transformers():
    config = transformers.Lfm2VlConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config={**VISION, "model_type": "siglip2_vision_model", "num_patches": 9},
        projector_hidden_size=16,
    )
    model = transformers.Lfm2VlForConditionalGeneration(config).eval()
    call = naflex.encode_call(TaskModel(model, config, pathlib.Path()))
    shapes = torch.tensor([[2, 8], [6, 4]])
    mask = (torch.arange(25) < shapes.prod(1, keepdim=True)).long()
    inputs = {"pixel_values": torch.randn(2, 25, 192), naflex.PATCH_MASK: mask, naflex.SHAPES: shapes}
    with torch.no_grad():
        result = call.call(model, inputs, [])
        expected = torch.cat(model.get_image_features(**inputs).pooler_output)
    torch.testing.assert_close(result, expected)
    assert call.inputs[naflex.SHAPES].shape == (3, 2)
