"""Where a file is written: through links, into pipes, with its permissions; and what is removed."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pathlib
import stat
import subprocess
import sys
import threading

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.files import writing
from opsetta.exporter.files.output import output_paths as targets
from opsetta.exporter.files.output.output_paths import resolve, write_into
from opsetta.exporter.files.weights.tensor_writer import TensorWriter

from .pairs import listing, number_at, pair

PAIR = ["model.onnx", "model.onnx.DIGEST.data"]


def save(path: str | bytes | os.PathLike, number: int = 1, external: bool | str | None = True) -> None:
    writing.save(pair(number), path, external_data=external)


def data_of(path: pathlib.Path) -> set[str]:
    model = onnx.load(path, load_external_data=False)
    entries = [entry for tensor in model.graph.initializer for entry in tensor.external_data]
    return {entry.value for entry in entries if entry.key == "location"}


def test_the_name_and_the_bytes_depend_on_the_contents_alone(tmp_path: pathlib.Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        save(tmp_path / name / "model.onnx")
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "ab")
    assert first == second
    assert listing(tmp_path / "a") == PAIR
    save(tmp_path / "a" / "model.onnx")
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == first


@pytest.mark.parametrize("external", [False, True, "weights.data"])
def test_only_a_save_that_replaces_a_model_waits_for_the_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, external: bool | str
) -> None:
    path, synchronized = tmp_path / "model.onnx", []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synchronized.append(os.fstat(descriptor).st_ino))
    save(path, external=external)
    assert synchronized == []
    save(path, 2, external=external)
    # The files of the new model, and their folder.
    assert {path.stat().st_ino for path in (tmp_path, *tmp_path.iterdir())} == set(synchronized)


def test_a_folder_of_another_process_that_vanishes_keeps_no_data_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, staging = tmp_path / "model.onnx", tmp_path / ".opsetta-of-another-process"
    save(path)
    staging.mkdir()
    look_up = os.stat

    def look_up_after_removal(file: str, **options: bool) -> os.stat_result:
        if os.fspath(file) == os.fspath(staging):
            raise FileNotFoundError(errno.ENOENT, "removed a moment ago", file)
        return look_up(file, **options)

    monkeypatch.setattr(os, "stat", look_up_after_removal)
    save(path, 2)
    monkeypatch.undo()
    staging.rmdir()
    assert listing(tmp_path) == PAIR


def test_a_data_file_that_is_used_again_is_on_the_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synchronized = tmp_path / "model.onnx", []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synchronized.append(os.fstat(descriptor).st_ino))
    save(path)
    [data] = tmp_path.glob("*.data")
    before = data.stat().st_ino
    save(path)
    assert data.stat().st_ino == before
    assert before in synchronized
    # A file with several hard links is replaced, also by the first save of a graph.
    os.link(data, tmp_path / "link")
    path.rename(tmp_path / "copy")
    synchronized.clear()
    save(path)
    assert synchronized == [data.stat().st_ino] != [before]


def test_what_no_graph_names_is_removed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    save(path)
    save(path, 2)
    assert listing(tmp_path) == PAIR
    save(path, 3, external=False)
    assert listing(tmp_path) == ["model.onnx"]


def test_what_another_graph_names_stays(tmp_path: pathlib.Path) -> None:
    path, copy = tmp_path / "model.onnx", tmp_path / "copy"
    save(path)
    copy.write_bytes(path.read_bytes())
    source = tmp_path / "source.json"
    source.write_text(f'"{data_of(path).pop()}"')
    save(path, 2)
    assert (number_at(path), number_at(copy)) == (2, 1)
    copy.unlink()
    save(path, 3)
    assert len(list(tmp_path.glob("*.data"))) == 2
    source.unlink()
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nowhere", tmp_path / "dangling")
    save(path, 2)
    assert len(list(tmp_path.glob("*.data"))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "model.onnx.data",
        "model.onnx.0123456789abcde.data",
        "model.onnx.0123456789ABCDEF.data",
        "model.onnx.0123456789abcdef.data.bak",
        "model.onnx.v2.0123456789abcdef.data",
        "other.onnx.0123456789abcdef.data",
        "xmodel.onnx.0123456789abcdef.data",
        ".opsetta-0123456789abcdef.partly",
        ".opsetta-0123456789abcde.part",
        ".model.onnx.abcdefgh",
    ],
)
def test_files_of_others_stay(tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    save(tmp_path / "model.onnx")
    save(tmp_path / "model.onnx", 2)
    assert (tmp_path / name).read_bytes() == b"mine"
    assert len(os.listdir(tmp_path)) == 3


def test_a_data_file_with_other_contents_is_not_overwritten(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    save(path)
    [name] = data_of(path)
    path.unlink()
    (tmp_path / name).write_bytes(b"another's")
    (tmp_path / "another").write_bytes(name.encode())
    save(path)
    assert number_at(path) == 1
    assert (tmp_path / name).read_bytes() == b"another's"
    assert len(data_of(path).pop()) == len(name) + 16


def test_a_data_file_with_further_names_is_replaced(tmp_path: pathlib.Path) -> None:
    """For no reader takes one: a further name may be outside the folder."""
    path = tmp_path / "model.onnx"
    save(path)
    os.link(tmp_path / data_of(path).pop(), tmp_path / "snapshot")
    with pytest.raises(opsetta.ModelFileError, match="hard links"):
        opsetta.load(path)
    save(path)
    assert opsetta.load(path).opset == 13
    assert (tmp_path / "snapshot").stat().st_nlink == 1


def test_the_living_keep_what_they_write_and_the_dead_do_not(tmp_path: pathlib.Path) -> None:
    living, dead = tmp_path / f".opsetta-{'1' * 16}.part", tmp_path / f".opsetta-{'2' * 16}.part"
    orphan, claimed = (tmp_path / f"model.onnx.{digit * 16}.data" for digit in "ab")
    for path in (living, dead, orphan, claimed):
        path.write_bytes(b"half")
    with open(living) as first, open(claimed) as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)
        save(tmp_path / "model.onnx")
        assert living.exists()
        assert not dead.exists()
        assert claimed.exists()
        assert not orphan.exists()
    save(tmp_path / "other.onnx", external=False)
    assert not living.exists()
    assert claimed.exists()
    save(tmp_path / "model.onnx")
    assert not claimed.exists()


def test_nothing_is_removed_where_there_are_no_locks(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    for number in (1, 2, 1):
        save(tmp_path / "model.onnx", number)
        assert number_at(tmp_path / "model.onnx") == number
    assert len(os.listdir(tmp_path)) == 3


def test_a_file_system_without_hard_links(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for number in (1, 1, 2):
        save(tmp_path / "model.onnx", number)
        assert number_at(tmp_path / "model.onnx") == number
    assert listing(tmp_path) == PAIR


def test_threads_that_save_one_model_to_one_path(tmp_path: pathlib.Path) -> None:
    model, path = pair(1), tmp_path / "model.onnx"
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for external in (True, False, True):
                writing.save(model, path, external_data=external)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert number_at(path) == 1
    save(path)
    assert listing(tmp_path) == PAIR


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("there", [False, True], ids=["dangling", "over a file"])
def test_a_link_is_written_through(tmp_path: pathlib.Path, there: bool, external: bool) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "model.onnx"
    if there:
        target.write_bytes(b"old")
    os.symlink("real/model.onnx", tmp_path / "first")
    os.symlink(tmp_path / "first", tmp_path / "link")
    save(tmp_path / "link", external=external)
    assert os.readlink(tmp_path / "link") == str(tmp_path / "first")
    assert os.readlink(tmp_path / "first") == "real/model.onnx"
    assert number_at(target) == 1
    assert listing(tmp_path / "real") == (PAIR if external else PAIR[:1])
    loaded = opsetta.load(tmp_path / "link")
    assert loaded.model.graph.name == "graph of 1"


def test_permissions(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    before = os.umask(0o027)
    try:
        save(path)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}
    path.chmod(0o4604)
    save(path, 2)
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o604}


def test_weights_of_a_private_file_are_never_readable_by_others(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    path.chmod(0o600)
    modes: list[set[int]] = []

    def observed(tensor: ir.TensorProtocol) -> ir.LazyTensor:
        """The tensor, which records the modes of all files of the folder when its contents are read."""

        def read() -> ir.Tensor:
            modes.append({stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()})
            # The new files are there while the weights are written.
            assert len(os.listdir(tmp_path)) > 1
            return ir.Tensor(tensor.numpy())

        return ir.LazyTensor(read, tensor.dtype, tensor.shape, name=tensor.name)

    model = pair(1)
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = observed(value.const_value)
    writing.save(model, path, external_data=True)
    assert modes
    assert all(modes_of_files == {0o600} for modes_of_files in modes)


def test_a_pipe_is_written_into(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    save(path, external=None)
    reader.join()
    whole = io.BytesIO()
    writing.save(pair(1), whole)
    assert received == [whole.getvalue()]
    assert stat.S_ISFIFO(path.stat().st_mode)
    with pytest.raises(opsetta.ModelFileError, match="no folder for external data"):
        save(path)


def test_devices_are_streams() -> None:
    """Nothing is written before that is sure: a test must not replace a device."""
    for name in ("/dev/null", "/dev/full", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert resolve(name).is_stream, name
    with pytest.raises(opsetta.ModelFileError, match="'/dev/full' cannot be written: No space left"):
        write_into(resolve("/dev/full"), lambda stream: stream.write(b"model"))
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


SCRIPT = """
import sys
from opsetta.exporter.files import writing
from opsetta.exporter.files.weights import tensor_writer
sys.path.insert(0, {folder!r})
from pairs import pair
print("before")
writing.save(pair(1), {path!r})
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/dev/stdout", "pipe"), ("/dev/fd/1", "file"), ("/proc/self/fd/1", "deleted file")],
)
def test_standard_output_is_written_into_after_what_is_there(
    tmp_path: pathlib.Path, path: str, kind: str
) -> None:
    script = SCRIPT.format(folder=str(pathlib.Path(__file__).parent), path=path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with open(tmp_path / "output", "w+b") as output:
        if kind == "deleted file":
            os.unlink(tmp_path / "output")
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE if kind == "pipe" else output,
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
        )
        output.seek(0)
        written = done.stdout if kind == "pipe" else output.read()
    assert done.returncode == 0, done.stderr
    whole = io.BytesIO()
    writing.save(pair(1), whole)
    assert written == b"before\n" + whole.getvalue()
    assert os.listdir(tmp_path) == (["output"] if kind != "deleted file" else [])


