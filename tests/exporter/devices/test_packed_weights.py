"""Weights packed by torch's oneDNN: descriptors as values, files, and other processes."""

import gc
import pickle
import sys

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import opsetta
from opsetta import MemoryDescriptor, PackedWeight, prepack_conv, prepack_linear
from opsetta.exporter.torch_boundary import onednn
from opsetta.registration import ModelFileError, PrepackError, PrepackUnavailable, UsageError
from tests.exporter.devices.models import in_new_process, weight


def available() -> bool:
    try:
        onednn.library()
    except PrepackUnavailable:
        return False
    return True


pytestmark = pytest.mark.skipif(not available(), reason="torch's oneDNN is on Linux with x86 or ARM only")


LINEAR = [
    pytest.param((8, 16), None, torch.float32, id="small"),
    pytest.param((100, 70), 32, torch.float32, id="padded"),
    pytest.param((768, 256), 1, torch.float32, id="one-row"),
    pytest.param((256, 128), None, torch.bfloat16, id="bfloat16"),
]
CONVOLUTIONS = [
    pytest.param((64, 32, 3, 3), {"padding": 1}, torch.float32, id="plain"),
    pytest.param((64, 1, 3, 3), {"padding": 1, "groups": 64}, torch.float32, id="depthwise"),
    pytest.param((32, 8, 1, 3), {"padding": (0, 1), "stride": 2, "groups": 4}, torch.float32, id="grouped"),
    pytest.param((16, 16, 3, 3), {"dilation": 2}, torch.bfloat16, id="bfloat16"),
]


def packed(shape, given_options, dtype) -> PackedWeight:
    try:
        if len(shape) == 2:
            return prepack_linear(weight(*shape, dtype=dtype), batch=given_options)
        return prepack_conv(weight(*shape, dtype=dtype), **given_options)
    except PrepackUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("shape", "options", "dtype"), [*LINEAR, *CONVOLUTIONS])
def test_blobs_are_values(shape, options, dtype):
    descriptor = packed(shape, options, dtype).descriptor
    blob = descriptor.to_blob()
    assert len(descriptor.to_blob()) == len(blob) == 768
    assert blob == descriptor.to_blob()
    assert MemoryDescriptor.from_blob(blob) == descriptor == pickle.loads(pickle.dumps(descriptor))
    assert hash(MemoryDescriptor.from_blob(blob)) == hash(descriptor)
    again = packed(shape, options, dtype)
    assert again.descriptor == descriptor
    assert descriptor.nbytes == len(onednn.packed_bytes(again.packed))
    assert descriptor.dtype == str(dtype).removeprefix("torch.")


def test_unused_bytes_of_a_blob_do_not_matter():
    descriptor = packed((8, 16), None, torch.float32).descriptor
    blob = bytearray(descriptor.to_blob())
    blob[108:112] = b"\xff" * 4
    blob[316:320] = b"\xff" * 4
    blob[700:] = b"\xff" * 68
    assert MemoryDescriptor.from_blob(bytes(blob)) == descriptor


@pytest.mark.parametrize("blob", [b"", b"\0" * 768, b"\xff" * 768, b"\0" * 772, None], ids=repr)
def test_no_blob(blob):
    with pytest.raises(PrepackError, match="blob"):
        MemoryDescriptor.from_blob(blob)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 767), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_another_layout(position, mask):
    descriptor = MemoryDescriptor((100, 70), "float32", (128, 80), (5120, 1024), ((16, 1), (64, 0)))
    blob = bytearray(descriptor.to_blob())
    blob[position] ^= mask
    try:
        found = MemoryDescriptor.from_blob(bytes(blob))
    except PrepackError:
        return
    assert found.nbytes > 0


@pytest.mark.parametrize(("shape", "options", "dtype"), [*LINEAR, *CONVOLUTIONS])
def test_outputs_agree_with_plain_weights(shape, options, dtype, tmp_path):
    found = packed(shape, options, dtype)
    plain = weight(*shape, dtype=dtype)
    if len(shape) == 2:
        x = weight(5, shape[1], dtype=dtype)
        expected = torch.nn.functional.linear(x, plain)
    else:
        x = weight(2, shape[1] * options.get("groups", 1), 14, 14, dtype=dtype)
        expected = torch.nn.functional.conv2d(x, plain, **options)
    tolerance = {"atol": 0.1, "rtol": 0.05} if dtype == torch.bfloat16 else {"atol": 1e-4, "rtol": 1e-5}
    result = found(x)
    torch.testing.assert_close(result, expected, **tolerance)
    found.save(tmp_path / "w")
    loaded = PackedWeight.load(tmp_path / "w")
    assert loaded.prepack_status.used
    assert torch.equal(loaded(x), result)
    assert torch.equal(loaded.plain, plain)
    assert loaded.descriptor == found.descriptor


