"""The command `opsetta convert`."""

from __future__ import annotations

import pathlib
import time
from typing import Annotated

import typer

from ....passes.onnx_graph.levels import check_level
from ...devices.targets.load_target import resolve_target
from ..options import caffe2, quantization, tensorflow
from ..options import export as options
from ..terminal.output import Output
from .targets import describe_target

Optimize = Annotated[
    str | None,
    typer.Option(
        help="How far to optimize the graph: none, basic or full, the default. By default, an ONNX file that "
        "already has the opset is copied unchanged."
    ),
]


def convert(
    model: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="MODEL",
            help="The file to convert: ONNX, a source file, a Caffe2 net, a TensorFlow GraphDef, MetaGraph "
            "or SavedModel folder.",
        ),
    ],
    output: options.OutputFile,
    opset: options.Opset = None,
    external_data: options.ExternalData = None,
    allow_links: Annotated[
        bool,
        typer.Option("--allow-links", help="Follow links of external data out of the model's folder."),
    ] = False,
    trusted: options.Trusted = False,
    init_net: caffe2.InitNet = None,
    input_shape: caffe2.InputShapes = None,
    inputs: tensorflow.Inputs = None,
    outputs: tensorflow.Outputs = None,
    input_format: tensorflow.Form = "auto",
    tag: tensorflow.Tags = None,
    signature: tensorflow.Signature = None,
    checkpoint: tensorflow.Checkpoint = None,
    inputs_as_nchw: tensorflow.InputsAsNchw = None,
    outputs_as_nchw: tensorflow.OutputsAsNchw = None,
    optimize: Optimize = None,
    target: options.Target = None,
    force: options.Force = False,
    quantize: quantization.Quantize = None,
    block_size: quantization.BlockSize = None,
    asymmetric: quantization.Asymmetric = False,
    quantize_embeddings: quantization.Embeddings = False,
    keep_lm_head: quantization.KeepHead = False,
    as_json: options.Json = False,
) -> None:
    """Write an ONNX file, a source file, a TensorFlow file, or a Caffe2 net, at one opset."""
    from ...load_model import load

    target_opset, loaded_target = resolve_target(opset, target, force=force)
    if optimize is not None:
        check_level(optimize)
    quantized = quantization.arguments(quantize, block_size, asymmetric, quantize_embeddings, keep_lm_head)
    written = Output(output)
    begin = time.perf_counter()
    load_arguments = caffe2.load_options(init_net, input_shape) | tensorflow.load_options(
        inputs, outputs, input_format, tag, signature, checkpoint, inputs_as_nchw, outputs_as_nchw
    )
    source = load(model, allow_links=allow_links, trusted=trusted, **load_arguments)
    converted, _ = quantization.quantize_and_compare(
        source.lower(target_opset, optimize=optimize, target=loaded_target), quantized
    )
    written.save(converted, external_data)
    target_facts, target_lines = describe_target(converted.model, loaded_target)
    facts = {
        "file": str(output),
        "opset": target_opset,
        "bytes": written.size,
        "nodes": converted.model.graph.num_nodes(),
        "inputs": converted.input_names,
        "outputs": converted.output_names,
        "seconds": round(time.perf_counter() - begin, 3),
        **target_facts,
        **quantization.quantization_json(converted),
    }
    text = f"{output}: opset {target_opset}, {facts['nodes']} nodes, {facts['bytes']} bytes"
    text = "\n".join([text, *target_lines, *quantization.quantization_lines(converted)])
    written.report(facts, text, as_json=as_json)
