"""Encoded images: their bytes are inputs, and ImageDecoder reads them."""

from __future__ import annotations

import io
import pathlib
from typing import Any

import numpy as np
import onnx.reference
import PIL.Image
import pytest

import opsetta

from .graphs import Graph

PIXELS = np.random.RandomState(0).randint(0, 256, (5, 4, 3)).astype(np.uint8)


def _graph(tmp_path: pathlib.Path, operator: str, shape: list[int], **attributes: Any) -> pathlib.Path:
    graph = Graph()
    contents = graph.add("Placeholder", "file", dtype="DT_STRING", shape=shape)
    alias = graph.add("Identity", "alias", [contents], T="DT_STRING")
    image = graph.add(operator, "image", [alias], **attributes)
    graph.add("Cast", "scaled", [image], SrcT=attributes.get("dtype", "DT_UINT8"), DstT="DT_FLOAT")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.message.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("operator", "channels", "options"),
    [
        ("DecodePng", 3, {}),
        ("DecodePng", 1, {}),
        ("DecodeBmp", 3, {}),
        ("DecodeImage", 3, {"expand_animations": False}),
    ],
)
def test_the_bytes_of_an_image_are_the_input(
    tmp_path: pathlib.Path, operator: str, channels: int, options: dict[str, bool]
) -> None:
    """PNG and BMP are exact; onnxruntime has no ImageDecoder."""
    file = io.BytesIO()
    pixels = PIXELS if channels == 3 else PIXELS[:, :, :1]
    image = PIL.Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])
    image.save(file, "BMP" if operator == "DecodeBmp" else "PNG")
    path = _graph(tmp_path, operator, [], channels=channels, **options)
    with pytest.warns(UserWarning, match="placeholder 'file' is an encoded image"):
        program = opsetta.load(path).lower(20)
    [value] = program.model.graph.inputs
    assert (value.dtype.name, len(value.shape)) == ("UINT8", 1)
    program.save(tmp_path / "model.onnx")
    session = onnx.reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    [result] = session.run(None, {"file": np.frombuffer(file.getvalue(), np.uint8)})
    np.testing.assert_array_equal(result, pixels.astype(np.float32))


@pytest.mark.parametrize(
    ("operator", "shape", "attributes", "opset", "reason"),
    [
        ("DecodePng", [], {"channels": 3}, 19, "opset 20 is the lowest"),
        ("DecodePng", [-1], {"channels": 3}, 20, "reads a vector of bytes"),
        ("DecodePng", [], {}, 20, "state channels=1 or channels=3"),
        ("DecodePng", [], {"channels": 3, "dtype": "DT_UINT16"}, 20, "returns UINT8, not UINT16"),
        ("DecodeJpeg", [], {"channels": 3, "ratio": 2}, 20, "does not scale images down"),
        ("DecodeImage", [], {"channels": 3}, 20, "expand_animations=False"),
    ],
)
def test_images_that_onnx_cannot_decode_are_refused(
    tmp_path: pathlib.Path,
    operator: str,
    shape: list[int],
    attributes: dict[str, Any],
    opset: int,
    reason: str,
) -> None:
    path = _graph(tmp_path, operator, shape, **attributes)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=reason):
        opsetta.load(path).lower(opset)