class Unseekable(io.RawIOBase):
    """A raw file, which may write less than it is given."""

    def __init__(self) -> None:
        self.held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)[:1000]  # type: ignore[call-overload]
        self.held += part
        return len(part)


def test_a_file_object_without_positions_gets_everything() -> None:
    raw, whole = Unseekable(), io.BytesIO()
    writing.save(pair(1), raw)  # type: ignore[arg-type]
    writing.save(pair(1), whole)
    assert bytes(raw.held) == whole.getvalue()


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path, "relative"])
@pytest.mark.parametrize("name", ["model.onnx", "ä ö\n'x'", "~", "-", "[a]*.onnx", "a.0123456789abcdef.data"])
def test_paths(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: object, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = name if kind == "relative" else kind(str(tmp_path / name))  # type: ignore[operator]
    for number in (1, 2):
        save(path, number)
        assert number_at(tmp_path / name) == number
        assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("", "empty path"),
        ("folder", "it is a folder"),
        ("link to a folder", "it is a folder"),
        ("nowhere/model.onnx", "there is no folder 'nowhere'"),
        ("link to nowhere", "there is no folder '.*nowhere'"),
        ("loop", "Too many levels|cannot be written"),
        ("loop/model.onnx", "cannot be written"),
        ("file/model.onnx", "cannot be written"),
        ("model\0.onnx", "null"),
        ("n" * 300, "too long"),
        ("n" * 250, "too long"),
    ],
)
def test_paths_that_cannot_be_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str, match: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    os.symlink("folder", tmp_path / "link to a folder")
    os.symlink("nowhere/model.onnx", tmp_path / "link to nowhere")
    os.symlink("loop", tmp_path / "loop")
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(opsetta.ModelFileError, match=match):
        save(path)
    assert sorted(os.listdir(tmp_path)) == before


