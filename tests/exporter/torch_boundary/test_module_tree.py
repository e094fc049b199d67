"""The parts of a model from one walk: those that torch's methods find."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opsetta.exporter.torch_boundary.recording.module_paths import Root
from opsetta.exporter.torch_boundary.state.module_tree import ModuleTree, modules_of, tensors_of


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("table", torch.ones(2), persistent=False)
        self.register_buffer("absent", None)
        self.register_parameter("missing", None)
        self.constant = torch.zeros(3)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Inner(), Inner()])
        self.shared = self.layers[0].norm
        self.layers[1].linear.weight = self.layers[0].linear.weight
        self.none: nn.Module | None = None
        self.alias = self.layers[0].linear.bias
        self.numbers = [1, 2]


def test_the_parts_are_those_that_torch_finds() -> None:
    model = Model()
    tree = ModuleTree(model)
    for found, expected in (
        (tree.modules, dict(model.named_modules(remove_duplicate=False))),
        (tree.parameters, dict(model.named_parameters(remove_duplicate=False))),
        (tree.buffers, dict(model.named_buffers(remove_duplicate=False))),
    ):
        assert list(found) == list(expected)
        assert all(found[name] is expected[name] for name in expected)
    state = model.state_dict()
    assert tree.buffers.keys() - tree.transient == tree.buffers.keys() & state.keys()
    assert tree.attributes.keys() == {"layers.0.constant", "layers.1.constant"}
    assert all(held[key] is tree.buffers[name] for name, (held, key) in tree.holders.items())


def test_modules_and_their_tensors_are_those_that_torch_finds_in_this_order() -> None:
    model = Model()
    assert list(map(id, modules_of(model))) == list(map(id, model.modules()))
    inner = model.layers[0]
    expected = [*inner.parameters(recurse=False), *inner.buffers(recurse=False)]
    assert list(map(id, tensors_of(inner))) == list(map(id, expected))


@pytest.mark.parametrize("remove_duplicate", [False, True])
def test_the_tracer_gets_the_modules_that_torch_finds(remove_duplicate: bool) -> None:
    root = Root(ModuleTree(Model()))
    expected = torch.nn.Module.named_modules(root, remove_duplicate=remove_duplicate)
    assert list(root.named_modules(remove_duplicate=remove_duplicate)) == list(expected)
