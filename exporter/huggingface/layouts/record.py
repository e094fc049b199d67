"""`FolderLayout`: the files that a library reads, as one record."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from ..caches.cache_settings import DYNAMIC_FULL

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Entries = Mapping[str, Mapping[str, object]]
"""Entries of JSON files, by the names of the files."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One form of all files of a task.

    Attributes:
        suffix: behind the names of the files, before `.onnx`.
        dtype: the type of weights and activations; by default that of the export.
        quantize: the type that weights are quantized to; by default that of the export.
    """

    suffix: str = ""
    dtype: str | None = None
    quantize: str | None = None


@dataclasses.dataclass(frozen=True)
class FileFacts:
    """What the settings of a library say about a file.

    Attributes:
        name: of the file.
        data_name: of the file with its external data, if it has one.
        model: the graph.
        variant: the form of the weights.
    """

    name: str
    data_name: str | None
    model: ir.Model
    variant: Variant


@dataclasses.dataclass(frozen=True)
class FolderLayout:
    """The files that a library reads.

    Attributes:
        name: of the library, or of its format.
        folder: of the ONNX files, in the exported folder.
        merges_decoders: whether one file has both decoders of an encoder-decoder.
        variants: of the files.
        has_float_interface: whether variants in other types than float32 have inputs and outputs in float32,
            apart from the cache.
        data_suffix: what the library appends to the name of a file for the name of its external data; by
            default that name does not matter.
        target: the consumer, unless another one is requested.
        tasks: that the library runs from this layout; by default all.
        entries: makes the entries of JSON files that the library needs besides the copied ones, from the
            folder of the model, its configuration and the files. It refuses models that the library cannot
            run.
        parts: whether the exporter of transformers splits the model into files, instead of the task.
        shares_buffer: whether the library passes one buffer for the past and the present cache, if the
            consumer is onnxruntime.
        cache_implementations: of the caches that the library reads.
    """

    name: str
    folder: str = ""
    merges_decoders: bool = False
    variants: tuple[Variant, ...] = (Variant(),)
    has_float_interface: bool = False
    data_suffix: str | None = None
    target: str | None = None
    tasks: tuple[str, ...] | None = None
    entries: Callable[[pathlib.Path, PretrainedConfig, Sequence[FileFacts]], Entries] | None = None
    parts: bool = False
    shares_buffer: bool = False
    cache_implementations: tuple[str, ...] = (DYNAMIC_FULL,)
