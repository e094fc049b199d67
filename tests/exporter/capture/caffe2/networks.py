"""ResNet-50, SqueezeNet and MobileNetV2 as Caffe2's nets, beside PyTorch's results for the same weights.

Each layer adds operators to the net and computes its value with PyTorch. The structures are those published
with Caffe2: blobs written in place, Caffe's pooling, scales as Mul and Add with `broadcast`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .nets import Net


@dataclasses.dataclass
class Blob:
    """A blob of the net, and its value in PyTorch, [N, C, H, W]."""

    name: str
    value: torch.Tensor


class Network:
    """A net and its weights under construction.

    Attributes:
        order: the storage order of images and filters.
    """

    def __init__(self, image: np.ndarray, order: str = "NCHW", seed: int = 0):
        self.order = order
        self.predict, self.init = Net("predict"), Net("init")
        self.weights: list[str] = []
        self.data = Blob("data", torch.from_numpy(image))
        self._random = np.random.default_rng(seed)

    @property
    def feed(self) -> dict[str, np.ndarray]:
        return {"data": self.ordered(self.data.value.numpy())}

    def ordered(self, array: np.ndarray) -> np.ndarray:
        """An image or a filter in the storage order of the net."""
        return array if self.order == "NCHW" else np.ascontiguousarray(np.moveaxis(array, 1, -1))

    def weight(self, name: str, array: np.ndarray, *, image: bool = False) -> torch.Tensor:
        """A weight, which the init_net fills."""
        stored = self.ordered(array) if image else array
        operator = self.init.message.op.add(type="GivenTensorFill", output=[name])
        operator.arg.add(name="shape").ints.extend(stored.shape)
        operator.arg.add(name="values").floats.extend(stored.reshape(-1))
        self.weights.append(name)
        return torch.from_numpy(array)

    def random(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> np.ndarray:
        return (self._random.standard_normal(shape) * scale + offset).astype(np.float32)

    def conv(
        self,
        x: Blob,
        name: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        pad: int = 0,
        group: int = 1,
        bias: bool = False,
    ) -> Blob:
        inputs = x.value.shape[1] // group
        spread = (2 / (inputs * kernel * kernel)) ** 0.5
        filter = self.weight(
            f"{name}_w", self.random(channels, inputs, kernel, kernel, scale=spread), image=True
        )
        blobs, added = [x.name, f"{name}_w"], None
        if bias:
            added = self.weight(f"{name}_b", self.random(channels, scale=0.1))
            blobs.append(f"{name}_b")
        own = {"group": group} if group > 1 else {}
        self.predict.add("Conv", blobs, name, kernel=kernel, stride=stride, pad=pad, order=self.order, **own)
        return Blob(name, F.conv2d(x.value, filter, added, stride, pad, 1, group))

    def norm(self, x: Blob, *, scaled: bool = False) -> Blob:
        """SpatialBN in place; with `scaled` the scale and shift are operators of their own."""
        count, name = x.value.shape[1], f"{x.name}_bn"
        arrays = [np.ones(count, np.float32), np.zeros(count, np.float32)] if scaled else []
        arrays = arrays or [self.random(count, scale=0.1, offset=1.0), self.random(count, scale=0.1)]
        arrays += [self.random(count, scale=0.1), np.abs(self.random(count, scale=0.1, offset=1.0))]
        ends = ("s", "b", "rm", "riv")
        s, b, mean, var = (
            self.weight(f"{name}_{end}", array) for end, array in zip(ends, arrays, strict=True)
        )
        blobs = [x.name, *[f"{name}_{end}" for end in ends]]
        self.predict.add("SpatialBN", blobs, x.name, is_test=1, epsilon=1e-5, order=self.order)
        value = F.batch_norm(x.value, mean, var, s, b, False, 0.0, 1e-5)
        if scaled:
            factor = self.weight(f"{name}_factor", self.random(count, scale=0.1, offset=1.0))
            shift = self.weight(f"{name}_shift", self.random(count, scale=0.1))
            place = {"axis": 1} if self.order == "NCHW" else {"axis_str": "C", "order": "NHWC"}
            self.predict.add("Mul", [x.name, f"{name}_factor"], x.name, broadcast=1, **place)
            self.predict.add("Add", [x.name, f"{name}_shift"], x.name, broadcast=1, **place)
            value = value * factor.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)
        return Blob(x.name, value)

    def relu(self, x: Blob, highest: float | None = None) -> Blob:
        """In place; Clip where there is a highest value."""
        if highest is None:
            self.predict.add("Relu", x.name, x.name, order=self.order)
            return Blob(x.name, F.relu(x.value))
        self.predict.add("Clip", x.name, x.name, min=0.0, max=highest)
        return Blob(x.name, x.value.clamp(0, highest))

    def max_pool(self, x: Blob, name: str, kernel: int = 3, stride: int = 2) -> Blob:
        self.predict.add(
            "MaxPool", x.name, name, kernel=kernel, stride=stride, legacy_pad=3, order=self.order
        )
        return Blob(name, F.max_pool2d(x.value, kernel, stride, ceil_mode=True))

    def average(self, x: Blob, name: str) -> Blob:
        self.predict.add("AveragePool", x.name, name, global_pooling=1, order=self.order)
        return Blob(name, F.adaptive_avg_pool2d(x.value, 1))

    def sum(self, x: Blob, y: Blob, name: str) -> Blob:
        self.predict.add("Sum", [x.name, y.name], name)
        return Blob(name, x.value + y.value)

    def concat(self, x: Blob, y: Blob, name: str) -> Blob:
        self.predict.add("Concat", [x.name, y.name], [name, f"_{name}_dims"], order=self.order)
        return Blob(name, torch.cat([x.value, y.value], 1))

    def dropout(self, x: Blob) -> Blob:
        self.predict.add("Dropout", x.name, [x.name, f"_{x.name}_mask"], ratio=0.5, is_test=1)
        return x

    def fc(self, x: Blob, name: str, count: int) -> Blob:
        inputs = x.value[0].numel()
        w = self.weight(f"{name}_w", self.random(count, inputs, scale=inputs**-0.5))
        b = self.weight(f"{name}_b", self.random(count, scale=0.1))
        self.predict.add("FC", [x.name, f"{name}_w", f"{name}_b"], name)
        return Blob(name, F.linear(x.value.flatten(1), w, b))

    def softmax(self, x: Blob) -> Blob:
        self.predict.add("Softmax", x.name, "prob")
        return Blob("prob", x.value.flatten(1).softmax(1).reshape(x.value.shape))

    def finish(self, x: Blob) -> tuple[Any, Any, np.ndarray]:
        """The predict_net, the init_net, and what PyTorch gives."""
        predict = self.predict.finish(["data", *self.weights], [x.name])
        value = x.value.numpy()
        return predict, self.init.message, self.ordered(value) if value.ndim == 4 else value


def resnet50(network: Network, width: int = 64, classes: int = 1000) -> tuple[Any, Any, np.ndarray]:
    """`width` is the number of channels of the first layer, 64 in the published net."""
    net = network
    x = net.relu(net.norm(net.conv(net.data, "conv1", width, 7, 2, 3)))
    x = net.max_pool(x, "pool1")
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = width << stage
        for block in range(blocks):
            name, stride = f"res{stage + 2}{chr(97 + block)}", 2 if stage and not block else 1
            shortcut = x
            if not block:
                shortcut = net.norm(net.conv(x, f"{name}_branch1", inner * 4, 1, stride))
            y = net.relu(net.norm(net.conv(x, f"{name}_branch2a", inner, 1, stride)))
            y = net.relu(net.norm(net.conv(y, f"{name}_branch2b", inner, 3, 1, 1), scaled=not block))
            y = net.norm(net.conv(y, f"{name}_branch2c", inner * 4, 1))
            x = net.relu(net.sum(shortcut, y, name))
    return net.finish(net.softmax(net.fc(net.average(x, "pool5"), "fc1000", classes)))


def squeezenet(network: Network, classes: int = 1000) -> tuple[Any, Any, np.ndarray]:
    net = network

    def fire(x: Blob, name: str, squeeze: int, expand: int) -> Blob:
        small = net.relu(net.conv(x, f"{name}/squeeze1x1", squeeze, 1, bias=True))
        one = net.relu(net.conv(small, f"{name}/expand1x1", expand, 1, bias=True))
        three = net.relu(net.conv(small, f"{name}/expand3x3", expand, 3, 1, 1, bias=True))
        return net.concat(one, three, f"{name}/concat")

    x = net.max_pool(net.relu(net.conv(net.data, "conv1", 64, 3, 2, bias=True)), "pool1")
    x = net.max_pool(fire(fire(x, "fire2", 16, 64), "fire3", 16, 64), "pool3")
    x = net.max_pool(fire(fire(x, "fire4", 32, 128), "fire5", 32, 128), "pool5")
    x = fire(fire(x, "fire6", 48, 192), "fire7", 48, 192)
    x = net.dropout(fire(fire(x, "fire8", 64, 256), "fire9", 64, 256))
    x = net.relu(net.conv(x, "conv10", classes, 1, bias=True))
    return net.finish(net.softmax(net.average(x, "pool10")))


def mobilenet_v2(network: Network, classes: int = 1000) -> tuple[Any, Any, np.ndarray]:
    net = network

    def block(x: Blob, name: str, channels: int, stride: int, expansion: int) -> Blob:
        inputs, y = x.value.shape[1], x
        inner = inputs * expansion
        if expansion > 1:
            y = net.relu(net.norm(net.conv(y, f"{name}_expand", inner, 1)), 6.0)
        y = net.relu(net.norm(net.conv(y, f"{name}_dwise", inner, 3, stride, 1, group=inner)), 6.0)
        y = net.norm(net.conv(y, f"{name}_linear", channels, 1))
        return net.sum(x, y, f"{name}_sum") if stride == 1 and inputs == channels else y

    x = net.relu(net.norm(net.conv(net.data, "conv1", 32, 3, 2, 1)), 6.0)
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))
    for row, (expansion, channels, times, stride) in enumerate((*rows, (6, 320, 1, 1))):
        for index in range(times):
            x = block(x, f"block{row}_{index}", channels, stride if not index else 1, expansion)
    x = net.relu(net.norm(net.conv(x, "conv_last", 1280, 1)), 6.0)
    return net.finish(net.softmax(net.fc(net.average(x, "pool"), "fc", classes)))
