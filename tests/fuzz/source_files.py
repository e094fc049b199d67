"""Source files of captured models: which are mutated, how, and how each is read, lowered and called.

Half of the changes are to the JSON in the metadata and in the arguments of nodes: a changed byte would mostly
make it unreadable as a whole.
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import pathlib
import random
from typing import Any

import onnx

import opsetta

from . import mutations

Pair = collections.namedtuple("Pair", "first second")


def files() -> list[bytes]:
    """Sources with nested arguments, sizes with conditions, decisions of the example, and constants."""
    import torch

    class Nested(torch.nn.Module):
        def forward(self, x, options, scale=0.5):
            first, *others = options["inputs"]
            return {"sum": x * scale + first, "pair": Pair(others[0], x.sum())}

    class Sized(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x):
            x = x[:, ::2] if x.shape[0] > 2 else x
            y = torch.nn.functional.pad(x.unflatten(0, (-1, 2)), (0, 0, 1, 1), value=float("-inf"))
            return self.linear(y).topk(2, dim=-1), [x.shape[0], None]

    x = torch.randn(4, 8)
    size = torch.export.Dim.DYNAMIC
    programs = [
        opsetta.export(Nested(), (x, {"inputs": [x, x + 1]}), {"scale": 2.0}, opset=13),
        opsetta.export(Sized(), (x,), opset=13, dynamic_shapes=({0: size},)),
    ]
    # The first session of onnxruntime reads files of the system.
    programs[1](x)
    made = []
    for program in programs:
        for format in ("binary", "text", "json"):
            buffer = io.BytesIO()
            program.source_model.save_source(buffer, format=format)
            made.append(buffer.getvalue())
    return made


def mutate(chance: random.Random, sources: list[bytes]) -> bytes:
    """One changed file: its bytes or messages, or values of its JSON."""
    if chance.random() < 0.4:
        return mutations.mutate(chance, sources)
    model = onnx.ModelProto.FromString(chance.choice([data for data in sources if data[:1] == b"\x08"]))
    texts = list(_texts(model))
    for holder, field in chance.sample(texts, chance.choice([1, 1, 1, 2, 3])):
        held = getattr(holder, field)
        text = held.decode() if isinstance(held, bytes) else held
        changed = _changed(chance, text)
        setattr(holder, field, changed.encode() if isinstance(held, bytes) else changed)
    return model.SerializeToString()


def _texts(model: onnx.ModelProto) -> Any:
    """The places of JSON texts: the holder, and the name of its field."""
    for entry in model.metadata_props:
        # The interface has most of the rules.
        yield from [(entry, "value")] * (8 if entry.key.endswith("interface") else 3)
    graphs = [model.graph]
    for graph in graphs:
        for node in graph.node:
            for attribute in node.attribute:
                graphs.extend([attribute.g] if attribute.HasField("g") else [])
                if attribute.type == onnx.AttributeProto.STRING:
                    yield attribute, "s"
            yield from ((entry, "value") for entry in node.metadata_props)
        for info in (*graph.value_info, *graph.input, *graph.output):
            yield from ((entry, "value") for entry in info.metadata_props)


def _changed(chance: random.Random, text: str) -> str:
    try:
        tree = json.loads(text)
    except ValueError:
        return chance.choice(["", "[", "{}", "null", text[:-1], text * 2])
    holder: list[Any] = [tree]
    places = list(_places(holder))
    container, key = chance.choice(places)
    values = [None, True, -1, 0, 1, 7, 2**70, 0.5, "", "x", "float", [], [1], {}, {"tuple": [1]}]
    values += [
        {"value": 3},
        {"dtype": "NONE"},
        {"float": "x"},
        {"dict": [[1]]},
        {"torch": "torch.int3"},
        {"type": "a"},
    ]
    what = chance.randrange(4)
    if what == 0 and container is not holder:
        del container[key]
    elif what == 1:
        other, place = chance.choice(places)
        container[key] = json.loads(json.dumps(other[place]))
    elif what == 2 and isinstance(container[key], list):
        container[key] = container[key] + container[key][:1]
    else:
        container[key] = chance.choice(values)
    return json.dumps(holder[0])


def _places(container: Any) -> Any:
    for key in range(len(container)) if isinstance(container, list) else list(container):
        yield container, key
        if isinstance(container[key], (list, dict)):
            yield from _places(container[key])


def read_everything(path: pathlib.Path) -> str:
    """Load, lower, save and call a file; anything but our own errors goes on to the caller."""
    import torch

    try:
        model = opsetta.load(path)
    except opsetta.OpsettaError:
        return "refused as a file"
    end = "loaded"
    x = torch.randn(4, 8)
    for opset in (9, 18):
        with contextlib.suppress(opsetta.OpsettaError):
            program = model.lower(opset)
            program.save(path.with_name("lowered.onnx"))
            end = "lowered"
            if isinstance(program, opsetta.Program):
                with contextlib.suppress(opsetta.OpsettaError):
                    assert (program.dimensions, program.specializations) != (None, None)
                for arguments in ((x,), (x, {"inputs": [x, x + 1]}, 2.0)):
                    with contextlib.suppress(opsetta.OpsettaError):
                        program(*arguments)
                        end = "called"
    if isinstance(model, opsetta.SourceModel):
        with contextlib.suppress(opsetta.OpsettaError):
            model.save_source(io.BytesIO())
    return end
