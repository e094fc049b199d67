"""Exports the graphs of a task, quantizes them, and writes them to files."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...registration import CaptureError, NarrowedError, UsageError
from ...registration.arguments import every_node
from ..devices.targets.target import Target
from ..export_model import export
from ..onnx_model import OnnxModel
from ..program import Program
from ..quantizing import initializer_bytes, is_compared, output_error, quantize_weights
from .expected_warnings import expected_warnings
from .exported_files import ExportedGraph
from .graphs import CACHE, DECODER_FILES, PAST, SEQUENCE, ExampleCall, GraphFile, Pairs
from .half_precision import clamp_always
from .layouts.merged_decoders import MERGED_FILE, merge_decoders
from .layouts.record import FolderLayout, Variant
from .model_folders import Loaded, need_transformers

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

    from ..running.comparisons.verification import VerificationReport


@dataclasses.dataclass(frozen=True)
class LoweredGraph:
    """A graph that is ready to be written.

    Attributes:
        file: its name for the task.
        program: the graph with the weights as they were; None for one with several programs.
        verification: the comparison with eager PyTorch, if it was asked for.
        other_form: the graph with quantized weights, or the one that was merged from several programs.
    """

    file: str
    program: Program | None
    verification: VerificationReport | None
    other_form: OnnxModel | None = None

    @property
    def saved(self) -> Program | OnnxModel:
        """What is written."""
        saved = self.other_form or self.program
        assert saved is not None
        return saved


def lower_graph(
    loaded: Loaded,
    file: GraphFile,
    example: ExampleCall,
    *,
    opset: int,
    optimize: str,
    target: Target | None,
    verify: bool,
    sizes: Mapping[str, Any],
    report: Callable[[str], None],
) -> LoweredGraph:
    """Export one graph, and verify it as requested."""
    # Some rotary embeddings write to the buffer of their frequencies before they read it.
    writes_frequencies = any(
        getattr(module, "rope_type", None) == "longrope" for module in loaded.model.modules()
    )

    def export_with(file: GraphFile, **other_sizes: object) -> Program:
        return export(
            loaded.model,
            (example.arguments,),
            opset=opset,
            dynamic_shapes=(file.dynamic_shapes(example),),
            input_names=file.input_names(example),
            output_names=file.output_names(example),
            mutations="drop" if writes_frequencies else "error",
            weights=loaded.weights,
            optimize=optimize,
            target=target,
            progress=report,
            **{**sizes, **other_sizes},
        )

    declaration = file.with_fixed_axes() if example.has_fixed_sizes else file
    with _forward_replaced(loaded.model, example):
        try:
            program = export_with(declaration)
        except NarrowedError as error:
            if not are_position_limits(error.conditions, loaded.model.config):
                raise
            program = export_with(declaration, narrow=True)
        except CaptureError:
            # Some models of images and sounds have one position for each part of an input of one size, and
            # others have a loop in Python over the images.
            if not declaration.optional_axes:
                raise
            example = dataclasses.replace(example, inputs=example.fixed_inputs or example.inputs)
            program = export_with(file.with_fixed_axes())
        loaded.check_missing(program.source)
        _check_states(program)
        verification = None
        if verify:
            report("verifying")
            verification = program.verify((example.verified_arguments,))
    return LoweredGraph(file.name, program, verification)


def are_position_limits(conditions: Sequence[str], config: PretrainedConfig) -> bool:
    """Whether a graph is valid for all lengths that a model was made for, and not for longer ones.

    Some models, such as M2M-100, enlarge their table of positions for longer texts. At a longer length the
    graph fails, because an index is outside of the table.

    Args:
        conditions: what the lengths must fulfil.
        config: of the model.
    """
    limit = getattr(config, "max_position_embeddings", None)
    matches = [re.fullmatch(r"([a-z_ +]+) <= (\d+)", condition) for condition in conditions]
    # At least one new token follows the past.
    return (
        limit is not None
        and bool(matches)
        and all(match and int(match[2]) + (match[1] == PAST) >= limit for match in matches)
    )


def _check_states(program: Program) -> None:
    """Refuse a graph that continues from nothing.

    The code of some models reads a state for one token only, and begins anew for several.

    Raises:
        UsageError: the graph does not use an input of its cache; the message names it.
    """
    unused = [
        value.name
        for value in program.model.graph.inputs
        if str(value.name).startswith(CACHE) and not value.uses() and not value.is_graph_output()
    ]
    if unused:
        raise UsageError(
            f"for several tokens the model does not continue from its state ({unused[0]}), which "
            "text-generation does not support: export the model with opsetta.export"
        )


def graphs_of_variant(
    graphs: list[LoweredGraph], variant: Variant, layout: FolderLayout, options: Mapping[str, Any]
) -> list[LoweredGraph]:
    """The graphs of a task in the form of a variant.

    Args:
        graphs: with the weights as they were.
        options: the arguments of `quantize_weights`; none to keep the weights.
    """
    if variant.quantize is not None:
        options = {"dtype": variant.quantize}
    quantized = graphs
    if options:
        quantized = [_quantize(graph, options, is_optional=variant.quantize is not None) for graph in graphs]
    # An encoder-decoder has an encoder and two decoders; a pipeline of diffusers has other files.
    if layout.merges_decoders and [graph.file for graph in quantized[1:]] == list(DECODER_FILES):
        encoder, first, later = quantized
        return [encoder, _merge(first, later)]
    return quantized


def _quantize(graph: LoweredGraph, options: Mapping[str, Any], *, is_optional: bool) -> LoweredGraph:
    """Quantize the weights of a graph.

    Args:
        is_optional: whether a graph without a weight to quantize, as of convolutions only, stays as it is:
            the variants of a layout must all exist.
    """
    assert graph.program is not None
    try:
        return dataclasses.replace(graph, other_form=quantize_weights(graph.program, **options))
    except UsageError:
        if not is_optional:
            raise
        return graph


def _merge(first: LoweredGraph, later: LoweredGraph) -> LoweredGraph:
    """One graph of two decoders; its comparison with PyTorch is the worse one."""
    merged = OnnxModel(merge_decoders(first.saved.model, later.saved.model))
    merged.target = first.saved.target
    # Both have the same weights.
    merged.quantization = None if first.other_form is None else first.other_form.quantization
    reports = [graph.verification for graph in (first, later) if graph.verification is not None]
    worse = max(reports, key=lambda report: report.max_absolute_error, default=None)
    return LoweredGraph(MERGED_FILE, None, worse, merged)


def write_graph(
    lowered: LoweredGraph,
    path: pathlib.Path,
    weights: str,
    external_data: bool | str | None,
    verify: bool,
    report: Callable[[str], None],
) -> ExportedGraph:
    """Write one graph; compare a quantized one with the original."""
    saved = lowered.saved
    quantization = error = None
    if isinstance(saved, OnnxModel):
        quantization = saved.quantization
        if lowered.program is not None and is_compared(lowered.program, verify):
            report("comparing with the weights as they were")
            error = output_error(saved, lowered.program)
    report("writing")
    saved.save(path, external_data=external_data, weights=weights)
    opset = saved.opset
    assert opset is not None
    return ExportedGraph(
        path,
        opset,
        len(every_node(saved.model.graph)),
        initializer_bytes(saved.model),
        saved.input_names,
        saved.output_names,
        lowered.verification,
        quantization,
        error,
    )


@contextlib.contextmanager
def _forward_replaced(model: PreTrainedModel, example: ExampleCall) -> Iterator[None]:
    """Replace the forward of the model by the example's call, so that weights keep their names."""
    from ..torch_boundary.process.process_state import replace_attribute
    from ..torch_boundary.size_questions import trust_forms_for_one

    def forward(
        self: PreTrainedModel, inputs: dict[str, torch.Tensor | Pairs]
    ) -> torch.Tensor | tuple[torch.Tensor, Pairs] | tuple[torch.Tensor, ...]:
        tensors = {name: item for name, item in inputs.items() if not isinstance(item, list)}
        past = inputs.get(CACHE, [])
        return example.call(self, tensors, past if isinstance(past, list) else [])

    trust = (
        trust_forms_for_one(need_transformers(), SEQUENCE) if example.has_states else contextlib.nullcontext()
    )
    replaced = replace_attribute(model, "forward", types.MethodType(forward, model))
    with replaced, trust, clamp_always(), expected_warnings():
        yield
