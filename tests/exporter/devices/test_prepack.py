"""Prepacked folders: used where they are valid, and never where they are not."""

import dataclasses
import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import opsetta
from opsetta.exporter.devices.file_records import FileRecord
from opsetta.exporter.devices.prepack import environment
from opsetta.exporter.devices.prepack.manifest import MANIFEST, PACKED, PLAIN, Manifest
from opsetta.exporter.files.digests import blob_digest
from opsetta.registration import ModelFileError, PrepackError, UsageError
from tests.exporter.devices.models import in_new_process, program, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("prepack") / "model"
    program().save(target, prepack=True)
    return target


@pytest.fixture(scope="module")
def plain(folder) -> np.ndarray:
    return run(_plain_session(folder))


def _plain_session(folder):
    import onnxruntime

    return onnxruntime.InferenceSession(str(folder / PLAIN))


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def data_file(folder):
    [found] = folder.glob(f"{PACKED}.*.data")
    return found


def rewrite(folder, **changes) -> None:
    """Write another manifest that is intact."""
    known = Manifest.from_folder(folder)
    (folder / MANIFEST).write_bytes(dataclasses.replace(known, **changes).to_bytes())


LOAD = """
import json, sys, opsetta
from tests.exporter.devices.models import run
rows = []
for folder in sys.argv[1:]:
    session = opsetta.load_session(folder)
    rows.append([session.prepack_status.used, str(session.prepack_status), run(session).tolist()])
print(json.dumps(rows))
"""
SAVE = """
import json, sys, opsetta
from tests.exporter.devices.models import run
opsetta.load(sys.argv[1]).save(sys.argv[2], prepack=True)
print(json.dumps(run(opsetta.load_session(sys.argv[2])).tolist()))
"""


def test_the_output_in_a_new_process_is_bit_equal_to_the_savers(folder, tmp_path):
    saved = in_new_process(SAVE, folder / PLAIN, tmp_path / "m")
    [[used, _, loaded]] = in_new_process(LOAD, tmp_path / "m")
    assert used
    assert saved == loaded
    np.testing.assert_allclose(np.array(loaded), run(_plain_session(tmp_path / "m")), atol=1e-5)


def test_loading_needs_onnxruntime_alone(folder):
    code = "import json, sys, opsetta; opsetta.load_session(sys.argv[1]); print(json.dumps([*sys.modules]))"
    assert not {"torch", "onnx", "onnx_ir", "sympy", "ml_dtypes"} & set(in_new_process(code, folder))


