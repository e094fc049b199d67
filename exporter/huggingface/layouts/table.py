"""The records of all layouts."""

from __future__ import annotations

import difflib

from ....registration import UsageError
from ..caches.cache_settings import CACHE_IMPLEMENTATIONS, DYNAMIC, DYNAMIC_FULL, CacheSettings
from ..tasks.record import Task
from .genai import genai_entries
from .record import FolderLayout, Variant
from .transformers_js import transformers_js_entries

_TASK_FILES = FolderLayout("", cache_implementations=CACHE_IMPLEMENTATIONS)
"""The files that a task declares."""
_LAYOUTS = (
    # ORTModelForCausalLM makes positions from the mask, and passes on the cache as it is returned.
    FolderLayout("optimum", merges_decoders=True, cache_implementations=(DYNAMIC_FULL, DYNAMIC)),
    FolderLayout("transformers", parts=True),
    FolderLayout(
        "transformers.js",
        folder="onnx",
        merges_decoders=True,
        variants=(
            Variant(),
            Variant("_fp16", dtype="float16"),
            Variant("_quantized", quantize="int8"),
            Variant("_q4", quantize="int4"),
            Variant("_q4f16", dtype="float16", quantize="int4"),
        ),
        has_float_interface=True,
        data_suffix="_data",
        target="onnxruntime",
        entries=transformers_js_entries,
    ),
    FolderLayout(
        "genai",
        target="onnxruntime",
        tasks=("text-generation",),
        entries=genai_entries,
        shares_buffer=True,
    ),
    FolderLayout(
        "sentence-transformers",
        folder="onnx",
        tasks=("feature-extraction", "sentence-similarity", "text-classification", "fill-mask"),
    ),
)
LAYOUTS = {layout.name: layout for layout in _LAYOUTS}
"""The layouts by name."""


def layout_named(name: str | None) -> FolderLayout:
    """The layout of a name; without a name, the files that the task declares.

    Raises:
        UsageError: there is no such layout.
    """
    if name is None:
        return _TASK_FILES
    if name not in LAYOUTS:
        close = difflib.get_close_matches(str(name), LAYOUTS, 1)
        hint = f" (did you mean '{close[0]}'?)" if close else ""
        raise UsageError(f"there is no layout '{name}'{hint}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def check_layout(
    layout: FolderLayout,
    task: Task,
    *,
    dtype: str,
    quantizes: bool,
    refers: bool,
    verifies: bool,
    cache: CacheSettings,
) -> None:
    """Refuse what a layout does not support.

    Args:
        task: of the export.
        dtype: the type of weights that is requested, as torch calls it.
        quantizes: whether they are quantized.
        refers: whether weights stay in the checkpoint.
        verifies: whether the graphs are compared with PyTorch.
        cache: the form of the cache of a decoder.

    Raises:
        UsageError: the message names the conflict.
    """
    if layout.tasks is not None and task.name not in layout.tasks:
        raise UsageError(
            f"the layout {layout.name} is for {', '.join(layout.tasks)}, not for {task.name}: choose another "
            "layout or task"
        )
    if cache.implementation not in layout.cache_implementations:
        raise UsageError(
            f"the layout {layout.name} is not for caches of the type {cache.implementation}: leave out "
            "cache_implementation"
        )
    if len(layout.variants) > 1 and (quantizes or dtype != "float32"):
        raise UsageError(
            f"the layout {layout.name} has files of several types of weights: leave out dtype and quantize"
        )
    if refers and (layout.folder or layout.merges_decoders or layout.parts):
        raise UsageError(
            f"weights='reference' is not possible with the layout {layout.name}: copy the weights"
        )
    if layout.parts and (verifies or quantizes):
        option = "verify" if verifies else "quantize"
        raise UsageError(f"{option} is not possible with the layout {layout.name}: leave it out")
