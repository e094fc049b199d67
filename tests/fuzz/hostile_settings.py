"""Settings, indexes and descriptions in TOML and JSON, alone, in folders, and in the metadata of a model.

Each entry of `FILES` writes one of them beside the path that it gets, under the name by which its reader
looks for it. `WAYS` has one way, which calls that reader.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pathlib
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

import opsetta
from opsetta.exporter.capture.stored_weights.opening import open_weights
from opsetta.exporter.command_line.commands import inspection
from opsetta.exporter.devices.plan.plan import Plan
from opsetta.exporter.devices.prepack.packed_weights import PackedWeight
from opsetta.exporter.devices.streaming.folder import INDEX
from opsetta.exporter.devices.targets.load_target import load_target
from opsetta.exporter.files import small_files
from opsetta.exporter.huggingface import folder as huggingface_folder
from opsetta.exporter.huggingface import settings
from opsetta.exporter.sweeps.results.result_files import read_rows
from opsetta.exporter.sweeps.zoo.listing import list_onnx_files

from .hostile import Builder, chain
from .hostile_sources import source

NET = "name: 'p' op { input: 'x' output: 'y' type: 'Relu' } external_input: 'x' external_output: 'y'"
METADATA = (
    "opsetta.dimensions",
    "opsetta.ranges",
    "opsetta.specializations",
    "opsetta.training",
    "opsetta.symbols",
)


def _plan(path: pathlib.Path) -> None:
    Plan.from_json(small_files.read_small(path).decode())


def _model(path: pathlib.Path) -> None:
    """Everything that reads the metadata of a model."""
    inspection.info(path)
    model = opsetta.load(path)
    model.lower(13)
    for read in (
        lambda: model.dimensions,
        lambda: model.specializations,
        lambda: model(np.ones(2, np.float32)),
    ):
        with contextlib.suppress(opsetta.OpsettaError, AttributeError):
            read()
    opsetta.TrainingSession(path)


READERS: dict[str, Callable[[pathlib.Path], object]] = {
    "target.toml": load_target,
    INDEX: lambda path: opsetta.StreamingSession(path.parent),
    "prepack.json": lambda path: opsetta.load_session(path.parent, on_mismatch="error"),
    "config.json": huggingface_folder.read_json,
    "generation_config.json": lambda path: settings.read_settings(path.parent),
    "modules.json": lambda path: huggingface_folder.copy_files(path.parent, path.parents[1] / "copied"),
    "value_info.json": lambda path: opsetta.load(path.with_name("predict_net.pb")),
    "init_net.pb": lambda path: opsetta.load(path.with_name("predict_net.pb")).lower(13),
    "plan.json": _plan,
    "model.safetensors.index.json": open_weights,
    "model.safetensors": open_weights,
    "packed.safetensors": PackedWeight.load,
    "weights.npz": lambda path: opsetta.load(path.with_name("source.onnx"), weights=path),
    "results.sqlite": read_rows,
    "results.parquet": read_rows,
    "zoo": list_onnx_files,
    "described.onnx": _model,
}
_TEXTS = ("target.toml", INDEX, "prepack.json", "config.json", "generation_config.json", "modules.json",
          "value_info.json", "plan.json", "model.safetensors.index.json", "model.safetensors")  # fmt: skip


def _around(path: pathlib.Path) -> None:
    """Write what a reader needs beside a file."""
    if path.name in ("value_info.json", "init_net.pb"):
        path.with_name("predict_net.pb").write_text(NET)
    if path.name in ("prepack.json", INDEX):
        path.with_name("model.onnx").write_bytes(chain(2, [2]).SerializeToString())


def _text(name: str, text: str | Callable[[], str]) -> Builder:
    def build(path: pathlib.Path) -> None:
        place = path.with_name(name)
        _around(place)
        data = (text if isinstance(text, str) else text()).encode()
        if name == "model.safetensors":
            data = len(data).to_bytes(8, "little") + data
        place.write_bytes(data)

    return build


def _object(name: str, value: str | Callable[[], str]) -> Builder:
    """A value under a key, in the syntax of the file."""
    head, tail = ("title = ", "") if name.endswith(".toml") else ('{"weight_map": ', "}")
    return _text(name, lambda: head + (value if isinstance(value, str) else value()) + tail)


def _special(name: str, make: Callable[[pathlib.Path], None]) -> Builder:
    def build(path: pathlib.Path) -> None:
        place = path.with_name(name)
        _around(place)
        make(place)

    return build


def _sparse(size: int) -> Callable[[pathlib.Path], None]:
    def make(path: pathlib.Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


VALUES: dict[str, str | Callable[[], str]] = {
    "5000 arrays deep": "[" * 5_000 + "]" * 5_000,
    "a million arrays deep": lambda: "[" * 1_000_000,
    "a number of a million digits": lambda: "7" * 1_000_000,
    "3 million numbers": lambda: "[" + "1," * 3_000_000 + "1]",
    "2 million objects": lambda: "[" + '{"a":0},' * 2_000_000 + "0]",
    "3 million empty objects": lambda: "[" + "{}," * 3_000_000 + "0]",
    "3 million texts": lambda: "[" + '"abc",' * 3_000_000 + "0]",
    "a million keys": lambda: "{" + ",".join(f'"{i}":0' for i in range(1_000_000)) + "}",
    "a text of 30 MB": lambda: '"' + "x" * 30_000_000 + '"',
    "a text of escapes": lambda: '"' + "\\u00e9" * 5_000_000 + '"',
    "not numbers": "[NaN, Infinity, 1e999, -0.0, 1e-999]",
}
TOML: dict[str, str] = {
    "inline tables": "{a=" * 5_000 + "1" + "}" * 5_000,
    "dotted keys": "1\n"
    + "a"
    + ".a" * 60
    + " = 1\n"
    + "\n".join("b" + f".b{i}" * 60 + " = 1" for i in range(300)),
    "tables": "'x'\n" + "".join(f"[a{i}.b.c.d.e.f]\n" for i in range(3_000)),
    "arrays of tables": "'x'\n" + "[[a]]\n" * 10_000,
    "long lines": "'''" + "\n" * 60_000 + "'''",
    "comments": "'x'\n" + "#" * 60_000,
    "restrictions": "'x'\nsources = ['a']\n" + "[[restrictions]]\noperator='Add'\n" * 2_000,
}


def _described(key: str, value: str | Callable[[], str]) -> Builder:
    def build(path: pathlib.Path) -> None:
        model = chain(2, ["n"])
        text = value if isinstance(value, str) else value()
        model.metadata_props.add(key=key, value=text)
        path.with_name("described.onnx").write_bytes(model.SerializeToString())

    return build


def _conditions(*conditions: str) -> str:
    return json.dumps([{"condition": text, "reason": "r", "line": ""} for text in conditions])


CONDITIONS: dict[str, str] = {
    "a power of powers": "n ** 9 ** 9 ** 9 ** 9 > 1",
    "shifts": "1 << 10 ** 9 > n",
    "a product of powers": " * ".join(["n ** 4000"] * 4_000) + " > 1",
    "parentheses": "(" * 100_000 + "n" + ")" * 100_000,
    "signs": "-" * 100_000 + "n",
    "a sum of 100000 terms": " + ".join(["n"] * 100_000) + " > 1",
    "texts": "'a' * 10 ** 9 == n",
    "lists": "[0] * 10 ** 9 == n",
    "calls": "max(" * 500 + "n" + ", 1)" * 500 + " > 1",
    "comparisons": "n" + " < n" * 100_000,
    "digits": "7" * 5_000 + " > n",
    "factorials": "math.factorial(10 ** 9) > n",
    "comprehensions": "sum(i for i in range(10 ** 12)) > n",
    "attributes": "().__class__.__bases__[0].__subclasses__()",
    "rounds": "round(n, -10 ** 9) > 1",
    "formats": "f'{n:>1000000000}' == n",
}


def _names(count: int) -> Builder:
    """A model whose inputs have many dimensions, with as many conditions on them."""

    def build(path: pathlib.Path) -> None:
        model = chain(2, ["n"])
        for i in range(count):
            value = model.graph.input.add(name=f"i{i}")
            value.type.tensor_type.elem_type = 1
            value.type.tensor_type.shape.dim.add(dim_param=f"d {i}")
        texts = [f"d {i} % 2 == 0" for i in range(count)]
        model.metadata_props.add(key="opsetta.dimensions", value=_conditions(*texts))
        path.with_name("described.onnx").write_bytes(model.SerializeToString())

    return build


def _dimension(text: str) -> Builder:
    def build(path: pathlib.Path) -> None:
        model = chain(2, ["n"])
        for i in range(3):
            value = model.graph.input.add(name=f"i{i}")
            value.type.tensor_type.elem_type = 1
            value.type.tensor_type.shape.dim.add(dim_param=text)
        path.with_name("described.onnx").write_bytes(model.SerializeToString())

    return build


def _archive(size: int, entries: int) -> Callable[[pathlib.Path], None]:
    """An .npz of compressed zeros."""

    def make(path: pathlib.Path) -> None:
        _write_source(path.with_name("source.onnx"))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(entries):
                with archive.open(f"w{number}.npy", "w", force_zip64=True) as file:
                    header = io.BytesIO()
                    description = {"descr": "<f4", "fortran_order": False, "shape": (size // 4,)}
                    np.lib.format.write_array_header_1_0(header, description)
                    file.write(header.getvalue())
                    for _ in range(size // 2**20):
                        file.write(bytes(2**20))

    return make


def _header(text: str) -> Callable[[pathlib.Path], None]:
    """An .npz with an array whose header says something else than its contents."""

    def make(path: pathlib.Path) -> None:
        _write_source(path.with_name("source.onnx"))
        data = text.encode()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w.npy", b"\x93NUMPY\x02\x00" + len(data).to_bytes(4, "little") + data)

    return make


def _write_source(path: pathlib.Path) -> None:
    """Write a source file without its weight."""
    model = source()
    weight = next(info for info in model.graph.value_info if info.name == "w")
    weight.metadata_props.add(key="opsetta.file.sha256", value="0" * 64)
    model.graph.initializer[0].ClearField("raw_data")
    path.write_bytes(model.SerializeToString())


def _files() -> Iterator[tuple[str, Builder]]:
    for name, (title, value) in itertools.product(_TEXTS, VALUES.items()):
        yield f"{name} of {title}", _object(name, value)
    for title, value in TOML.items():
        yield f"target.toml of {title}", _object("target.toml", value)
    for name in READERS:
        # A plan is given as text.
        if name in ("described.onnx", "plan.json"):
            continue
        yield f"{name} that is a FIFO", _special(name, lambda path: os.mkfifo(path))
        yield f"{name} that is /dev/zero", _special(name, lambda path: path.symlink_to("/dev/zero"))
        yield f"{name} of 1 GB", _special(name, _sparse(2**30))
    for key, (title, value) in itertools.product(METADATA, VALUES.items()):
        yield f"{key} of {title}", _described(key, value)
    for title, text in CONDITIONS.items():
        yield f"a condition of {title}", _described("opsetta.dimensions", _conditions(text))
    yield "20000 conditions", _described("opsetta.dimensions", _conditions(*["n > 0"] * 20_000))
    yield "300 dimensions with names of two words", _names(300)
    yield "3000 dimensions with names of two words", _names(3_000)
    for title, text in CONDITIONS.items():
        yield f"a dimension of {title}", _dimension(text[:900])
    yield "an archive of zeros", _special("weights.npz", _archive(2**29, 1))
    yield "an archive of many zeros", _special("weights.npz", _archive(2**24, 40))
    described = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,)}"
    yield "an array of 16 TB", _special("weights.npz", _header(described % 2**42))
    yield "an array of many dimensions", _special("weights.npz", _header(described % ",".join(["1"] * 4_000)))
    yield "an array header of brackets", _special("weights.npz", _header("(" * 9_000))
    nested = "[('a', " * 900 + "'<f4'" + ")]" * 900
    text = "{'descr': " + nested + ", 'fortran_order': False, 'shape': (1,)}"
    yield "an array of a nested type", _special("weights.npz", _header(text))


FILES = dict(_files())


def _read(path: pathlib.Path) -> None:
    for name, reader in READERS.items():
        place = path.with_name(name)
        if os.path.lexists(place):
            reader(place)
            return
    raise AssertionError("there is no file that a reader looks for")


WAYS = {"read": _read}
IMPORTS = ("torch", "onnxruntime", "opsetta.exporter.running.sessions.session")
