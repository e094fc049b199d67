"""A TorchScript file of a stateful model that was never called: its state is empty, its shapes unknown."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import opsetta


class Spectrum(nn.Module):
    """A Fourier transform as a convolution with a basis, of a signal that is padded by reflection."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("basis", torch.randn(size + 2, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        rest = int(self.size - x.shape[1] % self.size)
        x = nn.functional.pad(x.unsqueeze(1), (0, rest), mode="reflect")
        y = nn.functional.conv1d(x, self.basis, stride=self.size // 2)
        cut = int(self.size / 2 + 1)
        return torch.sqrt(y[:, :cut] ** 2 + y[:, cut:] ** 2)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(8, 1, 1), nn.Sigmoid())

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        if state is not None and len(state) > 0:
            h, c = self.cell(x, (state[0], state[1]))
        else:
            h, c = self.cell(x)
        return self.head(h.unsqueeze(-1)), torch.stack([h, c])


class Branch(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.spectrum = Spectrum(size)
        self.encoder = nn.Sequential(nn.Conv1d(size // 2 + 1, 8, 3, padding=1), nn.AdaptiveAvgPool1d(1))
        self.decoder = Decoder()

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.decoder(self.encoder(self.spectrum(x)).squeeze(-1), state)


class Detector(nn.Module):
    """Two models for two rates, and state that the first call makes."""

    _state: Tensor
    _context: Tensor
    _last_rate: int

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = Branch(16), Branch(8)
        self.reset()

    def reset(self, batch: int = 1):
        self._state = torch.zeros([0])
        self._context = torch.zeros([0])
        self._last_rate = 0

    def forward(self, x: Tensor, rate: int) -> Tensor:
        if rate != 16000 and rate % 16000 == 0:
            x = x[:, :: rate // 16000]
            rate = 16000
        if rate / x.shape[1] > 1000:
            raise ValueError("the signal is too short")
        if self._last_rate != 0 and self._last_rate != rate:
            self.reset(x.shape[0])
        if not len(self._context):
            self._context = torch.zeros([x.shape[0], 4])
        x = torch.cat([self._context, x], dim=1)
        if rate == 16000:
            out, self._state = self.wide(x, self._state)
        elif rate == 8000:
            out, self._state = self.narrow(x, self._state)
        else:
            raise ValueError("the rate is 8000 or 16000")
        self._context = x[..., -4:]
        self._last_rate = rate
        return out


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The model as another process saved it."""
    path = tmp_path_factory.mktemp("scripts") / "detector.pt"
    program = (
        f"import torch\nfrom {__name__} import Detector\n"
        f"torch.manual_seed(0)\ntorch.jit.save(torch.jit.script(Detector().eval()), {str(path)!r})\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
    return path


CALL = (torch.randn(1, 40, generator=torch.Generator().manual_seed(1)), 16000)


@pytest.mark.filterwarnings("ignore:the program changes attribute")
@pytest.mark.parametrize("dynamic", [None, {"x": None, "rate": None}], ids=["rate", "constant_rate"])
def test_a_file_that_was_never_called(file, dynamic):
    module = torch.jit.load(file)
    program = opsetta.export(module, CALL, opset=16, mutations="outputs", dynamic_shapes=dynamic)
    assert module._state.shape == module._context.shape == (0,)
    assert module._last_rate == 0
    names = [value.name for value in program.model.graph.outputs[1:]]
    assert sorted(names) == ["_context_mutated", "_state_mutated"]
    program.verify(CALL)
    if dynamic is None:
        program.verify((CALL[0], 8000))
        program.verify((CALL[0], 32000))
    program.lower(24).verify(CALL)


@pytest.mark.filterwarnings("ignore:the program changes attribute")
def test_state_of_a_shape_of_its_own(file):
    module = torch.jit.load(file)
    module(*CALL)
    before = module._state.clone()
    program = opsetta.export(module, CALL, opset=16, mutations="outputs", dynamic_shapes={"rate": None})
    program.verify(CALL)
    assert torch.equal(module._state, before)
    with pytest.raises(opsetta.MutationError, match="_context"):
        opsetta.export(torch.jit.load(file), CALL, opset=16)


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.zeros(2))

    def forward(self, x: Tensor):
        self.memory = torch.cat([self.memory, x])
        return self.memory.sum()


def test_a_buffer_that_grows():
    program = opsetta.export(
        torch.jit.script(Growing().eval()), (torch.ones(3),), opset=18, mutations="outputs"
    )
    program.verify()
    assert program.model.graph.outputs[1].name == "memory_mutated"
    assert list(program.model.graph.outputs[1].shape) == [5]
