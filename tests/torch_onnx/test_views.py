"""What a symbolic function of torch.onnx is given, what it may ask, and what it is refused."""

import numpy as np
import pytest
import torch
from torch.onnx import symbolic_helper as torch_helper

import opsetta
from opsetta import torch_onnx
from opsetta.torch_onnx import symbolic_helper, symbolic_opset9, symbolic_opset11

from ..opsets import HIGHEST

LIBRARY = torch.library.Library("viewed", "DEF")
LIBRARY.define(
    "everything(Tensor x, Tensor? w, float a, int[] k, bool b, str s, Tensor[] t, SymInt[] z, "
    "ScalarType? d=None) -> Tensor"
)
LIBRARY.impl("everything", lambda x, w, a, k, b, s, t, z, d=None: x * 1, "CompositeExplicitAutograd")
LIBRARY.define("same(Tensor x, int[] axes=[0]) -> Tensor")
LIBRARY.impl("same", lambda x, axes=(0,): x * 1, "CompositeExplicitAutograd")


class Same(torch.nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.arguments = arguments

    def forward(self, x):
        return torch.ops.viewed.same(x, *self.arguments)


@pytest.fixture
def register():
    """Registers functions for one test."""
    held = set()

    def registering(name, function, opset=9):
        torch_onnx.register_custom_op_symbolic(name, function, opset)
        held.add((name, opset))

    yield registering
    for name, opset in held:
        torch_onnx.unregister_custom_op_symbolic(name, opset)


def exported(model, *inputs, opset=13, **options):
    return opsetta.export(model.eval(), inputs, opset=opset, **options)


def seen_by(register, look, *inputs, opset=13, arguments=(), **options):
    """What `look(g, x, axes)` gives back for the operator `same`."""
    found = []

    def symbolic(g, x, axes):
        found.append(look(g, x, axes))
        return g.op("Identity", x)

    register("viewed::same", symbolic)
    exported(Same(*arguments), *(inputs or (torch.randn(2, 3),)), opset=opset, **options)
    return found[-1]


def test_every_argument_is_a_value_in_the_place_of_the_schema(register):
    seen = []

    def everything(g, *values):
        seen.extend(values)
        kinds = [value.node().kind() for value in values]
        assert kinds == [
            "prim::Param",
            "prim::Constant",
            *["onnx::Constant"] * 4,
            "prim::ListConstruct",
            "prim::ListConstruct",
            "prim::Constant",
        ]
        return values[0]

    class Everything(torch.nn.Module):
        def forward(self, x):
            return torch.ops.viewed.everything(x, None, 0.5, [1, 2], True, "hi", [x, x], [x.shape[0], 2])

    register("viewed::everything", everything, 1)
    exported(Everything(), torch.randn(3, 2), dynamic_axes={"x": {0: "rows"}})
    x, w, a, k, b, s, t, z, d = seen
    assert symbolic_helper._is_none(w)
    assert d.node().mustBeNone()
    assert [value.type().scalarType() for value in (x, a, k, b)] == ["Float", "Double", "Long", "Bool"]
    assert (symbolic_helper._get_const(a, "f", "a"), symbolic_helper._maybe_get_const(k, "is")) == (
        0.5,
        [1, 2],
    )
    assert symbolic_helper._parse_arg(b, "b") is True
    assert symbolic_helper._parse_arg(s, "s") == s.node().s("value") == "hi"
    assert torch.equal(symbolic_helper._parse_arg(k, "t"), torch.tensor([1, 2]))
    assert symbolic_helper._unpack_list(t) == [x, x]
    assert symbolic_helper._is_tensor_list(t)
    assert symbolic_helper._parse_arg(z.node().inputs()[1], "i") == 2
    with pytest.raises(torch_onnx.errors.SymbolicValueError, match="list 'z' must be constant"):
        symbolic_helper._parse_arg(z, "is", "z")


def test_parse_args_reads_each_descriptor(register):
    @symbolic_helper.parse_args("v", "none", "f", "fs", "b", "s", "none", "none", "i")
    def everything(g, x, w, a, k, b, s, t, z, d=7):
        assert (a, k, b, s, d) == (0.5, [1.0, 2.0], True, "hi", None)
        return g.op("Identity", x)

    class Everything(torch.nn.Module):
        def forward(self, x):
            return torch.ops.viewed.everything(x, None, 0.5, [1, 2], True, "hi", [x, x], [1, 2])

    register("viewed::everything", everything)
    exported(Everything(), torch.randn(3, 2)).verify()


def test_types_say_what_is_known(register):
    kind = seen_by(register, lambda g, x, axes: x.type(), torch.randn(2, 3, dtype=torch.float64))
    assert (kind.scalarType(), kind.dtype(), kind.dim(), kind.sizes()) == ("Double", torch.float64, 2, [2, 3])
    assert kind.isSubtypeOf(torch._C.TensorType.get())
    assert kind.with_sizes([None, 3]).varyingSizes() == [None, 3]
    assert kind.with_dtype(torch.int32).scalarType() == "Int"


def test_a_dynamic_size_is_none(register):
    def look(g, x, axes):
        helper = symbolic_helper
        return x.type().sizes(), helper._get_tensor_sizes(x), helper._get_tensor_dim_size(x, -1)

    assert seen_by(register, look, dynamic_axes={"x": {0: "n"}}) == (None, [None, 3], 3)


def test_the_opset_is_told(register):
    from opsetta.torch_onnx._globals import GLOBALS

    def look(g, x, axes):
        return g.opset, GLOBALS.export_onnx_opset_version, symbolic_helper._export_onnx_opset_version

    assert seen_by(register, look, opset=11) == (11, 11, 11)


@pytest.mark.parametrize(
    ("look", "named"),
    [
        (lambda g, x, axes: g.block, "'block' of g"),
        (lambda g, x, axes: x.uses(), "'uses' of a value"),
        (lambda g, x, axes: x.type().strides(), "'strides' of a type"),
        (lambda g, x, axes: x.node().schema(), "'schema' of a node"),
        (lambda g, x, axes: symbolic_helper._set_opset_version(9), "argument of opsetta.export"),
        (lambda g, x, axes: symbolic_helper.quantize_helper(g, x), "QuantizeLinear"),
    ],
)
def test_what_is_not_here_is_named(register, look, named):
    with pytest.raises(opsetta.OpsettaError, match=named):
        seen_by(register, look)


def test_every_name_of_symbolic_helper_is_here_or_refused_by_name():
    for name in torch_helper.__all__:
        if not hasattr(symbolic_helper, name):
            with pytest.raises(AttributeError, match=f"'{name}' of symbolic_helper"):
                getattr(symbolic_helper, name)


def test_tables_of_element_types_are_those_of_torch():
    for name in ("cast_pytorch_to_onnx", "scalar_type_to_onnx"):
        ours, theirs = getattr(symbolic_helper, name), getattr(torch_helper, name)
        pairs = theirs.items() if isinstance(theirs, dict) else enumerate(theirs)
        assert [key for key, item in pairs if int(item) and int(ours[key]) != int(item)] == []
    assert symbolic_helper.scalar_type_to_pytorch_type == torch_helper.scalar_type_to_pytorch_type
    assert torch_helper.pytorch_name_to_type.items() <= symbolic_helper.pytorch_name_to_type.items()
    for kind in torch.onnx.JitScalarType:
        own = torch_onnx.JitScalarType[kind.name]
        assert own == kind
        assert own.scalar_name() == kind.scalar_name()


def test_refusals_name_operator_and_opset(register):
    def later(g, x, axes):
        return symbolic_helper._onnx_opset_unsupported_detailed("same", g.opset, 15, "no mode", x)

    register("viewed::same", later)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="no mode") as raised:
        exported(Same(), torch.randn(2))
    [operator] = raised.value.operators
    assert operator.first_opset == 15


