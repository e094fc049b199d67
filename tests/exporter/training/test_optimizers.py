"""The update of each optimizer, clipping and accumulation: 20 steps follow PyTorch."""

import functools

import numpy as np
import pytest
import torch
from torch import nn, optim

import opsetta
from opsetta.exporter.training.lion import Lion
from tests.opsets import HIGHEST, checked, is_full_run

LOWEST = opsetta.MINIMUM_OPSET
# Where operators of the updates change: Where at 9, Clip at 11 and 12, reductions at 13 and 18.
OPSETS = (LOWEST, 9, 11, 12, 13, 18, HIGHEST) if is_full_run() else (LOWEST, HIGHEST)
STEPS = 20
BATCHES = [
    (torch.randn(6, 3, generator=generator), torch.randn(6, 2, generator=generator))
    for generator in [torch.Generator().manual_seed(0)]
    for _ in range(STEPS)
]
OPTIMIZERS = {
    "sgd": (optim.SGD, {"momentum": 0.9, "maximize": True, "lr": 2.0**-10}),
    "adam": (optim.Adam, {"weight_decay": 0.1}),
    "adam-amsgrad": (optim.Adam, {"amsgrad": True, "betas": (0.5, 0.6)}),
    "adamw-amsgrad": (optim.AdamW, {"amsgrad": True, "maximize": True}),
    "adamax": (optim.Adamax, {"weight_decay": 0.1}),
    "nadam": (optim.NAdam, {"weight_decay": 0.1}),
    "nadam-decoupled": (optim.NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    # The rectification begins after five steps, or with the first one.
    "radam": (optim.RAdam, {"weight_decay": 0.1}),
    "radam-decoupled": (
        optim.RAdam,
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.8, 0.9)},
    ),
    "rmsprop": (optim.RMSprop, {"weight_decay": 0.1}),
    "rmsprop-centered": (optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "adagrad": (optim.Adagrad, {}),
    "adagrad-decay": (
        optim.Adagrad,
        {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
    "adadelta": (optim.Adadelta, {"weight_decay": 0.1, "lr": 1.0}),
    # The average of the parameters begins after five steps.
    "asgd": (optim.ASGD, {"weight_decay": 0.1, "t0": 5, "lambd": 0.25}),
    "rprop": (optim.Rprop, {"etas": (0.25, 1.5), "step_sizes": (1e-6, 0.125)}),
    "adafactor": (optim.Adafactor, {"weight_decay": 0.1}),
    "adafactor-eps": (optim.Adafactor, {"eps": (1e-10, 0.5), "d": 1.5, "maximize": True}),
    "lion": (Lion, {"weight_decay": 0.1}),
}


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype).train()


def make_optimizer(name: str, model: nn.Module) -> optim.Optimizer:
    optimizer_class, options = OPTIMIZERS[name]
    return optimizer_class(model.parameters(), **{"lr": 2.0**-6, **options})


def exported(model: nn.Module, **options) -> opsetta.TrainingProgram:
    inputs, targets = (item.to(model[0].weight.dtype) for item in BATCHES[0])
    return opsetta.export_training(model, (inputs,), targets, loss=nn.MSELoss(), **options)


def train(model: nn.Module, optimizer: optim.Optimizer, change=lambda model: None, every: int = 1) -> None:
    """Train in PyTorch on all batches; change the gradients before each update."""
    dtype = model[0].weight.dtype
    for number, (inputs, targets) in enumerate(BATCHES):
        nn.functional.mse_loss(model(inputs.to(dtype)), targets.to(dtype)).backward()
        if number % every == every - 1:
            change(model)
            optimizer.step()
            optimizer.zero_grad()


def expected_state(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, torch.Tensor]:
    """The parameters and the state of the optimizer by the names of a training graph."""
    state = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        for key, item in optimizer.state[parameter].items():
            state["step" if key == "step" else f"{name}.{key}"] = item
    return state


def run(program: opsetta.TrainingProgram, opset: int, every: int = 1) -> dict[str, np.ndarray]:
    """Train in onnxruntime on all batches; return the state."""
    session = opsetta.TrainingSession(checked(program.lower(opset), opset))
    dtype = program.state["0.weight"].dtype
    for number, (inputs, targets) in enumerate(BATCHES):
        step = functools.partial(session.step, inputs.numpy().astype(dtype), targets.numpy().astype(dtype))
        assert np.isfinite(step(apply_update=False) if number % every < every - 1 else step())
    return session.state


def check(state: dict[str, np.ndarray], expected: dict[str, torch.Tensor], tolerance: float = 1e-6) -> None:
    for name in state:
        if not name.endswith("accumulated"):
            np.testing.assert_allclose(
                state[name], expected[name].numpy(), rtol=tolerance, atol=tolerance, err_msg=name
            )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_20_steps_follow_torch(name):
    model = network()
    optimizer = make_optimizer(name, model)
    program = exported(model, optimizer=optimizer, opset=OPSETS[0])
    train(model, optimizer)
    for opset in OPSETS:
        check(run(program, opset), expected_state(model, optimizer))


def test_every_rule_follows_torch():
    for name in OPTIMIZERS:
        model = network()
        optimizer = make_optimizer(name, model)
        program = exported(model, optimizer=optimizer, opset=18)
        train(model, optimizer)
        check(run(program, 18), expected_state(model, optimizer))


@pytest.mark.parametrize("name", OPTIMIZERS if is_full_run() else ("asgd", "nadam", "adafactor"))
def test_float32_follows_torch_and_continues_from_a_state(name):
    model = network(torch.float32)
    optimizer = make_optimizer(name, model)
    train(model, optimizer)
    program = exported(model, optimizer=optimizer, opset=18)
    program.verify(steps=2)
    train(model, optimizer)
    check(run(program, 18), expected_state(model, optimizer), 1e-4)


@pytest.mark.parametrize("name", ["rmsprop", "lion"])
def test_an_optimizer_may_be_a_name(name):
    program = exported(network(), optimizer=name, hyperparameters={"lr": 0.25})
    assert program.signature.learning_rates == {"lr": 0.25}
    program.verify(steps=3)


CLIPPING = {
    "value": ({"clip_value": 0.125}, lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.125)),
    "norm": ({"clip_norm": 0.25}, lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.25)),
    "norm-inf": (
        {"clip_norm": (0.25, float("inf"))},
        lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.25, float("inf")),
    ),
    "norm-1": ({"clip_norm": (8.0, 1)}, lambda model: nn.utils.clip_grad_norm_(model.parameters(), 8.0, 1.0)),
}


