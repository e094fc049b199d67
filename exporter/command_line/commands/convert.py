"""The command `opsetta convert`."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ....registration import InferenceError, UsageError
from ....registration.printable import one_line
from ..options import (
    caffe2,
    conversion_files,
    element_types,
    image_steps,
    interface,
    quantization,
    tensorflow,
)
from ..options import export as options
from ..terminal.output import Output
from ..terminal.tables import count_text
from .editing import output_path
from .targets import describe_target, resolve_target

if TYPE_CHECKING:
    import numpy as np

    from ...onnx_model import OnnxModel
    from ...program import Program, SourceModel

_ERROR_TEXTS = {
    "max_absolute_error": "largest absolute error {:.3g}",
    "max_absolute_error_of_types": "{:.3g} after the change of element types",
}
"""Errors by their names in the facts."""

_REMEDY = "pass another -o, or --force to replace it"


def convert(
    model: conversion_files.Source,
    output: conversion_files.Destination = None,
    opset: options.Opset = None,
    external_data: options.ExternalData = None,
    allow_links: conversion_files.Links = False,
    trusted: options.Trusted = False,
    init_net: caffe2.InitNet = None,
    input_shape: caffe2.InputShapes = None,
    dim: interface.Dims = None,
    dynamic: interface.Dynamic = "",
    rename: interface.Rename = None,
    inputs: tensorflow.Inputs = None,
    outputs: tensorflow.Outputs = None,
    input_format: tensorflow.Form = "auto",
    tag: tensorflow.Tags = None,
    signature: tensorflow.Signature = None,
    checkpoint: tensorflow.Checkpoint = None,
    inputs_as_nchw: tensorflow.InputsAsNchw = None,
    outputs_as_nchw: tensorflow.OutputsAsNchw = None,
    keep_parse_example: tensorflow.KeepParseExample = False,
    extensions: tensorflow.Extensions = False,
    optimize: conversion_files.Optimize = None,
    target: options.Target = None,
    standard: conversion_files.Standard = False,
    force: conversion_files.Force = False,
    fp16: element_types.Fp16 = False,
    bf16: element_types.Bf16 = False,
    convert_io: element_types.ConvertInterface = False,
    exclude: element_types.Exclude = None,
    preprocess: image_steps.Preprocess = None,
    postprocess: image_steps.Postprocess = None,
    verify: conversion_files.Verify = False,
    quantize: quantization.Quantize = None,
    block_size: quantization.BlockSize = None,
    asymmetric: quantization.Asymmetric = False,
    quantize_embeddings: quantization.Embeddings = False,
    keep_lm_head: quantization.KeepHead = False,
    as_json: options.Json = False,
) -> None:
    """Write a model file as ONNX at exactly one opset.

    The file may be ONNX, a source file, a TensorFlow file, or a Caffe2 net.
    """
    target_opset, loaded_target = resolve_target(opset, target, force=force)
    if output is None or not force:
        output = output_path(model, output, f"opset{target_opset}", _REMEDY)
    is_net = caffe2.is_net_file(model, init_net)
    changes = interface.interface_arguments(None if is_net else input_shape, dim, dynamic, rename, standard)
    steps = {
        "preprocess": image_steps.pixel_arguments(preprocess),
        "postprocess": image_steps.score_arguments(postprocess),
        "convert_types": element_types.type_arguments(fp16, bf16, convert_io, exclude),
    }
    check_level(DEFAULT_LEVEL if optimize is None else optimize)
    quantized = quantization.arguments(quantize, block_size, asymmetric, quantize_embeddings, keep_lm_head)
    written, begin = Output(output), time.perf_counter()
    graph = inputs, outputs, input_format, tag, signature, checkpoint, inputs_as_nchw, outputs_as_nchw
    load_arguments = caffe2.load_options(init_net, input_shape if is_net else None)
    load_arguments |= tensorflow.load_options(*graph, keep_parse_example)
    source = _load(model, target_opset, changes, allow_links=allow_links, trusted=trusted, **load_arguments)
    lowered = _lower(source, extensions, target_opset, optimize=optimize, target=loaded_target, **changes)
    lowered, errors = _take_steps(model, lowered, steps, verify)
    converted, _ = quantization.quantize_and_compare(lowered, quantized)
    written.save(converted, external_data)
    target_facts, target_lines = describe_target(converted.model, loaded_target)
    facts = {
        "file": str(output),
        "opset": target_opset,
        "bytes": written.size,
        "nodes": (node_count := converted.model.graph.num_nodes()),
        "inputs": converted.input_names,
        "outputs": converted.output_names,
        "seconds": round(time.perf_counter() - begin, 3),
        **errors,
        **target_facts,
        **quantization.quantization_json(converted),
    }
    text = f"{output}: opset {target_opset}, {count_text(node_count, 'node')}, {facts['bytes']} bytes"
    if errors:
        error_texts = (_ERROR_TEXTS[name].format(error) for name, error in errors.items())
        text += f"\nagrees with '{model}' in onnxruntime: {'; '.join(error_texts)}"
    lines = [text, *target_lines, *quantization.quantization_lines(converted)]
    written.report(facts, "\n".join(lines), as_json=as_json)


def _lower(
    source: OnnxModel | SourceModel, extensions: bool, opset: int, **arguments: Any
) -> OnnxModel | Program:
    """The model at an opset, with operators of onnxruntime-extensions on request.

    Raises:
        UsageError: the extensions are for an ONNX file, or one that became one for other sizes or names.
    """
    if extensions:
        from ....symbolics.onnxruntime_extensions import extensions_registry
        from ...onnx_model import OnnxModel

        if isinstance(source, OnnxModel):
            raise UsageError("--extensions is for TensorFlow files, without changed names or sizes")
        arguments["registry"] = extensions_registry
    return source.lower(opset, **arguments)


def _take_steps(
    path: pathlib.Path,
    model: OnnxModel | Program,
    steps: Mapping[str, dict[str, Any] | None],
    verify: bool,
) -> tuple[OnnxModel | Program, dict[str, float]]:
    """The converted model after steps, methods of `OnnxModel` with their arguments.

    Returns:
        The model, and if it is verified, the largest absolute errors by the names in `_ERROR_TEXTS`.
    """
    errors = {"max_absolute_error": _verify(path, model)} if verify else {}
    for method, arguments in steps.items():
        if arguments is not None:
            previous = _onnx_model(model)
            model = getattr(previous, method)(**arguments)
            if verify and method == "convert_types":
                try:
                    reports = previous.compare_layers(_onnx_model(model), _random_feed(previous))
                except InferenceError as error:
                    raise InferenceError(
                        "the conversion was verified, but the change of element types cannot be, because the "
                        f"result does not run here: leave out --verify ({one_line(error)})"
                    ) from None
                outputs = [report for report in reports if report.name in previous.output_names]
                errors["max_absolute_error_of_types"] = max(report.max_absolute_error for report in outputs)
    return model, errors


def _load(
    path: pathlib.Path, opset: int, changes: dict[str, Any], **load_arguments: Any
) -> OnnxModel | SourceModel:
    """The model in a file; sizes and names are changed in an ONNX model, which the file becomes first."""
    from ...load_model import load
    from ...onnx_model import OnnxModel

    source = load(path, **load_arguments)
    return source if not changes or isinstance(source, OnnxModel) else _onnx_model(source.lower(opset))


def _onnx_model(model: OnnxModel | Program) -> OnnxModel:
    from ...onnx_model import OnnxModel

    if isinstance(model, OnnxModel):
        return model
    converted = OnnxModel(model.model, trusted=True)
    converted.target = model.target
    return converted


def _verify(path: pathlib.Path, converted: OnnxModel | Program) -> float:
    """The largest absolute error of a converted file on random inputs.

    Raises:
        UsageError: the file is not an ONNX file, which onnxruntime could run.
        VerificationError: the results differ.
    """
    from ...onnx_model import OnnxModel

    if not isinstance(converted, OnnxModel):
        raise UsageError(f"--verify compares with ONNX files, and '{path}' is none")
    return converted.verify(kwargs=_random_feed(converted)).max_absolute_error


def _random_feed(model: OnnxModel) -> dict[str, np.ndarray]:
    from ...running.model_inputs import inputs_of_model
    from ...running.random_inputs import random_inputs

    return random_inputs(inputs_of_model(model.model))
