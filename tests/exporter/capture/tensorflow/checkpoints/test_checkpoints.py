"""TensorFlow checkpoints in the formats that it can write, and damaged ones."""

import dataclasses
import os
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest

from opsetta import ModelFileError
from opsetta.exporter.capture.tensorflow.checkpoints import is_checkpoint, keys_by_name, open_checkpoint
from opsetta.exporter.capture.tensorflow.checkpoints.checksums import crc32c, unmask_checksum
from opsetta.exporter.capture.tensorflow.checkpoints.slice_keys import slice_key
from opsetta.exporter.capture.tensorflow.checkpoints.snappy import BadBlock, decompress
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.files.reading import bounds
from tests import tensorflow_checkpoints as files

DATA = pathlib.Path(__file__).parents[4] / "data" / "tensorflow"
CHECKPOINTS = DATA / "checkpoints"
ADAM = DATA / "freezing" / "adam"
CHANCE = np.random.default_rng(0)
TENSORS = {
    "bool": np.array([[True, False]]),
    "bytes": np.array([b"", b"ab", b"x" * 300], object),
    "complex": np.array([1 + 2j, -3j], np.complex64),
    "empty": np.zeros((0, 3), np.float32),
    "half": np.arange(4, dtype=np.float16),
    "int": np.arange(-3, 3).reshape(2, 3),
    "none": np.array([], object),
    "scalar": np.float64(2.5).reshape(()),
    "small": np.arange(3).astype(ml_dtypes.bfloat16),
    "wide": CHANCE.normal(size=(70, 90)).astype(np.float32),
}
SLICES = {"int": [[(0, -1), (0, 1)], [(0, -1), (1, 2)]], "wide": [[(0, 30), (0, -1)], [(30, 40), (0, -1)]]}


def assert_same(one, other):
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


def test_every_variable_of_a_training_checkpoint_is_exact():
    found, variables = open_checkpoint(ADAM / "model.ckpt-5"), np.load(ADAM / "vars.npz")
    parts = {name: name.replace("/part_0", "").replace("/part_1", "") for name in variables.files}
    for name, array in variables.items():
        rows = [(18 * int("part_1" in name), 18), (0, 6)] if "part_" in name else None
        assert_same(found[parts[name]].read(None if rows is None else tuple(rows)), array)
    assert set(parts.values()) == set(found)
    whole = np.concatenate([variables["fc/w/part_0"], variables["fc/w/part_1"]])
    assert_same(found["fc/w"].read(), whole)
    assert_same(found["fc/w"].read(((10, 15), (2, 3))), whole[10:25, 2:5])


def test_a_checkpoint_of_objects():
    found, expected = open_checkpoint(CHECKPOINTS / "obj"), np.load(CHECKPOINTS / "obj_expected.npz")
    for name, array in expected.items():
        held = found[f"{name}/.ATTRIBUTES/VARIABLE_VALUE"].read()
        if held.dtype == ml_dtypes.bfloat16:
            held = held.astype(np.float32) if array.dtype == np.float32 else held.view(array.dtype)
        assert_same(held, array)
    assert len(keys_by_name(found)["Variable"]) == len(expected.files)


def test_strings_of_tensorflow():
    held = open_checkpoint(CHECKPOINTS / "str")["s"].read()
    assert held.tolist()[:2] == [b"ab", b""]
    assert held.shape == (3,)


def test_both_formats_of_one_variable():
    one, other = (open_checkpoint(CHECKPOINTS / name)["v"].read() for name in ("v1big.ckpt", "v2big.ckpt"))
    assert_same(one, other)
    assert sorted(open_checkpoint(CHECKPOINTS / "v1.ckpt")) == ["v", "w"]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("options", [{}, {"size": 40}, {"compression": 1}], ids=str)
def test_a_bundle_is_read_as_it_was_written(order, shards, options, tmp_path):
    files.write_bundle(tmp_path / "c", TENSORS, shards=shards, order=order, slices=SLICES, **options)
    found = open_checkpoint(tmp_path / "c")
    assert set(found) == set(TENSORS)
    for name, array in TENSORS.items():
        assert_same(found[name].read(), array)
        assert not found[name].read().flags.writeable


