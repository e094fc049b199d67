"""Refuses modules of PyTorch's eager-mode quantization, whose packed weights cannot be captured."""

from __future__ import annotations

import re

import torch

from ...registration import CaptureError
from ..torch_boundary import torchscript
from ..torch_boundary.state.module_tree import modules_of

_REFERENCE = "torch.ao.nn.quantized.reference."
"""Reference modules: they compute in floats, between separate quantize and dequantize operators."""
_PACKAGES = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")
_MANGLED = re.compile(r"^__torch__\.|\.___torch_mangle_\d+")


def refuse_eager_quantized(model: object) -> None:
    """Refuse a model with modules of `torch.ao.nn.quantized`, scripted ones included.

    Raises:
        CaptureError: there is one; the message names the first, and a quantization that can be exported.
    """
    if not isinstance(model, torch.nn.Module):
        return
    class_names: set[str] = set()
    for module in modules_of(model):
        class_name = f"{type(module).__module__}.{type(module).__qualname__}"
        if isinstance(module, torch.jit.ScriptModule):
            # TorchScript adds a namespace, and a number for each version of a class.
            class_name = _MANGLED.sub("", torchscript.class_name(module))
        # A model has few classes and perhaps thousands of modules.
        if class_name in class_names:
            continue
        class_names.add(class_name)
        if class_name.startswith(_PACKAGES) and not class_name.startswith(_REFERENCE):
            path = next(path for path, submodule in model.named_modules() if submodule is module)
            raise CaptureError(
                f"'{path or '<root>'}' is a {class_name}: modules of eager-mode quantization have packed "
                "weights, which cannot be exported. Export the float model, or quantize it with prepare_pt2e "
                "and convert_pt2e (torchao.quantization.pt2e) and export the result"
            )
