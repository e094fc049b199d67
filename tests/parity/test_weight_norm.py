"""Weight normalization against eager PyTorch: each dimension, rank and element type; on modules, too."""

import pytest
import torch
from torch.nn.utils import parametrizations

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

SHAPES = {1: (5,), 2: (4, 3), 3: (2, 4, 3), 4: (3, 2, 2, 3)}


def _weights(v: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
    """A weight for each dimension, the norms, and what the fused operator gives."""
    rank = v.dim()
    norms = [torch.norm_except_dim(v, 2, dim) for dim in range(-rank, rank)]
    weights = [torch._weight_norm(v, norms[dim + rank] * scale, dim) for dim in range(-rank, rank)]
    fused = [torch._weight_norm_interface(v, norms[dim + rank] * scale, dim)[0] for dim in {0, rank - 1}]
    return [*norms, *weights, *fused]


def _of_norms(v: torch.Tensor, *norms: torch.Tensor) -> list[torch.Tensor]:
    return [torch._weight_norm(v, norm, dim) for dim, norm in zip(range(-3, 3), norms, strict=True)]


def _powers(v: torch.Tensor) -> list[torch.Tensor]:
    return [torch.norm_except_dim(v, power, dim) for power in (0, 1, 3) for dim in range(-v.dim(), v.dim())]


def _records():
    scale = torch.tensor(1.5)
    for rank, shape in SHAPES.items():
        v = floats(*shape, seed=rank)
        yield Record(f"weight_norm-{rank}", _weights, (v, scale), (7, 13, HIGHEST))
        yield Record(f"norm_except_dim-{rank}", _powers, (v,), (9,))
    for dtype in (torch.float16, torch.bfloat16):
        v = floats(2, 4, 3, dtype=dtype)
        norms = [torch.norm_except_dim(v, 2, dim) for dim in range(-3, 3)]
        yield Record(f"weight_norm-{str(dtype)[6:]}", _of_norms, (v, *norms), (13,))
    yield Record("norm_except_dim-0", lambda v: torch.norm_except_dim(v, 2, -1), (torch.tensor(-2.5),), (9,))
    for shape, free in (((4, 3), {0: "rows", 1: "columns"}), ((4,), {0: "n"})):
        v, g = floats(*shape), floats(4, *(1 for _ in shape[1:]))
        dynamic = (free, {0: free[0]})
        yield Record(
            f"weight_norm-dynamic-{len(shape)}",
            lambda v, g: torch._weight_norm(v, g, 0),
            (v, g),
            (9,),
            dynamic=dynamic,
        )


@parametrized(_records())
def test_agrees_with_eager(record):
    check(record)


class _Modules(torch.nn.Module):
    """Modules with a normalized parameter of rank 1, 2 and 3, for each dimension."""

    def __init__(self, normalize):
        super().__init__()
        self.normalized = torch.nn.ModuleList()
        for make, parameter, dims in (
            (lambda: torch.nn.LayerNorm(4), "weight", (0, -1, None)),
            (lambda: torch.nn.Linear(4, 3), "bias", (0, None)),
            (lambda: torch.nn.Linear(4, 3), "weight", (0, 1, -1, -2, None)),
            (lambda: torch.nn.Conv1d(3, 2, 3), "weight", (0, 1, 2, -2, None)),
        ):
            for dim in dims:
                module = make()
                for weight in module.parameters():
                    torch.nn.init.normal_(weight)
                self.normalized.append(normalize(module, parameter, dim=dim))

    def forward(self, x):
        return [module(x) for module in self.normalized]


@pytest.mark.parametrize("normalize", [torch.nn.utils.weight_norm, parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_modules_agree_with_eager(normalize):
    torch.manual_seed(0)
    x = floats(2, 3, 4, seed=7)
    program = opsetta.export(_Modules(normalize).eval(), (x,), opset=9)
    for opset in (9, 18):
        program.lower(opset=opset).verify((x,))
