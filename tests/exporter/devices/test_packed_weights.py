"""Weights packed by torch's oneDNN: descriptors as values, files, and other processes."""

import gc
import pickle
import sys

import hypothesis.strategies as st
import pytest
import safetensors
import torch
from hypothesis import HealthCheck, given, settings
from safetensors.torch import save_file

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


@pytest.fixture
def integers(monkeypatch):
    """Products of 8-bit integers, which are exact only on processors with instructions for them."""
    if not onednn.has_exact_integer_products():
        pytest.skip(onednn.NO_EXACT_INTEGERS)
    generator = torch.Generator().manual_seed(0)

    def make(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max + 1, shape, dtype=dtype, generator=generator)

    return make


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("shape", [(100, 70), (1, 1), (64, 128)])
def test_integer_weights(shape, dtype, integers, tmp_path):
    plain, scale, bias = integers(*shape), weight(shape[0]).abs() + 0.1, weight(shape[0])
    packed_weight = prepack_linear(plain, scale=scale)
    packed_weight.save(tmp_path / "w")
    loaded = PackedWeight.load(tmp_path / "w", on_mismatch="error")
    descriptor = packed_weight.descriptor
    assert loaded.descriptor == descriptor == MemoryDescriptor.from_blob(descriptor.to_blob())
    assert descriptor.nbytes == len(onednn.packed_bytes(packed_weight.packed))
    assert torch.equal(loaded.plain, plain)
    for zero_point, rows in ((0, (5,)), (7, (2, 3)), (7, ()), (7, (2, 0))):
        x = integers(*rows, shape[1], dtype=dtype)
        numbers, factors = 0.25 * (x.double() - zero_point), (plain * scale[:, None].double()).t()
        expected = (numbers @ factors + bias).float()
        result = packed_weight(x, bias, x_scale=0.25, x_zero_point=zero_point)
        torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-5)
        assert torch.equal(loaded(x, bias, x_scale=torch.tensor(0.25), x_zero_point=zero_point), result)


def test_wrong_integer_weights(integers, monkeypatch):
    plain = integers(8, 16)
    with pytest.raises(UsageError, match="int8 weights need scale="):
        prepack_linear(plain)
    with pytest.raises(UsageError, match="one for each of 8 outputs"):
        prepack_linear(plain, scale=torch.ones(16))
    with pytest.raises(UsageError, match="leave batch out"):
        prepack_linear(plain, scale=torch.ones(1), batch=4)
    packed_weight = prepack_linear(plain, scale=torch.ones(1))
    for x, options in ((weight(2, 16), {"x_scale": 1.0}), (integers(2, 16), {})):
        with pytest.raises(UsageError, match="uint8 or int8, with x_scale"):
            packed_weight(x, **options)
    monkeypatch.setattr(onednn, "has_exact_integer_products", lambda: False)
    with pytest.raises(PrepackUnavailable, match="VNNI"):
        prepack_linear(plain, scale=torch.ones(1))
    with pytest.raises(PrepackUnavailable, match="VNNI"):
        packed_weight(integers(2, 16), x_scale=1.0)


def test_an_integer_weight_with_the_recipe_or_scale_of_another_is_refused(integers, tmp_path):
    prepack_linear(integers(8, 16), scale=torch.ones(8)).save(tmp_path / "w")
    with safetensors.safe_open(tmp_path / "w", "pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for changed in (tensors | {"scale": tensors["scale"][:-4]}, {**tensors, "scale": None}):
        kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
        save_file(kept, tmp_path / "changed", header)
        # Without the digest of the file, which would tell first.
        with pytest.raises(ModelFileError, match="the scale is not that of its weight"):
            PackedWeight.load(tmp_path / "changed", verify="size")


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
