"""Changed graphs of TensorFlow end in a model or in an error of ours."""

import pathlib
import random
from collections import Counter
from typing import Any

import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph
from opsetta.exporter.capture.tensorflow.messages import message_type

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "tensorflow"
OPERATORS = (
    "Merge Switch Enter Exit NextIteration LoopCond Identity While If PartitionedCall TensorListSetItem "
    "Const Placeholder TensorArrayV3 Split NoOp Unknown"
).split()


def change(random: random.Random, graph: Any) -> None:
    """Change one node of a graph or of its functions."""
    lists = [graph.node, *(function.node_def for function in graph.library.function)]
    nodes = random.choice([each for each in lists if len(each)])
    node, other = random.choice(nodes), random.choice(nodes)
    kind = random.randrange(8)
    if kind == 0 and node.input:
        suffix = random.choice(["", ":1", ":0", ":x:0", ":9"])
        node.input[random.randrange(len(node.input))] = other.name + suffix
    elif kind == 1 and node.input:
        del node.input[random.randrange(len(node.input))]
    elif kind == 2:
        node.input.append(random.choice(["", "^"]) + other.name)
    elif kind == 3 and node.attr:
        del node.attr[random.choice(sorted(node.attr))]
    elif kind == 4:
        node.op = random.choice(OPERATORS)
    elif kind == 5:
        node.name = other.name
    elif kind == 6 and node.attr and other.attr:
        node.attr[random.choice(sorted(node.attr))].CopyFrom(other.attr[random.choice(sorted(other.attr))])
    elif kind == 7 and len(nodes) > 1:
        nodes.remove(node)


def graphs() -> list[Any]:
    paths = [*sorted((DATA / "control_flow").glob("*.pb")), *sorted((DATA / "graphs").glob("lstm*.pb"))]
    return [message_type("GraphDef").FromString(path.read_bytes()) for path in paths]


@pytest.mark.parametrize("seed", range(4))
def test_changed_graphs_are_captured_or_refused(seed, sweep):
    generator, originals = random.Random(seed), graphs()
    found: Counter[str] = Counter()
    for _ in range(5000 if sweep else 250):
        graph = message_type("GraphDef")()
        graph.CopyFrom(generator.choice(originals))
        for _ in range(generator.randint(1, 4)):
            change(generator, graph)
        try:
            capture_graph(graph)
            found["captured"] += 1
        except (opsetta.ModelFileError, opsetta.CaptureError) as error:
            found[type(error).__name__] += 1
    assert {"captured", "ModelFileError", "CaptureError"} <= {*found}
