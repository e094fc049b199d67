"""Hashes of integers that are computed: the same buckets as those of the texts of the integers."""

import numpy as np
import onnx_ir as ir
import pytest

import opsetta
import opsetta.symbolics
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import default_registry
from opsetta.registration.arguments import source_node
from opsetta.symbolics.tensorflow.text.fingerprints import fingerprint

from .checks import run

INT64_MINIMUM = -(2**63)
# All lengths of the texts, from 1 to 20 characters.
NUMBERS = [sign * (number + 10**digits) for digits in range(19) for sign in (1, -1) for number in (0, 7)]
NUMBERS += [0, 9, -9, INT64_MINIMUM, 2**63 - 1]


def _model_of(dtype: ir.DataType, buckets: int, *, as_strings: bool = True) -> ir.Model:
    x = ir.Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape([None]))
    strings = ir.Value(name="s", type=ir.TensorType(ir.DataType.STRING), shape=ir.Shape([None]))
    column = ir.Value(name="c", type=ir.TensorType(ir.DataType.STRING), shape=ir.Shape([None, 1]))
    result = ir.Value(name="y", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([None, 1]))
    nodes = [source_node("tf::AsString", {"input": x}, outputs=[strings])] if as_strings else []
    axis = ir.Value(name="axis", const_value=ir.tensor([1], ir.DataType.INT32))
    nodes += [
        source_node("tf::ExpandDims", {"input": strings if as_strings else x, "dim": axis}, outputs=[column]),
        source_node(
            "tf::StringToHashBucketFast", {"input": column, "num_buckets": buckets}, outputs=[result]
        ),
    ]
    return ir.Model(ir.Graph([x], [result], nodes=nodes, initializers=[axis], name="graph"), ir_version=10)


@pytest.mark.parametrize("opset", [9, 11, 18])
@pytest.mark.parametrize(("dtype", "buckets"), [(ir.DataType.INT64, 2**61 - 1), (ir.DataType.INT32, 1000)])
def test_buckets_of_integers_agree_with_those_of_their_texts(dtype, buckets, opset):
    numbers = [number for number in NUMBERS if dtype == ir.DataType.INT64 or abs(number) < 2**31]
    model = lower(_model_of(dtype, buckets), opset, default_registry).model
    [result] = run(ir.to_proto(model), {"x": np.array(numbers, dtype.numpy())})
    assert result.tolist() == [[fingerprint(str(number).encode()) % buckets] for number in numbers]


@pytest.mark.parametrize(
    ("dtype", "as_strings"),
    [(ir.DataType.UINT64, True), (ir.DataType.STRING, False)],
    ids=["uint64", "string"],
)
def test_hashes_of_other_strings_are_refused(dtype, as_strings):
    with pytest.raises(
        opsetta.UnsupportedOperatorsError, match="no operator that reads the bytes of strings"
    ):
        lower(_model_of(dtype, 7, as_strings=as_strings), 21, default_registry)
