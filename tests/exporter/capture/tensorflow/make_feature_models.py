"""Write feature_models.tar.xz: SavedModels with parsed examples, tables and strings, and what they compute.

    python tests/exporter/capture/tensorflow/make_feature_models.py

It needs TensorFlow; 2.21 with Keras 3.15 made the file that is committed. `expected.json` has the inputs and
outputs of each model.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tarfile
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

TARGET = pathlib.Path(__file__).parents[3] / "data" / "tensorflow" / "feature_models.tar.xz"
V1 = tf.compat.v1
OPTIONS = tf.saved_model.SaveOptions(save_debug_info=False)
TEXT = tf.TensorSpec([None], tf.string, name="x")
Calls = dict[str, tuple[dict[str, Any], dict[str, Any]]]


def _listed(tensors: dict[str, Any]) -> dict[str, list[Any]]:
    """Tensors as lists: the element type, the shape, the elements."""
    lists = {}
    for name, tensor in tensors.items():
        array = tensor.numpy() if hasattr(tensor, "numpy") else np.asarray(tensor)
        elements = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
        dtype = "object" if array.dtype.kind in "OSU" else array.dtype.name
        lists[name] = [dtype, list(array.shape), elements]
    return lists


def _save(folder: pathlib.Path, module: tf.Module, function: Any) -> None:
    tf.saved_model.save(module, str(folder), signatures=function, options=OPTIONS)


def tables(folder: pathlib.Path) -> Calls:
    """A table of tensors, read by a table with a value for each key, in a loop and a branch."""
    module = tf.Module()
    module.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    strings = tf.constant(["a", "b"])
    to_ids = tf.lookup.KeyValueTensorInitializer(strings, tf.constant([0, 1], tf.int64))
    module.ids = tf.lookup.StaticHashTable(to_ids, 2)
    scores = tf.lookup.KeyValueTensorInitializer(tf.constant([7, -3, 40], tf.int64), tf.constant([0.5, 1, 2]))
    module.scores = tf.lookup.StaticHashTable(scores, -1.0)

    @tf.function(input_signature=[TEXT, tf.TensorSpec([None], tf.int64, name="k")])
    def call(x: tf.Tensor, k: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.gather(module.weights, module.ids.lookup(x))
        # The condition is computed, so the table is read within a branch.
        if tf.reduce_sum(k) > 0:  # noqa: SIM108, AutoGraph converts statements.
            chosen = module.scores.lookup(k)
        else:
            chosen = tf.zeros_like(k, tf.float32)
        return {"rows": rows, "scores": chosen, "size": module.ids.size()}

    module.call = call
    _save(folder, module, call.get_concrete_function())
    given = {"x": tf.constant(["a", "z", "b"]), "k": tf.constant([7, 8, 40, -3], tf.int64)}
    return {"tables": (given, call(**given))}


def assets(folder: pathlib.Path) -> Calls:
    """Tables of a text file: words to their lines, lines to words, one column to another."""
    words, pairs = folder.parent / "words.txt", folder.parent / "pairs.tsv"
    words.write_text("cat\ndog\nfish\n")
    pairs.write_text("cat\t10\ndog\t20\n")
    whole, line = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    module = tf.Module()
    to_lines = tf.lookup.TextFileInitializer(str(words), tf.string, whole, tf.int64, line)
    module.lines = tf.lookup.StaticVocabularyTable(to_lines, 1)
    to_words = tf.lookup.TextFileInitializer(str(words), tf.int64, line, tf.string, whole)
    module.words = tf.lookup.StaticHashTable(to_words, "none")
    columns = tf.lookup.TextFileInitializer(str(pairs), tf.string, 0, tf.int64, 1, delimiter="\t")
    module.pairs = tf.lookup.StaticHashTable(columns, -1)

    @tf.function(input_signature=[TEXT])
    def call(x: tf.Tensor) -> dict[str, tf.Tensor]:
        lines = module.lines.lookup(x)
        return {"lines": lines, "words": module.words.lookup(lines), "pairs": module.pairs.lookup(x)}

    module.call = call
    _save(folder, module, call.get_concrete_function())
    given = {"x": tf.constant(["cat", "fish", "zebra", "dog"])}
    return {"assets": (given, call(**given))}


def learned(folder: pathlib.Path) -> Calls:
    """A table whose contents are in the checkpoint."""
    module = tf.Module()
    module.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    module.table.insert(tf.constant(["x", "y"]), tf.constant([5, 6], tf.int64))

    @tf.function(input_signature=[TEXT])
    def call(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"ids": module.table.lookup(x)}

    module.call = call
    _save(folder, module, call.get_concrete_function())
    given = {"x": tf.constant(["y", "z", "x"])}
    return {"learned": (given, call(**given))}


def text(folder: pathlib.Path) -> Calls:
    """A Keras model of sentences."""
    vectorize = keras.layers.TextVectorization(
        20, standardize="lower", output_sequence_length=6, vocabulary=["hello", "world", "the"]
    )
    inputs = keras.Input((1,), dtype="string", name="text")
    embedded = keras.layers.Embedding(20, 3)(vectorize(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(embedded)))
    model.export(str(folder), verbose=False)
    sentences = [["Hello the world"], ["x  the"], [""], ["the the the hello world hello the"]]
    given = {"text": tf.constant(sentences)}
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return {"text": (given, serve(**given))}


def parsed(folder: pathlib.Path) -> Calls:
    """Dense, sparse and ragged features within a function."""
    features = {
        "age": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0]),
        "income": tf.io.FixedLenFeature([2], tf.float32),
        "tags": tf.io.VarLenFeature(tf.int64),
        "steps": tf.io.RaggedFeature(tf.float32),
    }
    module = tf.Module()
    module.weights = tf.Variable([[1.0], [2.0], [3.0]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def call(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return compute(tf.io.parse_example(examples, features))

    def compute(values: dict[str, Any]) -> dict[str, tf.Tensor]:
        score = tf.concat([values["age"], values["income"]], 1) @ module.weights
        steps = values["steps"].to_tensor()
        return {"score": score, "tags": tf.sparse.to_dense(values["tags"]), "steps": steps}

    module.call = call
    _save(folder, module, call.get_concrete_function())
    examples = [
        _example(age=[3.0], income=[1.0, 2.0], tags=[4, 5], steps=[0.5]),
        _example(income=[0.0, -1.0], tags=[], steps=[1.0, 2.0, 3.0]),
    ]
    given = tf.io.parse_example(examples, features)
    return {"parsed": (_parts(given), call(tf.constant(examples)))}


def _example(**features: list[Any]) -> bytes:
    message = tf.train.Example()
    for name, items in features.items():
        for item in items:
            feature = message.features.feature[name]
            if isinstance(item, float):
                feature.float_list.value.append(item)
            elif isinstance(item, str):
                feature.bytes_list.value.append(item.encode())
            else:
                feature.int64_list.value.append(item)
    return message.SerializeToString()


def _parts(features: dict[str, Any]) -> dict[str, Any]:
    """The parts of features by the names of the converted model's inputs."""
    parts = {}
    for name, item in features.items():
        if isinstance(item, tf.SparseTensor):
            parts |= {f"{name}/{part}": getattr(item, part) for part in ("indices", "values", "dense_shape")}
        elif isinstance(item, tf.RaggedTensor):
            parts |= {f"{name}/values": item.values, f"{name}/row_splits": item.row_splits}
        else:
            parts[name] = item
    return parts


