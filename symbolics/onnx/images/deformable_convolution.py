"""DeformConv below 19: the composition of torchvision's operator."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic


@onnx_symbolic("onnx::DeformConv")
def deform_conv(
    g: GraphContext,
    X: Value,
    W: Value,
    offset: Value,
    B: Value | None = None,
    mask: Value | None = None,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    """Only of images. The pads at the end change nothing: the offsets' shape is the result's."""
    if g.rank(X) != 4:
        raise g.refuse("only deformable convolutions of images, with rank 4, are composed", first_opset=19)
    if B is None:
        dtype = g.dtype(X) or DataType.FLOAT
        B = g.call("composed::full", size=[g.size(W, 0)], fill_value=0.0, dtype=dtype)
    (stride_h, stride_w), (dilation_h, dilation_w) = strides or (1, 1), dilations or (1, 1)
    pad_h, pad_w = (pads or (0, 0))[:2]
    return g.call(
        "torchvision::deform_conv2d",
        input=X,
        weight=W,
        offset=offset,
        # Without modulation, the operator does not read its mask.
        mask=offset if mask is None else mask,
        bias=B,
        stride_h=stride_h,
        stride_w=stride_w,
        pad_h=pad_h,
        pad_w=pad_w,
        dilation_h=dilation_h,
        dilation_w=dilation_w,
        groups=group,
        offset_groups=offset_group,
        use_mask=mask is not None,
    )
