"""Training steps whose parameters and moments are in a file, and read when they are needed."""

import numpy as np
import pytest
import torch

import opsetta


class Frozen(torch.nn.Module):
    """A trained layer and a normalization with buffers on a layer that is not trained."""

    def __init__(self):
        super().__init__()
        self.base, self.top = torch.nn.Linear(64, 48), torch.nn.Linear(48, 32)
        self.base.requires_grad_(False)
        self.norm = torch.nn.BatchNorm1d(48)

    def forward(self, x):
        return self.top(torch.tanh(self.norm(self.base(x))))


@pytest.fixture
def partly_frozen() -> opsetta.TrainingProgram:
    torch.manual_seed(0)
    example, target = torch.randn(6, 64), torch.randn(6, 32)
    return opsetta.export_training(
        Frozen().train(), (example,), target, loss=torch.nn.MSELoss(), optimizer="adam", opset=17
    )


def test_state_is_streamed(partly_frozen):
    plain = opsetta.TrainingSession(partly_frozen)
    with opsetta.StreamingSession(partly_frozen, state=partly_frozen.state) as session:
        assert session.input_names == ["x", "targets", "lr"]
        assert session.output_names == ["loss"]
        # The weights of both layers, and two moments of the trained one; biases are small.
        assert session.weight_bytes == 4 * (12288 + 3 * 8192) // 4
        for seed in range(3):
            torch.manual_seed(seed)
            x, y = torch.randn(6, 64), torch.randn(6, 32)
            loss = plain.step(x, y, learning_rate=0.01)
            assert session.run({"x": x, "targets": y, "lr": 0.01}) == [pytest.approx(loss, rel=1e-5)]
            with pytest.raises(opsetta.OpsettaError):
                session.run({"x": x[:, 1:], "targets": y, "lr": 0.01})
        state = session.state
    assert set(state) == set(plain.state)
    for name, expected in plain.state.items():
        np.testing.assert_allclose(state[name], expected, rtol=1e-5, atol=1e-6)


def test_a_step_that_fails_keeps_the_streamed_state(partly_frozen, monkeypatch):
    feed = {"x": torch.ones(6, 64), "targets": torch.ones(6, 32), "lr": 0.01}
    with opsetta.StreamingSession(partly_frozen, state=partly_frozen.state) as session:
        before = session.state

        def fail(_):
            raise opsetta.InferenceError("stopped")

        with monkeypatch.context() as patched:
            patched.setattr(session._sessions[session.segments[-1].session], "run", fail)
            with pytest.raises(opsetta.InferenceError, match="stopped"):
                session.run(feed)
        for name, array in session.state.items():
            assert np.array_equal(array, before[name])
        session.run(feed)
        assert not np.array_equal(session.state["top.weight"], before["top.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top.weight": None}, "'top.weight' is missing"),
        ({"other": np.zeros(3, np.float32)}, "no input has the name 'other'"),
        ({"top.weight": np.zeros((32, 3), np.float32)}, r"FLOAT\[32, 3\], but the model has FLOAT\[32, 48\]"),
        ({"top.weight": np.zeros((32, 48))}, r"is DOUBLE\[32, 48\]"),
    ],
)
def test_a_wrong_state_is_refused(change, message, partly_frozen):
    state = {name: array for name, array in {**partly_frozen.state, **change}.items() if array is not None}
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.StreamingSession(partly_frozen, state=state)
    with pytest.raises(opsetta.UsageError, match="needs a model in memory"):
        opsetta.StreamingSession("model.onnx", state=state)
