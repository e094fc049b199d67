"""Calling symbolic functions: coercion by annotation, and the messages of what does not fit."""

import onnx_ir as ir
import pytest
from onnx_ir import DataType

from opsetta.registration import (
    ArgumentError,
    GraphContext,
    Number,
    RegistrationError,
    Registry,
    UnsupportedError,
    Value,
)


def tensor(name="x", dtype=DataType.FLOAT, shape=(2, 3)) -> Value:
    return Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def context(opset=13, registry=None) -> GraphContext:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="g")
    return GraphContext(graph, opset, Registry() if registry is None else registry)


@pytest.fixture
def call():
    """Register a function and call it with the given arguments at opset 13."""

    def run(function, g=None, **arguments):
        g = context() if g is None else g
        g.registry.register("test::op", 9, function, override=True)
        return g.registry.lookup("test::op", "", g.opset)(g, arguments)

    return run


def integer(g, self: Value, k: int = 7):
    return k


def real(g, self: Value, alpha: float = 1.0):
    return alpha


def flag(g, self: Value, on: bool = False):
    return on


def integers(g, self: Value, dim: list[int]):
    return dim


def maybe_integers(g, self: Value, dim: list[int] | None = None):
    return dim


def sizes(g, self: Value, size: list[int | Value]):
    return size


def scalar_or_tensor(g, self: Value, other: Value | Number):
    return other


def only_tensor(g, self: Value, other: Value):
    return other


def element_type(g, self: Value, dtype: DataType | None = None):
    return dtype


def tensors(g, tensors: list[Value]):
    return tensors


def test_defaults_serve_what_is_left_out(call):
    assert call(integer, self=tensor()) == 7


def test_a_value_passes_where_values_are_taken(call):
    other = tensor("y")
    assert call(scalar_or_tensor, self=tensor(), other=other) is other
    assert call(tensors, tensors=[other]) == [other]


@pytest.mark.parametrize("number", [2, 2.5, True])
def test_a_number_stays_a_number_where_numbers_are_taken(call, number):
    found = call(scalar_or_tensor, self=tensor(), other=number)
    assert type(found) is type(number)
    assert found == number


def test_a_number_becomes_a_constant_where_only_values_are_taken(call):
    found = call(only_tensor, self=tensor(), other=2)
    assert found.dtype == DataType.INT64
    assert found.const_value.numpy() == 2


@pytest.mark.parametrize(
    ("function", "name", "array", "wanted"),
    [
        (integer, "k", 3, 3),
        (real, "alpha", 0.5, 0.5),
        (flag, "on", True, True),
        (integers, "dim", [1, -1], [1, -1]),
        (maybe_integers, "dim", [0], [0]),
    ],
)
def test_a_constant_value_is_folded_where_a_constant_is_asked_for(call, function, name, array, wanted):
    g = context()
    found = call(function, g, self=tensor(), **{name: g.constant(array)})
    assert type(found) is type(wanted)
    assert found == wanted


def test_a_constant_integer_serves_a_float_parameter(call):
    g = context()
    found = call(real, g, self=tensor(), alpha=g.constant(2))
    assert type(found) is float
    assert found == 2.0


def test_constants_inside_a_list_are_folded(call):
    g = context()
    assert call(integers, g, self=tensor(), dim=[g.constant(2), 3]) == [2, 3]


def test_values_inside_a_list_pass_where_values_are_taken(call):
    n = tensor("n", DataType.INT64, ())
    assert call(sizes, self=tensor(), size=[n, -1]) == [n, -1]


def test_an_int_becomes_a_float_where_only_a_float_is_taken(call):
    found = call(real, self=tensor(), alpha=2)
    assert type(found) is float


def test_ints_become_floats_in_a_list_of_floats(call):
    def scales(g, self: Value, factors: list[float]):
        return factors

    assert call(scales, self=tensor(), factors=[2, 0.5]) == [2.0, 0.5]


def test_a_lone_number_becomes_a_list_where_only_a_list_is_taken(call):
    assert call(integers, self=tensor(), dim=1) == [1]
    assert call(maybe_integers, self=tensor(), dim=1) == [1]


def test_a_tuple_becomes_a_list(call):
    assert call(integers, self=tensor(), dim=(1, 2)) == [1, 2]


def test_none_and_dtypes_pass(call):
    assert call(maybe_integers, self=tensor(), dim=None) is None
    assert call(element_type, self=tensor(), dtype=DataType.INT64) == DataType.INT64


def test_an_unknown_argument_is_refused_unless_it_is_none(call):
    assert call(integer, self=tensor(), other=None) == 7
    with pytest.raises(ArgumentError, match="test::op has no parameter 'other'"):
        call(integer, self=tensor(), other=1)


def test_a_missing_argument_is_named(call):
    with pytest.raises(ArgumentError, match="test::op needs argument 'dim'"):
        call(integers, self=tensor())


