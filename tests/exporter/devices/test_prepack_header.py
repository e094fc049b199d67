"""`opsetta_prepack.h`: compiled with warnings as errors, it chooses the file that `load_session` opens."""

import json
import os
import re
import shutil
import subprocess
import warnings

import onnx.parser
import onnxruntime
import pytest

import opsetta
from opsetta.exporter.command_line.cli import main
from opsetta.exporter.devices.file_records import sign_json
from opsetta.exporter.devices.prepack.manifest import C_HEADER, MANIFEST, PACKED, PLAIN
from opsetta.registration import PrepackError
from tests.exporter.devices.c_programs import COMPILER, needs_compiler

pytestmark = needs_compiler
FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")
PROGRAM = """
#define OPSETTA_PREPACK_IMPLEMENTATION
#include "opsetta_prepack.h"
int main(int argc, char **argv) {
  char folder[4096];
  opsetta_prepack_session session = {argv[2], argv[3], "ORT_ENABLE_ALL", NULL};
  if (argc > 4) session.entries = (const char *const *)(argv + 4); /* argv ends in a NULL */
  while (fgets(folder, sizeof folder, stdin)) {
    char reason[256] = "";
    folder[strcspn(folder, "\\n")] = 0;
    printf("%d ", opsetta_prepack_check(folder, &session, argv[1][0] == '1', reason, sizeof reason));
    printf("%s\\n", reason);
  }
  return 0;
}
"""
PACKED_ANSWER, PLAIN_ANSWER, REFUSED_ANSWER = "0", "1", "2"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A packed folder, written by the command with its header, and the compiled check beside it."""
    path = tmp_path_factory.mktemp("header")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] x) => (float[4, 64] y)'
        "<float[64, 64] w = {" + ", ".join(str(i % 7) for i in range(4096)) + "}> { y = MatMul(x, w) }"
    )
    onnx.save(model, path / "model.onnx")
    with pytest.raises(SystemExit, match="0"):
        main(["prepack", str(path / "model.onnx"), "-o", str(path / "packed"), "--header"])
    (path / "check.c").write_text(PROGRAM)
    subprocess.run(
        [COMPILER, *FLAGS, "-I", path / "packed", "-o", path / "check", path / "check.c"], check=True
    )
    return path


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved / "packed", tmp_path / "packed")


def answers(saved, folders, *entries, verify=0, version=onnxruntime.__version__, environment=None):
    """The header's answer for each folder, and its reason."""
    build = onnxruntime.get_build_info()
    result = subprocess.run(
        [saved / "check", str(verify), version, build, *entries],
        input="".join(f"{folder}\n" for folder in folders),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | (environment or {}),
        timeout=60,
    )
    return [tuple(line.split(" ", 1)) for line in result.stdout.splitlines()]


def answer(saved, folder, *entries, **options):
    [only] = answers(saved, [folder], *entries, **options)
    return only


