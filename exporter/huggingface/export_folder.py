"""`export_huggingface`: from a Hugging Face folder to a folder with ONNX files."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ...passes.quantization import scheme_of
from ...registration import UsageError
from ..devices.targets.load_target import resolve_target
from ..devices.targets.target import Target
from ..files.output.output_paths import check_folder, folder_of
from ..files.weights.stored_types import BFLOAT16_CAST
from ..torch_boundary.requirements import need_torch
from .caches.cache_settings import DYNAMIC_FULL, CacheSettings
from .exported_files import ExportedGraph, HuggingFaceExport
from .folder import folder_at
from .graphs import TOTAL
from .layouts.files import external_data_of, merge_entries, path_of, write_entries
from .layouts.record import Entries, FileFacts, FolderLayout, Variant
from .layouts.table import check_layout, layout_named
from .libraries.diffusers_folders import DiffusersFolder, is_diffusers
from .lowered_graphs import LoweredGraph, graphs_of_variant, lower_graph, write_graph
from .model_folders import DTYPES, Loaded
from .transformers_folder import TransformersFolder
from .transformers_parts import export_parts


def export_huggingface(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    base_model: str | os.PathLike[str] | None = None,
    adapter: str = "merge",
    opset: int | None = None,
    dtype: str = "float32",
    quantize: str | Mapping[str, object] | None = None,
    weights: str = "copy",
    external_data: bool | None = None,
    optimize: str | bool = DEFAULT_LEVEL,
    target: str | os.PathLike[str] | Target | None = None,
    layout: str | None = None,
    cache_implementation: str = DYNAMIC_FULL,
    max_cache_len: int | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    verify: bool = False,
    narrow: bool = False,
    guard: bool = False,
    progress: Callable[[str], None] | None = None,
) -> HuggingFaceExport:
    """Export the model of a Hugging Face folder for a task; see docs/huggingface.md.

    All graphs are captured and lowered before the first file is written. No code from the folder is run.

    Args:
        folder: with config.json, weights and the files of a tokenizer or processor; or of an adapter of peft,
            a model of timm, or a pipeline of diffusers.
        output: the folder to write; it may be the same one.
        task: a name that docs/huggingface.md lists, or optimum's name of the same task; by default that of
            the architecture in config.json.
        base_model: the folder of the model that an adapter changes; by default the one that it names.
        adapter: "merge" to add an adapter to the weights; "inputs" to keep its matrices as inputs, whose
            values are those of the adapter unless a caller passes others.
        opset: the ONNX opset to write; by default the target's, or 17.
        dtype: of weights and activations, "float32", "float16" or "bfloat16".
        quantize: "int8", "int4" or "q4_0", or a mapping of these as `dtype` and further arguments of
            `quantize_weights`.
        weights: "copy", or "reference" to refer to the checkpoint, which is then in `output` or below it.
        external_data: whether weights are beside the ONNX files; by default if they do not fit into them.
        optimize: as for `export`.
        target: as for `export`; by default that of the layout.
        layout: the library that reads the folder, "optimum", "transformers", "transformers.js", "genai" or
            "sentence-transformers"; by default the files that docs/huggingface.md lists for the task.
        cache_implementation: of text-generation, as transformers calls it: "dynamic_full" keeps all
            positions; "dynamic" keeps those of the window in layers with a sliding window; "static" has a
            fixed number of positions, and the caller passes where to write (`cache_position`).
        max_cache_len: the number of positions of a static cache.
        batch_size: the fixed batch size of the inputs of a static cache.
        sequence_length: the fixed number of tokens of each call with a static cache.
        verify: compare each graph with eager PyTorch first; write nothing where they differ.
        narrow: accept graphs that are valid for some sizes only, as for `export`.
        guard: write the valid sizes as checks into the files, as for `export`.
        progress: called with the name of each stage as it begins.

    Raises:
        ModelFileError: the folder cannot be read, or the output cannot be written.
        UsageError: the model has no such task, or an argument has an unknown value.
        OpsettaError: a package is not installed; the message names it.
        CaptureError, UnsupportedOperatorsError, TargetError, VerificationError: as for `export` and `verify`.
    """
    source, output_folder = folder_at(folder), pathlib.Path(os.fsdecode(output))
    chosen_layout = layout_named(layout)
    target_opset, loaded_target = resolve_target(opset, chosen_layout.target if target is None else target)
    level = check_level(optimize)
    quantization = _check_choices(dtype, weights, quantize)
    cache = CacheSettings(cache_implementation, max_cache_len, batch_size, sequence_length)
    cache.check()
    if chosen_layout.shares_buffer and loaded_target is not None:
        is_onnxruntime = "com.microsoft" in loaded_target.domains
        cache = dataclasses.replace(cache, shares_buffer=is_onnxruntime)
    check_folder(output_folder)
    report = progress or (lambda stage: None)
    need_torch("exporting a model")
    report("loading the model")
    models = _models_of(source, task, base_model, cache, adapter)
    _check_source(models, chosen_layout, weights)
    if isinstance(models, TransformersFolder):
        check_layout(
            chosen_layout,
            models.record,
            dtype=DTYPES[dtype],
            quantizes=bool(quantization),
            refers=weights == "reference",
            verifies=verify,
            cache=cache,
        )
        if chosen_layout.parts:
            return export_parts(
                source,
                output_folder,
                models.config,
                models.record,
                DTYPES[dtype],
                opset_version=target_opset,
                optimize=level,
                target=loaded_target,
            )
    job = _FolderJob(models, chosen_layout, weights, report)
    # The cache and the tokens together always have as many positions as the mask.
    sizes = {"narrow": narrow or (TOTAL,), "guard": guard}
    settings: dict[str, Any] = {"opset": target_opset, "optimize": level, "target": loaded_target}
    settings |= {"verify": verify, "sizes": sizes}
    files = job.lower_files(DTYPES[dtype], settings, quantization, external_data)
    entries: Entries = models.entries
    if chosen_layout.entries is not None and isinstance(models, TransformersFolder):
        facts = [file.facts for file in files]
        entries = merge_entries(entries, chosen_layout.entries(models.folder, models.config, facts))
    graphs = [_write_file(file, output_folder, weights, verify, report) for file in files]
    report("copying the tokenizer")
    copied = models.copy_files(output_folder)
    copied = sorted({*copied, *write_entries(output_folder, entries)})
    return HuggingFaceExport(output_folder, models.task, graphs, copied, job.loads_weights)


def _models_of(
    folder: pathlib.Path,
    task: str | None,
    base_model: str | os.PathLike[str] | None,
    cache: CacheSettings,
    adapter: str,
) -> TransformersFolder | DiffusersFolder:
    """The models of a folder, by the library that wrote it."""
    if adapter not in ("merge", "inputs"):
        raise UsageError(f"adapter must be 'merge' or 'inputs', not {adapter!r}")
    if is_diffusers(folder):
        if adapter == "inputs":
            raise UsageError(f"'{folder}' contains no adapter: leave out adapter='inputs'")
        if base_model is not None:
            raise UsageError(f"'{folder}' contains no adapter, so it has no base model: leave it out")
        if cache.implementation != DYNAMIC_FULL:
            raise UsageError("folders of diffusers have no cache: leave out cache_implementation")
        return DiffusersFolder(folder, task)
    return TransformersFolder(folder, task, base_model, cache, merges_adapter=adapter == "merge")


def _check_source(models: TransformersFolder | DiffusersFolder, layout: FolderLayout, weights: str) -> None:
    """Refuse layouts and references that need a folder of transformers with plain weights.

    Raises:
        UsageError: the message names the conflict.
    """
    if isinstance(models, TransformersFolder):
        if models.adapter is not None and layout.parts:
            raise UsageError(f"the layout {layout.name} is not possible for adapters: leave it out")
        if not models.merges_adapter and layout.name:
            raise UsageError(f"the layout {layout.name} is not possible for adapter='inputs': leave it out")
        if models.is_quantized and (layout.parts or weights == "reference"):
            option = f"the layout {layout.name}" if layout.parts else "weights='reference'"
            raise UsageError(f"{option} is not possible for quantized weights: leave it out")
        return
    # optimum's files are those that are written without a layout.
    if layout.name not in ("", "optimum"):
        raise UsageError(f"the layout {layout.name} is not possible for folders of diffusers: leave it out")
    if weights == "reference":
        raise UsageError("weights='reference' is not possible for folders of diffusers: copy the weights")


def _write_file(
    file: _LayoutFile,
    output: pathlib.Path,
    weights: str,
    verify: bool,
    report: Callable[[str], None],
) -> ExportedGraph:
    path = output / file.path
    folder_of(path.parent)
    name = file.path.name if len(file.path.parts) == 1 else str(file.path)
    return write_graph(file.graph, path, weights, file.external_data, verify, _prefix_stages(name, report))


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
        models: of the folder.
        layout: of the exported folder.
        weights: whether weights are copied or referred to.
        report: called with the name of each stage as it begins.
        loads_weights: whether transformers had to load the weights into memory.
    """

    models: TransformersFolder | DiffusersFolder
    layout: FolderLayout
    weights: str
    report: Callable[[str], None]
    loads_weights: bool = False

    def lower_files(
        self,
        dtype: str,
        settings: Mapping[str, Any],
        quantization: Mapping[str, Any],
        external_data: bool | None,
    ) -> list[_LayoutFile]:
        """The files of all variants of the layout.

        Args:
            dtype: the element type of variants that state none.
            settings: arguments of `lower_graph`.
            quantization: arguments of `quantize_weights`; none to keep the weights.
            external_data: as for `export_huggingface`.
        """
        files = [
            _layout_file(graph, self.layout, variant, external_data)
            for variant, lowered_graphs in self._lower_variants(dtype, settings)
            for graph in graphs_of_variant(lowered_graphs, variant, self.layout, quantization)
        ]
        if isinstance(self.models, TransformersFolder):
            for file in files:
                self.models.set_defaults(file.graph.saved.model)
        return files

    def _lower_variants(
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
        graphs = []
        for loaded, calls in self.models.load_calls(torch_dtype):
            self.loads_weights |= loaded.weights is None
            if self.weights == "reference":
                _check_reference(loaded, torch_dtype, settings["opset"])
            keeps_float = self.layout.has_float_interface and torch_dtype != "float32"
            graphs += [
                lower_graph(
                    loaded,
                    file,
                    example.with_float_interface() if keeps_float else example,
                    report=_prefix_stages(file.name, self.report),
                    **settings,
                )
                for file, example in calls
            ]
        return graphs


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


def _prefix_stages(file: str, report: Callable[[str], None]) -> Callable[[str], None]:
    return lambda stage: report(f"{file}: {stage}")
