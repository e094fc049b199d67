"""The forms that TorchScript comes in: traces with scripted parts, frozen and saved programs, interfaces."""

import pytest
import torch
from torch import Tensor, nn

import opsetta

OPSETS = (9, 13, 18)
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
FURTHER = [X.repeat(2, 1) * 2, X[:1] * 0.1, X[:2] * 50]
ROWS = {"x": {0: "n"}}


@torch.jit.script
def sums_until(x: Tensor, limit: float) -> Tensor:
    result = torch.zeros_like(x)
    total = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        total = total + x[i]
        if bool(total.abs().max() > limit):
            break
        result[i] = total
    return result


class Mixed(nn.Module):
    """A module that calls a scripted function, and computes with sizes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        z = sums_until(self.norm(self.linear(x)), 2.0)
        return z.view(x.shape[0], -1) * x.size(0), z[:, :2].reshape(-1)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner = torch.jit.script(Mixed())
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(self.linear(x))[0]


class HoldsTrace(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.traced = torch.jit.trace(nn.Linear(4, 4), (X,))

    def forward(self, x: Tensor):
        if bool(x.sum() > 0):
            return self.traced(x)
        return sums_until(x, 1.0)


@torch.jit.interface
class Activation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Negation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x


class CallsInterface(nn.Module):
    activation: Activation

    def __init__(self):
        super().__init__()
        self.activation = Negation()

    def forward(self, x: Tensor):
        return self.activation(x) * 2


FORMS = {
    "traced": lambda: torch.jit.trace(Mixed().eval(), (X,), check_trace=False),
    "traced, frozen": lambda: torch.jit.freeze(torch.jit.trace(Mixed().eval(), (X,), check_trace=False)),
    "scripted": lambda: torch.jit.script(Mixed().eval()),
    "scripted, frozen": lambda: torch.jit.freeze(torch.jit.script(Mixed().eval())),
    "scripted in a trace": lambda: torch.jit.trace(Outer().eval(), (X,), check_trace=False),
    "traced in a script": lambda: torch.jit.script(HoldsTrace().eval()),
    "interface": lambda: torch.jit.script(CallsInterface().eval()),
    "function": lambda: torch.jit.trace(lambda x: x.new_zeros(x.shape[0], 4) + x * x.shape[1], (X,)),
}


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "saved"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_agrees_for_other_sizes_and_paths(name, saved, tmp_path):
    model = FORMS[name]()
    if saved:
        torch.jit.save(model, str(tmp_path / "model.pt"))
        model = tmp_path / "model.pt"
    program = opsetta.export(model, (X,), opset=OPSETS[0], dynamic_shapes=ROWS)
    for opset in OPSETS:
        lowered = program.lower(opset)
        lowered.verify()
        for x in FURTHER:
            lowered.verify((x,))


def test_lines_and_modules_of_the_program_are_kept():
    program = opsetta.export(torch.jit.script(Mixed().eval()), (X,), opset=18, source_lines=True)
    nodes = list(program.source.graph.all_nodes())
    assert any("test_forms.py:" in node.metadata_props.get("opsetta.line", "") for node in nodes)
    assert {node.metadata_props.get("opsetta.module") for node in nodes} >= {"linear", "norm"}
