"""`opsetta export --hf`."""

from __future__ import annotations

import pathlib
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....registration import UsageError
from ..options import quantization
from ..terminal.output import say
from ..terminal.progress import bars
from ..terminal.tables import print_json, size_text

if TYPE_CHECKING:
    from ...huggingface import HuggingFaceExport
    from ...huggingface.exported_files import ExportedGraph

Folder = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--hf",
        metavar="FOLDER",
        help="Instead of a factory: a folder with config.json, weights and a tokenizer, as Hugging Face's "
        "libraries write it. The output is a folder, too.",
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --hf: the task by its name in pipelines of transformers, such as text-generation; the "
        "default depends on the architecture. The error for an unknown name lists all.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="fp32 | fp16 | bf16", help="With --hf: the type of weights; the default is fp32."),
]
LayoutName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --hf: the library that reads the folder: optimum, transformers, transformers.js, genai or "
        "sentence-transformers. By default, the files that optimum reads, with separate decoders.",
    ),
]
CacheImplementation = Annotated[
    str | None,
    typer.Option(
        metavar="dynamic_full | dynamic | static",
        help="With --hf and text-generation: the cache keeps all positions (the default), those of the "
        "window in layers with a sliding window, or a fixed number of positions.",
    ),
]
MaxCacheLen = Annotated[
    int | None, typer.Option(metavar="N", help="With a static cache: its number of positions.")
]
BatchSize = Annotated[
    int | None, typer.Option(metavar="N", help="With a static cache: the fixed batch size.")
]
SequenceLength = Annotated[
    int | None, typer.Option(metavar="N", help="With a static cache: the fixed number of tokens of a call.")
]
BaseModel = Annotated[
    pathlib.Path | None,
    typer.Option(
        metavar="FOLDER",
        help="With --hf and an adapter of peft: the folder of its base model, by default the one that the "
        "adapter names.",
    ),
]
AdapterForm = Annotated[
    str | None,
    typer.Option(
        metavar="merge | inputs",
        help="With --hf and an adapter of peft: add it to the weights (the default), or keep its matrices as "
        "inputs.",
    ),
]
_PARAMETERS_OF_FOLDERS = frozenset(
    "output hf task base_model adapter layout cache_implementation max_cache_len batch_size sequence_length "
    "dtype opset verify external_data reference_weights optimize target "
    "quantize block_size asymmetric quantize_embeddings keep_lm_head as_json narrow guard".split()
)
"""The parameters of `opsetta export` that --hf takes."""


_PARAMETERS_FOR_FOLDERS_ONLY = (
    "task layout adapter dtype cache_implementation max_cache_len batch_size sequence_length".split()
)
"""The parameters of `opsetta export` that need --hf."""


def need_factory(context: typer.Context, factory: str | None) -> str:
    """The factory of an export without --hf.

    Raises:
        UsageError: there is none, or an option belongs to folders.
    """
    options_of_folders = [name for name in _PARAMETERS_FOR_FOLDERS_ONLY if context.params[name] is not None]
    if options_of_folders:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options_of_folders)
        raise UsageError(f"{names}: only for a Hugging Face folder, --hf FOLDER")
    if factory is None:
        raise UsageError("name a factory, PATH.py:FUNCTION, a TorchScript file, or a folder with --hf FOLDER")
    return factory


def export_folder(context: typer.Context, quantize: dict[str, Any] | None) -> None:
    """Export a folder with the options of `opsetta export`, and print the written files.

    Raises:
        UsageError: there are options that belong to a factory.
    """
    parameters: dict[str, Any] = context.params
    wrong = [
        # Parameters that the user left out are None, False or empty.
        parameter.opts[0] if parameter.param_type_name == "option" else "FACTORY"
        for parameter in context.command.params
        if parameter.name not in _PARAMETERS_OF_FOLDERS
        and parameters.get(parameter.name or "") not in (None, False, [], ())
    ]
    if wrong:
        raise UsageError(f"--hf cannot be combined with {', '.join(wrong)}")
    begin = time.perf_counter()
    with bars() as stage:
        from ...huggingface import export_huggingface

        exported = export_huggingface(
            parameters["hf"],
            parameters["output"],
            task=parameters["task"],
            base_model=parameters["base_model"],
            adapter=parameters["adapter"] or "merge",
            opset=parameters["opset"],
            dtype=parameters["dtype"] or "float32",
            quantize=quantize,
            weights="reference" if parameters["reference_weights"] else "copy",
            external_data=parameters["external_data"],
            optimize=parameters["optimize"],
            target=parameters["target"],
            layout=parameters["layout"],
            cache_implementation=parameters["cache_implementation"] or "dynamic_full",
            max_cache_len=parameters["max_cache_len"],
            batch_size=parameters["batch_size"],
            sequence_length=parameters["sequence_length"],
            verify=parameters["verify"],
            narrow=parameters["narrow"],
            guard=parameters["guard"],
            progress=stage,
        )
    if parameters["as_json"]:
        print_json(_facts(exported) | {"seconds": round(time.perf_counter() - begin, 3)})
        return
    say(f"{exported.folder}: {exported.task}")
    for graph in exported.graphs:
        say(
            f"{_path_in(exported, graph)}: opset {graph.opset}, {graph.nodes} nodes, "
            f"{size_text(graph.weight_bytes)} of weights"
        )
        if graph.report is not None:
            say(f"  agrees with eager PyTorch: largest absolute error {graph.report.max_absolute_error:.3g}")
        for line in quantization.quantization_lines(graph, graph.output_error):
            say(f"  {line}")
    say(f"copied: {', '.join(exported.copied)}")


def _path_in(exported: HuggingFaceExport, graph: ExportedGraph) -> str:
    """The path of a file in the folder; several models of a pipeline have files of one name."""
    return graph.path.relative_to(exported.folder).as_posix()


def _facts(exported: HuggingFaceExport) -> dict[str, object]:
    return {
        "folder": str(exported.folder),
        "task": exported.task,
        "weights_loaded": exported.weights_loaded,
        "copied": exported.copied,
        "graphs": [
            {
                "file": _path_in(exported, graph),
                "opset": graph.opset,
                "nodes": graph.nodes,
                "weight_bytes": graph.weight_bytes,
                "inputs": graph.inputs,
                "outputs": graph.outputs,
                "max_absolute_error": None if graph.report is None else graph.report.max_absolute_error,
                **quantization.quantization_json(graph, graph.output_error),
            }
            for graph in exported.graphs
        ],
    }