def columns(folder: pathlib.Path) -> Calls:
    """Feature columns of TensorFlow 1, as estimators save them."""
    features = {
        "age": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0]),
        "job": tf.io.VarLenFeature(tf.string),
        "city": tf.io.VarLenFeature(tf.int64),
    }
    with tf.Graph().as_default(), V1.Session() as session:
        V1.set_random_seed(1)
        examples = V1.placeholder(tf.string, [None], "input_example_tensor")
        column = tf.feature_column
        job = column.categorical_column_with_vocabulary_list("job", ["a", "b", "c"])
        chosen = [
            column.bucketized_column(column.numeric_column("age"), [18, 30, 60]),
            column.indicator_column(job),
            column.embedding_column(column.categorical_column_with_identity("city", 10), 4),
        ]
        inputs = V1.feature_column.input_layer(V1.parse_example(examples, features), chosen)
        weights = V1.get_variable("w", [inputs.shape[1], 3])
        scores = tf.nn.softmax(tf.matmul(inputs, weights))
        names = tf.expand_dims(tf.strings.as_string(tf.range(3)), 0)
        classes = tf.tile(names, [tf.shape(scores)[0], 1])
        session.run([V1.global_variables_initializer(), V1.tables_initializer()])
        builder = V1.saved_model.Builder(str(folder))
        signature = V1.saved_model.classification_signature_def(examples, classes, scores)
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=V1.tables_initializer()
        )
        builder.save()
        messages = [
            _example(age=[20.0], job=["a", "c"], city=[1, 4]),
            _example(job=[], city=[]),
            _example(age=[70.0], job=["z"], city=[9]),
        ]
        results = session.run({"classes": classes, "scores": scores}, {examples: messages})
    return {"columns": (_parts(tf.io.parse_example(messages, features)), results)}


def main() -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        expected: dict[str, Any] = {}
        for make in (tables, assets, learned, text, parsed, columns):
            for model, (given, results) in make(root / make.__name__).items():
                expected[model] = [_listed(given), _listed(results)]
        (root / "expected.json").write_text(json.dumps(expected))
        for path in [root / "words.txt", root / "pairs.tsv", *root.glob("*/fingerprint.pb")]:
            path.unlink()
        for path in root.glob("*/assets"):
            if not any(path.iterdir()):
                shutil.rmtree(path)
        with tarfile.open(TARGET, "w:xz") as archive:
            for path in sorted(root.iterdir()):
                archive.add(path, path.name)


if __name__ == "__main__":
    main()
