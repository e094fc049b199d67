"""`export_huggingface`: from a Hugging Face folder to a folder with ONNX files."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ...registration import ModelFileError, UsageError
from ..devices.targets.load_target import resolve_target
from ..devices.targets.target import Target
from ..files.stored_types import BFLOAT16_CAST
from ..quantizing import scheme_of
from ..torch_boundary.requirements import need_torch
from .exported_files import HuggingFaceExport
from .folder import check_library, copy_files, folder_at, task_of_modules
from .graphs import TOTAL, TaskModel
from .layouts.files import external_data_of, path_of, write_entries
from .layouts.record import Entries, FileFacts, FolderLayout, Variant
from .layouts.table import check_layout, layout_named
from .lowered_graphs import LoweredGraph, graphs_of_variant, lower_graph, write_graph
from .model_folders import DTYPES, Loaded, load, read_config
from .tasks.record import Task
from .tasks.selection import task_named, task_of, task_of_sentences
from .transformers_parts import export_parts

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def export_huggingface(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    opset: int | None = None,
    dtype: str = "float32",
    quantize: str | Mapping[str, object] | None = None,
    weights: str = "copy",
    external_data: bool | None = None,
    optimize: str | bool = DEFAULT_LEVEL,
    target: str | os.PathLike[str] | Target | None = None,
    layout: str | None = None,
    verify: bool = False,
    narrow: bool = False,
    guard: bool = False,
    progress: Callable[[str], None] | None = None,
) -> HuggingFaceExport:
    """Export the model of a Hugging Face folder for a task; see docs/huggingface.md.

    All graphs are captured and lowered before the first file is written. No code from the folder is run.

    Args:
        folder: with config.json, weights and the files of a tokenizer or processor.
        output: the folder to write; it may be the same one.
        task: a name that docs/huggingface.md lists, or optimum's name of the same task; by default that of
            the architecture in config.json.
        opset: the ONNX opset to write; by default the target's, or 17.
        dtype: of weights and activations, "float32", "float16" or "bfloat16".
        quantize: "int8" or "int4", or a mapping of these as `dtype` and further arguments of
            `quantize_weights`.
        weights: "copy", or "reference" to refer to the checkpoint, which is then in `output` or below it.
        external_data: whether weights are beside the ONNX files; by default if they do not fit into them.
        optimize: as for `export`.
        target: as for `export`; by default that of the layout.
        layout: the library that reads the folder, "optimum", "transformers", "transformers.js", "genai" or
            "sentence-transformers"; by default the files that docs/huggingface.md lists for the task.
        verify: compare each graph with eager PyTorch first; write nothing where they differ.
        narrow: accept graphs that are valid for some sizes only, as for `export`.
        guard: write the valid sizes as checks into the files, as for `export`.
        progress: called with the name of each stage as it begins.

    Raises:
        ModelFileError: the folder cannot be read, or the output cannot be written.
        UsageError: the model has no such task, or an argument has an unknown value.
        CaptureError, UnsupportedOperatorsError, TargetError, VerificationError: as for `export` and `verify`.
    """
    source, output_folder = folder_at(folder), pathlib.Path(os.fsdecode(output))
    chosen_layout = layout_named(layout)
    target_opset, loaded_target = resolve_target(opset, chosen_layout.target if target is None else target)
    level = check_level(optimize)
    quantization = _check_choices(dtype, weights, quantize)
    if output_folder.exists() and not output_folder.is_dir():
        raise ModelFileError(f"the output '{output_folder}' is a file: name a folder")
    report = progress or (lambda stage: None)
    need_torch("exporting a model")
    report("loading the model")
    check_library(source)
    config = read_config(source)
    chosen_task = choose_task(task, source, config)
    check_layout(
        chosen_layout,
        chosen_task,
        dtype=DTYPES[dtype],
        quantizes=bool(quantization),
        refers=weights == "reference",
        verifies=verify,
    )
    if chosen_layout.parts:
        return export_parts(
            source,
            output_folder,
            config,
            chosen_task,
            DTYPES[dtype],
            opset_version=target_opset,
            optimize=level,
            target=loaded_target,
        )
    job = _FolderJob(source, config, chosen_task, chosen_layout, weights, report)
    # The cache and the tokens together always have as many positions as the mask.
    sizes = {"narrow": narrow or (TOTAL,), "guard": guard}
    settings: dict[str, Any] = {"opset": target_opset, "optimize": level, "target": loaded_target}
    settings |= {"verify": verify, "sizes": sizes}
    files = [
        _layout_file(graph, chosen_layout, variant, external_data)
        for variant, lowered_graphs in job.lower_variants(DTYPES[dtype], settings)
        for graph in graphs_of_variant(lowered_graphs, variant, chosen_layout, quantization)
    ]
    entries: Entries = {}
    if chosen_layout.entries is not None:
        entries = chosen_layout.entries(source, config, [file.facts for file in files])
    _make_folder(output_folder / chosen_layout.folder)
    graphs = [
        write_graph(
            file.graph,
            output_folder / file.path,
            weights,
            file.external_data,
            verify,
            _prefix_stages(file.path.name, report),
        )
        for file in files
    ]
    report("copying the tokenizer")
    copied = copy_files(source, output_folder)
    copied = sorted({*copied, *write_entries(output_folder, entries)})
    return HuggingFaceExport(output_folder, chosen_task.name, graphs, copied, job.loads_weights)


@dataclasses.dataclass(frozen=True)
class _LayoutFile:
    """A graph with its path in the exported folder, and the argument `external_data` for writing it."""

    graph: LoweredGraph
    path: pathlib.PurePosixPath
    external_data: bool | str | None
    variant: Variant

    @property
    def facts(self) -> FileFacts:
        """What the settings of the layout's library say about it."""
        data_name = self.external_data if isinstance(self.external_data, str) else None
        return FileFacts(self.path.name, data_name, self.graph.saved.model, self.variant)