@pytest.mark.parametrize("name", CLIPPING)
def test_clipped_gradients_follow_torch(name):
    options, clip = CLIPPING[name]
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    program = exported(model, optimizer=optimizer, opset=OPSETS[0], gradients=True, **options)
    program.verify(steps=2)
    train(model, optimizer, clip)
    for opset in OPSETS:
        check(run(program, opset), expected_state(model, optimizer))


def test_gradients_of_several_steps_are_added_up():
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=2.0**-6)
    program = exported(model, optimizer=optimizer, opset=OPSETS[0], accumulate=True, clip_norm=0.5)
    assert program.signature.apply_update == "apply_update"
    program.verify(steps=2)
    train(model, optimizer, lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.5), every=3)
    for opset in OPSETS:
        state = run(program, opset, every=3)
        check(state, expected_state(model, optimizer))
        # The last two steps added up gradients that no update has applied yet.
        for name, parameter in model.named_parameters():
            np.testing.assert_allclose(state[f"{name}.accumulated"], parameter.grad.numpy(), rtol=1e-6)


def test_a_schedule_of_torch_drives_the_learning_rate():
    model = network()
    optimizer = optim.NAdam(model.parameters(), lr=0.125)
    program = exported(model, optimizer=optimizer, opset=LOWEST)
    session = opsetta.TrainingSession(program)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for inputs, targets in BATCHES:
        inputs, targets = inputs.double(), targets.double()
        session.step(inputs, targets, learning_rate=scheduler.get_last_lr()[0])
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    check(session.state, expected_state(model, optimizer))


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter (LoRA), and another frozen layer before it."""

    def __init__(self):
        super().__init__()
        self.first, self.base = nn.Linear(3, 8), nn.Linear(8, 2)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.requires_grad_(False)
        self.down.requires_grad_(True)
        self.up.requires_grad_(True)

    def forward(self, x):
        x = self.first(x).tanh()
        return self.base(x) + 0.5 * self.up(self.down(x))


def test_adapters_are_trained_alone():
    torch.manual_seed(0)
    model = Adapted().train()
    program = opsetta.export_training(
        model, (BATCHES[0][0],), BATCHES[0][1], loss=nn.MSELoss(), optimizer="adamw", opset=LOWEST
    )
    assert program.signature.parameters == ("down.weight", "up.weight")
    assert {"first.weight", "base.weight"} <= set(program.model.graph.initializers)
    # A frozen layer before the adapter needs no gradient: three products forward, one for each adapter's
    # weight, and one for what lies between the adapters.
    products = [node.op_type for node in program.model.graph if node.op_type in ("Gemm", "MatMul")]
    assert len(products) == 4 + 3
    program.verify(steps=3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clip_value": 0.0}, "clip_value must be a positive number, not 0.0"),
        ({"clip_norm": "1"}, "clip_norm must be a positive number"),
        ({"clip_norm": (1.0, -1.0)}, "the order of the norm must be"),
        ({"clip_value": 1.0, "clip_norm": 1.0}, "exclude each other"),
        ({"clip_norm": 1.0, "optimizer": None}, "need an optimizer"),
        ({"accumulate": True, "optimizer": None}, "need an optimizer"),
    ],
)
def test_options_of_gradients_that_do_not_fit_are_refused(options, reason):
    with pytest.raises(opsetta.UsageError, match=reason):
        exported(network(), **options)


def test_a_graph_without_sums_applies_each_gradient():
    session = opsetta.TrainingSession(exported(network()))
    inputs, targets = (item.double() for item in BATCHES[0])
    with pytest.raises(opsetta.UsageError, match="accumulate=True"):
        session.step(inputs, targets, apply_update=False)


def test_a_class_with_the_name_of_torchs_is_refused():
    class Adam(optim.Adam):
        """Another update."""

    model = network()
    with pytest.raises(opsetta.UsageError, match="the update of Adam is not supported"):
        exported(model, optimizer=Adam(model.parameters()))


def test_a_cycled_momentum_gives_a_warning():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    optim.lr_scheduler.OneCycleLR(optimizer, 1.0, STEPS)
    with pytest.warns(UserWarning, match="cycles the momentum"):
        exported(model, optimizer=optimizer)
