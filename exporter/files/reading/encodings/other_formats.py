"""Recognizes model files of other tools by their content, and names the step that leads to an ONNX file."""

from __future__ import annotations

import codecs
import os
import pathlib
import re
import zipfile
from collections.abc import Collection

from .....registration import ModelFileError
from ...small_files import open_regular
from . import wire

_HEAD = 2**16
_FIRST_MODEL_TYPE = 200
"""Fields of a Core ML model from this number on contain its layers; ONNX has no field above 100."""
_CAFFE_LAYER = 100
"""The field of a Caffe network that has its layers."""
_RAW_DATA = 9
"""The field of a TensorProto that has its bytes; a model has no such field."""
_TENSOR_FIELDS = frozenset({1, 2, 8, _RAW_DATA})
_KERAS = (
    "install `opsetta[keras]` to read it here, or load it with keras.models.load_model, write a SavedModel "
    "with model.export('folder'), and run `opsetta convert folder`"
)
_CHECKPOINT = (
    "it has weights, and no program: write a function that builds the model and loads them, and run "
    "`opsetta export PATH.py:FUNCTION`"
)
_SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
_PARTS_OF_SAVED_MODELS = ("variables/variables.index", "fingerprint.pb", "keras_metadata.pb")
_UNPACK = "unpack it, and pass the file that it contains"
_COMPILED = "it is compiled for one device and cannot be converted: pass the ONNX file that it was made from"

