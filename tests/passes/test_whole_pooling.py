"""Pooling by one window that covers the image becomes global pooling."""

from __future__ import annotations

from typing import Any

import pytest

from opsetta.passes.onnx_graph.images.whole_pooling import PoolWhole

from .graph_case import Case, numbers


@pytest.mark.parametrize("op_type", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize(
    ("attributes", "is_global"),
    [
        ({"kernel_shape": [4, 5]}, True),
        ({"kernel_shape": [9, 9], "pads": [0, 0, 5, 4]}, True),
        ({"kernel_shape": [6, 7], "pads": [1, 1, 1, 1], "strides": [3, 3]}, True),
        ({"kernel_shape": [3, 5]}, False),
        ({"kernel_shape": [3, 5], "strides": [2, 2]}, False),
        ({"kernel_shape": [5, 6], "pads": [2, 2, 0, 0], "strides": [9, 9]}, False),
    ],
)
def test_windows(op_type: str, attributes: dict[str, Any], is_global: bool) -> None:
    case = Case([2, 3, 4, 5])
    case.returns(case.g.op(op_type, case.x, **attributes))
    assert case.checked(numbers(2, 3, 4, 5), PoolWhole(), exact=False) == is_global
    assert case.ops() == [f"Global{op_type}" if is_global else op_type]


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [6, 7], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [9, 9], "ceil_mode": 1, "count_include_pad": 1},
    ],
)
def test_an_average_that_counts_more_than_the_image_stays(attributes: dict[str, Any]) -> None:
    case = Case([2, 3, 4, 5])
    case.returns(case.g.op("AveragePool", case.x, **attributes))
    assert not PoolWhole()(case.model).modified


def test_an_image_of_unknown_size_stays() -> None:
    case = Case([2, 3, 4, "width"])
    case.returns(case.g.op("AveragePool", case.x, kernel_shape=[4, 5]))
    assert not PoolWhole()(case.model).modified
