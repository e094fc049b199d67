"""Convolutions, and the operators that are fused with them."""

from __future__ import annotations

from ..records import array_of, const, floats, integers, positive, record

LINE = [1, 1, 1, 1]


def _convolutions():
    for padding in ("SAME", "VALID"):
        for stride in (1, 2):
            yield record(
                "Conv2D",
                f"{padding}_{stride}",
                input=floats(2, 7, 8, 3),
                filter=const(floats(3, 4, 3, 5, seed=1)),
                strides=[1, stride, stride, 1],
                padding=padding,
                atol=1e-5,
            )
    conv = {"input": floats(1, 9, 10, 2), "filter": const(floats(3, 2, 2, 4, seed=1)), "atol": 1e-5}
    yield record("Conv2D", "dilated", **conv, strides=LINE, padding="SAME", dilations=[1, 2, 3, 1])
    yield record(
        "Conv2D", "dilated_stride", **conv, strides=[1, 2, 2, 1], padding="SAME", dilations=[1, 2, 2, 1]
    )
    yield record(
        "Conv2D",
        "explicit",
        **conv,
        strides=[1, 2, 1, 1],
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 2, 3, 0, 0, 0],
    )
    yield record("Conv2D", "small_window", **conv, strides=[1, 4, 5, 1], padding="SAME", lowest=11)
    one = {"input": floats(1, 5, 6, 3), "filter": const(floats(1, 1, 3, 2, seed=1)), "atol": 1e-5}
    yield record("Conv2D", "pointwise_stride", **one, strides=[1, 2, 2, 1], padding="SAME")
    yield record(
        "Conv2D",
        "grouped",
        input=floats(1, 5, 5, 4),
        filter=const(floats(3, 3, 2, 6, seed=1)),
        strides=LINE,
        padding="SAME",
        needs_shapes=True,
        atol=1e-5,
    )
    yield record(
        "Conv2D",
        "computed_filter",
        input=floats(1, 5, 5, 2),
        filter=floats(3, 3, 2, 3, seed=1),
        strides=[1, 2, 2, 1],
        padding="SAME",
        atol=1e-5,
    )
    yield record(
        "Conv2D",
        "int32",
        input=integers(1, 6, 5, 2),
        filter=const(integers(3, 3, 2, 3, seed=1)),
        strides=[1, 2, 1, 1],
        padding="SAME",
        needs_shapes=True,
    )
    for padding, stride in (("SAME", 1), ("SAME", 2), ("VALID", 2)):
        yield record(
            "Conv3D",
            f"{padding}_{stride}",
            input=floats(1, 4, 5, 6, 2),
            filter=const(floats(2, 3, 3, 2, 3, seed=1)),
            strides=[1, stride, stride, stride, 1],
            padding=padding,
            atol=1e-5,
        )


def _of_any_rank():
    for name, sizes, kernel in (("images", (2, 7, 8, 2), (3, 3)), ("volumes", (1, 4, 5, 6, 2), (2, 3, 3))):
        yield record(
            "Conv",
            name,
            input=floats(*sizes),
            filter=const(floats(*kernel, 2, 3, seed=1)),
            strides=[1, *[2] * len(kernel), 1],
            padding="SAME",
            atol=1e-5,
        )


def _depthwise():
    for multiplier in (1, 2):
        for padding, stride in (("SAME", 1), ("SAME", 2), ("VALID", 2)):
            yield record(
                "DepthwiseConv2dNative",
                f"{multiplier}_{padding}_{stride}",
                input=floats(1, 7, 8, 3),
                filter=const(floats(3, 3, 3, multiplier, seed=1)),
                strides=[1, stride, stride, 1],
                padding=padding,
                atol=1e-5,
            )
    yield record(
        "DepthwiseConv2dNative",
        "explicit",
        input=floats(1, 7, 8, 3),
        filter=const(floats(3, 3, 3, 1, seed=1)),
        strides=[1, 2, 2, 1],
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 0, 2, 1, 0, 0],
        atol=1e-5,
    )
    yield record(
        "DepthwiseConv2dNativeBackpropInput",
        "same",
        input_sizes=const([1, 7, 8, 3]),
        filter=const(floats(3, 3, 3, 2, seed=1)),
        out_backprop=floats(1, 4, 4, 6),
        strides=[1, 2, 2, 1],
        padding="SAME",
        atol=1e-5,
    )


