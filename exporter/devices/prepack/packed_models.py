"""`prepack`: packs the weights of a whole model for torch's oneDNN; the packed weights are its only ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....registration import UsageError
from ....registration.warning import warn
from ...torch_boundary.requirements import need_torch

if TYPE_CHECKING:
    import torch


def prepack(
    model: torch.nn.Module | torch.export.ExportedProgram, *, batch: int | None = None
) -> torch.nn.Module:
    """Pack the weights of a model's layers for oneDNN, in place of the plain ones.

    `Linear`, `Conv1d`, `Conv2d` and `Conv3d` are replaced; subclasses of them, layers with hooks, padding
    modes other than zeros, and all other layers stay. The result is for inference: packed layers have no
    gradients. It runs in eager mode, and `torch.compile`, `torch.export` and AOTInductor take it: for them a
    packed weight is a buffer of bytes.

    Args:
        model: a module is changed in place; an exported program stays as it is. The layers are in FLOAT,
            BFLOAT16 or FLOAT16 on the CPU.
        batch: the rows of a linear layer's input that the layout is chosen for.

    Returns:
        The module, or if it is itself such a layer, the packed layer; the module of an exported program.

    Raises:
        UsageError: the model is none of these, or is a scripted module.
        PrepackUnavailable: this platform, processor or torch lacks what is needed.
    """
    need_torch("packing weights with oneDNN")
    import torch

    from ...torch_boundary import onednn

    scripted = isinstance(model, torch.jit.ScriptModule)
    if scripted or not isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        raise UsageError(
            "model must be an exported program, or a torch module that is not scripted, not "
            f"{type(model).__name__}"
        )
    onednn.library()
    from .packed_modules import PackedLayer, pack_graph, pack_module

    packed: torch.nn.Module
    if isinstance(model, torch.export.ExportedProgram):
        packed = pack_graph(model, batch)
    else:
        packed = pack_module(model, batch)
    if not any(isinstance(layer, PackedLayer) for layer in packed.modules()):
        warn("the model has no layer whose weight can be packed", UserWarning)
    return packed
