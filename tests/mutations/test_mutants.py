"""The mutants that `python -m tests.mutations` seeds."""

import ast
import pathlib

from .mutants import mutants

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
    assert mutants(ROOT, 5, 1) == mutants(ROOT, 5, 1)
    assert mutants(ROOT, 5, 1) != mutants(ROOT, 5, 2)
