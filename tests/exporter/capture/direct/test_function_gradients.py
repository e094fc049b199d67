"""Models that compute gradients in their forward by `torch.func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import opsetta
from opsetta.registration import CaptureError

from ....opsets import HIGHEST

NETWORK = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
NORMALIZED = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU())


class Model(nn.Module):
    """Differentiates a network, whose parameters it owns."""

    def __init__(self, differentiate: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.network = NETWORK
        self.normalized = NORMALIZED
        self.weight = nn.Parameter(torch.eye(4) + 0.1)
        self.differentiate = differentiate

    def forward(self, x: torch.Tensor) -> Any:
        return self.differentiate(self, x)


def total(model: Model) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: model.network(x).sum()


def accelerations(model: Model, x: torch.Tensor) -> torch.Tensor:
    """The Euler-Lagrange equation of a Lagrangian of positions and velocities."""

    def lagrangian(position: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
        return F.softplus(torch.cat([position, velocity]) @ model.weight).square().sum()

    def acceleration(state: torch.Tensor) -> torch.Tensor:
        position, velocity = state[:2], state[2:]
        mass = hessian(lagrangian, 1)(position, velocity) + 3 * torch.eye(2)
        mixed = jacrev(jacrev(lagrangian, 1), 0)(position, velocity)
        return torch.linalg.solve(mass, grad(lagrangian)(position, velocity) - mixed @ velocity)

    return vmap(acceleration)(x)


def adapted(model: Model, x: torch.Tensor) -> torch.Tensor:
    """The network after one step of gradient descent."""
    parameters = dict(model.network.named_parameters())
    gradients = grad(lambda p: functional_call(model.network, p, (x,)).square().mean())(parameters)
    return functional_call(model.network, {k: p - 0.1 * gradients[k] for k, p in parameters.items()}, (x,))


def potential(model: Model, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The energy of atoms, and the forces on them."""

    def energy(positions: torch.Tensor) -> torch.Tensor:
        distances = (positions[:, None] - positions[None]).square().sum(-1) + torch.eye(positions.shape[0])
        return (distances**-3 - distances**-1.5).sum()

    gradient, value = grad_and_value(energy)(x)
    return value, -gradient


def convolved(model: Model, x: torch.Tensor) -> object:
    """Convolutions of samples, with gradients of single samples, also of the weights."""

    def scores(kernel: torch.Tensor, bias: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
        signal = F.conv1d(
            sample.repeat(2, 4)[:, :9].unsqueeze(0), kernel, bias, stride=2, padding=1, groups=2
        )
        image = F.avg_pool2d(signal.reshape(1, 1, 4, 5), 2).sigmoid()
        return F.interpolate(image, scale_factor=2, mode="bilinear").square().sum()

    kernel = model.weight.reshape(-1)[:12].reshape(4, 1, 3)
    gradients = vmap(grad(scores, (0, 1, 2)), (None, None, 0))(kernel, model.weight[0], x)
    own_kernels = vmap(lambda y: F.conv1d(torch.ones(1, 2, 5), y.repeat(6)[:12].reshape(3, 2, 2)))(x)
    return *gradients, own_kernels


def selected(model: Model, x: torch.Tensor) -> object:
    """Elements of samples that are selected by position, and their gradients."""

    def total(sample: torch.Tensor) -> torch.Tensor:
        order = sample.argsort()
        rows = F.embedding(order[:2], sample.outer(sample)).index_select(1, torch.tensor([2, 0, 2]))
        highest = sample.max(0)[0] + 2 * sample.sort()[0][1] - sample.median() + sample.topk(2)[0].prod()
        spread = torch.zeros(5).scatter_add(0, order, sample.square())
        spread = spread.index_put((order[:2],), sample[2:])
        return (rows.gather(1, order[None, :2] % 3).sum() + spread[1:].exp().sum()) * highest

    return vmap(grad(total))(x), vmap(lambda y: torch.take_along_dim(y, y.argsort(), 0))(x)


def classified(model: Model, x: torch.Tensor) -> object:
    """Losses of samples, and their gradients."""

    def loss(sample: torch.Tensor) -> torch.Tensor:
        rows = F.batch_norm(sample.outer(sample), torch.zeros(4), torch.ones(4))
        product = F.bilinear(rows, rows.tanh(), model.weight[None])
        return F.cross_entropy(rows, torch.tensor([1, 2, 0, 3])) + F.glu(product.reshape(-1)).sum()

    return vmap(grad_and_value(loss))(x)


CASES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "grad": lambda model, x: grad(total(model))(x),
    "grad with other results": lambda model, x: grad(lambda y: (total(model)(y), y.sin()), has_aux=True)(x),
    "vjp": lambda model, x: vjp(model.network, x)[1](torch.ones(x.shape[0], 2))[0],
    "jvp": lambda model, x: jvp(model.network, (x,), (x.cos(),)),
    "jacobians of samples": lambda model, x: vmap(jacrev(model.network))(x),
    "normalized samples": lambda model, x: vmap(grad(lambda y: model.normalized(y).sum()))(x),
    "hessians of samples": lambda model, x: vmap(hessian(total(model)))(x),
    "divergence": lambda model, x: vmap(lambda y: torch.trace(jacfwd(lambda z: model.weight @ z.tanh())(y)))(
        x
    ),
    "accelerations": accelerations,
    "convolved": convolved,
    "selected": selected,
    "classified": classified,
    "adapted": adapted,
    "potential": potential,
}


SWEEP = ("accelerations", "classified")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.sweep] if name in SWEEP else []) for name in CASES],
)
def test_agrees_for_every_batch(name: str) -> None:
    torch.manual_seed(0)
    program = opsetta.export(
        Model(CASES[name]).eval(), (torch.randn(3, 4),), opset=9, dynamic_shapes=({0: "batch"},)
    )
    calls = [(torch.randn(size, 4),) for size in (1, 7)]
    for opset in (9, HIGHEST):
        for call in calls:
            program.lower(opset=opset).verify(call)


def test_gradients_of_slices_of_samples() -> None:
    def function(y: torch.Tensor) -> torch.Tensor:
        return (y[1:3] ** 2).sum() + (y[-2:] ** 3).sum() * y[::2].sum() + y[1::3].prod() + y[1].exp()

    model = Model(lambda model, x: vmap(grad(function))(x)).eval()
    program = opsetta.export(model, (torch.randn(3, 4),), opset=9, dynamic_shapes=({0: "batch"},))
    program.verify((torch.randn(5, 4),))


def test_transposed_convolutions_with_weights_of_samples_are_refused() -> None:
    def function(y: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose1d(torch.ones(1, 1, 3), y.reshape(1, 1, 4))

    model = Model(lambda model, x: vmap(function)(x)).eval()
    with pytest.raises(CaptureError, match="convolution.* within a vmap over a dynamic dimension"):
        opsetta.export(model, (torch.randn(3, 4),), dynamic_shapes=({0: "batch"},))
