"""Records of calls of TensorFlow operators: what they are made of, and where their results are stored.

A module of `cases` lists the records of a subject. `python -m tests.tensorflow.generate`, run at the root of
the repository in an environment with TensorFlow, writes what TensorFlow computes for them to
`tests/data/tensorflow/operators/<subject>.json.xz`. The tests need that file only. This module and those of
`cases` import numpy alone, because both environments import them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import lzma
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..opsets import HIGHEST

STORE = Path(__file__).resolve().parent.parent / "data" / "tensorflow" / "operators"

Array = np.ndarray


class Const:
    """An input that is a `Const` of the graph, such as the axes of a reduction."""

    def __init__(self, array: Any):
        self.array = array_of(array)


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """A call of one operator.

    Attributes:
        op: the name of the operator, `ConcatV2`.
        case: what is special about the call; with `op` the name of the test.
        inputs: the inputs by their names in the OpDef: an array, a `Const`, or a list of them.
        attributes: the attributes that are not left to their defaults; types as numpy's names for them.
        lowest: the lowest opset that must take the call. Below it the call may be refused.
        run_until: the highest opset whose operators onnxruntime has; above, the model is only checked.
        needs_rank: it is refused if the ranks of its inputs are unknown.
        needs_sizes: it is refused if the sizes of its inputs are unknown.
        loses_rank: the rank of a result is unknown if the sizes of the inputs are.
        computes_rank: the rank of a result depends on computed values.
        needs_shapes: it means something else if shapes are unknown, and is not tested so.
        full_runs_only: whether it is left to full runs.
        outputs: the positions of the results that are used; all unless given.
        compared: whether the values of the results are compared, not only their types and shapes.
    """

    op: str
    case: str
    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any]
    lowest: int = 9
    run_until: int = HIGHEST
    needs_rank: bool = False
    needs_sizes: bool = False
    loses_rank: bool = False
    computes_rank: bool = False
    needs_shapes: bool = False
    full_runs_only: bool = False
    outputs: tuple[int, ...] | None = None
    compared: bool = True
    rtol: float | None = None
    atol: float | None = None

    @property
    def name(self) -> str:
        """The name of the test, and of the results in the store."""
        return f"{self.op}-{self.case}" if self.case else self.op

    def digest(self) -> str:
        """A fingerprint of the call, which the store holds, to find records that were changed since."""
        found = hashlib.sha256(self.op.encode())
        found.update(json.dumps(self.attributes, sort_keys=True, default=str).encode())
        for name, item in self.inputs.items():
            for part in item if isinstance(item, list) else [item]:
                array = part.array if isinstance(part, Const) else part
                content = array.tolist() if array.dtype == object else array.tobytes()
                found.update(f"{name}{array.dtype}{array.shape}".encode() + repr(content).encode())
        return found.hexdigest()[:16]


_OPTIONS = frozenset(field.name for field in dataclasses.fields(Record)) - {
    "op",
    "case",
    "inputs",
    "attributes",
}


def record(op: str, case: str = "", /, **arguments: Any) -> Record:
    """A record; arguments are inputs (arrays), attributes (everything else) and options of `Record`."""
    inputs: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, item in arguments.items():
        first = item[0] if isinstance(item, list) and item else item
        if name in _OPTIONS:
            options[name] = item
        elif isinstance(first, (np.ndarray, np.generic, Const)):
            inputs[name] = [_input(part) for part in item] if isinstance(item, list) else _input(item)
        else:
            attributes[name] = item
    return Record(op, case, inputs, attributes, **options)


def _input(item: Any) -> Any:
    return item if isinstance(item, Const) else array_of(item)


def array_of(item: Any) -> Array:
    """An array; Python ints become int32, and floats float32, as in TensorFlow."""
    if isinstance(item, (np.ndarray, np.generic)):
        return np.asarray(item)
    array = np.asarray(item)
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype == np.int64 or array.size == 0:
        return array.astype(np.int32)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def const(item: Any, dtype: Any = None) -> Const:
    """A constant input."""
    array = array_of(item)
    return Const(array if dtype is None else array.astype(dtype))


def floats(*shape: int, seed: int = 0, scale: float = 1.0, dtype: Any = np.float32) -> Array:
    """Normally distributed numbers, the same ones with every version of numpy."""
    return (np.random.RandomState(seed).standard_normal(shape) * scale).astype(dtype)


def positive(
    *shape: int, seed: int = 0, low: float = 0.1, high: float = 3.0, dtype: Any = np.float32
) -> Array:
    """Uniformly distributed numbers."""
    return np.random.RandomState(seed).uniform(low, high, shape).astype(dtype)


def integers(*shape: int, seed: int = 0, low: int = -9, high: int = 10, dtype: Any = np.int32) -> Array:
    """Whole numbers from `low` to `high - 1`."""
    return np.random.RandomState(seed).randint(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> Array:
    """Truth values."""
    return np.random.RandomState(seed).randint(0, 2, shape).astype(bool)


def subjects() -> dict[str, list[Record]]:
    """The records of every module of `cases`."""
    from . import cases

    return {
        module.name: importlib.import_module(f"{cases.__name__}.{module.name}").RECORDS
        for module in pkgutil.iter_modules(cases.__path__)
    }


def without_records(subject: str) -> dict[str, str]:
    """The operators of a subject that TensorFlow does not run as a graph of one node, with the reasons."""
    module = importlib.import_module(f"{__package__}.cases.{subject}")
    return getattr(module, "WITHOUT_RECORDS", {})


@dataclasses.dataclass(frozen=True)
class Stored:
    """What TensorFlow says about a record.

    Attributes:
        digest: of the record that was run.
        arguments: those of the source node by name, in order. `["input", 0]` is the position of an input,
            `["inputs", [0, 1]]` those of a list, `["type", "FLOAT"]` an element type.
        outputs: the results.
    """

    digest: str
    arguments: dict[str, Any]
    outputs: list[Array]


def write(subject: str, stored: Mapping[str, Stored]) -> None:
    """Write the results of a subject's records."""
    results = {
        name: [item.digest, item.arguments, [_encoded(array) for array in item.outputs]]
        for name, item in stored.items()
    }
    text = json.dumps(results, separators=(",", ":"))
    STORE.mkdir(parents=True, exist_ok=True)
    path = STORE / f"{subject}.json.xz"
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def read(subject: str) -> dict[str, Stored]:
    """The results that `write` wrote; empty if there are none."""
    path = STORE / f"{subject}.json.xz"
    if not path.exists():
        return {}
    return {
        name: Stored(digest, arguments, [_decoded(*item) for item in outputs])
        for name, (digest, arguments, outputs) in json.loads(lzma.decompress(path.read_bytes())).items()
    }


def dtype_named(name: str) -> np.dtype:
    """A numpy element type, those of ml_dtypes included; strings are objects."""
    return np.dtype(getattr(ml_dtypes, name, name))


def _encoded(array: Array) -> list[Any]:
    if array.dtype == object:
        text = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1)]
        return ["object", list(array.shape), text]
    content = np.ascontiguousarray(array).tobytes().hex()
    return [array.dtype.name, list(array.shape), content]


def _decoded(dtype: str, shape: Sequence[int], content: Any) -> Array:
    if dtype == "object":
        return np.array(content, dtype=object).reshape(shape)
    return np.frombuffer(bytes.fromhex(content), dtype=dtype_named(dtype)).reshape(shape)
