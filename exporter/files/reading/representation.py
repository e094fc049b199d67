"""Converts a model's message to onnx-ir without silent losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from ....registration import ModelFileError
from ....registration.arguments import every_node
from ....registration.warning import warn
from .bounds import BOUNDS, Bounds
from .carried import Carried, attach, take_out
from .checks.content import check_content
from .checks.graphs import DEVICE_CONFIGURATIONS, GraphChecks
from .checks.memory import check_memory
from .checks.metadata import canonical, check_entries, check_imports
from .checks.model_functions import check_calls, title_of
from .checks.notes import Notes
from .external_data.files import ExternalFiles, Folder
from .names import listed, quoted

LEFT_OUT = "left_out"
"""The key in a model's `meta` for the parts left out on reading, a tuple of sentences."""
_FUNCTION_VALUE_INFO = 10
"""The IR version from which functions declare types themselves."""
_OPSET_IMPORTS = 3
"""The IR version from which models import opsets; before it, operators have their first version."""
_NEWEST = max(onnx.Version.values())


def to_ir(proto: onnx.ModelProto, folder: Folder, bounds: Bounds = BOUNDS) -> ir.Model:
    """The model of a message.

    Refuses what onnx-ir cannot represent, corrects errors whose meaning is clear, and leaves out parts that
    do not affect the computation, with a warning and an entry in `model.meta["left_out"]`. docs/reading.md
    has the list. External data is checked but not read: its tensors are `onnx_ir.ExternalTensor`.

    Args:
        proto: the message. The model shares its memory, and the message may be changed: the caller must not
            use it afterwards, also after an error.
        folder: the folder of the model's file; external data is read only from there.
        bounds: what the model may take.

    Raises:
        ModelFileError: the message has parts that onnx-ir cannot represent, contradicts itself, or exceeds a
            bound.
    """
    notes = Notes()
    files = ExternalFiles(folder, notes.add)
    checks, carried = _check(proto, files, notes, bounds)
    try:
        model = ir.from_proto(proto)
        if checks.unsorted:
            _sort(model)
    except ir.serde.SerdeError as error:
        cause: BaseException = error
        # onnx-ir wraps the error once for each level of the message; the innermost names the reason.
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ModelFileError(f"onnx-ir cannot represent the model: {str(cause)[:300]}") from None
    except RecursionError:
        # The nesting of the file is bounded, so the caller used most of the stack.
        raise ModelFileError("the caller's stack is too deep to read the model") from None
    _complete(model, proto, files)
    if checks.tensor_metadata:
        _forget_copies(model)
    carried.packed = files.packed_weights()
    attach(model, carried)
    left_out = notes.sentences()
    if left_out:
        model.meta[LEFT_OUT] = left_out
        warn(f"the model is read without parts that have no effect: {'; '.join(left_out)}")
    return model


def _check(
    proto: onnx.ModelProto, files: ExternalFiles, notes: Notes, bounds: Bounds
) -> tuple[GraphChecks, Carried]:
    check_memory(proto, bounds)
    check_content(proto)
    title = "the model"
    if not 0 < proto.ir_version <= _NEWEST:
        raise ModelFileError(
            f"{title} is of IR version {proto.ir_version}, but the installed onnx supports 1 to {_NEWEST}"
        )
    if not proto.HasField("graph"):
        raise ModelFileError(f"{title} has no graph")
    if proto.configuration and proto.ir_version < DEVICE_CONFIGURATIONS:
        raise ModelFileError(
            f"{title} has device configurations, which IR version {proto.ir_version} does not have"
        )
    if proto.configuration and len({c.name for c in proto.configuration}) < len(proto.configuration):
        raise ModelFileError(f"{title} has two device configurations with the same name")
    if proto.ir_version < _OPSET_IMPORTS and not proto.opset_import:
        proto.opset_import.add(domain="", version=1)
    check_entries(proto.metadata_props, title)
    domains = check_imports(proto.opset_import, title)
    check_calls(proto, bounds)
    carried = take_out(proto, files)
    function_value_names = _function_value_names(proto)
    outer_declarations = {
        info.name: info for info in proto.graph.value_info if info.name in function_value_names
    }
    checks = GraphChecks(files, notes, function_value_names, proto.ir_version, proto.ByteSize(), bounds)
    checks.check_graph(proto.graph, domains, "the graph", None, False)
    _import_custom_domains(proto, domains, title)
    for function in proto.functions:
        function_title = title_of(function)
        _check_statements(function, outer_declarations, function_title)
        function_domains = check_imports(function.opset_import, function_title)
        checks.check_function(function, function_domains, function_title)
        _import_custom_domains(function, function_domains, function_title)
    return checks, carried


