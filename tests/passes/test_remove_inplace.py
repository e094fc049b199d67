"""`remove_inplace` on graphs of a few nodes."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.passes import RemoveInplace, remove_inplace
from opsetta.passes.inplace import mutating_operators as table
from opsetta.registration import INPLACE, MUTATES, GraphError, MutationError, OpsettaError
from opsetta.registration.arguments import arguments, source_node
from tests.call_counts import count_calls

from .source_interpreter import Recorder, run


def _ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def _checked(recorder: Recorder, *values: ir.Value, mutations: str = "error") -> ir.Model:
    """The functional model, after it has been found to compute what the eager run did."""
    model = recorder.model(*values)
    expected = [recorder.tensors[value].clone() for value in values]
    assert remove_inplace(model, mutations)
    found = run(model, recorder.originals)[: len(expected)]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not remove_inplace(model)
    return model


def _base(recorder: Recorder, *shape: int) -> ir.Value:
    """A tensor that the graph makes itself and may write to."""
    x = recorder.input(torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape))
    return recorder.call("clone", self=x)


def test_graph_without_writes_is_left_alone() -> None:
    recorder = Recorder()
    y = recorder.call("select", "int", self=_base(recorder, 2, 3), dim=0, index=1)
    model = recorder.model(recorder.call("relu", self=y))
    nodes = list(model.graph)
    assert not RemoveInplace()(model).modified
    assert list(model.graph) == nodes


@pytest.mark.parametrize("opset", [9, 13])
def test_a_resized_tensor_keeps_its_first_elements(opset: int) -> None:
    def fill(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers, rows = torch.arange(8), torch.empty(0)
        rows.resize_(x.shape[0], 2)
        rows.copy_(x)
        return numbers.resize_(2, 3), rows

    program = opsetta.export(fill, (torch.randn(3, 2),), opset=opset, dynamic_shapes=({0: "n"},))
    program.verify((torch.randn(7, 2),))


def test_other_resized_tensors_are_refused() -> None:
    """The order of their elements in memory is unknown, or a view refers to it."""
    for made in ("clone", "view"):
        recorder = Recorder()
        x = _base(recorder, 2, 3) if made == "clone" else recorder.call("zeros", size=[2, 3])
        view = recorder.call("view", self=x, size=[6])
        resized = recorder.call("resize_", self=x, size=[2, 2])
        with pytest.raises(GraphError, match="resize_ needs a tensor"):
            remove_inplace(recorder.model(resized, *([view] if made == "view" else [])))


def test_inplace_operator_becomes_its_twin_and_keeps_a_note() -> None:
    recorder = Recorder()
    y = recorder.call("relu_", self=_base(recorder, 2))
    model = _checked(recorder, y)
    assert _ops(model) == ["clone", "relu"]
    assert model.graph[-1].metadata_props[INPLACE] == "true"
    assert model.graph.outputs[0] is y


def test_write_to_a_row_is_scattered_back() -> None:
    recorder = Recorder()
    y = _base(recorder, 2, 3)
    row = recorder.call("select", "int", self=y, dim=0, index=1)
    recorder.call("copy_", self=row, src=recorder.input(torch.ones(3), "v"))
    model = _checked(recorder, y)
    assert _ops(model) == ["clone", "select_scatter"]
    assert list(arguments(model.graph[-1])) == ["self", "src", "dim", "index"]


def test_copy_casts_and_broadcasts_its_source() -> None:
    recorder = Recorder()
    y = _base(recorder, 2, 3)
    recorder.call("copy_", self=y, src=recorder.input(torch.arange(3), "v"))
    assert _ops(_checked(recorder, y)) == ["clone", "to", "expand"]


def test_copy_of_a_tensor_into_itself_is_removed() -> None:
    recorder = Recorder()
    x = recorder.input(torch.ones(2, 3))
    alias = recorder.call("detach", self=x)
    recorder.call("copy_", self=x, src=alias)
    assert _ops(_checked(recorder, recorder.call("relu", self=x))) == ["detach", "relu"]


def test_copy_of_an_earlier_value_is_a_write() -> None:
    recorder = Recorder()
    y = _base(recorder, 2, 3)
    before = recorder.call("clone", self=y)
    recorder.call("relu_", self=y)
    recorder.call("copy_", self=y, src=before)
    _checked(recorder, recorder.call("neg", self=y))


def test_other_views_are_read_again_only_when_used() -> None:
    recorder = Recorder()
    y = _base(recorder, 4)
    unused = recorder.call("slice", "Tensor", self=y, dim=0, start=0, end=2)
    used = recorder.call("slice", "Tensor", self=y, dim=0, start=2, end=4)
    recorder.call("mul_", "Scalar", self=y, other=2)
    recorder.call("add_", "Scalar", self=y, other=1)
    del unused
    model = _checked(recorder, used)
    assert _ops(model) == ["clone", "mul", "add", "slice"]


def test_views_of_views_at_any_depth_need_no_recursion() -> None:
    recorder = Recorder()
    y = view = _base(recorder, 300)
    for _ in range(250):
        view = recorder.call("slice", "Tensor", self=view, dim=0, start=1, end=None, step=1)
    recorder.call("mul_", "Scalar", self=view, other=2)
    recorder.call("add_", "Scalar", self=y, other=1, alpha=1)
    model, expected = recorder.model(y, view), [recorder.tensors[value].clone() for value in (y, view)]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        remove_inplace(model)
    finally:
        sys.setrecursionlimit(limit)
    torch.testing.assert_close(run(model, recorder.originals)[:2], expected, rtol=0, atol=0)


def test_result_is_cast_back_to_the_type_of_the_destination() -> None:
    recorder = Recorder()
    half = recorder.call("clone", self=recorder.input(torch.ones(2, dtype=torch.float16)))
    full = recorder.input(torch.full((2,), 1.5), "v")
    y = recorder.call("add_", "Tensor", self=half, other=full)
    model = _checked(recorder, y)
    assert _ops(model) == ["clone", "add", "to"]


def test_chunks_of_unknown_size_are_scattered_by_their_sizes() -> None:
    recorder = Recorder(shapes=False)
    y = _base(recorder, 5, 2)
    parts = recorder.call("chunk", self=y, chunks=2)
    recorder.call("neg_", self=parts[1])
    model = _checked(recorder, y, parts[0])
    assert "sym_size" in _ops(model)
    assert "slice_scatter" in _ops(model)


def test_view_of_unknown_shape_goes_back_by_reshape_as() -> None:
    recorder = Recorder(shapes=False)
    y = _base(recorder, 2, 3)
    flat = recorder.call("view", self=y, size=[-1])
    recorder.call("neg_", self=flat)
    assert "reshape_as" in _ops(_checked(recorder, y))


def test_metadata_operator_changes_every_name_of_the_tensor_and_no_view() -> None:
    recorder = Recorder()
    y = _base(recorder, 2, 3)
    view = recorder.call("alias", self=y)
    z = recorder.call("unsqueeze_", self=y, dim=0)
    recorder.call("neg_", self=z)
    model = _checked(recorder, y, z, view)
    assert [len(value.shape) for value in model.graph.outputs] == [3, 3, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_to_is_an_alias_where_the_type_stays(dtype: torch.dtype) -> None:
    recorder = Recorder()
    y = _base(recorder, 2)
    z = recorder.call(
        "to", "dtype", self=y, dtype=ir.DataType.FLOAT if dtype == torch.float32 else ir.DataType.DOUBLE
    )
    recorder.call("neg_", self=z)
    _checked(recorder, y, z)


def test_reshape_that_copied_is_no_alias() -> None:
    recorder = Recorder()
    y = recorder.call("t", self=_base(recorder, 2, 3))
    z = recorder.call("reshape", self=y, shape=[6])
    recorder.call("neg_", self=z)
    _checked(recorder, y, z)


def test_out_overload_returns_its_result() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([3.0, 1.0, 2.0]))
    values, indices = (
        recorder.call("empty_like", self=x),
        recorder.call("empty_like", self=x, dtype=ir.DataType.INT64),
    )
    recorder.call("topk", "values", self=x, k=3, values=values, indices=indices)
    zeros = recorder.call("clone", self=recorder.input(torch.zeros(2, 3), "zeros"))
    recorder.call(
        "add", "out", self=x, other=x, out=recorder.call("select", "int", self=zeros, dim=0, index=0)
    )
    model = _checked(recorder, values, indices, zeros)
    node = next(node for node in model.graph if node.op_type == "topk")
    assert (node.overload, list(arguments(node))) == ("default", ["self", "k"])


def _mutating() -> Recorder:
    recorder = Recorder()
    x = recorder.input(torch.ones(2), "x")
    count = recorder.input(torch.zeros(2), "count", "buffer")
    table_ = recorder.input(torch.zeros(2), "table", "constant")
    recorder.call("add_", "Tensor", self=count, other=x)
    recorder.call("add_", "Tensor", self=table_, other=x)
    return recorder


def test_mutated_state_is_an_error_that_names_it() -> None:
    model = _mutating().model()
    before = [node.op_type for node in model.graph]
    with pytest.raises(MutationError, match=r"buffer 'count' \(aten::add_.Tensor in 'block.0'\)") as caught:
        remove_inplace(model)
    assert "table" not in str(caught.value)
    assert 'mutations="outputs"' in str(caught.value)
    assert _ops(model) == before


def test_mutated_state_becomes_an_output() -> None:
    recorder = _mutating()
    model = recorder.model()
    remove_inplace(model, "outputs")
    (output,) = model.graph.outputs
    assert output.metadata_props[MUTATES] == "count"
    torch.testing.assert_close(run(model, recorder.originals), [torch.ones(2)])


def test_mutated_state_is_dropped_with_a_warning() -> None:
    recorder = _mutating()
    count = recorder.inputs[1]
    with pytest.warns(UserWarning, match="'count'"):
        _checked(recorder, count, mutations="drop")


def test_unknown_choice_is_an_error() -> None:
    with pytest.raises(OpsettaError, match="'error', 'outputs', 'drop'"):
        RemoveInplace("ignore")


def _normalization(name: str, flag: str, training: bool) -> Recorder:
    recorder = Recorder()
    x = recorder.input(torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) ** 2)
    mean = recorder.input(torch.ones(3), "mean", "buffer")
    variance = recorder.input(torch.full((3,), 2.0), "variance", "buffer")
    given = {
        "input": x, "weight": None, "bias": None, "running_mean": mean, "running_var": variance,
        flag: training, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False,
    }  # fmt: skip
    recorder.call(name, **given)
    return recorder


@pytest.mark.parametrize(("name", "flag"), [("batch_norm", "training"), ("instance_norm", "use_input_stats")])
def test_running_statistics_become_outputs(name: str, flag: str) -> None:
    recorder = _normalization(name, flag, True)
    model = recorder.model()
    assert remove_inplace(model, "outputs")
    expected = [recorder.tensors[value] for value in recorder.inputs[1:]]
    torch.testing.assert_close(run(model, recorder.originals), expected)
    assert [value.metadata_props[MUTATES] for value in model.graph.outputs] == ["mean", "variance"]
    assert not remove_inplace(model)


def test_running_statistics_are_dropped_or_refused_in_training_only() -> None:
    assert not remove_inplace(_normalization("batch_norm", "training", False).model())
    with pytest.raises(MutationError, match=r"'mean'.*\n.*'variance'"):
        remove_inplace(_normalization("batch_norm", "training", True).model())
    model = _normalization("batch_norm", "training", True).model()
    with pytest.warns(UserWarning, match="'mean'"):
        remove_inplace(model, "drop")
    assert _ops(model) == ["batch_norm"]
    assert not remove_inplace(model)


@pytest.mark.parametrize(
    ("name", "overload", "given"),
    [
        ("unfold", "default", {"dimension": 0, "size": 2, "step": 2}),
        ("as_strided", "default", {"size": [2], "stride": [1]}),
    ],
)
def test_write_to_an_irreversible_view_is_refused_by_name(
    name: str, overload: str, given: dict[str, Any]
) -> None:
    recorder = Recorder()
    view = recorder.call(name, overload, self=_base(recorder, 4), **given)
    recorder.call("neg_", self=view)
    with pytest.raises(GraphError, match=rf"aten::{name}.default in 'block.0'"):
        remove_inplace(recorder.model(view))


def test_write_to_an_expanded_tensor_is_refused() -> None:
    recorder = Recorder()
    wide = recorder.call("expand", self=_base(recorder, 1, 2), size=[3, 2])
    row = recorder.call("select", "int", self=wide, dim=0, index=0)
    recorder.call("neg_", self=row)
    with pytest.raises(GraphError, match="share memory"):
        remove_inplace(recorder.model(wide))


def test_set_is_refused() -> None:
    recorder = Recorder()
    y = _base(recorder, 2)
    recorder.nodes.append(source_node("aten::set_", {"self": y}, overload="default", num_outputs=1))
    with pytest.raises(GraphError, match="set_"):
        remove_inplace(recorder.model(y))


def test_write_in_a_sub_block_is_refused() -> None:
    inner = source_node("aten::relu_", {"self": (x := ir.Value(name="x"))}, num_outputs=1)
    block = ir.Graph([x], inner.outputs, nodes=[inner], name="block")
    outer = source_node("higher_order::cond", {}, attributes=[ir.AttrGraph("graph_0", block)], num_outputs=1)
    with pytest.raises(GraphError, match="writes to its input"):
        remove_inplace(ir.Model(ir.Graph([], outer.outputs, nodes=[outer], name="main"), ir_version=10))


def test_sub_block_reads_the_current_value() -> None:
    recorder = Recorder()
    y = _base(recorder, 2)
    recorder.call("neg_", self=y)
    inner = source_node("aten::relu", {"self": y}, num_outputs=1)
    block = ir.Graph([], inner.outputs, nodes=[inner], name="block")
    recorder.nodes.append(
        source_node("higher_order::cond", {}, attributes=[ir.AttrGraph("graph_0", block)], num_outputs=1)
    )
    model = recorder.model()
    remove_inplace(model)
    assert inner.inputs[0].producer().op_type == "neg"


_UNLISTED = ("_foreach", "_fused", "_amp", "_sobol", "_no_grad", "_fill_mem_eff")


def _schemas() -> list[Any]:
    return [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]


def _formal(schema: Any) -> dict[str, str]:
    return {argument.name: str(argument.type) for argument in schema.arguments}


def test_twin_of_every_inplace_operator_takes_its_arguments() -> None:
    known = {(s.name[6:], s.overload_name): _formal(s) for s in _schemas()}
    for (name, overload), formal in known.items():
        if not table.is_inplace_name(name) or name.startswith(_UNLISTED) or "self" not in formal:
            continue
        if name in table.REFUSED | table.IDLE | {"copy_"} or (name, overload) in table.COPIES:
            continue
        if overload in ("t", "hacked_twin"):  # TorchScript's own, of lists.
            continue
        node = source_node(f"aten::{name}", {}, overload=overload or "default")
        twin, twin_overload, given = table.functional_form(node, formal)
        found = known.get((twin, "" if twin_overload == "default" else twin_overload))
        assert found is not None, (name, overload, twin, twin_overload)
        for key, kind in given.items():
            assert found.get(key) == kind, (name, overload, twin, twin_overload, key)


def test_twin_of_every_out_overload_exists() -> None:
    known = {(s.name[6:], s.overload_name): _formal(s) for s in _schemas()}
    for schema in _schemas():
        name, overload = schema.name[6:], schema.overload_name
        outs = [a.name for a in schema.arguments if a.is_out]
        if not outs or "backward" in name or name.startswith(_UNLISTED):
            continue
        formal = _formal(schema)
        node = source_node(f"aten::{name}", {}, overload=overload, num_outputs=len(outs))
        if not table.is_out_overload(node):
            continue
        try:
            twin, written, _ = table.functional_form_of_out(node, formal)
        except GraphError:
            continue
        assert list(written) == outs, (name, overload)
        assert (name, "" if twin == "default" else twin) in known or not len(schema.returns), (
            name,
            overload,
            twin,
        )


def test_nodes_without_writes_cost_a_few_calls() -> None:
    x = ir.Value(name="x")
    value, nodes = x, []
    for _ in range(500):
        for name in ("aten::relu", "aten::neg"):
            node = source_node(name, {"self": value}, overload="default", num_outputs=1)
            nodes.append(node)
            value = node.outputs[0]
    model = ir.Model(ir.Graph([x], [value], nodes=nodes, name="main"), ir_version=10)
    remove_inplace(model)  # The table of operators is filled once.
    assert count_calls(lambda: remove_inplace(model)) < 20 * len(nodes)
