"""Checks a saved plan against its model, with nothing of opsetta: from `plan.json` and the ONNX graph alone.

Lifetimes are found anew, of every value, by a search through all nodes and their sub-graphs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import onnx

_NAMES = {number: name for name, number in onnx.TensorProto.DataType.items()}


def violations(plan: dict[str, Any], model: onnx.ModelProto) -> list[str]:
    """What is wrong with a plan whose sizes are numbers; nothing if it is right."""
    found = list(_of_graph(plan, model.graph, is_body=False))
    for buffer in _buffers(plan):
        if buffer["offset"] % plan["alignment"]:
            found.append(f"{buffer['name']} is not aligned")
    known = {tensor.name for tensor in model.graph.initializer}
    if {weight["name"] for weight in plan["weights"]} - known - set(_inner_initializers(model.graph)):
        found.append("a weight is no initializer")
    return found


def _buffers(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from plan["buffers"]
    for body in plan["bodies"]:
        yield from _buffers(body)


def _of_graph(plan: dict[str, Any], graph: onnx.GraphProto, *, is_body: bool) -> Iterator[str]:
    nodes = list(graph.node)
    if [list(node.output) for node in nodes] != [node["outputs"] for node in plan["nodes"]]:
        yield "the nodes are not those of the model"
        return
    if plan["peak"] is None:
        return
    span = _lifetimes(graph, nodes)
    buffers = plan["buffers"]
    of = {name: buffer for buffer in buffers for name in buffer["values"]}
    yield from _missing(graph, of)
    for buffer in buffers:
        first, last = buffer["lifetime"]
        spans = [span[name] for name in buffer["values"] if name in span]
        if spans and not (first <= min(s[0] for s in spans) and max(s[1] for s in spans) <= last):
            yield f"{buffer['name']} is needed outside of its lifetime"
        if buffer["offset"] + buffer["size"] > plan["peak"]:
            yield f"{buffer['name']} ends above the peak"
        for memory in plan.get("memories", ()):
            inside = buffer["offset"] >= memory["begin"]
            inside = inside and buffer["offset"] + buffer["size"] <= memory["begin"] + memory["peak"]
            if buffer["memory"] == memory["name"] and not inside:
                yield f"{buffer['name']} is outside of {memory['name']}"
    yield from _memories(plan)
    yield from _shared(plan, graph)
    wholes = [buffer for buffer in buffers if buffer.get("within") is None]
    yield from _parts(buffers)
    for one, other in itertools.combinations(wholes, 2):
        begin = max(one["offset"], other["offset"])
        end = min(one["offset"] + one["size"], other["offset"] + other["size"])
        first = max(one["lifetime"][0], other["lifetime"][0])
        last = min(one["lifetime"][1], other["lifetime"][1])
        if begin < end and first <= last:
            yield f"{one['name']} and {other['name']} overlap at node {first}"
    yield from _too_small(graph, of)
    for step in range(len(nodes)):
        needed = sum(b["size"] for b in wholes if b["lifetime"][0] <= step <= b["lifetime"][1])
        if needed > plan["peak"]:
            yield f"node {step} needs {needed} bytes, and the peak is {plan['peak']}"
    yield from _bodies(plan, nodes)
    if is_body:
        inputs = [item.name for item in graph.input]
        if inputs != plan["inputs"] or [item.name for item in graph.output] != plan["outputs"]:
            yield "a body has other inputs or outputs than its graph"


def _memories(plan: dict[str, Any]) -> Iterator[str]:
    """Memories that overlap, or that are larger than those of the device."""
    end = 0
    for memory in plan.get("memories", ()):
        if memory["begin"] != end:
            yield f"{memory['name']} does not follow the memory before"
        if memory["size"] is not None and memory["peak"] > memory["size"]:
            yield f"{memory['name']} has less than {memory['peak']} bytes"
        end = memory["begin"] + memory["peak"]
    if plan.get("memories") and end != plan["peak"]:
        yield "the peak is not that of all memories"


def _bodies(plan: dict[str, Any], nodes: list[onnx.NodeProto]) -> Iterator[str]:
    for body in plan["bodies"]:
        node = nodes[body["node"]]
        [inner] = [attribute.g for attribute in node.attribute if attribute.name == body["attribute"]]
        yield from _of_graph(body, inner, is_body=True)
        if not body["peak"]:
            continue
        [workspace] = [buffer for buffer in plan["buffers"] if buffer["name"] == body["buffer"]]
        if workspace["kind"] != "workspace" or workspace["lifetime"] != [body["node"]] * 2:
            yield f"the workspace of {node.name} is not there while it runs"
        if workspace["size"] < body["peak"]:
            yield f"the workspace of {node.name} is too small for {body['attribute']}"
    planned = {(body["node"], body["attribute"]) for body in plan["bodies"]}
    for index, node in enumerate(nodes):
        for attribute in node.attribute:
            if attribute.HasField("g") and (index, attribute.name) not in planned:
                yield f"{attribute.name} of {node.name} has no plan"


def _missing(graph: onnx.GraphProto, of: dict[str, Any]) -> Iterator[str]:
    """Values without memory that are no constants, and memory of what is no value of the graph."""
    fixed = {tensor.name for tensor in graph.initializer}
    made = [item.name for item in graph.input if item.name not in fixed]
    for node in graph.node:
        constant = node.op_type == "Constant" or (
            node.op_type in _RELABELLING and node.input[0] in fixed and node.input[0] not in of
        )
        if constant:
            fixed.update(node.output)
        else:
            made += filter(None, node.output)
    for name in made:
        if name not in of:
            yield f"{name} has no memory"
    for name in of:
        if name in fixed:
            yield f"{name} is constant and has memory"


_RELABELLING = ("Cast", "CastLike", "BitCast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def _parts(buffers: list[dict[str, Any]]) -> Iterator[str]:
    """Parts that are not inside of a whole, or that end before it."""
    by_name = {buffer["name"]: buffer for buffer in buffers}
    for part in buffers:
        if part.get("within") is not None:
            whole = by_name[part["within"]]
            end = whole["offset"] + whole["size"]
            if not whole["offset"] <= part["offset"] <= part["offset"] + part["size"] <= end:
                yield f"{part['name']} is not inside of {whole['name']}"
            if whole.get("within") is not None or part["lifetime"][1] != whole["lifetime"][1]:
                yield f"{part['name']} does not end with {whole['name']}"


def _shared(plan: dict[str, Any], graph: onnx.GraphProto) -> Iterator[str]:
    """Bytes that a node overwrites although a later one reads them, and results in wrong places."""
    # A run may overwrite an input that takes the value of an output in the next one.
    states = {state["input"] for state in plan.get("states", ())}
    of = {name: buffer for buffer in plan["buffers"] for name in buffer["values"]}
    root = {name: buffer.get("within") or buffer["name"] for name, buffer in of.items()}
    contents: dict[str, list[str]] = {}
    outputs = {item.name for item in graph.output}
    kept = ({item.name for item in graph.input} - states) | outputs

    def check(name: str, index: int) -> Iterator[str]:
        for other in contents.get(root[name], ()):
            a, b = of[name], of[other]
            begin, end = max(a["offset"], b["offset"]), min(a["offset"] + a["size"], b["offset"] + b["size"])
            if other != name and begin < end and _read_later(plan, other, index, begin, end, of, kept):
                yield f"{name} overwrites {other}, which is still needed"

    for item in graph.input:
        if item.name in of:
            contents.setdefault(root[item.name], []).append(item.name)
    for index, node in enumerate(plan["nodes"]):
        named = [name for name in node["outputs"] if name in of]
        for name in named:
            if node["view"]:
                yield from _view(node, name, of)
            else:
                in_place = node["in_place"].get(str(node["outputs"].index(name)))
                if in_place is not None:
                    operand = of[node["inputs"][in_place]]
                    if (operand["offset"], operand["size"]) != (of[name]["offset"], of[name]["size"]):
                        yield f"{name} is not where {node['inputs'][in_place]} is"
                else:
                    for operand in node["inputs"]:
                        if operand in of and root[operand] == root[name] and _overlap(of[operand], of[name]):
                            yield f"{name} is in the buffer of {operand} without a reason"
                yield from check(name, index)
            contents.setdefault(root[name], []).append(name)


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return max(one["offset"], other["offset"]) < min(
        one["offset"] + one["size"], other["offset"] + other["size"]
    )


def _read_later(
    plan: dict[str, Any], name: str, index: int, begin: int, end: int, of: dict[str, Any], kept: set[str]
) -> bool:
    """Whether a node after `index` reads bytes from `begin` to `end` of a value, or the caller does."""
    if name in kept:
        return True
    for node in plan["nodes"][index + 1 :]:
        if name in node["inputs"] or name in node["captured"]:
            cut = node["view"] and node["op_type"] in ("Slice", "Gather", "Split")
            if not cut or any(
                max(of[out]["offset"], begin) < min(of[out]["offset"] + of[out]["size"], end)
                for out in node["outputs"]
            ):
                return True
    return False


def _view(node: dict[str, Any], name: str, of: dict[str, Any]) -> Iterator[str]:
    """A view that is not where its operands are."""
    first = of[node["inputs"][0]]
    if node["op_type"] == "Concat":
        offset = of[name]["offset"]
        for operand in node["inputs"]:
            if of[operand]["offset"] != offset:
                yield f"{name} does not have the bytes of {operand}"
            offset += of[operand]["size"]
    elif node["op_type"] in ("Slice", "Gather", "Split"):
        if not first["offset"] <= of[name]["offset"] <= first["offset"] + first["size"] - of[name]["size"]:
            yield f"{name} is not inside of {node['inputs'][0]}"
    elif (of[name]["offset"], of[name]["size"]) != (first["offset"], first["size"]):
        yield f"{name} is not where {node['inputs'][0]} is"


def _too_small(graph: onnx.GraphProto, of: dict[str, Any]) -> Iterator[str]:
    for item in (*graph.input, *graph.value_info, *graph.output):
        kind = item.type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        if item.name not in of or not kind.HasField("shape") or None in sizes:
            continue
        bits = 4 if _NAMES[kind.elem_type].endswith("INT4") else 8 * _item_size(kind.elem_type)
        needed = -(-math.prod(sizes) * bits // 8)
        if of[item.name]["size"] < needed:
            yield f"the buffer of {item.name} has less than {needed} bytes"


def _item_size(element_type: int) -> int:
    return onnx.helper.tensor_dtype_to_np_dtype(element_type).itemsize


def _lifetimes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> dict[str, list[int]]:
    """First and last node of each value, by a search through all nodes."""
    span = {item.name: [0, 0] for item in graph.input}
    for index, node in enumerate(nodes):
        span.update({name: [index, index] for name in node.output if name})
    for name, found in span.items():
        for index, node in enumerate(nodes):
            if name in node.input or any(_mentions(inner, name) for inner in _graphs(node)):
                found[1] = max(found[1], index)
        if any(item.name == name for item in graph.output):
            found[1] = max(0, len(nodes) - 1)
    return span


def _graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _mentions(graph: onnx.GraphProto, name: str) -> bool:
    return any(item.name == name for item in graph.output) or any(
        name in node.input or any(_mentions(inner, name) for inner in _graphs(node)) for node in graph.node
    )


def _inner_initializers(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        for inner in _graphs(node):
            yield from (tensor.name for tensor in inner.initializer)
            yield from _inner_initializers(inner)
