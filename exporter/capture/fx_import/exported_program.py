"""Converts a `torch.export.ExportedProgram` to a source graph."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from ....registration import NUMBER, RANGES, CaptureError, Names
from ...captured_graph.capture import Capture, Interface, graph_outputs
from ...files.garbage_collection import rare_for
from ...torch_boundary.containers.structures import leaf_names
from ...torch_boundary.fake_tensors import is_traceable_wrapper_subclass, storage_of
from ...torch_boundary.operators.overloads import OpOverload, schema_of
from ..descriptions import describe_input, describe_state, ranges
from ..tensor_kinds import check
from ..weights import Identity, first_names, identity, without_repetitions
from .captured_program import CapturedProgram
from .fx_graph import mutates
from .higher_order import Importer
from .source_values import NamedDimensions, describe, tensor_type

_KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "user",
}
_COMPONENT = "export::access_subclass_inner_tensor"
"""torch.export's operator for a plain tensor inside a tensor of a subclass, such as a quantized weight."""


def import_exported_program(
    program: CapturedProgram,
    *,
    names: Mapping[object, str] | None = None,
    unproven: Mapping[str, Container[int]] | None = None,
    source_lines: bool = False,
) -> Capture:
    """Turn an exported program into a source graph.

    Args:
        program: the result of torch.export (training IR) or of direct capture, which is not changed.
        names: a name for each symbol; those of `symbol_names` unless given.
        unproven: axes whose sizes in the program are not reliable, by name of the value.
        source_lines: keep the user's source line on every node.

    Raises:
        CaptureError: a source graph cannot represent the program.
    """
    names_by_symbol = symbol_names(program, {}) if names is None else names
    importer = _ProgramImporter(program, names_by_symbol, unproven or {}, source_lines)
    with rare_for(len(program.graph.nodes)):
        return importer.run()


def symbol_names(program: CapturedProgram, user_names: Mapping[tuple[int, int], str]) -> dict[object, str]:
    """A name for each symbol: the user's, else the input and axis of its first use.

    Args:
        user_names: the user's names by (position among the call's leaves, axis).
    """
    names: dict[object, str] = {}
    positions = []
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    users = (
        node
        for node, specification in zip(placeholders, program.graph_signature.input_specs, strict=True)
        if specification.kind == InputKind.USER_INPUT
    )
    for leaf, node in enumerate(users):
        example = node.meta.get("val")
        if isinstance(example, torch.Tensor):
            positions += [(leaf, axis, node.name, size) for axis, size in enumerate(example.shape)]
    # The user's names come first, so that a symbol of several inputs has the user's name.
    for named in (True, False):
        for leaf, axis, stem, size in positions:
            if isinstance(size, int) or not size.node.expr.is_Symbol or size.node.expr in names:
                continue
            name = user_names.get((leaf, axis))
            if (name is not None) == named:
                # Two symbols to which the user gave the same name have the same size.
                names[size.node.expr] = name or f"{stem}_dim_{axis}"
    return names


