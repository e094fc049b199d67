import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from google.protobuf import json_format, text_format
from onnx import parser

from opsetta import ModelFileError
from opsetta.exporter.files.reading import BOUNDS, TRUSTED, Bounds, read_model
from opsetta.exporter.files.reading.encodings import model_files, wire

MODEL = parser.parse_model(
    '<ir_version: 10, opset_import: ["": 18]> g (float[n] x) => (float[n] y) <float[2] w = {1, 2}>'
    "{ a = Add(x, w) y = Relu(a) }"
)
MODEL.doc_string = "a 'b' \"c\" \\ # : { \n \u00e9 \U0001f600"
FORMS = {
    "binary": MODEL.SerializeToString(),
    "text": text_format.MessageToString(MODEL).encode(),
    "text in unicode": text_format.MessageToString(MODEL, as_utf8=True).encode(),
    "text with a comment": b"# made by hand\n\n  # {\n" + text_format.MessageToString(MODEL).encode(),
    "ONNX syntax": onnx.printer.to_text(MODEL).encode(),
    "ONNX syntax with a comment": b"# a <\n" + onnx.printer.to_text(MODEL).encode(),
    "JSON": json_format.MessageToJson(MODEL).encode(),
    "JSON after a mark": b"\xef\xbb\xbf\n " + json_format.MessageToJson(MODEL).encode(),
    "JSON by proto names": json_format.MessageToJson(MODEL, preserving_proto_field_name=True).encode(),
}


@pytest.mark.parametrize("name", ["m.onnx", "m.onnxtxt", "m.textproto", "m.json", "m"])
@pytest.mark.parametrize("form", FORMS)
def test_the_content_tells_the_form(form, name, tmp_path):
    (tmp_path / name).write_bytes(FORMS[form])
    assert read_model(tmp_path / name) == MODEL


def test_the_largest_floats_in_json(tmp_path):
    largest = float(np.finfo(np.float32).max)
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.doc_string = 'not a number: 3.4028235e+38, "-3.4028235e+38'
    model.graph.node[0].attribute.extend(
        [
            onnx.helper.make_attribute("limit", -largest),
            onnx.helper.make_attribute("limits", [largest, 1.0, -largest]),
        ]
    )
    model.graph.initializer.add(name="floats", data_type=1, dims=[2]).float_data.extend([-largest, largest])
    model.graph.initializer.add(name="doubles", data_type=11, dims=[1]).double_data.append(3.4028235e38)
    (tmp_path / "m.json").write_text(json_format.MessageToJson(model))
    assert read_model(tmp_path / "m.json") == model


def test_a_field_order_that_looks_like_text(tmp_path):
    for name, value in (("opset_import", "B"), ("metadata_props", "r")):
        first = onnx.ModelProto()
        entry = getattr(first, name).add()
        entry.ParseFromString(onnx.OperatorSetIdProto(domain="d" * 54, version=1).SerializeToString()[:56])
        data = first.SerializeToString() + MODEL.SerializeToString()
        assert data.startswith(value.encode())
        (tmp_path / "m").write_bytes(data)
        assert len(read_model(tmp_path / "m").graph.node) == 2


def refused(path, match, bounds=BOUNDS):
    with pytest.raises(ModelFileError, match=match):
        read_model(path, bounds)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "it is empty"),
        (b"\0hello", "not a protobuf message; if it is one, download or copy it again"),
        (b"hello", "a text without a model"),
        (FORMS["binary"][:-1], "it is truncated"),
        (FORMS["text"][:-3], "is not an ONNX file: "),
        (FORMS["JSON"][:-3], "is not an ONNX file: "),
        (b"\x08\x0a", "no IR version or no graph"),
        (b"\x08\x0a\x3a\xff\xff\xff\xff\x0f", "it is truncated"),
        (b"<ir_version: 8> g () => () {", "is not an ONNX file: line 1, column 29: Expected"),
        (b"<ir_version: 8> g (seq(" + b"seq(" * 100 + b"float) x) => () {}", "nested more than 100 deep"),
        (b"<ir_version: 8, \x1b[31m>", r"line 1, column [0-9]+: "),
        (b"ir_version: 8 graph { nodes {} }", 'line 1, column [0-9]+: .* no field named "nodes"'),
        (b'ir_version: 8 graph { node { name: "\\377" } }', "line 1"),
        (b"ir_version: 8 ir_version: 9 graph {}", "multiple"),
        (b'{"irVersion": 8, "irVersion": 9}', "duplicate key"),
        (b'{"irVersion": 8, "graph": 3}', "graph"),
        (b'{"irVersion": "\xff"}', "it is not JSON in UTF-8, at byte 15"),
        (b'{"irVersion": 1e999, "graph": {}}', "irVersion"),
    ],
)
def test_what_is_no_model(content, match, tmp_path):
    (tmp_path / "m.onnx").write_bytes(content)
    refused(tmp_path / "m.onnx", match)


def test_what_is_no_file(tmp_path):
    refused(tmp_path / "none.onnx", "cannot be read: No such file")
    refused(tmp_path, "it is a folder")
    refused(f"{tmp_path}/a\0b", "cannot be read")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    refused("/dev/zero", "not a regular file")


