import io
import json
import zipfile

import numpy as np
import onnx
import pytest

import opsetta


def archive(*names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for name in names:
            written.writestr(name, "")
    return buffer.getvalue()


def arrays():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones(2))
    return buffer.getvalue()


SAFETENSORS = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
FORMATS = [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git-lfs pointer.*git lfs pull"),
    (b"\x1f\x8b\x08\0\0\0\0\0", "gzip.*gunzip"),
    (b"\xfd7zXZ\0\0\4", "compressed archive"),
    (b"\n<!DOCTYPE html><html><body>404</body></html>", "HTML page.*raw file"),
    (b"\x89HDF\r\n\x1a\n\0", "HDF5.*model.export"),
    (b"\x1c\0\0\0TFL3\x14\0", "TensorFlow Lite.*tf2onnx"),
    (b"\x24\0\0\0ORTM\0\0", "ORT format.*ONNX file"),
    (b"GGUF\3\0\0\0" + bytes(16), "GGUF.*export --hf"),
    (len(SAFETENSORS).to_bytes(8, "little") + SAFETENSORS + bytes(4), "safetensors.*--weights"),
    (b"ftrt\0\0\0\0", "TensorRT engine.*made from"),
    (b"RKNN\0\0\0\0", "RKNN.*made from"),
    (b'<?xml version="1.0"?>\n<net name="g" version="11">', "OpenVINO"),
    (b'name: "n"\nlayer {\n  name: "c"\n  type: "Convolution"\n}\n', "Caffe 1"),
    (b"# Classes\nitem {\n  id: 1\n  name: 'cat'\n}\n", "label map.*saved_model.pb"),
    (b"model {\n  ssd {\n    num_classes: 3\n  }\n}\n", "training configuration.*frozen_inference_graph.pb"),
    (b"7767517\n3 3\nInput data 0 1 data\n", "ncnn"),
    (b"\x93NUMPY\1\0", "numpy array"),
    (b"\x80\4\x95\0\0\0\0", "pickle.*opsetta export PATH.py:FUNCTION"),
    # Version 5, a description, and the field 502 of an ML program.
    (b"\x08\5\x12\2\x0a\0\xb2\x1f\0", "Core ML"),
    (b"\n\x0f\x08\0\x10" + b"\xff" * 9 + b"\x01\x1a\0", "PaddlePaddle.*paddle2onnx"),
    (archive("m/constants.pkl", "m/code/x.py"), "TorchScript.*opsetta export .*model.any"),
    (archive("m/data.pkl", "m/version"), "torch.save.*opsetta export PATH.py:FUNCTION"),
    (archive("p/archive_format", "p/models/model.json"), "torch.export.save.*opsetta export"),
    (archive("config.json", "metadata.json", "model.weights.h5"), "Keras.*opsetta convert"),
    (archive("sub/model.onnx", "readme"), "zip archive.*sub/model.onnx"),
    (arrays(), "npz"),
    (b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>', "XML text.*error message"),
    (b'{"message": "Not Found"}', "JSON text.*error message"),
    (b'{"format": "layers-model", "modelTopology": {}}', "TensorFlow.js.*SavedModel"),
    (b'{"nodes": [], "arg_nodes": [0]}', "MXNet.*opsetta convert"),
    (b'{"learner": {"attributes": {}}}', "XGBoost.*onnxmltools"),
    (b"tree\nversion=v4\nnum_class=1\n", "LightGBM.*onnxmltools"),
    (b"# A net\n[net]\nbatch=1\n", "Darknet network.*opsetta export"),
    (bytes(4) + b"\2\0\0\0\5\0\0\0" + bytes(8), "Darknet weights.*opsetta export"),
    (b'"""A model."""\n\nimport torch\n', "Python code.*PATH.py:FUNCTION"),
    (b"\1HEF\0\0\0\2", "Hailo.*made from"),
    (b"IMOD\0\1", "Ascend.*made from"),
    (b"LDMK\0\0", "Kendryte.*made from"),
    (b"\x89PNG\r\n", "an image: pass a model"),
    (b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\2", "checkpoint of torch.save.*opsetta export"),
    (b"\x80\4\x95\0\x8c\x14sklearn.linear_model", "scikit-learn.*skl2onnx"),
    (archive("model", "model.params", "dlc.metadata"), "Qualcomm.*made from"),
    (b'{"architectures": ["BertModel"], "model_type": "bert"}', "Hugging Face folder.*export --hf"),
    (b'{"metadata": {"total_size": 1}, "weight_map": {}}', "Hugging Face folder.*export --hf"),
    (b'{"cells": [], "nbformat": 4}', "JSON text without a model"),
    (b"404: Not Found", "a text.*error message"),
    (b"Entry not found\n", "a text.*error message"),
    ("Entry".encode("utf-16"), "UTF-16.*-o FILE"),
    (b"%PDF-1.4\n\xff", "PDF"),
    (b"SQLite format 3\0\x10", "SQLite"),
    (b"// -----\nmodule attributes {torch.name = 1} {\n func.func @main() { }\n}\n", "MLIR"),
    (b"\x7fELF\2\1", "shared library.*made from"),
    (onnx.numpy_helper.from_array(np.ones(3, np.float32), "t").SerializeToString(), "ONNX tensor"),
    (b"Rar!\x1a\7\1\0", "compressed archive"),
    (archive(), "zip archive without files"),
    (b"\x1c\0\0\0" + b'{"description": "YOLO", "n": 1}' + b"ftrt\0\0", "TensorRT engine"),
    (b"tjgg\3\0\0\0", "GGML.*export --hf"),
    (b"\x20\0\0\0ET12\0\0", "ExecuTorch"),
    (b"\x81\xa6params\x81\xa5dense", "Flax"),
    (b"\x78\x9cK\4\0", "joblib.*skl2onnx"),
    (b"CBM1\0\0\0\0", "CatBoost.*format='onnx'"),
    (b"ML\xefR\rStableHLO_v1.0.0\0", "MLIR"),
    (b"RIFF\x24\0\0\0WAVEfmt ", "a sound or a video"),
    (b"PAR1\x15\4", "table of data"),
    (b"<<<<<<< HEAD\n", "conflict of git"),
    (b"\xef\xbb\xbf<html><head>", "HTML page"),
    (b"# Model card\n\nIt is `small`.\n", "a text without a model"),
    # The name of a network, and its layers in field 100.
    (b"\n\5LeNet\xa2\6\2\n\0", "weights of a Caffe 1 network"),
]


@pytest.mark.parametrize(("content", "message"), FORMATS, ids=[message[:14] for _, message in FORMATS])
def test_a_file_of_another_format_is_named_with_the_next_step(tmp_path, content, message):
    # The name says nothing: the content decides.
    path = tmp_path / "model.any"
    path.write_bytes(content)
    with pytest.raises(opsetta.ModelFileError, match=message):
        opsetta.load(path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["config.json", "model.safetensors"], "Hugging Face folder.*export --hf"),
        (["Manifest.json", "Data/model"], "Core ML package"),
        (["a.onnx"], "a folder: pass one of its files, such as .*a.onnx"),
        (["variables/variables.index"], "a SavedModel without its saved_model.pb: fetch"),
        (["saved_model/saved_model.pb"], "a folder: pass one of its SavedModels, such as .*saved_model"),
        ([], "folder"),
    ],
)
def test_a_folder_is_named_with_the_next_step(tmp_path, files, message):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(opsetta.ModelFileError, match=message):
        opsetta.load(tmp_path)


@pytest.mark.parametrize("producer", ["TFL3", "", "RKNN"])
def test_an_onnx_file_is_read_whatever_its_producer_is_called(tmp_path, producer):
    value = onnx.helper.make_tensor_value_info("x", 1, [2])
    output = onnx.helper.make_tensor_value_info("y", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [output])
    onnx.save(onnx.helper.make_model(graph, producer_name=producer), tmp_path / "m.tflite")
    assert opsetta.load(tmp_path / "m.tflite").input_names == ["x"]


def test_a_pointer_in_a_saved_model_is_named(tmp_path):
    (tmp_path / "saved_model.pb").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    with pytest.raises(
        opsetta.ModelFileError, match="a SavedModel whose saved_model.pb is a git-lfs pointer"
    ):
        opsetta.load(tmp_path)