_BY_HEAD: tuple[tuple[bytes, str, str], ...] = (
    (rb"version https://git-lfs", "a git-lfs pointer", "fetch the file itself with `git lfs pull`"),
    (rb"\x1f\x8b", "compressed by gzip", "unpack it with gunzip, and pass the file that it contains"),
    (
        rb"BZh[1-9]|\xfd7zXZ\0|\x28\xb5\x2f\xfd|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x04\x22\x4d\x18",
        "a compressed archive",
        _UNPACK,
    ),
    (rb"PK\x05\x06", "a zip archive without files", "download or copy it again"),
    (rb"(?s:.{257})ustar", "a tar archive", _UNPACK),
    (
        rb"(?si)\s*(<!--.*?-->\s*)?<(!doctype )?html",
        "an HTML page",
        "a download gave a web page instead of the file: download the raw file",
    ),
    (rb"\x89HDF\r\n", "an HDF5 file, such as a Keras model (.h5)", _KERAS),
    (
        rb"(?s:..)\0\0TFL3",
        "a TensorFlow Lite model",
        "pass the SavedModel that it was made from, or convert it with "
        "`python -m tf2onnx.convert --tflite FILE --output model.onnx`",
    ),
    (rb"(?s:..)\0\0ORTM", "a model in onnxruntime's ORT format", "pass the ONNX file that it was made from"),
    (
        rb"GGUF",
        "a GGUF file of llama.cpp",
        "export the Hugging Face folder that it was made from: `opsetta export --hf FOLDER`",
    ),
    (
        rb'(?s:...)\0{5}\{\s*"',
        "a safetensors file",
        "it has weights, and no program: write a function that builds the model on the meta device, and run "
        "`opsetta export PATH.py:FUNCTION --weights FILE`",
    ),
    (
        rb"lmgg|fmgg|tjgg|algg",
        "a GGML file of llama.cpp",
        "export the Hugging Face folder that it was made from: `opsetta export --hf FOLDER`",
    ),
    # Ultralytics writes the length of a JSON text, and the text, before the engine.
    (rb"(?s)(..\0\0\{[^\0]*\})?[fp]trt", "a TensorRT engine", _COMPILED),
    (rb"(?s:....)ET\d\d", "an ExecuTorch program (.pte)", "export the PyTorch model that it was made from"),
    (
        rb"[\x81-\x8f][\xa1-\xbf][A-Za-z_]",
        "a file of msgpack, such as weights of Flax",
        "load the weights into the PyTorch or TensorFlow model of the same name, and export that",
    ),
    (
        rb"x[\x01\x5e\x9c\xda]",
        "compressed by zlib, such as a file of joblib",
        "load it in Python, convert it with skl2onnx, and its result with `opsetta convert`",
    ),
    (rb"CBM1", "a CatBoost model", "write it with model.save_model('model.onnx', format='onnx')"),
    (rb"RKNN|CYPTRKNN", "a model for Rockchip's NPU (RKNN)", _COMPILED),
    (
        rb"(?s)\s*(<\?xml[^>]*>\s*)?<net\s",
        "an OpenVINO model (.xml)",
        "pass the ONNX, TensorFlow or PyTorch model that it was made from",
    ),
    (
        # Not the text form of ONNX, which begins with properties in angle brackets.
        rb"\s*<(\?xml\b|(?!ir_version|producer_|domain|model_version|doc_string|opset_import)[A-Za-z]\w*[\s>/])",
        "an XML text",
        "a download may have given an error message instead of the file: open it in an editor",
    ),
    (
        rb'(?s)\s*\{.*"format"\s*:\s*"(layers|graph)-model"',
        "a TensorFlow.js model",
        "pass the SavedModel or Keras model that it was made from",
    ),
    (
        rb'(?s)\s*\{.*"arg_nodes"\s*:',
        "an MXNet network",
        "convert it with mxnet.onnx.export_model, and its result with `opsetta convert`",
    ),
    (
        rb'tree\r?\nversion=|\s*\{\s*"learner"\s*:|\{L[\0-\xff]{8}learner',
        "a LightGBM or XGBoost model",
        "convert it with onnxmltools, and its result with `opsetta convert`",
    ),
    (
        rb'\s*\{\s*"(message|errors?|detail|code|status)"\s*:',
        "a JSON text",
        "a download may have given an error message instead of the file: open it in an editor",
    ),
    (
        rb'(?s)\s*\{.*"(model_type|architectures|weight_map|transformers_version|tokenizer_class)"\s*:',
        "a file of a Hugging Face folder",
        "export the folder: `opsetta export --hf FOLDER -o OUTPUT`",
    ),
    (
        # An ONNX or TensorFlow file as JSON begins with one of these keys.
        rb'\s*(\[(?![A-Za-z])|\{\s*"(?!(ir|opset|producer|model|doc|meta|training)_?[A-Z]?[a-z]+"|'
        rb'(domain|graph|functions|node|library|versions|name|op)")\w+"\s*:)',
        "not an ONNX file: a JSON text without a model",
        "pass the model file that it belongs to",
    ),
    (rb"\x93NUMPY", "a numpy array (.npy)", "pass the model that uses it"),
    (
        rb"(?s)[\s#\w].*\nlayers?\s*\{",
        "a Caffe 1 network",
        "convert it with a tool such as caffe2onnx or MMdnn",
    ),
    (
        # The first block of a ProgramDesc has the number 0, and the parent -1.
        rb"\n[\x80-\xff]*[\0-\x7f]\x08\0\x10\xff{9}\x01",
        "a PaddlePaddle program",
        "convert it with paddle2onnx, and its result with `opsetta convert`",
    ),
    (
        rb"(\s*#.*\n)*\s*item\s*:?\s*\{",
        "a label map of TensorFlow's Object Detection API",
        "pass the model that it belongs to, a frozen_inference_graph.pb or the folder of a saved_model.pb",
    ),
    (
        rb"(\s*#.*\n)*\s*model\s*:?\s*\{\s*(#.*\s*)*(ssd|faster_rcnn|center_net)\b",
        "a training configuration of TensorFlow's Object Detection API",
        "pass the model that it belongs to, a frozen_inference_graph.pb or the folder of a saved_model.pb",
    ),
    (rb"7767517\b", "an ncnn model", "pass the model that it was made from"),
    (
        rb"(\s*#.*\n)*\s*\[net(work)?\]",
        "a Darknet network (.cfg)",
        "build it in PyTorch with its weights, and run `opsetta export PATH.py:FUNCTION`",
    ),
    (
        rb"\0{4}[\x01-\x05]\0{3}[\0-\t]\0{3}",
        "Darknet weights",
        "build the network of its .cfg in PyTorch, and run `opsetta export PATH.py:FUNCTION`",
    ),
    (
        rb'(#[^\n]*\n|"""[^"]*"""|\s)*(import \w|from [\w.]+ import )',
        "Python code",
        "name the function in it that returns a model: `opsetta export PATH.py:FUNCTION`",
    ),
    (
        rb"\xff\xfe|\xfe\xff",
        "a text in UTF-16",
        "PowerShell may have written a model as text: write it with -o FILE instead of > FILE",
    ),
    (
        rb"ML\xefR|(\s*(//|#)[^\n]*\n)*\s*(builtin\.)?(module\b[^\n]*\{|func\.func\b)",
        "a program of MLIR",
        "pass the model that it was made from",
    ),
    (rb"SQLite format 3\0", "an SQLite database", "pass a model"),
    (rb"%PDF-", "a PDF document", "pass a model"),
    (
        # Two words or more. Texts of models begin with a name and its value.
        rb"(?!\s*([A-Za-z_]\w*\s*[:{<\[]|[#<{\[]))\s*[!-~]+\s+\S[\t\n\r\x20-\x7e]*\Z",
        "a text",
        "a download may have given an error message instead of the file: open it in an editor",
    ),
    (rb"<{7} ", "a text with a conflict of git", "resolve it, or check the file out again"),
    (
        rb"\x7fELF|MZ[\x00-\xff]\0|\0asm|[\xce\xcf]\xfa\xed\xfe|\xca\xfe\xba\xbe",
        "a program or a shared library",
        "pass the model that it was made from",
    ),
    (rb"\x01HEF", "a model for Hailo's accelerators (.hef)", _COMPILED),
    (rb"IMOD", "a model for Ascend's NPU (.om)", _COMPILED),
    (rb"LDMK|KMDL", "a model for Kendryte's accelerators (.kmodel)", _COMPILED),
    (rb"(?s)\x89PNG|\xff\xd8\xff|GIF8|RIFF....WEBP", "an image", "pass a model"),
    (rb"(?s)RIFF....(WAVE|AVI )|....ftyp|OggS|fLaC|ID3[\x02-\x04]\0", "a sound or a video", "pass a model"),
    (rb"PAR1|ARROW1\0", "a table of data", "pass a model"),
    # The magic number of torch.save before 1.6.
    (rb"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.", "a checkpoint of torch.save", _CHECKPOINT),
    (
        rb"(?s)\x80[\x02-\x05].*(sklearn|xgboost|lightgbm)",
        "a pickle of a scikit-learn, XGBoost or LightGBM model",
        "load it in Python, convert it with skl2onnx or onnxmltools, and its result with `opsetta convert`",
    ),
    (
        rb"\x80[\x02-\x05]",
        "a pickle of Python objects",
        "load it in Python, and export the model: `opsetta export PATH.py:FUNCTION`",
    ),
)
"""The first bytes of files of other formats, what the files are, and the next step."""


