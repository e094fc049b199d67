"""Finds integers that the iterations of a loop multiply: Python gives them any number of bits, scripts 64."""

from __future__ import annotations

from .script_graph import Program, ScriptNode, ScriptValue, function_of

_PRODUCTS = ("aten::mul", "aten::pow", "aten::__lshift__")
_SUMS = ("aten::add", "aten::sub")


def multiplies_numbers(program: Program) -> bool:
    """Whether a loop carries an integer that an iteration multiplies, or adds to another such integer."""
    # Its nodes live as long as the graph.
    graph = function_of(program).inlined_graph
    return any(_LoopNumbers(node).are_multiplied() for node in graph.findAllNodes("prim::Loop"))


class _LoopNumbers:
    """The integers that one loop carries."""

    def __init__(self, node: ScriptNode):
        [body] = node.blocks()
        self._results = [value for value in body.outputs() if _is_integer(value)]
        # The first input counts the iterations.
        self._carried = {value.unique() for value in list(body.inputs())[1:] if _is_integer(value)}
        self._reads: dict[int, bool] = {}

    def are_multiplied(self) -> bool:
        """Whether one of the numbers is a product that depends on one of them at the end of an iteration."""
        return any(map(self._is_product, self._results))

    def _reads_carried(self, value: ScriptValue) -> bool:
        key = value.unique()
        if key not in self._reads:
            self._reads[key] = key in self._carried or any(map(self._reads_carried, _operands(value)))
        return self._reads[key]

    def _is_product(self, value: ScriptValue) -> bool:
        operands = _operands(value)
        read = [self._reads_carried(operand) for operand in operands]
        if value.node().kind() in _PRODUCTS and any(read):
            return True
        if value.node().kind() in _SUMS and len(read) > 1 and all(read):
            return True
        return any(map(self._is_product, operands))


def _is_integer(value: ScriptValue) -> bool:
    return value.type().kind() == "IntType"


def _operands(value: ScriptValue) -> list[ScriptValue]:
    """The integers that an integer is computed from; those of an `if` are the results of its sides."""
    node = value.node()
    if node.kind() == "prim::Param":
        return []
    operands = list(node.inputs())
    for block in node.blocks():
        index = [output.unique() for output in node.outputs()].index(value.unique())
        # The first result of a loop's body tells whether the loop goes on.
        operands.append(list(block.outputs())[index + (node.kind() == "prim::Loop")])
    return list(filter(_is_integer, operands))
