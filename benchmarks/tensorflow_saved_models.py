"""SavedModels with random weights: Keras applications, text, recommenders, time series.

`tensorflow_peer.py` writes them, in an environment with TensorFlow and Keras 3.
`tensorflow_detection_models.py` has the ones of images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf
from keras import layers

Arrays: TypeAlias = dict[str, np.ndarray]
Module: TypeAlias = "tf.Module | keras.Model"
Builder: TypeAlias = Callable[[], tuple[Module, list[Arrays]]]

MODELS: dict[str, tuple[str, Builder]] = {}
"""The group and the function of each model. The function returns it with the inputs of two calls."""
RANDOM = np.random.default_rng(0)
VOCABULARY = ["the", "film", "was", "good", "bad", "not", "a", "story", "of"]
SENTENCES = [
    "The film was good",
    "Not a bad story!",
    "a  story of, (well) the FILM",
    "",
    "unknown words only",
]
APPLICATIONS = (
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Small",
    "EfficientNetB0",
    "EfficientNetV2B0",
    "ResNet50",
    "ResNet50V2",
    "DenseNet121",
    "InceptionV3",
    "Xception",
    "NASNetMobile",
    "ConvNeXtTiny",
)


def model(group: str) -> Callable[[Builder], Builder]:
    """Add the decorated function to `MODELS`, under its name."""

    def add(function: Builder) -> Builder:
        MODELS[function.__name__] = (group, function)
        return function

    return add


def floats(*shape: int) -> np.ndarray:
    """Random numbers of a normal distribution."""
    return RANDOM.normal(size=shape).astype(np.float32)


def ids(limit: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    """Random numbers from 0 to `limit - 1`."""
    return RANDOM.integers(0, limit, shape).astype(dtype)


def words(*shape: int) -> np.ndarray:
    """Random words, some of them unknown."""
    return RANDOM.choice([*VOCABULARY, "zebra"], shape).astype(object)


def sentences(count: int) -> np.ndarray:
    """Sentences, [count, 1]."""
    return np.array([SENTENCES[:count]], object).T


def two_calls(make: Callable[[int], Arrays]) -> list[Arrays]:
    """Inputs of a batch of 3, and of one of 1."""
    return [make(3), make(1)]


def randomize(network: keras.Model) -> None:
    """Give normalizations random statistics; Keras begins with those of the identity."""
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            for weight in layer.weights:
                low, high = (0.5, 1.5) if "variance" in weight.path or "gamma" in weight.path else (-0.3, 0.3)
                weight.assign(RANDOM.uniform(low, high, weight.shape).astype(np.float32))


def _register_applications() -> None:
    for name in APPLICATIONS:

        def build(name: str = name) -> tuple[Module, list[Arrays]]:
            network = getattr(keras.applications, name)(weights=None, input_shape=(75, 96, 3), classes=10)
            randomize(network)
            key = network.inputs[0].name
            return network, two_calls(
                lambda n: {key: RANDOM.uniform(0, 1, (n, 75, 96, 3)).astype(np.float32)}
            )

        MODELS[name] = ("Keras applications", build)


_register_applications()


def _sentence_model(standardize: str | None, mode: str = "int") -> tuple[Module, list[Arrays]]:
    vectorize = layers.TextVectorization(
        30,
        standardize=standardize,
        output_mode=mode,
        output_sequence_length=6 if mode == "int" else None,
        vocabulary=VOCABULARY,
        idf_weights=[1.0 + 0.1 * index for index in range(len(VOCABULARY))] if mode == "tf_idf" else None,
    )
    text = keras.Input((1,), dtype="string", name="text")
    x = vectorize(text)
    if mode == "int":
        x = layers.GlobalAveragePooling1D()(layers.Embedding(30, 8)(x))
    return keras.Model(text, layers.Dense(2)(x)), [{"text": sentences(5)}, {"text": sentences(1)}]


@model("text")
def text_punctuation() -> tuple[Module, list[Arrays]]:
    """Sentences in lower case, without punctuation, as TextVectorization does by default."""
    return _sentence_model("lower_and_strip_punctuation")


@model("text")
def text_lower() -> tuple[Module, list[Arrays]]:
    return _sentence_model("lower")


@model("text")
def text_tf_idf() -> tuple[Module, list[Arrays]]:
    return _sentence_model(None, "tf_idf")


def _token_model(
    body: Callable[[keras.KerasTensor], keras.KerasTensor], mask: bool = False
) -> tuple[Module, list[Arrays]]:
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    embedded = layers.Embedding(50, 16, mask_zero=mask)(tokens)
    network = keras.Model(tokens, body(embedded))
    return network, [{"tokens": ids(50, 3, 12)}, {"tokens": ids(50, 1, 7)}]


@model("text")
def bidirectional_tagger() -> tuple[Module, list[Arrays]]:
    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        return layers.Dense(5)(layers.Bidirectional(layers.GRU(8, return_sequences=True))(x))

    return _token_model(body)


@model("text")
def masked_sentiment() -> tuple[Module, list[Arrays]]:
    """An LSTM that skips the tokens 0."""
    return _token_model(lambda x: layers.Dense(1, activation="sigmoid")(layers.LSTM(8)(x)), mask=True)


@model("text")
def convolutional_text() -> tuple[Module, list[Arrays]]:
    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        branches = [
            layers.GlobalMaxPooling1D()(layers.Conv1D(8, size, activation="relu")(x)) for size in (2, 3)
        ]
        return layers.Dense(2)(layers.Concatenate()(branches))

    return _token_model(body)


@model("text")
def transformer_encoder() -> tuple[Module, list[Arrays]]:
    """Two layers of attention; padding is masked."""

    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        for _ in range(2):
            attended = layers.MultiHeadAttention(4, 8)(x, x)
            x = layers.LayerNormalization()(layers.Add()([x, attended]))
            x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(16)(layers.Dense(32, "gelu")(x))]))
        return layers.Dense(3)(layers.GlobalAveragePooling1D()(x))

    return _token_model(body, mask=True)


@model("text")
def causal_language_model() -> tuple[Module, list[Arrays]]:
    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        attended = layers.GroupQueryAttention(8, 4, 2)(x, x, use_causal_mask=True)
        return layers.Dense(50)(layers.LayerNormalization()(layers.Add()([x, attended])))

    return _token_model(body)


@model("recommenders")
def two_towers() -> tuple[Module, list[Arrays]]:
    """Users by string, items by number, one score."""
    user = keras.Input((1,), dtype="string", name="user")
    item = keras.Input((1,), dtype="int64", name="item")
    user_id = layers.StringLookup(vocabulary=VOCABULARY)(user)
    item_id = layers.IntegerLookup(vocabulary=[5, 17, 900])(item)
    towers = [
        layers.UnitNormalization()(layers.Dense(8)(layers.Flatten()(layers.Embedding(20, 8)(x))))
        for x in (user_id, item_id)
    ]
    network = keras.Model([user, item], layers.Dot(1)(towers))
    return network, two_calls(lambda n: {"user": words(n, 1), "item": RANDOM.choice([5, 17, 900, 3], (n, 1))})


@model("recommenders")
def dot_interactions() -> tuple[Module, list[Arrays]]:
    """The interactions of DLRM: products of all pairs of embeddings."""
    dense, sparse = keras.Input((4,), name="numbers"), keras.Input((3,), dtype="int32", name="sparse")
    bottom = layers.Reshape((1, 8))(layers.Dense(8, "relu")(dense))
    vectors = layers.Concatenate(1)([bottom, layers.Embedding(40, 8)(sparse)])
    products = layers.Flatten()(layers.Dot(2)([vectors, vectors]))
    network = keras.Model([dense, sparse], layers.Dense(1, "sigmoid")(products))
    return network, two_calls(lambda n: {"numbers": floats(n, 4), "sparse": ids(40, n, 3)})


@model("recommenders")
def wide_and_deep() -> tuple[Module, list[Arrays]]:
    """Buckets of ages and a multi-hot list of categories."""
    age, tags = keras.Input((1,), name="age"), keras.Input((4,), dtype="int32", name="tags")
    buckets = layers.Discretization([18.0, 30.0, 50.0], output_mode="one_hot")(age)
    wide = layers.Concatenate()([buckets, layers.CategoryEncoding(10, "multi_hot")(tags)])
    deep = layers.Dense(8, "relu")(
        layers.Concatenate()([wide, layers.Normalization(mean=30.0, variance=9.0)(age)])
    )
    network = keras.Model([age, tags], layers.Dense(1)(layers.Concatenate()([wide, deep])))
    return network, two_calls(lambda n: {"age": np.abs(floats(n, 1)) * 40, "tags": ids(10, n, 4)})


@model("recommenders")
def hashed_numbers() -> tuple[Module, list[Arrays]]:
    """Identifiers without a vocabulary: hashes of numbers."""
    x = keras.Input((2,), dtype="int64", name="x")
    hashed = layers.Embedding(16, 4)(layers.Hashing(16)(x))
    network = keras.Model(x, layers.Dense(1)(layers.Flatten()(hashed)))
    return network, two_calls(lambda n: {"x": ids(10**6, n, 2, dtype="int64")})


@model("recommenders")
def hashed_strings() -> tuple[Module, list[Arrays]]:
    x = keras.Input((2,), dtype="string", name="x")
    hashed = layers.Embedding(16, 4)(layers.Hashing(16)(x))
    network = keras.Model(x, layers.Dense(1)(layers.Flatten()(hashed)))
    return network, two_calls(lambda n: {"x": words(n, 2)})


@model("recommenders")
def ragged_history() -> tuple[Module, list[Arrays]]:
    """The mean of the embeddings of lists of different lengths."""
    module = tf.Module()
    module.table = tf.Variable(floats(20, 6))
    values, splits = tf.TensorSpec([None], tf.int32, "values"), tf.TensorSpec([None], tf.int64, "splits")

    @tf.function(input_signature=[values, splits])
    def serve(values: tf.Tensor, splits: tf.Tensor) -> dict[str, tf.Tensor]:
        history = tf.RaggedTensor.from_row_splits(values, splits)
        vectors = tf.nn.embedding_lookup(module.table, history)
        return {"mean": tf.reduce_mean(vectors, 1), "padded": history.to_tensor(-1)}

    module.serve = serve
    return module, [
        {"values": ids(20, 7), "splits": np.array([0, 3, 4, 7])},
        {"values": ids(20, 2), "splits": np.array([0, 2])},
    ]


@model("recommenders")
def sparse_embedding() -> tuple[Module, list[Arrays]]:
    """Weighted sums of the embeddings of sparse identifiers; empty rows have the mean of nothing."""
    module = tf.Module()
    module.table = tf.Variable(floats(20, 6))
    indices, values = tf.TensorSpec([None, 2], tf.int64, "indices"), tf.TensorSpec([None], tf.int64, "values")

    @tf.function(input_signature=[indices, values])
    def serve(indices: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        sparse = tf.SparseTensor(indices, values, [4, 5])
        return {"mean": tf.nn.safe_embedding_lookup_sparse(module.table, sparse, combiner="mean")}

    module.serve = serve
    rows = np.array([[0, 0], [0, 3], [2, 1], [3, 0]])
    return module, [
        {"indices": rows, "values": ids(20, 4, dtype="int64")},
        {"indices": rows[:2], "values": rows[1]},
    ]


def _sequence_model(
    body: Callable[[keras.KerasTensor], keras.KerasTensor], length: int | None = None, width: int = 4
) -> tuple[Module, list[Arrays]]:
    x = keras.Input((length, width), name="x")
    network = keras.Model(x, body(x))
    return network, [{"x": floats(3, length or 16, width)}, {"x": floats(1, length or 9, width)}]


@model("time series")
def stacked_lstm() -> tuple[Module, list[Arrays]]:
    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        return layers.Dense(2)(layers.LSTM(8)(layers.LSTM(8, return_sequences=True)(x)))

    return _sequence_model(body)


@model("time series")
def encoder_decoder() -> tuple[Module, list[Arrays]]:
    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        state = layers.RepeatVector(5)(layers.GRU(8)(x))
        decoded = layers.GRU(8, return_sequences=True, reset_after=False)(state)
        return layers.TimeDistributed(layers.Dense(2))(decoded)

    return _sequence_model(body)


@model("time series")
def temporal_convolutions() -> tuple[Module, list[Arrays]]:
    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        for rate in (1, 2, 4):
            gate = layers.Conv1D(8, 3, dilation_rate=rate, padding="causal", activation="sigmoid")(x)
            value = layers.Conv1D(8, 3, dilation_rate=rate, padding="causal", activation="tanh")(x)
            x = layers.Multiply()([gate, value])
        return layers.Conv1D(1, 1)(x)

    return _sequence_model(body)


@model("time series")
def residual_blocks() -> tuple[Module, list[Arrays]]:
    """Stacks of dense layers that forecast what the stack before leaves, as in N-BEATS."""

    def body(x: keras.KerasTensor) -> keras.KerasTensor:
        left, forecasts = layers.Flatten()(x), []
        for _ in range(3):
            hidden = layers.Dense(16, "relu")(left)
            left = layers.Subtract()([left, layers.Dense(12)(hidden)])
            forecasts.append(layers.Dense(4)(hidden))
        return layers.Add()(forecasts)

    return _sequence_model(body, 12, 1)


@model("time series")
def frames_and_states() -> tuple[Module, list[Arrays]]:
    """A ConvLSTM over images."""
    x = keras.Input((None, 8, 8, 2), name="x")
    states = layers.ConvLSTM2D(3, 3, padding="same")(x)
    network = keras.Model(x, layers.Dense(1)(layers.Flatten()(states)))
    return network, [{"x": floats(2, 5, 8, 8, 2)}, {"x": floats(1, 3, 8, 8, 2)}]


@model("time series")
def spectrogram() -> tuple[Module, list[Arrays]]:
    """A classifier of sounds of any length: STFT, mel scale, convolutions."""
    module = tf.Module()
    module.kernel = tf.Variable(floats(3, 3, 1, 4))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, "wave")])
    def serve(wave: tf.Tensor) -> dict[str, tf.Tensor]:
        power = tf.abs(tf.signal.stft(wave, 64, 32, pad_end=True)) ** 2
        mel = tf.signal.linear_to_mel_weight_matrix(10, 33, 8000, 80.0, 3500.0)
        image = tf.math.log(tf.tensordot(power, mel, 1) + 1e-3)[..., None]
        return {"classes": tf.reduce_mean(tf.nn.conv2d(image, module.kernel, 2, "SAME"), [1, 2])}

    module.serve = serve
    return module, [{"wave": floats(2, 400)}, {"wave": floats(1, 333)}]


@model("time series")
def attention_forecast() -> tuple[Module, list[Arrays]]:
    """Values are scaled by their own mean, forecast step by step, and scaled back."""
    module = tf.Module()
    module.weights = tf.Variable(floats(4, 4) * 0.3)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4], tf.float32, "x")])
    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        mean, variance = tf.nn.moments(x, [1], keepdims=True)
        series = (x - mean) * tf.math.rsqrt(variance + 1e-5)
        steps = tf.TensorArray(tf.float32, 6)
        for step in tf.range(6):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(series, tf.TensorShape([None, None, 4]))]
            )
            weights = tf.nn.softmax(tf.matmul(series[:, -1:], series, transpose_b=True))
            value = tf.matmul(weights, series) @ module.weights
            steps = steps.write(step, value[:, 0])
            series = tf.concat([series, value], 1)
        return {"forecast": tf.transpose(steps.stack(), [1, 0, 2]) * tf.sqrt(variance + 1e-5) + mean}

    module.serve = serve
    return module, [{"x": floats(3, 10, 4)}, {"x": floats(1, 5, 4)}]
