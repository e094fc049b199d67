"""Prepacked folders as a whole: several writers, plain models, what is stored once, and what is verified."""

import dataclasses
import json
import multiprocessing
import os
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import opsetta
from opsetta.exporter.devices import file_records
from opsetta.exporter.devices.prepack import verified_files
from opsetta.exporter.devices.prepack.manifest import MANIFEST, PACKED, PLAIN, VERIFIED, Manifest
from opsetta.registration import PrepackError, UsageError
from tests.exporter.devices.models import image, program, run


def _layers(seed: int) -> opsetta.Program:
    import torch

    torch.manual_seed(seed)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).eval()
    return opsetta.export(layers, (torch.ones(1, 64),), opset=17)


def _convolutions() -> opsetta.Program:
    import torch

    return opsetta.export(torch.nn.Conv2d(3, 32, 3).eval(), (torch.from_numpy(image()),), opset=17)


@pytest.fixture
def folder(tmp_path):
    program().save(tmp_path / "m", prepack=True)
    return tmp_path / "m"


def test_plain_weights_are_stored_once(folder):
    [data] = folder.glob("*.data")
    blobs = Manifest.from_folder(folder).blobs
    weights = sum(value.const_value.nbytes for value in program().model.graph.initializers.values())
    assert os.path.getsize(data) < weights + sum(blob.size for blob in blobs) + 64 * 20
    stored = onnx.load(folder / PLAIN, load_external_data=False).graph.initializer
    locations = {entry.value for t in stored for entry in t.external_data if entry.key == "location"}
    assert locations == {data.name}
    onnx.checker.check_model(folder / PLAIN)
    plain = opsetta.load(folder / PLAIN)
    for name, value in program().model.graph.initializers.items():
        assert np.array_equal(
            plain.model.graph.initializers[name].const_value.numpy(), value.const_value.numpy()
        )


@pytest.mark.parametrize("external_data", [False, "weights.bin"])
def test_a_plain_model_with_its_own_weights(tmp_path, external_data):
    program().save(tmp_path, prepack=True, external_data=external_data)
    assert not Manifest.from_folder(tmp_path).shared
    assert (tmp_path / "weights.bin").exists() == bool(external_data)
    assert opsetta.load_session(tmp_path, verify="full").prepack_status.used
    next(tmp_path.glob(f"{PACKED}.*.data")).unlink()
    with pytest.warns(UserWarning, match="cannot be read"):
        assert not opsetta.load_session(tmp_path).prepack_status.used


def test_a_name_of_another_models_weights_is_refused(tmp_path):
    _layers(0).save(tmp_path / "other.onnx", external_data="weights.bin")
    before = (tmp_path / "weights.bin").read_bytes()
    with pytest.raises(opsetta.ModelFileError, match=r"weights\.bin"):
        _layers(1).save(tmp_path, prepack=True, external_data="weights.bin")
    assert (tmp_path / "weights.bin").read_bytes() == before
    assert not (tmp_path / PLAIN).exists()


def _save(model: opsetta.Program, folder, barrier) -> None:
    barrier.wait()
    model.save(folder, prepack=True)


def test_one_of_two_writers_wins_as_a_whole(tmp_path):
    context = multiprocessing.get_context("fork")
    models = [_layers(0), _layers(1)]
    x = np.ones((1, 64), np.float32)
    for round_number in range(4):
        target, barrier = tmp_path / str(round_number), context.Barrier(2)
        writers = [context.Process(target=_save, args=(model, target, barrier)) for model in models]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
            assert writer.exitcode == 0
        session = opsetta.load_session(target, verify="full", on_mismatch="error")
        plain = onnxruntime.InferenceSession(str(target / PLAIN))
        name = plain.get_inputs()[0].name
        np.testing.assert_allclose(session.run(None, {name: x})[0], plain.run(None, {name: x})[0], atol=1e-5)
        assert len(list(target.iterdir())) == 4


@pytest.mark.parametrize("layout", ["portable", "native"])
def test_a_model_without_packed_weights(tmp_path, layout):
    program().save(tmp_path, prepack=True)  # Its packed weights must not stay beside another model.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _convolutions().save(tmp_path, prepack=True, layout=layout)
    if layout == "native":
        assert not caught
        assert opsetta.load_session(tmp_path).prepack_status.used
        return
    [warning] = caught
    assert "packs no weight" in str(warning.message)
    assert "layout='native'" in str(warning.message)
    assert {path.name.split(".")[1] for path in tmp_path.iterdir()} == {"onnx"}
    with pytest.warns(UserWarning, match=f"no file '.*{MANIFEST}'"):
        assert not opsetta.load_session(tmp_path).prepack_status.used


