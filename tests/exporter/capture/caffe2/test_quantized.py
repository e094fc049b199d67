"""The Int8 operators against integer arithmetic: sums of products, rounded to even and saturated."""

import numpy as np
import pytest
import torch

import opsetta

from . import reference as ref
from .nets import OPSETS, Net, converted, operators, run

_RANDOM = np.random.default_rng(3)
SCALE, ZERO = float(np.float32(0.05)), 113


def bytes_of(*shape):
    return _RANDOM.integers(0, 256, shape, dtype=np.uint8)


def single(folder, kind, arrays, expected, tolerance=0, opsets=OPSETS, extra=(), outputs=1, **arguments):
    """Compare one operator on Int8 blobs: `arrays` are (integers, scale, zero point), the first one fed."""
    predict, init = Net(), Net()
    x, scale, zero_point = arrays[0]
    predict.add("Int8Quantize", "x", "x_int8", Y_scale=scale, Y_zero_point=zero_point)
    names = ["x_int8"]
    for index, (array, *grid) in enumerate(arrays[1:]):
        names.append(init.fill_int8(f"w{index}", array, *grid))
    for index, array in enumerate(extra):
        names.append(init.fill(f"e{index}", array))
    results = ["y", *[f"y{index}" for index in range(1, outputs)]]
    predict.add(kind, names, results, **arguments)
    grid = {"Y_scale": 1.0, "Y_zero_point": 0}
    grid |= {name: arguments[name] for name in grid if name in arguments}
    message = predict.finish(["x"], ["y"])
    with pytest.warns(UserWarning, match="is Int8"):
        model = converted(folder, message, init.message, shapes={"x": x.shape})
    for opset in opsets:
        [found] = run(model.lower(opset), {"x": ref.dequantize(x, scale, zero_point)})
        assert found.dtype == np.uint8
        assert found.shape == expected.shape
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= tolerance, opset
    return model


def nchw(array):
    return np.moveaxis(array, -1, 1)


def counts(x, w, zeros, bias, **options):
    """The integer sums of a convolution of NHWC, as int64, in NHWC."""
    tensors = [torch.from_numpy(nchw(a).astype(np.int64) - z) for a, z in zip((x, w), zeros, strict=True)]
    found = torch.conv2d(*[t.double() for t in tensors], torch.from_numpy(bias).double(), **options)
    return np.moveaxis(found.numpy(), 1, -1)


