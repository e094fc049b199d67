"""Random models of submodules of every kind that PyTorch has: scripted, parametrized, shared, hooked, …

An export must leave them exactly as they were, whichever way it captures and however it ends.
"""

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

from .programs import Program

WIDTH = 3
CAPTURES = ("auto", "direct", "torch.export", "strict", "trace")


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


class Buffers(nn.Module):
    """Reads a buffer that the state_dict has and one that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((WIDTH,), 2.0))
        self.register_buffer("shift", torch.ones(WIDTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


class Counting(nn.Module):
    """Writes to a buffer, sets attributes and fills a list as it runs; it can be scripted."""

    calls: int
    last: torch.Tensor
    seen: list[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(WIDTH))
        self.calls, self.last, self.seen = 0, torch.zeros(WIDTH), [torch.zeros(WIDTH)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.count.add_(1.0)
        self.last = x.sum(0)
        self.seen.append(x)
        return x + self.last


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T


class Shared(nn.Module):
    """Has one weight under two names, and one module under two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight
        self.again = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.second(self.first(x)))


class TracedBesideItsSource(nn.Module):
    """A trace has the very parameters of the module that was traced."""

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Linear(WIDTH, WIDTH)
        self.trace = trace(self.source)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.trace(self.source(x))


class Unregistered(nn.Module):
    """Holds a traced module where no walk over submodules finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.others = [trace(Normalized().eval())]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.others[0](x)


class Decides(nn.Module):
    """Cannot be captured but by a trace: a branch depends on values."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y * 2 if y.sum() > 0 else y


class FixesSize(nn.Module):
    """Another operator at other sizes, after the submodule ran."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y * 2 if y.shape[0] == 2 else y


class Raises(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x)
        raise ValueError("after the submodule")


def trace(module: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, torch.randn(2, WIDTH), check_trace=False)


def script(module: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(module)


def linear() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH)


def parametrized() -> nn.Module:
    module = linear()
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


def hooked() -> nn.Module:
    module = linear()
    module.register_forward_hook(lambda module, inputs, result: result * 2)
    module.register_forward_pre_hook(lambda module, inputs: None)
    module.register_full_backward_hook(lambda module, inputs, results: None)
    return module


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear()), {nn.Linear})


def frozen() -> nn.Module:
    module = linear()
    module.weight.requires_grad_(False)
    return module


def old_norm(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return norm(linear())


KINDS: dict[str, Callable[[], nn.Module]] = {
    "linear": linear,
    "traced": lambda: trace(linear()),
    "traced normalization": lambda: trace(Normalized().eval()),
    "traced in training": lambda: trace(Normalized()),
    "traced beside its source": TracedBesideItsSource,
    "traced, unregistered": Unregistered,
    "scripted": lambda: script(linear()),
    "scripted normalization": lambda: script(Normalized()),
    "scripted with state": lambda: script(Counting()),
    "scripted and frozen": lambda: torch.jit.freeze(script(linear().eval())),
    "trace of a script": lambda: trace(nn.Sequential(script(Counting()), linear())),
    "state": Counting,
    "parametrized": parametrized,
    "orthogonal": lambda: parametrizations.orthogonal(linear()),
    "weight norm": lambda: parametrizations.weight_norm(linear()),
    "weight norm by a hook": lambda: old_norm(weight_norm),
    "spectral norm": lambda: parametrizations.spectral_norm(linear()),
    "spectral norm by a hook": lambda: old_norm(spectral_norm),
    "DataParallel": lambda: nn.DataParallel(linear()),
    "compiled": lambda: torch.compile(linear(), backend="eager"),
    "lazy": lambda: nn.LazyLinear(WIDTH),
    "quantized": quantized,
    "shared": Shared,
    "buffers": Buffers,
    "hooked": hooked,
    "normalization": lambda: nn.BatchNorm1d(WIDTH),
    "frozen parameter": frozen,
}
ENDS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "runs": lambda inner: nn.Sequential(inner, linear()),
    "decides": Decides,
    "fixes a size": FixesSize,
    "raises": Raises,
}


def with_gradients(model: nn.Module) -> nn.Module:
    """The model with a gradient for each parameter, as in the middle of training."""
    for parameter in model.parameters():
        if parameter.requires_grad and not nn.parameter.is_lazy(parameter):
            parameter.grad = torch.ones_like(parameter)
    return model


def program(seed: int) -> Program:
    """The program of a seed."""
    random = Random(seed)
    torch.manual_seed(seed)
    names = [random.choice(list(KINDS)) for _ in range(random.randint(1, 3))]
    modules = [KINDS[name]() for name in names]
    if random.random() < 0.3:
        modules.append(modules[0])
    end = random.choice(["runs", "runs", *ENDS])
    model = with_gradients(ENDS[end](nn.Sequential(*modules)))
    mode = random.choice(["eval", "eval", "train", "mixed"])
    model.train(mode == "train")
    if mode == "mixed":
        random.choice(modules).train()
    options = {"capture": random.choice(CAPTURES), "mutations": "drop"}
    example = (torch.randn(random.randint(1, 4), WIDTH),)
    inputs: list[tuple[Any, ...]] = []
    shapes = None
    # A trace keeps the path of the example, of which a warning tells.
    keeps_path = options["capture"] == "trace" and end in ("fixes a size", "decides")
    if random.random() < 0.5 and not keeps_path:
        shapes, inputs = ({0: "batch"},), [(torch.randn(size, WIDTH),) for size in (2, 5)]
    text = f"{end} of {names}, {mode}, {options}, {shapes}, example of {list(example[0].shape)}"
    return Program(seed, model, example, inputs, text, shapes, _Restoring(model), options)


class _Restoring:
    """Calls a model, and restores its parameters and buffers."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        tensors = [*self._model.parameters(), *self._model.buffers()]
        before = [(tensor, tensor.detach().clone()) for tensor in tensors if not nn.parameter.is_lazy(tensor)]
        try:
            result: torch.Tensor = self._model(x)
            return result
        finally:
            with torch.no_grad():
                for tensor, values in before:
                    tensor.copy_(values)
