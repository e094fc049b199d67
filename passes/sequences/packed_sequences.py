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
from ...registration.arguments import arguments, source_node
from ..source_builder import SourceBuilder, remove_unused, same_shape

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_COPIES = frozenset({"to", "_to_copy", "cpu", "cuda", "contiguous", "detach", "alias", "clone"})
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_FILLED = frozenset({"full", "full_like", "new_full"})
_REARRANGED = _COPIES | {"expand", "index_select", "reshape", "transpose", "unsqueeze", "view"}
_NUMBERS = frozenset({"NumToTensor", "Int", "IntImplicit", "ScalarImplicit", "item", "int"})


def _made_by(value: Any, *names: str) -> dict[str, Any] | None:
    """The arguments of the ATen operator that made a value, if it is one of these operators."""
    node = value.producer() if isinstance(value, Value) else None
    if node is None or node.domain != "aten" or node.op_type not in names:
        return None
    return arguments(node)


def _same_whole_numbers(value: Value) -> Value:
    """An INT64 value before moves and copies."""
    while True:
        given = _made_by(value, *_COPIES)
        if given is None or "other" in given or given.get("dtype") not in (None, DataType.INT64):
            return value
        value = given["self"]


def _number_itself(value: Any) -> Any:
    """A number before its conversion to a tensor and back."""
    while isinstance(value, Value):
        node = value.producer()
        if node is None or node.op_type not in _NUMBERS or len(node.inputs) != 1:
            break
        value = node.inputs[0]
    return value


def _is_zero(value: Value) -> bool:
    """Whether a tensor was made as zeros."""
    given = _made_by(value, *_REARRANGED)
    while given is not None:
        value = given["self"]
        given = _made_by(value, *_REARRANGED)
    filled = _made_by(value, *_FILLED)
    return _made_by(value, *_ZEROS) is not None or (filled is not None and filled["fill_value"] == 0)


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
    node, given = values.producer(), _made_by(values, "sort")
    if node is None or given is None or values.index() != 0:
        return None
    if not given.get("descending") or given.get("dim", -1) not in (-1, 0):
        return None
    return _Sort(given["self"], node.outputs[1])


def _is_inverse(value: Value, order: Value) -> bool:
    """Whether a value is the inverse of a permutation, made by `invert_permutation` or a sort."""
    value = _same_whole_numbers(value)
    given = _made_by(value, "argsort", "sort")
    if given is not None:
        is_order = value.index() == len(value.producer().outputs) - 1  # type: ignore[union-attr]
        upwards = not given.get("descending") and given.get("dim", -1) in (-1, 0)
        return is_order and upwards and _same_whole_numbers(given["self"]) is order
    given = _made_by(value, "scatter")
    if given is None or given.get("dim") not in (0, -1) or _same_whole_numbers(given["index"]) is not order:
        return False
    places = _made_by(given.get("src"), "arange")
    if places is None or places.get("start", 0) != 0 or places.get("step", 1) != 1:
        return False
    like = _made_by(given["self"], "empty_like", "zeros_like", "ones_like")
    if like is not None and _same_whole_numbers(like["self"]) is order:
        return True
    return same_shape(given["self"], order)


def _longest_of(lengths: Value) -> Value:
    """The lengths before they were sorted, which have the same maximum."""
    found = _sort_of(lengths)
    return lengths if found is None else found.original


