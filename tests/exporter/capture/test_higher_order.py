"""Higher-order operators as source nodes: names, blocks and their outputs, what is opened or refused."""

from __future__ import annotations

import importlib
import operator
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import opsetta
from opsetta.exporter.capture.fx_import.higher_order import Importer
from opsetta.exporter.capture.fx_import.source_values import NamedDimensions
from opsetta.registration import Names
from opsetta.registration.arguments import arguments

X = torch.ones(4, 3)


torch_2_10 = pytest.mark.xfail(
    torch.__version__.startswith("2.10."),
    reason="torch 2.10 refuses branches and bodies that write to operands, and has no inline_asm_elementwise",
)


def _source(function: Any, *inputs: Any, **options: Any) -> list[ir.Node]:
    return list(opsetta.export(function, inputs, opset=18, **options).source.graph)


def _node(function: Any, *inputs: Any, **options: Any) -> ir.Node:
    [node] = (n for n in _source(function, *inputs, **options) if n.domain == "higher_order")
    return node


def _blocks(node: ir.Node) -> dict[str, ir.Graph]:
    graphs = {k: a for k, a in node.attributes.items() if a.type == ir.AttributeType.GRAPH}
    return {name: attribute.as_graph() for name, attribute in graphs.items()}


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def _while(x: torch.Tensor) -> Any:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), (0, x + 1))


def _scan(x: torch.Tensor) -> Any:
    return scan(lambda c, row: (c + row, c * 2), x[0] * 1, x)


