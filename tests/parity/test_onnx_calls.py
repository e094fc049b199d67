"""`torch.onnx.ops`: operators of ONNX that a PyTorch model calls by name, also below their own opset."""

from typing import Any

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized
from .resized import Resized, check_sizes

OPSETS = (9, 13, 22, 23, HIGHEST)
CALLS = torch.onnx.ops


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return CALLS.rotary_embedding(x * 2, cos, sin).tanh()


def rotate_rows(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    options = {"interleaved": True, "num_heads": 2, "rotary_embedding_dim": 4}
    return CALLS.rotary_embedding(x, cos, sin, rows, **options)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return CALLS.attention(q, k, v, q_num_heads=4, kv_num_heads=2, is_causal=True)[0]


def attend_with_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return CALLS.attention(q, k, v, mask, scale=0.3)[0]


ROTARY = floats(2, 3, 5, 8), floats(2, 5, 4, seed=1), floats(2, 5, 4, seed=2)
RECORDS = [
    Record("rotary_embedding", rotate, ROTARY, OPSETS),
    Record(
        "rotary_embedding-rows",
        rotate_rows,
        (floats(2, 5, 16), floats(9, 2), floats(9, 2, seed=1), torch.tensor([[0, 8, 3, 3, 1]] * 2)),
        OPSETS,
    ),
    Record("attention", attend, (floats(2, 5, 16), floats(2, 5, 8), floats(2, 5, 8, seed=1)), OPSETS),
    Record(
        "attention-mask",
        attend_with_mask,
        (floats(2, 3, 4, 8), floats(2, 3, 6, 8, seed=1), floats(2, 3, 6, 8, seed=2), floats(4, 6)),
        OPSETS,
    ),
]
TIMES = {0: "batch", 2: "time"}, {0: "batch", 1: "time"}, {0: "batch", 1: "time"}


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


def test_agrees_at_other_sizes() -> None:
    others = (floats(3, 3, 2, 8), floats(3, 2, 4, seed=1), floats(3, 2, 4, seed=2))
    check_sizes(Resized("rotary_embedding", rotate, ROTARY, OPSETS, dynamic=TIMES, others=[others]))


@pytest.mark.parametrize(
    ("op_type", "version", "attributes"),
    [("LayerNormalization", 17, {"axis": 1}), ("GroupNormalization", None, {"num_groups": 2})],
)
def test_an_operator_by_name_is_the_same_at_all_opsets(
    op_type: str, version: int | None, attributes: dict[str, Any]
) -> None:
    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        options = {"dtype": x.dtype, "shape": x.shape, "version": version}
        return CALLS.symbolic(op_type, (x, w, w.exp()), attributes, **options)

    weight = floats(6, 3, seed=1) if op_type == "LayerNormalization" else floats(6, seed=1)
    inputs = floats(2, 6, 3), weight
    program = opsetta.export(call, inputs, opset=HIGHEST)
    for opset in (9, 13, 17):
        torch.testing.assert_close(program.lower(opset=opset)(*inputs), program(*inputs))


@pytest.mark.parametrize("opset", [9, 12, 13, HIGHEST])
@pytest.mark.parametrize("version", [11, 13])
def test_an_operator_has_the_meaning_of_its_version(opset: int, version: int) -> None:
    """Before version 13, `Softmax(axis=1)` of a 3-d tensor normalizes over axes 1 and 2 together."""

    class Normalized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return CALLS.symbolic("Softmax", (x,), {"axis": 1}, dtype=x.dtype, shape=x.shape, version=version)

    x = floats(2, 3, 4)
    expected = x.flatten(1).softmax(1).view(x.shape) if version == 11 else x.softmax(1)
    program = opsetta.export(Normalized().eval(), (x,), opset=opset)
    torch.testing.assert_close(program(x), expected)
