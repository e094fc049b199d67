"""What a TorchScript module holds is, after each comparison with it, what it was before."""

import re
import warnings

import pytest
import torch
from torch import Tensor, nn

import opsetta

from ....opsets import HIGHEST

X = torch.tensor([1.0, -2.0, 3.0])


class Numbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.scale = 0.5
        self.doubled = False

    def forward(self, x: Tensor):
        self.calls += 1
        self.scale *= 2.0
        self.doubled = not self.doubled
        return x * self.calls + self.scale, self.doubled


class Containers(nn.Module):
    items: list[Tensor]
    counts: dict[str, int]

    def __init__(self):
        super().__init__()
        self.items = [torch.zeros(3)]
        self.counts = {"a": 1}
        self.pair = (1, torch.ones(3))
        self.rate = float("nan")

    def forward(self, x: Tensor):
        self.items.append(x)
        self.items[0] += x
        self.counts["b"] = len(self.items)
        self.pair = (self.pair[0] + 1, self.pair[1] * 2)
        return x * len(self.counts) + self.items[0] * self.pair[1], len(self.items) * self.pair[0]


class Cell(nn.Module):
    """Holds its last argument, where there was one."""

    last: Tensor | None

    def __init__(self):
        super().__init__()
        self.last = None
        self.drift = torch.zeros(3)

    def forward(self, x: Tensor):
        last = self.last
        self.last = x
        self.drift += 1
        return (x if last is None else x + last) * self.drift


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([Cell(), Cell()])

    def forward(self, x: Tensor):
        for cell in self.cells:
            x = cell(x)
        return x


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor):
        with torch.no_grad():
            self.weight += 1
        self.mean = self.mean * 0.5 + x
        return x * self.weight + self.mean


def held(model: torch.jit.ScriptModule) -> str:
    """Everything that a scripted module holds, as text."""
    return model._c.dump_to_str(False, True, True)


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "saved"])
@pytest.mark.parametrize("kind", [Numbers, Containers, Cells, Weights])
@pytest.mark.filterwarnings("ignore:the program changes attribute")
def test_a_second_comparison_finds_what_the_first_did(kind, saved, tmp_path):
    model = torch.jit.script(kind().eval())
    if saved:
        torch.jit.save(model, str(tmp_path / "model.pt"))
        model = torch.jit.load(str(tmp_path / "model.pt"))
    before = held(model)
    program = opsetta.export(model, (X,), opset=13, mutations="outputs")
    for x in (X, -X, X):
        program.verify((x,))
        assert held(model) == before


def test_new_values_of_parameters_and_buffers_are_compared():
    program = opsetta.export(torch.jit.script(Weights().eval()), (X,), opset=13, mutations="outputs")
    assert program.output_names == ["output", "weight_mutated", "mean_mutated"]
    assert len(program.verify().outputs) == 3


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.appended = [2, 4]
        self.set = {"a": 1}
        self.tensors = [torch.zeros(3)]
        self.perhaps = [[1.0], [2.0]]
        self.either = [1]
        self.read, self.put_back, self.pair = [1, 2], [1, 2], (1, [1.5])

    def forward(self, x: Tensor, n: int):
        sizes = self.appended
        for _ in range(n):
            sizes.append(4)
        self.set["a"] = 2
        self.tensors[0] = self.tensors[0] + x
        self.perhaps[1][0] += n
        chosen = self.either if n > 2 else [3]
        chosen.append(5)
        self.put_back.append(len(self.read))
        self.put_back.pop()
        return x + sum(sizes) + self.pair[1][0] + len(chosen)


def test_changed_lists_and_dicts_are_dropped_with_a_warning():
    model = torch.jit.script(Lists().eval())
    before = held(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = opsetta.export(model, (X, 3), opset=13)
    found = [re.search(r"changes attribute '(\w+)'", str(warning.message)) for warning in caught]
    names = [match[1] for match in found if match]
    assert names == ["appended", "either", "perhaps", "set", "tensors"]
    assert held(model) == before
    program.verify((X, 1))


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor):
        self.calls += 1
        self.total += x
        if bool(x.sum() < 0):
            raise ValueError("negative")
        return x * 2


@pytest.mark.filterwarnings("ignore:the program changes attribute")
def test_a_call_that_raises_leaves_no_trace():
    model = torch.jit.script(Raises().eval())
    before = held(model)
    program = opsetta.export(model, (X,), opset=13, mutations="outputs")
    with pytest.raises(opsetta.OpsettaError, match="fails on these arguments.*negative"):
        program.verify((-X,))
    assert held(model) == before
    program.verify()


class Prepared(nn.Module):
    """Branches on its buffers, inside a loop and outside."""

    def __init__(self, counts: bool):
        super().__init__()
        self.counts = counts
        self.register_buffer("ready", torch.tensor(1))
        self.register_buffer("bounds", torch.tensor([3.0, 1.0]))

    def forward(self, x: Tensor):
        if self.counts:
            self.ready += 1
        for _ in range(x.size(0)):
            if bool(self.bounds.max() > 2.0):
                x = x * 2
        if bool(self.ready == 1):
            x = x + 1
        return x


class Chosen(Prepared):
    def forward(self, x: Tensor):
        return torch.cond(self.bounds.sum() > 2, lambda x: x * 2, lambda x: x + 1, (x,))


def branches(program: opsetta.Program) -> int:
    return sum(node.op_type == "If" for node in program.model.graph.all_nodes())


@pytest.mark.parametrize("opset", [7, 9, HIGHEST])
def test_a_branch_that_buffers_decide_is_decided(opset):
    """Nested, such branches make onnxruntime crash while it loads the file."""
    for model in (torch.jit.script(Prepared(False).eval()), Chosen(False).eval()):
        dynamic = {"x": {0: "n"}} if isinstance(model, torch.jit.ScriptModule) else None
        program = opsetta.export(model, (X,), opset=opset, dynamic_shapes=dynamic)
        assert branches(program) == 0
        program.verify()


def test_a_branch_on_a_buffer_that_the_model_writes_to_stays():
    """A later call may be given the new value."""
    program = opsetta.export(torch.jit.script(Prepared(True).eval()), (X,), opset=13, mutations="outputs")
    assert branches(program) == 1
    program.verify()