def test_an_argument_that_is_computed_is_refused_where_a_constant_is_due(register):
    @symbolic_helper.parse_args("v", "i")
    def clamped(g, x, minimum):
        return g.op("Clip", x, min_f=minimum)

    register("aten::clamp_min", clamped)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="'minimum' of clamped must be constant"):
        opsetta.export(lambda x, y: torch.clamp_min(x, y), (torch.randn(2), torch.randn(2)), opset=13)


def operators(program):
    return [node.op_type for node in program.model.graph]


def test_a_function_serves_from_its_opset_on_and_goes_before_the_built_in(register):
    register("::hardswish", lambda g, x: g.op("mylib::HardSwish", x), 11)
    model = torch.nn.Hardswish()
    made = {opset: operators(exported(model, torch.randn(2), opset=opset)) for opset in (9, 11, 14, HIGHEST)}
    assert made.pop(9) != ["HardSwish"]
    assert all(types == ["HardSwish"] for types in made.values())


@pytest.mark.parametrize(("registered", "opset"), [(1, 9), (1, 7), (8, 7), (9, 8), (8, 20)])
def test_functions_registered_below_nine_serve(register, registered, opset):
    register("aten::relu", lambda g, x: g.op("mylib::Relu6", x), registered)
    assert operators(exported(torch.nn.ReLU(), torch.randn(2), opset=opset)) == ["Relu6"]


