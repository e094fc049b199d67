"""States that modules keep as attributes: which they are, and convolutions that continue from them."""

import torch

from opsetta.exporter.huggingface.caches.module_states import (
    continue_from,
    find_states,
    restore_attributes,
    select_batched,
    select_changed,
)


class Recurrence(torch.nn.Module):
    """Keeps the last inputs of a convolution, a pair of sums, the last outputs, and a constant."""

    def __init__(self, columns):
        super().__init__()
        self.convolution = torch.nn.Conv1d(3, 3, 4, groups=3, padding=3)
        self.columns = columns
        self.recent = self.outputs = self.sums = None
        self.scale = torch.ones(1)
        # Not states: other objects, among them ones without attributes.
        self.others = {"layers": [torch.nn.Linear(1, 1)], "name": object(), "tensor": torch.ones(1)}

    def forward(self, inputs):
        length = inputs.shape[2]
        self.recent = torch.nn.functional.pad(inputs, (self.columns - length, 0))
        outputs = self.convolution(inputs)[..., :length]
        total = 0 if self.sums is None else self.sums["total"][0]
        self.sums = {"total": [total + outputs.sum(2)]}
        self.outputs = outputs.mean(1)
        return outputs * self.scale + self.sums["total"][0][..., None]


def states_after(model, batch, length):
    with restore_attributes(model):
        earlier = find_states(model)
        model(torch.rand(batch, 3, length))
        return select_changed(find_states(model), earlier)


def test_attributes_with_an_axis_of_the_batch_only_are_states():
    model = torch.nn.Sequential(Recurrence(3))
    states, other = states_after(model, 2, 5), states_after(model, 3, 7)
    assert set(states["0"]) == {"recent", "sums", "outputs"}
    assert set(select_batched(states, other, (2, 3))["0"]) == {"recent", "sums"}
    assert model[0].recent is None


def test_convolutions_continue_from_states_of_any_width():
    for columns in (3, 4):
        model = Recurrence(columns)
        inputs = torch.rand(2, 3, 12)
        with torch.no_grad(), restore_attributes(model):
            expected = model(inputs)
        states = {"": {"recent": torch.zeros(2, 3, columns), "sums": {"total": [torch.zeros(2, 3)]}}}
        position, parts = 0, []
        for length in (1, 5, 2, 4):
            with torch.no_grad(), continue_from(model, states) as read_states:
                before = states[""]["sums"]["total"][0]
                result = model(inputs[..., position : position + length])
                states = read_states()
            # Without the sum, which stands for all tokens of a call.
            parts.append(result - states[""]["sums"]["total"][0][..., None])
            assert not torch.equal(before, states[""]["sums"]["total"][0])
            position += length
        torch.testing.assert_close(torch.cat(parts, 2), expected - states[""]["sums"]["total"][0][..., None])
        assert model.recent is None
        assert "forward" not in vars(model.convolution)


def test_other_convolutions_are_left_as_they_are():
    model = Recurrence(3)
    model.convolution = torch.nn.Conv1d(3, 3, 4, padding=3)
    with continue_from(model, {"": {"recent": torch.ones(2, 3, 3)}}) as read_states, torch.no_grad():
        outputs = model(torch.rand(2, 3, 5))
        assert "forward" not in vars(model.convolution)
        assert torch.equal(read_states()[""]["recent"], model.recent)
    assert outputs.shape == (2, 3, 5)
