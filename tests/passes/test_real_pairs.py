"""`real_pairs` on graphs of one or two nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import DataType

from opsetta.passes import real_pairs
from opsetta.registration import COMPLEX, GraphError
from opsetta.registration.arguments import arguments, qualified_name

from .source_interpreter import Recorder

Z = torch.ones(3, 4, dtype=torch.complex64)


def _ops(model: ir.Model) -> list[str]:
    return [qualified_name(node) for node in model.graph]


def _rewritten(recorder: Recorder, *values: ir.Value) -> ir.Model:
    model = recorder.model(*values)
    assert real_pairs(model)
    assert not real_pairs(model)
    return model


def _shape(value: ir.Value) -> list[int | ir.SymbolicDim]:
    assert value.shape is not None
    return list(value.shape)


def test_graph_of_real_numbers_is_left_alone() -> None:
    recorder = Recorder()
    x = recorder.input(torch.ones(2))
    assert not real_pairs(recorder.model(recorder.call("sin", self=x)))


def test_complex_value_becomes_a_pair() -> None:
    recorder = Recorder()
    z, w = recorder.input(Z), recorder.input(Z.to(torch.complex128), "w")
    _rewritten(recorder, recorder.call("exp", self=z), recorder.call("exp", self=w))
    assert (z.dtype, _shape(z)) == (DataType.FLOAT, [3, 4, 2])
    assert (w.dtype, _shape(w)) == (DataType.DOUBLE, [3, 4, 2])
    assert z.metadata_props[COMPLEX] == "true"


def test_operator_becomes_one_of_the_complex_dialect() -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    assert _ops(_rewritten(recorder, recorder.call("mul", "Tensor", self=z, other=z))) == ["complex::mul"]


def test_real_operand_becomes_a_pair_first() -> None:
    recorder = Recorder()
    z, x = recorder.input(Z), recorder.input(torch.ones(4, dtype=torch.int64), "x")
    model = _rewritten(recorder, recorder.call("mul", "Tensor", self=z, other=x))
    assert _ops(model) == ["aten::to", "complex::from_real", "complex::mul"]
    assert _shape(model.graph[1].outputs[0]) == [4, 2]


def test_narrower_pair_is_cast() -> None:
    recorder = Recorder()
    z, w = recorder.input(Z), recorder.input(Z.to(torch.complex128), "w")
    model = _rewritten(recorder, recorder.call("add", "Tensor", self=z, other=w))
    assert _ops(model) == ["aten::to", "complex::add"]


@pytest.mark.parametrize(
    ("name", "overload", "given", "expected"),
    [
        ("transpose", "int", {"dim0": 0, "dim1": -1}, {"dim0": 0, "dim1": -2}),
        ("unsqueeze", "", {"dim": -1}, {"dim": -2}),
        ("permute", "", {"dims": [-1, 0]}, {"dims": [-2, 0, -1]}),
        ("view", "", {"size": [2, -1]}, {"size": [2, -1, 2]}),
        ("expand", "", {"size": [5, -1, 4]}, {"size": [5, -1, 4, 2]}),
        ("repeat", "", {"repeats": [2, 1]}, {"repeats": [2, 1, 1]}),
        ("flatten", "using_ints", {}, {"start_dim": 0, "end_dim": -2}),
        ("slice", "Tensor", {"start": 1}, {"dim": 0, "start": 1}),
        ("sum", "", {}, {"dim": [0, 1], "keepdim": False}),
        ("constant_pad_nd", "", {"pad": [1, 2]}, {"pad": [0, 0, 1, 2]}),
        ("fft_fftshift", "", {}, {"dim": [0, 1]}),
        (
            "as_strided",
            "",
            {"size": [2], "stride": [4]},
            {"size": [2, 2], "stride": [8, 1], "storage_offset": 0},
        ),
    ],
)
def test_dimensions_and_sizes_are_counted_with_the_parts(name, overload, given, expected) -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    model = _rewritten(recorder, recorder.call(name, overload or "default", self=z, **given))
    [node] = model.graph
    assert qualified_name(node) == f"aten::{name}"
    assert arguments(node) == {"self": z, **expected}


def test_operator_without_regard_to_the_parts_is_done_to_each() -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    mask = recorder.input(torch.ones(3, 4, dtype=torch.bool), "mask")
    y = recorder.call("masked_fill", "Scalar", self=z, mask=mask, value=1 - 2j)
    model = _rewritten(recorder, y)
    assert _ops(model) == [
        "complex::real",
        "aten::masked_fill",
        "complex::imag",
        "aten::masked_fill",
        "complex::complex",
    ]
    fills = [arguments(node)["value"] for node in model.graph if node.op_type == "masked_fill"]
    assert fills == [1.0, -2.0]
    assert _shape(y) == [3, 4, 2]


def test_matrix_product_is_four_of_real_ones() -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    w = recorder.input(torch.ones(4, 5, dtype=torch.complex64), "w")
    model = _rewritten(recorder, recorder.call("mm", self=z, mat2=w))
    assert _ops(model).count("aten::mm") == 4
    assert _ops(model)[-3:] == ["aten::mm", "aten::add", "complex::complex"]


@pytest.mark.parametrize("name", ["numel", "sym_numel"])
def test_elements_are_counted_without_the_parts(name: str) -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    assert _ops(_rewritten(recorder, recorder.call(name, self=z))) == ["complex::real", f"aten::{name}"]


def test_view_of_the_parts_is_the_pair_itself() -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    model = _rewritten(recorder, recorder.call("view_as_real", self=z))
    assert _ops(model) == ["aten::alias"]


def test_conversions_to_and_from_real_numbers() -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    x = recorder.call("to", "dtype", self=z, dtype=DataType.DOUBLE)
    b = recorder.call("to", "dtype", self=z, dtype=DataType.BOOL)
    model = _rewritten(recorder, x, b)
    assert _ops(model) == ["complex::real", "aten::to", "complex::is_nonzero", "aten::to"]
    assert _shape(x) == [3, 4]


def test_transform_of_half_a_spectrum_takes_real_numbers_as_complex_ones() -> None:
    recorder = Recorder()
    x = recorder.input(torch.ones(3, 4))
    model = _rewritten(recorder, recorder.call("fft_irfft", self=x))
    assert _ops(model) == ["complex::from_real", "complex::fft_irfft"]


def test_initializer_becomes_its_parts_in_the_same_memory() -> None:
    array = np.array([[1 + 2j, 3 - 4j]], dtype=np.complex64)
    weight = ir.Value(
        name="weight",
        type=ir.TensorType(DataType.COMPLEX64),
        shape=ir.Shape([1, 2]),
        const_value=ir.Tensor(array, name="weight"),
    )
    model = ir.Model(ir.Graph([], [], nodes=[], initializers=[weight], name="source"), ir_version=10)
    assert real_pairs(model)
    assert weight.const_value is not None
    parts = weight.const_value.numpy()
    np.testing.assert_array_equal(parts, [[[1, 2], [3, -4]]])
    assert np.shares_memory(parts, array)


def test_unknown_rank_is_refused() -> None:
    recorder = Recorder()
    z = recorder.input(Z)
    y = recorder.call("sum", self=z)
    model = recorder.model(y)
    z.shape = None
    with pytest.raises(GraphError, match=r"aten::sum.*rank of a complex tensor"):
        real_pairs(model)
