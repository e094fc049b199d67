"""Operators without CPU kernels in TensorFlow 2.21, and random crops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import default_registry

from ..onnxruntime_sessions import open_session
from .checks import KNOWN, RANK, check, source_model
from .records import Array, Stored, array_of, bools, const, floats, integers, record

DATA = floats(5, 3)
IDS = np.array([0, 0, 1, 3, -1], np.int32)


def _stored(outputs: list[Array], count: int, **attributes: Any) -> Stored:
    names = ("data", "segment_ids", "num_segments") if count == 3 else ("input", "threshold")[:count]
    return Stored("", {name: ["input", i] for i, name in enumerate(names)} | attributes, outputs)


@pytest.mark.parametrize("known", [KNOWN, RANK])
@pytest.mark.parametrize(
    ("name", "neutral", "function"),
    [
        ("Sum", 0.0, np.add),
        ("Prod", 1.0, np.multiply),
        ("Max", np.finfo(np.float32).min, np.maximum),
        ("Min", np.finfo(np.float32).max, np.minimum),
    ],
)
def test_segments_of_a_stated_number(name: str, neutral: float, function: np.ufunc, known: str) -> None:
    """XLA: empty segments have the neutral number, and rows with negative numbers are ignored."""
    expected = np.full((4, 3), neutral, np.float32)
    function.at(expected, IDS[:4], DATA[:4])
    call = record(f"Segment{name}V2", data=DATA, segment_ids=IDS, num_segments=const(4))
    check(call, _stored([expected], 3), known)


def test_approximate_top_k_of_the_least() -> None:
    call = record("ApproxTopK", input=DATA)
    order = np.argsort(DATA, axis=0)[:2].astype(np.int32)
    held = [np.take_along_axis(DATA, order, axis=0), order]
    check(call, _stored(held, 1, k=2, reduction_dimension=0, is_max_k=False), KNOWN)


@pytest.mark.parametrize(
    ("data", "threshold"),
    [
        (floats(2, 16), array_of(0.1)),
        (integers(3, 8, dtype=np.int8), np.int8(2)),
        (bools(2, 8), np.bool_(False)),
    ],
    ids=["float", "int8", "bool"],
)
def test_compared_elements_are_packed_into_bits(data: Array, threshold: Any) -> None:
    """TensorFlow 2.21 has removed the operator; the first element is the highest bit."""
    call = record("CompareAndBitpack", input=data, threshold=np.asarray(threshold))
    check(call, _stored([np.packbits(data > threshold, axis=-1)], 2), KNOWN)


def test_random_crops_meet_their_conditions() -> None:
    """For each random crop: its share of the image, its aspect ratio, and the share of the box inside it."""
    box = np.float32([0.25, 0.25, 0.75, 0.5])
    sizes, boxes = np.array([60, 80, 3], np.int32), box.reshape(1, 1, 4)
    call = record("SampleDistortedBoundingBox", image_size=sizes, bounding_boxes=boxes)
    names = ("image_size", "bounding_boxes")
    arguments = {name: ["input", i] for i, name in enumerate(names)} | {"min_object_covered": 0.5}
    outputs = [np.zeros(3, np.int32), np.zeros(3, np.int32), np.zeros((1, 1, 4), np.float32)]
    source, feed = source_model(call, Stored("", arguments, outputs), KNOWN)
    model = ir.to_proto(lower(source, 13, default_registry).model)
    session = open_session(model)
    top, left, bottom, right = box * [60, 80, 60, 80]
    corners = set()
    for _ in range(20):
        (y, x, _), (height, width, depth), edges = session.run(None, feed)
        corners.add((y, x))
        assert depth == -1
        assert min(y, x) >= 0
        assert y + height <= 60
        assert x + width <= 80
        np.testing.assert_allclose(edges[0, 0] * [60, 80, 60, 80], [y, x, y + height, x + width], atol=1e-4)
        assert height * width / 4800 >= 0.05
        assert 0.7 < width / height < 1.4
        rows, columns = min(bottom, y + height) - max(top, y), min(right, x + width) - max(left, x)
        assert max(rows, 0) * max(columns, 0) / ((bottom - top) * (right - left)) >= 0.5
    assert len(corners) > 10


@pytest.mark.parametrize(
    ("op", "mode", "layers", "is_bidirectional", "time_major"),
    [
        ("CudnnRNN", "gru", 1, False, True),
        ("CudnnRNNV2", "rnn_tanh", 2, False, True),
        ("CudnnRNNV3", "lstm", 2, True, False),
    ],
)
def test_layers_of_cudnn_are_those_of_pytorch(
    op: str, mode: str, layers: int, is_bidirectional: bool, time_major: bool
) -> None:
    """The weights are packed as in `canonical_to_params` of Keras: all matrices, then all biases."""
    cell = {"gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN, "lstm": torch.nn.LSTM}[mode]
    torch.manual_seed(0)
    module = cell(3, 4, layers, bidirectional=is_bidirectional, batch_first=not time_major).requires_grad_(
        False
    )
    parameters = list(module.parameters())
    packed = [
        item for start in (0, 2) for i in range(0, len(parameters), 4) for item in parameters[i + start :][:2]
    ]
    params = torch.cat([item.reshape(-1) for item in packed]).numpy()
    runs = layers * (1 + is_bidirectional)
    x, states = torch.randn(5, 2, 3), [torch.randn(runs, 2, 4) for _ in range(2)]
    hidden = tuple(states) if mode == "lstm" else states[0]
    attributes = {"rnn_mode": mode, "direction": "bidirectional" if is_bidirectional else "unidirectional"}
    inputs = [x.numpy(), *(state.numpy() for state in states), params]
    names = ["input", "input_h", "input_c", "params"]
    if time_major:
        output, final = module(x, hidden)
        outputs = [output, *(final if mode == "lstm" else [final])]
    else:
        # The second sequence has 3 steps; its padding is 0 in the result.
        lengths = torch.tensor([5, 3])
        images = torch.nn.utils.rnn.pack_padded_sequence(x.transpose(0, 1), lengths, batch_first=True)
        packed_output, final = module(images, hidden)
        output, _ = torch.nn.utils.rnn.pad_packed_sequence(packed_output, batch_first=True)
        outputs = [output, *(state.transpose(0, 1) for state in final)]
        inputs = [*(np.ascontiguousarray(item.swapaxes(0, 1)) for item in inputs[:3]), params]
        inputs, names = [*inputs, np.int32([5, 3])], [*names, "sequence_lengths"]
        attributes["time_major"] = False
    used = tuple(range(len(outputs)))
    # The operators also return what their gradients reuse.
    outputs += [torch.zeros(0)] * ((4 if op == "CudnnRNN" else 5) - len(outputs))
    call = record(op, **dict(zip(names, inputs, strict=True)), outputs=used, atol=1e-5)
    arguments = {name: ["input", i] for i, name in enumerate(names)} | attributes
    check(call, Stored("", arguments, [item.numpy() for item in outputs]), KNOWN)