PACK = """
import json, sys, torch, opsetta
from tests.exporter.devices.models import weight
found = opsetta.prepack_linear(weight(768, 512), batch=32)
found.save(sys.argv[1])
print(json.dumps(found(weight(32, 512)).tolist()))
"""
USE = """
import json, sys, torch, opsetta
from tests.exporter.devices.models import weight
rows = []
for path in sys.argv[1:]:
    found = opsetta.PackedWeight.load(path)
    rows.append([found.prepack_status.used, found(weight(32, 512)).tolist()])
print(json.dumps(rows))
"""


ISAS = ("SSE41", "AVX2", "AVX512_CORE")


@pytest.mark.sweep
def test_every_pair_of_instruction_sets_is_right(tmp_path):
    packed = {isa: in_new_process(PACK, tmp_path / isa, ONEDNN_MAX_CPU_ISA=isa) for isa in ISAS}
    expected = torch.nn.functional.linear(weight(32, 512), weight(768, 512))
    for isa in ISAS:
        rows = in_new_process(USE, *(tmp_path / saved for saved in ISAS), ONEDNN_MAX_CPU_ISA=isa)
        for saved, (used, output) in zip(ISAS, rows, strict=True):
            assert used == (saved == isa)
            assert not used or output == packed[isa], "another process gives other bits"
            torch.testing.assert_close(torch.tensor(output), expected, atol=1e-4, rtol=1e-5)


def test_a_weight_of_other_instructions_is_packed_again(tmp_path):
    in_new_process(PACK, tmp_path / "w", ONEDNN_MAX_CPU_ISA="SSE41")
    loaded = PackedWeight.load(tmp_path / "w")
    assert not loaded.prepack_status.used
    expected = torch.nn.functional.linear(weight(32, 512), weight(768, 512))
    torch.testing.assert_close(loaded(weight(32, 512)), expected, atol=1e-4, rtol=1e-5)


def test_the_memory_lives_as_long_as_the_weight(tmp_path):
    x = weight(4, 128)
    prepack_linear(weight(256, 128)).save(tmp_path / "w")
    expected = PackedWeight.load(tmp_path / "w")(x)
    for _ in range(200):
        found = PackedWeight.load(tmp_path / "w")
        gc.collect(0)
        assert torch.equal(found(x), expected)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_of_a_file_are_refused(tmp_path, data):
    path = tmp_path / "w"
    if not path.exists():
        prepack_linear(weight(32, 16)).save(path)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (tmp_path / "flipped").write_bytes(content)
    with pytest.raises(ModelFileError):
        PackedWeight.load(tmp_path / "flipped")


def test_another_environment_packs_again(tmp_path, monkeypatch):
    x = weight(4, 16)
    found = prepack_linear(weight(32, 16))
    found.save(tmp_path / "w")
    monkeypatch.setattr(onednn, "version", lambda: "v3.0.0 0000")
    with pytest.warns(UserWarning, match=r"onednn \(saved v3.+, here v3.0.0 0000\)"):
        loaded = PackedWeight.load(tmp_path / "w")
    assert not loaded.prepack_status.used
    assert torch.equal(loaded(x), found(x))
    with pytest.raises(PrepackError, match="onednn"):
        PackedWeight.load(tmp_path / "w", on_mismatch="error")


def test_what_is_missing_is_named(monkeypatch):
    onednn.library.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "platform", "win32")
            with pytest.raises(PrepackUnavailable, match="needs Linux"):
                prepack_linear(weight(8, 8))
        with monkeypatch.context() as patched:
            patched.setattr(onednn, "missing", lambda feature: ("torch:ops.mkldnn._nbytes",))
            with pytest.raises(PrepackUnavailable, match="lacks torch:ops.mkldnn._nbytes"):
                prepack_linear(weight(8, 8))
    finally:
        onednn.library.cache_clear()


def test_wrong_weights(tmp_path):
    for wrong in (weight(8), weight(8, 8).double(), [[1.0]], weight(0, 8)):
        with pytest.raises(UsageError, match="weight must be"):
            prepack_linear(wrong)
    with pytest.raises(UsageError, match="rank 4"):
        prepack_conv(weight(8, 8))
    with pytest.raises(ModelFileError, match="cannot be read"):
        PackedWeight.load(tmp_path / "missing")
    (tmp_path / "other").write_bytes(b"not a file of weights")
    with pytest.raises(ModelFileError, match="cannot be read"):
        PackedWeight.load(tmp_path / "other")
    assert opsetta.PackedWeight is PackedWeight
