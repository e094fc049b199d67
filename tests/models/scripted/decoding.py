"""Decoders: greedy and beam search, with early ends."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: SIM108

import torch
from torch import Tensor, nn

from .records import Record, scripted

RECORDS: list[Record] = []

torch.manual_seed(0)
_TABLE = torch.randn(6, 6)


@scripted(
    RECORDS,
    _TABLE,
    torch.tensor(2),
    5,
    further=[
        (_TABLE * -1, torch.tensor(0), 9),
        (_TABLE.roll(1, 0), torch.tensor(5), 1),
        (torch.eye(6), torch.tensor(3), 12),
    ],
)
def greedy_until_end(logits: Tensor, start: Tensor, limit: int):
    tokens = [start]
    finished = False
    while len(tokens) < limit and not finished:
        token = logits[tokens[-1]].argmax(-1)
        tokens.append(token)
        if int(token) == 1:
            finished = True
    return torch.stack(tokens), finished, len(tokens)


@scripted(RECORDS, _TABLE, 3, further=[(_TABLE * 3, 1), (_TABLE.flip(0), 8), (-_TABLE, 6)])
def beam_search(table: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    width = 2
    scores = torch.full([width], -1e9)
    scores[0] = 0.0
    sequences = torch.zeros([width, 1], dtype=torch.long)
    done = torch.zeros([width], dtype=torch.bool)
    finished = torch.full([1, table.size(1)], -1e9)
    finished[0, 3] = 0.0
    for _ in range(steps):
        step = table[sequences[:, -1]].log_softmax(-1)
        step = torch.where(done.unsqueeze(1), finished, step)
        total = (scores.unsqueeze(1) + step).flatten()
        scores, position = total.topk(width)
        beam = position // table.size(1)
        token = position % table.size(1)
        sequences = torch.cat([sequences[beam], token.unsqueeze(1)], 1)
        done = done[beam] | (token == 3)
        if bool(done.all()):
            break
    return sequences, scores


@scripted(RECORDS, _TABLE, 3, further=[(_TABLE * 3, 1), (_TABLE.flip(0), 7), (-_TABLE, 0)])
def beam_search_in_lists(table: Tensor, steps: int):
    """Each hypothesis is a row; its score a Python float."""
    tokens: list[int] = [0, 1]
    scores: list[float] = [0.0, -0.5]
    for _ in range(steps):
        best = 0
        for i in range(len(scores)):
            if scores[i] > scores[best]:
                best = i
        row = table[tokens[best]]
        value, index = row.max(0)
        tokens[1 - best] = int(index)
        scores[best] += float(value)
        scores[1 - best] = scores[best] - 0.25 * float(value.abs())
    return torch.tensor(tokens), torch.tensor(scores)


class Seq2Seq(nn.Module):
    """A GRU encoder and a greedy decoder with attention that stops at the end token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(7, 8)
        self.encoder = nn.GRU(8, 8)
        self.cell = nn.GRUCell(16, 8)
        self.output = nn.Linear(8, 7)
        self.end = 2

    def attend(self, state: Tensor, memory: Tensor) -> Tensor:
        weights = torch.einsum("bh,tbh->tb", state, memory).softmax(0)
        return (weights.unsqueeze(-1) * memory).sum(0)

    def forward(self, source: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        memory, last = self.encoder(self.embedding(source))
        state = last[0]
        token = torch.zeros([source.size(1)], dtype=torch.long)
        alive = torch.ones([source.size(1)], dtype=torch.bool)
        tokens = torch.jit.annotate(list[Tensor], [])
        for _ in range(limit):
            given = torch.cat([self.embedding(token), self.attend(state, memory)], -1)
            state = self.cell(given, state)
            token = self.output(state).argmax(-1)
            token = torch.where(alive, token, torch.full_like(token, self.end))
            tokens.append(token)
            alive = alive & (token != self.end)
            if not bool(alive.any()):
                break
        return torch.stack(tokens, 1), state


RECORDS.append(
    Record(
        "seq2seq",
        Seq2Seq().eval(),
        (torch.randint(0, 7, [4, 2]), 5),
        [
            (torch.randint(0, 7, [9, 2]), 3),
            (torch.randint(0, 7, [1, 2]), 8),
            (torch.randint(0, 7, [3, 2]), 1),
        ],
        dynamic={"source": {0: "time"}},
    )
)
RECORDS.append(
    Record(
        "seq2seq_any_batch",
        Seq2Seq().eval(),
        (torch.randint(0, 7, [4, 2]), 5),
        [(torch.randint(0, 7, [9, 3]), 3), (torch.randint(0, 7, [1, 1]), 8)],
        dynamic={"source": {0: "time", 1: "batch"}},
    )
)


@scripted(RECORDS, torch.randn(3, 5), 4, further=[(torch.randn(3, 5), 7), (torch.randn(3, 5), 0)])
def key_value_cache(x: Tensor, steps: int):
    """A cache that is empty at first and grows by one each step."""
    cache: Tensor | None = None
    for _ in range(steps):
        if cache is None:
            cache = x.unsqueeze(1)
        else:
            cache = torch.cat([cache, x.unsqueeze(1)], 1)
        x = torch.tanh(x + cache.mean(1))
    if cache is not None:
        return x, cache.sum(1)
    return x, x


@scripted(RECORDS, torch.randn(2, 5), 4, further=[(torch.randn(2, 5), 7), (torch.randn(2, 5), 1)])
def state_in_a_dict(x: Tensor, steps: int):
    state: dict[str, Tensor] = {"hidden": x, "total": torch.zeros_like(x)}
    for i in range(steps):
        state["hidden"] = torch.sin(state["hidden"] * 2 + i)
        state["total"] = state["total"] + state["hidden"]
        if bool(state["total"].abs().max() > 1.5):
            break
    return state["hidden"], state["total"]