def _layout_file(
    graph: LoweredGraph, layout: FolderLayout, variant: Variant, external_data: bool | None
) -> _LayoutFile:
    path = path_of(graph.file, layout, variant)
    return _LayoutFile(
        graph, path, external_data_of(path.name, graph.saved.model, layout, external_data), variant
    )


@dataclasses.dataclass
class _FolderJob:
    """The export of a folder.

    Attributes:
        source, config, task: the folder, its configuration and its task.
        layout: of the exported folder.
        weights: whether weights are copied or referred to.
        report: called with the name of each stage as it begins.
        loads_weights: whether transformers had to load the weights into memory.
    """

    source: pathlib.Path
    config: PretrainedConfig
    task: Task
    layout: FolderLayout
    weights: str
    report: Callable[[str], None]
    loads_weights: bool = False

    def lower_variants(
        self, dtype: str, settings: Mapping[str, Any]
    ) -> Iterator[tuple[Variant, list[LoweredGraph]]]:
        """Each variant of the layout, with its graphs lowered in the element type of its weights.

        Args:
            dtype: the element type of variants that state none.
            settings: arguments of `lower_graph`.
        """
        by_dtype: dict[str, list[LoweredGraph]] = {}
        for variant in self.layout.variants:
            torch_dtype = variant.dtype or dtype
            if torch_dtype not in by_dtype:
                by_dtype[torch_dtype] = self._lower(torch_dtype, settings)
            yield variant, by_dtype[torch_dtype]

    def _lower(self, torch_dtype: str, settings: Mapping[str, Any]) -> list[LoweredGraph]:
        loaded = load(self.source, self.config, self.task, torch_dtype)
        self.loads_weights |= loaded.weights is None
        if self.weights == "reference":
            _check_reference(loaded, torch_dtype, settings["opset"])
        keeps_float = self.layout.has_float_interface and torch_dtype != "float32"
        return [
            lower_graph(
                loaded,
                file,
                example.with_float_interface() if keeps_float else example,
                report=_prefix_stages(file.name, self.report),
                **settings,
            )
            for file, example in self.task.example_calls(TaskModel(loaded.model, self.config, self.source))
        ]


def _check_reference(loaded: Loaded, dtype: str, opset: int) -> None:
    """Refuse to refer to a checkpoint with other names than the exported model, or with other types.

    A graph casts weights from the type that they are stored in, if its opset can.
    """
    if loaded.weights is None:
        raise UsageError(
            "weights='reference' is not possible for this model, because its checkpoint has other names "
            "or lacks tensors: copy the weights"
        )
    dtypes = {tensor.dtype for tensor in loaded.weights.values() if tensor.dtype.is_floating_point()}
    stored = {stored_dtype.numpy().name for stored_dtype in dtypes}
    others = sorted(stored - {DTYPES[dtype]})
    if others and opset < BFLOAT16_CAST and "bfloat16" in {*others, DTYPES[dtype]}:
        raise UsageError(
            f"weights='reference' takes the weights as they are stored, in {', '.join(others)}, and at opset "
            f"{opset} a graph cannot cast them to {DTYPES[dtype]}: pass opset={BFLOAT16_CAST} or a higher "
            "one, or copy the weights"
        )


def _check_choices(dtype: str, weights: str, quantize: str | Mapping[str, object] | None) -> dict[str, Any]:
    """Check arguments of `export_huggingface`; return those of `quantize_weights`."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if weights not in ("copy", "reference"):
        raise UsageError(f"weights must be 'copy' or 'reference', not {weights!r}")
    options = {"dtype": quantize} if isinstance(quantize, str) else dict(quantize or {})
    if options:
        scheme_of(**options)
    return options


def choose_task(name: str | None, folder: pathlib.Path, config: PretrainedConfig) -> Task:
    """The named task, or that of the folder: sentence-transformers makes vectors of models that generate."""
    if name is not None:
        return task_named(name, config)
    module_task = task_of_modules(folder)
    return task_of(config) if module_task is None else task_of_sentences(module_task)


def _prefix_stages(file: str, report: Callable[[str], None]) -> Callable[[str], None]:
    return lambda stage: report(f"{file}: {stage}")


def _make_folder(path: pathlib.Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"the folder '{path}' cannot be made: {error}") from error
