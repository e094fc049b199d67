"""Loops over a dynamic size in the style of public code: scans, decoders, audio, conditional fields."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .loop_models import Cells


class Layers(nn.Module):
    """Layers that the models share. Inputs are `(batch, time, 4)`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru = nn.GRUCell(4, 4)
        self.lstm = nn.LSTMCell(4, 4)
        self.embedding = nn.Embedding(9, 4)
        self.projection = nn.Linear(4, 9)
        self.query = nn.Linear(4, 4)
        self.transitions = nn.Parameter(torch.randn(4, 4))
        self.decay = nn.Parameter(torch.rand(4))


class GreedyDecoder(Layers):
    """Each step reads the token of the step before."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = torch.zeros(x.shape[0], dtype=torch.long)
        hidden, outputs = x.mean(1), []
        for _ in range(x.shape[1]):
            hidden = self.gru(self.embedding(tokens), hidden)
            logits = self.projection(hidden)
            tokens = logits.argmax(-1)
            outputs.append(logits)
        return torch.stack(outputs, 1), tokens


class BeamSearch(Layers):
    """Steps of a beam search, with back pointers."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch = x.shape[0]
        scores = torch.tensor([0.0, -50.0]).expand(batch, 2)
        tokens, back = torch.zeros(batch, 2, dtype=torch.long), []
        for t in range(x.shape[1]):
            logits = self.projection(self.embedding(tokens) + x[:, t].unsqueeze(1))
            totals = scores.unsqueeze(-1) + torch.log_softmax(logits, -1)
            scores, best = totals.flatten(1).topk(2, -1)
            tokens = best % 9
            back.append(torch.div(best, 9, rounding_mode="floor"))
        return scores, tokens, torch.stack(back, 1)


class ViterbiDecoder(Layers):
    """The best path, which a second loop follows through the back pointers of the first one."""

    def forward(self, x: Tensor) -> Tensor:
        scores, pointers = x[:, 0], []
        for t in range(1, x.shape[1]):
            best_scores, best = (scores.unsqueeze(2) + self.transitions).max(1)
            scores = best_scores + x[:, t]
            pointers.append(best)
        tags = scores.argmax(1)
        path = [tags]
        for pointer in reversed(pointers):
            tags = pointer.gather(1, tags.unsqueeze(1)).squeeze(1)
            path.append(tags)
        path.reverse()
        return torch.stack(path, 1)


class FieldNormalizer(Layers):
    """The partition function of a conditional random field over padded sequences."""

    def forward(self, x: Tensor) -> Tensor:
        mask = x[:, :, 0] > -0.5
        scores = x[:, 0]
        for i in range(1, x.size(1)):
            next_scores = torch.logsumexp(scores.unsqueeze(2) + self.transitions + x[:, i].unsqueeze(1), 1)
            scores = torch.where(mask[:, i].unsqueeze(1), next_scores, scores)
        return torch.logsumexp(scores, 1)


