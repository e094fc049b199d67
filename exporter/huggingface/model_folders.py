"""Builds models of transformers from their folders; weights stay in their files where names allow it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pathlib
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...registration import CaptureError, ModelFileError, OpsettaError, UsageError
from .folder import is_timm
from .quantized.loading import LoadingInfo, QuantizedCheckpoint, separate_layers
from .quantized.method import method_of
from .tasks.record import Task
from .tasks.selection import auto_class_of
from .timm_models import MODEL_TYPE, complete_timm_config, need_timm

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

DTYPES = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
"""Names of element types, and torch's names of them."""


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model in eval mode.

    Attributes:
        model: a model of transformers.
        weights: its weights by name, if it was built without them.
        folder: where both come from.
        missing: the names of its weights that the checkpoint lacks, which transformers initialized at random.
    """

    model: PreTrainedModel
    weights: Mapping[str, ir.TensorProtocol] | None
    folder: pathlib.Path
    missing: frozenset[str] = frozenset()

    def check_missing(self, source: ir.Model) -> None:
        """Refuse a graph that reads weights which the checkpoint lacks.

        Checkpoints lack what their outputs never needed, such as the pooler of a masked language model.

        Args:
            source: a captured graph without unused nodes; nothing is folded in it.

        Raises:
            ModelFileError: the graph reads one.
        """
        if lacking := sorted(self.missing.intersection(source.graph.initializers)):
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise ModelFileError(
                f"the weights in '{self.folder}' lack '{lacking[0]}'{more} of {type(self.model).__name__}: "
                "choose another task"
            )


def need_transformers() -> types.ModuleType:
    """The package `transformers`.

    Raises:
        OpsettaError: it is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise OpsettaError(
            "models of Hugging Face need transformers: pip install 'opsetta[huggingface]'"
        ) from error


def read_config(folder: pathlib.Path) -> PretrainedConfig:
    """The configuration of a folder.

    Raises:
        ModelFileError: this release of transformers does not know the model, or the file is wrong.
        UsageError: the weights of the folder are quantized by a method that is not supported.
    """
    transformers = need_transformers()
    if is_timm(folder):
        need_timm()
    try:
        config: PretrainedConfig = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, OSError, KeyError) as error:
        raise ModelFileError(
            f"transformers {transformers.__version__} cannot read '{folder / 'config.json'}': "
            f"{' '.join(str(error).split())}"
        ) from error
    # transformers would load quantized weights with the package that wrote them.
    if method_of(folder) is not None and hasattr(config, "quantization_config"):
        del config.quantization_config
    if config.model_type == MODEL_TYPE:
        complete_timm_config(config)
    return config


def load(folder: pathlib.Path, config: PretrainedConfig, task: Task, dtype: str) -> Loaded:
    """The model for a task. Its weights are not read if the checkpoint has all of them by the model's names.

    Raises:
        UsageError: the type of the model has no such task.
        ModelFileError: the weights cannot be read.
    """
    import torch

    from ..capture.stored_weights.opening import open_weights

    auto = getattr(need_transformers(), auto_class_of(task, config))
    torch_dtype = getattr(torch, dtype)
    method = method_of(folder)
    checkpoint = None if method is None else separate_layers(open_weights(folder), method)

    def build() -> PreTrainedModel:
        has_table = hasattr(auto, "from_config")
        model: PreTrainedModel = (
            auto.from_config(config, dtype=torch_dtype) if has_table else auto(config).to(torch_dtype)
        )
        _widen_weights(model, torch_dtype)
        return model

    def load_weights() -> tuple[PreTrainedModel, LoadingInfo]:
        if checkpoint is not None:
            with torch.device("meta"):
                plain_model = build()
            return checkpoint.load_dequantized(plain_model, torch_dtype)
        model, loading_info = auto.from_pretrained(
            folder, config=config, dtype=torch_dtype, local_files_only=True, output_loading_info=True
        )
        return model, loading_info

    with translate_errors(folder, config.model_type, task.name):
        return load_lazily(folder, build, load_weights, checkpoint)


