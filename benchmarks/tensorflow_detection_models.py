"""SavedModels of detectors and of segmentation, with random weights, for images of any size."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow_saved_models import RANDOM, Arrays, Module, floats, model


def _image_model(
    outputs: Callable[[keras.KerasTensor], list[keras.KerasTensor]],
) -> tuple[Module, list[Arrays]]:
    image = keras.Input((None, None, 3), name="image")
    return keras.Model(image, outputs(image)), [
        {"image": floats(2, 64, 96, 3)},
        {"image": floats(1, 80, 64, 3)},
    ]


def _backbone(x: keras.KerasTensor) -> list[keras.KerasTensor]:
    """Features of an image at 1/4, 1/8 and 1/16."""
    features = []
    for width in (8, 8, 16, 16):
        x = layers.SeparableConv2D(width, 3, 2, "same", activation="relu6")(x)
        features.append(x)
    return features[1:]


class Detections(layers.Layer):
    """The boxes and classes of anchors, after non-maximum suppression of each class."""

    def call(self, raw: tf.Tensor) -> list[tf.Tensor]:
        center, size = tf.split(tf.sigmoid(raw[..., :4]), 2, -1)
        boxes = tf.concat([center - size / 2, center + size / 2], -1)
        found = tf.image.combined_non_max_suppression(
            boxes[:, :, None], tf.sigmoid(raw[..., 4:]), 5, 8, 0.4, 0.3
        )
        return [found.nmsed_boxes, found.nmsed_scores, found.nmsed_classes, found.valid_detections]


@model("detection")
def anchors_and_suppression() -> tuple[Module, list[Arrays]]:
    def outputs(x: keras.KerasTensor) -> list[keras.KerasTensor]:
        heads = [
            layers.Reshape((-1, 7))(layers.Conv2D(14, 3, padding="same")(level)) for level in _backbone(x)
        ]
        return Detections()(layers.Concatenate(1)(heads))

    return _image_model(outputs)


@model("detection")
def feature_pyramid() -> tuple[Module, list[Arrays]]:
    """Features of three sizes, added from the smallest to the largest; heads with shared weights."""

    def outputs(x: keras.KerasTensor) -> list[keras.KerasTensor]:
        low, middle, high = (layers.Conv2D(8, 1)(level) for level in _backbone(x))
        middle = layers.Add()([middle, layers.UpSampling2D()(high)])
        low = layers.Add()([low, layers.UpSampling2D()(middle)])
        head = layers.Conv2D(6, 3, padding="same")
        return [head(level) for level in (low, middle, high)]

    return _image_model(outputs)


class HeatMapPeaks(layers.Layer):
    """The ten highest local maxima of a heat map, and the features at them."""

    def call(self, heat: tf.Tensor, features: tf.Tensor) -> list[tf.Tensor]:
        peaks = tf.where(tf.nn.max_pool2d(heat, 3, 1, "SAME") == heat, heat, 0.0)
        batch, width = tf.shape(heat)[0], tf.shape(heat)[2]
        scores, positions = tf.math.top_k(tf.reshape(peaks, [batch, -1]), 10)
        cells = positions // tf.shape(heat)[3]
        flat = tf.reshape(features, [batch, -1, features.shape[-1]])
        return [scores, cells % width, cells // width, tf.gather(flat, cells, batch_dims=1)]


@model("detection")
def center_points() -> tuple[Module, list[Arrays]]:
    def outputs(x: keras.KerasTensor) -> list[keras.KerasTensor]:
        features = _backbone(x)[0]
        return HeatMapPeaks()(layers.Conv2D(3, 1, activation="sigmoid")(features), features)

    return _image_model(outputs)


class RegionCrops(layers.Layer):
    """Features of the proposals with the highest scores, and a mask for each."""

    def build(self, shapes: list[tuple[int, ...]]) -> None:
        self.kernel = self.add_weight(shape=(2, 2, 4, 8), initializer="glorot_uniform")

    def call(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        features, proposals = inputs
        chosen = tf.image.non_max_suppression(proposals[:, :4], proposals[:, 4], 6, 0.5)
        boxes = tf.gather(proposals[:, :4], chosen)
        crops = tf.image.crop_and_resize(features, boxes, tf.zeros_like(chosen), [4, 4])
        count = tf.shape(crops)[0]
        masks = tf.nn.conv2d_transpose(crops, self.kernel, tf.stack([count, 8, 8, 4]), 2)
        return [boxes, tf.reduce_mean(crops, [1, 2]), tf.sigmoid(masks)]


@model("detection")
def region_crops() -> tuple[Module, list[Arrays]]:
    image, boxes = keras.Input((None, None, 3), name="image"), keras.Input((5,), name="boxes")
    network = keras.Model([image, boxes], RegionCrops()([_backbone(image)[0], boxes]))

    def call(count: int) -> Arrays:
        corners = np.sort(RANDOM.uniform(0, 1, (count, 2, 2)).astype(np.float32), 1).reshape(count, 4)
        return {"image": floats(1, 64, 96, 3), "boxes": np.hstack([corners, np.abs(floats(count, 1))])}

    return network, [call(20), call(1)]


@model("detection")
def segmentation_u_net() -> tuple[Module, list[Arrays]]:
    def outputs(x: keras.KerasTensor) -> list[keras.KerasTensor]:
        low, middle, high = _backbone(x)
        x = layers.Conv2DTranspose(8, 3, 2, "same")(high)
        x = layers.Conv2DTranspose(8, 2, 2, "valid")(layers.Concatenate()([x, middle]))
        return [layers.Softmax()(layers.Conv2D(4, 3, padding="same")(layers.Concatenate()([x, low])))]

    return _image_model(outputs)


class ResizedLike(layers.Layer):
    """An image or features at the size of another."""

    def call(self, x: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(x, tf.shape(like)[1:3])


@model("detection")
def atrous_pyramid() -> tuple[Module, list[Arrays]]:
    """Dilated convolutions and the mean of the image, brought to the size of the input."""

    def outputs(image: keras.KerasTensor) -> list[keras.KerasTensor]:
        x = _backbone(image)[1]
        branches = [layers.Conv2D(4, 3, padding="same", dilation_rate=rate)(x) for rate in (1, 2, 3)]
        mean = layers.Conv2D(4, 1)(layers.GlobalAveragePooling2D(keepdims=True)(x))
        x = layers.Concatenate()([*branches, ResizedLike()(mean, x)])
        return [ResizedLike()(layers.Conv2D(3, 1)(x), image)]

    return _image_model(outputs)
