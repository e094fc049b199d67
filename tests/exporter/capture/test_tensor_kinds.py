"""Tensors that no file can be called with, or hold, are refused by name at export."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import opsetta

EYE = torch.eye(4)
KINDS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str, str]] = {
    "coo": (lambda x: x.to_sparse(), "sparse_coo", "to_dense()"),
    "csr": (lambda x: x.to_sparse_csr(), "sparse_csr", "to_dense()"),
    "csc": (lambda x: x.to_sparse_csc(), "sparse_csc", "to_dense()"),
    "bsr": (lambda x: x.to_sparse_bsr((2, 2)), "sparse_bsr", "to_dense()"),
    "bsc": (lambda x: x.to_sparse_bsc((2, 2)), "sparse_bsc", "to_dense()"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x[:2]]), "a nested tensor", "to_padded_tensor(0.0)"),
    "jagged": (
        lambda x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged),
        "a nested tensor",
        "to_padded_tensor(0.0)",
    ),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        "quantized (torch.quint8)",
        "dequantize()",
    ),
    "oneDNN": (lambda x: x.to_mkldnn(), "oneDNN", "to_dense()"),
}
pytestmark = pytest.mark.filterwarnings("ignore")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    left: Any
    right: Any


class First(nn.Module):
    def forward(self, x: Any, y: torch.Tensor) -> torch.Tensor:
        return y + 1


class Stateful(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner.weight @ x


def refusal(model: Any, args: tuple, **options: Any) -> str:
    with pytest.raises(opsetta.CaptureError) as raised:
        opsetta.export(model, args, **options)
    return str(raised.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["module", "strict", "trace"])
def test_an_input_is_refused_with_the_remedy(kind: str, form: str) -> None:
    make, said, method = KINDS[kind]
    model = torch.jit.trace(First(), (EYE, EYE)) if form == "trace" else First()
    name = "x" if form != "trace" else model.forward.schema.arguments[1].name
    message = refusal(model, (make(EYE), EYE), **({"strict": True} if form == "strict" else {}))
    assert f"input '{name}' is" in message
    assert said in message
    assert f"pass {name}.{method}" in message


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda x: [EYE, (x,)], "x[1][0]"),
        (lambda x: {"a": EYE, "b": [x]}, "x['b'][0]"),
        (lambda x: Pair(EYE, x), "x.right"),
        (lambda x: Record(EYE, {"k": x}), "x.right['k']"),
    ],
)
def test_an_input_is_found_in_nested_structures(wrap: Callable[[Any], Any], path: str) -> None:
    assert f"input '{path}' is sparse" in refusal(First(), (wrap(EYE.to_sparse()), EYE))


def test_an_input_of_an_exported_program_is_refused() -> None:
    class Dense(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_dense() + 1

    program = torch.export.export(Dense(), (EYE.to_sparse(),))
    assert "input 'x' is sparse" in refusal(program, ())


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_is_used_is_refused_by_name(kind: str) -> None:
    make, said, method = KINDS[kind]
    message = refusal(Stateful(make(EYE)), (EYE,))
    assert "buffer 'inner.weight' is" in message
    assert said in message
    assert f"register inner.weight.{method}" in message


def test_state_of_a_trace_is_refused_by_name() -> None:
    class Sparse(Stateful):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mm(self.inner.weight, x)

    trace = torch.jit.trace(Sparse(EYE.to_sparse()), (EYE,))
    assert "buffer 'inner.weight' is sparse" in refusal(trace, (EYE,))


def test_sparse_state_that_no_node_uses_is_left_out() -> None:
    class Idle(Stateful):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    opsetta.export(Idle(EYE.to_sparse()), (EYE,)).verify()


@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_a_result_is_refused_by_name(kind: str) -> None:
    make, said, _ = KINDS[kind]

    def model(x: torch.Tensor) -> dict[str, Any]:
        return {"dense": x, "other": [make(x)]}

    message = refusal(model, (EYE,))
    assert "output 'other_0' is" in message
    assert said in message
    assert "return other_0.to_dense()" in message


@pytest.mark.parametrize("trace", [False, True])
def test_sparse_tensors_in_between_are_operators_without_support(trace: bool) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse().to_dense()

    with pytest.raises(opsetta.UnsupportedOperatorsError, match="aten::to_sparse"):
        opsetta.export(torch.jit.trace(model, (EYE,)) if trace else model, (EYE,))


def test_an_example_without_data_exports_and_is_refused_where_it_is_run() -> None:
    program = opsetta.export(nn.ReLU(), (torch.empty(2, device="meta"),))
    torch.testing.assert_close(program(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))
    with pytest.raises(opsetta.OpsettaError, match="has no data .*meta device"):
        program.verify()
    with pytest.raises(opsetta.OpsettaError, match="input 'input' is sparse"):
        program(torch.ones(2).to_sparse())


def test_a_lazy_module_is_refused_until_it_was_called() -> None:
    model = nn.LazyLinear(3).eval()
    assert "parameter 'weight' of a lazy module" in refusal(model, (EYE,))
    model(EYE)
    opsetta.export(model, (EYE,)).verify()


def test_an_argument_without_data_is_refused_where_it_is_given() -> None:
    program = opsetta.export(nn.ReLU(), (torch.ones(2),))
    with pytest.raises(opsetta.OpsettaError, match=r"input 'input' has no data .*meta device.*real tensor"):
        program(torch.empty(2, device="meta"))
