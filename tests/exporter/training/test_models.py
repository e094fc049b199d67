"""Training on onnxruntime follows torch.optim: gradients, losses, parameters, buffers and state."""

import copy

import numpy as np
import pytest
import torch

import opsetta
from tests.opsets import checked, is_full_run

from .models import CASES, Case

OPTIMIZERS = {
    "sgd": {"lr": 0.125, "momentum": 0.9},
    "adam": {"lr": 2.0**-8},
}
OPSETS = (13, 18, 21) if is_full_run() else (18,)
STEPS = 10


def relative(found: np.ndarray, due: np.ndarray) -> float:
    """The largest difference relative to the largest number."""
    return float(np.abs(found - due).max() / (np.abs(due).max() + 1e-12))


def batches(case: Case) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(case.inputs(4), case.targets(4)) for _ in range(STEPS)]


def trained(case: Case, name: str) -> tuple[torch.nn.Module, torch.optim.Optimizer, list[float], dict]:
    """The model after some steps in PyTorch, the losses, and the gradients of the first step."""
    model = case.model()
    kind = torch.optim.SGD if name == "sgd" else torch.optim.Adam
    optimizer = kind(model.parameters(), **OPTIMIZERS[name])
    losses, first = [], {}
    for inputs, targets in batches(case):
        optimizer.zero_grad()
        loss = case.loss(model(inputs), targets)
        loss.backward()
        first = first or {key: item.grad.numpy().copy() for key, item in model.named_parameters()}
        optimizer.step()
        losses.append(float(loss.detach()))
    return model, optimizer, losses, first


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        pytest.param(case, optimizer, id=f"{case.name}-{optimizer}")
        for index, case in enumerate(CASES)
        for optimizer in sorted(OPTIMIZERS, reverse=index % 2 > 0)
    ],
)
def test_ten_steps_follow_torch(case, optimizer):
    model, state, losses, first = trained(case, optimizer)
    begun = case.model()
    before = copy.deepcopy(begun.state_dict())
    [inputs, targets], *_ = batches(case)
    program = opsetta.export_training(
        begun,
        (inputs,),
        targets,
        loss=case.loss,
        optimizer=optimizer,
        hyperparameters=OPTIMIZERS[optimizer],
        gradients=True,
        opset=OPSETS[0],
    )
    assert all(torch.equal(item, before[key]) for key, item in begun.state_dict().items())
    for opset in OPSETS:
        session = opsetta.TrainingSession(checked(program.lower(opset), opset))
        found = []
        for number, batch in enumerate(batches(case)):
            found.append(session.step(*batch))
            if number == 0:
                gradients = {key: session.outputs[f"{key}.grad"] for key in first}
                assert {key: relative(gradients[key], due) for key, due in first.items()} == pytest.approx(
                    dict.fromkeys(first, 0.0), abs=1e-5
                )
        assert found == pytest.approx(losses, rel=1e-4)
        final = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        assert set(session.parameters()) == set(final)
        for name, item in final.items():
            due = item.detach().numpy()
            np.testing.assert_allclose(session.state[name], due, rtol=1e-3, atol=2e-5, err_msg=name)
        for name, parameter in model.named_parameters():
            for key, item in state.state[parameter].items():
                here = session.state["step" if key == "step" else f"{name}.{key}"]
                np.testing.assert_allclose(here, item.numpy(), rtol=1e-2, atol=1e-5, err_msg=f"{name}.{key}")


@pytest.mark.parametrize("case", CASES if is_full_run() else CASES[:2], ids=lambda case: case.name)
def test_batch_may_be_dynamic(case):
    torch.manual_seed(1)
    program = opsetta.export_training(
        case.model(),
        (case.inputs(4),),
        case.targets(4),
        loss=case.loss,
        opset=18,
        dynamic_shapes=case.dynamic,
    )
    assert set(program.dimensions) == {"batch"}
    for size in (4, 7) if case.name == "cnn" else (1, 4, 7):
        program.verify((case.inputs(size),), {"targets": case.targets(size)}, rtol=1e-4, atol=1e-5)
