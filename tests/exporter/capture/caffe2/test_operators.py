"""Single operators against Caffe2's results: with all shapes, with unknown sizes, and without shapes."""

import numpy as np
import pytest

import opsetta
from opsetta.exporter.capture.caffe2.operator_schemas import table
from opsetta.symbolics import caffe2  # noqa: F401

from .nets import Net, converted, run
from .records import RECORDS, Record

pytestmark = pytest.mark.filterwarnings("ignore:there is no init_net")
IDS = [f"{index}-{item.name}" for index, item in enumerate(RECORDS)]


def loaded(folder, item: Record, known: str):
    """The net of a record: `known` is "shapes", "ranks" or "nothing"."""
    init, predict = Net("init"), Net("predict")
    names = [f"x{index}" for index in range(len(item.inputs))]
    shapes = {}
    for index, (name, array) in enumerate(zip(names, item.inputs, strict=True)):
        if index in item.weights:
            init.fill(name, array)
        elif known != "nothing":
            sizes = array.shape if known == "shapes" else [f"{name}_{axis}" for axis in range(array.ndim)]
            shapes[name] = f"{array.dtype}[{','.join(map(str, sizes))}]"
    outputs = [f"y{index}" for index in range(len(item.expected))]
    predict.add(item.kind, names, outputs, **item.arguments)
    message = predict.finish(names, outputs)
    return converted(folder, message, init.message, shapes=shapes)


def compare(item: Record, program) -> None:
    feed = {f"x{index}": array for index, array in enumerate(item.inputs) if index not in item.weights}
    results = run(program, feed)
    assert len(results) == len(item.expected)
    for found, expected in zip(results, item.expected, strict=True):
        assert found.shape == expected.shape
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        else:
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("item", RECORDS, ids=IDS)
def test_agrees_with_caffe2(item: Record, tmp_path):
    model = loaded(tmp_path, item, "shapes")
    for opset in (item.lowest, 13, item.highest):
        compare(item, model.lower(opset))


@pytest.mark.parametrize("item", RECORDS, ids=IDS)
def test_unknown_sizes(item: Record, tmp_path):
    model = loaded(tmp_path, item, "ranks")
    lowest = max(item.lowest, 9)
    if item.needs_sizes:
        with pytest.raises(opsetta.UnsupportedOperatorsError):
            model.lower(24)
        return
    for opset in (lowest, item.highest):
        compare(item, model.lower(opset))


TYPED = [item for item in RECORDS if all(array.dtype == np.float32 for array in item.inputs)]


@pytest.mark.parametrize("item", TYPED, ids=[f"{index}-{item.name}" for index, item in enumerate(TYPED)])
def test_unknown_ranks(item: Record, tmp_path):
    model = loaded(tmp_path, item, "nothing")
    if item.needs_sizes or item.needs_rank:
        with pytest.raises(opsetta.UnsupportedOperatorsError):
            model.lower(24)
        return
    compare(item, model.lower(item.highest))


def test_symbolic_functions_have_the_parameters_of_the_table():
    registry = opsetta.default_registry
    found = {name.removeprefix("caffe2::") for name in registry.names() if name.startswith("caffe2::")}
    assert found == set(table())
    for name, schema in table().items():
        [symbolic] = registry.versions(f"caffe2::{name}").values()
        added = {"input_scales", "input_zero_points"} if name.startswith("Int8") else set()
        if name == "Int8Quantize":
            added = set()
        assert set(symbolic.parameters) == {*schema.inputs, *schema.arguments} | added, name


def test_every_operator_has_a_record():
    missing = {name for name in table() if not name.startswith("Int8")} - {item.kind for item in RECORDS}
    copies = {"Alias", "CopyCPUToGPU", "CopyFromCPUInput", "CopyGPUToCPU", "EnsureCPUOutput"}
    # Random numbers have no reference; test_nets.py checks their range.
    fillers = {"GaussianFill", "MSRAFill", "UniformFill", "UniformIntFill", "XavierFill"}
    assert missing == copies | fillers | {"Conv2D", "MaxPool2D", "AveragePool2D"}
