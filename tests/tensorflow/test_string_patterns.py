"""Patterns of regular expressions, and replacements and encodings that are refused."""

import numpy as np
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import default_registry
from opsetta.registration.arguments import source_node
from opsetta.symbolics.tensorflow.text.string_patterns import parse_pattern

from .checks import run


@pytest.mark.parametrize(
    ("text", "texts", "repeats"),
    [
        (r"\.", ["."], False),
        (r"a\+", ["a+"], False),
        ("(ab)", ["ab"], False),
        ("a+", ["a"], True),
        ("[a-c]+", ["a", "b", "c"], True),
        ("([,;])", [",", ";"], False),
        (r"[]\-a]", ["]", "-", "a"], False),
        ("[a^-]", ["a", "^", "-"], False),
        (r"[\d.]", [*"0123456789", "."], False),
    ],
)
def test_texts_of_a_pattern(text, texts, repeats):
    pattern = parse_pattern(text)
    assert pattern is not None
    assert (pattern.texts, pattern.repeats) == (texts, repeats)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "[^a]",
        "a*",
        "ab+",
        "a|b",
        "(a)(b)",
        "^a",
        "[a",
        "[ab][cd]",
        r"\p{L}",
        r"\\.",
        "(?i)a",
        "a++",
    ],
)
def test_other_patterns_are_refused(text):
    assert parse_pattern(text) is None


def _source(pattern: str, rewrite: str) -> ir.Model:
    settings = {"pattern": pattern, "rewrite": rewrite, "replace_global": True}
    return _model_of("tf::StaticRegexReplace", **settings)


def _model_of(operator: str, **settings: str | bool) -> ir.Model:
    x, y = (ir.Value(name=name, type=ir.TensorType(ir.DataType.STRING)) for name in "xy")
    x.shape = ir.Shape([None])
    node = source_node(operator, {"input": x, **settings}, outputs=[y])
    return ir.Model(ir.Graph([x], [y], nodes=[node], name="graph"), ir_version=10)


@pytest.mark.parametrize("operator", ["tf::StringLower", "tf::StringUpper"])
def test_another_encoding_is_refused(operator):
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="and 'utf-8', not 'latin-1'"):
        lower(_model_of(operator, encoding="latin-1"), 13, default_registry)


@pytest.mark.parametrize(
    ("pattern", "rewrite", "reason"),
    [
        ("[^a]", "", "is not a text, a set of characters or a run of them"),
        ("[ab]", "ba", "has several of the characters that it replaces"),
        ("a", "\\2", "the replacement"),
        ("a+", "\\0", "of a run is not supported"),
    ],
)
def test_a_refused_replacement_says_why(pattern, rewrite, reason):
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=reason):
        lower(_source(pattern, rewrite), 20, default_registry)


def test_a_batch_without_strings_stays_empty():
    model = lower(_source("[ab]+", "c"), 20, default_registry).model
    [result] = run(ir.to_proto(model), {"x": np.empty(0, object)})
    assert result.shape == (0,)