LIMITED = """
import errno, os, resource, sys
sys.path.insert(0, {folder!r})
from pairs import pair
from opsetta.exporter.files import writing
from opsetta.exporter.files.weights import tensor_writer
from opsetta.registration import ModelFileError
tensor_writer._SMALL = 0
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    writing.save(pair(2), {path!r}, external_data={external})
except ModelFileError as error:
    print(error)
"""


@pytest.mark.parametrize(("external", "limit"), [(False, 9000), (True, 9000), (True, 100)])
def test_a_full_disk_leaves_the_old_model(tmp_path: pathlib.Path, external: bool, limit: int) -> None:
    path = tmp_path / "model.onnx"
    save(path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    folder = str(pathlib.Path(__file__).parent)
    script = LIMITED.format(folder=folder, path=str(path), external=external, limit=limit)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"'{path}' cannot be written: ")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("call", ["open", "link", "unlink", "replace", "fsync", "fchmod", "listdir"])
@pytest.mark.parametrize("external", [False, True])
def test_a_call_that_fails_leaves_one_whole_model(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str, external: bool
) -> None:
    """The old model where the error says so; the new one where only tidying failed."""
    path = tmp_path / "model.onnx"
    save(path)
    original, calls = getattr(os, call), 0

    def fail(*arguments: object, **keywords: object) -> object:
        nonlocal calls
        calls += 1
        if calls == turn:
            raise OSError(5, "Input/output error")
        return original(*arguments, **keywords)

    turn = 0
    while turn == 0 or calls >= turn:
        turn, calls = turn + 1, 0
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                save(path, 2, external=external)
                expected, message = 2, "Input/output error"
            except opsetta.ModelFileError as error:
                expected, message = 1, str(error)
        assert number_at(path) == expected
        assert "Input/output error" in message
        save(path, 1)
        assert listing(tmp_path) == PAIR


