"""The part of `tensorflow_models.py` that needs TensorFlow: it writes models, and converts them with tf2onnx.

    python benchmarks/tensorflow_peer.py make FOLDER [--only NAME ...]
    python benchmarks/tensorflow_peer.py convert FOLDER --opsets 13 18 [--only NAME ...]
    python benchmarks/tensorflow_peer.py large FOLDER --megabytes N

`make` writes a SavedModel for each name, and `call0.npz` and `call1.npz` in its folder with the inputs and
the results of two calls. `convert` writes `tf2onnx-13.onnx` and `tf2onnx-13.json` beside them. The script
imports nothing of opsetta.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf


def _plain(array: np.ndarray) -> np.ndarray:
    """Strings as numpy's own type, which files hold without pickle."""
    if array.dtype != object:
        return array
    texts = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1)]
    return np.array(texts, str).reshape(array.shape)


def make(folder: pathlib.Path, only: list[str]) -> None:
    """Write the models that do not stand in the folder yet, and what they compute."""
    import keras
    import tensorflow_detection_models  # noqa: F401, it registers its models.
    from tensorflow_saved_models import MODELS

    groups = {name: group for name, (group, _) in MODELS.items()}
    (folder / "groups.json").write_text(json.dumps(groups))
    for number, (name, (_, build)) in enumerate(MODELS.items()):
        target = folder / name
        if (only and name not in only) or (target / "call1.npz").exists():
            continue
        try:
            keras.utils.set_random_seed(number)
            network, calls = build()
            if isinstance(network, keras.Model):
                network.export(str(target), verbose=False)
            else:
                tf.saved_model.save(network, str(target), signatures=network.serve)
            serve = tf.saved_model.load(str(target)).signatures["serving_default"]
            for index, inputs in enumerate(calls):
                results = serve(
                    **{
                        key: tf.constant(array.tolist() if array.dtype == object else array)
                        for key, array in inputs.items()
                    }
                )
                arrays = {f"in_{key}": _plain(array) for key, array in inputs.items()}
                arrays |= {f"out_{key}": _plain(value.numpy()) for key, value in results.items()}
                np.savez(target / f"call{index}.npz", **arrays)
        except Exception:
            # One model that this release of Keras lacks must not end the run; the table shows the number.
            print(f"{name} was not written:\n{traceback.format_exc(limit=4)}", file=sys.stderr)
        keras.backend.clear_session()


def make_large(folder: pathlib.Path, megabytes: int) -> None:
    """Write a model of dense layers with random weights of that size."""
    width, module = 2048, tf.Module()
    count = round(megabytes * 1e6 / (4 * width * width))
    random = np.random.default_rng(0)
    module.weights = [
        tf.Variable(random.standard_normal((width, width), np.float32) * 0.02) for _ in range(count)
    ]

    @tf.function(input_signature=[tf.TensorSpec([None, width], tf.float32, "x")])
    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        for weights in module.weights:
            x = x + tf.nn.relu(x @ weights)
        return {"y": x}

    module.serve = serve
    tf.saved_model.save(module, str(folder), signatures=serve)


def convert(folder: pathlib.Path, opsets: list[int], only: list[str]) -> None:
    """Convert with tf2onnx what an earlier run did not convert."""
    import tf2onnx.convert

    for name in json.loads((folder / "groups.json").read_text()):
        for opset in opsets if not only or name in only else ():
            target = folder / name / f"tf2onnx-{opset}.onnx"
            if target.with_suffix(".json").exists() or not (folder / name / "call1.npz").exists():
                continue
            arguments = ["--saved-model", str(folder / name), "--opset", str(opset), "--output", str(target)]
            sys.argv = ["tf2onnx", *arguments]
            begin, reason = time.process_time(), ""
            try:
                tf2onnx.convert.main()
            except BaseException as error:  # Its command also ends the process.
                if isinstance(error, KeyboardInterrupt):
                    raise
                reason = f"{type(error).__name__}: {error}"[:500]
            record = {"reason": reason, "seconds": time.process_time() - begin}
            target.with_suffix(".json").write_text(json.dumps(record))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("make", "convert", "large"))
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--opsets", nargs="+", type=int, default=[13, 18])
    parser.add_argument("--megabytes", type=int, default=500)
    options = parser.parse_args()
    if options.what == "make":
        options.path.mkdir(parents=True, exist_ok=True)
        make(options.path, options.only)
    elif options.what == "convert":
        convert(options.path, options.opsets, options.only)
    else:
        make_large(options.path, options.megabytes)


if __name__ == "__main__":
    main()
