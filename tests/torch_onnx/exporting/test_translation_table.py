"""`custom_translation_table`: functions of ONNX Script at opsets that they were not written for."""

import operator

import onnxscript
import pytest
import torch
from onnxscript import FLOAT, opset13, script
from onnxscript import opset18 as op

import opsetta
from opsetta import torch_onnx

from ...opsets import HIGHEST

ATEN = torch.ops.aten
X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
contrib = onnxscript.values.Opset("com.microsoft", 1)
somebodys = onnxscript.values.Opset("somebody", 1)


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def exported(function, args, table, opset, **options):
    model = Calls(function).eval()
    return torch_onnx.export(model, args, opset_version=opset, custom_translation_table=table, **options)


def operators(result):
    return [node.op_type for node in result.model.graph]


def softmax(self, dim, half_to_float=False):
    return op.Softmax(self, axis=dim)


def largest(self, dim=None, keepdim=False):
    [axis] = dim
    values, indices = op.TopK(self, op.Constant(value_ints=[1]), axis=axis)
    first, second = op.Split(values, num_outputs=2, axis=0)
    joined = op.Concat(first, second, axis=0)
    bounded = op.Clip(op.Squeeze(joined, op.Constant(value_ints=[axis])), -100.0, None)
    zeros = op.Cast(op.Sub(indices, indices), to=FLOAT.dtype)
    return op.Add(bounded, op.ReduceSum(zeros, keepdims=0))


@script(somebodys)
def doubled(x):
    return op.Add(x, x)


@script(somebodys)
def scaled_sum(x, y, alpha: float = 1.0):
    factor = op.CastLike(alpha, y)
    return op.Add(x, op.Mul(op.Mul(doubled(y), factor), 0.5))


@script(contrib)
def contrib_gelu(x, approximate: str = "none"):
    return contrib.Gelu(x)


@script(somebodys)
def branching(x):
    if op.ReduceSum(x, keepdims=0) > 0.0:  # noqa: SIM108
        y = op.Identity(x)
    else:
        y = op.Neg(x)
    return y


@pytest.mark.parametrize("opset", [7, 12, HIGHEST])
def test_an_operator_has_the_meaning_of_the_functions_opset(opset):
    # TopK sorts from 11 on, and Softmax is over one dimension from 13 on.
    table = {ATEN.softmax.int: softmax, ATEN.amax.default: largest}
    function = lambda x: (x.softmax(1), x.amax(2))  # noqa: E731
    result = exported(function, (X,), table, opset)
    softmaxed, maximum = result(X)
    torch.testing.assert_close(softmaxed, X.softmax(1))
    torch.testing.assert_close(maximum, X.amax(2))
    assert "TopK" in operators(result)
    assert result.model.opset_imports == {"": opset}


@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_a_function_under_script_is_written_as_its_operators(opset):
    table = {ATEN.add.Tensor: scaled_sum}
    add = lambda x, y: torch.add(x, y, alpha=3)  # noqa: E731
    result = exported(add, (X, X + 1), table, opset, verify=True, optimize=False)
    # ONNX Script writes a CastLike for each constant.
    assert [name for name in operators(result) if name != "CastLike"] == ["Add", "Mul", "Mul", "Add"]
    assert result.model.opset_imports == {"": opset}


def test_an_operator_of_another_domain_is_written_as_it_is():
    result = exported(torch.nn.functional.gelu, (X,), {ATEN.gelu.default: contrib_gelu}, 12, verify=True)
    assert [(node.domain, node.op_type) for node in result.model.graph] == [("com.microsoft", "Gelu")]
    assert result.model.opset_imports == {"": 12, "com.microsoft": 1}


def test_pythons_operators_on_tensors():
    def mixed(self, other, alpha=1):
        assert self.rank == 3
        assert self.shape[0] == 2
        assert self.dtype == 1
        return (2.0 - self * other) / (other**2 + 1.0) - (-self) % 3.0

    table = {ATEN.sub.Tensor: mixed}
    result = exported(lambda x, y: x - y, (X, X + 1), table, 11)
    y = X + 1
    torch.testing.assert_close(result(X, y)[0], (2 - X * y) / (y**2 + 1) - torch.fmod(-X, 3))


def test_only_the_overload_of_the_key_is_served():
    table = {ATEN.sum.default: lambda self, dtype=None: op.Neg(op.ReduceSum(self, keepdims=0))}
    whole, rows = exported(lambda x: (x.sum(), x.sum(1)), (X,), table, 13)(X)
    torch.testing.assert_close(whole, -X.sum())
    torch.testing.assert_close(rows, X.sum(1))


def test_an_older_opset_of_the_function_keeps_its_meaning():
    def as_of_13(self):
        return opset13.ReduceMax(opset13.Relu(self), axes=[1], keepdims=1) + opset13.Sub(self, self)

    result = exported(torch.relu, (X,), {ATEN.relu.default: as_of_13}, 21)
    torch.testing.assert_close(result(X)[0], torch.relu(X).amax(1, keepdim=True).expand(X.shape))


def test_functions_that_are_not_used_are_named():
    with pytest.warns(UserWarning, match="captured without aten::addmm.default; it has aten::relu"):
        exported(torch.relu, (X,), {ATEN.addmm.default: softmax}, 12)
    with pytest.warns(UserWarning, match="floordiv have no effect"):
        exported(torch.relu, (X,), {operator.floordiv: softmax}, 12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda self: self if self else op.Neg(self), "branches on the value of a tensor.*torch.cond"),
        (branching, "has If, Loop or Scan.*torch.cond"),
        (lambda self, more: self, "cannot be called with"),
        ([len], "must be one function, not list"),
    ],
)
def test_what_cannot_be_written_is_refused(function, message):
    with pytest.raises(opsetta.OpsettaError, match=message):
        exported(torch.relu, (X,), {ATEN.relu.default: function}, 12)


def test_the_default_registry_does_not_change():
    before = opsetta.default_registry.versions("aten::relu")
    assert operators(exported(torch.relu, (X,), {ATEN.relu.default: lambda self: op.Neg(self)}, 12)) == [
        "Neg"
    ]
    assert opsetta.default_registry.versions("aten::relu") == before
