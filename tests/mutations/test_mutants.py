"""The mutants that `python -m tests.mutations` seeds."""

import ast
import pathlib

from .__main__ import CONVERSION, sample, with_conversion
from .mutants import mutants, mutants_of_functions

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_mutant_changes_one_line_of_a_function_and_parses():
    chosen = mutants(ROOT, 40, 0)
    assert len({(mutant.path, mutant.function) for mutant in chosen}) == 40
    for mutant in chosen:
        text = (ROOT / mutant.path).read_text(encoding="utf-8")
        changed = mutant.apply(text)
        ast.parse(changed)
        pairs = zip(text.splitlines(), changed.splitlines(), strict=True)
        assert sum(before != after for before, after in pairs) == 1


def test_the_choice_depends_on_the_seed_alone():
    chosen = mutants(ROOT, 5, 1)
    assert chosen != mutants(ROOT, 5, 2)
    mutants_of_functions.cache_clear()
    assert chosen == mutants(ROOT, 5, 1)


def test_the_functions_of_one_file_are_chosen():
    path = "symbolics/aten/opset9/elementwise/pointwise.py"
    assert {mutant.path for mutant in mutants(ROOT, 5, 0, path)} == {path}


def test_tests_of_conversion_are_always_chosen():
    assert with_conversion(["tests/parity", "-q"]) == ["tests/parity", "-q", CONVERSION]
    assert with_conversion(["tests/models/zoo.py::x"])[-1] == CONVERSION
    # All tests.
    assert with_conversion(["--sweep"]) == ["--sweep"]


def test_a_sample_has_the_tests_of_conversion():
    tests = [f"tests/parity/test_{i}.py" for i in range(9)] + [f"{CONVERSION}/test_{i}.py" for i in range(3)]
    assert sample(tests, 20, 0) == tests
    found = sample(tests, 5, 0)
    assert len(set(found)) == 5
    assert found[:3] == tests[9:]
    assert sample(tests, 2, 0) == tests[9:11]
