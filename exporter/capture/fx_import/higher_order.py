"""Converts torch.export's higher-order operators: fx nodes that take graphs become nodes with sub-blocks.

A node keeps the operator's own names: `higher_order::cond` has the arguments `pred` and `operands` and the
graph attributes `true_graph` and `false_graph`. The known operators, with the inputs of their blocks:

    cond                                  true_graph, false_graph     operands
    while_loop, while_loop_stack_output   cond_fn, body_fn            carried_inputs, additional_inputs
    scan                                  combine_fn                  init, a slice of xs, additional_inputs
    associative_scan                      combine_fn                  two slices of xs, additional_inputs
    map_impl                              f                           a slice of xs, pos_args
    range_loop                            body_fn                     init, the index, additional_inputs

Every output of a block is a distinct value of that block: numbers, inputs, and values returned twice go
through `prim::Constant` and `aten::alias` nodes. The outputs of a block correspond to the node's outputs by
position; results that are None are left out. For an operand that a block writes to, the node gets another
output, which a `copy_` writes into the operand afterwards. Wrappers without effect on inference are inlined.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
import torch.fx
from onnx_ir import tensor_adapters

from ....registration import NUMBER, CaptureError
from ...torch_boundary.containers import pytree
from ...torch_boundary.operators.overloads import (
    HigherOrderOperator,
    OpOverload,
    computation_dtype,
    schema_of,
)
from .fx_graph import NUMBERS, GraphImporter, nest_results
from .higher_order_signatures import (
    SIGNATURES,
    TAKES_A_TUPLE,
    WRAPPERS,
    HigherOrderSignature,
    placeholders,
    storage,
    written_inputs,
)
from .retracing import import_autocast, import_flex_attention, import_vmap, vmap_region


class Importer(GraphImporter):
    """Imports every node that torch.export leaves."""

    def import_vmap(self, first: torch.fx.Node) -> tuple[list[torch.fx.Node], dict[torch.fx.Node, object]]:
        """Import a `vmap` as operators over the batch.

        Raises:
            CaptureError: it cannot be traced, or holds for some sizes only.
        """
        region = vmap_region(first)
        return region, import_vmap(self, region)

    def import_higher_order(self, node: torch.fx.Node, target: HigherOrderOperator) -> object:
        """Import a node that takes graphs.

        Raises:
            CaptureError: a graph writes to an operand in a way that cannot be expressed.
        """
        name = target.name()
        inlined_call = _body_and_operands(self, node, name)
        if inlined_call is not None:
            return self.inline(*inlined_call)
        if name == "out_dtype":
            return _out_dtype(self, node)
        if name == "flex_attention":
            return import_flex_attention(self, node)
        if name == "wrap_with_autocast":
            results = import_autocast(self, node)
            return _import_unknown_operator(self, node, name) if results is None else results
        signature = SIGNATURES.get(name)
        if signature is None:
            return _import_unknown_operator(self, node, name)
        return _HigherOrderNode(self, node, name, signature).run()


def _body_and_operands(
    importer: GraphImporter, node: torch.fx.Node, name: str
) -> tuple[torch.fx.GraphModule, list[object]] | None:
    """The body and operands of a wrapper; None if it is not a wrapper, or affects results."""
    if name not in WRAPPERS or (name == "wrap_with_autocast" and node.args[2] is not False):
        return None
    if name == "hints_wrapper" and node.args[2]:
        return None
    body, first = WRAPPERS[name]
    module = importer.argument(node.args[body])
    operands = node.args[first] if name in TAKES_A_TUPLE else node.args[first:]
    return (module, importer.argument(operands)) if isinstance(module, torch.fx.GraphModule) else None


def _out_dtype(importer: GraphImporter, node: torch.fx.Node) -> ir.Value:
    """`out_dtype(op, dtype, *args)`: the operator over tensors that are promoted with `dtype`, cast to it.

    Raises:
        CaptureError: the operator returns more than one tensor.
    """
    operator, result_dtype, *operands = node.args
    assert isinstance(operator, OpOverload)
    assert isinstance(result_dtype, torch.dtype)
    examples = pytree.tree_map_only(torch.fx.Node, lambda item: item.meta["val"], operands)
    tensors = [leaf for leaf in pytree.tree_leaves(examples) if isinstance(leaf, torch.Tensor)]
    promoted_dtype = computation_dtype([*tensors, torch.empty(1, dtype=result_dtype)])

    def cast(value: ir.Value, dtype: torch.dtype) -> ir.Value:
        target = tensor_adapters.from_torch_dtype(dtype)
        arguments = {"self": value, "dtype": target, "non_blocking": False, "copy": False}
        return importer.emit("aten::to", arguments, value, overload="dtype", dtype=target)

    with node.meta["val"].fake_mode:
        example = operator(
            *pytree.tree_map_only(torch.Tensor, lambda item: item.to(promoted_dtype), examples)
        )
    if not isinstance(example, torch.Tensor):
        raise CaptureError(f"out_dtype supports only operators with one result, not {operator}")
    cast_operands = [
        cast(item, promoted_dtype)
        if isinstance(item, ir.Value) and NUMBER not in item.metadata_props
        else item
        for item in map(importer.argument, operands)
    ]
    schema = schema_of(operator)
    names = (argument.name for argument in schema.arguments)
    source = importer.append(
        node,
        schema.name,
        schema.overload_name or "default",
        dict(zip(names, cast_operands, strict=False)),
        outputs=[importer.value(node.name, example)],
    )
    return cast(source.outputs[0], result_dtype)


def _import_unknown_operator(importer: GraphImporter, node: torch.fx.Node, name: str) -> object:
    """Import an operator of unknown signature, with numbered operands and graphs (`graph_0`)......."""
    arguments: dict[str, object] = {}
    graphs: list[ir.Attr] = []
    numbered_operands = [(f"operand_{index}", item) for index, item in enumerate(node.args)]
    for key, item in [*numbered_operands, *node.kwargs.items()]:
        resolved = importer.argument(item) if _is_plain(importer, item) else str(item)
        if isinstance(resolved, torch.fx.GraphModule):
            block = _GraphBlock(importer, resolved).build("graph")
            graphs.append(ir.AttrGraph(f"graph_{len(graphs)}", block))
        else:
            arguments[key] = resolved
    outputs = importer.outputs(node)
    source = importer.append(node, f"higher_order::{name}", "", arguments, graphs, outputs)
    return nest_results(node.meta.get("val"), source.outputs)


def _is_plain(importer: GraphImporter, item: object) -> bool:
    """Whether an argument is a graph, or consists of values and constants, not of torch's own objects."""
    kinds = (ir.Value, bool, int, float, str, torch.dtype, torch.device, type(None))
    leaves = pytree.tree_leaves(item)
    if isinstance(item, torch.fx.Node) and isinstance(importer.argument(item), torch.fx.GraphModule):
        return True
    arguments = [importer.argument(leaf) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
    return not isinstance(item, dict) and all(isinstance(leaf, kinds) for leaf in arguments)


class _GraphBlock:
    """A graph that becomes a block.

    Args:
        order: the positions of the graph's inputs in the order in which the block has them.
        changed: the positions of inputs that the graph writes to; the block copies them.
    """

    def __init__(
        self,
        importer: GraphImporter,
        module: torch.fx.GraphModule,
        order: Sequence[int] | None = None,
        changed: Sequence[int] = (),
    ):
        self._importer = importer.child(module)
        self._module = module
        formals = placeholders(module)
        self._inputs: list[ir.Value] = []
        self._copies: list[ir.Value] = []
        for index in range(len(formals)) if order is None else order:
            self._declare(formals[index], index in changed)

    def _declare(self, formal: torch.fx.Node, changed: bool) -> None:
        example = formal.meta.get("val")
        value = self._importer.number_or_value(formal.name, example)
        self._inputs.append(value)
        if changed:
            arguments = {"self": value, "memory_format": None}
            copy = self._importer.emit("aten::clone", arguments, value)
            self._copies.append(copy)
            self._importer.bind(formal, copy)
        else:
            # A number that torch fixed is the same in every call.
            self._importer.bind(formal, example if type(example) in NUMBERS else value)

    def build(self, name: str) -> ir.Graph:
        """The block; its outputs are the graph's results, then the new values of written inputs."""
        results = [
            item for item in pytree.tree_leaves(self._importer.run(self._module.graph)) if item is not None
        ]
        computed_values = {value for node in self._importer.nodes for value in node.outputs}
        outputs: list[ir.Value] = []
        for item in [*results, *self._copies]:
            is_distinct = item in computed_values and item not in outputs and item not in self._copies
            outputs.append(item if is_distinct else self._distinct_value(item))
        inner = self._importer
        return ir.Graph(self._inputs, outputs, nodes=inner.nodes, name=inner.unique(name))

    def _distinct_value(self, item: object) -> ir.Value:
        """A distinct value of this block for a number, an outer value, or a value returned twice."""
        if isinstance(item, ir.Value):
            return self._importer.emit("aten::alias", {"self": item}, item)
        if type(item) not in NUMBERS:
            raise CaptureError(f"a block of a higher-order operator returns {item!r}")
        return self._importer.emit(
            "prim::Constant", {"value": item}, self._importer.number_or_value("number", item)
        )


class _HigherOrderNode:
    """Imports a node of known signature."""

    def __init__(
        self, importer: GraphImporter, node: torch.fx.Node, name: str, signature: HigherOrderSignature
    ):
        self._importer = importer
        self._node = node
        self._name = name
        self._signature = signature
        self._arguments = {
            key: importer.argument(item) for key, item in zip(signature.parameters, node.args, strict=True)
        }

    def run(self) -> object:
        """Append the node, and a `copy_` into each operand that its blocks write to."""
        signature, importer = self._signature, self._importer
        raw = dict(zip(signature.parameters, self._node.args, strict=True))
        operands = [item for formal in signature.formals for item in raw[formal]]  # type: ignore[union-attr]
        changed = self._written_operands(operands)
        first = sum(len(self._arguments[formal]) for formal in signature.formals[: signature.carried or 0])
        order = list(range(len(operands)))
        # A loop returns what it carries, so an operand that it writes to becomes one of those.
        if signature.carried and changed:
            read_only_indices = [index for index in order if index >= first and index not in changed]
            order = [*range(first), *changed, *read_only_indices]
            values = [item for formal in signature.formals for item in self._arguments[formal]]
            self._arguments["carried_inputs"] = [values[index] for index in order[: first + len(changed)]]
            self._arguments["additional_inputs"] = [values[index] for index in read_only_indices]
        graphs = []
        for name in signature.graphs:
            # The condition of a loop only reads operands that the body writes.
            copied = () if name == "cond_fn" else changed
            block = _GraphBlock(importer, self._arguments.pop(name), order, copied).build(name)
            graphs.append(ir.AttrGraph(name, block))
        # A block cannot write to an outer tensor, so the node returns the new value and `copy_` stores it.
        targets = [importer.argument(operands[index]) for index in changed]
        self._check(graphs, len(importer.outputs(self._node)) + len(targets))
        return importer.append_with_new_values(
            self._node, f"higher_order::{self._name}", "", self._arguments, targets, graphs
        )

    def _written_operands(self, operands: Sequence[object]) -> list[int]:
        """The positions of the operands that the blocks write to.

        Raises:
            CaptureError: the operator cannot return their new values.
        """
        signature = self._signature
        by_graph = {name: written_inputs(self._arguments[name]) for name in signature.graphs}
        changed = sorted({index for positions in by_graph.values() for index in positions})
        if not changed:
            return []
        storages = [storage(item) for item in operands]
        carried = sum(len(self._arguments[formal]) for formal in signature.formals[: signature.carried or 0])
        refused = (
            signature.carried is None
            or by_graph.get("cond_fn")
            or any(index < carried or storages.count(storages[index]) > 1 for index in changed)
        )
        if refused:
            names = ", ".join(str(operands[index]) for index in changed)
            raise CaptureError(
                f"higher_order::{self._name}: a graph writes in place to {names}, which cannot be expressed "
                "here: write to a clone"
            )
        return changed

    def _check(self, graphs: Sequence[ir.Attr], count: int) -> None:
        if self._name in ("cond", "map_impl", "scan", "associative_scan", "range_loop"):
            for attribute in graphs:
                if len(attribute.as_graph().outputs) != count:
                    raise CaptureError(
                        f"higher_order::{self._name}: its {attribute.name} returns "
                        f"{len(attribute.as_graph().outputs)} values, not {count}"
                    )
