"""Normalization, biases, activation functions, softmax and losses."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, floats, integers, positive, record

SPECIAL = array_of([-30.0, -3.0, -0.5, -0.0, 0.0, 0.25, 1.0, 5.5, 7.0, 30.0])


def _norms():
    parameters = {
        "scale": const(floats(3, seed=1)),
        "offset": const(floats(3, seed=2)),
        "mean": const(floats(3, seed=3)),
        "variance": const(positive(3, seed=4)),
    }
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        yield record(
            op,
            "inference",
            x=floats(2, 4, 5, 3),
            **parameters,
            is_training=False,
            epsilon=0.001,
            outputs=[0, 1, 2],
            atol=1e-5,
        )
        yield record(op, "training", x=floats(2, 4, 5, 3), **parameters, epsilon=0.001, atol=1e-5, rtol=1e-4)
    yield record(
        "FusedBatchNormV3",
        "factor",
        x=floats(2, 4, 5, 3),
        **parameters,
        exponential_avg_factor=0.25,
        atol=1e-5,
        rtol=1e-4,
    )
    yield record(
        "FusedBatchNormV3",
        "half",
        x=floats(2, 4, 5, 3, dtype=np.float16),
        **parameters,
        is_training=False,
        outputs=[0, 1, 2],
    )
    yield record("LRN", "defaults", input=floats(1, 3, 4, 12))
    yield record("LRN", "given", input=floats(1, 3, 4, 6), depth_radius=2, bias=2.0, alpha=0.1, beta=0.75)
    yield record("L2Loss", "", t=floats(2, 3))
    yield record("L2Loss", "double", t=floats(2, 3, dtype=np.float64))
    for rank in (2, 3, 4, 5):
        shape = (*(2, 3, 4, 3)[: rank - 1], 3)
        yield record("BiasAdd", f"rank_{rank}", value=floats(*shape), bias=const(floats(3, seed=1)))
    yield record(
        "BiasAdd",
        "NCHW",
        value=floats(2, 3, 4, 5),
        bias=const(floats(3, seed=1)),
        data_format="NCHW",
        needs_rank=True,
    )
    yield record("BiasAdd", "int32", value=integers(2, 3), bias=const(integers(3, seed=1)))
    yield record("BiasAddV1", "", value=floats(2, 4, 3), bias=floats(3, seed=1))


def _activations():
    for op in ("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"):
        yield record(op, "", features=SPECIAL)
        yield record(op, "double", features=SPECIAL.astype(np.float64))
        yield record(op, "half", features=SPECIAL.astype(np.float16))
    for op in ("Relu", "Relu6"):
        for dtype in (np.int32, np.int64, np.int8, np.uint8):
            low = 0 if dtype == np.uint8 else -9
            yield record(op, np.dtype(dtype).name, features=integers(9, low=low, dtype=dtype))
    yield record("LeakyRelu", "alpha", features=SPECIAL, alpha=0.5)
    yield record("Sigmoid", "", x=SPECIAL)
    yield record("Sigmoid", "double", x=SPECIAL.astype(np.float64))
    for op in ("Softmax", "LogSoftmax"):
        for shape in ((4,), (2, 3), (2, 3, 4)):
            yield record(op, f"rank_{len(shape)}", logits=floats(*shape, scale=3), needs_rank=True)
        yield record(op, "double", logits=floats(2, 3, dtype=np.float64), needs_rank=True)
        yield record(op, "half", logits=floats(2, 3, dtype=np.float16), needs_rank=True)


def _losses():
    shares = np.random.RandomState(1).dirichlet(np.ones(4), 3).astype(np.float32)
    yield record("SoftmaxCrossEntropyWithLogits", "", features=floats(3, 4), labels=shares)
    yield record("SoftmaxCrossEntropyWithLogits", "broadcast", features=floats(3, 4), labels=shares[:1])
    for dtype in (np.int32, np.int64):
        yield record(
            "SparseSoftmaxCrossEntropyWithLogits",
            np.dtype(dtype).name,
            features=floats(3, 4),
            labels=array_of([0, 3, 1]).astype(dtype),
        )


WITHOUT_RECORDS = {
    "BatchNormWithGlobalNormalization": "removed from graphs of version 9 and above",
    "_FusedBatchNormEx": "TensorFlow has no CPU kernel",
}

RECORDS = [*_norms(), *_activations(), *_losses()]
