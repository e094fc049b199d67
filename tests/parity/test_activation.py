"""Activation functions, softmax and dropout against eager PyTorch."""

import math
from pathlib import Path

import onnx
import pytest
import torch
import torch.nn.functional as F

import opsetta

from ..onnxruntime_sessions import open_session
from .records import BASE, EVERYWHERE, HIGHEST, Record, check, floats, integers, parametrized

X = floats(2, 4, 3, 5, scale=3.0)
ROWS = floats(4, 6, seed=1)
WIDE = torch.tensor([-1e4, -100.0, -20.0, -3.0, -1.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 6.0, 20.0, 100.0, 1e4])
NAN = torch.tensor([math.nan, 1.0, -1.0])


def _activations() -> list[Record]:
    records = [
        Record("relu", F.relu, (X,), EVERYWHERE),
        Record("relu int", F.relu, (X.long(),), (9, 13, 14)),
        Record("relu6", F.relu6, (X * 3,), EVERYWHERE),
        Record("hardtanh", F.hardtanh, (X,), EVERYWHERE),
        Record("hardtanh bounds", lambda x: F.hardtanh(x, -2.0, 0.5), (X,), EVERYWHERE),
        Record("hardsigmoid", F.hardsigmoid, (WIDE,), EVERYWHERE),
        Record("hardswish", F.hardswish, (WIDE,), (*EVERYWHERE, 14)),
        Record("leaky_relu", lambda x: F.leaky_relu(x, 0.2), (WIDE,), EVERYWHERE),
        Record("rrelu", lambda x: F.rrelu(x, 0.1, 0.3), (X,), EVERYWHERE),
        Record("elu", lambda x: F.elu(x, 0.7), (WIDE,), EVERYWHERE),
        Record("elu scales", lambda x: torch.ops.aten.elu(x, 0.7, 1.3, 0.5), (WIDE,), EVERYWHERE),
        Record("celu", F.celu, (WIDE,), (*EVERYWHERE, 12)),
        Record("celu alpha", lambda x: F.celu(x, 0.3), (WIDE,), (*EVERYWHERE, 12)),
        Record("hardtanh of int", lambda x: F.hardtanh(x, -1.5, 2.7), (integers(3, 4),), (*EVERYWHERE, 12)),
        Record("selu", F.selu, (WIDE,), EVERYWHERE),
        Record("gelu", F.gelu, (WIDE,), (*EVERYWHERE, 20), atol=2e-6),
        Record("gelu of many", F.gelu, (floats(4000, scale=2.0),), (*EVERYWHERE, 20), atol=2e-6),
        Record(
            "gelu tanh", lambda x: F.gelu(x, approximate="tanh"), (floats(500, scale=3.0),), (*EVERYWHERE, 20)
        ),
        Record("gelu double", F.gelu, (X.double(),), (7, 13, 20, HIGHEST)),
        Record("gelu tanh double", lambda x: F.gelu(x, approximate="tanh"), (X.double(),), (7, 13, 20)),
        Record("silu", F.silu, (WIDE,), EVERYWHERE),
        Record("softplus", F.softplus, (WIDE,), EVERYWHERE),
        Record("softplus half", F.softplus, (WIDE.half() * 10,), (9, 13, HIGHEST), rtol=1e-3),
        Record("softplus beta", lambda x: F.softplus(x, 2.0), (WIDE,), EVERYWHERE),
        Record(
            "softplus low threshold",
            lambda x: F.softplus(x, 1.5, 2.0),
            (WIDE,),
            EVERYWHERE,
        ),
        Record("mish", F.mish, (WIDE,), (*EVERYWHERE, 18, 22)),
        Record("logsigmoid", F.logsigmoid, (WIDE,), EVERYWHERE),
        Record("softsign", F.softsign, (WIDE,), EVERYWHERE),
        Record("tanhshrink", F.tanhshrink, (X,), EVERYWHERE),
        Record(
            "hardshrink", F.hardshrink, (torch.tensor([0.5, -0.5, 0.6, -0.7, 0.2, math.nan]),), (9, 12, 13)
        ),
        Record(
            "softshrink", F.softshrink, (torch.tensor([0.5, -0.5, 0.6, -0.7, 0.2, math.nan]),), EVERYWHERE
        ),
        Record("threshold", lambda x: F.threshold(x, 0.5, -1.0), (torch.cat([WIDE, NAN]),), (9, 12, 13)),
        Record("threshold at zero", lambda x: F.threshold(x, 0.0, 0.0), (WIDE,), EVERYWHERE),
        Record("prelu of one", F.prelu, (X, torch.tensor([0.3])), EVERYWHERE),
        Record(
            "prelu of scalar", lambda x, w: F.prelu(x[0, 0, 0, 0], w), (X, torch.tensor([0.3])), EVERYWHERE
        ),
        Record("prelu per channel", F.prelu, (X, torch.tensor([0.1, 0.2, 0.3, -0.4])), (*EVERYWHERE, 16)),
        Record("prelu of rows", F.prelu, (ROWS, floats(6)), EVERYWHERE),
        Record("glu", F.glu, (ROWS,), (*EVERYWHERE, 18)),
        Record("glu dim", lambda x: F.glu(x, 1), (X,), (*EVERYWHERE, 18)),
        Record(
            "glu dynamic",
            lambda x: F.glu(x, 0),
            (ROWS,),
            (*EVERYWHERE, 10, 18),
            dynamic=({0: 2 * torch.export.Dim("half", max=50)},),
        ),
    ]
    records += [
        Record(
            f"{name} of double",
            getattr(F, name),
            (WIDE.double(),),
            (7, 9, 13, 18, HIGHEST),
            rtol=1e-9,
            atol=1e-12,
        )
        for name in (
            "relu relu6 hardtanh hardsigmoid hardswish leaky_relu elu celu selu silu softplus mish logsigmoid"
        ).split()
    ]
    records += [
        Record("prelu of double", F.prelu, (X.double(), floats(4).double()), BASE),
        Record("celu of half", F.celu, (X.half(),), (9, 12, 13)),
    ]
    records += [
        Record(f"{name} of nan", getattr(F, name), (NAN,), BASE)
        for name in ("relu", "relu6", "hardswish", "silu", "gelu", "elu", "leaky_relu")
    ]
    return records


