"""Makes tests/data/tensorflow/control_flow: loops and branches of TensorFlow 1 and 2, with their results.

    <python with TensorFlow> make_control_flow.py

Each graph is frozen: `<name>.pb`, and `<name>.npz` with inputs and TensorFlow's results by tensor name. The
graphs of TensorFlow 1 have Enter, Exit, Merge, Switch and TensorArrays; those of TensorFlow 2 have functions.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
FOLDER = pathlib.Path(__file__).resolve().parents[3] / "data" / "tensorflow" / "control_flow"
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 4)).astype(np.float32)
SEQUENCE = RANDOM.standard_normal((2, 5, 4)).astype(np.float32)


def counter(x: tf.Tensor) -> list[tf.Tensor]:
    """A loop whose limit is computed, with an invariant and a variable that is not returned."""
    limit = tf.cast(tf.reduce_sum(tf.ones_like(x)), tf.int32) - 8
    loop = v1.while_loop(
        lambda i, value, unused: i < limit,
        lambda i, value, unused: (i + 1, value * 0.5 + x, unused + tf.cast(i, tf.float32)),
        [tf.constant(0), x, tf.constant(0.0)],
    )
    return [loop[1], tf.identity(loop[0])]


def data_dependent(x: tf.Tensor) -> list[tf.Tensor]:
    """A loop that ends when a value is large enough."""
    return list(
        v1.while_loop(
            lambda value, steps: tf.reduce_sum(value) < 100.0,
            lambda value, steps: (value + tf.abs(x) + 0.1, steps + 2),
            [tf.abs(x), tf.constant(1)],
        )
    )


def nested(x: tf.Tensor) -> list[tf.Tensor]:
    """A loop in a loop, whose number of iterations depends on the outer one."""

    def body(i: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inner = v1.while_loop(lambda j, a: j < i, lambda j, a: (j + 1, a * 1.1 + x), [tf.constant(0), value])
        return i + 1, inner[1] - 1.0

    return list(v1.while_loop(lambda i, value: i < 4, body, [tf.constant(0), x]))


def conditional(x: tf.Tensor) -> list[tf.Tensor]:
    """Branches with several results, one of them constant, in sequence and nested."""
    total = tf.reduce_sum(x)
    first = v1.cond(
        total > 0.0,
        lambda: (x * 2.0, tf.constant(1), v1.cond(total > 5.0, lambda: x + 5.0, lambda: x - 5.0)),
        lambda: (x - 1.0, tf.constant(2), tf.zeros_like(x)),
    )
    second = v1.cond(tf.reduce_max(first[0]) > 1.0, lambda: first[0] + first[2], lambda: first[0])
    return [second, first[1]]


def conditional_in_loop(x: tf.Tensor) -> list[tf.Tensor]:
    """A branch in each iteration."""

    def body(i: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        chosen = v1.cond(tf.equal(i % 2, 0), lambda: value + x, lambda: value * 0.9)
        return i + 1, chosen

    return list(v1.while_loop(lambda i, value: i < 5, body, [tf.constant(0), x]))


def loop_in_conditional(x: tf.Tensor) -> list[tf.Tensor]:
    """A loop in one branch only."""
    return [
        v1.cond(
            tf.reduce_sum(x) > 0.0,
            lambda: v1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + x), [tf.constant(0), x])[1],
            lambda: x * 3.0,
        )
    ]


def several_cases(x: tf.Tensor) -> list[tf.Tensor]:
    """A number chooses among branches."""
    number = tf.cast(tf.round(tf.reduce_sum(x)), tf.int32)
    branches = [lambda: x + 1.0, lambda: x * 2.0, lambda: -x]
    return [tf.switch_case(number, branches)]


def arrays(x: tf.Tensor) -> list[tf.Tensor]:
    """Arrays that a loop reads and writes, one of them backwards."""
    rows = tf.shape(x)[0]
    read = tf.TensorArray(tf.float32, size=rows).unstack(x)
    made = tf.TensorArray(tf.float32, size=rows)
    back = tf.TensorArray(tf.float32, size=rows)

    def body(i, made, back, state):
        state = state * 0.5 + read.read(i)
        return i + 1, made.write(i, state), back.write(rows - i - 1, state * 2.0), state

    loop = v1.while_loop(lambda i, *rest: i < rows, body, [tf.constant(0), made, back, tf.zeros_like(x[0])])
    return [loop[1].stack(), loop[2].stack(), loop[1].size(), loop[3]]


def growing(x: tf.Tensor) -> list[tf.Tensor]:
    """An array of dynamic size, to which a loop appends while a condition holds."""
    made = tf.TensorArray(tf.float32, size=0, dynamic_size=True)

    def body(i, made, value):
        return i + 1, made.write(i, value), value + tf.abs(x[0])

    loop = v1.while_loop(
        lambda i, made, value: tf.reduce_sum(value) < 20.0, body, [tf.constant(0), made, tf.abs(x[0]) + 0.5]
    )
    return [loop[1].stack(), loop[0]]


def map_and_scan(x: tf.Tensor) -> list[tf.Tensor]:
    """map_fn and scan."""
    mapped = tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)
    return [mapped, tf.scan(lambda total, row: total + row, x)]


def ragged_rows(x: tf.Tensor) -> list[tf.Tensor]:
    """Results for each row of ragged tensors with one and with two ragged dimensions."""
    splits = tf.cast(tf.stack([0, 3, 3, tf.size(x)]), tf.int64)
    rows = tf.RaggedTensor.from_row_splits(tf.reshape(x, [-1]), splits)
    nested = tf.RaggedTensor.from_row_splits(rows, tf.cast(tf.stack([0, 1, tf.size(splits) - 1]), tf.int64))
    sums = tf.map_fn(tf.reduce_sum, rows, fn_output_signature=tf.float32)
    return [sums, tf.map_fn(lambda row: tf.reduce_sum(row, 1)[-1], nested, fn_output_signature=tf.float32)]


def dynamic_rnn(x: tf.Tensor) -> list[tf.Tensor]:
    """An LSTM of TensorFlow 1 with the lengths of its sequences, written with its own operators."""
    units = 3
    kernel = tf.constant(RANDOM.standard_normal((4 + units, 4 * units)).astype(np.float32) * 0.5)
    bias = tf.constant(RANDOM.standard_normal(4 * units).astype(np.float32))
    lengths = tf.constant([5, 3])
    time_major = tf.transpose(x, [1, 0, 2])
    steps, batch = tf.shape(time_major)[0], tf.shape(time_major)[1]
    read = tf.TensorArray(tf.float32, size=steps, element_shape=[None, 4]).unstack(time_major)
    made = tf.TensorArray(tf.float32, size=steps, element_shape=[None, units])
    zeros = tf.zeros([batch, units])

    def body(time, made, c, h):
        gates = tf.matmul(tf.concat([read.read(time), h], 1), kernel) + bias
        i, j, f, o = tf.split(gates, 4, axis=1)
        new_c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        done = tf.greater_equal(time, lengths)[:, None]
        output = tf.where(done, tf.zeros_like(new_h), new_h)
        return time + 1, made.write(time, output), tf.where(done, c, new_c), tf.where(done, h, new_h)

    loop = v1.while_loop(lambda time, *rest: time < steps, body, [tf.constant(0), made, zeros, zeros])
    return [tf.transpose(loop[1].stack(), [1, 0, 2]), loop[2], loop[3]]


CASES: dict[str, tuple[Callable[[tf.Tensor], list[tf.Tensor]], np.ndarray]] = {
    "counter": (counter, X),
    "data_dependent": (data_dependent, X),
    "nested": (nested, X),
    "conditional": (conditional, X),
    "conditional_in_loop": (conditional_in_loop, X),
    "loop_in_conditional": (loop_in_conditional, X),
    "several_cases": (several_cases, X),
    "arrays": (arrays, X),
    "growing": (growing, X),
    "map_and_scan": (map_and_scan, X),
    "ragged_rows": (ragged_rows, X),
    "dynamic_rnn": (dynamic_rnn, SEQUENCE),
}


def make(name: str, build: Callable[[tf.Tensor], list[tf.Tensor]], example: np.ndarray, version: int) -> None:
    """Write one graph and its results on the example and on its negative."""
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    graph = tf.Graph()
    with graph.as_default():
        # The first size varies: loops must not rely on it.
        x = v1.placeholder(tf.float32, [None, *example.shape[1:]], name="x")
        outputs = [tf.identity(value, name=f"out_{index}") for index, value in enumerate(build(x))]
    found: dict[str, np.ndarray] = {}
    with v1.Session(graph=graph) as session:
        for number, fed in enumerate((example, -example)):
            found[f"in_{number}"] = fed
            for output, value in zip(outputs, session.run(outputs, {x: fed}), strict=True):
                found[f"{output.op.name}:{number}"] = value
    definition = v1.graph_util.extract_sub_graph(graph.as_graph_def(), [o.op.name for o in outputs])
    if version == 2:
        definition.library.CopyFrom(graph.as_graph_def().library)
    for node in definition.node:
        node.ClearField("experimental_debug_info")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}_{version}.pb").write_bytes(definition.SerializeToString(deterministic=True))
    np.savez_compressed(FOLDER / f"{name}_{version}.npz", **found)


if __name__ == "__main__":
    for name, (build, example) in CASES.items():
        # Lists of variants are read in functions only.
        for version in (2,) if build is ragged_rows else (1, 2):
            make(name, build, example, version)
