"""Opens a model for streaming: the graph in memory, the large weights in memory-mapped files."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

import onnx_ir as ir

from ....passes.planning.order import reads
from ....registration import ModelFileError, UsageError
from ...files.reading import ModelFolder, bounds_of, map_external_data, read_model, to_ir
from ...files.reading.carried import to_proto
from ...files.reading.external_data.files import ExternalFiles
from ...files.reading.names import quoted
from .folder import MODEL, VERIFICATIONS, Index, graph_of, save_streaming
from .mapped_weights import MappedWeight
from .preparation import is_streamed, prepare_for_streaming
from .segment_models import GraphParts
from .value_types import ValueType, value_types

_LARGE = 1 << 26
"""A file of at least this many bytes must contain weights."""
_REFUSED = 3
_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import opsetta
try:
    opsetta.save_streaming(opsetta.load(sys.argv[2], trusted=sys.argv[4] == "1"), sys.argv[3])
except opsetta.OpsettaError as error:
    sys.stdout.buffer.write(str(error).encode(errors="replace"))
    sys.exit(3)
"""


@dataclasses.dataclass(frozen=True)
class OpenedModel:
    """A model whose large weights are in files.

    Attributes:
        parts: the parts of the graph.
        weights: the large weights by name, in the order of use.
    """

    parts: GraphParts
    weights: dict[str, MappedWeight]


def open_model(model: object, staging: pathlib.Path, verify: str, trusted: bool) -> OpenedModel:
    """Open a folder that `save_streaming` wrote, a model file, or a model in memory.

    Weights that are not in external data, or not at a multiple of their element size, are written to
    `staging` first.

    Raises:
        UsageError: `model` has another type, or `verify` has an unknown value.
        ModelFileError: a file cannot be read, or is damaged.
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    if verify not in VERIFICATIONS:
        raise UsageError(f"verify must be {' or '.join(map(repr, VERIFICATIONS))}, not {verify!r}")
    if not isinstance(model, (str, bytes, os.PathLike)):
        graph_of(model)
        return _open_rewritten(model, staging)
    path = pathlib.Path(os.fsdecode(model))
    if path.is_dir():
        return _open_folder(path, verify, trusted)
    if path.is_file() and path.stat().st_size > _LARGE and _rewrite_in_child_process(path, staging, trusted):
        return _open_folder(staging, "size", trusted=True)
    source = to_ir(read_model(path, bounds_of(trusted)), ModelFolder.of(path), bounds_of(trusted))
    opened = _open_mapped(prepare_for_streaming(source), ModelFolder.of(path))
    if opened is None:
        map_external_data(source, ModelFolder.of(path))
        return _open_rewritten(source, staging)
    return opened


def _rewrite_in_child_process(path: pathlib.Path, staging: pathlib.Path, trusted: bool) -> bool:
    """Write a large file to a folder in a child process, whose exit frees the memory of the weights.

    Returns:
        Whether the child succeeded; otherwise this process must write the folder.

    Raises:
        ModelFileError: the file cannot be read or written.
    """
    if not sys.executable:
        return False
    # `sys.path` is passed on, so that the child imports the same opsetta.
    arguments = [json.dumps(sys.path), str(path.absolute()), str(staging), str(int(trusted))]
    try:
        process = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, check=False)
    except OSError:
        return False
    if process.returncode == _REFUSED:
        raise ModelFileError(process.stdout.decode(errors="replace"))
    # A child that was killed, for example for its memory, leaves the work to this process.
    return process.returncode == 0


def _open_rewritten(model: object, staging: pathlib.Path) -> OpenedModel:
    with tempfile.TemporaryDirectory(dir=staging) as folder:
        save_streaming(model, folder)
        # The mapping keeps the weights after the temporary file is removed.
        return _open_folder(pathlib.Path(folder), "size", trusted=True)


def _open_folder(folder: pathlib.Path, verify: str, trusted: bool) -> OpenedModel:
    index = Index.from_folder(folder)
    index.check(folder, verify)
    bounds = bounds_of(trusted)
    model_folder = ModelFolder.of(folder / MODEL)
    source = to_ir(read_model(folder / MODEL, bounds), model_folder, bounds)
    opened = _open_mapped(source, model_folder)
    assert opened is not None
    return opened


def _open_mapped(model: ir.Model, folder: ModelFolder) -> OpenedModel | None:
    """Open a prepared model with mapped external data; None if a large weight is elsewhere or unaligned."""
    files = ExternalFiles(folder, lambda subject, path: None)
    initializers = model.graph.initializers
    weights = {}
    for name, value in list(initializers.items()):
        tensor = value.const_value
        if tensor is None or not is_streamed(tensor):
            continue
        offset = (tensor.offset or 0) if isinstance(tensor, ir.ExternalTensor) else 1
        # onnxruntime reads the mapped memory as elements, which must be aligned.
        if offset % max(1, tensor.dtype.bitwidth // 8) or not isinstance(tensor, ir.ExternalTensor):
            return None
        data = files.contents(str(tensor.location), offset, tensor.nbytes, f"weight {quoted(name)}")
        value_type = ValueType(int(tensor.dtype), tuple(int(size) for size in tensor.shape.numpy()))
        weights[name] = MappedWeight(name, value_type, data)
        del initializers[name]
    map_external_data(model, folder)
    return OpenedModel(_graph_parts(model, weights), weights)


def _graph_parts(model: ir.Model, weights: Mapping[str, MappedWeight]) -> GraphParts:
    proto = to_proto(model)
    weight_types = {name: weight.type for name, weight in weights.items()}
    types = value_types(proto, weight_types)
    return GraphParts(
        proto,
        [list(dict.fromkeys(value.name or "" for value in reads(node))) for node in model.graph],
        {name: value_type for name, value_type in types.items() if name not in weight_types},
        weight_types,
        {tensor.name: tensor for tensor in proto.graph.initializer},
        {tensor.values.name: tensor for tensor in proto.graph.sparse_initializer},
        {info.name: info for info in proto.graph.input},
    )
