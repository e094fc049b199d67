"""Emits the source nodes of a TorchScript program, with types and shapes from fake tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx_ir as ir
import sympy
import torch
from onnx_ir import DataType, Value, tensor_adapters

from ....passes.inplace.views import may_be_view
from ....passes.promotion.rules import output_dtype
from ....registration import ALIAS, LINE, MODULE, NUMBER, CaptureError, Names
from ....registration.arguments import source_node
from ....registration.warning import warn
from ...captured_graph.dimensions import SizeRestriction
from ...torch_boundary.operators.overloads import by_name, operator_of
from ...torch_boundary.replacements.kernels.recurrent_shapes import shapes_of
from ...torch_boundary.state.repeated_memory import RepeatedMemory
from ..descriptions import describe_state
from ..fx_import.source_values import tensor_type
from ..sizes.conditions.python_expressions import expression_text
from ..tensor_kinds import check
from ..weights import share_memory
from .fake_values import UNKNOWN, Fake, FakeResult, Tensor, repeated_samples
from .fakes import Fakes, Operator
from .kernel_checks import KernelChecks
from .objects import Item, WrittenConstant, is_number

_SYMBOLIC_NAMES = {
    "div": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "__and__": "and",
    "__or__": "or",
    "__xor__": "xor",
    "__not__": "not",
    "__lshift__": "lshift",
    "__rshift__": "rshift",
}
"""Names of the `sym` dialect that differ from TorchScript's."""

_SQUEEZES = frozenset({"aten::squeeze", "aten::squeeze_", "aten::squeeze_copy"})
DTYPES = {"int": DataType.INT64, "float": DataType.DOUBLE, "bool": DataType.BOOL}


