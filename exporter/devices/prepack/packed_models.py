"""`prepack`: packs the weights of a whole model for torch's oneDNN, and removes the plain weights."""

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
    """Replace the weights of a model's layers by weights packed for oneDNN.

    `Linear`, `Conv1d`, `Conv2d`, `Conv3d` and `LSTM` are replaced; subclasses of them, layers with hooks,
    padding modes other than zeros, LSTMs with a projection, and all other layers stay. GRU and RNN stay,
    because torch has no operator of oneDNN that packs their weights. In an exported program, `linear` of
    dequantized 8-bit integers becomes a product of the integers with a packed INT8 weight, on processors
    where it is exact.

    The result is for inference: packed layers have no gradients. It runs in eager mode, and `torch.compile`,
    `torch.export` and AOTInductor support it: for them a packed weight is a buffer of bytes.

    Args:
        model: a module, which is changed in place; or an exported program, which is not changed. The layers
            must be FLOAT, BFLOAT16 or FLOAT16 on the CPU; LSTMs FLOAT, and those of integers INT8.
        batch: the number of rows of a linear layer's input for which to choose the layout.

    Returns:
        The module, or the packed layer if the module is itself such a layer; for an exported program, its
        module with packed layers.

    Raises:
        UsageError: the model is neither, or is a scripted module.
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
    from .packed_layers import PackedLayer
    from .packed_modules import pack_graph, pack_module

    packed: torch.nn.Module
    if isinstance(model, torch.export.ExportedProgram):
        packed = pack_graph(model, batch)
    else:
        packed = pack_module(model, batch)
    if not any(isinstance(layer, PackedLayer) for layer in packed.modules()):
        warn("the model has no layer whose weight can be packed", UserWarning)
    return packed