def refuse_other_formats(path: str | os.PathLike[str]) -> None:
    """Raise an error for a file or folder that is known to be a model of a format that is not converted.

    Raises:
        ModelFileError: the message names the format, and the command or tool for the next step.
    """
    description = describe_format(path)
    if description is not None:
        raise ModelFileError(f"'{os.fspath(path)!s}' is {description}")


def describe_format(path: str | os.PathLike[str]) -> str | None:
    """The format of a file or folder and the next step; None for other and for unreadable files."""
    try:
        location = pathlib.Path(os.fsdecode(path))
        if location.is_dir():
            return _describe_folder(location)
        with open_regular(location) as file:
            head = file.read(_HEAD)
            if head.startswith(b"PK\x03\x04"):
                with zipfile.ZipFile(file) as archive:
                    return _describe_archive(archive.namelist(), location)
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError, zipfile.BadZipFile):
        # The reader of the file reports why it cannot be read.
        return None
    # Programs on Windows write a byte order mark before a text.
    head = head.removeprefix(codecs.BOM_UTF8)
    for pattern, format_name, next_step in _BY_HEAD:
        if re.match(pattern, head):
            return f"{format_name}: {next_step}"
    field_numbers = _field_numbers(head, size)
    if field_numbers[:2] == [1, 2] and field_numbers[-1] >= _FIRST_MODEL_TYPE:
        return "a Core ML model: pass the PyTorch or TensorFlow model that it was made from"
    if _RAW_DATA in field_numbers and _TENSOR_FIELDS.issuperset(field_numbers):
        return "an ONNX tensor, such as an input of a test: pass the model that it is for"
    if _CAFFE_LAYER in field_numbers and max(field_numbers) == _CAFFE_LAYER:
        return "weights of a Caffe 1 network: convert them with a tool such as caffe2onnx or MMdnn"
    return None