class ScriptGraphBuilder:
    """A source graph under construction, and its sub-block that nodes are appended to.

    Attributes:
        nodes: the nodes of the innermost block.
        initializers: the tensors of the graph.
        module, line: those of the current TorchScript node.
        writes: whether the program writes to tensors while constant tensors are still folded.
        restrictions: the sizes of the inputs for which the graph is valid.
        kernel_checks: tries the kernels of operators, if the program has not run on the example yet.
    """

    def __init__(self, fakes: Fakes, *, source_lines: bool = False):
        self.fakes = fakes
        self.names = Names()
        self.nodes: list[ir.Node] = []
        self.initializers: list[Value] = []
        self.module = ""
        self.line = ""
        self.writes = False
        self.restrictions: list[SizeRestriction] = []
        self.kernel_checks: KernelChecks | None = None
        self.elements: dict[Value, Fake] = {}
        """The known properties of the elements of lists of unknown length."""
        self._source_lines = source_lines
        self._reserved: set[str] = set()
        self._constants: dict[int, tuple[torch.Tensor, Value]] = {}
        self._repeated = RepeatedMemory()

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve the names of the model's own tensors, unless other values have them already."""
        for name in names:
            if not self.names.is_taken(name):
                self._reserved.add(name)
                self.names.take(name)

    @contextmanager
    def block(self) -> Iterator[list[ir.Node]]:
        """Append to a new list of nodes temporarily, for a branch or a body."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    @contextmanager
    def appending(self, nodes: list[ir.Node]) -> Iterator[None]:
        """Append to an existing list of nodes temporarily."""
        outer, self.nodes = self.nodes, nodes
        try:
            yield
        finally:
            self.nodes = outer

    def value(self, stem: str, fake: Fake) -> Value:
        """A value that is described by a fake tensor or number."""
        return self.fakes.describe(Value(name=self.names.unique(stem)), fake)

    def number(self, number_type: str, fake: Fake = UNKNOWN, stem: str | None = None) -> Value:
        """A value that is a Python number."""
        value = Value(
            name=self.names.unique(stem or number_type),
            type=ir.TensorType(DTYPES[number_type]),
            shape=ir.Shape(()),
        )
        value.metadata_props[NUMBER] = number_type
        self.fakes[value] = self.fakes.number(number_type) if fake is UNKNOWN else fake
        return value

    def list_value(self, element: Fake, element_type: str, stem: str = "list") -> Value:
        """A value that is a list of unknown length.

        Args:
            element: the known properties of its elements, as a fake.
            element_type: the TorchScript type of its elements.
        """
        value = Value(name=self.names.unique(stem))
        if element_type in DTYPES:
            value.type, value.shape = ir.TensorType(DTYPES[element_type]), ir.Shape([None])
            return value
        self.elements[value] = element
        if element is not UNKNOWN:
            member = self.fakes.describe(Value(), element)
            value.type, value.shape = ir.SequenceType(member.type), member.shape  # type: ignore[arg-type]
            if member.shape is not None and isinstance(element, Tensor):
                # An unknown size may differ from element to element, so the list has no such size.
                unknown = [self.fakes.is_unknown_size(size) for size in element.shape]
                value.shape = ir.Shape(
                    [
                        None if is_unknown else size
                        for is_unknown, size in zip(unknown, member.shape, strict=True)
                    ]
                )
        return value

    def append(
        self,
        name: str,
        arguments: Mapping[str, object],
        outputs: Sequence[Value],
        overload: str = "",
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Node:
        """Append a source node whose outputs are given."""
        metadata = {MODULE: self.module} if self.module else {}
        if self._source_lines and self.line:
            metadata[LINE] = self.line
        node = source_node(
            name,
            {key: self.argument(item) for key, item in arguments.items()},
            overload=overload,
            outputs=outputs,
            node_name=self.names.unique(name.partition("::")[2]),
            attributes=attributes,
            metadata_props=metadata,
        )
        self.nodes.append(node)
        return node

    def argument(self, item: object) -> object:
        """Convert an argument to its form on source nodes; constant tensors become initializers."""
        if isinstance(item, torch.Tensor):
            return self.constant_tensor(item)
        if isinstance(item, (list, tuple)):
            return [self.argument(member) for member in item]
        return item

    def constant_tensor(
        self,
        tensor: torch.Tensor,
        name: str | None = None,
        role: str = "constant",
        *,
        persistent: bool = True,
    ) -> Value:
        """A tensor of the program as an initializer, the same one each time."""
        # `_constants` keeps the tensor alive, so its `id` is not used again.
        earlier = self._constants.get(id(tensor))
        if earlier is not None:
            return earlier[1]
        check(role, name or "constant", tensor, "register")
        if tensor.device.type == "meta":
            raise CaptureError(f"'{name}' is on the meta device: it has no data to export")
        self._repeated.add(name or "constant", tensor)
        # The first use of a reserved name is by the tensor that it was reserved for.
        is_reserved = name in self._reserved
        self._reserved.discard(name or "")
        value = Value(
            name=name if is_reserved else self.names.unique(name or "constant"),
            type=tensor_type(tensor),
            shape=ir.Shape(tensor.shape),
            const_value=tensor_adapters.TorchTensor(tensor.detach(), name=name or "constant"),
        )
        describe_state(value.metadata_props, role, tensor, persistent=persistent)
        self.fakes[value] = self.fakes.fake_of(tensor)
        self.initializers.append(value)
        self._constants[id(tensor)] = (tensor, value)
        return value

    def arithmetic(
        self, name: str, number_type: str, *operands: Item, python: Callable[..., float] | None = None
    ) -> Value:
        """A `sym` node over numbers.

        Args:
            number_type: the type of the result, `int`, `float` or `bool`.
            python: the Python function that computes the result, if its value may be useful.
        """
        result = self.number(
            number_type, self.fakes.compute_number(name, number_type, python, operands), name
        )
        symbolic = _SYMBOLIC_NAMES.get(name, name)
        self.append(f"sym::{symbolic}", dict(zip(("a", "b", "c"), operands, strict=False)), [result])
        return result

    def list_number(self, name: str, arguments: Mapping[str, object], number_type: str) -> Value:
        """A number from a `list` node."""
        result = self.number(number_type, stem=name.partition("::")[2])
        self.append(name, arguments, [result])
        return result

    def as_value(self, item: Item) -> Value:
        """An item that a block returns as a source value.

        Raises:
            WrittenConstant: a constant tensor becomes one that the program may write to.
        """
        if isinstance(item, Value):
            return item
        if isinstance(item, torch.Tensor):
            self.check_constant()
            return self.constant_tensor(item)
        if not is_number(item) or isinstance(item, complex):
            raise CaptureError(f"{item!r} cannot depend on a computed condition")
        result = self.number(type(item).__name__, stem="constant")
        self.append("prim::Constant", {"value": item}, [result])
        return result

    def check_constant(self) -> None:
        """Check that a constant tensor may become a value.

        Raises:
            WrittenConstant: the program writes to tensors, possibly to this one.
        """
        if self.writes:
            raise WrittenConstant

    def new_tensor(self, tensor: torch.Tensor) -> Value:
        """A new tensor that the program makes from constants."""
        value = self.value("constant", self.fakes.fake_of(tensor))
        self.append("aten::clone", {"self": self.constant_tensor(tensor)}, [value], "default")
        return value

    def alias(self, value: Value) -> Value:
        """The same tensor, number or list as a distinct value, for an output of a block."""
        copy = Value(name=self.names.unique(f"{value.name}_alias"), type=value.type, shape=value.shape)
        copy.metadata_props.update({k: v for k, v in value.metadata_props.items() if k == NUMBER})
        self.fakes[copy] = self.fakes[value]
        if value in self.elements:
            self.elements[copy] = self.elements[value]
        self.append("aten::alias", {"self": value}, [copy], "default")
        return copy

    def operator(
        self,
        name: str,
        overload: str,
        arguments: Mapping[str, object],
        returns: Sequence[str],
        stem: str,
        written: Sequence[str] = (),
    ) -> list[Value | list[Value]]:
        """Append an operator of a library; return its results: values, and lists of values.

        Args:
            returns: the TorchScript types of its results.
            stem: the stem of its results' names.
            written: arguments to which the operator writes. The node returns their new values after its
                results, and `copy_` nodes write them.
        """
        function = operator_of(name, overload)
        arguments = {key: self.argument(item) for key, item in arguments.items()}
        fake: FakeResult = UNKNOWN
        if function is not None:
            self.fakes.assumes_rank = False
            call = shapes_of(name, overload) or by_name(function, self.fakes.run)
            fake = self._evaluate_fake(call, arguments)
            if self.kernel_checks is not None and fake is not UNKNOWN:
                is_refused = self.kernel_checks.refuses(name, function, self.fakes.fake_arguments(arguments))
                self.fakes.has_refused |= is_refused
            if self._removes_dimension(name, arguments) or self.fakes.assumes_rank:
                where = f" at {self.line}" if self.line else ""
                warn(
                    f"{name} in '{self.module or '<root>'}'{where} removes a dynamic dimension if its size "
                    "is 1; the export assumes that it is larger: name the dimensions to remove",
                )
        # A single result may itself be a list.
        fakes = list(fake) if isinstance(fake, (tuple, list)) and len(returns) != 1 else [fake]
        if fake is UNKNOWN or not returns:
            fakes = [UNKNOWN] * len(returns)
        results: list[Value | list[Value]] = []
        outputs: list[Value] = []
        for index, (return_type, result_fake) in enumerate(zip(returns, fakes, strict=True)):
            result = self._result(
                return_type, result_fake, stem if len(returns) == 1 else f"{stem}_{index}", name
            )
            results.append(result)
            outputs += result if isinstance(result, list) else [result]
        # The node returns new values of the tensors that it writes to.
        targets = self._written_tensors(name, arguments, written)
        count = len(outputs)
        outputs += map(self._copy_of, targets)
        node = self.append(name, arguments, outputs, overload)
        # The in-place pass does not know operators of other libraries, so make their writes explicit.
        for target, new in zip(targets, outputs[count:], strict=True):
            copy_arguments = {"self": target, "src": new, "non_blocking": False}
            self.append("aten::copy_", copy_arguments, [self._copy_of(target)], "default")
        if outputs and outputs[0].dtype is None and outputs[0].type is None and name.startswith("aten::"):
            dtype = output_dtype(node.op_type, arguments)
            outputs[0].type = None if dtype is None else ir.TensorType(dtype)
        self._note_copy(node, arguments, fakes[0] if fakes else UNKNOWN)
        return results

    def tensor_operator(self, name: str, overload: str, arguments: Mapping[str, object], stem: str) -> Value:
        """Append an operator of ATen whose result is one tensor."""
        [result] = self.operator(f"aten::{name}", overload, arguments, ["Tensor"], stem)
        assert isinstance(result, Value)
        return result

    def _copy_of(self, value: Value) -> Value:
        """A new value with the known properties of another one."""
        copy = self.value(value.name or "value", self.fakes[value])
        copy.type, copy.shape = value.type, value.shape
        return copy

    def _written_tensors(
        self, name: str, arguments: Mapping[str, object], written: Sequence[str]
    ) -> list[Value]:
        """The tensors in some arguments of an operator.

        Raises:
            CaptureError: an argument is a list of unknown length.
        """
        arguments_written = [arguments.get(key) for key in written]
        leaves = [
            leaf
            for argument in arguments_written
            for leaf in (argument if isinstance(argument, list) else [argument])
        ]
        items = [leaf for leaf in leaves if isinstance(leaf, Value)]
        if any(isinstance(item.type, ir.SequenceType) for item in items):
            raise CaptureError(f"{name} writes to the tensors of a list whose length is not known at capture")
        return items

    def _evaluate_fake(self, function: Operator, arguments: Mapping[str, object]) -> FakeResult:
        """The fake result of an operator; lists of unknown length are tried with two and three elements."""
        members = {
            key: self.fakes.describe(Value(), self.elements[item])
            for key, item in arguments.items()
            if isinstance(item, Value) and item in self.elements
        }
        if not members:
            return self.fakes.evaluate(function, arguments)
        two, three = (
            self.fakes.evaluate(function, {**arguments, **{key: [item] * n for key, item in members.items()}})
            for n in (2, 3)
        )
        if isinstance(two, (list, tuple)) or isinstance(three, (list, tuple)):
            return UNKNOWN
        return self.fakes.join(two, three)

    def require(self, size: object, condition: str, reason: str) -> None:
        """Restrict the program to sizes of its inputs.

        Args:
            size: a size; ignored unless it depends on the inputs' dynamic sizes alone.
            condition: the condition on it, with `{}` for the size.
            reason: why other sizes are not valid, for messages.
        """
        if isinstance(size, sympy.Expr) and self.fakes.is_of_inputs(size):
            text = expression_text(size, {symbol: symbol.name for symbol in size.free_symbols})
            text = text if size.is_Symbol else f"({text})"
            restriction = SizeRestriction(condition.format(text), reason, self.line)
            if restriction not in self.restrictions:
                self.restrictions.append(restriction)

    def _removes_dimension(self, name: str, arguments: Mapping[str, object]) -> bool:
        """Whether an operator removes a dynamic dimension if its size is 1; requires another size."""
        item = arguments.get("self")
        fake = self.fakes[item] if name in _SQUEEZES and isinstance(item, Value) else UNKNOWN
        if not isinstance(fake, Tensor):
            return False
        dims = arguments.get("dim")
        axes = range(fake.dim()) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
        sizes = [fake.shape[axis] for axis in axes if isinstance(axis, int) and fake.dim()]
        for size in sizes:
            self.require(size, "{} != 1", "a result has another rank at other sizes")
        return any(isinstance(size, sympy.Symbol) for size in sizes)

    def _result(self, return_type: str, fake: FakeResult, stem: str, name: str) -> Value | list[Value]:
        if return_type in ("int", "float", "bool", "Scalar", "number"):
            return self.number(return_type if return_type in DTYPES else "float", stem=stem)
        if return_type == "Tensor[]":
            if not isinstance(fake, (list, tuple)):
                raise CaptureError(f"the number of tensors that {name} returns must be known at capture")
            return [self._value_of(f"{stem}_{i}", member) for i, member in enumerate(fake)]
        return self._value_of(stem, fake)

    def _value_of(self, stem: str, fake: FakeResult) -> Value:
        return self.value(stem, UNKNOWN if isinstance(fake, (list, tuple)) else fake)

    def _note_copy(self, node: ir.Node, arguments: Mapping[str, object], fake: FakeResult) -> None:
        """Record that an operator which may return a view or a copy made a copy, or that sizes decide."""
        if not isinstance(fake, Tensor) or not may_be_view(node):
            return
        source = next((item for item in arguments.values() if isinstance(item, Value)), None)
        base = self.fakes[source] if source is not None else UNKNOWN
        if not isinstance(base, Tensor):
            return
        pairs = zip(repeated_samples(fake.samples), repeated_samples(base.samples), strict=False)
        # Empty tensors share no elements, and torch's cache of fake results may give them other memory.
        shares = {
            share_memory(result_sample, base_sample)
            for result_sample, base_sample in pairs
            if result_sample is not None
            and base_sample is not None
            and not any(type(n) is int and n == 0 for n in result_sample.shape)
        }
        if False in shares:
            node.metadata_props[ALIAS] = "unknown" if True in shares else "false"


def stem_of(name: str, node_kind: str) -> str:
    """A stem for the name of a value: the program's own, without the number that TorchScript adds."""
    stem = re.sub(r"\.\d+$", "", name)
    return node_kind.partition("::")[2] if stem.isdigit() or not stem else stem