class FieldScore(Layers):
    """The score of given tags in a conditional random field."""

    def forward(self, x: Tensor) -> Tensor:
        tags = x.argmax(-1)
        score = x[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for i in range(1, x.size(1)):
            score = score + self.transitions[tags[:, i - 1], tags[:, i]]
            score += x[:, i].gather(1, tags[:, i : i + 1]).squeeze(1)
        return score


class AlignmentLoss(Layers):
    """Forward variables of connectionist temporal classification."""

    def forward(self, x: Tensor) -> Tensor:
        log_probabilities = x.log_softmax(-1)
        alpha = log_probabilities[:, 0]
        for t in range(1, x.shape[1]):
            shifted = F.pad(alpha[:, :-1], (1, 0), value=-1e9)
            alpha = torch.logaddexp(alpha, shifted) + log_probabilities[:, t]
        return alpha[:, -1]


class AttentionDecoder(Layers):
    """Additive attention over all positions in each step."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = cell = x.new_zeros(x.shape[0], 4)
        outputs = []
        for t in range(x.shape[1]):
            energies = torch.tanh(self.query(hidden).unsqueeze(1) + x).sum(-1)
            context = torch.bmm(torch.softmax(energies, -1).unsqueeze(1), x).squeeze(1)
            hidden, cell = self.lstm(context + x[:, t], (hidden, cell))
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)


class WindowedAudio(Layers):
    """The energy of overlapping windows."""

    def forward(self, x: Tensor) -> Tensor:
        windows = []
        for start in range(0, x.shape[1] - 2, 2):
            windows.append(x[:, start : start + 3].flatten(1).square().mean(1))
        return torch.stack(windows, 1)


class OverlapAdd(Layers):
    def forward(self, x: Tensor) -> Tensor:
        signal = x.new_zeros(x.shape[0], x.shape[1] + 3)
        for frame in range(x.shape[1]):
            signal[:, frame : frame + 4] += x[:, frame]
        return signal


class EnergyNormalization(Layers):
    """Per-channel energy normalization of a spectrogram, whose smoothing begins with the first frame."""

    def forward(self, x: Tensor) -> Tensor:
        energy, smooth = x.abs(), []
        for frame in energy.unbind(1):
            smooth.append(frame if not smooth else 0.9 * smooth[-1] + 0.1 * frame)
        return energy / (torch.stack(smooth, 1) + 1e-3)


class RecursiveFilter(Layers):
    """A filter with a recursive part of first order, over delayed inputs."""

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 2, 0))
        output, outputs = x.new_zeros(x.shape[0], 4), []
        for n in range(x.shape[1]):
            sample = padded[:, n + 2] + 0.5 * padded[:, n + 1] + 0.2 * padded[:, n]
            output = sample - 0.4 * output
            outputs.append(output)
        return torch.stack(outputs, 1)


class SelectiveScan(Layers):
    """The reference of Mamba's selective scan."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, channels = x.shape
        delta = F.softplus(x)
        decays = torch.exp(torch.einsum("bld,dn->bldn", delta, -self.transitions.abs()))
        inputs = torch.einsum("bld,bln->bldn", delta * x, x)
        state, outputs = x.new_zeros(batch, channels, 4), []
        for i in range(length):
            state = decays[:, i] * state + inputs[:, i]
            outputs.append(torch.einsum("bdn,bn->bd", state, x[:, i]))
        return torch.stack(outputs, 1) + x * self.decay, state


class WeightedKeys(Layers):
    """RWKV's attention, with the running maximum of the exponents."""

    def forward(self, x: Tensor) -> Tensor:
        numerator = denominator = torch.zeros_like(x[:, 0])
        maximum = torch.full_like(x[:, 0], -1e38)
        output = torch.zeros_like(x)
        for t in range(x.size(1)):
            key, value = x[:, t], x[:, t] * 2
            top = torch.maximum(maximum, key + self.decay)
            old, new = torch.exp(maximum - top), torch.exp(key + self.decay - top)
            output[:, t] = (old * numerator + new * value) / (old * denominator + new)
            maximum_of_state = torch.maximum(maximum - self.decay.exp(), key)
            old = torch.exp(maximum - self.decay.exp() - maximum_of_state)
            new = torch.exp(key - maximum_of_state)
            numerator, denominator = old * numerator + new * value, old * denominator + new
            maximum = maximum_of_state
        return output


class DeltaRule(Layers):
    """The recurrence of a gated delta rule, with its state."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x.new_zeros(x.shape[0], 4, 4)
        outputs = torch.zeros_like(x)
        for i in range(x.shape[1]):
            key = F.normalize(x[:, i], dim=-1)
            state = state * torch.sigmoid(self.decay)
            difference = (x[:, i] - (state * key.unsqueeze(-1)).sum(-2)) * 0.5
            state = state + key.unsqueeze(-1) * difference.unsqueeze(-2)
            outputs[:, i] = (state * x[:, i].unsqueeze(-1)).sum(-2)
        return outputs, state


class Advantages(Layers):
    """Generalized advantage estimation, from the last step to the first one."""

    def forward(self, x: Tensor) -> Tensor:
        rewards, values, continues = x[:, :, 0], x[:, :, 1], (x[:, :, 2] > 0).float()
        advantage, advantages = torch.zeros_like(rewards[:, 0]), []
        following = torch.zeros_like(advantage)
        for t in reversed(range(x.shape[1])):
            delta = rewards[:, t] + 0.99 * following * continues[:, t] - values[:, t]
            advantage = delta + 0.95 * continues[:, t] * advantage
            following = values[:, t]
            advantages.append(advantage)
        return torch.stack(advantages[::-1], 1)


class KalmanFilter(Layers):
    """A filter of constant speed with a measured position."""

    def forward(self, x: Tensor) -> Tensor:
        motion = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
        mean = x.new_zeros(x.shape[0], 2)
        covariance = torch.eye(2).expand(x.shape[0], 2, 2)
        means = []
        for measured in x[:, :, 0].unbind(1):
            mean, covariance = mean @ motion.T, motion @ covariance @ motion.T + 0.1 * torch.eye(2)
            gain = covariance[:, :, 0] / (covariance[:, 0, 0] + 0.5).unsqueeze(1)
            mean = mean + gain * (measured - mean[:, 0]).unsqueeze(1)
            covariance = covariance - gain.unsqueeze(2) * covariance[:, :1]
            means.append(mean)
        return torch.stack(means, 1)


class PaddedSequences(Layers):
    """A recurrent layer that keeps the state of sequences that have ended, in a dict."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lengths = (x[:, :, 0] > -1).sum(1)
        state, outputs = {"hidden": x.new_zeros(x.shape[0], 4)}, []
        for step, row in enumerate(x.unbind(1)):
            is_valid = (step < lengths).unsqueeze(1)
            state["hidden"] = torch.where(is_valid, self.gru(row, state["hidden"]), state["hidden"])
            outputs.append(state["hidden"])
        return torch.stack(outputs, 1), state["hidden"]


class RunLengths(Layers):
    """How many frames in a row have been loud."""

    def forward(self, x: Tensor) -> Tensor:
        count = torch.zeros(x.shape[0], dtype=torch.long)
        counts = torch.zeros(x.shape[0], x.shape[1], dtype=torch.long)
        for t in range(x.shape[1]):
            count = torch.where(x[:, t].sum(-1) > 0, count + 1, torch.zeros_like(count))
            counts[:, t] = count
        return counts


class Trajectory(Layers):
    """A neural differential equation, with Runge-Kutta steps of fourth order."""

    def slope(self, time: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(self.query(y)) * self.decay + time

    def forward(self, x: Tensor) -> Tensor:
        y, times = x[:, 0], x[0, :, 0].cumsum(0)
        states = [y]
        for before, after in zip(times[:-1], times[1:]):  # noqa: B905, RUF007
            step = after - before
            first = self.slope(before, y)
            second = self.slope(before + step / 2, y + step / 2 * first)
            third = self.slope(before + step / 2, y + step / 2 * second)
            y = y + step / 6 * (first + 2 * second + 2 * third + self.slope(after, y + step * third))
            states.append(y)
        return torch.stack(states, 1)


class CollapsedLabels(Layers):
    """The labels of a CTC decoder, without blanks and repetitions, and how many there are."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best = self.projection(x).argmax(-1)
        previous = count = torch.zeros_like(best[:, 0])
        labels = torch.zeros_like(best)
        for t in range(x.shape[1]):
            is_new = (best[:, t] != 0) & (best[:, t] != previous)
            labels[:, t] = torch.where(is_new, best[:, t], 0)
            count = count + is_new.long()
            previous = best[:, t]
        return labels, count


class SumOfSteps(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return sum([self.query(x[:, t]) for t in range(x.shape[1])]) / x.shape[1]


class SecondPass(Layers):
    """Passes over the results of another loop, together with the inputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden, states = x.new_zeros(x.shape[0], 4), []
        for t in range(x.shape[1]):
            hidden = self.gru(x[:, t], hidden)
            states.append(hidden)
        outputs, total = [], torch.zeros_like(hidden)
        for state, row in zip(states, x.unbind(1), strict=True):
            total = total * 0.5 + state * row
            outputs.append(total)
        weighted = [state * (index + 1) for index, state in enumerate(states)]
        return torch.stack(outputs, 1), torch.stack(weighted, 1)


class While(Cells):
    def forward(self, x: Tensor) -> Tensor:
        t, total = 0, x[:, 0]
        while t < x.shape[1]:
            total = total * 0.5 + x[:, t]
            t += 1
        return total / t


class WhileSteps(Cells):
    def forward(self, x: Tensor) -> Tensor:
        start, pieces = 0, []
        while start + 2 <= x.shape[1]:
            pieces.append(x[:, start : start + 2].mean(1))
            start += 2
        return torch.stack(pieces, 1)


class WhileInside(Cells):
    """Counts down, and up from the counter in an inner loop, and tells the first iteration from others."""

    def forward(self, x: Tensor) -> Tensor:
        total, last = x[:, 0] * 0, x.shape[1] - 1
        while last >= 0:
            first = last + 1
            while first < len(x[0]):
                total = total * 0.7 + x[:, first] * x[:, last]
                first += 1
            last = last - 1
        return total


class WhileDoubles(Cells):
    def forward(self, x: Tensor) -> Tensor:
        t = 1
        while t < x.shape[1]:
            x = x + x.roll(t, 1)
            t *= 2
        return x


class WhileSkips(Cells):
    def forward(self, x: Tensor) -> Tensor:
        t, total = 0, x[:, 0]
        while t < x.shape[1]:
            total = total + x[:, t]
            if t == 0:
                t += 1
            t += 1
        return total


class NestedRows(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for b in range(x.shape[0]):
            hidden = x.new_zeros(1, 5)
            for t in range(x.shape[1]):
                hidden = self.gru(x[b, t : t + 1], hidden)
            rows.append(hidden[0])
        return torch.stack(rows)


class Blocks(Cells):
    """The last block may be shorter."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state, outputs = x.new_zeros(x.shape[0], 4), []
        for block in x.split(2, dim=1):
            state = state + block.sum(1)
            outputs.append(state)
        for number, (block, other) in enumerate(zip(torch.split(x, 3, 1), x.split(3, dim=1), strict=True)):
            state = state + block.amax(1) * number - other.mean(1)
        return torch.stack(outputs, 1), torch.stack([block.sum(1) for block in x.split(5, 1)]) + state


PUBLIC = [
    Blocks,
    GreedyDecoder,
    BeamSearch,
    ViterbiDecoder,
    FieldNormalizer,
    FieldScore,
    AlignmentLoss,
    AttentionDecoder,
    WindowedAudio,
    OverlapAdd,
    EnergyNormalization,
    RecursiveFilter,
    SelectiveScan,
    WeightedKeys,
    DeltaRule,
    Advantages,
    KalmanFilter,
    PaddedSequences,
    RunLengths,
    Trajectory,
    CollapsedLabels,
    SumOfSteps,
    SecondPass,
    NestedRows,
    While,
    WhileSteps,
    WhileInside,
]


class BreakAtSize(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total = x[:, 0]
        for t in range(100):
            if t >= x.shape[1]:
                break
            total = total + x[:, t]
        return total


class EarlyReturn(Cells):
    def forward(self, x: Tensor) -> Tensor:
        for t in range(x.shape[1]):
            if t == 2:
                return x[:, t]
        return x[:, 0]


class ReturnsList(Cells):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x[:, t] * 2 for t in range(x.shape[1])]


class OverList(Cells):
    """Iterates over a plain list, of which Python sees the recorded members only."""

    def forward(self, x: Tensor) -> Tensor:
        rows = [x[:, t] * 2 for t in range(x.shape[1])]
        total = x[:, 0]
        for row in rows:
            total = total * 0.5 + row
        return total


class GrowingCache(Cells):
    def forward(self, x: Tensor) -> Tensor:
        keys, outputs = [], []
        for t in range(x.shape[1]):
            keys.append(x[:, t])
            outputs.append(torch.softmax(torch.stack(keys, 1) @ x[:, t].unsqueeze(-1), 1).sum(1))
        return torch.stack(outputs, 1)


class SecondOrder(Cells):
    """A state from two iterations before."""

    def forward(self, x: Tensor) -> Tensor:
        first = second = x.new_zeros(x.shape[0], 4)
        outputs = []
        for n in range(x.shape[1]):
            first, second = x[:, n] - 0.4 * first + 0.1 * second, first
            outputs.append(first)
        return torch.stack(outputs, 1)


REFUSED = {
    WhileDoubles: "valid for time >= 5",
    WhileSkips: "does not add 1 to 't'",
    BreakAtSize: "if t >= x.shape",
    EarlyReturn: "ends early",
    ReturnsList: "of one iteration",
    OverList: "of one iteration",
    GrowingCache: "does not repeat",
    SecondOrder: "does not repeat",
}
