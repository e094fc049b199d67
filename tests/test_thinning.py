"""Quick runs take the variants that the table of costly tests says."""

import ast

import pytest

from .conftest import ROOT
from .thinning import NUMBER_OF_VARIANTS, spread


@pytest.mark.parametrize("file", NUMBER_OF_VARIANTS)
def test_the_table_names_tests_that_exist(file: str) -> None:
    body = ast.parse((ROOT / "tests" / file).read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    assert set(NUMBER_OF_VARIANTS[file]) <= functions


@pytest.mark.parametrize("count", range(12))
@pytest.mark.parametrize("number", range(1, 12))
def test_the_number_is_taken_from_the_whole_range(count: int, number: int) -> None:
    numbers = spread(count, number)
    assert len(numbers) == min(count, number)
    assert numbers <= set(range(count))
    assert not numbers or min(numbers) == 0
    assert number < 2 or not numbers or max(numbers) == count - 1