def _transposed():
    for padding, size, count in (
        ("SAME", 8, 4),
        ("SAME", 7, 4),
        ("VALID", 9, 4),
        ("VALID", 10, 4),
    ):
        filter_ = const(floats(3, 3, 2, 3, seed=1))
        sizes = [2, size, size, 2]
        back = floats(2, count, count, 3)
        given = {"strides": [1, 2, 2, 1], "padding": padding, "atol": 1e-5}
        yield record(
            "Conv2DBackpropInput",
            f"{padding}_{size}",
            input_sizes=const(sizes),
            filter=filter_,
            out_backprop=back,
            **given,
        )
        yield record(
            "Conv2DBackpropInput",
            f"{padding}_{size}_computed",
            input_sizes=array_of(sizes),
            filter=filter_,
            out_backprop=back,
            lowest=9,
            **given,
        )
    yield record(
        "Conv2DBackpropInput",
        "window_of_2_stride_3",
        input_sizes=const([1, 12, 12, 2]),
        filter=const(floats(2, 2, 2, 3, seed=1)),
        out_backprop=floats(1, 4, 4, 3),
        strides=[1, 3, 3, 1],
        padding="SAME",
        atol=1e-5,
    )
    yield record(
        "Conv2DBackpropInput",
        "explicit",
        input_sizes=const([1, 7, 8, 2]),
        filter=const(floats(3, 3, 2, 3, seed=1)),
        out_backprop=floats(1, 4, 4, 3),
        strides=[1, 2, 2, 1],
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 1, 0, 1, 0, 0],
        atol=1e-5,
    )
    yield record(
        "Conv3DBackpropInputV2",
        "same",
        input_sizes=const([1, 4, 6, 7, 2]),
        filter=const(floats(3, 3, 3, 2, 3, seed=1)),
        out_backprop=floats(1, 2, 3, 4, 3),
        strides=[1, 2, 2, 2, 1],
        padding="SAME",
        atol=1e-5,
    )


def _fused():
    conv = {
        "input": floats(1, 5, 6, 3),
        "filter": const(floats(3, 3, 3, 4, seed=1)),
        "strides": LINE,
        "padding": "SAME",
        "atol": 1e-5,
    }
    bias = const(floats(4, seed=2))
    norm = [
        const(floats(4, seed=3)),
        const(floats(4, seed=4)),
        const(floats(4, seed=5)),
        const(positive(4, seed=6)),
    ]
    for names in (
        ["BiasAdd"],
        ["BiasAdd", "Relu"],
        ["BiasAdd", "Relu6"],
        ["BiasAdd", "Elu"],
        ["BiasAdd", "LeakyRelu"],
    ):
        yield record(
            "_FusedConv2D", "_".join(names), **conv, args=[bias], host_args=[], num_args=1, fused_ops=names
        )
    for names in (["FusedBatchNorm"], ["FusedBatchNorm", "Relu"]):
        yield record(
            "_FusedConv2D",
            "_".join(names),
            **conv,
            args=norm,
            host_args=[],
            num_args=4,
            fused_ops=names,
            epsilon=0.01,
        )
    product = {"a": floats(3, 4), "b": const(floats(4, 5, seed=1)), "atol": 1e-5}
    for names in (["BiasAdd"], ["BiasAdd", "Relu"], ["BiasAdd", "Tanh"], ["BiasAdd", "Sigmoid"]):
        yield record(
            "_FusedMatMul", "_".join(names), **product, args=[const(floats(5, seed=2))], fused_ops=names
        )
    yield record(
        "_FusedMatMul",
        "transposed",
        a=floats(4, 3),
        b=const(floats(5, 4, seed=1)),
        args=[const(floats(5, seed=2))],
        fused_ops=["BiasAdd", "LeakyRelu"],
        transpose_a=True,
        transpose_b=True,
        atol=1e-5,
    )


def _dilation():
    for padding in ("SAME", "VALID"):
        yield record(
            "Dilation2D",
            padding,
            input=floats(1, 7, 8, 2),
            filter=const(floats(3, 2, 2, seed=1)),
            strides=[1, 2, 1, 1],
            rates=[1, 1, 2, 1],
            padding=padding,
        )
    yield record(
        "Dilation2D",
        "int32",
        input=integers(1, 5, 5, 2),
        filter=const(integers(2, 2, 2, seed=1)),
        strides=LINE,
        rates=LINE,
        padding="VALID",
    )


WITHOUT_RECORDS = {
    "Conv2DBackpropInputV2": "TensorFlow 2.21 has no CPU kernel",
    "_FusedDepthwiseConv2dNative": "its only CPU kernel is oneDNN's, under another name",
}


def _padded():
    # The kernels of TensorFlow 2.21 read the first image for the others of a batch, too.
    options = {"mode": "REFLECT", "strides": [1, 1, 1, 1], "padding": "VALID"}
    image, weights = floats(1, 4, 5, 2), const(floats(3, 2, 2, 3, seed=1))
    paddings = const([[0, 0], [1, 2], [2, 1], [0, 0]])
    yield record("FusedPadConv2D", "", input=image, paddings=paddings, filter=weights, **options)
    yield record(
        "FusedResizeAndPadConv2D",
        "",
        input=image,
        size=const([6, 7]),
        paddings=paddings,
        filter=weights,
        resize_align_corners=True,
        **options,
    )


RECORDS = [
    *_convolutions(),
    *_of_any_rank(),
    *_depthwise(),
    *_transposed(),
    *_fused(),
    *_dilation(),
    *_padded(),
]