def test_unregistering_brings_the_built_in_back(register):
    register("aten::relu", lambda g, x: g.op("mylib::Relu6", x))
    torch_onnx.unregister_custom_op_symbolic("::relu", 9)
    assert operators(exported(torch.nn.ReLU(), torch.randn(2))) == ["Relu"]
    with pytest.warns(UserWarning, match="aten::relu"):
        torch_onnx.unregister_custom_op_symbolic("aten::relu", 9)
    register("aten::relu", lambda g, x: x)


def test_the_built_in_function_may_be_called_from_what_replaces_it(register):
    register("aten::relu", lambda g, x: g.op("Neg", symbolic_opset11.relu(g, x)))
    assert operators(exported(torch.nn.ReLU(), torch.randn(2))) == ["Relu", "Neg"]


def test_functions_of_other_operators_take_what_torch_onnx_gives_them(register):
    def softened(g, x, axes):
        x = symbolic_opset9.softmax(g, x, -1)
        x = symbolic_opset9._cast_Double(g, x, False)
        last = g.op("Constant", value_t=torch.tensor(-1))
        x = symbolic_opset9.select(g, symbolic_opset9.unsqueeze(g, x, 0), 0, last)
        return symbolic_opset9._cast_Float(g, x, False)

    register("viewed::same", softened)
    x = torch.randn(2, 3)
    for opset in (9, 13, 18):
        program = exported(Same(), x, opset=opset)
        np.testing.assert_allclose(program(x), x.softmax(-1), rtol=1e-5)


def test_constants_take_the_element_type_beside_them(register):
    def doubled(g, x, axes):
        return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(1)))

    register("viewed::same", doubled)
    for dtype in (torch.float16, torch.float64, torch.int32):
        exported(Same(), torch.ones(2, dtype=dtype), opset=13).verify()


@pytest.mark.parametrize("opset", [9, 11, 13, 18, HIGHEST])
def test_inputs_of_a_later_opset_find_their_place(register, opset):
    def squeezed(g, x, axes):
        one = g.op("Constant", value_t=torch.tensor([0]))
        x = g.op("Unsqueeze", x, one)
        x = g.op("ReduceSum", x, one, keepdims_i=0)
        first, second = g.op("Split", x, axis_i=1, outputs=2)
        return g.op("Concat", first, second, axis_i=1)

    register("viewed::same", squeezed)
    exported(Same(), torch.randn(2, 4), opset=opset).verify()