def _softmaxes() -> list[Record]:
    records = []
    for name in ("softmax", "log_softmax"):
        function = getattr(F, name)
        records += [
            Record(f"{name} {dim}", lambda x, f=function, d=dim: f(x, d), (X,), (*EVERYWHERE, 11))
            for dim in (-1, 0, 1, -2)
        ]
        records += [
            Record(f"{name} before ones", lambda x, f=function: f(x, 1), (floats(2, 5, 1, 1),), EVERYWHERE),
            Record(f"{name} of rows", lambda x, f=function: f(x, -1), (ROWS,), EVERYWHERE),
            Record(
                f"{name} dtype",
                lambda x, f=function: f(x, 1, dtype=torch.float32),
                (ROWS.half(),),
                EVERYWHERE,
            ),
            Record(
                f"{name} of int",
                lambda x, f=function: f(x, 1, dtype=torch.float32),
                (ROWS.long(),),
                EVERYWHERE,
            ),
            Record(f"{name} of scalar", lambda x, f=function: f(x.sum(), 0), (ROWS,), EVERYWHERE),
            Record(
                f"{name} dynamic",
                lambda x, f=function: f(x, 1),
                (X,),
                (9, 13),
                dynamic=({0: "a", 1: "b", 3: "c"},),
            ),
        ]
    masked = torch.tensor([[-math.inf, -math.inf], [1.0, -math.inf], [1.0, 2.0]])
    records += [
        Record("softmin", lambda x: F.softmin(x, 1), (X,), EVERYWHERE),
        Record("_softmax", lambda x: torch.ops.aten._softmax(x, 1, False), (X,), (9, 13)),
        Record("_log_softmax", lambda x: torch.ops.aten._log_softmax(x, 1, False), (X,), (9, 13)),
        Record("_safe_softmax", lambda x: torch.ops.aten._safe_softmax(x, 1), (masked,), BASE),
    ]
    return records


def _dropouts() -> list[Record]:
    names = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    return [
        Record(name, lambda x, n=name: getattr(torch, n)(x, 0.4, False) + 1.0, (X,), (7, 9, HIGHEST))
        for name in names
    ]


@parametrized(_activations())
def test_activation_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_softmaxes())
def test_softmax_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_dropouts())
def test_dropout_in_inference_is_nothing(record: Record) -> None:
    check(record)


def _dropping(x: torch.Tensor) -> torch.Tensor:
    return torch.dropout(x, 0.5, True)


@pytest.mark.parametrize("opset", [7, 11, 12, HIGHEST])
def test_dropout_in_training_scales_what_it_keeps(opset: int) -> None:
    ones = torch.ones(2000)
    result = opsetta.export(_dropping, (ones,), opset=opset)(ones)
    assert sorted(set(result.tolist())) == [0.0, 2.0]
    assert 800 < int((result == 0).sum()) < 1200


def test_gelu_is_fused_by_onnxruntime(tmp_path: Path) -> None:
    program = opsetta.export(lambda x: F.gelu(x), (ROWS,), opset=13)
    path = str(tmp_path / "optimized.onnx")
    open_session(program.model_proto, optimized_path=path)
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Gelu"]
