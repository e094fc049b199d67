"""Removes unused nodes, outputs of branches and carried values of loops from a source graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import onnx_ir as ir
from onnx_ir import Value

from ...registration import MUTATES
from ...registration.arguments import arguments, blocks, replace_arguments, source_node
from ..source_builder import detach_node, is_unused
from .aliases import is_branch, is_loop


def prune(graph: ir.Graph, removable: Set[ir.Node]) -> None:
    """Remove unused values from a graph without writes and from its sub-blocks.

    Args:
        removable: the nodes that may be removed, in addition to branches and loops.
    """
    # Backwards, so that the readers of a node are removed before it.
    for node in reversed(list(graph)):
        has_blocks = is_branch(node) or is_loop(node)
        if (has_blocks or node in removable) and is_unused(node):
            _remove(node)
        elif is_branch(node):
            read_outputs = [index for index, output in enumerate(node.outputs) if _is_read(output)]
            node = _with_outputs(node, read_outputs, read_outputs)
            for block in blocks(node):
                prune(block, removable)
        elif is_loop(node):
            _prune_loop(node, removable)
        else:
            for block in blocks(node):
                prune(block, removable)


def _is_read(value: Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _remove(node: ir.Node) -> None:
    """Remove a node, and detach the inputs of the nodes in its sub-blocks."""
    for block in blocks(node):
        block.outputs.clear()
        for inner in reversed(list(block)):
            _remove(inner)
    detach_node(node)


def _prune_loop(node: ir.Node, removable: Set[ir.Node]) -> None:
    """Remove carried values that no iteration changes, and those that only their own next value reads."""
    [body] = blocks(node)
    carried = arguments(node)["carried"]
    needed = _needed_indices(node, body)
    for index, first in enumerate(carried):
        formal, result_index = body.inputs[index + 1], index + 1
        if index not in needed:
            body.outputs[result_index] = formal
        # Every iteration returns its input, so the value is always the initial one.
        if body.outputs[result_index] is formal and isinstance(first, Value):
            for user, input_index in list(formal.uses()):
                user.replace_input_with(input_index, first)
            _replace_output(node, node.outputs[index], first)
    prune(body, removable)
    needed = _needed_indices(node, body)
    remaining = [index for index in range(len(carried)) if index in needed or body.inputs[index + 1].uses()]
    if len(remaining) == len(carried):
        return
    block_indices = [0, *(index + 1 for index in remaining)]
    node = _with_outputs(node, remaining, block_indices)
    replace_arguments(node, {**arguments(node), "carried": [carried[index] for index in remaining]})
    formals = [body.inputs[result_index] for result_index in block_indices]
    body.inputs.clear()
    body.inputs.extend(formals)


def _needed_indices(node: ir.Node, body: ir.Graph) -> set[int]:
    """Return the carried values that are read after the loop, and those that they depend on."""
    index_of = {formal: index for index, formal in enumerate(body.inputs[1:])}
    needed = {index for index, output in enumerate(node.outputs) if _is_read(output)}
    # The condition of the loop is always needed.
    stack = [body.outputs[0], *(body.outputs[index + 1] for index in needed)]
    seen: set[Value] = set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        index = index_of.get(value)
        producer = value.producer()
        if index is not None and index not in needed:
            needed.add(index)
            stack.append(body.outputs[index + 1])
        elif producer is not None and producer.graph is body:
            stack += _read_values(producer)
    return needed


def _read_values(node: ir.Node) -> Iterable[Value]:
    """Return the values that a node and the nodes of its sub-blocks read."""
    yield from (value for value in node.inputs if value is not None)
    for block in blocks(node):
        yield from block.outputs
        for inner in block:
            yield from _read_values(inner)


def _replace_output(node: ir.Node, output: Value, by: Value) -> None:
    """Replace an output by a value defined before the node."""
    if output.is_graph_output():
        copy = Value(name=output.name, type=output.type, shape=output.shape)
        alias = source_node(
            "aten::alias",
            {"self": by},
            overload="default",
            outputs=[copy],
            metadata_props=node.metadata_props,
        )
        assert node.graph is not None
        node.graph.insert_before(node, alias)
        by = copy
    _redirect(output, by)


def _redirect(value: Value, by: Value) -> None:
    # The replacement takes over the mark that tells which input or buffer an output updates.
    if MUTATES in value.metadata_props:
        by.metadata_props[MUTATES] = value.metadata_props.pop(MUTATES)
    value.replace_all_uses_with(by, replace_graph_outputs=True)


def _with_outputs(node: ir.Node, output_indices: Sequence[int], block_indices: Sequence[int]) -> ir.Node:
    """Return the node with only some of its outputs, a new one unless all stay.

    Args:
        output_indices: positions of the outputs that stay.
        block_indices: positions of the outputs of its blocks that stay.
    """
    if len(output_indices) == len(node.outputs):
        return node
    for block in blocks(node):
        outputs = [block.outputs[block_index] for block_index in block_indices]
        block.outputs.clear()
        block.outputs.extend(outputs)
    old = [node.outputs[index] for index in output_indices]
    outputs = [Value(name=value.name, type=value.type, shape=value.shape) for value in old]
    replacement = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        list(node.attributes.values()),
        overload=node.overload,
        outputs=outputs,
        name=node.name,
        metadata_props=dict(node.metadata_props),
    )
    assert node.graph is not None
    node.graph.insert_before(node, replacement)
    for value, new in zip(old, outputs, strict=True):
        new.metadata_props.update({k: v for k, v in value.metadata_props.items() if k != MUTATES})
        _redirect(value, new)
    detach_node(node)
    return replacement
