"""Write the graphs with checkpoints of tests/data/tensorflow/freezing, and what TensorFlow computes.

    python tests/exporter/capture/tensorflow/make_checkpoints.py [FOLDER]

It needs TensorFlow; 2.21 made the files that are committed. Each case is a folder with graph.pb (or a
SavedModel), a checkpoint model.ckpt, and io.npz: inputs and outputs by the names of their tensors.
TensorFlow 2.21 also made the case `adam`, a larger graph of training, and tests/data/tensorflow/checkpoints.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
TARGET = pathlib.Path(__file__).parents[3] / "data" / "tensorflow" / "freezing"


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


def write_session(folder: pathlib.Path, session, saver, feeds, fetches, more=None) -> None:
    """Write the graph of a session, its checkpoint, and what it computes."""
    folder.mkdir(parents=True, exist_ok=True)
    saver.save(session, str(folder / "model.ckpt"), write_meta_graph=False, write_state=False)
    (folder / "graph.pb").write_bytes(session.graph.as_graph_def().SerializeToString())
    found = session.run(fetches, feeds)
    held = {f"in:{tensor.op.name}": value for tensor, value in feeds.items()}
    held |= {f"out:{tensor.op.name}": value for tensor, value in zip(fetches, found, strict=True)}
    np.savez(folder / "io.npz", **held, **(more or {}))


def training(folder: pathlib.Path, *, resources: bool) -> None:
    """Batch normalization and dropout by a flag, with branches of TensorFlow 1, and training with Adam."""
    with tf.Graph().as_default(), v1.variable_scope("net", use_resource=resources):
        x = v1.placeholder(tf.float32, [None, 6], "x")
        training = v1.placeholder_with_default(False, [], "training")
        keep = v1.placeholder_with_default(1.0, [], "keep_prob")
        w = v1.get_variable("w", initializer=values(6, 5), partitioner=None)
        split = v1.get_variable(
            "split",
            [5, 3],
            initializer=v1.random_normal_initializer(seed=1),
            partitioner=v1.fixed_size_partitioner(2),
        )
        mean = v1.get_variable("mean", initializer=values(5), trainable=False)
        hidden = tf.nn.relu(tf.matmul(x, w))
        batch = tf.reduce_mean(hidden, axis=0)

        def trained():
            with tf.control_dependencies([v1.assign(mean, 0.9 * mean + 0.1 * batch)]):
                return tf.identity(batch)

        used = v1.cond(training, trained, lambda: tf.identity(mean))
        hidden = v1.nn.dropout(hidden - used, keep_prob=keep)
        hidden = v1.nn.dropout(hidden, rate=1 - keep)
        with tf.control_dependencies([v1.assert_less(tf.reduce_max(tf.abs(hidden)), 1e9)]):
            hidden = v1.Print(hidden, [hidden], "hidden")
        logits = tf.identity(tf.matmul(hidden, tf.concat(list(split), axis=0)), "logits")
        loss = tf.reduce_mean(tf.square(logits))
        v1.summary.scalar("loss", loss)
        v1.train.AdamOptimizer().minimize(loss, global_step=v1.train.get_or_create_global_step())
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            write_session(
                folder, session, saver, {x: values(3, 6)}, [session.graph.get_tensor_by_name("net/logits:0")]
            )


def loop(folder: pathlib.Path, *, resources: bool) -> None:
    """A loop and a branch of TensorFlow 1 that depend on data, and read variables inside."""
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=resources):
        x = v1.placeholder(tf.float32, [None, 4], "x")
        w = v1.get_variable("w", initializer=values(4, 4))
        steps = v1.get_variable("steps", initializer=np.int32(3), trainable=False)
        counter = v1.get_variable("counter", initializer=np.int32(0), trainable=False)

        def body(step, state):
            with tf.control_dependencies([v1.assert_less(step, 100), v1.assign_add(counter, 1)]):
                return step + 1, tf.tanh(tf.matmul(state, w)) + v1.constant(0.5)

        _, state = v1.while_loop(lambda step, state: step < steps, body, [v1.constant(0), x])
        chosen = v1.cond(tf.reduce_sum(state) > 0, lambda: state * v1.constant(2.0), lambda: state @ w)
        y = tf.identity(chosen, "y")
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            write_session(folder, session, saver, {x: values(2, 4)}, [y])


def average(folder: pathlib.Path) -> None:
    """Moving averages: the checkpoint has two values of a variable, and the graph two savers."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 4], "x")
        w = v1.get_variable("w", initializer=values(4, 4), use_resource=False)
        y = tf.matmul(x, w, name="y")
        average = tf.train.ExponentialMovingAverage(0.5)
        apply = average.apply([w])
        saver = v1.train.Saver()
        v1.train.Saver(average.variables_to_restore())
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(v1.assign(w, values(4, 4, seed=5)))
            session.run(apply)
            more = {"average": session.run(average.average(w))}
            write_session(folder, session, saver, {x: values(2, 4)}, [y], more)


class Module(tf.Module):
    """Two variables with one name, a table that is gathered from, a loop, a branch, and calls in calls."""

    def __init__(self):
        super().__init__()
        self.first = tf.Variable(values(4, 3), name="w")
        self.second = tf.Variable(values(4, 3, seed=1), name="w")
        self.table = tf.Variable(values(7, 4), name="table")
        self.steps = tf.Variable(3, name="steps")
        self.words = tf.Variable(["a", "b"], name="words")

    @tf.function
    def row(self, index, training):
        if training:
            return tf.nn.dropout(self.table[index], 0.5)
        return self.second[index] * 2.0

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="indices")])
    def __call__(self, indices):
        y = tf.matmul(tf.gather(self.table, indices), self.first)
        step = tf.constant(0)
        tf.debugging.assert_less(tf.shape(indices)[0], 1000)

        def body(step, y):
            return step + 1, y + tf.reduce_mean(self.second, axis=0)

        _, y = tf.while_loop(lambda step, y: step < self.steps, body, [step, y])
        y = tf.cond(tf.reduce_sum(y) > 0, lambda: y + self.first[0], lambda: y - self.second[1])
        return {"y": y + self.row(2, tf.constant(False)), "n": tf.shape(y)[0]}


def saved_model(folder: pathlib.Path) -> None:
    """A SavedModel of functions."""
    module = Module()
    options = tf.saved_model.SaveOptions(save_debug_info=False)
    tf.saved_model.save(module, str(folder), signatures=module.__call__, options=options)
    shutil.rmtree(folder / "assets", ignore_errors=True)
    (folder / "fingerprint.pb").unlink(missing_ok=True)
    indices = np.array([1, 6, 0], np.int32)
    found = module(indices)
    held = {f"out:{name}": value.numpy() for name, value in found.items()}
    variables = {name: getattr(module, name).numpy() for name in ("first", "second", "table", "steps")}
    np.savez(folder / "io.npz", **{"in:indices": indices}, **held, **variables)


def main(target: pathlib.Path) -> None:
    v1.disable_control_flow_v2()
    training(target / "training", resources=False)
    training(target / "training_resources", resources=True)
    loop(target / "loop", resources=False)
    loop(target / "loop_resources", resources=True)
    average(target / "average")
    v1.enable_control_flow_v2()
    saved_model(target / "saved_model")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