@pytest.mark.parametrize("options", [{}, {"size": 40}, {"compression": 1}], ids=str)
def test_the_first_format_is_read_as_it_was_written(options, tmp_path):
    tensors = {name: array for name, array in TENSORS.items() if array.dtype.name in files.FIELDS}
    files.write_v1(tmp_path / "c", tensors, slices=SLICES, **options)
    found = open_checkpoint(tmp_path / "c")
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        assert_same(found[name].read(), array)


def test_the_first_format_in_several_files(tmp_path):
    wide = TENSORS["wide"]
    for number, part in enumerate(SLICES["wide"]):
        files.write_v1(tmp_path / f"c-{number:05}-of-00002", {"wide": wide}, slices={"wide": [part]})
    assert_same(open_checkpoint(tmp_path / "c")["wide"].read(), wide)
    (tmp_path / "c-00001-of-00002").unlink()
    with pytest.raises(ModelFileError, match="not all of its"):
        open_checkpoint(tmp_path / "c")


def test_whole_tensors_are_views_of_the_file(tmp_path):
    files.write_bundle(tmp_path / "c", {"a": np.ones(10_000, np.float32)})
    held = open_checkpoint(tmp_path / "c")["a"].read()
    while isinstance(held, np.ndarray) and held.base is not None:
        held = held.base
    assert type(getattr(held, "obj", held)).__name__ == "mmap"


@pytest.mark.parametrize("name", ["c", "c.index", "c.meta", "c.data-00000-of-00001", "."])
def test_a_checkpoint_is_found_by_any_of_its_names(name, tmp_path):
    files.write_bundle(tmp_path / "c", {"a": np.ones(2, np.float32)})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/c"\n')
    assert list(open_checkpoint(tmp_path / name)) == ["a"]
    assert is_checkpoint(tmp_path / name)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"no checkpoint .*'x.index' nor 'x'"):
        open_checkpoint(tmp_path / "x")
    with pytest.raises(ModelFileError, match="a folder without a checkpoint"):
        open_checkpoint(tmp_path)
    with pytest.raises(ModelFileError, match="cannot be read"):
        open_checkpoint(tmp_path / "none" / "x")
    with pytest.raises(ModelFileError, match="no checkpoint"):
        open_checkpoint("a\0b")
    (tmp_path / "checkpoint").write_text("all: {")
    with pytest.raises(ModelFileError, match="does not name"):
        open_checkpoint(tmp_path)
    files.write_bundle(tmp_path / "c", TENSORS, shards=2)
    (tmp_path / "c.data-00001-of-00002").unlink()
    found = open_checkpoint(tmp_path / "c")
    with pytest.raises(ModelFileError, match=r"variable '.*' .* is in 'c.data-00001-of-00002'"):
        [variable.read() for variable in found.values()]


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_links_out_of_the_folder_are_not_followed(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    files.write_bundle(tmp_path / "c", {"a": np.ones(2, np.float32)})
    shutil.copy(tmp_path / "c.index", inner / "c.index")
    (inner / "c.data-00000-of-00001").symlink_to(tmp_path / "c.data-00000-of-00001")
    with pytest.raises(ModelFileError, match="a link out of"):
        open_checkpoint(inner / "c")["a"].read()
    assert open_checkpoint(inner / "c", allow_links=True)["a"].read().tolist() == [1, 1]


def changed(**fields):
    def change(entries):
        for field, value in fields.items():
            setattr(entries[b"a"], field, value)

    return change


def shaped(*sizes):
    def change(entries):
        del entries[b"a"].shape.dim[:]
        for size in sizes:
            entries[b"a"].shape.dim.add(size=size)

    return change


def overlapping(entries):
    entries[b"b"].offset = 4


def unknown_rank(entries):
    entries[b"a"].shape.unknown_rank = True


def newer(entries):
    entries[b""].version.min_consumer = 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed(size=12), "is 16 bytes by its type and shape, but has 12"),
        (changed(offset=-1), "invalid shard, offset or size"),
        (changed(offset=2**62), "which has 32 bytes"),
        (changed(shard_id=1), "invalid shard, offset or size"),
        (changed(shard_id=-1), "invalid shard, offset or size"),
        (changed(crc32c=1), "checksum does not match"),
        (changed(dtype=77), "element type 77"),
        (changed(dtype=0), "DT_INVALID"),
        (shaped(5), "is 20 bytes"),
        (shaped(2**62, 2**62), "sizes that exceed"),
        (shaped(-1), "must have a shape"),
        (shaped(*[1] * 200), "must have a shape"),
        (unknown_rank, "must have a shape"),
        (overlapping, "overlap"),
        (newer, "version 2"),
    ],
)
def test_entries_that_contradict_themselves_are_refused(change, reason, tmp_path):
    tensors = {"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}
    files.write_bundle(tmp_path / "c", tensors, change=change)
    with pytest.raises(ModelFileError, match=reason):
        open_checkpoint(tmp_path / "c")["a"].read()


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([[(0, 2)]], "incomplete"),
        ([[(0, 3)], [(2, 2)]], "overlap"),
        ([[(0, 2)], [(3, 3)]], "outside of its shape"),
        ([[(0, 4), (0, 1)]], "outside of its shape"),
        ([[(0, 2)], [(0, 2)]], "overlap"),
    ],
)
def test_slices_that_do_not_make_a_variable_are_refused(slices, reason, tmp_path):
    def change(entries):
        whole = files.entry_of(np.ones(4, np.float32))
        for extents in slices:
            files.add_extents(whole.slices.add(), extents)
            entries[slice_key("a", extents)] = entries.get(b"p%d" % extents[0][1])
        entries[b"a"] = whole
        for size in (1, 2, 3, 4):
            del entries[b"p%d" % size]

    tensors = {f"p{size}": np.ones(size, np.float32) for size in (1, 2, 3, 4)}
    files.write_bundle(tmp_path / "c", tensors, change=change)
    with pytest.raises(ModelFileError, match=reason):
        open_checkpoint(tmp_path / "c")["a"].read()


