"""Files written for torch.onnx, registered with it and, by another import, with opsetta: the same results."""

import difflib
import importlib.util
import io
import pathlib
import re
import warnings
from collections import namedtuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import opsetta
from opsetta import torch_onnx

from . import library

WRITTEN = pathlib.Path(__file__).with_name("written")
IMPORT = re.compile(r"^(?P<keyword>from|import) torch\.onnx\b", re.MULTILINE)
REGISTERED = re.compile(r'^register_custom_op_symbolic\("([^"]+)", (\w+), (\w+)\)', re.MULTILINE)

# What a file registers, used on inputs; `torch_opsets` are those at which torch.onnx gives a right file, too.
Case = namedtuple("Case", "name file function inputs opsets torch_opsets")

OPS = torch.ops.portable
resize = torch.nn.functional.interpolate
TORCH = (9, 11, 13, 17)
ALL = (*TORCH, 18, 21, 28)
X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(1))
BOXES = torch.tensor([[0.0, 0, 4, 4], [0.5, 0, 4, 4], [5, 5, 9, 9], [5, 5, 8, 9], [0, 6, 2, 9]])
SCORES = torch.tensor([0.6, 0.9, 0.3, 0.8, 0.5])
W, B = torch.tensor([1.0, 2, -1, 0.5, 3]), torch.arange(5.0)
GRID = torch.rand(1, 3, 3, 2, generator=torch.Generator().manual_seed(2)) * 2 - 1
INDEX = torch.tensor([[[4, 0, 1]], [[2, 2, 0]]])

CASES = [
    Case("weights", "normalization", lambda x: OPS.channel_norm(x, W, B, 1e-3, True), (X,), ALL, TORCH),
    Case("no weights", "normalization", lambda x: OPS.channel_norm(x, None, None), (X,), ALL, TORCH),
    Case("limit", "normalization", lambda x: OPS.soft_clip(x, 0.75), (X,), ALL, TORCH),
    Case("default limit", "normalization", lambda x: OPS.soft_clip(x), (X,), ALL, TORCH),
    Case("boxes", "boxes", lambda b, s: OPS.nms(b, s, 0.5), (BOXES, SCORES), ALL[1:], TORCH[1:]),
    # At 9, torch.onnx writes the TopK of opset 10.
    Case("rows", "selection", lambda x: OPS.best_rows(x, 2, 1), (X,), ALL, TORCH[1:]),
    Case("window", "selection", lambda x: OPS.window(x, [1, 4]), (X,), ALL, TORCH),
    Case("joined", "selection", lambda x: OPS.joined([x, x * 2, x], 1), (X,), ALL, TORCH),
    Case("softmax of the last", "older", lambda x: OPS.rows_softmax(x, 2), (X,), ALL, TORCH),
    # From 13 on, torch.onnx writes a Softmax over one dimension only for this one.
    Case("softmax of two", "older", lambda x: OPS.rows_softmax(x, 1), (X,), ALL, TORCH[:2]),
    # From 10 on, torch.onnx writes an operator that ONNX no longer has.
    Case("enlarged", "older", lambda x: OPS.enlarged(x, 2), (IMAGE,), ALL, TORCH[:1]),
    Case("squashed", "older", lambda x: OPS.squashed(x, -0.5, 0.5), (X[0],), ALL, TORCH[:1]),
    Case("replaced", "older", lambda x, i: OPS.replaced(x, i, x[:, 1:2]), (X, INDEX), ALL, TORCH[:1]),
    Case(
        "regions",
        "sampling",
        lambda x, b: OPS.pooled_rois(x, b, torch.zeros(5, dtype=torch.int64), 2, 0.3),
        (IMAGE, BOXES),
        # onnxruntime has no kernel for RoiAlign from 22 on.
        ALL[1:-1],
        TORCH[1:3],
    ),
    Case("twice", "resampling", lambda x: resize(x, scale_factor=2), (IMAGE,), ALL[1:], TORCH[1:]),
    Case(
        "corners",
        "resampling",
        lambda x: resize(x, size=(5, 7), mode="bilinear", align_corners=True),
        (IMAGE,),
        ALL[1:],
        TORCH[1:],
    ),
    Case(
        "padded",
        "resampling",
        lambda x: torch.constant_pad_nd(x, (1, 2, 0, 1), 3.0),
        (IMAGE,),
        ALL[1:],
        TORCH[1:],
    ),
    Case(
        "pooled",
        "resampling",
        lambda x: torch.nn.functional.avg_pool2d(x, 2, padding=1),
        (IMAGE,),
        ALL[1:],
        TORCH[1:],
    ),
    Case("sampled", "sampling", lambda x, grid: OPS.sampled(x, grid), (IMAGE, GRID), ALL[3:], TORCH[3:]),
]


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def source_of(name: str) -> str:
    return (WRITTEN / f"{name}.py").read_text(encoding="utf-8")


def ported(source: str) -> str:
    """The file with its imports changed, and nothing else."""
    return IMPORT.sub(r"\g<keyword> opsetta.torch_onnx", source)