def test_the_folder_holds_both_models(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {PLAIN, PACKED, MANIFEST, data_file(folder).name}
    portable = onnx.load(folder / PLAIN)
    assert [entry.version for entry in portable.opset_import if entry.domain == ""] == [13]
    onnx.checker.check_model(portable, full_check=True)
    known = Manifest.from_folder(folder)
    assert {blob.weight for blob in known.blobs} == {"5.weight", "7.weight"}
    assert known.fingerprint["onnxruntime_build"].startswith("ORT Build Info")


def test_no_portable_file_has_a_native_node(folder, tmp_path):
    domains = [{node.domain for node in onnx.load(folder / name).graph.node} for name in (PLAIN, PACKED)]
    assert all("com.microsoft.nchwc" not in found for found in domains)
    native = tmp_path / "native"
    program().save(native, prepack=True, layout="native")
    found = {node.domain for node in onnx.load(native / PACKED).graph.node}
    assert "com.microsoft.nchwc" in found
    with pytest.raises(ModelFileError, match="wrote for one processor"):
        opsetta.load(native / PACKED).save(tmp_path / "copied.onnx")
    assert not (tmp_path / "copied.onnx").exists()


def test_native_layout_is_used_on_the_same_processor_only(tmp_path, monkeypatch, plain):
    native = tmp_path / "native"
    program().save(native, prepack=True, layout="native")
    session = opsetta.load_session(native)
    assert session.prepack_status.used
    np.testing.assert_allclose(run(session), plain, atol=1e-5)
    monkeypatch.setattr(environment, "_features", lambda: ["AVX", "AVX2"])
    with pytest.warns(UserWarning, match="processor_features"):
        session = opsetta.load_session(native)
    assert np.array_equal(run(session), plain)
    monkeypatch.setattr(environment, "_flags", lambda: None)
    with pytest.raises(PrepackError, match="lists the processor's instructions"):
        program().save(tmp_path / "other", prepack=True, layout="native")


FIELDS = {
    "architecture": "aarch64",
    "byte_order": "big",
    "operating_system": "darwin",
    "processor_features": ["AVX", "AVX2"],
    "processor_flags": None,
    "processor_limits": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "onnxruntime": "1.20.0",
    "onnxruntime_build": "another",
    "providers": [["CUDAExecutionProvider", {}], ["CPUExecutionProvider", {}]],
    "graph_optimization_level": "ORT_ENABLE_BASIC",
    "session_entries": {"session.disable_prepacking": "1"},
}


def test_every_field_is_checked(folder):
    assert {*FIELDS, "threads"} == set(Manifest.from_folder(folder).fingerprint)


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_differs_falls_back(copy, plain, field):
    rewrite(copy, fingerprint={**Manifest.from_folder(copy).fingerprint, field: FIELDS[field]})
    with pytest.warns(UserWarning, match=rf"{field} \(saved .+, here .+\)") as caught:
        session = opsetta.load_session(copy)
    assert len(caught) == 1
    assert [difference.field for difference in session.prepack_status.differences] == [field]
    assert np.array_equal(run(session), plain)
    with pytest.raises(PrepackError, match=field):
        opsetta.load_session(copy, on_mismatch="error")


def test_one_warning_names_every_field(copy):
    rewrite(copy, fingerprint={**Manifest.from_folder(copy).fingerprint, **FIELDS})
    with pytest.warns(UserWarning, match="are not used") as caught:
        opsetta.load_session(copy)
    assert all(field in str(caught[0].message) for field in FIELDS)
    assert len(caught) == 1


def test_threads_are_noted(copy, plain):
    rewrite(copy, fingerprint={**Manifest.from_folder(copy).fingerprint, "threads": 7})
    session = opsetta.load_session(copy)
    assert session.prepack_status.notes == ("threads (saved 7, here 0)",)
    np.testing.assert_allclose(run(session), plain, atol=1e-5)


def test_options_of_the_caller_are_compared(folder, plain):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    with pytest.warns(
        UserWarning, match=r"session_entries \(saved none, here session.disable_prepacking=1\)"
    ):
        session = opsetta.load_session(folder, session_options=options)
    assert np.array_equal(run(session), plain)


@pytest.mark.parametrize("name", [PLAIN, "missing"])
def test_another_plain_model_is_an_error(copy, name):
    if name == PLAIN:
        content = bytearray((copy / PLAIN).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / PLAIN).write_bytes(content)
    else:
        (copy / PLAIN).unlink()
    with pytest.raises(PrepackError, match=PLAIN):
        opsetta.load_session(copy, verify="full")


def test_a_damaged_weight_is_named(copy, plain):
    blob = Manifest.from_folder(copy).blobs[0]
    content = bytearray(data_file(copy).read_bytes())
    content[blob.offset : blob.offset + blob.size] = bytes(blob.size)
    data_file(copy).write_bytes(content)
    with pytest.warns(UserWarning, match=rf"packed weights: {blob.weight}"):
        session = opsetta.load_session(copy, verify="full")
    assert np.array_equal(run(session), plain)
    with pytest.warns(UserWarning, match="do not match"):  # onnxruntime's own comparison
        session = opsetta.load_session(copy)
    assert np.array_equal(run(session), plain)
    shared = Manifest.from_folder(copy).shared[0]
    content[shared.offset] ^= 1
    data_file(copy).write_bytes(content)
    with pytest.raises(PrepackError, match=rf"weights of '{PLAIN}': {shared.weight}"):
        opsetta.load_session(copy, verify="full")
    data_file(copy).unlink()
    with pytest.raises(PrepackError, match="cannot be read"):
        opsetta.load_session(copy)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_give_no_wrong_number(folder, plain, tmp_path_factory, data):
    names = [PLAIN, PACKED, MANIFEST, data_file(folder).name]
    name = data.draw(st.sampled_from(names), label="file")
    size = (folder / name).stat().st_size
    position = data.draw(st.integers(0, size - 1), label="position")
    mask = data.draw(st.integers(1, 255), label="mask")
    damaged = shutil.copytree(folder, tmp_path_factory.mktemp("flipped") / "m")
    content = bytearray((damaged / name).read_bytes())
    content[position] ^= mask
    (damaged / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            session = opsetta.load_session(damaged, verify="full")
        except PrepackError:
            return
    assert not session.prepack_status.used
    assert np.array_equal(run(session), plain)


def test_without_a_manifest_the_plain_model_is_taken(copy, plain):
    (copy / MANIFEST).unlink()
    with pytest.warns(UserWarning, match="there is no"):
        session = opsetta.load_session(copy)
    assert np.array_equal(run(session), plain)
    (copy / MANIFEST).write_text("[1, 2]")
    with pytest.warns(UserWarning, match="is damaged"):
        opsetta.load_session(copy)


def test_a_manifest_cannot_name_files_outside(copy):
    record = FileRecord("../elsewhere", 1, "0" * 64)
    rewrite(copy, packed=(record,))
    with pytest.warns(UserWarning, match="outside of the folder"):
        opsetta.load_session(copy)


def test_saving_again_replaces_everything(copy):
    before = {path.name for path in copy.iterdir()}
    program().lower(17).save(copy, prepack=True)
    assert opsetta.load_session(copy).prepack_status.used
    assert len({path.name for path in copy.iterdir()}) == len(before)


def test_packed_entries_survive_saving(folder, tmp_path):
    target = tmp_path / "again.onnx"
    opsetta.load(folder / PACKED).save(target, external_data=True)
    entries = {
        tensor.name: entry.value
        for tensor in onnx.load(target, load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key.startswith("prepacked")
    }
    known = {blob.weight: blob for blob in Manifest.from_folder(folder).blobs}
    assert set(entries) == set(known)
    [data] = tmp_path.glob("again.onnx.*.data")
    for name, text in entries.items():
        kernel, place = text.split("|")
        offset, size, _ = map(int, place.split(";"))
        assert (kernel, size) == (known[name].kernel, known[name].size)
        with open(data, "rb") as file:
            assert blob_digest(file, offset, size) == known[name].sha256
    converted = opsetta.load(folder / PLAIN).lower(17)
    converted.save(tmp_path / "converted.onnx", external_data=True)
    assert b"prepacked" not in (tmp_path / "converted.onnx").read_bytes()


def test_wrong_arguments(folder, tmp_path):
    with pytest.raises(UsageError, match="layout"):
        program().save(tmp_path / "m", prepack=True, layout="fast")
    with pytest.raises(UsageError, match="needs prepack=True"):
        program().save(tmp_path / "m.onnx", layout="native")
    with pytest.raises(UsageError, match="on_mismatch"):
        opsetta.load_session(folder, on_mismatch="use anyway")
    with pytest.raises(UsageError, match="verify"):
        opsetta.load_session(folder, verify="none")
    with pytest.raises(UsageError, match="session_options"):
        opsetta.load_session(folder, session_options={"threads": 1})
    with pytest.raises(UsageError, match="memory"):
        opsetta.load_session(folder, memory="least")
    with pytest.raises(PrepackError, match="no folder"):
        opsetta.load_session(tmp_path / "none")
    with pytest.raises(PrepackError, match="not a prepacked folder"):
        opsetta.load_session(tmp_path)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ModelFileError, match="cannot be written"):
        program().save(file, prepack=True)


def test_the_command(folder, tmp_path):
    command = [sys.executable, "-m", "opsetta.exporter.command_line.cli", "prepack", folder / PLAIN]
    done = subprocess.run(
        [*command, "-o", tmp_path / "m", "--json"], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout)["packed_weights"] == 2
    assert opsetta.load_session(tmp_path / "m").prepack_status.used
    assert (tmp_path / "m" / PLAIN).is_file()


ISAS = ("SSE41", "AVX2", "AVX512_CORE")


def test_every_pair_of_instruction_sets_is_right(folder, tmp_path, plain):
    for isa in ISAS:
        in_new_process(SAVE, folder / PLAIN, tmp_path / isa, ONEDNN_MAX_CPU_ISA=isa)
    for isa in ISAS:
        rows = in_new_process(LOAD, *(tmp_path / saved for saved in ISAS), ONEDNN_MAX_CPU_ISA=isa)
        for saved, (used, status, output) in zip(ISAS, rows, strict=True):
            assert used == (saved == isa), status
            np.testing.assert_allclose(np.array(output), plain, atol=1e-5)
