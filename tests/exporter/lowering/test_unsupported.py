"""Operators that cannot be expressed: all named at once, registered by users, or found by decomposition."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import opsetta
from opsetta.registration import GraphContext, Registry, SymbolicFunction, Value, default_registry
from opsetta.registration.errors import UnsupportedOperator

from ...opsets import HIGHEST

SEVEN = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


def _define(name: str) -> None:
    """An operator of a user's library, of which nothing is known here."""

    @torch.library.custom_op(f"mystery::{name}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    operator.register_fake(torch.empty_like)


for _name in SEVEN:
    _define(_name)


class Mystery(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(torch.ops.mystery, self.name)(x)


def test_one_unknown_operator_is_named_with_its_place(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Mystery("first")).eval()
    with pytest.raises(opsetta.UnsupportedOperatorsError) as caught:
        opsetta.export(model, torch.ones(1, 2)).save(tmp_path / "model.onnx")
    [operator] = caught.value.operators
    assert operator.name == "mystery::first.default"
    assert operator.modules == ("1",)
    assert "onnx_symbolic" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_seven_unknown_operators_are_named_at_once() -> None:
    model = nn.Sequential(*[Mystery(name) for name in SEVEN], Mystery("first"))
    with pytest.raises(opsetta.UnsupportedOperatorsError) as caught:
        opsetta.export(model, torch.ones(2), opset=9)
    assert caught.value.opset == 9
    assert {operator.name for operator in caught.value.operators} == {
        f"mystery::{name}.default" for name in SEVEN
    }
    assert "mystery::first.default (2 times, in 0, 7)" in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("the spatial sizes must be known for dilated windows with padding", True),
        ("the rank of its input is unknown", True),
        ("the number of channels must be known", True),
        ("shifts of UINT64 are not supported", False),
        ("the element type must be known", False),
    ],
)
def test_unknown_sizes_get_a_remedy(reason: str, expected: bool) -> None:
    operator = UnsupportedOperator("aten::f.default", reason, None, ("",), registered=True)
    assert ("dynamic_shapes" in str(opsetta.UnsupportedOperatorsError(9, [operator]))) == expected


def test_an_opset_is_told_once_and_complex_operators_are_explained() -> None:
    reason = "ONNX operator Cast does not take FLOAT8E5M2 at opset 9; from opset 19 it does"
    operators = [
        UnsupportedOperator("aten::to.dtype", reason, 19, ("",), registered=True),
        UnsupportedOperator(
            "complex::linalg_det.default", "it is not supported", None, ("",), registered=False
        ),
    ]
    message = str(opsetta.UnsupportedOperatorsError(9, operators))
    assert "lowest that can" not in message
    assert "complex:: are those of ATen's operators on complex numbers" in message


def test_lowest_opset_that_could_is_told() -> None:
    registry = default_registry.fork()

    @opsetta.onnx_symbolic("mystery::first", opset=15, registry=registry)
    def first(g: GraphContext, x: Value) -> Value:
        return g.op("Identity", x)

    with pytest.raises(opsetta.UnsupportedOperatorsError, match="opset 15 is the lowest that can"):
        opsetta.export(Mystery("first"), torch.ones(2), opset=12, registry=registry)


def test_registered_file_makes_the_model_exportable(tmp_path: Path) -> None:
    source = """
        from opsetta import GraphContext, Value, onnx_symbolic

        @onnx_symbolic("mystery::second", opset=9)
        def second(g: GraphContext, x: Value):
            return g.op("Cos", x)
    """
    (tmp_path / "my_symbolics.py").write_text(textwrap.dedent(source))
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(opsetta.UnsupportedOperatorsError):
            opsetta.export(Mystery("second"), torch.ones(2))
        import my_symbolics  # noqa: F401

        program = opsetta.export(Mystery("second"), torch.ones(2))
        assert [node.op_type for node in program.model.graph] == ["Cos"]
    finally:
        sys.path.remove(str(tmp_path))
        default_registry._functions.pop("mystery::second", None)


def test_overlay_serves_without_touching_the_default() -> None:
    registry: Registry = default_registry.fork()

    @opsetta.onnx_symbolic("mystery::first", registry=registry)
    def first(g: GraphContext, x: Value) -> Value:
        return g.op("Sin", x)

    assert opsetta.export(Mystery("first"), torch.ones(2), registry=registry)
    with pytest.raises(opsetta.UnsupportedOperatorsError):
        opsetta.export(Mystery("first"), torch.ones(2))


def test_custom_operator_lowers_to_a_custom_domain() -> None:
    registry = default_registry.fork()

    @torch.library.custom_op("opsetta_tests::twice", mutates_args=())
    def twice(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    @twice.register_fake
    def _(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.empty_like(x)

    @opsetta.onnx_symbolic("opsetta_tests::twice", registry=registry)
    def symbolic(g: GraphContext, x: Value, factor: float) -> Value:
        return g.op("mydomain::Twice", x, factor_f=factor, axes_i=[1, 2], mode_s="fast")

    program = opsetta.export(lambda x: twice(x, 2.0), torch.ones(2), registry=registry)
    [node] = program.model.graph
    assert (node.domain, node.op_type) == ("mydomain", "Twice")
    assert {name: attribute.value for name, attribute in node.attributes.items()} == {
        "factor": 2.0,
        "axes": (1, 2),
        "mode": "fast",
    }
    assert program.model.opset_imports["mydomain"] == 1


def test_failing_symbolic_function_is_named() -> None:
    registry = default_registry.fork()

    @opsetta.onnx_symbolic("mystery::first", registry=registry)
    def first(g: GraphContext, x: Value) -> Value:
        raise KeyError("oops")

    with pytest.raises(opsetta.OpsettaError, match=r"mystery::first.*KeyError"):
        opsetta.export(Mystery("first"), torch.ones(2), registry=registry)


class Without(Registry):
    """The default registry without some operators."""

    def __init__(self, *hidden: str):
        super().__init__(default_registry)
        self.hidden = hidden

    def lookup(self, name: str, overload: str, opset: int) -> SymbolicFunction | None:
        return None if name in self.hidden else super().lookup(name, overload, opset)


@pytest.mark.parametrize("opset", [9, 18, HIGHEST])
def test_operator_without_a_symbolic_function_is_decomposed(opset: int) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.softplus(x) + torch.nn.functional.mse_loss(x, x * 2)
        return torch.addcmul(y, x, x, value=0.5)

    registry = Without("aten::softplus", "aten::mse_loss", "aten::addcmul")
    program = opsetta.export(forward, torch.randn(3, 4), opset=opset, registry=registry)
    program.verify()
    dynamic = opsetta.export(
        forward, torch.randn(3, 4), opset=opset, registry=registry, dynamic_shapes=({0: "n", 1: "m"},)
    )
    dynamic.verify((torch.randn(5, 2),))


def test_decomposition_that_works_in_place_is_made_functional() -> None:
    cell = nn.RNNCell(3, 4).eval()
    opsetta.export(cell, torch.randn(2, 3), registry=Without("aten::rnn_tanh_cell")).verify()


def test_decomposed_nodes_carry_the_module_path() -> None:
    model = nn.Sequential(nn.Identity(), nn.Softplus())
    program = opsetta.export(model, torch.randn(3), registry=Without("aten::softplus"))
    assert {node.metadata_props["opsetta.module"] for node in program.model.graph} == {"1"}
