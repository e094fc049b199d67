"""Writes the valid sizes of a captured model as checks into its graph, so that it fails at other sizes.

Each restriction becomes arithmetic on the sizes of the inputs, and a node `sym::require` between an input and
its readers. Works without torch.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...passes.source_builder import SourceBuilder
from ...registration import CaptureError
from ...registration.arguments import source_node
from .dimensions import SizeRestriction, read_restrictions
from .size_expressions import parse

Number = bool | int | float | Value

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Div: "truediv",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_DIVISIONS = (ast.FloorDiv, ast.Div, ast.Mod)
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_FUNCTIONS = {
    "abs": "abs",
    "int": "int",
    "float": "float",
    "round": "round",
    "math.ceil": "ceil",
    "math.floor": "floor",
    "math.trunc": "trunc",
    "math.sqrt": "sqrt",
    "math.log2": "log2",
    "max": "max",
    "min": "min",
}
_TO_INT = ("ceil", "floor", "trunc", "int", "round")
_TO_FLOAT = ("truediv", "float", "sqrt", "log2")
_TO_BOOL = (*_COMPARISONS.values(), "not")
_OF_SIZES = ("sym_size", "size", "numel", "sym_numel", "dim", "sym_stride")
"""Operators that read only the shape of a tensor."""


def write_size_checks(model: ir.Model) -> None:
    """Write a check for each restriction in the metadata of a captured model.

    Raises:
        CaptureError: ONNX cannot compute a condition, or the model reads no input's values.
    """
    restrictions = read_restrictions(model.metadata_props)
    if not restrictions:
        return
    graph = model.graph
    checked = _checked_input(graph)
    # The checks themselves read the sizes of the unchecked value.
    readers = tuple(checked.uses())
    builder = SourceBuilder(graph)
    if len(graph):
        builder.before(graph[0])
    conditions = write_conditions(builder, graph, restrictions)
    result = checked
    for restriction, condition in zip(restrictions, conditions, strict=True):
        output = Value(name=f"{checked.name}_checked", type=checked.type, shape=checked.shape)
        output.metadata_props.update(checked.metadata_props)
        text = f"the model is valid for {restriction}"
        builder.insert(
            source_node(
                "sym::require", {"self": result, "condition": condition, "text": text}, outputs=[output]
            )
        )
        result = output
    for use in readers:
        use.node.replace_input_with(use.idx, result)
    for position, value in enumerate(graph.outputs):
        if value is checked:
            graph.outputs[position] = result


def write_conditions(
    builder: SourceBuilder, graph: ir.Graph, restrictions: Iterable[SizeRestriction]
) -> list[Number]:
    """Write conditions on the sizes of a graph's inputs as nodes.

    Returns:
        The value of each condition; it is False at sizes where the condition has no value.

    Raises:
        CaptureError: ONNX cannot compute a condition.
    """
    sizes: dict[str, Number] = {}
    for value in graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None and dim.value not in sizes:
                sizes[dim.value] = builder.size(value, axis)
    return [_Condition(builder, sizes, restriction).write() for restriction in restrictions]


def _checked_input(graph: ir.Graph) -> Value:
    """Return the input to check: the first tensor whose values the model reads.

    Reading its shape would not be enough: passes and runtimes may infer a shape without running the check.
    """
    for value in graph.inputs:
        readers = [use.node for use in value.uses()]
        has_dimensions = isinstance(value.type, ir.TensorType) and bool(value.shape)
        is_read = value.is_graph_output() or any(node.op_type not in _OF_SIZES for node in readers)
        if has_dimensions and is_read:
            return value
    raise CaptureError(
        "guard=True needs an input tensor whose values the model reads: leave guard out, or return something "
        "that is computed from an input"
    )


@dataclasses.dataclass
class _Condition:
    """Writes one condition as arithmetic on sizes.

    Attributes:
        builder: inserts the nodes.
        sizes: the size of each dimension by name.
        restriction: the condition.
        requirements: values that must be true for the current expression to have a value.
    """

    builder: SourceBuilder
    sizes: Mapping[str, Number]
    restriction: SizeRestriction
    requirements: list[Number] = dataclasses.field(default_factory=list)

    def write(self) -> Number:
        """Write the condition and return its truth value; False if it has no value (division by 0)."""
        try:
            tree, names = parse(self.restriction.condition, tuple(self.sizes))
        except SyntaxError:
            raise self._refuse("is not an expression") from None
        self._variables = {variable: self.sizes[name] for variable, name in names.items()}
        truth = self._truth(tree)
        return self._all([*self.requirements, truth])

    def _refuse(self, reason: str) -> CaptureError:
        return CaptureError(
            f"guard=True: the file cannot check {self.restriction.condition}, because it {reason}: leave "
            "guard out, or state the range in dynamic_shapes"
        )

    def _emit(self, name: str, *operands: Number, **options: Number) -> Number:
        """Add a node of the `sym` dialect and return its result, whose type is that of Python's operator."""
        if name in _TO_BOOL or (
            name in ("and", "or", "xor", "ite") and all(_is_bool(operand) for operand in operands)
        ):
            dtype = DataType.BOOL
        elif name in _TO_INT:
            dtype = DataType.INT64
        else:
            is_float = name in _TO_FLOAT or any(map(_is_float, operands))
            dtype = DataType.DOUBLE if is_float else DataType.INT64
        arguments = {**options, **dict(zip("ab", operands, strict=False))}
        return self.builder.emit(f"sym::{name}", arguments, "", dtype=dtype, shape=ir.Shape(()))

    def _all(self, truths: Iterable[Number]) -> Number:
        return functools.reduce(lambda first, second: self._emit("and", first, second), truths)

    @contextlib.contextmanager
    def _own_requirements(self) -> Iterator[list[Number]]:
        """Collect the requirements of a sub-expression in a separate list, within the context."""
        outer, self.requirements = self.requirements, []
        try:
            yield self.requirements
        finally:
            self.requirements = outer

    def _truth(self, node: ast.expr) -> Number:
        """Write an expression and return its truth value by Python's rules."""
        if isinstance(node, ast.BoolOp):
            truths = []
            for operand in node.values:
                with self._own_requirements() as own:
                    truth = self._truth(operand)
                truths.append(self._all([*own, truth]))
            name = "or" if isinstance(node.op, ast.Or) else "and"
            return functools.reduce(lambda first, second: self._emit(name, first, second), truths)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            if any(isinstance(inner, ast.BoolOp) for inner in ast.walk(node)):
                raise self._refuse("negates a condition of several parts")
            return self._emit("not", self._truth(node.operand))
        number = self._number(node)
        return number if _is_bool(number) else self._emit("ne", number, 0)

    def _number(self, node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.Name() if node.id in self._variables:
                return self._variables[node.id]
            case ast.Name():
                raise self._refuse(f"names '{node.id}', which is not the size of an input")
            case ast.BinOp():
                return self._operation(node)
            case ast.UnaryOp():
                return self._sign(node)
            case ast.BoolOp():
                return self._truth(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Call():
                return self._call(node)
            case ast.Attribute() if ast.unparse(node) == "math.inf":
                return math.inf
            case _:
                raise self._refuse(f"contains {ast.unparse(node)}")

    def _operation(self, node: ast.BinOp) -> Number:
        first, second = self._number(node.left), self._number(node.right)
        if isinstance(node.op, ast.Pow):
            if not isinstance(second, int) or second < 0:
                raise self._refuse("has a power that is not a constant integer")
            return self._emit("pow", first, second)
        if type(node.op) not in _BINARY:
            raise self._refuse(f"contains {ast.unparse(node)}")
        if isinstance(node.op, _DIVISIONS) and isinstance(second, Value):
            # A runtime may end the process at an integer division by 0, so 1 replaces the divisor.
            is_divisor = self._emit("ne", second, 0)
            self.requirements.append(is_divisor)
            second = self._emit("ite", second, 1, cond=is_divisor)
        elif isinstance(node.op, _DIVISIONS) and second == 0:
            raise self._refuse("divides by 0")
        return self._emit(_BINARY[type(node.op)], first, second)

    def _sign(self, node: ast.UnaryOp) -> Number:
        if isinstance(node.op, ast.Not):
            return self._truth(node)
        if isinstance(node.op, ast.Invert):
            raise self._refuse(f"contains {ast.unparse(node)}")
        number = self._number(node.operand)
        if isinstance(node.op, ast.UAdd):
            return number
        return self._emit("neg", number) if isinstance(number, Value) else -number

    def _comparison(self, node: ast.Compare) -> Number:
        operands = [self._number(operand) for operand in (node.left, *node.comparators)]
        pairs = zip(node.ops, operands, operands[1:], strict=False)
        return self._all([self._emit(_COMPARISONS[type(op)], first, second) for op, first, second in pairs])

    def _choice(self, node: ast.IfExp) -> Number:
        test = self._truth(node.test)
        sides, requirements = [], []
        for side in (node.body, node.orelse):
            with self._own_requirements() as own:
                sides.append(self._number(side))
            requirements.append(self._all(own) if own else True)
        if requirements != [True, True]:
            # Only the chosen branch needs a value.
            self.requirements.append(self._emit("ite", *requirements, cond=test))
        return self._emit("ite", *sides, cond=test)

    def _call(self, node: ast.Call) -> Number:
        name = _FUNCTIONS.get(ast.unparse(node.func))
        operands = [self._number(operand) for operand in node.args]
        if name is None or not operands or (len(operands) > 1 and name not in ("max", "min")):
            raise self._refuse(f"contains {ast.unparse(node)}")
        if len(operands) == 1:
            return self._emit(name, *operands)
        return functools.reduce(lambda first, second: self._emit(name, first, second), operands)


def _is_bool(number: Number) -> bool:
    return number.dtype == DataType.BOOL if isinstance(number, Value) else isinstance(number, bool)


def _is_float(number: Number) -> bool:
    return number.dtype == DataType.DOUBLE if isinstance(number, Value) else isinstance(number, float)
