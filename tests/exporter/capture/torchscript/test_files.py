"""TorchScript modules and files as models: names, metadata, state, what is none, the command line."""

from __future__ import annotations

import json
import logging
import pathlib
import sys
import warnings
import zipfile

import onnx
import pytest
import torch
from torch import Tensor, nn

import opsetta
from opsetta.exporter.command_line.options.example_inputs import example_inputs
from opsetta.registration import LINE, MODULE


class Leaf(nn.Module):
    """A module with a container inside and a buffer that it writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.rest = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
        self.register_buffer("count", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.rest(self.linear(x)) * self.count


class Net(nn.Module):
    """Lists in lists, a dict, and a layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([nn.ModuleList([Leaf(), Leaf()]), nn.ModuleList([Leaf()])])
        self.named = nn.ModuleDict({"a": Leaf(), "b": nn.Sequential(nn.Linear(3, 3))})

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        for stage in self.stages:
            for leaf in stage:
                x = leaf(x)
        for module in self.named.values():
            x = module(x)
        return x * y, x.sum()


class Embedder(nn.Module):
    """Tokens, a mask and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 4)

    def forward(self, tokens: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
        return self.embedding(tokens) * mask.unsqueeze(-1) * scale


CALL = (torch.arange(6.0).reshape(2, 3) - 2, torch.ones(2, 3))
MODULES = [
    f"{leaf}{inner}"
    for leaf in ("stages.0.0", "stages.0.1", "stages.1.0", "named.a")
    for inner in ("", ".linear", ".rest.0", ".rest.1.0", ".rest.1.1", "")
]


def build() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module", params=["scripted", "traced", "loaded"])
def program_module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    if request.param == "traced":
        return torch.jit.trace(build(), CALL, check_trace=False)
    script = torch.jit.script(build())
    if request.param == "scripted":
        return script
    path = tmp_path_factory.mktemp("files") / "net.pt"
    torch.jit.save(script, path)
    return torch.jit.load(path)


def test_names_modules_and_state_are_those_of_the_module(program_module) -> None:
    program = opsetta.export(
        program_module, CALL, opset=13, mutations="outputs", input_names=["image"], output_names=["scores"]
    )
    assert program.input_names == ["image", "y"]
    assert program.output_names[0] == "scores"
    assert program.output_names[2:] == [f"{path}.count_mutated" for path in MODULES[::6]]
    weights = {name for name in build().state_dict() if not name.endswith("count")}
    assert weights <= {name for name in program.model.graph.initializers if not name.startswith("constant")}
    found = [node.metadata_props.get(MODULE, "") for node in program.source.graph]
    assert [name for name in found if name.startswith(("stages", "named.a"))] == MODULES
    program.verify()
    assert program.locate_mismatch() is None


def test_module_arguments_and_buffers_are_left_as_they_were(program_module) -> None:
    before = {name: tensor.clone() for name, tensor in program_module.state_dict().items()}
    call = tuple(tensor.clone() for tensor in CALL)
    program = opsetta.export(
        program_module, call, mutations="outputs", dynamic_axes={"x": {0: "b"}, "y": {0: "b"}}
    )
    program.verify()
    program.verify((torch.randn(5, 3), torch.randn(5, 3)))
    with pytest.raises(opsetta.MutationError, match="stages.0.0.count"):
        opsetta.export(program_module, call)
    assert all(torch.equal(before[name], tensor) for name, tensor in program_module.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(call, CALL, strict=True))
    assert not program_module.training


def test_source_lines_of_a_script() -> None:
    program = opsetta.export(torch.jit.script(build()), CALL, mutations="drop", source_lines=True)
    lines = [node.metadata_props.get(LINE, "") for node in program.source.graph if node.op_type == "mul"]
    assert lines
    assert all(line.rpartition(":")[0].endswith("test_files.py") for line in lines)


def test_a_script_in_training_mode_is_announced() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opsetta.export(torch.jit.script(nn.Sequential(nn.Linear(2, 2))), torch.ones(1, 2))
    assert any("training mode" in str(warning.message) for warning in caught)


def test_a_program_is_saved_and_lowered_again(tmp_path: pathlib.Path) -> None:
    program = opsetta.export(torch.jit.script(build()), CALL, opset=9, mutations="drop")
    program.save(tmp_path / "net.onnx")
    assert onnx.load(tmp_path / "net.onnx").opset_import[0].version == 9
    program.lower(opset=21).verify()


def test_a_mismatch_is_located_in_a_script() -> None:
    registry = opsetta.default_registry.fork()

    @opsetta.onnx_symbolic("aten::tanh", opset=9, registry=registry, override=True)
    def tanh(g: opsetta.GraphContext, self: opsetta.Value) -> opsetta.Value:
        return g.op("Mul", g.op("Tanh", self), 1.5)

    program = opsetta.export(torch.jit.script(build()), CALL, mutations="drop", registry=registry)
    found = program.locate_mismatch()
    assert (found.operator, found.module) == ("aten::tanh.default", "stages.0.0.rest.1.1")


@torch.jit.script
def collatz(n: int, x: Tensor) -> Tensor:
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        x = torch.relu(x) + 1
    return x.tanh()


def test_a_mismatch_is_located_behind_a_loop() -> None:
    registry = opsetta.default_registry.fork()
    program = opsetta.export(collatz, (6, torch.randn(3)), opset=13, registry=registry)
    assert program.locate_mismatch() is None

    @opsetta.onnx_symbolic("aten::tanh", opset=9, registry=registry, override=True)
    def tanh(g: opsetta.GraphContext, self: opsetta.Value) -> opsetta.Value:
        return g.op("Neg", g.op("Tanh", self))

    assert program.lower(opset=13, registry=registry).locate_mismatch().operator == "aten::tanh.default"


@torch.jit.script
def gathered(x: Tensor) -> Tensor:
    rows = [x[0]]
    for i in range(x.size(0)):
        rows.append(x[i] * 2)
    return torch.stack(rows)


def test_a_list_that_grows_ends_the_search_with_the_remedy() -> None:
    program = opsetta.export(gathered, (torch.randn(3, 2),), opset=13, dynamic_shapes={"x": {0: "n"}})
    with pytest.raises(opsetta.OpsettaError, match="list::.*To compare later results"):
        program.locate_mismatch()


def test_a_script_without_forward_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match="has no forward"):
        opsetta.export(torch.jit.script(nn.GRU(2, 3).eval()), torch.ones(4, 1, 2))


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty folder with `model.pt`, and files that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    model = Embedder().eval()
    torch.jit.save(torch.jit.script(model), "model.pt")
    torch.save(model.state_dict(), "state.pt")
    torch.save(model.state_dict(), "old_state.pt", _use_new_zipfile_serialization=False)
    torch.save(model, "pickled.pt")
    torch.save(model, "old_pickled.pt", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), "program.pt2")
    with zipfile.ZipFile("cut.pt2", "w") as cut:
        cut.writestr("p/archive_format", "pt2")
    with zipfile.ZipFile("other.pt", "w") as other:
        other.writestr("p/version", "3")
    zipfile.ZipFile("nothing.pt", "w").close()
    pathlib.Path("model.gguf").write_bytes(b"GGUF" + bytes(20))
    pathlib.Path("text.pt").write_text("hello")
    pathlib.Path("empty.pt").write_bytes(b"")
    pathlib.Path("cut.pt").write_bytes(pathlib.Path("model.pt").read_bytes()[:500])
    pathlib.Path("factories.py").write_text(
        "import torch\n"
        "call = torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 2)\n"
        "def path(): return 'model.pt', call\n"
        "def loaded(): return torch.jit.load('model.pt'), call\n"
        "def missing(): return 'none.pt', call\n"
    )
    return tmp_path


@pytest.fixture
def run(run, folder: pathlib.Path):
    """Run the command line in the folder with the files."""
    return run


NOT_TORCHSCRIPT = [
    ("state.pt", "contains tensors and no program, like a state_dict"),
    ("old_state.pt", "contains tensors and no program, like a state_dict"),
    ("pickled.pt", r"holds a pickled object \(.*Embedder\), not TorchScript"),
    ("old_pickled.pt", r"holds a pickled object \(.*Embedder\), not TorchScript"),
    ("text.pt", r"is not a file that torch.jit.save wrote; .*opsetta.load\('text.pt'\).lower\(opset\)"),
    ("empty.pt", "is not a file that torch.jit.save wrote"),
    ("cut.pt", "is not a file that torch.jit.save wrote"),
    ("cut.pt2", "torch.export.load cannot read 'cut.pt2'"),
    ("other.pt", "is a zip archive: unpack it"),
    ("nothing.pt", "is a zip archive without files"),
    ("model.gguf", "is a GGUF file of llama.cpp"),
    ("none.pt", "there is no file 'none.pt'"),
    (".", "is a folder"),
]


@pytest.mark.parametrize(("name", "message"), NOT_TORCHSCRIPT)
def test_what_is_no_torchscript_is_told_apart(
    folder: pathlib.Path, name: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    # torch's loggers pass nothing on to the root, which caplog listens to.
    logging.getLogger("torch.export").addHandler(caplog.handler)
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(pathlib.Path(name), torch.ones(1, 2))
    logging.getLogger("torch.export").removeHandler(caplog.handler)
    assert not caplog.records


def test_a_path_is_a_model(folder: pathlib.Path) -> None:
    call = (torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 2))
    opsetta.export("model.pt", call, opset=13).verify()


def test_a_file_of_torch_export_is_exported_with_its_example_or_given_inputs(run) -> None:
    code, out, err = run("export", "program.pt2", "-o", "o.onnx", "--opset", 9, "--verify", "--json")
    assert (code, err, json.loads(out)["opset"]) == (0, "", 9)
    assert run("export", "program.pt2", "-o", "o.onnx", "--input", "float32[1,2]", "--verify")[0] == 0
    code, _, err = run("export", "program.pt2", "-o", "o.onnx", "--input", "float32[batch,2]")
    assert (code, "has its own dynamic dimensions" in err) == (2, True)
    opsetta.export("program.pt2", torch.ones(1, 2), opset=13).verify()


TOKENS, MASK = "int64[batch,seq=7]<100", "float32[batch,seq]"


def test_a_file_is_exported_and_verified_from_the_command_line(run) -> None:
    code, out, err = run("export", "model.pt", "-o", "o.onnx", "--opset", 9, "--verify", "--json",
                         "--input", TOKENS, "--input", MASK)  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["opset"], found["inputs"]) == (9, ["tokens", "mask"])
    code, out, _ = run("info", "o.onnx", "--json")
    assert [value["shape"] for value in json.loads(out)["inputs"]] == [["batch", "seq"], ["batch", "seq"]]
    assert run("verify", "o.onnx", "model.pt", "--input", "int64[3,1]<100", "--input", "float32[3,1]")[0] == 0


def test_numbers_and_dynamic_dimensions_of_a_file(run) -> None:
    code, out, _ = run("export", "model.pt", "-o", "o.onnx", "--verify", "--json", "--input", "int64[2,3]",
                       "--input", "float32[2,3]", "--input", "0.5", "--dynamic", "tokens:0=b",
                       "--dynamic", "mask:0=b")  # fmt: skip
    assert code == 0
    assert json.loads(out)["inputs"] == ["tokens", "mask", "scale"]


@pytest.mark.parametrize("name", ["path", "loaded"])
def test_a_factory_may_give_torchscript(run, name: str) -> None:
    assert run("export", f"factories.py:{name}", "-o", "o.onnx", "--verify")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "has 3 inputs (tokens: Tensor, mask: Tensor, scale: float), but there are 0 --input"),
        (["int64[2]"] * 4, "but there are 4 --input"),
        (["int65[2]", MASK], "there is no element type 'int65'"),
        (["int64[2;3]", MASK], "'2;3' is not a dimension"),
        (["int64[b=2,3]", "float32[b=3,3]"], "'b' is 2 in another --input"),
        (["int64[2]", "float32[2]<3"], "a bound needs an integer type"),
        (["int8[2]<1000", MASK], "int8 has no numbers from 0 to below 1000"),
        (["tokens", MASK], "does not describe an input"),
        (
            ["int64[2,3]<200", "float32[2,3]", "--verify"],
            "the model fails in PyTorch itself on the example arguments (tokens: int64[2, 3], ",
        ),
    ],
)
def test_bad_inputs_of_a_file_are_one_line(run, arguments: list[str], message: str) -> None:
    flags = [flag for text in arguments for flag in ([text] if text.startswith("--") else ["--input", text])]
    code, out, err = run("export", "model.pt", "-o", "o.onnx", *flags)
    # The texts of --input are wrong, but for those that the model refuses.
    assert (code, out) == (1 if "--verify" in arguments else 2, "")
    assert message in err.splitlines()[-1]
    assert not pathlib.Path("o.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["factories.py:path", "--input", "3"], "--input is for TorchScript files"),
        (["factories.py:missing"], "there is no file 'none.pt'"),
        (["state.pt", "--input", "float32[2]"], "contains tensors and no program"),
        (
            ["model.pt", "--input", TOKENS, "--input", MASK, "--dynamic", "tokens:0=b"],
            "--input names dynamic",
        ),
    ],
)
def test_bad_models_are_one_line(run, arguments: list[str], message: str) -> None:
    code, out, err = run("export", *arguments, "-o", "o.onnx")
    assert (code, out) == (2 if message.startswith("--input") else 1, "")
    assert message in err.splitlines()[-1]


def test_example_inputs_are_what_their_texts_say() -> None:
    torch.manual_seed(0)
    texts = ["int64[n,m=5]<10", "bool[m]", "float16[]", "uint8[n]", "7", "-0.5", "true", "none"]
    values, shapes = example_inputs(texts)
    assert [(list(v.shape), v.dtype) for v in values[:4]] == [
        ([2, 5], torch.int64), ([5], torch.bool), ([], torch.float16), ([2], torch.uint8)
    ]  # fmt: skip
    assert int(values[0].min()) >= 0
    assert 1 < int(values[0].max()) < 10
    assert int(values[3].max()) < 2
    assert values[4:] == (7, -0.5, True, None)
    assert shapes == [{0: "n", 1: "m"}, {0: "m"}, None, {0: "n"}, None, None, None, None]
    torch.manual_seed(0)
    assert torch.equal(example_inputs(texts)[0][0], values[0])
