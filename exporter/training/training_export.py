"""`export_training`: from a PyTorch model, a loss and an optimizer to a `TrainingProgram`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...registration import (
    DEFAULT_OPSET,
    FIXED_WEIGHTS,
    CaptureError,
    Registry,
    UsageError,
    load_entry_points,
    registry_or_default,
)
from ...registration.opsets import check_opset
from ...registration.warning import warn
from ..capture.capture_options import CaptureOptions
from ..captured_graph.capture import Capture
from ..export_arguments import model_call
from ..program import SourceModel
from ..torch_boundary import probe
from ..torch_boundary.requirements import need_torch
from .gradient_changes import GradientOptions
from .optimizers import Optimizer, read_optimizer
from .program import TrainingProgram
from .signature import Signature
from .step_graph import StepGraph

if TYPE_CHECKING:
    import torch


def export_training(
    model: torch.nn.Module,
    args: object,
    targets: object = None,
    *,
    loss: Callable[..., object] | None = None,
    optimizer: str | torch.optim.Optimizer | None = "sgd",
    hyperparameters: Mapping[str, object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    opset: int = DEFAULT_OPSET,
    dynamic_shapes: object = None,
    narrow: bool | Collection[str] = False,
    results: bool = False,
    gradients: bool = False,
    clip_value: float | None = None,
    clip_norm: float | tuple[float, float] | None = None,
    accumulate: bool = False,
    registry: Registry | None = None,
) -> TrainingProgram:
    """Export one training step of a model to ONNX: loss, gradients, and the optimizer's update.

    Trained parameters, buffers that the model writes to, and what the optimizer keeps are inputs of the
    graph, and their new values are outputs; docs/training.md has the names. Parameters that do not require
    gradients stay weights of the file. The model is captured in its mode: call `model.train()` first.
    Model, loss, optimizer and arguments are not changed.

    Args:
        model: an `nn.Module`.
        args: example arguments, a tuple or a single tensor.
        targets: an example of what the loss compares with, a tensor or a nested structure. None if the loss
            takes the model's result alone.
        loss: a function or module of the model's result and the targets, which returns one number. None if
            the model returns its loss.
        optimizer: `"sgd"`, `"adam"`, `"adamw"`, `"adamax"`, `"nadam"`, `"radam"`, `"rmsprop"`, `"adagrad"`,
            `"adadelta"`, `"adafactor"`, `"asgd"`, `"rprop"` or `"lion"`; an instance of one of these classes
            of torch.optim, whose groups, hyper-parameters and state count; or None for gradients without
            an update.
        hyperparameters: arguments of the optimizer's class, `{"lr": 0.1, "momentum": 0.9}`, if it is given by
            its name.
        kwargs: example keyword arguments.
        opset: the ONNX opset to write.
        dynamic_shapes: as for `export`; the targets are the parameter `targets`.
        narrow: as for `export`.
        results: return the model's results, too.
        gradients: return the gradients, too.
        clip_value: clip each element of the gradients to this magnitude before the update, as
            `torch.nn.utils.clip_grad_value_` does.
        clip_norm: scale the gradients of all trained parameters together to this norm if theirs is larger, as
            `torch.nn.utils.clip_grad_norm_` does; a pair of the norm and its order (`norm_type`).
        accumulate: steps can add up gradients instead of applying them; see `TrainingSession.step`.
        registry: the symbolic functions to lower with; by default the default registry.

    Raises:
        UsageError: the model is no module; the optimizer or one of its options is not supported; or clipping
            has a number that is not positive.
        CaptureError: torch.export could not capture the model; the loss is not one number; no parameter that
            the loss depends on is trained; or the model writes to a parameter or an input.
        UnsupportedOperatorsError: the opset cannot express the graph; lists all such operators.
    """
    check_opset(opset)
    registry = registry_or_default(registry)
    need_torch("exporting a model")
    import torch

    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise UsageError(f"the model must be an nn.Module, not {type(model).__name__}")
    if loss is not None and not callable(loss):
        raise UsageError(f"loss must be a function of the model's result, not {type(loss).__name__}")
    if loss is None and targets is not None:
        raise UsageError("targets need loss=: without it, the model must compute the loss from its arguments")
    if not model.training:
        warn("the model is exported in evaluation mode; for training, call model.train() first")
    used = None if optimizer is None else read_optimizer(optimizer, hyperparameters, model)
    gradient_options = GradientOptions.from_arguments(clip_value, clip_norm, accumulate)
    if used is None and hyperparameters:
        raise UsageError("hyperparameters need an optimizer")
    if used is None and gradient_options != GradientOptions():
        raise UsageError("clip_value, clip_norm and accumulate need an optimizer")
    capture, signature, state = _capture_step(
        model,
        args,
        kwargs,
        targets,
        loss,
        used,
        gradient_options,
        dynamic_shapes=dynamic_shapes,
        narrow=narrow,
        outputs={"results": results, "gradients": gradients or used is None},
    )
    from ... import symbolics  # noqa: F401
    from ..capture.fx_import.decomposition import Decomposer

    load_entry_points()
    source = SourceModel(capture, output_names=capture.output_names, decompose=Decomposer())
    return TrainingProgram(source, opset, registry, signature, state, used, gradient_options=gradient_options)


def _capture_step(
    model: torch.nn.Module,
    args: object,
    kwargs: Mapping[str, object] | None,
    targets: object,
    loss: Callable[..., object] | None,
    optimizer: Optimizer | None,
    gradient_options: GradientOptions,
    *,
    dynamic_shapes: object,
    narrow: bool | Collection[str],
    outputs: dict[str, bool],
) -> tuple[Capture, Signature, dict[str, np.ndarray]]:
    """The source graph of a step after the source passes, with its signature and the initial state."""
    from ..torch_boundary.boundary import boundary

    probe.require(probe.TRAINING)
    with boundary():
        from ..capture.eager_quantization import refuse_eager_quantized
        from ..capture.fx_import.exported_program import output_names
        from ..capture.pytorch.capture_model import capture
        from ..capture.training_graph.joint_graph import capture_joint
        from ..capture.training_graph.loss_module import MODEL, LossModule, targets_name
        from ..lowering.source_passes import run_source_passes
        from ..torch_boundary.replacements.functions.custom_gradients import check_hooks

        positional, named = model_call(model, args, kwargs)
        refuse_eager_quantized(model)
        check_hooks(model)
        name = None if targets is None else targets_name(model)
        module = LossModule(model, loss, name)
        keywords = named if name is None else {**named, name: targets}
        options = CaptureOptions(dynamic_shapes=dynamic_shapes, narrow=narrow, capture="gradients")
        forward = capture(module, positional, keywords, options)
        names = output_names(forward)
        # The captures number the leaves of a structure: `loss_0` means that the loss has several.
        if names and names[0].startswith("loss_"):
            raise CaptureError("the loss must be one tensor, not a structure of several")
        trained = None if optimizer is None else set(optimizer.parameters)
        joint = capture_joint(forward, lambda parameter: trained is None or parameter in trained, f"{MODEL}.")
        # Weights become inputs, so passes must not fold them.
        joint.model.metadata_props[FIXED_WEIGHTS] = "true"
        # New values of buffers become outputs, which the next step takes as inputs.
        run_source_passes(joint.model, "outputs")
        graph = StepGraph(joint.model, names[1:], joint.gradients, optimizer, gradient_options)
        inputs = [
            joint.inputs[input_name] for input_name in forward.interface.inputs if input_name is not None
        ]
        count = _count_targets(forward, positional, named, targets)
        signature = graph.finish(inputs[: len(inputs) - count], inputs[len(inputs) - count :], **outputs)
    step_capture = Capture(
        joint.model,
        forward.interface,
        example=(positional, keywords),
        output_names=graph.output_names,
        module=module,
    )
    return step_capture, signature, graph.state


def _count_targets(
    forward: Capture, args: tuple[object, ...], kwargs: Mapping[str, object], targets: object
) -> int:
    """The number of graph inputs that are targets; they are the last."""
    from ..torch_boundary.containers import pytree

    if targets is None:
        return 0
    before = len(pytree.tree_leaves((args, dict(kwargs))))
    return sum(name is not None for name in forward.interface.inputs[before:])
