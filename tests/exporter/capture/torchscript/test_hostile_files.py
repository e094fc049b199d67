"""Files of TorchScript and checkpoints that ask for more than their size are refused."""

from __future__ import annotations

import zipfile

import pytest
import torch

import opsetta

BYTES = 2**26
"""Of one element that is expanded: more than the bound, and never in memory."""


class Scaled(torch.nn.Module):
    def __init__(self, factor: torch.Tensor):
        super().__init__()
        self.register_buffer("factor", factor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def changed(path, end: str, change) -> None:
    """Change an entry of an archive."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, change(data) if name.endswith(end) else data)


@pytest.mark.parametrize(
    ("end", "change", "reason"),
    [
        (
            ".py",
            lambda data: data.replace(b"(x, factor)", b"(x, " + b"-" * 50_000 + b"factor)"),
            "statements",
        ),
        (".py", lambda data: data.replace(b"factor)", b"factor" + b" + x" * 20_000 + b")"), "statements"),
        ("constants.pkl", lambda data: b"\x80\x02)" + b"\x85" * 100_000 + b".", "values"),
        ("constants.pkl", lambda data: b"\x80\x02(" + b"]" * 300_000 + b"a" * 299_999 + b"t.", "values"),
    ],
)
def test_a_file_that_nests_thousands_deep_is_refused(end, change, reason, tmp_path):
    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Scaled(torch.ones(2))), path)
    changed(path, end, change)
    with pytest.raises(opsetta.CaptureError, match=f"nests .*{reason} more than 1000 deep"):
        opsetta.export(path, (torch.ones(2),), opset=13)


@pytest.mark.parametrize("count", [1, 3])
def test_a_tensor_that_repeats_an_element_is_not_written_out(count):
    class Repeated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for number in range(count):
                self.register_buffer(
                    f"b{number}", torch.zeros(1, number + 1).expand(BYTES // count, number + 1)
                )

        def forward(self, x):
            for buffer in self.buffers():
                x = x + buffer[0, 0]
            return x

    traced = torch.jit.trace(Repeated(), torch.ones(2), check_trace=False)
    with pytest.raises(opsetta.CaptureError, match="the tensors of the program repeat"):
        opsetta.export(traced, (torch.ones(2),), opset=13)


def test_small_tensors_that_repeat_elements_are_exported():
    model = torch.jit.script(Scaled(torch.tensor([2.0]).expand(3)))
    program = opsetta.export(model, (torch.ones(3),), opset=13)
    assert program(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_a_checkpoint_that_repeats_an_element_is_refused(tmp_path):
    torch.save({"w": torch.zeros(1).expand(BYTES), "v": torch.zeros(3)}, tmp_path / "c.pt")
    with pytest.raises(opsetta.ModelFileError, match="tensor 'w' in 'c.pt' repeats 4 bytes to 268435456"):
        opsetta.open_weights(tmp_path / "c.pt")