def test_a_slice_without_contents_is_refused(tmp_path):
    def change(entries):
        del entries[slice_key("int", SLICES["int"][0])]

    files.write_bundle(tmp_path / "c", TENSORS, slices=SLICES, change=change)
    with pytest.raises(ModelFileError, match="no contents, or .* for its slice"):
        open_checkpoint(tmp_path / "c")["int"].read()


def test_damaged_strings_are_refused(tmp_path):
    files.write_bundle(tmp_path / "c", {"s": np.array([b"abc", b"de"], object)})
    path = tmp_path / "c.data-00000-of-00001"
    whole = path.read_bytes()
    for position, reason in ((0, "do not agree"), (2, "checksum of its lengths"), (7, "its checksum")):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(ModelFileError, match=reason):
            open_checkpoint(tmp_path / "c")["s"].read()


def test_a_table_that_is_cut_off_anywhere_is_refused(tmp_path):
    files.write_bundle(tmp_path / "c", {"a": np.ones(4, np.float32)})
    path = tmp_path / "c.index"
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelFileError):
            open_checkpoint(tmp_path / "c")


def test_every_changed_bit_of_a_table_is_seen(tmp_path):
    files.write_bundle(tmp_path / "c", {"a": np.ones(4, np.float32)})
    path = tmp_path / "c.index"
    whole = path.read_bytes()
    # The empty third block and the padding of the footer say nothing.
    quiet = whole.rindex(files.MAGIC) - 40
    for position in range(quiet - 40):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        try:
            held = open_checkpoint(tmp_path / "c")["a"].read()
        except ModelFileError:
            continue
        assert held.tolist() == [1] * 4, position


def rows_of(*rows):
    header = message_type("BundleHeaderProto")(num_shards=1).SerializeToString()
    return [(b"", header), *rows]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (files.table(rows_of((b"b", b""), (b"a", b""))), "not in order|cannot be the element type"),
        (files.table([(b"a", b"")]), "has no header"),
        (files.table(rows_of((b"a", b"\xff" * 30))), "not a protobuf message"),
        (files.table(rows_of((b"\xff\xfe", files.entry_of(np.ones(1)).SerializeToString()))), "8 bytes"),
        (files.table([(b"", b"\x08\x01" + b"\x1a\x02\x08\x00" * 3)]), ""),
        (b"", "cannot be read"),
        (b"x" * 100, "not a checkpoint"),
        (b"\xff" * 40 + files.MAGIC, "malformed"),
        (b"\0" * 40 + files.MAGIC, "outside of the file"),
    ],
)
def test_tables_that_are_none_are_refused(data, reason, tmp_path):
    (tmp_path / "c.index").write_bytes(data)
    if reason == "":
        assert len(open_checkpoint(tmp_path / "c")) == 0
        return
    with pytest.raises(ModelFileError, match=reason):
        open_checkpoint(tmp_path / "c")


