"""Write exporter/capture/tensorflow/operators.binpb.z: the definitions of the operators of inference.

    python tests/exporter/capture/tensorflow/make_operator_definitions.py

It needs TensorFlow; 2.21 made the file that is committed. The file is an `OpList`, compressed with zlib,
without documentation and without the lists of element types that TensorFlow has kernels for.
"""

from __future__ import annotations

import pathlib
import re
import zlib

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

TARGET = pathlib.Path(__file__).parents[4] / "exporter" / "capture" / "tensorflow" / "operators.binpb.z"
LEFT_OUT = re.compile(
    # Training, and what only gradients need.
    r"Grad|Gradient|Backprop|^(Sparse|Resource|ResourceSparse)?Apply|Sdca|Accumulator|CandidateSampler"
    # Pipelines of data, devices, distribution.
    r"|Dataset|Iterator|TPU|Tpu|SparseCore|Minibatch|Dedup|CooTensor|Embedding|Infeed|Outfeed|Prelinearize|MemoryCache"
    r"|Collective|Nccl|Rpc|DTensor|Distributed|Mutex|Barrier|ThreadPool|Stats|^Worker|^Xla|^Copy|^Relayout"
    # Debugging, and models that are not neural networks.
    r"|^Debug|^Experimental|SummaryWriter|BoostedTrees|Kmeans|KMC2|CSR|^SparseMatrix"
)
KEPT = {
    "Conv2DBackpropInput",
    "Conv2DBackpropInputV2",
    "Conv3DBackpropInput",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNativeBackpropInput",
    "PreventGradient",
    "StopGradient",
    # Gradients in graphs that compute saliency maps or forces, or that adapt their weights.
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNativeBackpropFilter",
    "FusedBatchNormGradV2",
    "FusedBatchNormGradV3",
    *(
        f"{name}Grad"
        for name in (
            "AvgPool AvgPool3D BiasAdd Elu FusedBatchNorm Inv LRN LeakyRelu MaxPool MaxPool3D MirrorPad "
            "Reciprocal Relu Relu6 ResizeBicubic ResizeBilinear ResizeNearestNeighbor Rsqrt Selu Sigmoid "
            "Softplus Softsign Sqrt StridedSlice Tanh"
        ).split()
    ),
    "BroadcastGradientArgs",
    "CropAndResizeGradBoxes",
    "CropAndResizeGradImage",
    # What TensorFlow's own optimizations leave in a graph.
    "_Arg",
    "_ArrayToList",
    "_FusedBatchNormEx",
    "_FusedConv2D",
    "_FusedConv3D",
    "_FusedDepthwiseConv2dNative",
    "_FusedMatMul",
    "_If",
    "_ListToArray",
    "_Retval",
    "_SwitchN",
    "_UnaryOpsComposition",
    "_While",
}

REMOVED = """
op {
  name: "CompareAndBitpack"
  input_arg { name: "input" type_attr: "T" }
  input_arg { name: "threshold" type_attr: "T" }
  output_arg { name: "output" type: DT_UINT8 }
  attr { name: "T" type: "type" }
}
"""
"""Operators of older graphs that TensorFlow 2.21 does not have."""


def is_taken(name: str) -> bool:
    """Whether an operator is one of inference; those of TensorFlow's tests are not in `tf.raw_ops`."""
    return name in KEPT or (hasattr(tf.raw_ops, name) and not LEFT_OUT.search(name))


def main() -> None:
    """Write the definitions, in the order of their names."""
    registered = op_def_pb2.OpList.FromString(
        pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    )
    operators = [o for o in registered.op if is_taken(o.name)]
    operators += text_format.Parse(REMOVED, op_def_pb2.OpList()).op
    taken = op_def_pb2.OpList(op=sorted(operators, key=lambda o: o.name))
    for operator in taken.op:
        for field in ("summary", "description", "deprecation"):
            operator.ClearField(field)
        for argument in (*operator.input_arg, *operator.output_arg):
            argument.ClearField("description")
            argument.ClearField("experimental_full_type")
        for attribute in operator.attr:
            attribute.ClearField("description")
            if attribute.type.removeprefix("list(").startswith("type"):
                attribute.ClearField("allowed_values")
    data = zlib.compress(taken.SerializeToString(deterministic=True), 9)
    TARGET.write_bytes(data)
    print(f"{len(taken.op)} operators in {len(data)} bytes")


if __name__ == "__main__":
    main()