@pytest.mark.parametrize("opset", [10, 11, 13, 18])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_of_opset_10_keeps_its_meaning(register, opset, mode):
    def resized(g, x, axes):
        return g.op("Resize", x, g.op("Constant", value_t=torch.tensor([1.0, 2.0])), mode_s=mode)

    register("viewed::same", resized, 10)
    x = torch.tensor([[0.0, 1, 2], [5, 7, 9]])
    ends = [1, 2, 2] if mode == "linear" else [0, 1, 2]
    program = exported(Same(), x, opset=opset)
    found = program(x)
    expected = torch.stack([x, (x + x[:, ends]) / 2], -1).flatten(1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("opset", [21, HIGHEST])
def test_scales_of_groups_stay_scales_of_groups(register, opset):
    def normalized(g, x, axes):
        scale = g.op("Constant", value_t=torch.tensor([1.0, 2.0]))
        return g.op("GroupNormalization", x, scale, scale, num_groups_i=2)

    register("viewed::same", normalized, 18)
    x = torch.randn(1, 4, 2)
    wide = torch.tensor([1.0, 1.0, 2.0, 2.0])
    expected = torch.nn.functional.group_norm(x, 2, wide, wide)
    program = exported(Same(), x, opset=opset)
    torch.testing.assert_close(program(x), expected, rtol=1e-4, atol=1e-5)


def test_helpers_that_emit_work_where_sizes_are_dynamic(register):
    def look(g, x, axes):
        helper = symbolic_helper
        rows = helper._size_helper(g, x, g.op("Constant", value_t=torch.tensor(0)))
        shape = g.op(
            "Concat",
            helper._unsqueeze_helper(g, rows, [0]),
            g.op("Constant", value_t=torch.tensor([-1])),
            axis_i=0,
        )
        x = helper._reshape_helper(g, helper._flatten_helper(g, x, 0, 1, 2), shape)
        ones = g.op("ConstantOfShape", g.op("Shape", x), value_t=torch.tensor([1.0]))
        values, _ = helper._sort_helper(g, g.op("Mul", x, ones), -1)
        first = helper._select_helper(g, values, 0, helper._generate_wrapped_number(g, 0))
        largest = helper._max_helper(g, helper._squeeze_helper(g, first, [0]))
        numel = helper._maybe_cast_to_type(g, helper._numel_helper(g, x), torch_onnx.JitScalarType.FLOAT)
        return g.op("Add", x, g.op("Mul", g.op("Sub", largest, largest), numel))

    register("viewed::same", look)
    program = exported(Same(), torch.randn(2, 3), opset=10, dynamic_axes={"x": {0: "n"}})
    for opset in (10, 13, 18, HIGHEST):
        lowered = program.lower(opset=opset)
        x = torch.randn(5, 3)
        torch.testing.assert_close(lowered(x), x)


def test_the_operator_that_is_exported_is_told(register):
    def look(g, x, axes):
        return g.original_node.kind(), g.original_node.outputsSize()

    assert seen_by(register, look) == ("viewed::same", 1)
    with pytest.raises(opsetta.OpsettaError, match="'inputs' of the original node"):
        seen_by(register, lambda g, x, axes: g.original_node.inputs())


def test_an_attribute_that_equals_its_default_is_still_read(register):
    def look(g, x, axes):
        node = g.op("HardSigmoid", x, alpha_f=0.25, beta_f=0.5).node()
        return node["alpha"], node.f("beta"), node.hasAttribute("beta"), node.hasAttribute("gamma")

    assert seen_by(register, look) == (0.25, 0.5, True, False)


def test_scripts_reach_the_function_too(register):
    def scaled(g, x, axes):
        return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(float(len(axes.node()["value"])))))

    register("viewed::same", scaled)
    traced = torch.jit.trace(Same([0, 1, 0]).eval(), (torch.randn(2, 2),))
    x = torch.randn(2, 2)
    torch.testing.assert_close(opsetta.export(traced, (x,), opset=9)(x), x * 3)


def test_the_registry_of_older_torch(register):
    from opsetta.torch_onnx.symbolic_registry import get_registered_op, is_registered_op, register_op

    register("aten::relu", lambda g, x: x, 9)

    def negated(g, x):
        return g.op("Neg", get_registered_op("relu", "", 11)(g, x))

    register_op("relu", negated, "", 9)
    assert is_registered_op("relu", "", 11)
    assert not is_registered_op("no_such_operator", "", 11)
    assert operators(exported(torch.nn.ReLU(), torch.randn(2))) == ["Relu", "Neg"]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def symbolic(g, x):
        return g.op("mylib::Doubled", x)


def test_a_symbolic_method_of_an_autograd_function_is_not_seen():
    program = opsetta.export(lambda x: Doubled.apply(x), (torch.randn(2),), opset=13)
    assert operators(program) == ["Mul"]
    with pytest.raises(opsetta.RegistrationError, match=r"torch.library.custom_op"):
        torch_onnx.register_custom_op_symbolic("prim::PythonOp", lambda g, *values: None, 1)


@pytest.mark.parametrize(
    ("name", "opset"),
    [("relu", 9), ("aten::relu_", 9), ("aten::relu", opsetta.MAXIMUM_OPSET + 1), ("aten::relu", 0)],
)
def test_registrations_out_of_form_are_refused(name, opset):
    with pytest.raises(opsetta.RegistrationError):
        torch_onnx.register_custom_op_symbolic(name, lambda g, x: x, opset)


def test_a_function_that_takes_too_few_arguments_is_named(register):
    register("viewed::same", lambda g, x: x)
    with pytest.raises(
        opsetta.UnsupportedOperatorsError, match=r"viewed::same cannot be called with the 2 arguments"
    ):
        exported(Same(), torch.randn(2))
