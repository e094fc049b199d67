"""Makes tests/data/tensorflow/recurrent: frozen layers of Keras and TensorFlow 1, with their results.

    <python with TensorFlow> make_recurrent.py [NAME ...]

`<name>.npz` holds the graph, its inputs, and TensorFlow's results by
tensor name; those of its changed copies, see `recurrent_changes`, are named after the change. Graphs whose
names end in `_1` or `_lowered` have the control flow of TensorFlow 1, the others have functions.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np
import tensorflow as tf
from recurrent_changes import CHANGED, changed
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.keras.layers import recurrent as keras_2
from tensorflow.python.keras.layers.legacy_rnn import rnn_cell_impl as cells

v1 = tf.compat.v1
layers = keras.layers
FOLDER = pathlib.Path(__file__).resolve().parents[3] / "data" / "tensorflow" / "recurrent"
RANDOM = np.random.default_rng(0)
UNITS, FEATURES = 3, 2
X = tf.TensorSpec((None, 4, FEATURES), name="x")
LONG = TIME_MAJOR = tf.TensorSpec((None, None, FEATURES), name="x")
STATE, OTHER = (tf.TensorSpec((None, UNITS), name=name) for name in ("h", "c"))
Model = Callable[..., Any]


def _typed(dtype: tf.DType) -> tf.TensorSpec:
    return tf.TensorSpec(X.shape, dtype, name="x")


def _randomized(layer: Any) -> Any:
    """A layer that gives every weight random values when it is called first."""

    def call(*given: Any, **options: Any) -> Any:
        if not layer.built:
            layer(*given, **options)
            layer.set_weights(
                [RANDOM.normal(0, 0.6, weight.shape).astype(np.float32) for weight in layer.get_weights()]
            )
        return layer(*given, **options)

    return call


def _applied(*stack: Any) -> Model:
    made = [_randomized(layer) for layer in stack]

    def call(x: Any) -> Any:
        for layer in made:
            x = layer(x)
        return x

    return call


def _with_states(layer: Any) -> Model:
    made = _randomized(layer)
    return lambda x, *states: made(x, initial_state=list(states))


def _dynamic(make: Callable[[], Any], **options: Any) -> Model:
    """A cell of TensorFlow 1 in dynamic_rnn."""
    cell = make()

    def call(x: Any) -> Any:
        outputs, states = v1.nn.dynamic_rnn(cell, x, dtype=tf.float32, **options)
        return [outputs, *tf.nest.flatten(states)]

    return call


def _both_directions(x: Any) -> Any:
    outputs, states = v1.nn.bidirectional_dynamic_rnn(
        cells.GRUCell(UNITS), cells.BasicLSTMCell(UNITS), x, dtype=tf.float32
    )
    return [*outputs, *tf.nest.flatten(states)]


_SEQUENCES = {"return_sequences": True}
_ALL = {"return_sequences": True, "return_state": True}
KERAS: dict[str, tuple[Callable[[], Model], list[Any]]] = {
    "lstm": (lambda: _applied(layers.LSTM(UNITS, **_ALL)), [X]),
    "lstm_last": (lambda: _applied(layers.LSTM(UNITS)), [LONG]),
    "lstm_states": (lambda: _with_states(layers.LSTM(UNITS, **_ALL)), [LONG, STATE, OTHER]),
    "lstm_options": (
        lambda: _applied(
            layers.LSTM(
                UNITS,
                activation="relu",
                recurrent_activation="hard_sigmoid",
                use_bias=False,
                go_backwards=True,
                **_SEQUENCES,
            )
        ),
        [LONG],
    ),
    "lstm_backwards": (lambda: _applied(layers.LSTM(UNITS, go_backwards=True, return_state=True)), [X]),
    "lstm_linear": (
        lambda: _applied(layers.LSTM(UNITS, activation="linear", recurrent_activation="softsign")),
        [X],
    ),
    "gru": (lambda: _applied(layers.GRU(UNITS, **_ALL)), [LONG]),
    "gru_states": (lambda: _with_states(layers.GRU(UNITS, return_state=True)), [X, STATE]),
    "gru_before": (lambda: _applied(layers.GRU(UNITS, reset_after=False, **_ALL)), [LONG]),
    "gru_options": (
        lambda: _applied(
            layers.GRU(
                UNITS,
                activation="elu",
                recurrent_activation="hard_sigmoid",
                use_bias=False,
                go_backwards=True,
                **_SEQUENCES,
            )
        ),
        [X],
    ),
    "gru_before_without_bias": (
        lambda: _applied(layers.GRU(UNITS, reset_after=False, use_bias=False, **_SEQUENCES)),
        [X],
    ),
    "simple": (lambda: _applied(layers.SimpleRNN(UNITS, **_ALL)), [LONG]),
    "simple_options": (
        lambda: _applied(layers.SimpleRNN(UNITS, activation="leaky_relu", use_bias=False, go_backwards=True)),
        [X],
    ),
    "simple_linear": (lambda: _applied(layers.SimpleRNN(UNITS, activation=None, **_SEQUENCES)), [X]),
    "bidirectional": (
        lambda: _applied(layers.Bidirectional(layers.LSTM(UNITS, **_SEQUENCES))),
        [LONG],
    ),
    "bidirectional_last": (lambda: _applied(layers.Bidirectional(layers.GRU(UNITS))), [X]),
    "stacked": (
        lambda: _applied(
            layers.LSTM(UNITS, **_SEQUENCES),
            layers.GRU(UNITS, **_SEQUENCES),
            layers.SimpleRNN(UNITS, activation="relu"),
        ),
        [LONG],
    ),
    "unrolled": (lambda: _applied(layers.LSTM(UNITS, unroll=True)), [X]),
    "masked": (lambda: _applied(layers.Masking(), layers.LSTM(UNITS, **_SEQUENCES)), [X]),
    "convolutional": (
        lambda: _applied(layers.ConvLSTM1D(UNITS, 2, padding="same")),
        [tf.TensorSpec((None, 4, 3, FEATURES), name="x")],
    ),
    "two_lstms": (
        lambda: _applied(layers.RNN([layers.LSTMCell(UNITS), layers.LSTMCell(UNITS)], **_SEQUENCES)),
        [X],
    ),
    "keras_2_lstm": (lambda: _applied(keras_2.LSTM(UNITS, implementation=2, **_ALL)), [LONG]),
    "keras_2_lstm_gate_by_gate": (
        lambda: _applied(keras_2.LSTM(UNITS, implementation=1, recurrent_activation="hard_sigmoid")),
        [X],
    ),
    "keras_2_gru": (
        lambda: _applied(keras_2.GRU(UNITS, implementation=2, reset_after=True, **_ALL)),
        [LONG],
    ),
    "keras_2_gru_gate_by_gate": (
        lambda: _applied(keras_2.GRU(UNITS, implementation=1, **_SEQUENCES)),
        [X],
    ),
    "lstm_double": (lambda: _applied(layers.LSTM(UNITS, dtype="float64")), [_typed(tf.float64)]),
    "gru_half": (lambda: _applied(layers.GRU(UNITS, dtype="float16")), [_typed(tf.float16)]),
    "keras_2_time_major": (lambda: _applied(keras_2.LSTM(UNITS, time_major=True, **_ALL)), [TIME_MAJOR]),
}
TENSORFLOW_1: dict[str, tuple[Callable[[], Model], list[Any]]] = {
    "basic_lstm": (lambda: _dynamic(lambda: cells.BasicLSTMCell(UNITS)), [LONG]),
    "basic_lstm_time_major": (
        lambda: _dynamic(lambda: cells.BasicLSTMCell(UNITS, forget_bias=0.5), time_major=True),
        [TIME_MAJOR],
    ),
    "peephole_lstm": (lambda: _dynamic(lambda: cells.LSTMCell(UNITS, use_peepholes=True)), [X]),
    "projected_lstm": (lambda: _dynamic(lambda: cells.LSTMCell(UNITS, num_proj=2)), [X]),
    "clipped_lstm": (lambda: _dynamic(lambda: cells.LSTMCell(UNITS, cell_clip=0.3)), [X]),
    "gru_cell": (lambda: _dynamic(lambda: cells.GRUCell(UNITS)), [LONG]),
    "basic_rnn": (lambda: _dynamic(lambda: cells.BasicRNNCell(UNITS)), [LONG]),
    "lengths": (
        lambda: _dynamic(lambda: cells.BasicLSTMCell(UNITS), sequence_length=tf.constant([4, 2])),
        [X],
    ),
    "both_directions": (lambda: _both_directions, [LONG]),
}


LOWERED = ("lstm", "lstm_options", "gru", "gru_before", "simple", "bidirectional")
"""The Keras layers that are also stored with the control flow of TensorFlow 1."""


def _fed(specifications: list[Any], number: int) -> dict[str, np.ndarray]:
    """Values for the inputs; a size that varies is another in each."""
    sizes = [(2, 4), (2, 1)] if len(specifications) == 1 else [(2, 4), (3, 5)]
    found = {}
    for each in specifications:
        shape = [
            sizes[number][place] if size is None else size for place, size in enumerate(each.shape.as_list())
        ]
        found[each.name] = RANDOM.standard_normal(shape).astype(each.dtype.as_numpy_dtype)
    return found


def _keras(model: Model, specifications: list[Any], lowered: bool) -> tuple[Any, list[str]]:
    """The graph of a model with functions, or in lowered form, and the names of its results."""

    # Keras sets weights eagerly only.
    model(
        *[
            tf.zeros([1 if size is None else size for size in each.shape], each.dtype)
            for each in specifications
        ]
    )

    @tf.function(autograph=False)
    def called(*given: Any) -> Any:
        return [tf.identity(item) for item in tf.nest.flatten(model(*given))]

    function = called.get_concrete_function(*specifications)
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=lowered)
    return frozen.graph.as_graph_def(), [value.name for value in frozen.outputs]


def _tensorflow_1(
    make: Callable[[], Model], specifications: list[Any], version: int
) -> tuple[Any, list[str]]:
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        v1.disable_resource_variables()
        places = [v1.placeholder(each.dtype, each.shape, name=each.name) for each in specifications]
        results = [tf.identity(item, name=f"out_{at}") for at, item in enumerate(make()(*places))]
        for variable in v1.global_variables():
            session.run(variable.assign(RANDOM.normal(0, 0.6, variable.shape.as_list()).astype(np.float32)))
        names = [value.name for value in results]
        held = [name.partition(":")[0] for name in names]
        return v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), held), names


def _results(definition: Any, names: list[str], fed: dict[str, np.ndarray]) -> list[np.ndarray]:
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")
    with v1.Session(graph=graph) as session:
        return session.run(names, {f"{name}:0": array for name, array in fed.items()})


def write(name: str, definition: Any, names: list[str], specifications: list[Any]) -> None:
    """Write a graph, and its results for two sets of inputs; those of changed copies for the first."""
    for node in [*definition.node, *(n for f in definition.library.function for n in f.node_def)]:
        node.ClearField("experimental_debug_info")
        node.attr.pop("_class", None)
    graph = np.frombuffer(definition.SerializeToString(deterministic=True), dtype=np.uint8)
    found: dict[str, np.ndarray] = {"graph": graph, "outputs": np.array(names)}
    for number in range(2):
        fed = _fed(specifications, number)
        found |= {f"in:{key}:{number}": array for key, array in fed.items()}
        for output, array in zip(names, _results(definition, names, fed), strict=True):
            found[f"out:{output}:{number}"] = array
        for change, copy in changed(definition) if name in CHANGED and number == 0 else ():
            for output, array in zip(names, _results(copy, names, fed), strict=True):
                found[f"{change}:{output}"] = array
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(FOLDER / f"{name}.npz", **found)
    print(f"{name}: {len(definition.node)} nodes, {(FOLDER / name).with_suffix('.npz').stat().st_size} bytes")


def main() -> None:
    """Write the graphs whose names are given, or all of them."""
    chosen = sys.argv[1:]
    for name, (make, specifications) in KERAS.items():
        if not chosen or name in chosen:
            keras.utils.set_random_seed(0)
            model = make()
            write(name, *_keras(model, specifications, False), specifications)
            if name in LOWERED:
                write(f"{name}_lowered", *_keras(model, specifications, True), specifications)
    for name, (make, specifications) in TENSORFLOW_1.items():
        for version in (1, 2):
            if not chosen or name in chosen:
                graph, names = _tensorflow_1(make, specifications, version)
                write(f"{name}_{version}", graph, names, specifications)


if __name__ == "__main__":
    main()
