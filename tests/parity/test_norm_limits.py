"""Distances within a tensor and norms held below a limit, against eager PyTorch."""

import math

import torch
import torch.nn.functional as F

import opsetta

from .records import BASE, EVERYWHERE, HIGHEST, Record, floats, parametrized
from .resized import Resized, check_sizes

ROWS, TABLE = floats(4, 5), floats(6, 3)
FREE = {0: "n", 1: "m"}
PLACES = torch.tensor([[0, 5], [2, 2]])
FEW = ((floats(1, 5),), (floats(6, 2),))


def _distances() -> list[Record]:
    powers = (2.0, 1.0, 0.0, 3.0, math.inf)
    return [
        Record("pdist", lambda x: tuple(F.pdist(x, p) for p in powers), (ROWS,), EVERYWHERE),
        Record("pdist of one row", F.pdist, (ROWS[:1],)),
        Record("pdist of double", F.pdist, (ROWS.double(),)),
        Resized("pdist of any rows", lambda x: F.pdist(x, 3.0), (ROWS,), BASE, dynamic=(FREE,), others=FEW),
    ]


def _limits() -> list[Record]:
    def looked_up(index: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = F.embedding(index, table.clone(), max_norm=1.0)
        return first, F.embedding_bag(index, table.clone(), max_norm=0.5, norm_type=1.0, mode="sum")

    held = {"dynamic": ({0: "i", 1: "j"}, FREE), "others": ((PLACES[:, :1], floats(8, 2)),)}
    return [
        Record("renorm", lambda x: (torch.renorm(x, 2, 0, 1.5), torch.renorm(x, 1, -1, 2)), (ROWS,)),
        Record("renorm of half", lambda x: torch.renorm(x, 2, 1, 0.5), (ROWS.half(),)),
        Record("renorm of double", lambda x: torch.renorm(x, 3, 1, 0.5), (ROWS.double(),)),
        Resized(
            "renorm of any size", lambda x: torch.renorm(x, 2, 1, 0.5), (ROWS,), dynamic=(FREE,), others=FEW
        ),
        Record("embedding of limited norm", looked_up, (PLACES, TABLE), EVERYWHERE),
        Resized("embedding of limited norm, any size", looked_up, (PLACES, TABLE), **held),
    ]


@parametrized([*_distances(), *_limits()])
def test_agrees_with_eager(record: Record) -> None:
    check_sizes(record)


def test_renormalized_table_is_an_output_on_request() -> None:
    module = torch.nn.Embedding(6, 3, max_norm=0.7).eval()
    before = module.weight.detach().clone()
    program = opsetta.export(module, (PLACES,), opset=HIGHEST, mutations="outputs")
    program.verify((PLACES,))
    assert torch.equal(module.weight, before)
    assert len(program.model_proto.graph.output) == 2
