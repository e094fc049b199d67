"""Models and inputs like those on a GPU, of fake tensors, which need neither a GPU nor memory."""

import copy
from typing import TypeVar

import torch
from torch import nn
from torch.utils import _pytree

from opsetta.exporter.torch_boundary.fake_tensors import FakeTensorMode

Arguments = TypeVar("Arguments")


def on_fake_gpu(model: nn.Module, arguments: Arguments) -> tuple[nn.Module, Arguments]:
    """A copy of a model and its arguments whose tensors are fake ones of the first GPU.

    Parameters of an existing model are replaced, because torch's CPU build cannot initialise them there.
    """
    model = copy.deepcopy(model)
    with FakeTensorMode():
        fakes: dict[int, torch.Tensor] = {}
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                for name, tensor in list(table.items()):
                    if tensor is not None:
                        setattr(module, name, fakes.setdefault(id(tensor), _fake(tensor)))
        return model, _pytree.tree_map_only(torch.Tensor, _fake, arguments)


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
    return nn.Parameter(fake, requires_grad=False) if isinstance(tensor, nn.Parameter) else fake