def test_more_bytes_than_a_message_has(tmp_path, monkeypatch):
    with open(tmp_path / "m.onnx", "wb") as file:
        file.truncate(2**31)
    refused(tmp_path / "m.onnx", "it has 2147483648 bytes, more than 2147483647")
    (tmp_path / "m.onnx").write_bytes(FORMS["binary"])
    monkeypatch.setattr(model_files, "MAXIMUM_BYTES", 10)
    refused(tmp_path / "m.onnx", "more than 10")


def nested(levels: int) -> bytes:
    model = b""
    for number in [1, 5, 6] * levels:
        size = len(model)
        assert size < 2**14
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        model = bytes([{1: 6, 5: 5, 6: 1}[number] << 3 | 2]) + length + model
    size = len(model)
    return b"\x08\x0a\x3a" + bytes([size & 127 | 128, size >> 7]) + model


def test_nesting_is_bounded_in_every_form(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(nested(32))
    deepest = read_model(path)
    for form in (text_format.MessageToString, json_format.MessageToJson):
        path.write_text(form(deepest))
        assert read_model(path) == deepest
    path.write_bytes(nested(40))
    refused(path, "nested more than 100 deep")
    for levels in (101, 5_000, 300_000):
        path.write_text("ir_version: 8 graph " + "{ node { attribute { g " * levels)
        refused(path, "nested more than 100 deep")
        path.write_text('{"graph": ' + '{"node": ' * levels)
        refused(path, "nested more than 100 deep")
    path.write_text("ir_version: 8 graph {} doc_string: '" + "{" * 1000 + "' # " + "{" * 1000)
    assert read_model(path).doc_string == "{" * 1000


def test_what_protobuf_takes_is_counted_before_it_is_parsed(tmp_path):
    empty = onnx.ModelProto(ir_version=8)
    empty.graph.doc_string = "\n\0" * 1000
    data = empty.SerializeToString() + b"\x3a\xe8\x07" + b"\x0a\x00" * 500
    wire.check(data, Bounds(parsed=80_000))
    with pytest.raises(wire.BoundError, match="pass trusted=True"):
        wire.check(data, Bounds(parsed=70_000))
    with pytest.raises(wire.BoundError, match="more than 300 fields"):
        wire.check(data, Bounds(parsed=80_000, fields=300))
    wire.check(data[:-600], Bounds(parsed=50_000))
    wire.check(b"\x0f" * 5000, Bounds(parsed=10))
    wire.check(data, TRUSTED)
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a\x3a\x80\x92\xf4\x01" + b"\x0a\x00" * 2_000_000)
    refused(tmp_path / "m.onnx", "protobuf would take more than 127 MiB for 4000007 bytes")


def test_values_of_a_text_are_counted_before_they_are_made(tmp_path):
    few = Bounds(text_values=100)
    path = tmp_path / "m"
    for content in ("ir_version: 8 graph {" + "node {}" * 60 + "}", '{"irVersion": [' + "1," * 200):
        path.write_text(content)
        refused(path, "it holds more than 100 values; if you trust", few)
    path.write_text("ir_version: 8 graph {} doc_string: '" + "{,}:" * 1000 + "'")
    read_model(path, few)
    refused(path, "text is read up to 1000; save it as binary", Bounds(text_bytes=1000))


@pytest.mark.parametrize(
    "contents", [bytes(range(256)) * 2000, b"'" * 200_000, b"\\" * 150_001, b"a" * 300_000]
)
def test_long_strings_of_a_text_are_cut_and_put_together(contents, tmp_path):
    model = onnx.ModelProto(ir_version=8)
    model.graph.initializer.add(name="w").raw_data = contents
    model.graph.doc_string = "\u00e9\n" * 5000
    (tmp_path / "m").write_text(text_format.MessageToString(model))
    assert read_model(tmp_path / "m") == model


@pytest.mark.parametrize("end", ["", "\\", '"', "'", "\n", "\\\n"])
def test_long_strings_that_do_not_end(end, tmp_path):
    for form in ('ir_version: 8 doc_string: "', '{"docString": "'):
        for body in ("a" * 200_000, '\\"' * 100_000, "\\\\" * 100_000):
            (tmp_path / "m").write_text(form + body + end)
            refused(tmp_path / "m", "is not an ONNX file|cannot be read")


def test_memory_stays_in_proportion_to_the_file(tmp_path):
    """Twelve megabytes of escapes in one string take protobuf's parser more than a gigabyte."""
    model = onnx.ModelProto(ir_version=8)
    model.graph.initializer.add(name="w").raw_data = bytes(range(256)) * 2**13
    (tmp_path / "m.onnxtxt").write_text(text_format.MessageToString(model))
    code = (
        "import json, resource, sys; from opsetta.exporter.files.reading import read_model\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); read_model(sys.argv[1]); print(json.dumps(peak() - before))"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "m.onnxtxt")]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=True, timeout=120)
    assert json.loads(done.stdout) < 250_000
