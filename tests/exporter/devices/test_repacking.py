"""`on_mismatch="repack"`: the first start in an environment packs the weights, later ones use them."""

import dataclasses
import multiprocessing
import os
import warnings

import numpy as np
import onnxruntime
import pytest

import opsetta
from opsetta.exporter.devices.prepack import environment, packed_session
from opsetta.exporter.devices.prepack.manifest import MANIFEST, PACKED, PLAIN, UNPACKED, Manifest
from opsetta.registration import PrepackError
from tests.exporter.devices.models import image, program, run


@pytest.fixture
def folder(tmp_path):
    """A folder that was packed in another environment."""
    program().save(tmp_path / "m", prepack=True)
    move_elsewhere(tmp_path / "m")
    return tmp_path / "m"


def move_elsewhere(folder, **fields) -> None:
    manifest = Manifest.from_folder(folder)
    fingerprint = {**manifest.fingerprint, **(fields or {"onnxruntime": "1.20.0"})}
    (folder / MANIFEST).write_bytes(dataclasses.replace(manifest, fingerprint=fingerprint).to_bytes())


def test_the_first_start_packs_and_later_ones_load(folder, recwarn):
    plain = run(onnxruntime.InferenceSession(str(folder / PLAIN)))
    first = opsetta.load_session(folder, on_mismatch="repack")
    assert first.prepack_status.used
    [note] = first.prepack_status.notes
    assert note.startswith("packed again: onnxruntime (saved 1.20.0, here ")
    packed_at = (folder / PACKED).stat().st_mtime_ns
    later = opsetta.load_session(folder, on_mismatch="repack")
    assert later.prepack_status.used
    assert not later.prepack_status.notes
    assert (folder / PACKED).stat().st_mtime_ns == packed_at
    assert opsetta.load_session(folder, on_mismatch="error", verify="full").prepack_status.used
    for session in (first, later):
        np.testing.assert_allclose(run(session), plain, atol=1e-5)
    assert not recwarn


def test_a_folder_with_the_plain_model_alone_is_packed(folder):
    (folder / MANIFEST).unlink()
    assert opsetta.load_session(folder, on_mismatch="repack").prepack_status.used
    assert opsetta.load_session(folder, on_mismatch="error").prepack_status.used


def _start(folder, barrier, results) -> None:
    barrier.wait()
    session = opsetta.load_session(folder, on_mismatch="repack")
    results.put((session.prepack_status.used, session.prepack_status.notes, run(session)))


def test_one_of_the_processes_that_start_together_packs(folder):
    plain = run(onnxruntime.InferenceSession(str(folder / PLAIN)))
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    starts = [context.Process(target=_start, args=(folder, barrier, results)) for _ in range(3)]
    for start in starts:
        start.start()
    statuses = [results.get(timeout=60) for _ in starts]
    for start in starts:
        start.join(60)
        assert start.exitcode == 0
    assert all(used for used, _, _ in statuses)
    assert len([notes for _, notes, _ in statuses if notes]) == 1
    for _, _, result in statuses:
        np.testing.assert_allclose(result, plain, atol=1e-5)


def test_a_native_layout_stays_native(tmp_path):
    import torch

    model = opsetta.export(torch.nn.Conv2d(3, 32, 3).eval(), (torch.from_numpy(image()),), opset=17)
    model.save(tmp_path, prepack=True, layout="native")
    move_elsewhere(tmp_path)
    assert opsetta.load_session(tmp_path, on_mismatch="repack").prepack_status.used
    assert Manifest.from_folder(tmp_path).layout == "native"


def test_a_model_without_packed_weights_is_packed_once(tmp_path, monkeypatch):
    import torch

    model = opsetta.export(torch.nn.Conv2d(3, 32, 3).eval(), (torch.from_numpy(image()),), opset=17)
    model.save(tmp_path / PLAIN)
    with pytest.warns(UserWarning, match="packs no weight"):
        session = opsetta.load_session(tmp_path, on_mismatch="repack")
    assert not session.prepack_status.used
    monkeypatch.setattr(packed_session, "repack", lambda *arguments: pytest.fail("it was packed again"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        status = opsetta.load_session(tmp_path, on_mismatch="repack").prepack_status
    assert "packs no weight" in status.reason
    # Another save may have weights to pack.
    program().save(tmp_path, prepack=True)
    assert not (tmp_path / UNPACKED).exists()
    assert opsetta.load_session(tmp_path, on_mismatch="repack").prepack_status.used


def test_options_of_the_caller_are_no_reason_to_pack(tmp_path):
    program().save(tmp_path, prepack=True)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.warns(UserWarning, match="the caller's options differ"):
        session = opsetta.load_session(tmp_path, session_options=options, on_mismatch="repack")
    assert not session.prepack_status.used
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_written_falls_back(folder, monkeypatch):
    plain = run(onnxruntime.InferenceSession(str(folder / PLAIN)))

    def refuse(source, target):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(UserWarning, match=r"saved 1\.20\.0.*packing them here failed.*Read-only"):
        session = opsetta.load_session(folder, on_mismatch="repack")
    assert not session.prepack_status.used
    np.testing.assert_allclose(run(session), plain, atol=1e-5)


def test_a_damaged_plain_model_is_not_packed(folder):
    with open(folder / PLAIN, "ab") as file:
        file.write(b"\0")
    with pytest.raises(PrepackError, match="save it again"):
        opsetta.load_session(folder, on_mismatch="repack")


def test_low_memory_packs_nothing(folder):
    before = (folder / MANIFEST).read_bytes()
    assert not opsetta.load_session(folder, memory="low", on_mismatch="repack").prepack_status.used
    assert (folder / MANIFEST).read_bytes() == before


@pytest.mark.parametrize(
    ("field", "added", "is_used"),
    [
        ("processor_flags", ["clwb", "split_lock_detect", "user_shstk"], True),
        ("processor_features", ["X86_V9"], True),
        ("processor_flags", ["avx10_1"], False),
        ("processor_flags", ["amx_fp8"], False),
        ("processor_features", ["AVX10"], False),
        ("processor_flags", ["i8mm", "sve2"], False),
    ],
)
def test_flags_that_no_kernel_uses_are_not_compared(tmp_path, field, added, is_used):
    saved = {field: ["avx2", "fma", "fpu"]}
    assert (not environment.differences(saved, {field: [*saved[field], *added]})) == is_used
    assert (not environment.differences({field: [*saved[field], *added]}, saved)) == is_used
    # Nothing is known about the flags of other architectures.
    assert environment.differences({field: ["power9"]}, {field: ["power9", "mma"]})
