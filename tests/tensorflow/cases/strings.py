"""Strings, and lookup tables of them."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, integers, record

WORDS = array_of(["a", "b", "", "Straße", "a"]).astype(object)
PUNCTUATED = array_of(["Hello, World!!", "ab  \t b,", "", "x<br />é 12", "!", " a,,b"]).astype(object)
LENGTHS = array_of(["a" * size for size in (0, 1, 4, 8, 17, 33, 64, 65, 129)]).astype(object)
SENTENCES = array_of(["a bb  c", "", " d ", "e"]).astype(object)


def _strings():
    yield record("StringLower", "", input=array_of([["Ab", "ÉC"], ["", "x"]]), lowest=10, run_until=99)
    yield record("StringUpper", "", input=WORDS, lowest=10)
    yield record("StringLower", "empty", input=np.empty((0,), object), lowest=10)
    yield record("ZerosLike", "strings", x=WORDS)
    yield record("AsString", "", input=integers(2, 3))
    yield record("AsString", "bool", input=array_of([True, False]))
    yield record("AsString", "int64", input=np.array([-(2**40), 7]))
    yield record(
        "ReduceJoin",
        "",
        inputs=array_of([["a", "b"], ["c", ""]]),
        reduction_indices=const([1]),
        separator="-",
        lowest=20,
        needs_sizes=True,
    )
    yield record(
        "ReduceJoin",
        "keep",
        inputs=array_of([["a", "b"], ["c", "d"]]),
        reduction_indices=const([0, 1]),
        keep_dims=True,
        lowest=20,
        needs_sizes=True,
    )
    yield record("StringSplitV2", "", input=SENTENCES, sep=const(""), lowest=20)
    yield record(
        "StringSplitV2", "delimiter", input=array_of(["a,b,,c", "", ",x"]), sep=const(","), lowest=20
    )
    yield record("StringSplitV2", "most", input=SENTENCES, sep=const(" "), maxsplit=1, lowest=20)
    yield record(
        "StringSplitV2", "whitespace", input=array_of(["\t a\n\v b ", " \r", "c"]), sep=const(""), lowest=20
    )
    yield record("StringSplit", "", input=PUNCTUATED, delimiter=const(", "), lowest=20)
    yield record("StringSplit", "keep", input=PUNCTUATED, delimiter=const(","), skip_empty=False, lowest=20)
    yield record("StringToHashBucketFast", "constant", input=const(LENGTHS), num_buckets=997)
    yield record("StringToHashBucketFast", "one", input=WORDS, num_buckets=1)
    yield record("StringToHashBucketStrong", "one", input=WORDS, num_buckets=1, key=[1, 2])
    yield record("StringToHashBucket", "one", string_tensor=WORDS, num_buckets=1)
    yield record("Equal", "strings", x=WORDS, y=const(array_of(["a"]).astype(object)))
    yield record(
        "Equal", "strings_vector", x=WORDS, y=const(array_of(["a", "c", "", "Straße", "b"]).astype(object))
    )
    yield record(
        "Equal", "strings_computed", x=array_of([["a"], ["b"]]), y=array_of(["b", "c", "a"]), lowest=11
    )
    yield record("NotEqual", "strings", x=const(array_of("").astype(object)), y=WORDS)


def _patterns():
    for case, pattern, rewrite in (
        ("set", r"[!\"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\']", ""),
        ("text", "<br />", " "),
        ("run", r"\s+", "_"),
        ("match", "([.?!,])", r" \1 "),
        ("in_replacement", "[ab]", "bb"),
        ("posix", "[[:digit:]x]", "#"),
    ):
        yield record(
            "StaticRegexReplace", case, input=PUNCTUATED, pattern=pattern, rewrite=rewrite, lowest=20
        )
    yield record(
        "StaticRegexReplace",
        "first",
        input=PUNCTUATED.reshape(2, 3),
        pattern="!",
        rewrite="",
        replace_global=False,
        lowest=20,
    )
    yield record("RegexReplace", "", input=PUNCTUATED, pattern=const("ab"), rewrite=const("c"), lowest=20)
    yield record("RegexFullMatch", "", input=PUNCTUATED, pattern=const("[a-z ,]*"), lowest=20)
    yield record("StaticRegexFullMatch", "", input=PUNCTUATED, pattern=".*!", lowest=20)


def _elements():
    matrix = array_of([["a", "b"], ["c", "d"]])
    filler = const(array_of("p").astype(object))
    yield record("PadV2", "strings", input=matrix, paddings=const([[1, 0], [0, 2]]), constant_values=filler)
    yield record("Fill", "strings", dims=array_of([2, 3]), value=filler)


_TABLES = "a table is filled by another node; tests/exporter/capture/tensorflow/test_feature_models.py"
WITHOUT_RECORDS = {
    f"LookupTable{name}{version}": _TABLES for name in ("Find", "Size") for version in ("", "V2")
}
RECORDS = [*_strings(), *_patterns(), *_elements()]