def test_an_interrupt_while_weights_are_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    save(path)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    steps = ((TensorWriter, "write_tensor"), (os, "fsync"), (os, "replace"))
    for owner, name in steps:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                writing.save(held(2), path, external_data=True)
        assert number_at(path) == 1
        assert listing(tmp_path) == PAIR


def held(number: int) -> ir.Model:
    """A model whose weights are arrays."""
    model = pair(number)
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.Tensor(np.array(value.const_value.numpy()), name=value.name)
    return model


def test_a_fixed_name(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    for number in (1, 2):
        save(path, number, external="weights.data")
        assert number_at(path) == number
        assert sorted(os.listdir(tmp_path)) == ["model.onnx", "weights.data"]
    save(path, 3)
    assert (tmp_path / "weights.data").exists()
    with pytest.raises(opsetta.ModelFileError, match=r"weights\.data' exists already"):
        save(path, 4, external="weights.data")
    assert number_at(path) == 3


def test_a_fixed_name_that_another_graph_has(tmp_path: pathlib.Path) -> None:
    save(tmp_path / "first", 1, external="weights")
    with pytest.raises(opsetta.ModelFileError, match="exists already"):
        save(tmp_path / "second", 2, external="weights")
    (tmp_path / "copy").write_bytes((tmp_path / "first").read_bytes())
    with pytest.raises(opsetta.ModelFileError, match="another model"):
        save(tmp_path / "first", 2, external="weights")
    assert number_at(tmp_path / "copy") == 1
    assert sorted(os.listdir(tmp_path)) == ["copy", "first", "weights"]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "sub/x", "sub\\x", "/x", "C:x", "x\0", "model.onnx", "MODEL.onnx", 3, "folder"],
)
def test_fixed_names_that_are_refused(tmp_path: pathlib.Path, name: object) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(opsetta.ModelFileError):
        save(tmp_path / "model.onnx", external=name)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["folder"]


def test_what_was_loaded_stays_whatever_becomes_of_its_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    save(path)
    loaded = opsetta.load(path)
    loaded.save(path, external_data=False)
    assert listing(tmp_path) == ["model.onnx"]
    [sums] = loaded.run({"x": np.zeros(1, np.float32)})
    assert np.unique(sums) == [3]
    loaded.lower(9).save(path, external_data=True)
    assert number_at(path) == 1


