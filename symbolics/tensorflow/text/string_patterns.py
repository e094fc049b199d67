"""Splits of strings, and replacements of regular expressions where splits and joins say the same.

ONNX splits strings at a constant text, from opset 20 on. A pattern that is a text, a set of characters or
a run of them is replaced by splitting at each of its texts, and joining the parts with the replacement.
Patterns are those of RE2: https://github.com/google/re2/wiki/Syntax.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.matrices import run_loop
from ...compositions.row_partitions import longest
from ...compositions.size_arithmetic import sizes_of
from .._common import concatenate_strings, flatten, range_vector, set_shape
from .strings import constant_text

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLASSES = {"d": string.digits, "s": "\t\n\f\r ", "w": string.ascii_letters + string.digits + "_"}
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": "\t ",
    "digit": string.digits,
    "lower": string.ascii_lowercase,
    "punct": string.punctuation,
    "space": "\t\n\v\f\r ",
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
}
_OPERATORS = ".*+?()[]{}|^$"
_WHITESPACE = " \t\n\v\f\r"
_MOST_IN_A_RANGE = 256


@dataclass(frozen=True)
class MatchedTexts:
    """A regular expression that matches one of some texts.

    Attributes:
        texts: what it matches: one text of any length, or several characters.
        repeats: whether it matches runs of these characters, and not each alone.
    """

    texts: list[str]
    repeats: bool = False


def parse_pattern(text: str) -> MatchedTexts | None:
    """The texts that a regular expression matches; None if it is not of the supported form."""
    repeats = text.endswith("+") and not text.endswith("\\+")
    body = text[:-1] if repeats else text
    if body.startswith("("):
        is_group = body.endswith(")") and not body.endswith("\\)") and not body.startswith("(?")
        inner = parse_pattern(body[1:-1]) if is_group else None
        return None if inner is None or (repeats and inner.repeats) else MatchedTexts(inner.texts, repeats)
    if body.startswith("["):
        texts = _set_of_characters(body[1:-1]) if body.endswith("]") else None
    else:
        texts = _sequence(body)
    if not texts or (repeats and max(map(len, texts)) > 1):
        return None
    return MatchedTexts(texts, repeats)


def _sequence(body: str) -> list[str] | None:
    """The texts of a pattern without brackets: characters, escapes, or one class such as that of digits."""
    characters, position = "", 0
    while position < len(body):
        if body[position] in _OPERATORS:
            return None
        character, position = _next_character(body, position)
        if len(character) > 1:
            # A class stands alone.
            return list(character) if position == len(body) and not characters else None
        if not character:
            return None
        characters += character
    return [characters] if characters else None


def _next_character(body: str, position: int) -> tuple[str, int]:
    """The characters that an item of a pattern matches, "" if that is not supported, and where it ends."""
    if body[position] != "\\":
        return body[position], position + 1
    escaped = body[position + 1 : position + 2]
    if escaped in _CONTROLS or escaped in _CLASSES:
        return _CONTROLS.get(escaped) or _CLASSES[escaped], position + 2
    # RE2 takes each punctuation mark after a backslash as itself; letters and digits have other meanings.
    return (escaped if escaped in string.punctuation else ""), position + 2


def _set_of_characters(body: str) -> list[str] | None:
    """The characters of a set, without its brackets; None if it is the complement of a set."""
    members: dict[str, None] = {}
    position = 0
    while position < len(body):
        if body.startswith("[:", position):
            name, end, remaining = body[position + 2 :].partition(":]")
            if not end or name not in _POSIX:
                return None
            members |= dict.fromkeys(_POSIX[name])
            position = len(body) - len(remaining)
            continue
        # A leading `^` is the complement. A leading `]` is a member in RE2, a later one ends the set.
        if body[position] == ("]" if position else "^"):
            return None
        low, position = _next_character(body, position)
        if not low:
            return None
        if body[position : position + 1] == "-" and position + 1 < len(body):
            high, position = _next_character(body, position + 1)
            if len(low) != 1 or len(high) != 1 or not 0 <= ord(high) - ord(low) < _MOST_IN_A_RANGE:
                return None
            low = "".join(map(chr, range(ord(low), ord(high) + 1)))
        members |= dict.fromkeys(low)
    return list(members)


def _steps(g: GraphContext, pattern: MatchedTexts, rewrite: str) -> list[tuple[str, str]]:
    """The texts to replace, in an order in which none of them replaces what another one wrote."""
    fixed = rewrite.replace("\\0", "").replace("\\1", "")
    if "\\" in fixed:
        raise g.refuse(f"the replacement '{rewrite}' is not supported")
    in_replacement = [text for text in pattern.texts if text in fixed]
    if len(in_replacement) > 1 and len(pattern.texts) > 1:
        raise g.refuse(f"the replacement '{rewrite}' has several of the characters that it replaces")
    # A text that the replacement has comes first, so that no later step sees the replacement.
    ordered = in_replacement + [text for text in pattern.texts if text not in in_replacement]
    replacements = [rewrite.replace("\\0", text).replace("\\1", text) for text in ordered]
    return [(text, new) for text, new in zip(ordered, replacements, strict=True) if text != new]


def split_strings(
    g: GraphContext, flat: Value, delimiter: str, most: int | None = None
) -> tuple[Value, Value]:
    """The parts of each string as a matrix padded with empty strings, and the number of them.

    Args:
        delimiter: not empty.
        most: how many times a string is split at most.
    """
    parts, counts = g.op("StringSplit", flat, delimiter=delimiter, maxsplit=most, outputs=2)
    # An empty string has one empty part. onnxruntime counts none, and the result may have no column.
    blank = g.op("Expand", g.constant(np.array("", dtype=object)), g.stack([*sizes_of(g, flat), 1]))
    parts = set_shape(g.op("Concat", set_shape(parts, [None, None]), blank, axis=1), [None, None])
    return parts, g.call("aten::clamp_min", set_shape(counts, [None]), 1)


def _replace(
    g: GraphContext, flat: Value, text: str, new: str, repeats: bool = False, most: int | None = None
) -> Value:
    """Replace a text in a vector of strings.

    Args:
        repeats: whether a run of the text is replaced as a whole.
    """
    parts, counts = split_strings(g, flat, text, most)
    separator, nothing = (g.constant(np.array(item, dtype=object)) for item in (new, ""))

    def step(iteration: Value, joined: Value) -> list[Value]:
        column = g.op("Add", iteration, 1)
        part = set_shape(g.op("Gather", parts, column, axis=1), [None])
        if new:
            is_separated = g.op("Less", column, counts)
            if repeats:
                # Empty parts lie within a run, except for the last one, which follows a run at the end.
                is_last = g.op("Equal", column, g.op("Sub", counts, 1))
                is_text = g.op("Not", g.op("Equal", part, nothing))
                is_separated = g.op("And", is_separated, g.op("Or", is_text, is_last))
            joined = concatenate_strings(
                g, joined, set_shape(g.op("Where", is_separated, separator, nothing), [None])
            )
        return [set_shape(concatenate_strings(g, joined, part), [None])]

    first = set_shape(g.op("Gather", parts, 0, axis=1), [None])
    trips = g.call("sym::sub", a=longest(g, counts), b=1)
    [result] = run_loop(g, trips, step, [first])
    return result


@onnx_symbolic("tf::StaticRegexReplace")
def static_regex_replace(
    g: GraphContext, input: Value, pattern: str, rewrite: str, replace_global: bool = True
) -> Value:
    """Replace a text, the characters of a set, or runs of them. The replacement may have the match in it."""
    parsed = parse_pattern(pattern)
    if parsed is None:
        raise g.refuse(
            f"the pattern '{pattern}' is not a text, a set of characters or a run of them: replace it before "
            "the model, and name the result as an input"
        )
    if parsed.repeats and "\\" in rewrite:
        raise g.refuse(f"the replacement '{rewrite}' of a run is not supported")
    if not replace_global and (len(parsed.texts) > 1 or parsed.repeats):
        raise g.refuse("only the first match of a set of characters cannot be replaced alone")
    flat = flatten(g, input)
    if parsed.repeats:
        first = parsed.texts[0]
        for text in parsed.texts[1:]:
            flat = _replace(g, flat, text, first)
        flat = _replace(g, flat, first, rewrite, repeats=True)
    else:
        for text, new in _steps(g, parsed, rewrite):
            flat = _replace(g, flat, text, new, most=None if replace_global else 1)
    if g.rank(input) == 1:
        return set_shape(flat, g.shape(input))
    return set_shape(g.op("Reshape", flat, g.op("Shape", input)), g.shape(input))


@onnx_symbolic("tf::RegexReplace")
def regex_replace(
    g: GraphContext, input: Value, pattern: Value, rewrite: Value, replace_global: bool = True
) -> Value:
    """The pattern and the replacement must be constant."""
    texts = constant_text(g, pattern, "pattern"), constant_text(g, rewrite, "rewrite")
    return static_regex_replace(g, input, *texts, replace_global)


def _sparse_parts(
    g: GraphContext, flat: Value, parts: Value, counts: Value, skip_empty: bool = False
) -> list[Value]:
    """The positions and the values of the parts, and the sizes of their matrix."""
    # Rows are padded to the longest one; the mask keeps the parts that each string has.
    columns = range_vector(g, g.size(parts, 1))
    mask = g.op("Less", g.op("Unsqueeze", columns, axes=[0]), g.op("Unsqueeze", counts, axes=[1]))
    if skip_empty:
        is_text = g.op("Not", g.op("Equal", parts, g.constant(np.array("", dtype=object))))
        mask = g.op("And", mask, is_text)
        counts = g.op("ReduceSum", g.cast(mask, DataType.INT64), axes=[1], keepdims=0)
    occupied = set_shape(g.op("Transpose", g.op("NonZero", mask), perm=[1, 0]), [None, 2])
    values = set_shape(g.op("GatherND", parts, occupied), [None])
    indices = occupied
    if skip_empty:
        # The remaining parts move to the front of their rows.
        numbers = g.call("aten::cumsum", self=g.cast(mask, DataType.INT64), dim=1)
        positions = g.op("Sub", g.op("Unsqueeze", g.op("GatherND", numbers, occupied), axes=[1]), 1)
        rows = g.op("Slice", occupied, starts=[0], ends=[1], axes=[1])
        indices = set_shape(g.op("Concat", rows, positions, axis=1), [None, 2])
    return [indices, values, g.stack([*sizes_of(g, flat), longest(g, counts)])]


@onnx_symbolic("tf::StringSplitV2")
def string_split_v2(g: GraphContext, input: Value, sep: Value, maxsplit: int = -1) -> list[Value]:
    """The parts of each string as a sparse matrix."""
    separator, flat = constant_text(g, sep, "sep"), flatten(g, input)
    if separator:
        return _sparse_parts(g, flat, *split_strings(g, flat, separator, None if maxsplit < 0 else maxsplit))
    if maxsplit >= 0:
        raise g.refuse("a limit of splits at whitespace is not supported")
    # StringSplit also splits at whitespace, but onnxruntime takes only blanks for it.
    return _sparse_parts(g, flat, *_split_at_any(g, flat, _WHITESPACE), skip_empty=True)


@onnx_symbolic("tf::StringSplit")
def string_split(g: GraphContext, input: Value, delimiter: Value, skip_empty: bool = True) -> list[Value]:
    """The parts of each string as a sparse matrix; each character of the delimiter separates."""
    characters = list(dict.fromkeys(constant_text(g, delimiter, "delimiter")))
    if not characters:
        raise g.refuse(
            "ONNX cannot split strings into bytes: do so before the model, and name the result as an input"
        )
    flat = flatten(g, input)
    parts, counts = _split_at_any(g, flat, characters)
    if not skip_empty:
        # This operator has no part for an empty string, unlike StringSplitV2.
        is_text = g.op("Not", g.op("Equal", flat, g.constant(np.array("", dtype=object))))
        counts = g.op("Mul", counts, g.cast(is_text, DataType.INT64))
    return _sparse_parts(g, flat, parts, counts, skip_empty)


def _split_at_any(g: GraphContext, flat: Value, characters: Sequence[str]) -> tuple[Value, Value]:
    """Like `split_strings`, at each of several characters."""
    for character in characters[1:]:
        flat = _replace(g, flat, character, characters[0])
    return split_strings(g, flat, characters[0])
