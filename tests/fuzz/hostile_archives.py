"""Archives of PyTorch whose size says little about the work that they ask for: TorchScript and checkpoints.

Each entry of `FILES` writes `model.pt` beside the path that it gets, by changing the entries of an archive of
`torch.jit.save` or `torch.save`. `WAYS` are the ways in which they are read.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping

import opsetta

from .hostile import Builder

CODE = "code/__torch__.py"
_FORWARD = "    return torch.relu(x)"
_MODULE = """class M(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
{body}
"""


def _entries(buffer: io.BytesIO) -> dict[str, bytes]:
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _script() -> dict[str, bytes]:
    """The entries of a scripted module, `M/code/__torch__.py` and others."""
    import torch

    warnings.simplefilter("ignore")

    class M(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(M()), buffer)
    return {
        f"M/{name.partition('/')[2]}": data for name, data in _entries(buffer).items() if "debug" not in name
    }


def _write(path: pathlib.Path, entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path.with_name("model.pt"), "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


def code(body: str | Callable[[], str], compression: int = zipfile.ZIP_STORED) -> Builder:
    """A program with the statements of a body."""

    def build(path: pathlib.Path) -> None:
        entries = _script()
        [name] = [name for name in entries if name.endswith(".py")]
        text = _MODULE.format(body=body if isinstance(body, str) else body())
        entries[name] = text.replace("__torch__.M,", f"{_class_of(entries[name])},").encode()
        entries[name] = entries[name].replace(b"class M(", b"class " + _class_of_bytes(entries[name]) + b"(")
        _write(path, entries, compression)

    return build


def _class_of(text: bytes) -> str:
    """The qualified name of the class of `self` in a program."""
    return text.decode().partition("self: ")[2].partition(",")[0]


def _class_of_bytes(text: bytes) -> bytes:
    return _class_of(text).rpartition(".")[2].encode()


def with_entry(
    name: str, data: bytes | Callable[[], bytes], compression: int = zipfile.ZIP_STORED
) -> Builder:
    """A module with another contents of an entry."""

    def build(path: pathlib.Path) -> None:
        _write(path, {**_script(), f"M/{name}": data if isinstance(data, bytes) else data()}, compression)

    return build


def many_entries(count: int) -> Builder:
    """A module with many empty entries beside its own."""

    def build(path: pathlib.Path) -> None:
        _write(path, {**_script(), **{f"M/extra/{i}": b"" for i in range(count)}})

    return build


def expanded(buffers: int, sizes: list[int], saved: str) -> Builder:
    """One element as a tensor of any size: in a module, in a checkpoint, or in the attribute of a module."""

    def build(path: pathlib.Path) -> None:
        import torch

        class M(torch.nn.Module):
            def __init__(self):
                super().__init__()
                for i in range(buffers):
                    tensor = torch.zeros(1).expand(sizes)
                    if saved == "attribute":
                        setattr(self, f"b{i}", tensor)
                    else:
                        self.register_buffer(f"b{i}", tensor)

            def forward(self, x):
                return x + self.b0[0]

        if saved == "checkpoint":
            torch.save(M().state_dict(), path.with_name("model.pt"))
        else:
            torch.jit.save(
                torch.jit.trace(M(), torch.zeros(1), check_trace=False), path.with_name("model.pt")
            )

    return build


def pickled(opcodes: Callable[[], bytes], name: str = "data.pkl") -> Builder:
    """A checkpoint or a module with another pickle."""

    def build(path: pathlib.Path) -> None:
        if name == "data.pkl":
            entries = {"M/data.pkl": opcodes(), "M/version": b"3\n", "M/byteorder": b"little"}
        else:
            entries = {**_script(), f"M/{name}": opcodes()}
        _write(path, entries)

    return build


_PROTOCOL = b"\x80\x02"
PICKLES: dict[str, Callable[[], bytes]] = {
    "a million empty lists": lambda: _PROTOCOL + b"(" + b"]" * 1_000_000 + b"t.",
    "lists in lists": lambda: _PROTOCOL + b"]" * 300_000 + b"a" * 299_999 + b".",
    "tuples in tuples": lambda: _PROTOCOL + b")" + b"\x85" * 1_000_000 + b".",
    "lists that double": lambda: _PROTOCOL + b"]" + b"".join(b"q\x00]h\x00ah\x00a" for _ in range(60)) + b".",
    "strings that are copied": lambda: (
        _PROTOCOL + b"X\x00\x00\x10\x00" + b"x" * 2**20 + b"q\x00" + b"h\x00" * 500_000 + b"."
    ),
    "dicts": lambda: _PROTOCOL + b"(" + b"}" * 1_000_000 + b"t.",
    "a long number": lambda: _PROTOCOL + b"\x8b\x00\x00\x20\x00" + b"\x7f" * 2**21 + b".",
    "a long decimal number": lambda: b"I" + b"7" * 2**21 + b"\n.",
    "marks": lambda: _PROTOCOL + b"(" * 2_000_000 + b".",
    "a bytearray of 1 TB": lambda: b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
    "a string of 1 TB": lambda: b"\x80\x04\x8d" + (2**40).to_bytes(8, "little") + b".",
    "a frame of 1 TB": lambda: b"\x80\x04\x95" + (2**40).to_bytes(8, "little") + b".",
    "a large memo": lambda: _PROTOCOL + b"]r\xff\xff\xff\x7f.",
}
BODIES: dict[str, str | Callable[[], str]] = {
    "parentheses": lambda: f"    return {'(' * 200_000}x{')' * 200_000}",
    "signs": lambda: f"    return {'-' * 200_000}x",
    "lists": lambda: f"    y = {'[' * 100_000}{']' * 100_000}\n    return x",
    "conditions": lambda: (
        "".join(f"{'  ' * i}    if bool(x):\n" for i in range(900)) + "  " * 900 + "    pass\n    return x"
    ),
    "a sum": lambda: f"    return {' + '.join(['x'] * 50_000)}",
    "a text": lambda: f'    y = "{"x" * 30_000_000}"\n    return x',
    "a number": lambda: f"    y = {'7' * 1_000_000}\n    return x",
    "a large constant": "    return torch.add(x, torch.zeros([100000, 100000]))",
}


def _files() -> Iterator[tuple[str, Builder]]:
    for title, body in BODIES.items():
        yield f"a program of {title}", code(body)
    yield (
        "a compressed program",
        code(lambda: "    y = x\n" + "    y = torch.relu(y)\n" * 2_000_000, zipfile.ZIP_DEFLATED),
    )
    for title, opcodes in PICKLES.items():
        yield f"a checkpoint of {title}", pickled(opcodes)
        yield f"constants of {title}", pickled(opcodes, "constants.pkl")
    for name in ("version", "byteorder", "attributes.pkl", "bytecode.pkl", "data/0", "constants.pkl"):
        yield f"a large entry {name}", with_entry(name, lambda: b"\0" * 2**27, zipfile.ZIP_DEFLATED)
    yield "30000 entries of an archive", many_entries(30_000)
    yield "400000 entries of an archive", many_entries(400_000)
    for saved in ("buffer", "attribute", "checkpoint"):
        yield f"an expanded {saved}", expanded(1, [2**20, 2**12], saved)
        yield f"expanded tensors of a {saved}", expanded(200, [2**12, 2**12], saved)


FILES = dict(_files())


def _export(path: pathlib.Path) -> None:
    import torch

    program = opsetta.export(path.with_name("model.pt"), (torch.zeros(1),), opset=17)
    program.save(path.parents[1] / "exported.onnx", external_data=True)


def _weights(path: pathlib.Path) -> None:
    for tensor in opsetta.open_weights(path.with_name("model.pt")).values():
        with contextlib.suppress(opsetta.OpsettaError):
            tensor.numpy()


def _load(path: pathlib.Path) -> None:
    opsetta.load(path.with_name("model.pt"))


WAYS = {"export": _export, "open_weights": _weights, "load": _load}
IMPORTS = ("torch", "opsetta.exporter.export_model", "opsetta.exporter.capture.torchscript.capture_script")
