"""Hypothesis strategies for source models: names, numbers and structures that nobody would write."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from hypothesis import strategies as st

from opsetta.exporter.captured_graph.capture import Capture, Interface
from opsetta.exporter.files.graph_file.structures import TorchConstant, TreeStructure, TypeName
from opsetta.registration import Device, Layout, MemoryFormat
from opsetta.registration.arguments import source_node

ODD_TEXT = st.sampled_from(
    [
        "",
        " ",
        "a b",
        "a:0",
        "a/b",
        "$x",
        "x$0",
        "a.1",
        "a",
        "a",
        "b",
        "value.1",
        "ключ",
        "名前",
        "é",
        "\n",
        "\0",
        '"',
    ]
)
NAMES = ODD_TEXT | st.text(max_size=6)
OPERATORS = st.sampled_from(
    ["aten::add", "aten::topk", "prim::If", "sym::mul", "my lib::op", "quantized::x$"]
)
FLOATS = st.floats() | st.sampled_from([-0.0, 5e-324, 2.2e-308, float("inf"), float("nan"), 0.1, 1.0, 1e300])
DTYPES = st.sampled_from([dtype for dtype in ir.DataType if dtype != ir.DataType.UNDEFINED])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | FLOATS
    | NAMES
    | st.complex_numbers()
    | DTYPES
    | st.builds(Device, st.sampled_from(["cpu", "cuda:1", ""]))
    | st.builds(Layout, st.sampled_from(["strided", "sparse_coo"]))
    | st.builds(MemoryFormat, st.sampled_from(["channels_last", "preserve_format"]))
)
METADATA = st.dictionaries(
    NAMES | st.sampled_from(["opsetta.module", "opsetta.file.name", "opsetta.file.key.name"]),
    NAMES,
    max_size=3,
)
DIMENSIONS = (
    st.integers(0, 2**40)
    | st.builds(ir.SymbolicDim, st.none() | NAMES)
    | st.builds(ir.SymbolicDim, st.sampled_from(["batch", "2*batch", "floor(n/2)", "max(1, n - 3)"]))
)
_DENOTED = st.lists(
    st.tuples(DIMENSIONS, st.none() | st.sampled_from(["DATA_BATCH", "DATA_CHANNEL"])), max_size=4
)
SHAPES = st.none() | _DENOTED.map(lambda pairs: ir.Shape([d for d, _ in pairs], [name for _, name in pairs]))
TYPES = st.none() | st.recursive(
    st.builds(ir.TensorType, st.sampled_from(list(ir.DataType))),
    lambda inner: st.builds(ir.SequenceType, inner) | st.builds(ir.OptionalType, inner),
    max_leaves=3,
)
NUMPY_TYPES = [np.float32, np.float64, np.float16, np.int8, np.int64, np.uint64, np.bool_, np.complex64]
NUMPY_TYPES += [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn]


@st.composite
def tensors(draw: Any) -> ir.TensorProtocol:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = int(np.prod(shape, dtype=int))
    if draw(st.integers(0, 9)) == 0:
        return ir.StringTensor(
            [item.encode() for item in draw(st.lists(NAMES, min_size=count, max_size=count))],
            shape=ir.Shape(shape),
        )
    dtype = np.dtype(draw(st.sampled_from(NUMPY_TYPES)))
    if dtype in (np.dtype(np.bool_), np.dtype(ml_dtypes.int4)):
        numbers = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        return ir.tensor(np.array(numbers).reshape(shape).astype(dtype))
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    return ir.tensor(
        np.frombuffer(data, np.uint8).view(dtype).reshape(shape) if count else np.empty(shape, dtype)
    )


@st.composite
def values(draw: Any, name: str | None = None) -> ir.Value:
    value = ir.Value(
        name=draw(NAMES) if name is None else name,
        type=draw(TYPES),
        shape=draw(SHAPES),
        doc_string=draw(st.none() | NAMES),
    )
    value.metadata_props.update(draw(METADATA))
    return value


def argument_trees(available: list[ir.Value]) -> Any:
    leaves = SCALARS | st.sampled_from(available) if available else SCALARS
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@st.composite
def nodes(draw: Any, available: list[ir.Value], depth: int) -> ir.Node:
    outputs = draw(st.lists(values(), max_size=3))
    attributes = []
    if depth and draw(st.integers(0, 3)) == 0:
        attributes.append(ir.AttrGraph("block", draw(graphs(available, depth - 1))))
    if draw(st.integers(0, 4)) == 0:
        attributes.append(ir.Attr("alpha", ir.AttributeType.FLOAT, draw(FLOATS)))
        attributes.append(ir.Attr("scales", ir.AttributeType.FLOATS, draw(st.lists(FLOATS, max_size=3))))
        attributes.append(ir.AttrTensor("table", draw(tensors())))
        attributes.append(ir.AttrInt64s("axes", draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3))))
    arguments = draw(st.dictionaries(NAMES, argument_trees(available), max_size=4))
    node = source_node(
        draw(OPERATORS),
        arguments,
        overload=draw(st.sampled_from(["", "default", "Tensor$1"])),
        outputs=outputs,
        node_name=draw(NAMES),
        attributes=attributes,
        metadata_props=draw(METADATA),
    )
    if available and draw(st.integers(0, 5)) == 0:
        # Inputs beyond the arguments, an empty one among them.
        node.resize_inputs(len(node.inputs) + 2)
        node.replace_input_with(len(node.inputs) - 1, draw(st.sampled_from(available)))
    node.doc_string = draw(st.none() | NAMES)
    node.version = draw(st.none() | st.integers(1, 30))
    return node


@st.composite
def graphs(draw: Any, outer: list[ir.Value], depth: int) -> ir.Graph:
    inputs = draw(st.lists(values(), max_size=3))
    available = [*outer, *inputs]
    initializers = []
    for name in draw(st.lists(NAMES.filter(bool), max_size=2, unique=True)):
        tensor = draw(tensors())
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        value.metadata_props.update(draw(METADATA))
        initializers.append(value)
    available += initializers
    made = []
    for _ in range(draw(st.integers(0, 3))):
        node = draw(nodes(available, depth))
        made.append(node)
        available += node.outputs
    own = available[len(outer) :]
    outputs = draw(st.lists(st.sampled_from(own), max_size=3)) if own else []
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=made,
        initializers=initializers,
        opset_imports=draw(st.dictionaries(NAMES.filter(bool), st.integers(1, 9), max_size=3))
        if not outer
        else {},
        name=draw(st.none() | NAMES),
        doc_string=draw(st.none() | NAMES),
        metadata_props=draw(METADATA),
    )
    for index, node in enumerate(made):
        if draw(st.integers(0, 5)) == 0:
            # A graph names its nodes and values; passes may take the names away again.
            node.name = None
            for value in node.outputs[index:]:
                value.name = None
    return graph


CONSTANTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | FLOATS
    | NAMES
    | st.complex_numbers()
    | DTYPES
    | st.builds(TypeName, NAMES)
    | st.builds(TorchConstant, NAMES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(NAMES | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def structures(draw: Any, leaves: int) -> TreeStructure:
    """A tree of so many leaves."""
    children: list[TreeStructure | None] = []
    while leaves:
        inner = draw(st.integers(0, leaves))
        if inner and draw(st.booleans()):
            children.append(draw(structures(inner)))
            leaves -= inner
        else:
            children.append(None)
            leaves -= 1
    return TreeStructure(draw(NAMES), draw(CONSTANTS), tuple(children))


@st.composite
def calls(draw: Any, leaves: int) -> TreeStructure:
    """The arguments of a call with so many leaves: positional ones, and ones by keyword."""
    positional = draw(st.integers(0, leaves))
    arguments = draw(structures(positional)).children
    named = draw(structures(leaves - positional)).children
    keys = [f"k{number}" for number in range(len(named))]
    parts = TreeStructure("builtins.tuple", None, arguments), TreeStructure("builtins.dict", keys, named)
    return TreeStructure("builtins.tuple", None, parts)


@st.composite
def interfaces(draw: Any, graph: ir.Graph) -> Interface:
    """How a call maps onto a graph; one whose inputs are not named cannot be called."""
    names = [value.name for value in graph.inputs]
    inputs: list[str | None] = [
        item for name in names for item in [*draw(st.lists(st.none(), max_size=1)), name]
    ]
    mutated = draw(st.lists(NAMES, max_size=min(2, len(graph.outputs))))
    positions = st.integers(0, len(graph.outputs) - len(mutated) - 1)
    constants = CONSTANTS.map(lambda item: [item])
    results = constants if len(graph.outputs) == len(mutated) else positions | constants
    numbers = st.lists(positions, max_size=2) if len(graph.outputs) > len(mutated) else st.just([])
    outputs = draw(st.lists(results, max_size=3))
    return Interface(
        input_specification=draw(calls(len(inputs))) if all(names) else None,
        output_specification=draw(structures(len(outputs))),
        inputs=inputs,
        constants=draw(st.lists(CONSTANTS, min_size=len(inputs), max_size=len(inputs))),
        outputs=outputs,
        # A tensor of known dimensions is no Python number.
        numbers=[position for position in draw(numbers) if not graph.outputs[position].shape],
        complex_outputs=draw(numbers),
        mutated=mutated,
        parameter_names=draw(st.lists(NAMES, max_size=2)),
    )


@st.composite
def captures(draw: Any) -> Capture:
    model = ir.Model(
        draw(graphs([], 2)),
        ir_version=10,
        producer_name=draw(st.none() | NAMES),
        domain=draw(st.none() | NAMES),
        model_version=draw(st.none() | st.integers(0, 9)),
        doc_string=draw(st.none() | NAMES),
        metadata_props=draw(METADATA),
    )
    count = len(model.graph.outputs)
    names = draw(st.lists(NAMES, min_size=count, max_size=count))
    return Capture(model, draw(interfaces(model.graph)), output_names=names)