def _import_custom_domains(
    owner: onnx.ModelProto | onnx.FunctionProto, used_domains: set[str], title: str
) -> None:
    """Import version 1 of the custom domains that nodes use without an import, with a warning."""
    missing = sorted(used_domains - {canonical(entry.domain) for entry in owner.opset_import})
    for domain in missing:
        owner.opset_import.add(domain=domain, version=1)
    if missing:
        domains = listed([quoted(domain) for domain in missing])
        warn(f"{title} does not import {domains}, which its nodes use; version 1 is assumed")


def _function_value_names(proto: onnx.ModelProto) -> set[str]:
    """The names under which the main graph declares types of values in functions, before IR version 10."""
    if proto.ir_version >= _FUNCTION_VALUE_INFO:
        return set()
    return {
        f"{function.domain}::{function.name}/{name}"
        for function in proto.functions
        if not function.overload and "/" not in f"{function.domain}{function.name}"
        for name in [*function.input, *(output for node in function.node for output in node.output)]
    }


def _check_statements(
    function: onnx.FunctionProto, outer_declarations: Mapping[str, onnx.ValueInfoProto], title: str
) -> None:
    """Refuse a type within a function that the function and the main graph declare differently."""
    for info in function.value_info:
        outer_declaration = outer_declarations.get(f"{function.domain}::{function.name}/{info.name}")
        if outer_declaration is not None and outer_declaration.type != info.type:
            raise ModelFileError(f"{title} and the main graph declare {quoted(info.name)} differently")


def _graphs(model: ir.Model) -> Iterator[ir.Graph | ir.Function]:
    yield model.graph
    yield from model.functions.values()


def _sort(model: ir.Model) -> None:
    for graph in _graphs(model):
        try:
            graph.sort()
        except ValueError:
            raise ModelFileError(
                "the nodes of the model depend on their own outputs: the graph has a cycle"
            ) from None


def _complete(model: ir.Model, proto: onnx.ModelProto, files: ExternalFiles) -> None:
    """Add information that onnx-ir does not read: the folder of external data, types of functions' inputs."""
    for body in (model.graph, *(f.graph for f in model.functions.values())) if files.are_used else ():
        ir.external_data.set_base_dir(body, files.folder)
    for tensor in _tensors(a for f in model.functions.values() for a in f.attributes.values()):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = files.folder
    # onnx-ir reads the types of a function's values except those of its inputs.
    for message in proto.functions:
        stated = {info.name: info for info in message.value_info}
        function = model.functions[canonical(message.domain), message.name, message.overload]
        for value in function.inputs:
            if value.name in stated:
                ir.serde.deserialize_value_info_proto(stated[value.name], value)


def _forget_copies(model: ir.Model) -> None:
    """Drop the metadata of tensors in attributes, because their messages are written with it again."""
    attributes = [a for f in model.functions.values() for a in f.attributes.values()]
    attributes += [a for g in _graphs(model) for node in every_node(g) for a in node.attributes.values()]
    for tensor in _tensors(attributes):
        if isinstance(tensor, ir.serde.TensorProtoTensor):
            tensor.metadata_props.clear()


def _tensors(attributes: Iterable[ir.Attr]) -> Iterator[ir.TensorProtocol]:
    """The tensors in attributes."""
    for attribute in attributes:
        if attribute.value is None:
            continue
        if attribute.type == ir.AttributeType.TENSOR:
            yield attribute.value
        elif attribute.type == ir.AttributeType.TENSORS:
            yield from attribute.value
