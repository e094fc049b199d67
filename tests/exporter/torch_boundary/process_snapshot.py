"""A snapshot of what an export may not change: of the process, of a model, and of arguments."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch.export import _trace as tracing
from torch.nn.modules import transformer

_HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks") or "_hooks_" in name]
_SCRIPTED = ("training", "calls", "last", "seen")
"""The names of attributes of TorchScript modules that are compared besides parameters and buffers."""
_CONFIGS = ("torch._dynamo.config", "torch._functorch.config", "torch.fx.experimental._config")


def snapshot(*roots: Any) -> dict[str, Any]:
    """Everything of the process by name, then everything of the models and tensors among the roots."""
    return {**_process(), **_torch(), **_loggers(), **_models(roots)}


def model_snapshot(*roots: Any) -> dict[str, Any]:
    """The models and tensors among the roots, and torch's random generator."""
    return {**_models(roots), "torch's random generator": torch.get_rng_state()}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    found = []
    for name in before:
        if name not in after:
            found.append(f"{name} is gone")
        elif not _equal(before[name], after[name]):
            found.append(f"{name}: {str(before[name])[:150]} became {str(after[name])[:150]}")
    return found + [
        f"{name} is new" for name in after if name not in before and not name.startswith("logger")
    ]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (torch.Tensor, np.ndarray)):
        return bool((a == b).all())
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(map(_equal, a, b))
    return bool(a == b)


def _process() -> dict[str, Any]:
    return {
        "Python's random generator": random.getstate(),
        "numpy's random generator": np.random.get_state(),
        "warning filters": list(warnings.filters),
        "warnings.showwarning": warnings.showwarning,
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "sys.path": list(sys.path),
        "recursion limit": sys.getrecursionlimit(),
        "garbage collector": gc.isenabled(),
        "excepthook": (sys.excepthook, threading.excepthook, sys.displayhook),
        "stdout and stderr": (id(sys.stdout), id(sys.stderr)),
        "trace functions": (sys.gettrace(), sys.getprofile(), threading.gettrace()),
        "signal handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "threads": [thread.name for thread in threading.enumerate()],
    }


def _torch() -> dict[str, Any]:
    found = {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "torch's random generator": torch.get_rng_state(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
        "number of threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "RNNBase.get_expected_hidden_size": nn.RNNBase.get_expected_hidden_size,
        "_detect_is_causal_mask": transformer._detect_is_causal_mask,
        "print of torch.export": vars(tracing).get("print", print),
        "kernels of lstm": dict(torch.ops.aten.lstm.input.py_kernels),
        "decomposition of lstm": torch._decomp.decomposition_table.get(torch.ops.aten.lstm.input),
        "fake kernels": list(sys.modules["torch._subclasses.fake_impls"].op_implementations_checks),
        "anomaly mode": torch.is_anomaly_enabled(),
        "tracing": torch.jit.is_tracing() or torch.compiler.is_compiling(),
        "dynamo's callback": torch._C._dynamo.eval_frame.get_eval_frame_callback(),
    }
    assert dynamo_config is sys.modules["torch._dynamo.config"]
    for name in _CONFIGS:
        found[name] = dict(sys.modules[name].get_config_copy())
    return found


def _loggers() -> dict[str, Any]:
    found: dict[str, Any] = {"logging.disable": logging.root.manager.disable}
    named = {"": logging.root, **logging.root.manager.loggerDict}
    for name, logger in named.items():
        if isinstance(logger, logging.Logger):
            handlers, filters = list(map(id, logger.handlers)), list(map(id, logger.filters))
            found[f"logger '{name}'"] = (
                logger.level,
                handlers,
                filters,
                logger.propagate,
                logger.disabled,
            )
    return found


def _models(roots: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at, root in enumerate(roots):
        if isinstance(root, nn.Module):
            for path, module in root.named_modules():
                _module(found, f"module {at} '{path}'", module)
        for place, leaf in enumerate(torch.utils._pytree.tree_leaves(root)):
            if isinstance(leaf, torch.Tensor):
                _tensor(found, f"argument {at}, leaf {place}", leaf)
    return found


def _module(found: dict[str, Any], name: str, module: nn.Module) -> None:
    is_script = isinstance(module, torch.jit.ScriptModule)
    found[f"{name}: class"] = type(module)
    found[f"{name}: training"] = getattr(module, "training", None)
    if not is_script:
        found[f"{name}: attributes"] = list(vars(module))
        found[f"{name}: hooks"] = [list(vars(module)[hook] or ()) for hook in _HOOKS if hook in vars(module)]
        for key, item in vars(module).items():
            members = list(item) if isinstance(item, (list, dict, set)) else ()
            found[f"{name}: attribute {key}"] = (id(item) if item is not None else 0, list(map(id, members)))
    for key, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        _tensor(found, f"{name}: tensor {key}", tensor)
    for member in vars(module).get("others", ()):
        _module(found, f"{name}: member", member)
    for key in _SCRIPTED if is_script else ():
        if module._c.hasattr(key):
            item = module._c.getattr(key)
            tensors = [each for each in (item if isinstance(item, list) else [item]) if torch.is_tensor(each)]
            found[f"{name}: attribute {key}"] = len(tensors) if tensors else item
            for tensor in tensors:
                _tensor(found, f"{name}: tensor {key}", tensor)


def _tensor(found: dict[str, Any], name: str, tensor: torch.Tensor) -> None:
    found[f"{name}: identity"] = (id(tensor), type(tensor))
    found[f"{name}: attributes"] = dict(vars(tensor))
    if nn.parameter.is_lazy(tensor):
        return
    found[f"{name}: settings"] = (tensor.requires_grad, tensor.is_leaf, tensor.shape, tensor.dtype)
    if tensor.layout == torch.strided and tensor.device.type != "meta":
        found[f"{name}: version"] = 0 if tensor.is_inference() else tensor._version
        found[f"{name}: memory"] = tensor.data_ptr()
        found[f"{name}: values"] = (
            torch.view_as_real(tensor.detach().clone().resolve_conj())
            if (tensor.is_complex())
            else tensor.detach().clone()
        )
    if tensor.is_leaf:
        found[f"{name}: grad"] = id(tensor.grad) if tensor.grad is not None else 0
        if tensor.grad is not None:
            found[f"{name}: values of grad"] = tensor.grad.detach().clone()
