"""Shape inference: what onnx's own inference of Slice 10 gets wrong."""

from __future__ import annotations

import onnx.parser
import pytest

from opsetta.exporter.lowering.inference import infer_shapes

_MODEL = """<ir_version: 5, opset_import: ["": {opset}]>
main (float[n,k] x) => (float[m,k] y{output})
<int64[1] start = {{1}}, int64[1] end = {{9}}, int64[1] axis = {{0}}{stated}> {{
    part = Slice(x, start, end{axis})
    y = Relu(part)
}}"""


def _shapes(opset: int, axis: str = ", axis", stated: str = "", output: str = "") -> dict[str, list[str]]:
    text = _MODEL.format(opset=opset, axis=axis, stated=stated, output=output)
    graph = infer_shapes(onnx.parser.parse_model(text), data_prop=True).graph
    infos = {info.name: info for info in (*graph.value_info, *graph.output)}
    return {
        name: [dim.dim_param or str(dim.dim_value) for dim in info.type.tensor_type.shape.dim]
        for name, info in infos.items()
    }


@pytest.mark.parametrize("axis", [", axis", ""])
def test_a_cut_size_is_not_the_inputs(axis: str) -> None:
    assert _shapes(10, axis)["part"] == ["part_dim_0", "k"]


def test_a_slice_that_is_an_output_is_named_too() -> None:
    assert _shapes(10, output=", part")["part"] == ["part_dim_0", "k"]


def test_a_stated_name_stays() -> None:
    assert _shapes(10, stated=", float[rest,k] part")["part"] == ["rest", "k"]


def test_later_opsets_are_inferred_by_onnx_alone() -> None:
    assert _shapes(13)["part"][0].startswith("unk__")
