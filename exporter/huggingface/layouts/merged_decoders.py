"""One graph for both decoders of an encoder-decoder, which share their weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from ....passes.realizers import PrefixNames
from ...files.weights.stored_tensors import are_equal
from ..graphs import CACHE, PRESENT

MERGED_FILE = "decoder_model_merged.onnx"
USE_CACHE = "use_cache_branch"
"""The input that selects the decoder with a past; the names are optimum's."""
PAST_SOURCE = "past_encoder_sequence_length"


@dataclasses.dataclass(frozen=True)
class _Branch:
    """A decoder that becomes a branch.

    Attributes:
        prefix: of the names of its values, which differ from those of the other branch.
        model: a copy that may be changed.
    """

    prefix: str
    model: ir.Model

    @classmethod
    def of(cls, prefix: str, model: ir.Model) -> _Branch:
        copy = model.clone()
        PrefixNames(prefix)(copy)
        return cls(prefix, copy)

    def by_name(self, values: list[ir.Value]) -> dict[str, ir.Value]:
        """Values by their names without the prefix."""
        return {str(value.name).removeprefix(self.prefix): value for value in values}

    @property
    def weights(self) -> dict[str, ir.Value]:
        """The initializers without constants such as shapes, which runtimes look for in the branch."""
        constants = (ir.DataType.INT32, ir.DataType.INT64)
        return self.by_name(
            [
                value
                for value in self.model.graph.initializers.values()
                if value.const_value is not None
                and len(value.const_value.shape) > (1 if value.const_value.dtype in constants else 0)
            ]
        )


def merge_decoders(first: ir.Model, later: ir.Model) -> ir.Model:
    """The graph that runs one of two decoders, by the input `use_cache_branch`.

    The other inputs are those of both; a branch ignores those that it does not need. The later decoder
    returns empty tensors for the outputs that it does not have, as in optimum's files: the keys and values
    of cross-attention do not change.

    Args:
        first: the decoder of the first step, without a past.
        later: the decoder of the steps after it.
    """
    branches = [_Branch.of("first_step/", first), _Branch.of("later_steps/", later)]
    condition = ir.Value(name=USE_CACHE, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([1]))
    inputs = _take_inputs(branches)
    shared = _take_weights(branches)
    outputs = _merge_outputs(*branches)
    then_branch, else_branch = branches[1].model.graph, branches[0].model.graph
    node = ir.node(
        "If",
        [condition],
        attributes={"then_branch": then_branch, "else_branch": else_branch},
        outputs=outputs,
        name=USE_CACHE,
    )
    imports = {**later.opset_imports, **first.opset_imports}
    graph = ir.Graph(
        [*inputs, condition], outputs, nodes=[node], initializers=shared, opset_imports=imports, name="merged"
    )
    functions = [*first.functions.values(), *later.functions.values()]
    return ir.Model(
        graph, ir_version=first.ir_version, producer_name=first.producer_name, functions=functions
    )


def _take_inputs(branches: list[_Branch]) -> list[ir.Value]:
    """Replace the inputs of branches, which have none, by those of the graph around them."""
    inputs: dict[str, ir.Value] = {}
    for branch in branches:
        graph = branch.model.graph
        for name, value in branch.by_name(list(graph.inputs)).items():
            shape = value.shape
            if is_cross_cache(name) and shape is not None:
                # The caller passes empty tensors at the first step.
                shape = ir.Shape([PAST_SOURCE if axis == 2 else size for axis, size in enumerate(shape)])
            outer = inputs.setdefault(name, ir.Value(name=name, type=value.type, shape=shape))
            _replace(graph, value, outer)
        graph.inputs.clear()
    return list(inputs.values())


def _take_weights(branches: list[_Branch]) -> list[ir.Value]:
    """Move the weights of branches to the graph around them, equal ones once."""
    weights: list[ir.Value] = []
    by_name: dict[str, ir.Value] = {}
    for branch in branches:
        for name, value in branch.weights.items():
            del branch.model.graph.initializers[str(value.name)]
            outer = by_name.get(name)
            tensor = value.const_value
            assert tensor is not None
            if outer is None or outer.const_value is None or not are_equal(outer.const_value, tensor):
                # Weights that a pass computed for one of the branches keep the prefix of its names.
                outer = ir.Value(
                    name=name if outer is None else value.name,
                    type=value.type,
                    shape=value.shape,
                    const_value=tensor,
                )
                by_name.setdefault(name, outer)
                weights.append(outer)
            _replace(branch.model.graph, value, outer)
    return weights


def _replace(graph: ir.Graph, value: ir.Value, outer: ir.Value) -> None:
    """Replace a value of a branch by one of the graph around it; a branch cannot return that one itself."""
    if value.is_graph_output():
        copy = ir.node("Identity", [outer], name=f"{value.name}/copy")
        copy.outputs[0].name, copy.outputs[0].type = f"{value.name}/copy", value.type
        graph.insert_before(graph[0], copy)
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = copy.outputs[0]
    value.replace_all_uses_with(outer)


def _merge_outputs(first: _Branch, later: _Branch) -> list[ir.Value]:
    """Give both branches the outputs of the first one, in its order.

    Returns:
        The outputs of the graph around them.
    """
    outputs: list[ir.Value] = []
    own_outputs = later.by_name(list(later.model.graph.outputs))
    later.model.graph.outputs.clear()
    for name, value in first.by_name(list(first.model.graph.outputs)).items():
        own_output = own_outputs.get(name)
        if own_output is None:
            own_output = _add_empty(later, name, value)
            shape = value.shape
        else:
            shape = _common_shape(value.shape, own_output.shape)
        later.model.graph.outputs.append(own_output)
        outputs.append(ir.Value(name=name, type=value.type, shape=shape))
    return outputs


def _add_empty(branch: _Branch, name: str, like: ir.Value) -> ir.Value:
    """Add a constant without elements to a branch."""
    assert like.shape is not None
    assert like.dtype is not None
    # The first dynamic size is that of the batch.
    sizes = [size if isinstance(size, int) else int(axis > 0) for axis, size in enumerate(like.shape)]
    node = ir.node("Constant", [], attributes={"value": ir.tensor(np.empty(sizes, like.dtype.numpy()))})
    node.name = node.outputs[0].name = f"{branch.prefix}{name}"
    node.outputs[0].type, node.outputs[0].shape = like.type, ir.Shape(sizes)
    branch.model.graph.append(node)
    return node.outputs[0]


def _common_shape(shape: ir.Shape | None, other: ir.Shape | None) -> ir.Shape | None:
    """The sizes that two branches agree on; others have no name."""
    if shape is None or other is None:
        return None
    return ir.Shape(
        [size if size == other_size else None for size, other_size in zip(shape, other, strict=True)]
    )


def is_cross_cache(name: str) -> bool:
    """Whether an input or output has keys or values of cross-attention."""
    return name.startswith((f"{CACHE}.", f"{PRESENT}.")) and ".encoder." in name
