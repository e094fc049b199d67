"""Random graphs that share memory as their annotations allow compute what they compute without sharing."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from opsetta import AnnotationError, check_inplace
from opsetta.passes.onnx_graph.inplace.annotations import annotate_inplace
from opsetta.registration import MAY_OVERWRITE

from ..onnxruntime_sessions import open_session
from ..passes.sharing_interpreter import ELEMENTWISE, SharingInterpreter

Shape = tuple[int, ...]
Values = list[tuple[str, Shape]]

SHAPES: list[Shape] = [(2, 3), (3, 2), (6,), (1, 3), (3,), (1, 6)]
INPUTS: Values = [("x", (2, 3)), ("y", (1, 3)), ("w", (2, 3)), ("v", (6,))]
"""The last two are initializers."""


WRITING = [*ELEMENTWISE, "Identity", "Reshape", "ScatterElements", "Softmax"]


class _Program:
    """Draws the nodes of a model, sub-graphs included; every value is a DOUBLE of a known shape."""

    def __init__(self, draw: st.DrawFn):
        self._draw = draw
        self._count = 0
        self.initializers = [
            helper.make_tensor("w", TensorProto.DOUBLE, [2, 3], range(1, 7)),
            helper.make_tensor("v", TensorProto.DOUBLE, [6], range(-3, 3)),
            helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
        ]

    def model(self) -> onnx.ModelProto:
        inputs = [*map(_info, INPUTS[:2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
        nodes, made = self._nodes(list(INPUTS), depth=0)
        outputs = [
            _info(value) for value in self._draw(st.lists(_from(made), min_size=1, max_size=2, unique=True))
        ]
        graph = helper.make_graph(nodes, "g", inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _nodes(self, known: Values, depth: int) -> tuple[list[onnx.NodeProto], Values]:
        """Some nodes, and the values that they make."""
        nodes: list[onnx.NodeProto] = []
        made: Values = []
        for _ in range(self._draw(st.integers(1, 9 if depth == 0 else 5))):
            kinds = [self._unary, self._binary, self._binary, self._view, self._view, self._other]
            kind = self._draw(_from(kinds + [self._if, self._loop, self._scan] * (depth < 2)))
            # Mostly what was made here and lately: nothing else may be overwritten.
            readable = made[-3:] if made and self._draw(st.integers(0, 4)) else [*known, *made]
            new, values = kind(readable, depth)
            nodes += new
            made += values
        return nodes, made

    def _emit(self, op: str, inputs: list[str], *shapes: Shape, **attributes) -> tuple[list, Values]:
        outputs = [(self._name(), shape) for shape in shapes]
        return [helper.make_node(op, inputs, [name for name, _ in outputs], **attributes)], outputs

    def _unary(self, known: Values, depth: int) -> tuple[list, Values]:
        x, shape = self._draw(_from(known))
        return self._emit(self._draw(_from(["Neg", "Abs", "Softmax"])), [x], shape)

    def _binary(self, known: Values, depth: int) -> tuple[list, Values]:
        a, shape = self._draw(_from(known))
        fitting = [value for value in known if _broadcasts(shape, value[1])]
        b, other = self._draw(_from(fitting))
        op = self._draw(_from(["Add", "Sub", "Mul", "Max", "Where"]))
        return self._emit(op, ["c", a, b] if op == "Where" else [a, b], np.broadcast_shapes(shape, other))

    def _view(self, known: Values, depth: int) -> tuple[list, Values]:
        x, shape = self._draw(_from(known))
        if self._draw(st.booleans()):
            return self._emit("Identity", [x], shape)
        wanted = self._draw(_from([s for s in (shape, *SHAPES) if math.prod(s) == math.prod(shape)]))
        name = f"{self._name()}_shape"
        self.initializers.append(helper.make_tensor(name, TensorProto.INT64, [len(wanted)], wanted))
        return self._emit("Reshape", [x, name], wanted)

    def _other(self, known: Values, depth: int) -> tuple[list, Values]:
        x, shape = self._draw(_from(known))
        match self._draw(_from(["Constant", "Transpose", "ScatterElements"])):
            case "Constant":
                value = helper.make_tensor("", TensorProto.DOUBLE, shape, [2.0] * math.prod(shape))
                return self._emit("Constant", [], shape, value=value)
            case "Transpose":
                return self._emit("Transpose", [x], shape[::-1])
        updates, _ = self._draw(_from([value for value in known if value[1] == shape]))
        name = f"{self._name()}_indices"
        places = self._draw(st.lists(st.integers(0, shape[0] - 1), min_size=math.prod(shape), max_size=9))
        places = places[: math.prod(shape)]
        self.initializers.append(helper.make_tensor(name, TensorProto.INT64, shape, places))
        return self._emit("ScatterElements", [x, name, updates], shape)

    def _block(self, known: Values, formals: list, depth: int, wanted: list[Shape], first: list) -> tuple:
        """A sub-graph that returns values of these shapes, after those of the nodes in `first`."""
        nodes, made = self._nodes(known, depth + 1)
        outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.BOOL, []) for node in first]
        for shape in wanted:
            result, _ = self._draw(_from([v for v in [*known, *made, *made[-2:]] if v[1] == shape]))
            # A runtime takes no outer value as a result, and none twice.
            new, values = self._emit("Identity", [result], shape)
            nodes += new
            outputs.append(_info(values[0]))
        return helper.make_graph([*first, *nodes], self._name(), formals, outputs)

    def _if(self, known: Values, depth: int) -> tuple[list, Values]:
        wanted = [shape for _, shape in self._draw(st.lists(_from(known), min_size=1, max_size=2))]
        branches = [self._block(known, [], depth, wanted, []) for _ in range(2)]
        return self._emit("If", ["c"], *wanted, then_branch=branches[0], else_branch=branches[1])

    def _loop(self, known: Values, depth: int) -> tuple[list, Values]:
        carried = self._draw(st.lists(_from(known), min_size=1, max_size=2))
        trips, iteration, condition, go_on = (self._name() for _ in range(4))
        count = self._draw(st.integers(0, 3))
        self.initializers.append(helper.make_tensor(trips, TensorProto.INT64, [], [count]))
        formals = [(self._name(), shape) for _, shape in carried]
        infos = [
            helper.make_tensor_value_info(iteration, TensorProto.INT64, []),
            helper.make_tensor_value_info(condition, TensorProto.BOOL, []),
            *map(_info, formals),
        ]
        first = [helper.make_node("Identity", [condition], [go_on])]
        shapes = [shape for _, shape in carried]
        body = self._block([*known, *formals], infos, depth, shapes, first)
        return self._emit("Loop", [trips, "yes", *(name for name, _ in carried)], *shapes, body=body)

    def _scan(self, known: Values, depth: int) -> tuple[list, Values]:
        state, shape = self._draw(_from(known))
        scanned, rows = self._draw(_from([v for v in known if len(v[1]) == 2] or INPUTS[:3]))
        formals = [(self._name(), shape), (self._name(), rows[1:])]
        body = self._block([*known, *formals], [*map(_info, formals)], depth, [shape, rows[1:]], [])
        return self._emit("Scan", [state, scanned], shape, rows, body=body, num_scan_inputs=1)


def _from(items: list) -> st.SearchStrategy:
    return st.sampled_from(items)


def _info(value: tuple[str, Shape]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value[0], TensorProto.DOUBLE, value[1])


def _broadcasts(a: Shape, b: Shape) -> bool:
    return all(p == q or 1 in (p, q) for p, q in zip(a[::-1], b[::-1], strict=False))


@st.composite
def annotated_models(draw: st.DrawFn) -> onnx.ModelProto:
    model = ir.from_proto(_Program(draw).model())
    annotate_inplace(model)
    assert not annotate_inplace(model)
    return ir.to_proto(model)


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [node for n in graph.node for a in n.attribute if a.HasField("g") for node in _nodes(a.g)]
    return [*graph.node, *inner]


def _feed(condition: bool) -> dict[str, np.ndarray]:
    return {"x": np.arange(-2.0, 4).reshape(2, 3), "y": np.array([[2.0, -3, 5]]), "c": np.array(condition)}


def _shares_safely(model: onnx.ModelProto) -> bool:
    """Whether two runs in the same memory give what a run without sharing gives, and leave the inputs."""
    sharing = SharingInterpreter(model, share=True)
    for condition in (True, False):
        expected = SharingInterpreter(model, share=False).run(_feed(condition))
        inputs = _feed(condition)
        for _ in range(2):
            found = sharing.run(inputs)
            if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, found, strict=True)):
                return False
        if not all(np.array_equal(inputs[name], array) for name, array in _feed(condition).items()):
            return False
    return True


@given(annotated_models())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_annotated_graphs_compute_the_same_in_shared_memory(model):
    count = sum(MAY_OVERWRITE in [e.key for e in node.metadata_props] for node in _nodes(model.graph))
    assert check_inplace(model) == count
    assert _shares_safely(model)
    # Any set of permissions may be taken.
    for node in _nodes(model.graph)[::2]:
        del node.metadata_props[:]
    assert _shares_safely(model)


@given(annotated_models())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_onnxruntime_takes_annotated_graphs_and_agrees(model):
    onnx.checker.check_model(model, full_check=True)
    session = open_session(model)
    for condition in (True, False):
        expected = session.run(None, {k: v for k, v in _feed(condition).items() if k in _fed(session)})
        for a, b in zip(expected, SharingInterpreter(model, share=True).run(_feed(condition)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def _fed(session: onnxruntime.InferenceSession) -> set[str]:
    return {entry.name for entry in session.get_inputs()}


@given(annotated_models(), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_the_checker_accepts_computes_the_same(model, data):
    nodes = [node for node in _nodes(model.graph) if node.op_type in WRITING]
    for node in data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=2)) if nodes else []:
        del node.metadata_props[:]
        place = data.draw(st.integers(0, len(node.input) - 1))
        node.metadata_props.add(key=MAY_OVERWRITE, value=f"0:{place}")
    try:
        check_inplace(model)
    except AnnotationError:
        return
    assert _shares_safely(model)