@pytest.mark.parametrize("member", ["plain", "packed", "blobs"])
def test_a_manifest_with_an_empty_list_is_refused(folder, member):
    changed = dataclasses.replace(Manifest.from_folder(folder), **{member: ()})
    (folder / MANIFEST).write_bytes(changed.to_bytes())
    with pytest.raises(PrepackError, match="is damaged: it (does not list|lists no)"):
        opsetta.load_session(folder, on_mismatch="error")


@pytest.mark.parametrize("memory", ["auto", "fast", "low"])
def test_every_memory_gives_the_same_numbers(folder, memory):
    reference = run(onnxruntime.InferenceSession(str(folder / PLAIN)))
    session = opsetta.load_session(folder, memory=memory)
    assert session.prepack_status.used == (memory != "low")
    np.testing.assert_allclose(run(session), reference, atol=1e-5)
    entry = "session.disable_prepacking"
    (folder / MANIFEST).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error" if memory == "low" else "ignore")
        session = opsetta.load_session(folder, memory=memory)
    np.testing.assert_allclose(run(session), reference, atol=1e-5)
    if memory == "fast":
        with pytest.raises(RuntimeError):
            session.get_session_options().get_session_config_entry(entry)
        with pytest.raises(PrepackError, match="is a file"):
            opsetta.load_session(folder / PLAIN, memory=memory)
        return
    assert session.get_session_options().get_session_config_entry(entry) == "1"
    np.testing.assert_allclose(run(opsetta.load_session(folder / PLAIN, memory=memory)), reference, atol=1e-5)


def test_the_callers_options_are_not_changed(folder):
    options = onnxruntime.SessionOptions()
    with pytest.raises(UsageError, match=r"add_session_config_entry\('session.disable_prepacking', '1'\)"):
        opsetta.load_session(folder, memory="low", session_options=options)
    opsetta.load_session(folder / PLAIN, session_options=options)
    with pytest.raises(RuntimeError):
        options.get_session_config_entry("session.disable_prepacking")
    options.add_session_config_entry("session.disable_prepacking", "1")
    opsetta.load_session(folder, memory="low", session_options=options)


def test_full_verification_reads_a_file_once(folder, monkeypatch):
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    digests = []

    def count(path):
        digests.append(path.name)
        return original(path)

    original = file_records.file_digest
    monkeypatch.setattr(verified_files, "file_digest", count)
    for _ in range(2):
        assert opsetta.load_session(folder, verify="full").prepack_status.used
    [data] = folder.glob("*.data")
    assert sorted(digests) == sorted([PLAIN, PACKED, data.name])
    # A changed file is read again, and so is every file after a restart.
    content = bytearray(data.read_bytes())
    content[Manifest.from_folder(folder).blobs[0].offset] ^= 1
    data.write_bytes(content)
    with pytest.warns(UserWarning, match="packed weights"):
        assert not opsetta.load_session(folder, verify="full").prepack_status.used
    record = json.loads((folder / VERIFIED).read_text())
    (folder / VERIFIED).write_text(json.dumps({**record, "boot": "another"}))
    digests.clear()
    with pytest.warns(UserWarning, match="packed weights"):
        opsetta.load_session(folder, verify="full")
    assert len(digests) == 3
    (folder / VERIFIED).write_text("[")
    with pytest.warns(UserWarning, match="packed weights"):
        opsetta.load_session(folder, verify="full")


@pytest.mark.parametrize(("version", "level"), [("1.31.2", "full"), ("1.32.0", "size"), ("1.100.0", "size")])
def test_older_versions_of_onnxruntime_get_full_verification(folder, monkeypatch, version, level):
    used = []

    class Recorded(verified_files.VerifiedFiles):
        def digest_of(self, path):
            used.append(path)
            return super().digest_of(path)

    monkeypatch.setattr("opsetta.exporter.devices.prepack.packed_session.VerifiedFiles", Recorded)
    monkeypatch.setattr(onnxruntime, "__version__", version)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opsetta.load_session(folder)
    assert bool(used) == (level == "full")