@dataclasses.dataclass(frozen=True)
class _Packed:
    """The padded sequences that a packed tensor was made from.

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
    given, sizes = _made_by(data, "_pack_padded_sequence"), _made_by(batch_sizes, "_pack_padded_sequence")
    if given is None or sizes is None or data.index() != 0 or batch_sizes.index() != 1:
        return None
    input, lengths, batch_first = given["input"], given["lengths"], bool(given["batch_first"])
    if sizes["lengths"] is not lengths:
        return None
    sort, chosen = _sort_of(lengths), _made_by(input, "index_select")
    if sort is None or chosen is None or chosen["dim"] != (0 if batch_first else 1):
        return _Packed(input, lengths, batch_first, None, lengths)
    if _same_whole_numbers(chosen["index"]) is not sort.order:
        return _Packed(input, lengths, batch_first, None, lengths)
    return _Packed(chosen["self"], sort.original, batch_first, chosen["index"], lengths)


class _Fuser:
    """Rewrites the nodes of one graph."""

    def __init__(self, graph: ir.Graph):
        self._graph = graph
        self._build = SourceBuilder(graph)
        self._modified = False
        self._rules = dict.fromkeys(_LAYERS, self._layer) | {
            "_pad_packed_sequence": self._pad,
            "index_select": self._unsort,
            "index": self._unsort,
            "sym_size": self._steps,
            "size": self._steps,
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
        remove_unused(self._graph, [node])
        self._modified = True

    def _insert(self, node: ir.Node, name: str, given: Mapping[str, Any], outputs: Sequence[Value]) -> None:
        """Insert a node with several outputs before another one."""
        kept = {key: node.metadata_props[key] for key in (MODULE, LINE) if key in node.metadata_props}
        made = source_node(name, given, overload="default", outputs=outputs, metadata_props=kept)
        self._graph.insert_before(node, made)

    def _time_first(self, input: Value, batch_first: bool) -> Value:
        if not batch_first:
            return input
        shape = None if input.shape is None else ir.Shape([*input.shape[1::-1], *input.shape[2:]])
        given = {"self": input, "dim0": 0, "dim1": 1}
        return self._build.emit("aten::transpose", given, "int", dtype=input.dtype, shape=shape)

    def _sorted(self, value: Value, dim: int, order: Value | None) -> Value:
        if order is None:
            return value
        return self._build.emit("aten::index_select", {"self": value, "dim": dim, "index": order}, like=value)

    def _layer(self, node: ir.Node) -> None:
        given = arguments(node)
        packed = _packed_from(given["data"], given["batch_sizes"]) if "batch_sizes" in given else None
        if packed is None:
            return
        self._build.before(node)
        states = _states(given["hx"], packed.order)
        if states is None:
            packed = packed.without_order(arguments(given["data"].producer())["input"])
            states = _states(given["hx"], None)
        assert states is not None
        input = self._time_first(packed.input, packed.batch_first)
        rest = {key: item for key, item in given.items() if key not in ("data", "batch_sizes", "hx")}
        start: Any = states if isinstance(given["hx"], list) else states[0]
        hx = start if any(state is not None for state in states) else None
        first, *ends = node.outputs
        width = None if first.shape is None else first.shape[1]
        sizes = (None, None) if input.shape is None else input.shape[:2]
        outputs = [
            Value(type=first.type, shape=ir.Shape([*sizes, width])),
            *(Value(type=end.type, shape=end.shape) for end in ends),
        ]
        call = {"input": input, "lengths": packed.lengths, "hx": hx, **rest}
        self._insert(node, f"packed::{node.op_type}", call, outputs)
        results = [self._sorted(value, 1, packed.order) for value in outputs]
        data, batch_sizes = Value(type=first.type, shape=first.shape), _new_value(given["batch_sizes"])
        again = {"input": results[0], "lengths": packed.sorted_lengths, "batch_first": False}
        self._insert(node, "aten::_pack_padded_sequence", again, [data, batch_sizes])
        self._replace(node, [data, *results[1:]])

    def _pad(self, node: ir.Node) -> None:
        given = arguments(node)
        packed = _packed_from(given["data"], given["batch_sizes"])
        if packed is None:
            return
        self._build.before(node)
        total = _number_itself(given["total_length"])
        if isinstance(total, Value) and _is_longest(total, packed.lengths):
            total = None
        call = {
            "input": self._time_first(packed.input, packed.batch_first),
            "lengths": packed.lengths,
            "batch_first": given["batch_first"],
            "padding_value": given["padding_value"],
            "total_length": total,
        }
        result = self._build.emit("packed::pad", call, like=node.outputs[0])
        result = self._sorted(result, 0 if given["batch_first"] else 1, packed.order)
        self._replace(node, [result, packed.sorted_lengths])

    def _unsort(self, node: ir.Node) -> None:
        given = arguments(node)
        if "dim" in given:
            dim, index = given["dim"], given["index"]
        elif isinstance(given["indices"], list) and len(given["indices"]) == 1:
            dim, index = 0, given["indices"][0]
        else:
            return
        if not isinstance(index, Value):
            return
        sort, chosen = _sort_of(given["self"]), _made_by(given["self"], "index_select")
        if sort is not None and dim in (0, -1) and _is_inverse(index, sort.order):
            self._replace(node, [sort.original])
        elif chosen is None or chosen["dim"] != dim:
            return
        elif _is_inverse(index, _same_whole_numbers(chosen["index"])):
            self._replace(node, [chosen["self"]])

    def _steps(self, node: ir.Node) -> None:
        given = arguments(node)
        packed = _made_by(given["self"], "_pack_padded_sequence")
        if packed is None or given["self"].index() != 1 or given.get("dim") not in (0, -1):
            return
        self._build.before(node)
        lengths = {"lengths": _longest_of(packed["lengths"])}
        number = self._build.emit("packed::longest", lengths, dtype=DataType.INT64, shape=ir.Shape(()))
        number.metadata_props[NUMBER] = "int"
        self._replace(node, [number])


def _new_value(value: Value) -> Value:
    return Value(type=value.type, shape=value.shape)


def _states(hx: Value | list[Value], order: Value | None) -> list[Value | None] | None:
    """The initial states in the order before sorting, None for zeros; None if that order is unknown."""
    found: list[Value | None] = []
    for state in hx if isinstance(hx, list) else [hx]:
        chosen = _made_by(state, "index_select")
        if _is_zero(state):
            found.append(None)
        elif order is None:
            found.append(state)
        elif (
            chosen is not None
            and chosen["dim"] == 1
            and _same_whole_numbers(chosen["index"]) is _same_whole_numbers(order)
        ):
            found.append(chosen["self"])
        else:
            return None
    return found


def _is_longest(number: Value, lengths: Value) -> bool:
    node = number.producer()
    if node is None or node.domain != "packed" or node.op_type != "longest":
        return False
    return arguments(node)["lengths"] is _longest_of(lengths)


class FusePackedSequences(ir.passes.InPlacePass):
    """Replaces layers over packed sequences by layers over padded ones, in a source graph and sub-blocks."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graphs in place."""
        modified = False
        for graph in (model.graph, *model.graph.subgraphs()):
            modified = _Fuser(graph).run() or modified
        return ir.passes.PassResult(model, modified)


def fuse_packed_sequences(model: ir.Model) -> bool:
    """Fuse packed sequences, in place; return whether anything changed. See `FusePackedSequences`."""
    return FusePackedSequences().call(model).modified
