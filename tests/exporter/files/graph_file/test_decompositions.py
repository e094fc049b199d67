"""Decompositions in a source file: they follow from the node and the opset, and are kept for each."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch

import opsetta
from opsetta.exporter.files.graph_file.decompositions import Decompositions
from opsetta.exporter.files.writing import to_bytes
from opsetta.registration import Registry
from tests.opsets import OPSETS


class Without(Registry):
    """The default registry without some operators, which are decomposed then."""

    def __init__(self, *names: str):
        super().__init__(opsetta.default_registry)
        self._without = names

    def lookup(self, name: str, overload: str, opset: int, *, custom: bool = True) -> Any:
        return None if name in self._without else super().lookup(name, overload, opset, custom=custom)


REGISTRY = Without("aten::huber_loss", "aten::mse_loss", "aten::trace")


def losses(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    loss = torch.nn.functional.huber_loss
    return loss(x, y), loss(x + 1, y), loss(x, y, delta=0.3), torch.nn.functional.mse_loss(x, y)


def _export() -> opsetta.Program:
    shapes = {"x": {0: "n"}, "y": {0: "n"}}
    return opsetta.export(
        losses, (torch.ones(4, 3), torch.zeros(4, 3)), dynamic_shapes=shapes, registry=REGISTRY
    )


def _loaded(path: pathlib.Path, program: opsetta.Program) -> opsetta.SourceModel:
    program.save_source(path)
    return opsetta.load(path)


def test_the_order_of_opsets_does_not_matter() -> None:
    up, down = _export(), _export()
    found = {opset: to_bytes(up.lower(opset).model) for opset in OPSETS}
    assert found == {opset: to_bytes(down.lower(opset).model) for opset in reversed(OPSETS)}


def test_alike_nodes_share_what_is_kept(tmp_path: pathlib.Path) -> None:
    loaded = _loaded(tmp_path / "model", _export())
    kept = loaded._decompositions
    assert isinstance(kept, Decompositions)
    assert sorted(key.split('"')[1] for key in kept.graphs) == [
        "aten::huber_loss.default",
        "aten::huber_loss.default",
        "aten::mse_loss.default",
    ]
    assert all(sorted(by_opset) == list(OPSETS) for by_opset in kept.graphs.values())
    assert len({id(graph) for by_opset in kept.graphs.values() for graph in by_opset.values()}) < 10


def test_what_is_kept_lowers_to_the_same_bytes(tmp_path: pathlib.Path) -> None:
    program = _export()
    loaded = _loaded(tmp_path / "model", program)
    for opset in OPSETS:
        expected = to_bytes(program.lower(opset).model)
        assert to_bytes(loaded.lower(opset, registry=REGISTRY).model) == expected


def test_a_node_without_a_stored_decomposition_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    loaded = _loaded(tmp_path / "model", _export())
    kept = loaded._decompositions
    assert isinstance(kept, Decompositions)
    kept.graphs = {key: graphs for key, graphs in kept.graphs.items() if "mse" not in key}
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=r"aten::mse_loss\.default \(once") as raised:
        loaded.lower(9, registry=REGISTRY)
    assert len(raised.value.operators) == 1


def test_a_registry_that_knows_the_operator_goes_first(tmp_path: pathlib.Path) -> None:
    registry = Without("aten::mse_loss").fork()

    @opsetta.onnx_symbolic("aten::huber_loss", opset=9, registry=registry)
    def huber_loss(g, self, target, reduction: int = 1, delta: float = 1.0):  # type: ignore[no-untyped-def]
        return g.op("mylib::Huber", self, target, delta=delta)

    loaded = _loaded(tmp_path / "model", _export())
    operators = [node.op_type for node in loaded.lower(9, registry=registry).model.graph]
    assert operators.count("Huber") == 3
    assert "Huber" not in [node.op_type for node in loaded.lower(9, registry=REGISTRY).model.graph]


def test_numbers_that_are_one_are_not_like_numbers_that_are_two() -> None:
    def sums(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, m = a.item(), b.item()
        torch._check(n > 0)
        torch._check(m > 0)
        ones = torch.ones(n, n).trace(), torch.ones(n, m).trace()
        return ones[0] + x, ones[1] + x

    example = (torch.zeros(1), torch.tensor(3), torch.tensor(5))
    program = opsetta.export(sums, example, opset=13, registry=REGISTRY)
    program.verify()
    program.verify((torch.zeros(1), torch.tensor(4), torch.tensor(2)))
