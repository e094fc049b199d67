"""Decoding of encoded images: ImageDecoder, from opset 20 on."""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from .....registration.warning import warn
from ..._common import set_shape

_FORMATS = {1: "Grayscale", 3: "RGB"}
"""The pixel formats of ImageDecoder by the number of channels."""


def _decode(g: GraphContext, contents: Value, channels: int, dtype: DataType = DataType.UINT8) -> Value:
    if channels not in _FORMATS:
        raise g.refuse(
            "ImageDecoder returns 1 or 3 channels, and only some files have these: "
            f"state channels=1 or channels=3 in the graph, not {channels}"
        )
    if dtype != DataType.UINT8:
        raise g.refuse(f"ImageDecoder returns UINT8, not {dtype.name}")
    if g.dtype(contents) != DataType.UINT8:
        raise g.refuse(
            "ImageDecoder reads a vector of bytes, which ONNX cannot make from a string: decode the images "
            "before the model, and name the results as inputs"
        )
    pixels = g.op("ImageDecoder", contents, pixel_format=_FORMATS[channels])
    return set_shape(pixels, [None, None, channels])


@onnx_symbolic("tf::DecodePng")
def decode_png(
    g: GraphContext, contents: Value, channels: int = 0, dtype: DataType = DataType.UINT8
) -> Value:
    return _decode(g, contents, channels, dtype)


@onnx_symbolic("tf::DecodeBmp")
def decode_bmp(g: GraphContext, contents: Value, channels: int = 0) -> Value:
    return _decode(g, contents, channels)


@onnx_symbolic("tf::DecodeJpeg")
def decode_jpeg(
    g: GraphContext,
    contents: Value,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1.0,
    dct_method: str = "",
) -> Value:
    """Runtimes may use another decoder of JPEG, whose pixels differ by a few levels."""
    if ratio != 1:
        raise g.refuse(f"ImageDecoder does not scale images down, here by {ratio}")
    warn(
        "images of JPEG are decoded by the runtime, whose pixels may differ from TensorFlow's by a few levels"
    )
    return _decode(g, contents, channels)


@onnx_symbolic("tf::DecodeImage")
def decode_image(
    g: GraphContext,
    contents: Value,
    channels: int = 0,
    dtype: DataType = DataType.UINT8,
    expand_animations: bool = True,
) -> Value:
    """Images of any format, without animations."""
    if expand_animations:
        raise g.refuse(
            "the rank of the result depends on the file: state expand_animations=False in the graph"
        )
    warn(
        "images are decoded by the runtime, whose pixels of JPEG may differ from TensorFlow's by a few levels"
    )
    return _decode(g, contents, channels, dtype)