def run(source: str) -> list[tuple]:
    """Run a file, and give back what it registers: name, function, opset."""
    namespace = {"__name__": "written_for_torch_onnx"}
    exec(compile(source, "<written>", "exec"), namespace)
    found = REGISTERED.findall(source)
    assert found
    return [(n, namespace[f], int(v) if v.isdigit() else namespace[v]) for n, f, v in found]


@pytest.fixture
def registered():
    """Registers a file with opsetta for one test."""
    held = []

    def register(name: str):
        held.extend(run(ported(source_of(name))))

    yield register
    for name, _, opset in held:
        torch_onnx.unregister_custom_op_symbolic(name, opset)


def by_torch(name: str, function, inputs, opset: int) -> onnx.ModelProto:
    """What torch.onnx makes of the file at an opset.

    A built-in function of torch.onnx at a higher opset goes before one that is registered, so each is
    registered at the opset of the export, too.
    """
    held = run(source_of(name))
    for qualified, symbolic, _ in held:
        torch.onnx.register_custom_op_symbolic(qualified, symbolic, opset)
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(Model(function), inputs, file, opset_version=opset, dynamo=False)
    finally:
        for qualified, _, version in held:
            for at in {version, opset}:
                torch.onnx.unregister_custom_op_symbolic(qualified, at)
    return onnx.load_from_string(file.getvalue())


def results(model: bytes, inputs) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return session.run(None, dict(zip(names, [tensor.numpy() for tensor in inputs], strict=True)))


def assert_close(actual, expected):
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)


def bytes_of(program) -> bytes:
    file = io.BytesIO()
    program.save(file)
    return file.getvalue()


@pytest.mark.parametrize("file", sorted(path.stem for path in WRITTEN.glob("*.py")))
def test_an_import_is_all_that_changes(file):
    before, after = source_of(file), ported(source_of(file))
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert changed
    assert all(line[2:].startswith(("import ", "from ")) for line in changed)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch_onnx_and_opsetta_agree_with_eager(case, registered):
    expected = case.function(*case.inputs)
    registered(case.file)
    captured = opsetta.export(Model(case.function).eval(), case.inputs, opset=case.opsets[0])
    for opset in case.opsets:
        program = captured.lower(opset=opset)
        model = onnx.load_from_string(bytes_of(program))
        onnx.checker.check_model(model)
        assert model.opset_import[0].version == opset
        assert_close(results(model.SerializeToString(), case.inputs), expected)
        if opset in case.torch_opsets:
            by_other = by_torch(case.file, case.function, case.inputs, opset)
            assert_close(results(by_other.SerializeToString(), case.inputs), expected)


PLUGINS = [
    (lambda x, grid: torch.nn.functional.grid_sample(x, grid, align_corners=True), (IMAGE, GRID)),
    (lambda b, s: OPS.batched_nms(b, s, 3, 0.25, "corners"), (BOXES[None], SCORES[None, :, None])),
    (lambda x: torch.nn.functional.layer_norm(x, [5, 3], torch.ones(5, 3), None, 1e-3), (X,)),
    (
        lambda x, w: OPS.deform_conv2d(x, w, x, x, torch.ones(2), [2, 1], [1, 1], True),
        (IMAGE, torch.ones(2, 3, 2, 2)),
    ),
    (
        lambda x, w: OPS.deform_conv2d(x, w, x, x, None, [1, 1], [0, 0], False),
        (IMAGE, torch.ones(2, 3, 2, 2)),
    ),
    (lambda x: torch.triu(x, 1), (X,)),
]


def plugins_of(model: onnx.ModelProto) -> list[tuple]:
    """Operators of other domains: type, domain, attributes, constant and other inputs, number of results."""
    constants = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    found = []
    for node in model.graph.node:
        if node.domain:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            plain = {
                key: onnx.numpy_helper.to_array(a).tolist() if isinstance(a, onnx.TensorProto) else a
                for key, a in attributes.items()
            }
            given = [
                (constants[n].dtype, constants[n].tolist()) if n in constants else None for n in node.input
            ]
            found.append((node.op_type, node.domain, plain, given, len(node.output)))
    return found


@pytest.mark.parametrize(("function", "inputs"), PLUGINS)
def test_plugins_are_what_torch_onnx_writes(function, inputs, registered):
    registered("plugins")
    captured = opsetta.export(Model(function).eval(), inputs, opset=9)
    for opset in ALL:
        model = onnx.load_from_string(bytes_of(captured.lower(opset=opset)))
        [plugin] = plugins_of(model)
        if opset in TORCH:
            assert [plugin] == plugins_of(by_torch("plugins", function, inputs, opset))


def test_the_library_has_what_the_files_register():
    names = {name for file in WRITTEN.glob("*.py") for name, _, _ in REGISTERED.findall(source_of(file.stem))}
    own = {name.partition("::")[2] for name in names if name.startswith("portable::")}
    assert all(hasattr(library, name) for name in own)


def test_the_tests_read_every_file():
    assert {case.file for case in CASES} | {"plugins"} == {path.stem for path in WRITTEN.glob("*.py")}
    assert importlib.util.find_spec("opsetta.torch_onnx") is not None
