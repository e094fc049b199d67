"""Models that compute gradients in their forward, by autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opsetta
from opsetta.registration import CaptureError

from ....opsets import is_full_run


class Forces(nn.Module):
    """The energy of atoms, and the forces on them; relies on autograd, as in training."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.filters = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 8))
        self.energy = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1))
        self.register_buffer("centers", torch.linspace(0, 3, 6))

    def forward(
        self, kinds: torch.Tensor, positions: torch.Tensor, edges: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        positions.requires_grad_()
        distances = (positions[edges[0]] - positions[edges[1]]).norm(dim=-1)
        weights = self.filters(torch.exp(-((distances[:, None] - self.centers) ** 2)))
        atoms = self.embedding(kinds)
        atoms = atoms.index_add(0, edges[1], atoms[edges[0]] * weights * distances.cos()[:, None])
        energy = self.energy(atoms).sum()
        return energy, -torch.autograd.grad([energy], [positions], create_graph=True)[0]


class Laplacian(nn.Module):
    """A function, its gradient, and the sum of its second derivatives; switches autograd on itself."""

    def __init__(self) -> None:
        super().__init__()
        self.function = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = self.function(x)
            (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
            second = [torch.autograd.grad(first[:, i].sum(), x, retain_graph=True)[0][:, i] for i in range(3)]
        return value, first, sum(second)


class Backward(nn.Module):
    """Gradients that `backward` adds up in the input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        x.requires_grad_(True)
        self.layer(self.attention(x, x, x)[0])[:, 0].sum().backward()
        return x.grad


class ActivationMap(nn.Module):
    """Grad-CAM: the parts of an image that decide its class."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        self.features = nn.Sequential(*layers)
        self.classes = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.features(x.requires_grad_())
        best = self.classes(features.mean((2, 3))).max(1).values
        (gradient,) = torch.autograd.grad(best.sum(), features)
        return (features * gradient.mean((2, 3), keepdim=True)).sum(1).relu()


class Adapted(nn.Module):
    """One step of training on the first example before the second is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss(self.layer(x), y)
        weight, bias = torch.autograd.grad(loss, [self.layer.weight, self.layer.bias])
        return F.linear(z, self.layer.weight - 0.1 * weight, self.layer.bias - 0.1 * bias)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(4, 5, batch_first=True)
        self.second = nn.GRU(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(self.second(self.first(x)[0])[0].sum(), x)[0]


class Straight(torch.autograd.Function):
    """Rounding, with the gradient of another function."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        result = x.round()
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        x, result = ctx.saved_tensors
        return gradient * (2 * x - result)


class OwnGradients(nn.Module):
    """The backward of an `autograd.Function`, a hook, and distances."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        y = Straight.apply(x) * x
        y.register_hook(lambda gradient: gradient * 3)
        return torch.autograd.grad(y.sum() + torch.cdist(x, x + 1).sum(), x)[0]


class Pairs(nn.Module):
    """The gradients of a bilinear layer in its inputs and its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(4, 2, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        return torch.autograd.grad(self.layer(x, y).square().sum(), [x, y, self.layer.weight])


EDGES = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
X = torch.randn(3, 4)
CASES: dict[str, tuple[nn.Module, tuple, tuple | None]] = {
    "forces": (
        Forces(),
        (torch.arange(5), torch.randn(5, 3), EDGES),
        ({0: "atoms"}, {0: "atoms"}, {1: "edges"}),
    ),
    "laplacian": (Laplacian(), (torch.randn(4, 3),), ({0: "batch"},)),
    "backward": (Backward(), (torch.randn(2, 5, 8),), ({0: "batch", 1: "length"},)),
    "activation map": (ActivationMap(), (torch.randn(2, 3, 8, 8),), ({0: "batch", 2: "height"},)),
    "adapted": (Adapted(), (X, torch.randn(3, 2), X * 2), ({0: "batch"}, {0: "batch"}, {0: "batch"})),
    "pairs": (Pairs(), (X, torch.randn(3, 2)), ({0: "batch"}, {0: "batch"})),
    "own gradients": (OwnGradients(), (X,), ({0: "batch"},)),
    "recurrent": (Recurrent(), (torch.randn(2, 3, 4),), None),
}


def checked(name: str, dynamic_shapes: tuple | None) -> opsetta.Program:
    """Export a case, and verify it at opsets where what it uses changes."""
    model, args, _ = CASES[name]
    args = tuple(each.clone() for each in args)
    program = opsetta.export(model.eval(), args, opset=17, dynamic_shapes=dynamic_shapes)
    assert not any(each.requires_grad for each in args)
    assert all(each.grad is None for each in model.parameters())
    for opset in (9, 13, 17, 21) if is_full_run() else (9, 21):
        program.lower(opset=opset).verify(args)
    return program


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_part_of_the_program(name: str) -> None:
    checked(name, None)


@pytest.mark.parametrize("name", [name for name, (_, _, shapes) in CASES.items() if shapes])
def test_gradients_of_dynamic_sizes(name: str) -> None:
    _, args, shapes = CASES[name]
    program = checked(name, shapes)
    program.verify(tuple(larger(each, axes) for each, axes in zip(args, shapes, strict=True)))


def larger(tensor: torch.Tensor, axes: dict[int, str]) -> torch.Tensor:
    for axis in axes:
        tensor = torch.cat([tensor, tensor.narrow(axis, 0, 2)], dim=axis)
    return tensor


def clamped_in_place(x: torch.Tensor) -> torch.Tensor:
    """Autograd copies what an operator in place overwrites."""
    return F.silu((x * 2).add_(x).mul_(x).clamp_(-1, 1), inplace=True).masked_fill_(x > 0.5, 0)


def written_parts(x: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(4, 4)
    table[0] = x[0] * x[1]
    table[1:, 1] = x[2, 2]
    return table.exp()


PARTS = {
    "in place": clamped_in_place,
    "written parts": written_parts,
    "a mask that autograd keeps": F.softshrink,
    "a loss": lambda x: F.hinge_embedding_loss(x, torch.ones(4, 4)),
    "a sign": lambda x: torch.sgn(x) + x,
    "a sign alone": torch.sgn,
    "determinant": torch.linalg.det,
    "signed logarithm": lambda x: torch.stack(torch.linalg.slogdet(x)),
    "logarithm": lambda x: torch.logdet(x @ x.T + torch.eye(4)),
    "masked attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "matrix and vector": lambda x: torch.mv(x, x[:, 0]),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_autograd_keeps_is_part_of_the_program(name: str) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone().requires_grad_()
            return torch.autograd.grad(PARTS[name](x).square().sum(), x)[0]

    x = torch.randn(4, 4)
    program = opsetta.export(Model().eval(), (x,), opset=17)
    for opset in (9, 17):
        program.lower(opset=opset).verify((x,))
        program.lower(opset=opset).verify((x.flip(0) + 0.1,))


def test_sizes_are_checked_with_gradients() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone().requires_grad_()
            return torch.autograd.grad((x[:, 3] ** 3 + x.sum(1)).sum(), x)[0]

    program = opsetta.export(Model().eval(), (X,), dynamic_shapes=({0: "batch", 1: "width"},), narrow=True)
    assert [str(each.condition) for each in program.dimensions["width"].restrictions] == ["width >= 4"]
    program.verify((torch.randn(5, 7),))


@pytest.mark.parametrize("capture", ["auto", "direct"])
def test_dual_numbers_are_refused_by_name(capture: str) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.func.linearize(torch.tanh, x)[1](x)

    with pytest.raises(CaptureError, match="compute them with torch.autograd.grad"):
        opsetta.export(Model().eval(), (X,), capture=capture)
