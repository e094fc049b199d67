"""The schema tables against `onnx.defs` itself."""

import onnx.defs
import pytest
from onnx_ir import AttributeType, DataType

from opsetta.registration import MAXIMUM_OPSET, MINIMUM_OPSET, OpsetError, schemas
from opsetta.registration.opsets import OPSET_RANGE, check_opset, ir_version

NAMES = sorted({schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""})


@pytest.mark.parametrize("opset", range(MINIMUM_OPSET, MAXIMUM_OPSET + 1))
def test_every_operator_reads_as_onnx_has_it(opset):
    for name in NAMES:
        found = schemas.operator_schema(name, opset)
        try:
            schema = onnx.defs.get_schema(name, opset, "")
        except onnx.defs.SchemaError:
            assert found is None
            continue
        if schema.deprecated:
            assert found is None
            continue
        assert found.since_version == schema.since_version
        assert [p.name for p in found.inputs] == [formal.name for formal in schema.inputs]
        assert [p.name for p in found.outputs] == [formal.name for formal in schema.outputs]
        assert set(found.attributes) == set(schema.attributes)
        for formal, parameter in zip(schema.inputs, found.inputs, strict=True):
            assert found.find_argument(formal.name) == (found.input_index[formal.name], None)
            assert len(parameter.dtypes) == sum(text.startswith("tensor(") for text in formal.types)
        for attribute in found.attributes.values():
            assert found.find_argument(attribute.name) == (None, attribute)


@pytest.mark.parametrize(
    ("name", "argument", "before", "after"),
    [
        ("Squeeze", "axes", 12, 13),
        ("Unsqueeze", "axes", 12, 13),
        ("Split", "split", 12, 13),
        ("ReduceSum", "axes", 12, 13),
        ("ReduceMean", "axes", 17, 18),
        ("ReduceL2", "axes", 17, 18),
        ("Slice", "starts", 9, 10),
        ("TopK", "k", 9, 10),
        ("TopK", "K", 9, 10),
        ("Clip", "min", 10, 11),
        ("Pad", "value", 10, 11),
        ("Pad", "constant_value", 10, 11),
        ("Pad", "pads", 10, 11),
        ("Dropout", "ratio", 11, 12),
    ],
)
def test_arguments_that_moved_are_found_on_both_sides(name, argument, before, after):
    index, attribute = schemas.operator_schema(name, before).find_argument(argument)
    assert index is None
    assert attribute is not None
    index, attribute = schemas.operator_schema(name, after).find_argument(argument)
    assert index is not None
    assert attribute is None


def test_defaults_and_types_of_attributes():
    softmax = schemas.operator_schema("Softmax", 11).attributes["axis"]
    assert (softmax.type, softmax.required, softmax.default) == (AttributeType.INT, False, 1)
    assert schemas.operator_schema("Softmax", 13).attributes["axis"].default == -1
    mode = schemas.operator_schema("Pad", 9).attributes["mode"]
    assert (mode.type, mode.default) == (AttributeType.STRING, "constant")
    to = schemas.operator_schema("Cast", 9).attributes["to"]
    assert (to.required, to.default) == (True, None)


def test_type_variables_and_fixed_types():
    where = schemas.operator_schema("Where", 9)
    assert where.inputs[0].dtypes == {DataType.BOOL}
    assert where.inputs[1].variable == where.inputs[2].variable == where.outputs[0].variable != ""
    shape = schemas.operator_schema("Reshape", 9).inputs[1]
    assert (shape.variable, shape.dtypes) == ("", frozenset({DataType.INT64}))
    assert schemas.operator_schema("Concat", 9).inputs[0].variadic
    assert schemas.operator_schema("Clip", 11).inputs[1].optional


def test_first_opsets():
    assert schemas.first_opset_with("Clip", "min") <= MINIMUM_OPSET
    assert schemas.first_opset_with("Resize", "antialias") == 18
    assert schemas.first_opset_with("Clip", "nothing") is None
    assert schemas.first_opset_with_dtype("Clip", 0, DataType.INT64) == 12
    assert schemas.first_opset_with_dtype("Equal", 0, DataType.FLOAT) == 11
    assert schemas.first_opset_with_dtype("Relu", 0, DataType.BOOL) is None


def test_default_of_an_argument_that_the_target_lacks():
    at_11 = schemas.operator_schema("Resize", 11)
    assert schemas.nearest_attribute(at_11, "antialias").default == 0
    assert schemas.nearest_attribute(at_11, "nothing") is None


def test_deprecated_and_unknown_operators_have_no_schema():
    assert schemas.operator_schema("Upsample", 9) is not None
    assert schemas.operator_schema("Upsample", 10) is None
    assert schemas.operator_schema("Nothing", 9) is None
    assert schemas.operator_schemas("Nothing") == []


@pytest.mark.parametrize("opset", [MINIMUM_OPSET - 1, onnx.defs.onnx_opset_version() + 1, 0, -9])
def test_opsets_out_of_range_are_refused(opset):
    with pytest.raises(
        OpsetError, match=f"opset {opset} is not supported: opsetta writes opsets {OPSET_RANGE}"
    ):
        check_opset(opset)


@pytest.mark.parametrize("opset", [True, 9.0, "9", None])
def test_opsets_that_are_no_int_are_refused(opset):
    with pytest.raises(OpsetError, match=f"must be an int, not {type(opset).__name__}"):
        check_opset(opset)


def test_opset_that_the_installed_onnx_lacks_is_refused_with_its_release():
    opset = onnx.defs.onnx_opset_version() + 1
    with pytest.raises(OpsetError, match=f"installed onnx {onnx.__version__} has opsets up to {opset - 1}"):
        check_opset(opset)
    with pytest.raises(OpsetError, match=f"does not know the IR version of opset {opset}"):
        ir_version(opset)


def test_ir_versions_are_onnx_s_own():
    assert {opset: ir_version(opset) for opset in (7, 8, 9, 10, 11, 13, 17, 21)} == {
        7: 3,
        8: 3,
        9: 4,
        10: 5,
        11: 6,
        13: 7,
        17: 8,
        21: 10,
    }


@pytest.mark.parametrize("opset", [2**31, 2**62, -(2**31) - 1])
def test_opset_beyond_an_int_has_no_operator(opset):
    assert schemas.operator_schema("Slice", opset) is None
    assert not schemas.misnames_cut_sizes(opset)
