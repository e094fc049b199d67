"""The options of commands that quantize weights, and the output about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....registration import UsageError
from ..terminal.tables import count_text, size_text

if TYPE_CHECKING:
    from ....passes.quantization import Error
    from ...onnx_model import OnnxModel
    from ...program import Program

Quantize = Annotated[
    str | None,
    typer.Option(
        metavar="int8 | int4 | q4_0",
        help="Store the weights of matrix products as 8-bit or 4-bit integers; q4_0 as GGML does.",
    ),
]
BlockSize = Annotated[
    int | None,
    typer.Option(
        help="Elements of a weight that share a scale: a power of two, at least 16; the default is 32."
    ),
]
Asymmetric = Annotated[
    bool, typer.Option("--asymmetric", help="Give each block a zero point, for a smaller error.")
]
Embeddings = Annotated[
    bool, typer.Option("--quantize-embeddings", help="Also quantize tables of embeddings.")
]
KeepHead = Annotated[
    bool, typer.Option("--keep-lm-head", help="Do not quantize products whose results are outputs.")
]


def arguments(
    dtype: str | None, block_size: int | None, asymmetric: bool, embeddings: bool, keep_lm_head: bool
) -> dict[str, Any] | None:
    """The arguments of `quantize_weights`; None if nothing is to be quantized.

    Raises:
        UsageError: there are further options without `--quantize`, or one has an unknown value.
    """
    if dtype is None:
        if block_size is not None or asymmetric or embeddings or keep_lm_head:
            raise UsageError(
                "--block-size, --asymmetric, --quantize-embeddings and --keep-lm-head need --quantize"
            )
        return None
    from ....passes.quantization import scheme_of

    scheme: dict[str, Any] = {
        "dtype": dtype,
        "symmetric": not asymmetric,
        "embeddings": embeddings,
        "lm_head": not keep_lm_head,
    }
    if block_size is not None:
        scheme["block_size"] = block_size
    # Refuses a wrong scheme now, before the model is captured.
    scheme_of(**scheme)
    return scheme


def quantize_and_compare(
    model: Any,
    scheme: dict[str, Any] | None,
    stage: Callable[[str], None] = lambda stage: None,
    *,
    compare: bool = False,
) -> tuple[Program | OnnxModel, Error | None]:
    """The quantized model, and the error of its outputs for the example of a capture.

    Args:
        scheme: from `arguments`; with None the model stays unchanged.
        compare: whether to run a large model, too.
    """
    if scheme is None:
        return model, None
    from ...quantizing import has_example, is_compared, output_error, quantize_weights

    stage("quantizing")
    quantized = quantize_weights(model, **scheme)
    if not has_example(model) or not is_compared(model, compare):
        return quantized, None
    stage("comparing with the weights as they were")
    return quantized, output_error(quantized, model)


def quantization_json(model: object, error: Error | None = None) -> dict[str, object]:
    """What is quantized in a model that has been written, for JSON.

    Args:
        error: of the outputs, or None.
    """
    quantization = getattr(model, "quantization", None)
    if quantization is None:
        return {}
    return {
        "quantization": {
            "form": quantization.form,
            "weights": len(quantization.weights),
            "bytes_before": quantization.bytes_before,
            "bytes_after": quantization.bytes_after,
            "weight_error": dataclasses.asdict(quantization.error),
            "output_error": None if error is None else dataclasses.asdict(error),
        }
    }


def quantization_lines(model: object, error: Error | None = None) -> list[str]:
    """The same as lines of text."""
    quantization = getattr(model, "quantization", None)
    if quantization is None:
        return []
    lines = [
        f"{count_text(len(quantization.weights), 'weight')} quantized ({quantization.form}): "
        f"{size_text(quantization.bytes_before)} of weights before, "
        f"{size_text(quantization.bytes_after)} after",
        f"relative error of weights: {quantization.error}",
    ]
    if error is not None:
        lines.append(f"relative error of outputs for the example: {error}")
    return lines