@pytest.mark.parametrize(
    ("function", "name", "argument", "taken"),
    [
        (integer, "k", 2.5, "int"),
        (integer, "k", "two", "int"),
        (flag, "on", "yes", "bool"),
        (integers, "dim", ["a"], "list"),
        (element_type, "dtype", "float", "DataType"),
        (only_tensor, "other", "text", "tensor"),
    ],
)
def test_a_wrong_type_names_the_operator_and_the_argument(call, function, name, argument, taken):
    with pytest.raises(ArgumentError) as caught:
        call(function, self=tensor(), **{name: argument})
    message = str(caught.value)
    assert message.startswith(f"argument '{name}' of test::op must be ")
    assert taken in message
    assert repr(argument) in message


def test_a_computed_value_where_a_constant_is_asked_for_is_refused(call):
    with pytest.raises(ArgumentError, match="argument 'k' of test::op must be constant at opset 13$"):
        call(integer, self=tensor(), k=tensor("k", DataType.INT64, ()))
    with pytest.raises(ArgumentError, match="argument 'dim' of test::op must be constant"):
        call(integers, self=tensor(), dim=[1, tensor("k", DataType.INT64, ())])


def test_a_refusal_names_the_opset_that_takes_it_computed():
    registry = Registry()
    registry.register("test::op", 9, integer)
    registry.register("test::op", 11, lambda g, self, k: k)
    g = context(9, registry)
    with pytest.raises(ArgumentError, match="from opset 11 it may be computed") as caught:
        registry.lookup("test::op", "", 9)(g, {"self": tensor(), "k": tensor("k", DataType.INT64, ())})
    assert caught.value.first_opset == 11


def test_unannotated_parameters_take_anything(call):
    def loose(g, self, alpha, dims=None):
        return alpha, dims

    assert call(loose, self=tensor(), alpha="x", dims=[1, 2]) == ("x", [1, 2])


def test_annotations_that_cannot_be_evaluated_are_a_registration_error(call):
    def broken(g, self: "Nowhere"):  # noqa: F821
        return self

    with pytest.raises(RegistrationError, match="test::op.*Nowhere"):
        call(broken, self=tensor())


def test_call_reaches_another_function_by_position_and_by_name():
    registry = Registry()
    registry.register("test::op", 9, lambda g, self, k=1, dim=None: (k, dim))
    g = context(13, registry)
    assert g.call("test::op", tensor(), 3, dim=[1]) == (3, [1])
    assert g.call("test::op.Tensor", tensor()) == (1, None)
    with pytest.raises(ArgumentError, match="test::op has 3 parameters, but was called with 4"):
        g.call("test::op", tensor(), 1, None, 2)


def test_call_of_what_no_function_serves_names_the_first_opset():
    registry = Registry()
    registry.register("test::op", 17, integer)
    with pytest.raises(UnsupportedError, match="test::op has no symbolic function at opset 13") as caught:
        context(13, registry).call("test::op", tensor())
    assert caught.value.first_opset == 17


@pytest.mark.parametrize("position", range(4))
def test_every_element_of_a_list_is_checked(position: int) -> None:
    registry = Registry()
    registry.register("mylib::op", 9, _takes_list)
    items: list = [1, 2, 3, 4]
    items[position] = "x"
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 13})
    with pytest.raises(ArgumentError, match=r"'items' of mylib::op must be a list of int, not \[.*'x'"):
        GraphContext(graph, 13, registry).call("mylib::op", items)


def test_an_argument_given_twice_is_refused() -> None:
    registry = Registry()
    registry.register("my.lib::op", 9, _takes_list)
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 13})
    with pytest.raises(ArgumentError, match="two values for argument 'items'"):
        GraphContext(graph, 13, registry).call("my.lib::op", [1], items=[2])


def _takes_list(g: GraphContext, items: list[int]) -> Value:
    return g.constant(items)


def test_an_argument_named_by_a_keyword_goes_to_the_parameter_with_an_underscore(call):
    def uniform(g, self: Value, from_: float = 0.0):
        return from_

    assert call(uniform, self=tensor(), **{"from": 2}) == 2.0


def test_attributes_without_a_parameter_are_passed_on(call):
    def passing(g, self: Value, axis: int = 0, **attributes: int):
        return axis, attributes

    assert call(passing, self=tensor(), axis=1, keepdims=0) == (1, {"keepdims": 0})


def test_arguments_about_storage_need_no_parameter_in_aten_alone():
    registry = Registry()
    for name in ("aten::op", "mylib::op"):
        registry.register(name, 9, integer)
    g = context(registry=registry)
    assert g.call("aten::op", tensor(), k=3, device="cuda:0", layout="strided") == 3
    with pytest.raises(ArgumentError, match="mylib::op has no parameter 'device'"):
        g.call("mylib::op", tensor(), device="cuda:0")