class _ProgramImporter:
    def __init__(
        self,
        program: CapturedProgram,
        names: Mapping[object, str],
        unproven: Mapping[str, Container[int]],
        source_lines: bool,
    ):
        self._program = program
        self._names = Names()
        self._placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._specifications = program.graph_signature.input_specs
        self._dimensions = NamedDimensions(names, unproven=unproven)
        self._importer = Importer(
            program.graph_module, self._dimensions, self._names, source_lines=source_lines
        )
        self._tied: dict[Identity, ir.Value] = {}
        # A tensor of others has no memory of its own.
        self._identities = {
            name: (id(item),) if is_traceable_wrapper_subclass(item) else identity(name, item)
            for name, item in program.state_dict.items()
        }
        self._first_names = first_names(self._identities.items())

    def run(self) -> Capture:
        inputs: list[ir.Value] = []
        leaves: list[str | None] = []
        constants: list[object] = []
        initializers: list[ir.Value] = []
        for node, specification in zip(self._placeholders, self._specifications, strict=True):
            if specification.kind == InputKind.USER_INPUT:
                value = self._user_input(node)
                constant = getattr(specification.arg, "value", None) if value is None else None
                self._importer.bind(node, constant if value is None else value)
                leaves.append(None if value is None else value.name)
                constants.append(constant)
                if value is not None:
                    inputs.append(value)
            # An unused weight has no place in the file.
            elif node.users:
                self._bind_state(node, specification, initializers)
            else:
                self._importer.bind(node, None)
        results = self._importer.run(self._program.graph)
        outputs, entries = self._outputs(results)
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self._importer.nodes,
            initializers=[*initializers, *self._importer.initializers],
            opset_imports={node.domain: 1 for node in self._importer.nodes},
            name="source",
        )
        interface = Interface(
            input_specification=self._program.call_spec.in_spec,
            output_specification=self._program.call_spec.out_spec,
            inputs=leaves,
            constants=constants,
            outputs=entries,
            numbers=[i for i, value in enumerate(outputs) if NUMBER in value.metadata_props],
        )
        origins = {node.name: value for node, value in self._importer.origins.items()}
        model = ir.Model(graph, ir_version=10, producer_name="opsetta")
        size_ranges = ranges(self._program.range_constraints, self._dimensions.names)
        if size_ranges is not None:
            model.metadata_props[RANGES] = size_ranges
        return Capture(model, interface, self._program, origins)

    def _user_input(self, node: torch.fx.Node) -> ir.Value | None:
        example = node.meta.get("val")
        check("input", node.name, example, "pass")
        value = describe(ir.Value(name=self._names.unique(node.name)), example, self._dimensions)
        if value.type is None:
            return None
        describe_input(value.metadata_props, example)
        return value

    def _bind_state(
        self, node: torch.fx.Node, specification: InputSpec, initializers: list[ir.Value]
    ) -> None:
        """Bind a parameter, buffer or lifted constant to its value; a random generator to None.

        ONNX's random operators have their own generators.
        """
        name = specification.target
        assert name is not None, "only a leaf of the call has no name"
        if isinstance(self._program.constants.get(name), torch.Generator):
            self._importer.bind(node, None)
            return
        if specification.kind not in _KINDS:
            raise CaptureError(
                f"input '{node.name}' is a {specification.kind.name}, which ONNX does not support"
            )
        tensor = self._program.state_dict.get(name)
        if tensor is None:
            tensor = self._program.constants.get(name)
        if not isinstance(tensor, torch.Tensor):
            raise CaptureError(f"'{name}' is a {type(tensor).__name__}, which ONNX does not support")
        if is_traceable_wrapper_subclass(tensor):
            name = self._first_names.get(self._identities.get(name, ()), name)
            self._bind_components(node, specification, name, tensor, initializers)
        else:
            self._importer.bind(node, self._state(node, specification, name, tensor, initializers))

    def _bind_components(
        self,
        node: torch.fx.Node,
        specification: InputSpec,
        name: str,
        tensor: torch.Tensor,
        initializers: list[ir.Value],
    ) -> None:
        """Bind the readers of a tensor that consists of others, such as the integers and scales of a weight.

        Raises:
            CaptureError: an operator reads the tensor as a whole.
        """
        for reader in node.users:
            target = reader.target
            if not isinstance(target, OpOverload) or schema_of(target).name != _COMPONENT:
                raise CaptureError(
                    f"{_KINDS[specification.kind]} '{name}' is a {type(tensor).__name__}, which {target} "
                    "reads as a whole: compute with its plain tensors instead, or register "
                    "a floating-point tensor"
                )
            component: torch.Tensor = getattr(tensor, str(reader.args[1]))
            path = f"{name}.{reader.args[1]}"
            # A component may consist of tensors itself: those are what its readers read.
            if is_traceable_wrapper_subclass(component):
                self._bind_components(reader, specification, path, component, initializers)
            else:
                value = self._state(reader, specification, path, component, initializers)
                self._importer.bind(reader, value)
        self._importer.bind(node, None)

    def _state(
        self,
        node: torch.fx.Node,
        specification: InputSpec,
        name: str,
        tensor: torch.Tensor,
        initializers: list[ir.Value],
    ) -> ir.Value:
        """The value of a tensor of the state; weights that share memory are one value."""
        check(_KINDS[specification.kind], name, tensor, "register")
        if tensor.device.type == "meta":
            raise CaptureError(f"'{name}' is on the meta device: it has no data to export")
        # Tied weights have one value, under the first of their names in the state dict.
        key = self._identities.get(name) or identity(name, tensor)
        if key in self._tied:
            return self._tied[key]
        name = self._first_names.get(key, name)
        expanded_shape = tensor.shape
        if (
            specification.kind != InputKind.PARAMETER
            and storage_of(node.meta["val"]) not in self._written_storages
        ):
            tensor = without_repetitions(tensor)
        value = ir.Value(
            name=self._names.unique(name),
            type=tensor_type(tensor),
            shape=ir.Shape(tensor.shape),
            const_value=tensor_adapters.TorchTensor(tensor.detach(), name=name),
        )
        describe_state(
            value.metadata_props,
            _KINDS[specification.kind],
            tensor,
            persistent=specification.persistent is not False,
        )
        initializers.append(value)
        if tensor.shape != expanded_shape:
            like = ir.Value(name=value.name, type=value.type, shape=ir.Shape(expanded_shape))
            arguments = {"self": value, "size": list(expanded_shape), "implicit": False}
            value = self._importer.emit("aten::expand", arguments, like)
        self._tied[key] = value
        return value

    @functools.cached_property
    def _written_storages(self) -> set[object]:
        """The storages of the tensors that operators which write take."""
        return {
            storage_of(operand.meta["val"])
            for node in self._program.graph.nodes
            if mutates(node)
            for operand in node.all_input_nodes
            if isinstance(operand.meta.get("val"), torch.Tensor)
        }

    def _outputs(self, results: Sequence[object]) -> tuple[list[ir.Value], list[int | list[object]]]:
        kinds = [specification.kind for specification in self._program.graph_signature.output_specs]
        if any(output_kind != OutputKind.USER_OUTPUT for output_kind in kinds):
            raise CaptureError(
                "run_decompositions was called on the ExportedProgram, which is not supported: pass the one "
                "that torch.export.export returned"
            )
        paths = leaf_names(self._program.call_spec.out_spec, "output")
        [returned] = (node.args[0] for node in self._program.graph.nodes if node.op == "output")
        for path, node in zip(paths, returned, strict=True):
            if isinstance(node, torch.fx.Node):
                check("output", path, node.meta.get("val"), "return")
        return graph_outputs(results)


def output_names(capture: Capture) -> list[str]:
    """A name for each graph output, from its path in the model's result: `logits`, `output`, `hidden_0`."""
    paths = leaf_names(capture.interface.output_specification, "output")
    by_position = {
        entry: path
        for entry, path in zip(capture.interface.outputs, paths, strict=True)
        if isinstance(entry, int)
    }
    return [by_position[position] for position in sorted(by_position)]
