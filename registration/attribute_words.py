"""The words that ONNX operators allow for their string attributes, from the operators' documentation.

`onnx.defs` says that an attribute is a string, and not which strings. One table lists the words of each
attribute with the opsets that have them. An attribute that is not in the table may be any string: a pattern,
a delimiter, a locale, contents, or the names of a vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

_NEWEST = 1_000
"""Above every opset."""

Span = tuple[int, int]
"""The first and the last opset that have a word."""


def _words(*always: str, **spans: int | Span) -> dict[str, Span]:
    """Words that every version has, and words that begin at an opset, or begin and end."""
    limited = {word: span if isinstance(span, tuple) else (span, _NEWEST) for word, span in spans.items()}
    return {**dict.fromkeys(always, (1, _NEWEST)), **limited}


def _of(operators: str, attribute: str, words: dict[str, Span]) -> dict[tuple[str, str], dict[str, Span]]:
    return {(operator, attribute): words for operator in operators.split()}


_LOSSES = "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"
_POOLING = "AveragePool LpPool MaxPool"
_CONVOLUTIONS = "Conv ConvInteger ConvTranspose QLinearConv"
_TREES = "TreeEnsembleClassifier TreeEnsembleRegressor"
_SCORES = f"LinearClassifier LinearRegressor SVMClassifier SVMRegressor {_TREES}"
_MODES = "BRANCH_LEQ BRANCH_LT BRANCH_GTE BRANCH_GT BRANCH_EQ BRANCH_NEQ LEAF"
_ACTIVATIONS = (
    "Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus"
)

WORDS: Mapping[tuple[str, str], Mapping[str, Span]] = {
    **_of(f"{_POOLING} {_CONVOLUTIONS}", "auto_pad", _words("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
    **_of("BitShift", "direction", _words("LEFT", "RIGHT")),
    **_of("Cast CastLike", "round_mode", _words("up", "down", "nearest")),
    **_of("CausalConvWithState", "activation", _words("silu", "swish", "none")),
    **_of("DepthToSpace SpaceToDepth", "mode", _words("DCR", "CRD")),
    **_of("GRU LSTM RNN", "direction", _words("forward", "reverse", "bidirectional")),
    # onnxruntime ignores the case of activations, and files contain both.
    **_of("GRU LSTM RNN", "activations", _words(*_ACTIVATIONS.split(), *_ACTIVATIONS.lower().split())),
    **_of("Gelu", "approximate", _words("none", "tanh")),
    **_of("GridSample", "mode", _words("nearest", bilinear=(16, 19), bicubic=(16, 19), linear=20, cubic=20)),
    **_of("GridSample", "padding_mode", _words("zeros", "border", "reflection")),
    **_of("ImageDecoder", "pixel_format", _words("RGB", "BGR", "Grayscale")),
    **_of("LinearAttention", "update_rule", _words("linear", "gated", "delta", "gated_delta")),
    **_of(_LOSSES, "reduction", _words("none", "sum", "mean")),
    **_of("Pad", "mode", _words("constant", "reflect", "edge", wrap=19)),
    **_of("Resize", "mode", _words("nearest", "linear", cubic=11)),
    **_of("Resize", "nearest_mode", _words("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    **_of("Resize", "keep_aspect_ratio_policy", _words("stretch", "not_larger", "not_smaller")),
    **_of(
        "Resize",
        "coordinate_transformation_mode",
        _words(
            *"half_pixel pytorch_half_pixel align_corners asymmetric tf_crop_and_resize".split(),
            half_pixel_symmetric=19,
            # Opset 13 removed it from the text, but tf2onnx still writes it, and onnxruntime reads it.
            tf_half_pixel_for_nn=11,
        ),
    ),
    **_of("RoiAlign", "mode", _words("avg", "max")),
    **_of("RoiAlign", "coordinate_transformation_mode", _words("half_pixel", "output_half_pixel")),
    **_of("ScatterElements ScatterND", "reduction", _words("none", "add", "mul", max=18, min=18)),
    **_of("StringNormalizer", "case_change_action", _words("LOWER", "UPPER", "NONE")),
    **_of("TensorScatter", "mode", _words("linear", "circular")),
    **_of("TfIdfVectorizer", "mode", _words("TF", "IDF", "TFIDF")),
    **_of("Upsample", "mode", _words("nearest", bilinear=(1, 6), linear=7)),
    # The domain ai.onnx.ml.
    **_of("CastMap", "map_form", _words("DENSE", "SPARSE")),
    **_of("CastMap", "cast_to", _words("TO_FLOAT", "TO_STRING", "TO_INT64")),
    **_of(_SCORES, "post_transform", _words("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")),
    **_of("Normalizer", "norm", _words("MAX", "L1", "L2")),
    **_of("SVMClassifier SVMRegressor", "kernel_type", _words("LINEAR", "POLY", "RBF", "SIGMOID")),
    **_of(_TREES, "nodes_modes", _words(*_MODES.split())),
    **_of("TreeEnsembleRegressor", "aggregate_function", _words("AVERAGE", "SUM", "MIN", "MAX")),
    # The domain ai.onnx.preview.training.
    **_of("Momentum", "mode", _words("nesterov", "standard")),
}


@functools.lru_cache(maxsize=1024)
def words_of(op_type: str, attribute: str, version: int) -> frozenset[str] | None:
    """Return the words that an operator version allows for an attribute; None if any string is allowed."""
    spans = WORDS.get((op_type, attribute))
    if spans is None:
        return None
    return frozenset(word for word, (first, last) in spans.items() if first <= version <= last)


def foreign_words(words: frozenset[str], value: object) -> list[str]:
    """Return the words of an attribute's value, a string or a list, that are not allowed."""
    candidates: Iterable[Any] = value if isinstance(value, (list, tuple)) else (value,)
    return [word for word in candidates if word not in words]


def is_word(op_type: str, attribute: str, word: str) -> bool:
    """Whether any version of an operator has a word."""
    return word in WORDS.get((op_type, attribute), {})


def first_opset_with_word(op_type: str, attribute: str, word: str, version: int) -> int | None:
    """Return the first opset that allows a word which a version of the operator lacks, or None."""
    first, _ = WORDS.get((op_type, attribute), {}).get(word, (0, 0))
    return first if first > version else None
