"""Copies of a frozen recurrent layer whose cell differs in one operator or operand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

CHANGED = ("lstm", "gru", "gru_before", "simple", "basic_lstm_2", "keras_2_lstm", "peephole_lstm_2")
"""The layers of which changed copies are tested."""
_FLOAT, _INT32 = 1, 3
"""TensorFlow's numbers of the element types."""
_OTHER = {
    "Sigmoid": "Tanh",
    "Tanh": "Sigmoid",
    "Mul": "AddV2",
    "AddV2": "Mul",
    "Add": "Mul",
    "Sub": "AddV2",
    "BiasAdd": "BiasAdd",
    "Split": "Split",
}
"""The operators that are changed; BiasAdd takes no bias twice, and a Split gives its parts in reverse."""


def changed(graph_def: Any) -> Iterator[tuple[str, Any]]:
    """Each copy of a graph, and a name for it."""
    for place, function in enumerate(graph_def.library.function):
        for at, node in enumerate(function.node_def):
            if node.op in _OTHER and node.attr["T"].type == _FLOAT:
                copy = _copied(graph_def)
                _change(copy.library.function[place], at)
                yield f"{function.signature.name}/{node.name}", copy
            yield from _with_another_state(graph_def, place, at)
            if node.op == "TensorListGetItem":
                copy = _copied(graph_def)
                _read_first(copy.library.function[place], at)
                yield f"{function.signature.name}/{node.name} of the first element", copy
        if len(_states(function)) > 1:
            yield from _with_other_results(graph_def, place)


def _copied(graph_def: Any) -> Any:
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    return copy


def _change(function: Any, at: int) -> None:
    node = function.node_def[at]
    if node.op == "BiasAdd":
        # The product takes the place of the bias' sum: the bias is left out.
        _replace(function, f"{node.name}:output:0", node.input[0])
    elif node.op == "Split":
        count = node.attr["num_split"].i
        for part in range(count // 2):
            first, last = f"{node.name}:output:{part}", f"{node.name}:output:{count - 1 - part}"
            _replace(function, first, "swapped")
            _replace(function, last, first)
            _replace(function, "swapped", last)
    else:
        node.op = _OTHER[node.op]


def _replace(function: Any, old: str, new: str) -> None:
    for node in function.node_def:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new
    for key in function.ret:
        if function.ret[key] == old:
            function.ret[key] = new


def _with_another_state(graph_def: Any, place: int, at: int) -> Iterator[tuple[str, Any]]:
    """A copy in which an elementwise operator reads the other state."""
    function = graph_def.library.function[place]
    node = function.node_def[at]
    if node.op not in ("Mul", "MatMul", "ConcatV2"):
        return
    states = _states(function)
    for position, name in enumerate(node.input):
        if name in states and len(states) > 1:
            copy = _copied(graph_def)
            other = states[1 - states.index(name)]
            copy.library.function[place].node_def[at].input[position] = other
            yield f"{function.signature.name}/{node.name} of the other state", copy


def _states(function: Any) -> list[str]:
    """The arguments of a loop's body that are its states."""
    signature = function.signature
    if len(signature.input_arg) != len(signature.output_arg):
        return []
    return [
        given.name
        for given, returned in zip(signature.input_arg, signature.output_arg, strict=True)
        if given.type == _FLOAT and function.ret[returned.name] != given.name
    ]


def _read_first(function: Any, at: int) -> None:
    """Let an operator read the first element of a list."""
    zero = function.node_def.add(name="first", op="Const")
    zero.attr["dtype"].type = zero.attr["value"].tensor.dtype = _INT32
    zero.attr["value"].tensor.tensor_shape.SetInParent()
    zero.attr["value"].tensor.int_val.append(0)
    function.node_def[at].input[1] = "first:output:0"


def _with_other_results(graph_def: Any, place: int) -> Iterator[tuple[str, Any]]:
    """Copies in which the states are swapped after an iteration, or another one is written into the list."""
    function = graph_def.library.function[place]
    formal = [each.name for each in function.signature.input_arg]
    kept = [function.signature.output_arg[formal.index(name)].name for name in _states(function)]
    first, second = (_origin(function, function.ret[name]) for name in kept)
    copy = _copied(graph_def)
    ret = copy.library.function[place].ret
    ret[kept[0]], ret[kept[1]] = ret[kept[1]], ret[kept[0]]
    yield f"{function.signature.name}/swapped states", copy
    for at, node in enumerate(function.node_def):
        if node.op == "TensorListSetItem":
            copy = _copied(graph_def)
            other = second if _origin(function, node.input[2]) == first else first
            copy.library.function[place].node_def[at].input[2] = other
            yield f"{function.signature.name}/{node.name} of the other state", copy


def _origin(function: Any, name: str) -> str:
    """The value that identities pass on."""
    nodes = {node.name: node for node in function.node_def}
    node = nodes.get(name.partition(":")[0])
    while node is not None and node.op == "Identity":
        name = node.input[0]
        node = nodes.get(name.partition(":")[0])
    return name
