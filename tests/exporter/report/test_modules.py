"""The tree of modules: runs of nodes, repeated modules, groups, and what is left out of large graphs."""

from __future__ import annotations

import pytest

from opsetta.exporter.report.modules import CHUNK, DEPTH, Module, cut, tree


def shown(module: Module) -> list:
    """A tree as nested lists of names and positions."""
    return [[child.name, shown(child)] if isinstance(child, Module) else child for child in module.children]


def made(paths: list[str], makers: list[str | None] | None = None) -> Module:
    return tree(paths, makers if makers is not None else [None] * len(paths))


def test_nodes_of_a_path_are_a_module_and_a_module_of_one_node_is_that_node():
    assert shown(made(["", "a.x", "a.x", "a.y", ""])) == [0, ["a", [["x", [1, 2]], 3]], 4]


def test_a_module_with_nothing_but_another_one_has_both_names():
    root = made(["a.b", "a.b", "c"])
    assert shown(root) == [["a.b", [0, 1]], 2]
    assert root.children[0].path == "a.b"


def test_a_module_that_runs_again_is_another_module():
    assert shown(made(["a", "a", "", "a", "a"])) == [["a", [0, 1]], 2, ["a #2", [3, 4]]]


def test_the_nodes_of_one_composed_operator_are_a_group():
    makers = [*["qr 1"] * 5, "add 2", *["qr 3"] * 4]
    assert shown(made([""] * 10, makers)) == [["qr", [0, 1, 2, 3, 4]], 5, ["qr #2", [6, 7, 8, 9]]]


def test_a_module_of_one_composed_operator_needs_no_group():
    assert shown(made(["", "a", "a", "a", "a"], [None, *["gelu 1"] * 4])) == [0, ["a", [1, 2, 3, 4]]]


@pytest.mark.parametrize("count", [CHUNK, CHUNK + 1, CHUNK**2 + 1])
def test_no_module_has_many_children(count):
    root = made([""] * count)
    assert root.nodes() == list(range(count))
    pending = [root]
    while pending:
        module = pending.pop()
        assert len(module.children) <= CHUNK
        pending += [child for child in module.children if isinstance(child, Module)]


def test_a_group_of_modules_has_the_names_of_its_ends():
    root = made([f"layers.{n // 2}" for n in range(200)])
    [layers] = root.children
    assert [child.name for child in layers.children] == ["0 … 33", "34 … 67", "68 … 99"]


def test_paths_of_any_depth_are_taken():
    [module] = made([".".join("a" * 5000)] * 2).children
    assert module.path.count(".") == DEPTH - 1


def test_deep_modules_of_a_large_graph_are_left_out_first():
    root = made([f"layers.{n // 20}.{'attention' if n % 20 < 10 else 'mlp'}" for n in range(200)])
    assert cut(root, 200) == 0
    assert cut(root, 110) == 90
    [layers] = root.children
    assert [inner.is_cut for layer in layers.children for inner in layer.children] == [True] * 10 + [
        False
    ] * 10
    assert cut(root, 1) == 199
