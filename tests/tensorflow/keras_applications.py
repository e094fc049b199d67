"""Check seven Keras applications with random weights, from frozen graphs, at several opsets.

    python -m tests.tensorflow.keras_applications make FOLDER [--only NAME ...]
    python -m tests.tensorflow.keras_applications check FOLDER [--only NAME ...] [--opset N ...]

`make` needs TensorFlow and nothing of opsetta. For each application it writes a frozen graph, an image, and
what TensorFlow computes for it. `check` converts the graphs, runs them in onnxruntime, and prints a table:
nodes, Transposes, normalizations left, seconds, and the greatest difference, relative to the greatest result.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
import time
from typing import Any

import numpy as np

SIZES = {
    "MobileNetV2": 96,
    "MobileNetV3Small": 96,
    "EfficientNetB0": 96,
    "DenseNet121": 96,
    "ResNet50V2": 96,
    "InceptionV3": 107,
    "Xception": 97,
}
"""The applications, and the height and width of their images; odd ones make SAME padding asymmetric."""
OPSETS = (9, 11, 13, 15, 18, 21, 24)
TOLERANCE = 1e-4


def _randomized(model: Any, seed: int) -> None:
    """Give every normalization random statistics; Keras begins with those of the identity."""
    random = np.random.default_rng(seed)
    for layer in model.layers:
        if type(layer).__name__ != "BatchNormalization":
            continue
        values = []
        for weight in layer.weights:
            shape = tuple(weight.shape)
            if "variance" in weight.path or "gamma" in weight.path:
                values.append(random.uniform(0.5, 1.5, shape).astype(np.float32))
            else:
                values.append(random.normal(0, 0.2, shape).astype(np.float32))
        layer.set_weights(values)


def make(folder: pathlib.Path, names: list[str]) -> None:
    """Write the frozen graphs, with TensorFlow."""
    import keras  # type: ignore[import-not-found]
    import tensorflow as tf  # type: ignore[import-not-found]
    from tensorflow.python.framework.convert_to_constants import (  # type: ignore[import-not-found]
        convert_variables_to_constants_v2,
    )

    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        size = SIZES[name]
        keras.utils.set_random_seed(number)
        model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=20)
        _randomized(model, number)
        signature = tf.TensorSpec((None, size, size, 3), tf.float32, name="x")
        called = tf.function(lambda x, model=model: model(x, training=False))
        frozen = convert_variables_to_constants_v2(called.get_concrete_function(signature))
        definition = frozen.graph.as_graph_def()
        x = np.random.default_rng(number).uniform(0, 1, (2, size, size, 3)).astype(np.float32)
        result = np.asarray(frozen(tf.constant(x))[0])
        (folder / f"{name}.pb").write_bytes(definition.SerializeToString())
        np.savez(folder / f"{name}.npz", x=x, result=result)
        print(f"{name}: {len(definition.node)} nodes, result of {float(result.std()):.2g}", flush=True)


def judge(folder: pathlib.Path, name: str, opset: int) -> list[str]:
    """One line of the table."""
    import onnx
    import onnxruntime

    import opsetta

    arrays = np.load(folder / f"{name}.npz")
    begin = time.perf_counter()
    program = opsetta.load(folder / f"{name}.pb").lower(opset)
    taken = time.perf_counter() - begin
    target = folder / f"{name}.{opset}.onnx"
    program.save(target)
    onnx.checker.check_model(str(target), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    [result] = session.run(None, {session.get_inputs()[0].name: arrays["x"]})
    target.unlink()
    difference = float(np.abs(result - arrays["result"]).max() / np.abs(arrays["result"]).max())
    counts = collections.Counter(node.op_type for node in program.model.graph)
    norms = counts["BatchNormalization"] + counts["Sqrt"] + counts["Reciprocal"]
    cells = [name, opset, sum(counts.values()), counts["Transpose"], norms, counts["Mul"], counts["Add"]]
    return [*map(str, cells), f"{taken:.2f}", f"{difference:.1e}"]


def check(folder: pathlib.Path, names: list[str], opsets: list[int]) -> bool:
    """Print the table; whether every application agrees."""
    print("| application | opset | nodes | Transpose | normalizations | Mul | Add | seconds | difference |")
    print("|---|" + "---:|" * 8)
    right = True
    for name in names:
        for opset in opsets:
            cells = judge(folder, name, opset)
            right &= float(cells[-1]) < TOLERANCE
            print("| " + " | ".join(cells) + " |", flush=True)
    return right


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("make", "check"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--opset", nargs="*", type=int, default=list(OPSETS))
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder, given.only)
        return 0
    return 0 if check(given.folder, given.only, given.opset) else 1


if __name__ == "__main__":
    sys.exit(main())