def opened(folder, verify="size"):
    """What `load_session` says of the folder, as the header does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            status = opsetta.load_session(folder, verify=verify).prepack_status
        except PrepackError:
            return REFUSED_ANSWER
    return PACKED_ANSWER if status.used else PLAIN_ANSWER


def edit(folder, change):
    """Change the manifest, and sign it again."""
    body = json.loads((folder / MANIFEST).read_bytes())
    del body["sha256"]
    change(body)
    (folder / MANIFEST).write_bytes(sign_json(body))


@pytest.mark.parametrize("verify", [0, 1])
def test_a_folder_as_it_was_saved(saved, folder, verify):
    assert answer(saved, folder, verify=verify) == (PACKED_ANSWER, "")


def test_another_environment(saved, folder):
    assert answer(saved, folder, version="1.31.0") == (PLAIN_ANSWER, '"onnxruntime"')
    limited = answer(saved, folder, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"})
    assert limited == (PLAIN_ANSWER, '"processor_limits"')
    entries = ("session.set_denormal_as_zero", "1")
    assert answer(saved, folder, *entries) == (PLAIN_ANSWER, '"session_entries"')
    edit(folder, lambda body: body["fingerprint"].update(session_entries=dict([entries])))
    assert answer(saved, folder, *entries) == (PACKED_ANSWER, "")
    assert answer(saved, folder) == (PLAIN_ANSWER, '"session_entries"')


def test_a_field_that_differs_is_named(saved, folder, tmp_path):
    fields = [
        ("architecture", "riscv64"),
        ("byte_order", "big"),
        ("operating_system", "darwin"),
        ("processor_flags", None),
        ("processor_flags", ["avx10.2", "sse"]),
        ("onnxruntime_build", "another"),
        ("providers", [["CUDAExecutionProvider", {}]]),
        ("providers", [["CPUExecutionProvider", {"a": "b"}]]),
        ("graph_optimization_level", "ORT_ENABLE_BASIC"),
        ("from_a_later_version", 1),
    ]
    folders = [shutil.copytree(folder, tmp_path / str(i)) for i in range(len(fields))]
    for changed, field in zip(folders, fields, strict=True):
        edit(changed, lambda body, field=field: body["fingerprint"].update([field]))
        assert opened(changed) == PLAIN_ANSWER
    assert answers(saved, folders) == [(PLAIN_ANSWER, f'"{field}"') for field, _ in fields]


def test_flags_that_no_kernel_uses_and_threads_may_differ(saved, folder):
    def change(body):
        flags = body["fingerprint"]["processor_flags"]
        flags += ["a_new_mitigation"]
        flags.remove("cpuid")
        body["fingerprint"]["threads"] = 7

    edit(folder, change)
    assert answer(saved, folder) == (PACKED_ANSWER, "")
    edit(folder, lambda body: body["fingerprint"]["processor_flags"].append("avx10.2"))
    assert answer(saved, folder) == (PLAIN_ANSWER, '"processor_flags"')


@pytest.mark.parametrize(
    ("pattern", "verify", "expected"),
    [
        (PLAIN, 0, REFUSED_ANSWER),
        (PACKED, 0, PLAIN_ANSWER),
        (f"{PACKED}.*.data", 0, REFUSED_ANSWER),
        (PLAIN, 1, REFUSED_ANSWER),
        (PACKED, 1, PLAIN_ANSWER),
    ],
)
def test_files_that_changed(saved, folder, pattern, verify, expected):
    [path] = folder.glob(pattern)
    content = bytearray(path.read_bytes())
    if verify:
        content[-1] ^= 1
    path.write_bytes(content if verify else content + b"\0")
    number, reason = answer(saved, folder, verify=verify)
    assert number == opened(folder, "full" if verify else "size") == expected
    assert path.name in reason
    path.unlink()
    assert answer(saved, folder)[0] == expected
    os.mkfifo(path)
    assert answer(saved, folder)[0] == expected


def test_a_manifest_that_is_missing_or_of_another_format(saved, folder):
    edit(folder, lambda body: body.update(format=20))
    assert answer(saved, folder) == (PLAIN_ANSWER, "prepack.json has another format than 2")
    edit(folder, lambda body: body.update(format=2, blobs=[]))
    assert answer(saved, folder) == (PLAIN_ANSWER, "prepack.json lists no packed weights")
    edit(folder, lambda body: body.update(plain=[{"name": "../model.onnx", "size": 1, "sha256": ""}]))
    assert answer(saved, folder)[0] == REFUSED_ANSWER
    (folder / MANIFEST).unlink()
    assert answer(saved, folder) == (PLAIN_ANSWER, "prepack.json is missing or damaged")
    assert opened(folder) == PLAIN_ANSWER


DAMAGED = {
    "empty": b"",
    "half": b'{"format": 2, "fingerprint": {"arch',
    "an escape at the end": b'{"format\\',
    "deep": b'{"a": ' + b"[" * 100_000,
    "many members": b'{"a": {' + b", ".join(b'"%d": 1' % n for n in range(100_000)) + b"}}",
    "no colon": b'{"a" 1}',
    "no values": b'{"a":}',
    "a list": b"[1, 2]",
    "a NUL": b'{"a": "\0"}',
}


def test_damaged_manifests(saved, folder, tmp_path):
    folders = [shutil.copytree(folder, tmp_path / name) for name in DAMAGED]
    for damaged, name in zip(folders, DAMAGED, strict=True):
        (damaged / MANIFEST).write_bytes(DAMAGED[name])
    expected = (PLAIN_ANSWER, "prepack.json is missing or damaged")
    assert dict(zip(DAMAGED, answers(saved, folders), strict=True)) == dict.fromkeys(DAMAGED, expected)


def test_signed_manifests_of_other_types_are_not_used(saved, folder, tmp_path):
    """Such a manifest may come from anybody."""
    values = [None, 5, "text", [], {}, [1, "two"], [[]], {"name": 1}]
    # `shared` says only which weights the plain model reads in the packed model's data file.
    parts = ["fingerprint", "plain", "packed", "blobs", "format", "layout"]
    changes = {f"{part} {value}": {part: value} for part in parts for value in values}
    # Of packed weights, it matters only that there are some.
    del changes["blobs [1, 'two']"], changes["blobs [[]]"]
    folders = [shutil.copytree(folder, tmp_path / str(number)) for number in range(len(changes))]
    for changed, change in zip(folders, changes.values(), strict=True):
        edit(changed, lambda body, change=change: body.update(change))
    reasons = dict(zip(changes, answers(saved, folders), strict=True))
    assert all(number in (PLAIN_ANSWER, REFUSED_ANSWER) and why for number, why in reasons.values()), reasons


def test_the_header_is_short(saved):
    source = (saved / "packed" / C_HEADER).read_text()
    assert len(source.splitlines()) <= 300
    assert not re.search(r"#include <(?!std|string|sys|limits)", source)