NODES = {
    "cond": (_cond, ["pred", "operands"], ["true_graph", "false_graph"]),
    "while_loop": (_while, ["carried_inputs", "additional_inputs"], ["cond_fn", "body_fn"]),
    "scan": (_scan, ["init", "xs", "additional_inputs"], ["combine_fn"]),
    "map_impl": (lambda x: map_over(lambda row: row * 2, x), ["xs", "pos_args"], ["f"]),
    "associative_scan": (
        lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"),
        ["xs", "additional_inputs"],
        ["combine_fn"],
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_arguments_and_blocks_have_the_operators_own_names(name: str) -> None:
    function, parameters, graphs = NODES[name]
    node = _node(function, X)
    assert node.op_type == name
    assert list(arguments(node)) == parameters
    assert list(_blocks(node)) == graphs


@pytest.mark.parametrize("name", NODES)
def test_every_output_of_a_block_is_its_own(name: str) -> None:
    for block in _blocks(_node(NODES[name][0], X)).values():
        made = [value for node in block for value in node.outputs]
        assert len(set(block.outputs)) == len(block.outputs)
        assert all(value in made for value in block.outputs)


def test_numbers_that_blocks_return_are_constants_of_theirs() -> None:
    def forward(x: torch.Tensor) -> Any:
        y, n = torch.cond(x.sum() > 0, lambda x: (x + 1, 2), lambda x: (x - 1, 3), (x,))
        return y, n

    node = _node(forward, X)
    returned = [block.outputs[1].producer() for block in _blocks(node).values()]
    assert [(n.domain, n.op_type, arguments(n)["value"]) for n in returned if n is not None] == [
        ("prim", "Constant", 2),
        ("prim", "Constant", 3),
    ]


def test_symbolic_ints_are_carried_as_numbers() -> None:
    program = opsetta.export(_while, (X,), opset=18, dynamic_shapes=({0: "n"},))
    [node] = (n for n in program.source.graph if n.op_type == "while_loop")
    assert arguments(node)["carried_inputs"][0] == 0
    assert node.outputs[0].metadata_props[opsetta.registration.NUMBER] == "int"
    assert program(X)[0] == 3


@torch_2_10
def test_an_operand_that_a_branch_writes_to_is_written_after_it() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        z = torch.cond(x.sum() > 0, lambda y: y.add_(1) * 2, lambda y: y - 1, (y,))
        return z + y

    node = _node(forward, X)
    assert len(node.outputs) == 2
    assert [len(block.outputs) for block in _blocks(node).values()] == [2, 2]


@torch_2_10
def test_a_buffer_that_a_branch_writes_to_is_an_error_that_names_it() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def true_fn(x: torch.Tensor) -> torch.Tensor:
                self.seen.add_(1)
                return x + self.seen

            return torch.cond(x.sum() > 0, true_fn, lambda x: x - 1, (x,))

    with pytest.raises(opsetta.MutationError, match="'seen'"):
        opsetta.export(Model().eval(), (X,))


@torch_2_10
def test_a_carried_value_that_the_body_writes_to_is_refused() -> None:
    def forward(x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, a: torch.Tensor) -> Any:
            a.add_(1)
            return i + 1, a.clone()

        return while_loop(lambda i, a: i < 3, body, (torch.zeros((), dtype=torch.int64), x.clone()))

    with pytest.raises(opsetta.CaptureError, match="higher_order::while_loop.*write to a clone"):
        opsetta.export(forward, (X,))


@torch_2_10
def test_operators_of_unknown_meaning_are_refused_by_name() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.higher_order.inline_asm_elementwise(
            x, asm_str="mov.f32 $0, $1;", constraints="=f,f", dtype=torch.float32, is_pure=True, pack=1
        )

    with pytest.raises(opsetta.UnsupportedOperatorsError, match="higher_order::inline_asm_elementwise"):
        opsetta.export(forward, (X,))


def test_autocast_that_strict_tracing_did_not_see_is_refused_by_name() -> None:
    linear = torch.nn.Linear(3, 3)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                return self.linear(x)

    model = Model().eval()
    opsetta.export(model, (X,)).verify()
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="higher_order::wrap_with_autocast"):
        opsetta.export(model, (X,), strict=True)


def test_bfloat16_in_branches_is_refused_where_if_does_not_take_it() -> None:
    program = opsetta.export(_cond, (X.bfloat16(),), opset=18)
    with pytest.raises(
        opsetta.UnsupportedOperatorsError, match=r"If cannot return BFLOAT16 at opset 13; from 16"
    ):
        program.lower(opset=13)


def test_capture_leaves_no_marks_on_the_arguments() -> None:
    x = torch.ones(4, 3)
    opsetta.export(_scan, (x,), dynamic_shapes=({0: "n"},))
    with pytest.raises(opsetta.CaptureError, match="specialized"):
        opsetta.export(lambda x: _cond(x + torch.ones(4, 3)), (x,), dynamic_shapes=({0: "n"},))
    assert not vars(x)
    opsetta.export(_cond, (x,))


def test_what_torch_has_traced_before_does_not_matter() -> None:
    first = opsetta.export(_scan, (X,), opset=18).model_proto
    for length in (2, 3, 7):
        _scan(torch.ones(length, 3))
    assert opsetta.export(_scan, (X,), opset=18).model_proto == first


def test_capture_leaves_torch_as_it_was() -> None:
    module = importlib.import_module("torch._higher_order_ops.associative_scan")
    before = module.generic_associative_scan
    opsetta.export(NODES["associative_scan"][0], (X,))
    assert module.generic_associative_scan is before


WRAPPERS = {
    "invoke_subgraph": lambda body, x: (body, "name", x),
    "tag_activation_checkpoint": lambda body, x: (body, x),
    "wrap_activation_checkpoint": lambda body, x: (body, x),
    "wrap_with_set_grad_enabled": lambda body, x: (False, body, x),
    "strict_mode": lambda body, x: (body, (x,)),
    "hints_wrapper": lambda body, x: (body, (x,), {}),
    "invoke_quant_packed": lambda body, x: (body, x),
}


def _body() -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    cosine = graph.call_function(torch.ops.aten.cos.default, (x,))
    graph.output((cosine,))
    for node in (x, cosine):
        node.meta["val"] = torch.empty(3, device="meta")
    return torch.fx.GraphModule({}, graph)


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_without_meaning_in_inference_are_opened(name: str) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    body = graph.get_attr("body")
    wrapper = graph.call_function(getattr(torch.ops.higher_order, name), WRAPPERS[name](body, x))
    first = graph.call_function(operator.getitem, (wrapper, 0))
    graph.output((first,))
    x.meta["val"] = first.meta["val"] = torch.empty(3, device="meta")
    wrapper.meta["val"] = (x.meta["val"],)
    importer = Importer(torch.fx.GraphModule({"body": _body()}, graph), NamedDimensions(), Names())
    importer.bind(x, importer.value("x", x.meta["val"]))
    [result] = importer.run(graph)
    [node] = importer.nodes
    assert (node.domain, node.op_type) == ("aten", "cos")
    assert node.outputs[0] is result