@pytest.mark.parametrize("kind", ["Int8Conv", "Int8ConvRelu"])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "pad": 1}, {"group": 2}], ids=str)
def test_convolution(kind, options, tmp_path):
    x, w = bytes_of(2, 6, 7, 4), bytes_of(6, 3, 3, 4 // options.get("group", 1))
    bias = _RANDOM.integers(-5000, 5000, 6, dtype=np.int32)
    w_scale, y_scale, y_zero = float(np.float32(0.003)), float(np.float32(0.11)), 100
    torch_options = {"stride": options.get("stride", 1), "padding": options.get("pad", 0)}
    summed = counts(x, w, (ZERO, 120), bias, groups=options.get("group", 1), **torch_options)
    expected = ref.requantize(summed, SCALE * w_scale / y_scale, y_zero, y_zero if "Relu" in kind else 0)
    arrays = [(x, SCALE, ZERO), (w, w_scale, 120), (bias, 123.0, 0)]
    single(
        tmp_path,
        kind,
        arrays,
        expected,
        1,
        kernel=3,
        order="NHWC",
        Y_scale=y_scale,
        Y_zero_point=y_zero,
        **options,
    )


def test_fully_connected(tmp_path):
    x, w = bytes_of(3, 2, 2, 2), bytes_of(5, 8)
    bias = _RANDOM.integers(-500, 500, 5, dtype=np.int32)
    summed = (x.reshape(3, 8).astype(int) - ZERO) @ (w.astype(int) - 7).T + bias
    expected = ref.requantize(summed, SCALE * 0.25 / 0.5, 60)
    arrays = [(x, SCALE, ZERO), (w, 0.25, 7), (bias, 1.0, 0)]
    single(tmp_path, "Int8FC", arrays, expected, 1, Y_scale=0.5, Y_zero_point=60)


@pytest.mark.parametrize(
    ("kind", "low"), [("Int8Add", 0), ("Int8Sum", 0), ("Int8AddRelu", 90), ("Int8SumRelu", 90)]
)
def test_sum(kind, low, tmp_path):
    a, b = bytes_of(2, 3, 4, 5), bytes_of(2, 3, 4, 5)
    real = ref.dequantize(a, SCALE, ZERO).astype(float) + ref.dequantize(b, 0.5, 3)
    expected = ref.requantize(real, 1 / 0.75, 90, low)
    single(tmp_path, kind, [(a, SCALE, ZERO), (b, 0.5, 3)], expected, 1, Y_scale=0.75, Y_zero_point=90)


@pytest.mark.parametrize("opsets", [OPSETS])
def test_pooling(opsets, tmp_path):
    x = bytes_of(2, 6, 7, 3)
    highest = np.moveaxis(ref.pool(nchw(x), "max", [3, 3], [2, 2], [1] * 4), 1, -1)
    same = {"Y_scale": SCALE, "Y_zero_point": ZERO}
    single(
        tmp_path, "Int8MaxPool", [(x, SCALE, ZERO)], highest, kernel=3, stride=2, pad=1, order="NHWC", **same
    )
    single(
        tmp_path,
        "Int8MaxPoolRelu",
        [(x, SCALE, ZERO)],
        np.maximum(highest, ZERO),
        kernel=3,
        stride=2,
        pad=1,
        order="NHWC",
        **same,
    )
    centred = nchw(x).astype(float) - ZERO
    for arguments, mean in (
        ({"global_pooling": 1}, ref.pool(centred, "average", [6, 7])),
        ({"kernel": 2, "stride": 2}, ref.pool(centred, "average", [2, 2], [2, 2])),
        ({"kernel": 3, "pad": 1}, ref.pool(centred, "average", [3, 3], None, [1] * 4, 0, True)),
    ):
        expected = ref.requantize(np.moveaxis(mean, 1, -1), SCALE / 0.07, 50)
        single(
            tmp_path,
            "Int8AveragePool",
            [(x, SCALE, ZERO)],
            expected,
            1,
            order="NHWC",
            Y_scale=0.07,
            Y_zero_point=50,
            **arguments,
        )


def test_activations(tmp_path):
    x = bytes_of(2, 3, 5)
    same = {"Y_scale": SCALE, "Y_zero_point": ZERO}
    single(tmp_path, "Int8Relu", [(x, SCALE, ZERO)], np.maximum(x, ZERO), **same)
    below = np.rint((x.astype(float) - ZERO) * 0.25) + ZERO
    expected = np.where(x < ZERO, below, x).astype(np.uint8)
    single(tmp_path, "Int8LeakyRelu", [(x, SCALE, ZERO)], expected, 1, alpha=0.25, **same)
    real = ref.dequantize(x, SCALE, ZERO)
    probability = {"Y_scale": 1 / 256, "Y_zero_point": 0}
    single(
        tmp_path,
        "Int8Sigmoid",
        [(x, SCALE, ZERO)],
        ref.quantize(1 / (1 + np.exp(-real)), 1 / 256, 0),
        1,
        **probability,
    )
    single(
        tmp_path,
        "Int8Softmax",
        [(x, SCALE, ZERO)],
        ref.quantize(ref.softmax(real), 1 / 256, 0),
        1,
        **probability,
    )


def test_movements(tmp_path):
    x, other = bytes_of(2, 4, 6, 4), bytes_of(2, 4, 6, 2)
    grid, same = (SCALE, ZERO), {"Y_scale": SCALE, "Y_zero_point": ZERO}
    single(
        tmp_path,
        "Int8Concat",
        [(x, *grid), (other, *grid)],
        np.concatenate([x, other], 3),
        order="NHWC",
        **same,
    )
    single(tmp_path, "Int8Reshape", [(x, *grid)], x.reshape(2, -1), outputs=2, shape=[0, -1], **same)
    single(tmp_path, "Int8Reshape", [(x, *grid)], x.reshape(8, -1), extra=[np.array([8, -1])], **same)
    single(tmp_path, "Int8Flatten", [(x, *grid)], x.reshape(2, -1), **same)
    single(tmp_path, "Int8Transpose", [(x, *grid)], x.transpose(0, 3, 1, 2), axes=[0, 3, 1, 2], **same)
    single(tmp_path, "Int8Slice", [(x, *grid)], x[:, 1:3], starts=[0, 1], ends=[-1, 3], **same)
    shuffled = np.moveaxis(ref.channel_shuffle(nchw(x), 2), 1, -1)
    single(tmp_path, "Int8ChannelShuffle", [(x, *grid)], shuffled, group=2, order="NHWC", **same)
    grown = np.moveaxis(ref.resize_nearest(nchw(x), 2, 2), 1, -1)
    single(tmp_path, "Int8ResizeNearest", [(x, *grid)], grown, width_scale=2.0, height_scale=2.0, **same)


def test_quantization_rounds_to_even_and_saturates(tmp_path):
    x = np.array([-1e9, -0.75, -0.25, 0.25, 0.75, 1.25, 63.0, 1e9], np.float32)
    net = Net()
    net.add("Int8Quantize", "x", "q", Y_scale=0.5, Y_zero_point=10)
    net.add("Int8Dequantize", "q", "y")
    model = converted(tmp_path, net.finish(["x"], ["y"]), shapes={"x": [8]})
    integers = np.array([0, 8, 10, 10, 12, 12, 136, 255])
    for opset in OPSETS:
        [found] = run(model.lower(opset), {"x": x})
        np.testing.assert_array_equal(found, (integers - 10) * np.float32(0.5))


def network():
    """Convolution, depthwise convolution, sum, pooling and classification, all of integers."""
    predict, init = Net(), Net()
    random = np.random.default_rng(5)

    def weights(name, shape, outputs):
        init.fill_int8(f"{name}_w", random.integers(0, 256, shape, dtype=np.uint8), 0.01, 128)
        init.fill_int8(f"{name}_b", random.integers(-900, 900, outputs, dtype=np.int32), 0.0002, 0)
        return [f"{name}_w", f"{name}_b"]

    predict.add("NCHW2NHWC", "data", "nhwc")
    predict.add("Int8Quantize", "nhwc", "q", Y_scale=0.02, Y_zero_point=128)
    predict.add(
        "Int8ConvRelu",
        ["q", *weights("c1", (8, 3, 3, 3), 8)],
        "c1",
        kernel=3,
        stride=2,
        pad=1,
        order="NHWC",
        Y_scale=0.06,
        Y_zero_point=0,
    )
    predict.add(
        "Int8Conv",
        ["c1", *weights("c2", (8, 3, 3, 1), 8)],
        "c2",
        kernel=3,
        pad=1,
        group=8,
        order="NHWC",
        Y_scale=0.18,
        Y_zero_point=127,
    )
    predict.add("Int8AddRelu", ["c1", "c2"], "s", Y_scale=0.13, Y_zero_point=4)
    predict.add("Int8MaxPool", "s", "s", kernel=2, stride=2, order="NHWC", Y_scale=0.13, Y_zero_point=4)
    predict.add("Int8AveragePool", "s", "p", global_pooling=1, order="NHWC", Y_scale=0.065, Y_zero_point=1)
    predict.add("Int8FC", ["p", *weights("fc", (10, 8), 10)], "fc", Y_scale=0.4, Y_zero_point=110)
    predict.add("Int8Dequantize", "fc", "logits")
    return (
        predict.finish(["data"], ["logits"]),
        init.message,
        {name.output[0]: name for name in init.message.op},
    )


def real_network(image, fills):
    """The same network of real numbers, with the integers that stand for weights."""

    def weight(name):
        arguments = {a.name: a for a in fills[name].arg}
        shape = list(arguments["shape"].ints)
        if name.endswith("_w"):
            held = np.frombuffer(arguments["values"].s, np.uint8).reshape(shape)
            return torch.from_numpy(np.moveaxis((held.astype(np.float32) - 128) * 0.01, -1, 1).copy())
        return np.array(arguments["values"].ints, np.float32)

    x = torch.from_numpy(image)
    c1 = torch.conv2d(x, weight("c1_w"), torch.from_numpy(weight("c1_b") * 0.02 * 0.01), 2, 1).relu()
    c2 = torch.conv2d(c1, weight("c2_w"), torch.from_numpy(weight("c2_b") * 0.06 * 0.01), 1, 1, groups=8)
    pooled = torch.max_pool2d((c1 + c2).relu(), 2, 2).mean((2, 3))
    fc = weight("fc_w").reshape(10, 8)
    return torch.nn.functional.linear(pooled, fc, torch.from_numpy(weight("fc_b") * 0.065 * 0.01)).numpy()


def test_network(tmp_path):
    predict, init, fills = network()
    image = np.random.default_rng(6).uniform(-2, 2, (2, 3, 16, 16)).astype(np.float32)
    model = converted(tmp_path, predict, init, shapes={"data": image.shape})
    expected = real_network(image, fills)
    results = [run(model.lower(opset), {"data": image})[0] for opset in OPSETS]
    for found in results:
        np.testing.assert_allclose(found, expected, atol=1.2)
        np.testing.assert_allclose(found, results[0], atol=0.41)
    names = operators(model.lower(13))
    assert names.count("QuantizeLinear") == 7
    assert {"DequantizeLinear", "Conv", "MaxPool"} <= set(names)


@pytest.mark.parametrize(
    ("kind", "arguments"), [("Int8Transpose", {"axes": [1, 0]}), ("Int8Reshape", {"shape": [-1]})]
)
def test_movements_keep_the_quantization(kind, arguments, tmp_path):
    net = Net()
    net.add("Int8Quantize", "x", "q", Y_scale=0.5, Y_zero_point=10)
    net.add(kind, "q", "r", Y_scale=0.25, Y_zero_point=10, **arguments)
    net.add("Int8Dequantize", "r", "y")
    model = converted(tmp_path, net.finish(["x"], ["y"]), shapes={"x": [2, 3]})
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="Y_scale"):
        model.lower(13)