def test_weights_of_sub_graphs_go_out_too(tmp_path: pathlib.Path) -> None:
    body = pair(1)
    outer = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (bool c) => (y) '
        "{ y = If (c) <then_branch = t () => (r) { r = Identity (w) },"
        " else_branch = e () => (s) { s = Identity (v) }> }"
    )
    weight = ir.to_proto(body.graph.initializers["large"].const_value)
    for attribute, name in zip(outer.graph.node[0].attribute, "wv", strict=True):
        weight.name = name
        attribute.g.initializer.append(weight)
    model = ir.from_proto(outer)
    writing.save(model, tmp_path / "model.onnx", external_data=True)
    assert (tmp_path / "model.onnx").stat().st_size < 1000
    assert {p.name.count(".") for p in tmp_path.iterdir()} == {1, 3}
    written = onnx.load(tmp_path / "model.onnx")
    for attribute in written.graph.node[0].attribute:
        assert onnx.numpy_helper.to_array(attribute.g.initializer[0]).max() == 1
    assert ir.to_proto(model) == ir.to_proto(ir.from_proto(outer))


def test_resolved_targets_say_what_they_are(tmp_path: pathlib.Path) -> None:
    found = resolve(os.fsencode(tmp_path / "model.onnx"))
    assert (found.folder, found.name, found.is_stream) == (str(tmp_path.resolve()), "model.onnx", False)
    assert targets.reason(OSError(28, "No space left on device", "/x/.opsetta-1.part")) == (
        "No space left on device"
    )


@pytest.mark.parametrize("kind", ["array", "packed", "lazy", "mapped"])
def test_weights_of_odd_sizes(tmp_path: pathlib.Path, kind: str) -> None:
    """Each begins at a multiple of 64 bytes, whatever writes it."""
    model = pair(1)
    made = {}
    for name, size in (("large", 1601), ("larger", 3199)):
        value = model.graph.initializers[name]
        made[name] = np.arange(size, dtype=np.uint8) % 7
        tensor: ir.TensorProtocol = ir.Tensor(made[name], name=name)
        if kind == "packed":
            packed = made[name]
            tensor = ir.PackedTensor(packed, ir.DataType.UINT4, shape=ir.Shape([2 * size]), name=name)
        elif kind == "lazy":
            tensor = ir.LazyTensor(
                lambda tensor=tensor: tensor, dtype=tensor.dtype, shape=ir.Shape([size]), name=name
            )
        elif kind == "mapped":
            (tmp_path / "inner").mkdir(exist_ok=True)
            (tmp_path / "inner" / name).write_bytes(b"x" + made[name].tobytes())
            place = {"shape": ir.Shape([size]), "name": name, "base_dir": tmp_path / "inner"}
            tensor = ir.ExternalTensor(name, 1, size, ir.DataType.UINT8, **place)
        value.const_value = tensor
    path = tmp_path / "model.onnx"
    writing.save(model, path, external_data=True)
    [data] = tmp_path.glob("*.data")
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if tensor.name in made:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            offset = int(entries["offset"])
            assert offset % 64 == 0
            found = data.read_bytes()[offset : offset + int(entries["length"])]
            assert found == made[tensor.name].tobytes()
    assert model.graph.initializers["large"].const_value is not None


def test_a_file_of_many_weights_is_opened_once(tmp_path: pathlib.Path) -> None:
    """Each mapping keeps a file open, and a process may have no more than some hundreds."""
    model = pair(1)
    for index in range(300):
        weight = ir.Value(name=f"w{index}", const_value=ir.Tensor(np.full(300, index, np.float32)))
        weight.shape, weight.dtype = ir.Shape([300]), ir.DataType.FLOAT
        model.graph.initializers.add(weight)
    writing.save(model, tmp_path / "model.onnx", external_data=True)
    before = len(os.listdir("/proc/self/fd"))
    loaded = opsetta.load(tmp_path / "model.onnx")
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert loaded.model.graph.initializers["w299"].const_value.numpy().max() == 299