def _describe_folder(folder: pathlib.Path) -> str | None:
    # TensorFlow models of the Hugging Face hub have both.
    graph_file = next((folder / name for name in _SAVED_MODELS if (folder / name).is_file()), None)
    if graph_file is not None:
        file_format = describe_format(graph_file)
        return None if file_format is None else f"a SavedModel whose {graph_file.name} is {file_format}"
    if any((folder / name).exists() for name in _PARTS_OF_SAVED_MODELS):
        return "a SavedModel without its saved_model.pb: fetch all files of the folder"
    saved_models = sorted(path.parent for name in _SAVED_MODELS for path in folder.glob(f"*/{name}"))
    if saved_models:
        return f"a folder: pass one of its SavedModels, such as {saved_models[-1]}"
    if (folder / "Manifest.json").is_file() and (folder / "Data").is_dir():
        return "a Core ML package: pass the PyTorch or TensorFlow model that it was made from"
    if (folder / "config.json").is_file():
        return f"a Hugging Face folder: run `opsetta export --hf {folder} -o OUTPUT`"
    models = sorted(entry.name for entry in folder.glob("*.onnx"))
    if models:
        return f"a folder: pass one of its files, such as {folder / models[0]}"
    return None


def _describe_archive(names: Collection[str], path: pathlib.Path) -> str:
    # PyTorch puts everything into one folder of the archive, with a name of its own.
    inner_names = {name.partition("/")[2] or name for name in names}
    if "constants.pkl" in inner_names:
        command = f"`opsetta export {path} --input 'float32[1,3,224,224]' -o model.onnx`"
        return f"a TorchScript file: run {command}, with an --input for each input"
    if "archive_format" in inner_names or "serialized_exported_program.json" in names:
        return f"a program of torch.export.save: run `opsetta export {path} -o model.onnx`"
    if "data.pkl" in inner_names:
        return f"a checkpoint of torch.save: {_CHECKPOINT}"
    if "dlc.metadata" in names:
        return f"a model for Qualcomm's engines (.dlc): {_COMPILED}"
    if {"config.json", "metadata.json"} <= set(names):
        return f"a Keras model (.keras): {_KERAS}"
    if names and all(name.endswith(".npy") for name in names):
        return "an archive of numpy arrays (.npz): pass the model that uses them"
    models = [name for name in names if name.endswith((".onnx", ".pb"))]
    return f"a zip archive: {_UNPACK}" + (f", such as {models[0]}" if models else "")


def _field_numbers(head: bytes, size: int) -> list[int]:
    """The numbers of a message's fields of strings and integers; empty for other bytes."""
    position, field_numbers = 0, []
    while position < len(head):
        tag, position = wire.varint(head, position, len(head))
        number, position = wire.varint(head, position, len(head)) if position >= 0 else (0, -1)
        if position < 0 or tag & 7 not in (0, 2):
            return []
        field_numbers.append(tag >> 3)
        position += number if tag & 7 == 2 else 0
    return field_numbers if position >= size or position > len(head) else []