def _widen_weights(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Convert the weights that `from_pretrained` keeps in float32, such as `wo` of T5.

    Args:
        model: as `from_config` builds it, with all weights in one type.
        dtype: of the other weights.
    """
    import torch

    names = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        names.update(getattr(model, "_keep_in_fp32_modules", None) or ())
    pattern = re.compile("|".join(name.replace("*", ".*") for name in sorted(names)))
    for name, tensor in model.state_dict(keep_vars=True).items() if names else ():
        if tensor.is_floating_point() and pattern.search(name):
            tensor.data = tensor.data.float()


def load_lazily(
    folder: pathlib.Path,
    build: Callable[[], PreTrainedModel],
    load_weights: Callable[[], tuple[PreTrainedModel, LoadingInfo]],
    checkpoint: QuantizedCheckpoint | None = None,
) -> Loaded:
    """A model whose weights stay in their files, if the checkpoint has all of them by the model's names.

    They are loaded if the library changes their values after it has read them.

    Args:
        folder: with the checkpoint.
        build: makes the model with any weights.
        load_weights: loads the model with its weights, and says which ones the checkpoint lacks.
        checkpoint: the checkpoint, if it has quantized layers.

    Raises:
        ModelFileError: the weights cannot be read.
    """
    import torch

    from ..capture.stored_weights.opening import open_weights
    from ..torch_boundary.state.computed_buffers import changes_stored_weights

    # A model on the meta device takes no memory: the weights stay in their files.
    with torch.device("meta"):
        model = build().eval()
    tensors = open_weights(folder) if checkpoint is None else checkpoint.replace_layers(model)
    weights = None if tensors is None else _by_name(model, tensors)
    mismatch: ModelFileError | None = None
    try:
        if (
            weights is not None
            and _is_complete(model, weights)
            and not changes_stored_weights(model, weights)
        ):
            return Loaded(model, weights, folder)
    except ModelFileError as error:
        # transformers transposes some weights, such as the experts of Qwen3-VL.
        mismatch = error
    try:
        model, loading_info = load_weights()
    except (RuntimeError, ValueError) as error:
        if mismatch is None:
            raise
        raise mismatch from error
    return Loaded(model.eval(), None, folder, missing_weights(model, loading_info))


def missing_weights(model: PreTrainedModel, loading_info: LoadingInfo) -> frozenset[str]:
    """The names of the weights that a checkpoint lacks, or has with another shape."""
    mismatched = [name for name, *_ in loading_info["mismatched_keys"]]
    state = model.state_dict(keep_vars=True)
    # The graph may call a tied tensor by another of its names.
    lacking = {id(state[name]) for name in [*loading_info["missing_keys"], *mismatched] if name in state}
    return frozenset(name for name, tensor in state.items() if id(tensor) in lacking)


@contextlib.contextmanager
def translate_errors(folder: pathlib.Path, model_type: str, task: str) -> Iterator[None]:
    """Raise errors of transformers and diffusers as ours, and hide the progress bars of transformers.

    Args:
        folder: of the model.
        model_type: what the library calls it.
        task: the name of the task.

    Raises:
        UsageError: the type of the model has no such task.
        ModelFileError: a file cannot be read.
        CaptureError: the library refuses the model.
    """
    library_logging = need_transformers().utils.logging
    had_progress_bars = library_logging.is_progress_bar_enabled()
    try:
        if had_progress_bars:
            library_logging.disable_progress_bar()
        yield
    except OpsettaError:
        raise
    except (ValueError, KeyError, RuntimeError) as error:
        # transformers has no exception of its own for this.
        if "Unrecognized configuration class" in str(error):
            raise UsageError(f"models of type '{model_type}' have no task {task} in transformers") from error
        raise CaptureError(f"'{folder}' cannot be loaded: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise ModelFileError(f"'{folder}' cannot be loaded: {' '.join(str(error).split())}") from error
    finally:
        if had_progress_bars:
            library_logging.enable_progress_bar()


def _by_name(
    model: PreTrainedModel, checkpoint: Mapping[str, ir.TensorProtocol]
) -> dict[str, ir.TensorProtocol] | None:
    """The weights of a model, with the prefix of its base model added or removed; None if some are missing.

    Checkpoints may hold more, such as the head of another task.
    """
    # Models of diffusers have no base model.
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    state = model.state_dict(keep_vars=True)
    renamings = (
        lambda name: name,
        lambda name: f"{prefix}{name}",
        lambda name: name.removeprefix(prefix),
    )
    # A checkpoint of the base model lacks the prefix that a model with a head has, and the reverse.
    for rename in renamings:
        weights = {name: checkpoint[rename(name)] for name in state if rename(name) in checkpoint}
        # Tied weights need one of their names.
        present = {id(state[name]) for name in weights}
        if all(id(tensor) in present for tensor in state.values()):
            return weights
    return None


def _is_complete(model: PreTrainedModel, weights: Mapping[str, ir.TensorProtocol]) -> bool:
    """Whether a model without data gets all of it: some hold tensors that no checkpoint has.

    Raises:
        ModelFileError: weights have other shapes than the model; lists them.
    """
    from ..capture.stored_weights.matching import match

    try:
        match(model, weights, "the weights")
    except ModelFileError:
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        if any(tuple(tensor.shape.numpy()) != shapes[name] for name, tensor in weights.items()):
            raise
        return False
    return True