def test_a_block_with_an_unknown_compression_is_refused(tmp_path):
    (tmp_path / "c.index").write_bytes(files.table(rows_of(), compression=2))
    with pytest.raises(ModelFileError, match="compression 2, which is unknown"):
        open_checkpoint(tmp_path / "c")


def test_keys_that_grow_without_end_are_refused(tmp_path):
    # Each entry adds a byte to the key before it, so four bytes of file are thousands of bytes of keys.
    header = message_type("BundleHeaderProto")(num_shards=1).SerializeToString()
    contents = b"\0\0" + files.varint(len(header)) + header
    entry = files.entry_of(np.ones(0, np.float32)).SerializeToString()
    for shared in range(20_000):
        contents += files.varint(shared) + b"\1" + files.varint(len(entry)) + b"k" + entry
    data = files.stored(contents + b"\0\0\0\0\1\0\0\0")
    index = files.stored(files.block([(b"k", b"\0" + files.varint(len(data) - 5))]))
    place = files.varint(len(data)) + files.varint(len(index) - 5)
    (tmp_path / "c.index").write_bytes(data + index + (b"\0\0" + place).ljust(40, b"\0") + files.MAGIC)
    with pytest.raises(ModelFileError, match="its keys have more than"):
        open_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("version", [1, 2])
def test_entries_are_bounded_by_the_size_of_the_checkpoint(version, tmp_path, monkeypatch):
    write = files.write_v1 if version == 1 else files.write_bundle
    write(tmp_path / "c", {f"v{i}": np.zeros(500, np.float32) for i in range(50)})
    assert len(open_checkpoint(tmp_path / "c")) == 50
    monkeypatch.setattr(bounds, "BOUNDS", bounds.Bounds(entries=5))
    # 2 kB of contents pay for an entry.
    assert len(open_checkpoint(tmp_path / "c")) == 50
    monkeypatch.setattr(bounds, "BOUNDS", bounds.Bounds(most_entries=20))
    with pytest.raises(ModelFileError, match="has more than 20 entries, .* --trusted on the command line"):
        open_checkpoint(tmp_path / "c")
    assert len(open_checkpoint(tmp_path / "c", trusted=True)) == 50


def test_a_variable_that_is_stored_as_one_is_read_without_a_table_of_slices(tmp_path):
    files.write_bundle(tmp_path / "c", {"v": np.arange(4.0)})
    variable = dataclasses.replace(open_checkpoint(tmp_path / "c")["v"], slices=lambda: pytest.fail("made"))
    assert variable.read().tolist() == [0, 1, 2, 3]


def test_checksums():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"\0" * 32) == 0x8A9136AA
    assert unmask_checksum(files.mask_checksum(0x12345678)) == 0x12345678
    data = CHANCE.integers(0, 256, 50_001, np.uint8)
    for cut in (0, 1, 4_096, 8_192, 12_289, 50_001):
        assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)
    slow = 0xFFFFFFFF
    for byte in data.tolist():
        slow ^= byte
        for _ in range(8):
            slow = slow >> 1 ^ (0x82F63B78 if slow & 1 else 0)
    assert crc32c(data) == slow ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    "data", [b"", b"a", b"abcd" * 100, bytes(range(256)) * 9, b"x" * 1000, CHANCE.bytes(5000)], ids=len
)
def test_snappy(data):
    packed = files.snappy(data)
    assert decompress(memoryview(packed), len(data)) == data
    for end in range(len(packed)):
        with pytest.raises(BadBlock):
            decompress(memoryview(packed[:end]), len(data))


@pytest.mark.parametrize(
    "data", [b"\xff" * 9 + b"\x01a", b"\x04\x01\x01\x05", b"\x05\x10abcde\x05\x09", b"\x04\x00a\x0d\x00"]
)
def test_blocks_that_are_not_snappy_are_refused(data):
    with pytest.raises(BadBlock):
        decompress(memoryview(data), 2**20)
