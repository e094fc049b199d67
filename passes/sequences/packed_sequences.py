"""Source pass: recurrent layers over packed sequences become layers over padded sequences with lengths.

torch.nn.utils.rnn packs padded sequences, sorted by length, runs a layer over the packed elements, and
pads the result again. ONNX's recurrent operators take the padded sequences and the length of each, in
any order. Rules:

1. `lstm.data` and similar layers over a packed tensor become `packed::lstm` over the padded sequences. Their
   output is packed again for readers that need it packed.
2. `_pad_packed_sequence` of a packed tensor becomes `packed::pad` of the padded sequences with their lengths.
3. If the sequences were sorted by length for packing, both run in the original order, and their results are
   sorted. A sort that is undone afterwards is removed.
4. The number of steps of a packed tensor is the largest length.
5. An initial state of zeros is left out, so that the batch size is not needed.

Packed tensors with other uses stay packed; their symbolic functions compose them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import LINE, MODULE, NUMBER
from ...registration.arguments import arguments, graphs_of, source_node
from ..source_builder import SourceBuilder, same_shape

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_COPIES = frozenset({"to", "_to_copy", "cpu", "cuda", "contiguous", "detach", "alias", "clone"})
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_FILLED = frozenset({"full", "full_like", "new_full"})
_REARRANGING = _COPIES | {"expand", "index_select", "reshape", "transpose", "unsqueeze", "view"}
_NUMBERS = frozenset({"NumToTensor", "Int", "IntImplicit", "ScalarImplicit", "item", "int"})


def _producer_arguments(value: object, *names: str) -> dict[str, Any] | None:
    """The arguments of the ATen node that computes a value, if it has one of these operators."""
    node = value.producer() if isinstance(value, Value) else None
    if node is None or node.domain != "aten" or node.op_type not in names:
        return None
    return arguments(node)


def _skip_integer_copies(value: Value) -> Value:
    """An INT64 value before moves and copies."""
    while True:
        node_arguments = _producer_arguments(value, *_COPIES)
        if (
            node_arguments is None
            or "other" in node_arguments
            or node_arguments.get("dtype") not in (None, DataType.INT64)
        ):
            return value
        value = node_arguments["self"]


def _skip_number_conversions(value: object) -> Any:
    """A number before its conversion to a tensor and back."""
    while isinstance(value, Value):
        node = value.producer()
        if node is None or node.op_type not in _NUMBERS or len(node.inputs) != 1:
            break
        value = node.inputs[0]
    return value


def _is_zero(value: Value) -> bool:
    """Whether a tensor was created as zeros."""
    node_arguments = _producer_arguments(value, *_REARRANGING)
    while node_arguments is not None:
        value = node_arguments["self"]
        node_arguments = _producer_arguments(value, *_REARRANGING)
    filled = _producer_arguments(value, *_FILLED)
    return _producer_arguments(value, *_ZEROS) is not None or (
        filled is not None and filled["fill_value"] == 0
    )


@dataclasses.dataclass(frozen=True)
class _Sort:
    """A descending sort.

    Attributes:
        original: the unsorted numbers.
        order: the original position of each sorted number.
    """

    original: Value
    order: Value


def _sort_of(values: Value) -> _Sort | None:
    """The sort whose sorted numbers are this value."""
    node, node_arguments = values.producer(), _producer_arguments(values, "sort")
    if node is None or node_arguments is None or values.index() != 0:
        return None
    # torch.nn.utils.rnn sorts lengths in descending order along their only dimension.
    if not node_arguments.get("descending") or node_arguments.get("dim", -1) not in (-1, 0):
        return None
    return _Sort(node_arguments["self"], node.outputs[1])


def _is_inverse(value: Value, order: Value) -> bool:
    """Whether a value is the inverse of a permutation, computed by `invert_permutation` or a sort."""
    value = _skip_integer_copies(value)
    node_arguments = _producer_arguments(value, "argsort", "sort")
    if node_arguments is not None:
        is_order_output = value.index() == len(value.producer().outputs) - 1  # type: ignore[union-attr]
        is_ascending = not node_arguments.get("descending") and node_arguments.get("dim", -1) in (-1, 0)
        return is_order_output and is_ascending and _skip_integer_copies(node_arguments["self"]) is order
    node_arguments = _producer_arguments(value, "scatter")
    if (
        node_arguments is None
        or node_arguments.get("dim") not in (0, -1)
        or _skip_integer_copies(node_arguments["index"]) is not order
    ):
        return False
    # torch.nn.utils.rnn.invert_permutation scatters 0, 1, 2, … into an empty tensor.
    positions = _producer_arguments(node_arguments.get("src"), "arange")
    if positions is None or positions.get("start", 0) != 0 or positions.get("step", 1) != 1:
        return False
    like = _producer_arguments(node_arguments["self"], "empty_like", "zeros_like", "ones_like")
    if like is not None and _skip_integer_copies(like["self"]) is order:
        return True
    return same_shape(node_arguments["self"], order)


def _unsorted_lengths(lengths: Value) -> Value:
    """The lengths before they were sorted, which have the same maximum."""
    sort = _sort_of(lengths)
    return lengths if sort is None else sort.original


@dataclasses.dataclass(frozen=True)
class _Packed:
    """The padded sequences from which a packed tensor was computed.

    Attributes:
        input: the padded sequences.
        lengths: the length of each sequence, in the same order.
        batch_first: whether the padded sequences have the batch dimension first.
        order: the permutation that sorted them for packing, or None.
        sorted_lengths: the lengths in sorted order.
    """

    input: Value
    lengths: Value
    batch_first: bool
    order: Value | None
    sorted_lengths: Value

    def without_order(self, input: Value) -> _Packed:
        """The same sequences without the permutation."""
        return _Packed(input, self.sorted_lengths, self.batch_first, None, self.sorted_lengths)


def _packed_from(data: Value, batch_sizes: Value) -> _Packed | None:
    """The origin of a packed tensor, if its batch sizes belong to the same lengths."""
    node_arguments, sizes = (
        _producer_arguments(data, "_pack_padded_sequence"),
        _producer_arguments(batch_sizes, "_pack_padded_sequence"),
    )
    if node_arguments is None or sizes is None or data.index() != 0 or batch_sizes.index() != 1:
        return None
    input, lengths, batch_first = (
        node_arguments["input"],
        node_arguments["lengths"],
        bool(node_arguments["batch_first"]),
    )
    if sizes["lengths"] is not lengths:
        return None
    sort, selection = _sort_of(lengths), _producer_arguments(input, "index_select")
    if sort is None or selection is None or selection["dim"] != (0 if batch_first else 1):
        return _Packed(input, lengths, batch_first, None, lengths)
    if _skip_integer_copies(selection["index"]) is not sort.order:
        return _Packed(input, lengths, batch_first, None, lengths)
    return _Packed(selection["self"], sort.original, batch_first, selection["index"], lengths)


class _Fuser:
    """Rewrites the nodes of one graph."""

    def __init__(self, graph: ir.Graph):
        self._graph = graph
        self._build = SourceBuilder(graph)
        self._modified = False
        self._rules = dict.fromkeys(_LAYERS, self._fuse_layer) | {
            "_pad_packed_sequence": self._fuse_padding,
            "index_select": self._remove_unsorting,
            "index": self._remove_unsorting,
            "sym_size": self._replace_step_count,
            "size": self._replace_step_count,
        }

    def run(self) -> bool:
        """Rewrite every node; return whether anything changed."""
        for node in list(self._graph):
            rule = self._rules.get(node.op_type)
            if rule is not None and node.domain == "aten":
                rule(node)
        return self._modified

    def _replace(self, node: ir.Node, results: Sequence[Value]) -> None:
        for old, new in zip(node.outputs, results, strict=True):
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        # The packing before it is removed later, if nothing else reads it.
        self._graph.remove(node, safe=True)
        self._modified = True

    def _insert(
        self, node: ir.Node, name: str, node_arguments: Mapping[str, object], outputs: Sequence[Value]
    ) -> None:
        """Insert a node with several outputs before another one."""
        metadata = {key: node.metadata_props[key] for key in (MODULE, LINE) if key in node.metadata_props}
        inserted = source_node(
            name, node_arguments, overload="default", outputs=outputs, metadata_props=metadata
        )
        self._graph.insert_before(node, inserted)

    def _time_first(self, input: Value, batch_first: bool) -> Value:
        if not batch_first:
            return input
        shape = None if input.shape is None else ir.Shape([*input.shape[1::-1], *input.shape[2:]])
        node_arguments = {"self": input, "dim0": 0, "dim1": 1}
        return self._build.emit("aten::transpose", node_arguments, "int", dtype=input.dtype, shape=shape)

    def _sort_batch(self, value: Value, dim: int, order: Value | None) -> Value:
        if order is None:
            return value
        return self._build.emit("aten::index_select", {"self": value, "dim": dim, "index": order}, like=value)

    def _fuse_layer(self, node: ir.Node) -> None:
        node_arguments = arguments(node)
        packed = (
            _packed_from(node_arguments["data"], node_arguments["batch_sizes"])
            if "batch_sizes" in node_arguments
            else None
        )
        if packed is None:
            return
        self._build.before(node)
        states = _initial_states(node_arguments["hx"], packed.order)
        if states is None:
            # The states are in sorted order only, so the layer must read the sorted sequences.
            packed = packed.without_order(arguments(node_arguments["data"].producer())["input"])
            states = _initial_states(node_arguments["hx"], None)
        assert states is not None
        input = self._time_first(packed.input, packed.batch_first)
        options = {
            key: item for key, item in node_arguments.items() if key not in ("data", "batch_sizes", "hx")
        }
        start: Any = states if isinstance(node_arguments["hx"], list) else states[0]
        hx = start if any(state is not None for state in states) else None
        first, *ends = node.outputs
        # The packed output is [elements, features], the padded one [length, batch, features].
        width = None if first.shape is None else first.shape[1]
        sizes = (None, None) if input.shape is None else input.shape[:2]
        outputs = [
            Value(type=first.type, shape=ir.Shape([*sizes, width])),
            *(Value(type=end.type, shape=end.shape) for end in ends),
        ]
        layer_arguments = {"input": input, "lengths": packed.lengths, "hx": hx, **options}
        self._insert(node, f"packed::{node.op_type}", layer_arguments, outputs)
        results = [self._sort_batch(value, 1, packed.order) for value in outputs]
        # Rule 1: unused if every reader takes the padded result.
        data = Value(type=first.type, shape=first.shape)
        sizes_type, sizes_shape = node_arguments["batch_sizes"].type, node_arguments["batch_sizes"].shape
        batch_sizes = Value(type=sizes_type, shape=sizes_shape)
        pack_arguments = {"input": results[0], "lengths": packed.sorted_lengths, "batch_first": False}
        self._insert(node, "aten::_pack_padded_sequence", pack_arguments, [data, batch_sizes])
        self._replace(node, [data, *results[1:]])

    def _fuse_padding(self, node: ir.Node) -> None:
        node_arguments = arguments(node)
        packed = _packed_from(node_arguments["data"], node_arguments["batch_sizes"])
        if packed is None:
            return
        self._build.before(node)
        total = _skip_number_conversions(node_arguments["total_length"])
        longest = total.producer() if isinstance(total, Value) else None
        # Padding to the largest length is the default.
        if (
            longest is not None
            and (longest.domain, longest.op_type) == ("packed", "longest")
            and arguments(longest)["lengths"] is _unsorted_lengths(packed.lengths)
        ):
            total = None
        pad_arguments = {
            "input": self._time_first(packed.input, packed.batch_first),
            "lengths": packed.lengths,
            "batch_first": node_arguments["batch_first"],
            "padding_value": node_arguments["padding_value"],
            "total_length": total,
        }
        result = self._build.emit("packed::pad", pad_arguments, like=node.outputs[0])
        result = self._sort_batch(result, 0 if node_arguments["batch_first"] else 1, packed.order)
        self._replace(node, [result, packed.sorted_lengths])

    def _remove_unsorting(self, node: ir.Node) -> None:
        node_arguments = arguments(node)
        if "dim" in node_arguments:
            dim, index = node_arguments["dim"], node_arguments["index"]
        # `x[order]` is captured as `index`, `x.index_select(0, order)` as `index_select`.
        elif isinstance(node_arguments["indices"], list) and len(node_arguments["indices"]) == 1:
            dim, index = 0, node_arguments["indices"][0]
        else:
            return
        if not isinstance(index, Value):
            return
        sort, selection = (
            _sort_of(node_arguments["self"]),
            _producer_arguments(node_arguments["self"], "index_select"),
        )
        if sort is not None and dim in (0, -1) and _is_inverse(index, sort.order):
            self._replace(node, [sort.original])
        elif selection is None or selection["dim"] != dim:
            return
        elif _is_inverse(index, _skip_integer_copies(selection["index"])):
            self._replace(node, [selection["self"]])

    def _replace_step_count(self, node: ir.Node) -> None:
        node_arguments = arguments(node)
        packed = _producer_arguments(node_arguments["self"], "_pack_padded_sequence")
        if packed is None or node_arguments["self"].index() != 1 or node_arguments.get("dim") not in (0, -1):
            return
        self._build.before(node)
        lengths = {"lengths": _unsorted_lengths(packed["lengths"])}
        number = self._build.emit("packed::longest", lengths, dtype=DataType.INT64, shape=ir.Shape(()))
        number.metadata_props[NUMBER] = "int"
        self._replace(node, [number])


def _initial_states(hx: Value | list[Value], order: Value | None) -> list[Value | None] | None:
    """The initial states in the order before sorting, None for zeros; None if that order is unknown."""
    states: list[Value | None] = []
    for state in hx if isinstance(hx, list) else [hx]:
        selection = _producer_arguments(state, "index_select")
        if _is_zero(state):
            states.append(None)
        elif order is None:
            states.append(state)
        elif (
            selection is not None
            and selection["dim"] == 1
            and _skip_integer_copies(selection["index"]) is _skip_integer_copies(order)
        ):
            states.append(selection["self"])
        else:
            return None
    return states


class FusePackedSequences(ir.passes.InPlacePass):
    """Replaces layers over packed sequences by layers over padded ones, in a source graph and sub-blocks."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graphs in place."""
        modified = False
        for graph in graphs_of(model.graph):
            modified = _Fuser(graph).run() or modified
        return ir.passes.PassResult(model, modified)


def fuse_packed_sequences(model: ir.Model) -> bool:
    """Fuse packed sequences, in place; return whether anything changed. See `FusePackedSequences`."""
    return FusePackedSequences().call(model).modified
