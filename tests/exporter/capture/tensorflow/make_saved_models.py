"""Write saved_models/: a SavedModel of TensorFlow 2, and one of TensorFlow 1 with several graphs as text.

    python tests/exporter/capture/tensorflow/make_saved_models.py

It needs TensorFlow; 2.21 made the folders that are committed.
"""

from __future__ import annotations

import pathlib
import shutil

import numpy as np
import tensorflow as tf

TARGET = pathlib.Path(__file__).parents[3] / "data" / "tensorflow" / "saved_models"


class Scaled(tf.Module):
    """Two signatures over one variable."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable([1.0, 2.0, 3.0], name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def scaled(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """What serving_default computes."""
        return {"scaled": x * self.scale, "largest": tf.reduce_max(x)}

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="shift")])
    def shifted(self, shift: tf.Tensor) -> tf.Tensor:
        """A second signature."""
        return self.scale + shift


def newer() -> None:
    """Binary, with variables and objects."""
    module = Scaled()
    signatures = {"serving_default": module.scaled, "shifted": module.shifted}
    options = tf.saved_model.SaveOptions(save_debug_info=False)
    tf.saved_model.save(module, str(TARGET / "objects"), signatures=signatures, options=options)
    (TARGET / "objects" / "fingerprint.pb").unlink()
    (TARGET / "objects" / "assets").rmdir()


def older() -> None:
    """Text, with a graph for inference and one for training."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(TARGET / "tagged"))
    for tags in (["train"], ["serve"]):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 2], "x")
            weight = v1.get_variable("weight", initializer=np.float32([[1, 2], [3, 4]]), use_resource=False)
            y = tf.identity(tf.matmul(x, weight), "y")
            session.run(v1.global_variables_initializer())
            signatures = {
                name: v1.saved_model.build_signature_def(
                    {"left": v1.saved_model.build_tensor_info(x)},
                    {"product": v1.saved_model.build_tensor_info(tensor)},
                    method,
                )
                for name, tensor, method in (("predict", y, "predict"), ("doubled", y + y, "predict"))
            }
            if tags == ["train"]:
                builder.add_meta_graph_and_variables(session, tags, signatures)
            else:
                builder.add_meta_graph(tags, signatures)
    builder.save(as_text=True)


if __name__ == "__main__":
    shutil.rmtree(TARGET, ignore_errors=True)
    newer()
    older()
