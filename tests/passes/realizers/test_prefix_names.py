"""Names with a prefix."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta.passes.realizers import PrefixNames
from opsetta.registration import GraphError, UsageError

from .checks import OPSETS, F, check, model_of, numbers, run, unchanged


def model(opset=17, name="y"):
    inside = helper.make_graph(
        [helper.make_node("Mul", ["h", "w"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", F, (3,))],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["h"], ["e"])], "else", [], [helper.make_tensor_value_info("e", F, (3,))]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], "activation"),
        helper.make_node("If", ["c"], [name], then_branch=inside, else_branch=other),
    ]
    return model_of(opset, nodes, {"x": (3,), "c": ("BOOL",)}, [name], {"w": numbers(3)})


@pytest.mark.parametrize("opset", OPSETS)
def test_every_name_gets_the_prefix(opset):
    plain = model(opset)
    renamed = plain.clone()
    assert PrefixNames("m/")(renamed).modified
    check(renamed)
    names = [v.name for v in (*renamed.graph.inputs, *renamed.graph.outputs)]
    assert names == ["m/x", "m/c", "m/y"]
    assert list(renamed.graph.initializers) == ["m/w"]
    assert renamed.graph[0].name == "m/activation"
    feed = {"x": numbers(3), "c": np.array(True)}
    expected = run(plain, feed)
    found = run(renamed, {f"m/{name}": array for name, array in feed.items()})
    np.testing.assert_array_equal(found, expected)
    assert [t.name for t in ir.to_proto(plain).graph.initializer] == ["w"]
    unchanged(renamed, PrefixNames("m/"))


def test_a_clash_is_refused():
    clashing = model(name="mc")
    with pytest.raises(GraphError, match="'c' cannot be renamed to 'mc'"):
        PrefixNames("m")(clashing)
    assert clashing.graph[0].outputs[0].name == "h"


def test_an_empty_prefix_is_refused():
    with pytest.raises(UsageError):
        PrefixNames("")
