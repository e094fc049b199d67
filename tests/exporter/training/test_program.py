"""Training programs: their names, options, plans, files and sessions."""

import contextlib
import functools
import itertools
import json

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import opsetta
from opsetta.exporter.command_line.cli import main

X, T = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 1, 0])


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).train()


def exported(model: nn.Module | None = None, **options) -> opsetta.TrainingProgram:
    given = {"loss": nn.CrossEntropyLoss(), "opset": 18, **options}
    return opsetta.export_training(two_layers() if model is None else model, (X,), T, **given)


@functools.cache
def momentum() -> opsetta.TrainingProgram:
    return exported(hyperparameters={"lr": 0.5, "momentum": 0.9})


def follow(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    """Train in PyTorch."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), T)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_inputs_and_outputs_have_the_names_of_the_model():
    program = momentum()
    parameters = ["0.weight", "0.bias", "2.weight", "2.bias"]
    buffers = [f"{name}.momentum_buffer" for name in parameters]
    inputs = [value.name for value in program.model.graph.inputs]
    assert sorted(inputs) == sorted(["input", "targets", "lr", *parameters, *buffers])
    assert inputs[:2] == ["input", "targets"]
    assert program.updates == {f"{name}.updated": name for name in (*parameters, *buffers)}
    assert program.output_names == ["loss", *program.updates]
    assert program.signature.learning_rates == {"lr": 0.5}
    assert not program.model.graph.initializers.keys() & set(parameters)


def test_results_and_gradients_are_outputs_on_request():
    program = exported(optimizer=None, results=True)
    assert program.output_names == [
        "loss", "output", "0.weight.grad", "0.bias.grad", "2.weight.grad", "2.bias.grad"
    ]  # fmt: skip
    assert set(program(X, targets=T)) == set(program.output_names)
    program.verify()


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1},
        {"lr": 0.1, "weight_decay": 0.1},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    ],
    ids=lambda options: "-".join(options),
)
def test_sgd_follows_torch(options):
    model = two_layers()
    session = opsetta.TrainingSession(exported(hyperparameters=options))
    due = follow(model, torch.optim.SGD(model.parameters(), **options))
    assert [session.step(X, T) for _ in due] == pytest.approx(due, rel=1e-5)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(session.state[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "optimizer",
    [
        functools.partial(torch.optim.Adam, lr=2.0**-7, betas=(0.8, 0.99), eps=1e-5, weight_decay=0.1),
        functools.partial(torch.optim.AdamW, lr=2.0**-7, weight_decay=0.25),
    ],
    ids=["adam", "adamw"],
)
def test_adam_follows_torch(optimizer):
    model = two_layers()
    session = opsetta.TrainingSession(exported(model, optimizer=optimizer(model.parameters())))
    due = follow(model, optimizer(model.parameters()), 5)
    assert [session.step(X, T) for _ in due] == pytest.approx(due, rel=1e-5)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(session.state[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_an_optimizer_continues_from_its_state():
    model = two_layers()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.0**-6)
    follow(model, optimizer)
    program = exported(model, optimizer=optimizer)
    assert float(program.state["step"]) == 3
    program.verify(steps=2)
    session = opsetta.TrainingSession(program)
    found = [session.step(X, T) for _ in range(3)]
    assert found == pytest.approx(follow(model, optimizer), rel=1e-5)
    assert float(program.state["step"]) == 3


def test_groups_have_learning_rates_of_their_own():
    model = two_layers()
    groups = [
        {"params": model[0].parameters(), "lr": 0.25},
        {"params": [model[2].weight], "weight_decay": 0.5},
    ]
    program = exported(model, optimizer=torch.optim.SGD(groups, lr=0.5))
    assert program.signature.learning_rates == {"lr_0": 0.25, "lr_1": 0.5}
    assert "2.bias" not in program.signature.parameters
    assert "2.bias" in program.model.graph.initializers
    program.verify(steps=2)
    session = opsetta.TrainingSession(program)
    before = session.parameters()
    session.step(X, T, learning_rate={"lr_0": 0.0})
    assert np.array_equal(session.state["0.weight"], before["0.weight"])
    assert not np.array_equal(session.state["2.weight"], before["2.weight"])


def test_frozen_parameters_stay_weights():
    model = two_layers()
    model[0].requires_grad_(False)
    program = exported(model)
    assert program.signature.parameters == ("2.weight", "2.bias")
    assert {"0.weight", "0.bias"} <= set(program.model.graph.initializers)
    program.verify(steps=2)


def test_tied_weights_are_one_input():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).relu())

    torch.manual_seed(0)
    program = exported(Tied(), hyperparameters={"lr": 0.1, "momentum": 0.5}, gradients=True)
    assert program.signature.parameters == ("first.weight", "first.bias", "second.bias")
    program.verify(steps=3)


def test_a_model_may_return_its_loss():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, labels):
            return nn.functional.cross_entropy(self.layer(x), labels)

    program = opsetta.export_training(Own().train(), (X, T), opset=18)
    assert program.signature.inputs == ("x", "labels")
    assert program.signature.targets == ()
    program.verify(steps=2)


def test_a_loss_module_may_have_parameters_of_its_own():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.register_buffer("weight", torch.tensor([1.0, 3.0]))

        def forward(self, logits, targets):
            return nn.functional.cross_entropy(logits * self.scale, targets, self.weight)

    program = exported(loss=Scaled(), optimizer=None)
    assert set(program.signature.gradients) == {"0.weight", "0.bias", "2.weight", "2.bias", "loss.scale"}
    program.verify()


def test_targets_may_be_nested():
    def loss(output, targets):
        return ((output - targets["mean"]) * targets["weight"]).square().mean()

    targets = {"mean": torch.randn(4, 2), "weight": torch.rand(4, 1)}
    program = opsetta.export_training(two_layers(), (X,), targets, loss=loss, opset=18)
    assert program.signature.targets == ("targets_mean", "targets_weight")
    program.verify()
    session = opsetta.TrainingSession(program)
    assert session.step(X, tuple(targets.values())) > 0


def test_batch_norm_in_inference_keeps_its_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).train()
    model[1].eval()
    program = exported(model)
    assert program.signature.buffers == ()
    assert {"1.running_mean", "1.running_var"} <= set(program.model.graph.initializers)
    program.verify(steps=2)


def test_batch_norm_of_what_needs_no_gradient():
    torch.manual_seed(0)
    exported(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).train()).verify(steps=2)


def test_no_gradient_passes_where_the_model_switches_gradients_off():
    class Stopped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x):
            with torch.no_grad():
                stopped = self.first(x).relu()
            return self.third(stopped + self.second(x).relu()) + self.second(x).detach()

    torch.manual_seed(0)
    program = exported(Stopped().train(), gradients=True)
    assert program.signature.parameters == ("second.weight", "second.bias", "third.weight", "third.bias")
    program.verify(steps=2)


def test_gradients_pass_through_branches_and_checkpoints():
    class Branched(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            h = checkpoint(lambda y: self.first(y).relu(), x, use_reentrant=False)
            return torch.cond(h.sum() > 0, lambda y: self.second(y) * 2.0, lambda y: self.second(y), (h,))

    torch.manual_seed(0)
    program = exported(Branched().train(), gradients=True)
    assert any(node.op_type == "If" for node in program.model.graph)
    program.verify(steps=2)


def test_dropout_drops_in_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5), nn.Linear(64, 2)).train()
    session = opsetta.TrainingSession(exported(model, gradients=True))
    session.step(X, T, learning_rate=0.0)
    weights = session.outputs["2.weight.grad"]
    first = session.step(X, T, learning_rate=0.0)
    assert first != session.step(X, T, learning_rate=0.0)
    assert not np.array_equal(weights, session.outputs["2.weight.grad"])


def test_lowering_again_keeps_the_signature():
    program = momentum()
    older = program.lower(9)
    assert older.opset == 9
    assert older.signature == program.signature
    older.verify(steps=2)


def test_a_file_has_what_a_session_needs(tmp_path):
    program = momentum()
    program.save(tmp_path / "train.onnx")
    np.savez(tmp_path / "state.npz", **program.state)
    onnx.checker.check_model(str(tmp_path / "train.onnx"), full_check=True)
    sessions = [
        opsetta.TrainingSession(program),
        opsetta.TrainingSession(tmp_path / "train.onnx", np.load(tmp_path / "state.npz")),
    ]
    losses = [[session.step(X, T) for _ in range(3)] for session in sessions]
    assert losses[0] == losses[1]
    opsetta.load(tmp_path / "train.onnx").lower(13).save(tmp_path / "train13.onnx")
    converted = opsetta.TrainingSession(tmp_path / "train13.onnx", program.state)
    assert [converted.step(X, T) for _ in range(3)] == pytest.approx(losses[0], rel=1e-6)
    model = two_layers()
    sessions[1].load_into(model)
    assert torch.equal(model[0].weight, torch.from_numpy(sessions[0].state["0.weight"]))
    with pytest.raises(opsetta.UsageError, match="no parameter or buffer '0.weight'"):
        sessions[1].load_into(nn.Linear(3, 2))


def test_sessions_refuse_what_does_not_fit(tmp_path):
    program = momentum()
    session = opsetta.TrainingSession(program)
    with pytest.raises(opsetta.UsageError, match="1 targets"):
        session.step(X)
    with pytest.raises(opsetta.UsageError, match="'targets' must have elements of int64, not float32"):
        session.step(X, T.float())
    with pytest.raises(opsetta.DimensionError, match=r"'input' must have the shape \[4, 3\]"):
        session.step(X[:, :2], T)
    with pytest.raises(opsetta.UsageError, match="no learning rate"):
        session.step(X, T, learning_rate={"rate": 0.1})
    program.save(tmp_path / "train.onnx")
    with pytest.raises(opsetta.UsageError, match=r"the array for input '0\.weight' is missing"):
        opsetta.TrainingSession(tmp_path / "train.onnx")


def test_a_plan_has_the_phases(tmp_path):
    program = momentum()
    plan = program.plan(mode="train")
    order = [node.phase for node in plan.nodes]
    assert order == [node.metadata_props["opsetta.plan.phase"] for node in program.model.graph]
    layers = [node.metadata_props.get("opsetta.module") for node in plan.model.graph]
    pairs = [(None, ""), *zip(layers, order, strict=True)]
    slots = [here for before, here in itertools.pairwise(pairs) if before != here]
    assert slots[-6:] == [
        ("2", "calc_gradient"),
        ("2", "calc_derivative"),
        ("2", "apply_gradient"),
        ("1", "calc_derivative"),
        ("0", "calc_gradient"),
        ("0", "apply_gradient"),
    ]
    feed = {**program.state, "input": X.numpy(), "targets": T.numpy(), "lr": np.float32(0.5)}
    found = dict(zip(program.output_names, opsetta.run_in_arena(plan, feed), strict=True))
    for name, due in program(X, targets=T).items():
        np.testing.assert_allclose(found[name], due, rtol=1e-5, atol=1e-6)
    program.save(tmp_path / "train.onnx")
    with contextlib.suppress(SystemExit):
        main(["plan", str(tmp_path / "train.onnx"), "--mode", "train", "-o", str(tmp_path / "plan")])
    saved = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert [node["phase"] for node in saved["nodes"]] == order


def test_a_model_without_phases_has_no_training_plan():
    program = opsetta.export(two_layers().eval(), (X,), opset=18)
    with pytest.raises(opsetta.PlanError, match="export_training"):
        program.plan(mode="train")
    with pytest.raises(opsetta.ModelFileError, match="not a training graph"):
        opsetta.exporter.training.Signature.from_metadata(program.model.metadata_props)


def test_what_has_no_meaning_for_a_training_graph_is_refused(tmp_path):
    with pytest.raises(opsetta.UsageError, match="mismatch"):
        momentum().locate_mismatch()
    with pytest.raises(opsetta.UsageError, match="source file"):
        momentum().save_source(tmp_path / "source.onnx")


def test_the_callers_grad_mode_does_not_matter_and_stays():
    with torch.no_grad():
        exported().verify()
        assert not torch.is_grad_enabled()


def test_the_same_training_gives_the_same_bytes():
    files = [exported(gradients=True).model_proto.SerializeToString(deterministic=True) for _ in range(2)]
    assert files[0] == files[1]


def test_spatial_sizes_may_be_dynamic():
    class Images(nn.Module):
        def __init__(self, pool):
            super().__init__()
            self.first, self.pool = nn.Conv2d(3, 4, 3, stride=2, padding=1), pool
            self.grown = nn.ConvTranspose2d(4, 4, 3, 2, groups=2)
            self.last = nn.Conv2d(4, 2, 3, stride=(2, 3), groups=2)

        def forward(self, x):
            return self.last(self.pool(self.grown(self.first(x).relu()))).mean((2, 3))

    torch.manual_seed(0)
    sizes = {"x": {0: "batch", 2: "height", 3: "width"}, "targets": {0: "batch"}}
    program = opsetta.export_training(
        Images(nn.Sequential(nn.MaxPool2d(3, 2), nn.AvgPool2d(3, 2, 1))).train(),
        (torch.randn(2, 3, 20, 22),),
        T[:2],
        loss=nn.CrossEntropyLoss(),
        gradients=True,
        opset=18,
        dynamic_shapes=sizes,
    )
    for opset in (11, 18):
        for batch, height, width in ((3, 25, 31), (1, 32, 19)):
            program.lower(opset).verify((torch.randn(batch, 3, height, width),), {"targets": T[:batch]})


def test_verify_sees_a_wrong_update():
    program = exported(hyperparameters={"lr": 0.5})
    program.signature.learning_rates["lr"] = 0.25
    with pytest.raises(opsetta.VerificationError, match="updated"):
        program.verify()


def test_streaming_says_that_parameters_are_not_streamed(tmp_path):
    program = momentum()
    opsetta.save_streaming(program, tmp_path / "streamed")
    with pytest.warns(UserWarning, match="training graph are inputs, and are not streamed without state="):
        session = opsetta.StreamingSession(tmp_path / "streamed")
    assert set(session.input_names) >= set(program.state)
    session.close()
