"""Recurrent layers are trained on sequences of any length."""

import numpy as np
import pytest
import torch
from torch import nn

import opsetta
from tests.opsets import HIGHEST, checked, is_full_run

# Scan has another form before 9, and is a Loop at 7.
OPSETS = (7, 8, 9, 11, 13, 18, HIGHEST) if is_full_run() else (7, HIGHEST)
SIZES = ((2, 5), (4, 1), (3, 7), (1, 9))
LAYERS = {
    "lstm": (nn.LSTM, {"batch_first": True}),
    "lstm-projected": (nn.LSTM, {"bidirectional": True, "proj_size": 3}),
    "lstm-no-bias": (nn.LSTM, {"bias": False}),
    "gru": (nn.GRU, {"batch_first": True}),
    "gru-stacked": (nn.GRU, {"num_layers": 2, "bidirectional": True, "bias": False}),
    "rnn-tanh": (nn.RNN, {"batch_first": True}),
    "rnn-relu": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
}
# The plain layers are trained for 20 steps below.
SHORT = ("lstm-projected", "gru-stacked")


class Tagger(nn.Module):
    """A label for each token; the last state of the layer is used, too."""

    def __init__(self, layer: str):
        super().__init__()
        torch.manual_seed(0)
        layer_class, options = LAYERS[layer]
        self.embedding, self.layer = nn.Embedding(11, 4), layer_class(4, 6, **options)
        self.out = nn.LazyLinear(5)

    def forward(self, x):
        states, last = self.layer(self.embedding(x))
        last = last[1] if isinstance(last, tuple) else last
        return self.out(states).transpose(1, 2) + last.mean()


def batch(size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 11, (size, length)), torch.randint(0, 5, (size, length))


def exported(model: nn.Module, optimizer, **options) -> opsetta.TrainingProgram:
    inputs, targets = batch(3, 7)
    model(inputs)
    free = {0: "batch", 1: "time"}
    return opsetta.export_training(
        model,
        (inputs,),
        targets,
        loss=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        dynamic_shapes={"x": free, "targets": free},
        **options,
    )


@pytest.mark.parametrize("layer", LAYERS if is_full_run() else SHORT)
def test_gradients_follow_torch_at_other_lengths(layer):
    torch.manual_seed(1)
    program = exported(Tagger(layer).train(), "sgd", gradients=True, opset=OPSETS[0])
    assert set(program.dimensions) == {"batch", "time"}
    for opset in OPSETS:
        lowered = checked(program.lower(opset), opset)
        for size in SIZES if is_full_run() else SIZES[:2]:
            inputs, targets = batch(*size)
            lowered.verify((inputs,), {"targets": targets}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_20_steps_follow_torch(layer):
    torch.manual_seed(1)
    model = Tagger(layer).double().train()
    model(batch(1, 2)[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=2.0**-8)
    program = exported(model, optimizer, opset=HIGHEST)
    batches = [batch(*SIZES[number % len(SIZES)]) for number in range(20)]
    session = opsetta.TrainingSession(program)
    for inputs, targets in batches:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        assert session.step(inputs, targets) == pytest.approx(float(loss.detach()), rel=1e-6)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        expected = parameter.detach().numpy()
        np.testing.assert_allclose(session.state[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_a_fixed_length_has_no_scan():
    inputs, targets = batch(3, 4)
    model = Tagger("lstm").train()
    model(inputs)
    program = opsetta.export_training(
        model,
        (inputs,),
        targets,
        loss=nn.CrossEntropyLoss(),
        dynamic_shapes={"x": {0: "batch"}, "targets": {0: "batch"}},
    )
    assert "Scan" not in {node.op_type for node in program.model.graph}


def test_dropout_is_between_layers_of_any_length():
    torch.manual_seed(0)
    model = nn.LSTM(4, 6, num_layers=2, dropout=0.5, batch_first=True).train()
    program = opsetta.export_training(
        model,
        (torch.ones(2, 7, 4),),
        torch.ones(2, 7, 6),
        loss=lambda result, targets: nn.functional.mse_loss(result[0], targets),
        opset=13,
        dynamic_shapes={"input": {1: "time"}, "targets": {1: "time"}},
    )
    operators = [node.op_type for node in program.model.graph]
    assert operators.count("Scan") == 4
    assert operators.count("Dropout") == 1
    session = opsetta.TrainingSession(program)
    losses = {session.step(torch.ones(2, 5, 4), torch.ones(2, 5, 6), learning_rate=0.0) for _ in range(3)}
    assert len(losses) == 3
