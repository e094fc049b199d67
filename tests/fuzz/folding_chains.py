"""Random chains of operators over constants, which ask with few bytes for values of any size.

python -m tests.fuzz.folding_chains [--count 500] [--seed 0]

Each chain is converted in a fork, with the bounds of `limits`. A file has small constants, sometimes one of a
few megabytes, and moves and arithmetic over them: what is folded, and what is left to the runtime, is the
converter's choice; what that takes is bounded.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import limits

_SIZES = [0, 1, 1, 2, 3, 7, 64, 2**10, 2**14, 2**18, 2**22, 2**26, 2**32, 2**44, 2**62, -1, -5]
_UNARY = "Abs Cos Exp Neg Reciprocal Sigmoid Sin Sqrt Tanh Identity Relu Floor Ceil Log Erf Softmax".split()
_BINARY = "Add Sub Mul Div Pow Max Min".split()
_COMPARISONS = "Equal Greater Less GreaterOrEqual LessOrEqual".split()
_REDUCTIONS = "ReduceMax ReduceMin ReduceMean ReduceProd ReduceL2 ReduceSum".split()


class _Chain:
    """A graph under construction, and the float values in it."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.floats = [self._weight() for _ in range(chance.randint(1, 3))]

    def _weight(self) -> str:
        chance = self.chance
        shapes = [(), (1,), (3,), (1, 1), (4, 4), (2, 1, 3), (64, 64), (1024, 1), (1, 1024)]
        shape = chance.choice([(512, 1024), (2**19,)]) if chance.random() < 0.1 else chance.choice(shapes)
        array = np.random.default_rng(chance.randrange(2**32)).standard_normal(shape)
        return self.constant(array.astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, numbers: list[int]) -> str:
        return self.constant(np.array(numbers, np.int64))

    def sizes(self, most: int = 4) -> str:
        return self.integers([self.chance.choice(_SIZES) for _ in range(self.chance.randint(0, most))])

    def node(self, op_type: str, inputs: list[str], **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def grow(self) -> None:
        """Add one operator, or the two or three that make one value."""
        chance = self.chance
        # Mostly the newest value, so that chains are long.
        value = self.floats[-1] if chance.random() < 0.7 else chance.choice(self.floats)
        other = chance.choice(self.floats)
        makers = [
            lambda: self.node("Expand", [value, self.sizes()]),
            lambda: self.node("Tile", [value, self.sizes(2)]),
            lambda: self.node("ConstantOfShape", [self.sizes()]),
            lambda: self.node(
                "Reshape", [value, self.integers(chance.choice([[-1], [1, -1], [-1, 1], [2, -1]]))]
            ),
            lambda: self.node("Transpose", [value]),
            lambda: self.node("Concat", [value] * chance.randint(1, 4), axis=0),
            lambda: self.node("Unsqueeze", [value, self.integers([chance.choice([0, 1, -1])])]),
            lambda: self.node("Squeeze", [value]),
            lambda: self.node("Flatten", [value], axis=chance.choice([0, 1])),
            lambda: self.node("Gather", [value, self.node("Expand", [self.integers([0]), self.sizes(2)])]),
            lambda: self.node("Slice", [value, self.integers([0]), self.integers([chance.choice(_SIZES)])]),
            lambda: self.node(
                "Where", [self.node(chance.choice(_COMPARISONS), [value, other]), value, other]
            ),
            lambda: self.node("MatMul", [value, self.node("Transpose", [other])]),
            lambda: self.node("Cast", [self._range()], to=1),
            lambda: self.node("Pad", [value, self.integers([0, chance.choice(_SIZES)])]),
            lambda: self.node("CumSum", [value, self.integers([0])]),
            lambda: self.node("Cast", [self.node("Cast", [value], to=10)], to=1),
            *[lambda: self.node(chance.choice(_UNARY), [value])] * 4,
            *[lambda: self.node(chance.choice(_BINARY), [value, other])] * 6,
            *[lambda: self.node(chance.choice(_REDUCTIONS), [value], keepdims=chance.choice([0, 1]))] * 3,
        ]
        self.floats.append(chance.choice(makers)())

    def _range(self) -> str:
        start, limit, delta = (
            self.constant(np.array(self.chance.choice(_SIZES), np.int64)) for _ in range(3)
        )
        return self.node("Range", [start, limit, delta])


def chain(chance: random.Random) -> bytes:
    """A model that adds the last values of a chain to its input."""
    graph = _Chain(chance)
    for _ in range(chance.choice([2, 3, 4, 6, 10, 40, 300])):
        graph.grow()
    result = "x"
    for value in graph.floats[-chance.randint(1, 3) :]:
        result = graph.node("Add", [result, value])
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])],
            [onnx.ValueInfoProto(name=result)],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return model.SerializeToString()


def problem(number: int, seed: int, folder: pathlib.Path) -> tuple[str, limits.Taken]:
    """What is wrong with the conversion of one chain, and what it took."""
    chance = random.Random(f"{seed}:{number}")
    path = folder / "model.onnx"
    path.write_bytes(chain(chance))
    way = chance.choice(["convert to 7", "convert to 23"])
    size = path.stat().st_size
    taken = limits.measure(limits.WAYS[way], path, size)
    return taken.problem(size), taken


def main() -> int:
    """Run the command; 1 where a chain took too much or failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    slowest, largest, failed, begin = (0.0, -1), (0, -1), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="opsetta-chains-") as folder:
        for number in range(options.first, options.first + options.count):
            text, taken = problem(number, options.seed, pathlib.Path(folder))
            slowest, largest = max(slowest, (taken.seconds, number)), max(largest, (taken.memory, number))
            if text:
                failed += 1
                print(f"chain {number}: {text}", flush=True)
    print(f"{options.count} chains in {time.monotonic() - begin:.0f} s, {failed} problems")
    print(f"slowest: {slowest[0]:.2f} s (chain {slowest[1]})")
    print(f"most memory: {largest[0] / 10**6:.0f} MB (chain {largest[1]})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