def test_an_int8_input_has_its_scale_in_its_description(tmp_path):
    net = Net()
    net.add("Int8Relu", "x", "r", Y_scale=SCALE, Y_zero_point=ZERO)
    net.add("Int8Dequantize", "r", "y")
    message = net.finish(["x"], ["y"])
    x = bytes_of(2, 3)
    model = converted(tmp_path, message, shapes={"x": f"uint8[2,3]@{SCALE}:{ZERO}"})
    for opset in OPSETS:
        [found] = run(model.lower(opset), {"x": x})
        np.testing.assert_allclose(found, np.maximum(x.astype(np.float32) - ZERO, 0) * SCALE, rtol=1e-6)
    for text in ("uint8[2,3]@0:1", "uint8[2,3]@x", "uint8[2,3]@0.5:300", "float32[2,3]@0.5:3"):
        with pytest.raises(opsetta.UsageError, match="the scale of 'x' must have the form"):
            converted(tmp_path, message, shapes={"x": text})


def test_the_kinds_of_blobs_are_checked(tmp_path):
    net = Net()
    net.add("Int8Relu", "x", "y", Y_scale=1.0, Y_zero_point=0)
    with pytest.raises(opsetta.CaptureError, match=r"reads blob 'x', which is not Int8; .* x=uint8"):
        converted(tmp_path, net.finish(["x"], ["y"]))
    net = Net()
    net.add("Int8Quantize", "x", "q", Y_scale=1.0, Y_zero_point=0)
    net.add("Relu", "q", "y")
    with pytest.raises(opsetta.CaptureError, match="reads blob 'q', which is Int8"):
        converted(tmp_path, net.finish(["x"], ["y"]))
