"""Small files are read only if they are regular, small and not nested deeper than a parser recurses."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
from onnx import helper

import opsetta
from opsetta import ModelFileError
from opsetta.exporter.capture.caffe2.input_descriptions import read_value_info
from opsetta.exporter.devices.plan.plan import Plan
from opsetta.exporter.devices.prepack.manifest import Manifest
from opsetta.exporter.devices.streaming.folder import Index
from opsetta.exporter.devices.targets.load_target import load_target
from opsetta.exporter.files.checkpoints.folder import read_checkpoint
from opsetta.exporter.files.graph_file.weights import read_arrays
from opsetta.exporter.files.output import publishing
from opsetta.exporter.files.reading import BOUNDS
from opsetta.exporter.files.small_files import (
    UnreadableFile,
    open_regular,
    parse_toml,
    read_small,
)
from opsetta.exporter.files.zip_entries import oversized_entry
from opsetta.exporter.huggingface.folder import read_json
from opsetta.exporter.huggingface.text_generation.text import read_recording
from opsetta.exporter.sweeps.zoo.listing import list_onnx_files

READERS = {
    "target.toml": load_target,
    "streaming.json": lambda path: Index.from_folder(path.parent),
    "prepack.json": lambda path: Manifest.from_folder(path.parent),
    "config.json": read_json,
    "value_info.json": lambda path: read_value_info(path.with_name("predict_net.pb")),
    "model.safetensors.index.json": lambda path: read_checkpoint(path, None),
}
OTHER_READERS = {
    "m.onnx": lambda path: list_onnx_files(path.parent),
    "speech.wav": read_recording,
    "weights.npz": lambda path: read_arrays(path, BOUNDS),
}
"""Readers of files that are neither TOML nor JSON."""


pytestmark = pytest.mark.usefixtures("two_minutes_at_most")
"""Reading a FIFO or a device without end must fail, not stop the tests."""


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", ["fifo", "zero", "nested", "digits", "latin", "large", "folder"])
def test_what_cannot_be_read_is_an_error_of_ours(name, make, tmp_path):
    path = tmp_path / name
    if make == "fifo":
        os.mkfifo(path)
    elif make == "zero":
        path.symlink_to("/dev/zero")
    elif make == "folder":
        path.mkdir()
    elif make == "large":
        with path.open("wb") as file:
            file.truncate(2**26)
    else:
        key = "a = " if name.endswith(".toml") else '{"a": '
        text = {"nested": "[" * 30_000, "digits": "7" * 6_000, "latin": '"\xe9"'}[make]
        path.write_text(key + text + ("" if name.endswith(".toml") else "}"), encoding="latin-1")
    with pytest.raises(opsetta.OpsettaError) as caught:
        READERS[name](path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", OTHER_READERS)
@pytest.mark.parametrize("make", ["fifo", "zero"])
def test_a_file_that_does_not_end_is_not_read(name, make, tmp_path):
    path = tmp_path / name
    if make == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(opsetta.OpsettaError, match="it is not a regular file"):
        OTHER_READERS[name](path)


def npz(path, header: str, size: int):
    """An archive of one array, compressed, with a header and as many zeros."""
    data = header.encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("w.npy", "w") as entry:
        entry.write(b"\x93NUMPY\x02\x00" + len(data).to_bytes(4, "little") + data)
        for _ in range(size >> 20):
            entry.write(bytes(2**20))
    return path


NESTED = "[('a', " * 60 + "'<f4'" + ")]" * 60
FLOATS = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,)}"


@pytest.mark.parametrize(
    ("header", "size", "reason"),
    [
        (FLOATS % 2**20, 2**22, "it unpacks to 4194"),
        (FLOATS % 2**42, 0, "cannot be read"),
        (FLOATS % ",".join(["1"] * 3_000), 0, "cannot be read"),
        (FLOATS % -1, 0, "cannot be read"),
        ("(" * 9_000, 0, "cannot be read"),
        (FLOATS % "(" * 200, 0, "cannot be read"),
        ("{'descr': " + NESTED + ", 'fortran_order': False, 'shape': (1,)}", 0, "cannot be read"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 0, "cannot be read"),
    ],
)
def test_an_archive_of_arrays_takes_no_more_than_its_size_allows(header, size, reason, tmp_path):
    with pytest.raises(ModelFileError, match=reason):
        read_arrays(npz(tmp_path / "a.npz", header, size), dataclasses.replace(BOUNDS, memory=2**20))


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a": ' * 40_000, "9" * 5_000, "[1,", "\x00"])
def test_a_plan_that_cannot_be_parsed_is_refused(text):
    with pytest.raises(opsetta.PlanError):
        Plan.from_json(text)


def test_toml_that_takes_long_is_refused():
    with pytest.raises(ValueError, match="line 2 has more than 64 dots"):
        parse_toml(b"a = 1\n" + b"b" + b".b" * 20_000 + b" = 1")
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(b"a = " + b"{a=" * 20_000)
    assert parse_toml(b'a.b = "c. d. e."') == {"a": {"b": "c. d. e."}}


def test_a_regular_file_is_read_up_to_a_size(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_small(path, 5) == b"12345"
    with pytest.raises(UnreadableFile, match="more than 4 bytes"):
        read_small(path, 4)
    with pytest.raises(UnreadableFile, match="it is a folder"):
        open_regular(tmp_path)


@pytest.mark.parametrize("name", ["m/data.pkl", "m/constants.pkl", "m/code/a.py"])
def test_entries_much_larger_than_their_archive_are_named(name, tmp_path):
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/version", "3")
        with archive.open(name, "w") as entry:
            for _ in range(100):
                entry.write(bytes(2**20))
    with zipfile.ZipFile(path) as archive:
        assert f"'{name}' of {100 * 2**20} bytes" in oversized_entry(archive, path.stat().st_size)
        assert oversized_entry(archive, 2**32) is None or name.endswith(".py")


def sparse_model(folder, size: int):
    """A model whose weight is a sparse file."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [1])],
        [helper.make_tensor_value_info("y", 1, [size])],
    )
    tensor = graph.initializer.add(name="w", data_type=1, dims=[size])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    with open(folder / "w.bin", "wb") as file:
        file.truncate(4 * size)
    opsets = [helper.make_opsetid("", 17)]
    (folder / "m.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return opsetta.load(folder / "m.onnx")


def test_weights_that_do_not_fit_on_the_disk_are_not_written(tmp_path):
    model = sparse_model(tmp_path, 2**40).lower(13)
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ModelFileError, match=f"its weights have {2**42} bytes, and [0-9]+ are free"):
        model.save(folder / "o.onnx")
    assert list(folder.iterdir()) == []


def test_weights_that_fit_are_written(tmp_path):
    sparse_model(tmp_path, 2**10).lower(13).save(tmp_path / "o.onnx", external_data=True)
    assert not np.any(onnx.numpy_helper.to_array(onnx.load(tmp_path / "o.onnx").graph.initializer[0]))


TERMINATED = """
import pathlib, sys, time
from opsetta.exporter.files.output.publishing import publish
def write(file, location):
    file.write(b"half")
    print("writing", flush=True)
    time.sleep(60)
publish(pathlib.Path(sys.argv[1]) / "o.onnx", write)
"""


def test_a_terminated_process_removes_the_part(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINATED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    assert len(list(tmp_path.iterdir())) == 1
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_the_callers_handler_of_sigterm_stays(tmp_path):
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        publishing.publish(
            tmp_path / "a", lambda file, _: (file.write(b"a"), os.kill(os.getpid(), signal.SIGTERM))
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]
    assert (tmp_path / "a").read_bytes() == b"a"
