"""BFLOAT16 below 13, where no Cast knows it: rounded in FLOAT, as eager PyTorch rounds."""

import math

import onnx.reference
import pytest
import torch

import opsetta

from .records import Record, check, floats, parametrized

OPSETS = (9, 11, 12)
EXTREMES = torch.tensor(
    [0.0, -0.0, 1.0, 1.00390625, 1.01171875, -1.00390625, 1.0039063692092896, 1.9960938, 255.5, 3.38953e38,
     3.3961775e38, 3.4028235e38, -3.4028235e38, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 4.6e-41,
     4.5e-41, -4.591775e-41, 1.1754944e-38, 1.17e-38, 1e-40, 1 / 3],
)  # fmt: skip
TIES = torch.arange(-4000, 4000, dtype=torch.float32) / 2 + torch.tensor([[0.0], [1e-4], [-1e-4]])
X = floats(4, 6)


class _State(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(floats(6, 3).bfloat16())
        self.register_buffer("scale", torch.tensor(5.6, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.float() * self.scale.to(x.dtype)


def _rounded(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).to(torch.float32)


def _products(x: torch.Tensor) -> torch.Tensor:
    half = x.bfloat16()
    return ((half * half + half).transpose(0, 1) - 0.25).float()


RECORDS = [
    Record("extremes", _rounded, (EXTREMES,), OPSETS, rtol=0.0, atol=0.0),
    Record("ties", _rounded, (TIES,), OPSETS, rtol=0.0, atol=0.0),
    Record("dynamic", _rounded, (X,), OPSETS, rtol=0.0, atol=0.0, dynamic=({0: "rows"},)),
    Record("from-double", lambda x: x.bfloat16().double(), (X.double(),), OPSETS, rtol=0.0, atol=0.0),
    Record("from-half", lambda x: x.bfloat16().half(), (X.half(),), OPSETS, rtol=0.0, atol=0.0),
    Record(
        "from-integers",
        lambda x: x.to(torch.bfloat16).long(),
        (torch.tensor([257, 259, -257, 2**24 + 2**16, 2**40 + 1]),),
        OPSETS,
    ),
    Record(
        "moved-between",
        lambda x: x.bfloat16().reshape(-1, 2).t().unsqueeze(0)[..., 1:].float(),
        (X,),
        OPSETS,
        rtol=0.0,
    ),
    # onnxruntime has no Mul of BFLOAT16.
    Record("arithmetic-between", _products, (X,), OPSETS, rtol=0.0, atol=0.0, also_highest=False),
    Record("constants", lambda x: x * torch.tensor(0.1, dtype=torch.bfloat16).float(), (X,), (7, *OPSETS)),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


def test_zeros_keep_their_signs() -> None:
    """In onnx's reference: Where of onnxruntime gives 0 for -0."""
    program = opsetta.export(_rounded, (EXTREMES,), opset=9)
    [found] = onnx.reference.ReferenceEvaluator(program.model_proto).run(None, {"x": EXTREMES.numpy()})
    expected = _rounded(EXTREMES)
    zeros = expected == 0
    assert torch.equal(torch.as_tensor(found)[zeros].signbit(), expected[zeros].signbit())


@pytest.mark.parametrize("opset", [7, 9, 12, 13])
def test_state_is_held_in_float_and_keeps_its_names(opset: int) -> None:
    program = opsetta.export(_State().eval(), (X,), opset=opset, optimize="basic")
    program.verify(rtol=1e-6, atol=1e-6)
    kinds = {i.name: i.data_type for i in program.model_proto.graph.initializer}
    assert {"weight": 1, "scale": 1}.items() <= kinds.items() or opset == 13


def test_what_is_moved_is_rounded_once() -> None:
    program = opsetta.export(lambda x: x.bfloat16().reshape(-1).flip(0)[1:].float(), (X,), opset=11)
    assert [node.op_type for node in program.model.graph].count("Add") == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to(torch.bfloat16),
        lambda x: (x.float() + 1).bfloat16(),
        lambda x: torch.cond(x.sum() > 0, lambda y: y.bfloat16(), lambda y: (y + 1).bfloat16(), (x,)).float(),
    ],
    ids=["output", "computed-output", "branches"],
)
def test_what_has_to_be_bfloat16_in_the_file_is_refused(function) -> None:
    program = opsetta.export(function, (X,), opset=16)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=r"BFLOAT16.*opset 1[36]"):
        program.lower(opset=12)


def test_inputs_are_refused() -> None:
    program = opsetta.export(lambda x: x.float() * 2, (X.bfloat16(),), opset=13)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="from opset 13 it does"):
        program.lower(opset=12)
