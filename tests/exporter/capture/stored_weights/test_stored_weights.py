"""Models on the meta device or of fake tensors are exported with weights from files, which are not loaded."""

import json
import os
import pathlib

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file, save_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import opsetta
from opsetta.exporter.files.weights.stored_tensors import FileTensor


class Model(nn.Module):
    """Tied weights, buffers, and weights that are large enough for external data."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 40)
        self.linear = nn.Linear(40, 40)
        self.norm = nn.BatchNorm1d(40)
        self.head = nn.Linear(40, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.norm(self.linear(self.embedding(x)).relu().mean(1)))


X = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def eager():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture
def empty():
    with torch.device("meta"):
        return Model().eval()


def sharded(model, folder):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    names = sorted(state)
    files = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({name: state[name] for name in held}, folder / file)
    weight_map = {name: file for file, held in files.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def file(model, folder):
    save_model(model, folder / "x.safetensors")
    return folder / "x.safetensors"


def checkpoint(model, folder):
    torch.save(model.state_dict(), folder / "x.pt")
    return folder / "x.pt"


def folder_of_one(model, folder):
    return file(model, folder).parent


def index(model, folder):
    return sharded(model, folder) / "model.safetensors.index.json"


def mapping(model, folder):
    return opsetta.open_weights(file(model, folder))


def arrays(model, folder):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


SOURCES = [file, folder_of_one, sharded, index, checkpoint, mapping, arrays]


@pytest.mark.parametrize("source", SOURCES)
def test_the_file_is_that_of_the_model_with_its_weights(source, eager, empty, tmp_path):
    weights = source(eager, tmp_path)
    shapes = {"dynamic_shapes": ({0: "batch"},)}
    program = opsetta.export(empty, X, opset=17, weights=weights, **shapes)
    assert program.model_proto == opsetta.export(eager, X, opset=17, **shapes).model_proto
    program.verify()
    assert program.locate_mismatch() is None
    assert empty.embedding.weight.is_meta
    assert empty.head.weight is empty.embedding.weight
    if source is not arrays:
        plain = program.lower(17, optimize="none").model
        assert {type(value.const_value) for value in plain.graph.initializers.values()} == {FileTensor}


def test_a_model_of_fake_tensors_takes_weights(eager, tmp_path):
    with FakeTensorMode():
        model = Model().eval()
    program = opsetta.export(model, X, weights=file(eager, tmp_path))
    assert program.model_proto == opsetta.export(eager, X).model_proto
    program.verify()


@pytest.mark.parametrize("strict", [False, True])
def test_weights_of_another_floating_type_are_converted_with_a_warning(strict, eager, empty, tmp_path):
    state = {
        name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in eager.state_dict().items()
    }
    torch.save(state, tmp_path / "x.pt")
    with pytest.warns(UserWarning, match="converted .BFLOAT16 to FLOAT.: 'embedding.weight'"):
        program = opsetta.export(empty, X, weights=tmp_path / "x.pt", strict=strict)
    program.verify()
    program = program.lower(17, optimize="none")
    written = program.model.graph.initializers["linear.weight"].const_value.numpy()
    np.testing.assert_array_equal(written, state["linear.weight"].float().numpy())


def test_a_large_converted_weight_has_no_contents_while_it_is_captured(tmp_path):
    class Wide(nn.Module):
        def __init__(self, device=None):
            super().__init__()
            self.a = nn.Linear(600, 600, bias=False, device=device)
            self.b = nn.Linear(600, 600, bias=False, device=device)

        def forward(self, x):
            return self.b(self.a(x).relu())

    model, x = Wide().half(), torch.randn(3, 600)
    path = file(model, tmp_path)
    with pytest.warns(UserWarning, match="FLOAT16 to FLOAT"):
        program = opsetta.export(Wide("meta").eval(), x, weights=path, dynamic_shapes=({0: "n"},))
    assert len(program.model.graph.initializers) == 2
    program.verify((torch.randn(5, 600),))
    program.save(tmp_path / "m.onnx", external_data=True)
    expected = model.float()(x).detach().numpy()
    np.testing.assert_allclose(opsetta.load(tmp_path / "m.onnx")(x).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_one_error_lists_all_that_does_not_fit(eager, empty, tmp_path):
    state = {name: tensor.clone() for name, tensor in eager.state_dict().items()}
    state["model.linear.weight"] = state.pop("linear.weight")
    state["norm.running_mean"] = torch.ones(41)
    state["linear.bias"] = torch.ones(40, dtype=torch.int64)
    state["head.weight"] = torch.ones(50, 40)
    save_file(state, tmp_path / "x.safetensors")
    with pytest.raises(opsetta.ModelFileError) as raised:
        opsetta.export(empty, X, weights=tmp_path)
    for line in (
        "missing: 'linear.weight'; the closest is 'model.linear.weight'",
        "unexpected: 'model.linear.weight'",
        "'norm.running_mean' is FLOAT[41], and FLOAT[40] in the model",
        "'linear.bias' is INT64[40], and FLOAT[40] in the model",
        "'embedding.weight' and 'head.weight' are one tensor in the model, and differ",
    ):
        assert line in str(raised.value)


def test_names_are_changed_in_the_mapping(eager, empty, tmp_path):
    save_file(
        {f"model.{name}": t.clone() for name, t in eager.state_dict().items()}, tmp_path / "x.safetensors"
    )
    given = opsetta.open_weights(tmp_path)
    weights = {name.removeprefix("model."): tensor for name, tensor in given.items()}
    opsetta.export(empty, X, weights=weights).verify()


class Rotating(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("angles", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return self.linear(x) * self.angles


def test_a_buffer_that_no_checkpoint_has_is_refused_unless_it_is_given(tmp_path):
    save_file(nn.Linear(4, 4).state_dict(), tmp_path / "linear.safetensors")
    state = {f"linear.{name}": t for name, t in opsetta.open_weights(tmp_path).items()}
    with torch.device("meta"):
        model = Rotating()
    x = torch.randn(2, 4)
    with pytest.raises(
        opsetta.ModelFileError, match=r"'angles' is a buffer .*: set model.angles to its values"
    ):
        opsetta.export(model.eval(), x, weights=state)
    opsetta.export(model, x, weights=state | {"angles": torch.arange(4.0)}).verify()
    model.angles = torch.arange(4.0)
    opsetta.export(model, x, weights=state).verify()


def test_a_tensor_without_data_that_is_an_attribute_is_refused(tmp_path):
    with torch.device("meta"):
        model = nn.Linear(4, 4).eval()
        model.scale = torch.ones(4)
    weights = file(nn.Linear(4, 4), tmp_path)
    with pytest.raises(opsetta.ModelFileError, match="'scale' is an attribute that no checkpoint has"):
        opsetta.export(model, torch.randn(2, 4), weights=weights)


def test_a_model_without_data_and_without_weights_is_refused(empty):
    with pytest.raises(opsetta.CaptureError, match=r"'embedding.weight', .* have no data .*weights="):
        opsetta.export(empty, X)


@pytest.mark.parametrize(
    "model", [torch.relu, torch.jit.script(nn.Linear(4, 4).eval())], ids=["function", "script"]
)
def test_weights_are_for_modules(model):
    with pytest.raises(opsetta.UsageError, match="weights= needs an nn.Module"):
        opsetta.export(model, torch.randn(2, 4), weights={})


@pytest.mark.parametrize("weights", [3, [1], {1: torch.ones(2)}])
def test_weights_are_a_path_or_a_mapping(weights, empty):
    with pytest.raises(opsetta.UsageError, match="a path, or a mapping"):
        opsetta.export(empty, X, weights=weights)


def test_buffers_that_transformers_initializes_by_itself_are_computed(tmp_path):
    configuration = transformers.LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        use_cache=False,
    )
    torch.manual_seed(0)
    eager = transformers.LlamaForCausalLM(configuration).eval()
    eager.save_pretrained(tmp_path)
    with torch.device("meta"):
        empty = transformers.LlamaForCausalLM(configuration).eval()
    tokens = torch.ones(1, 5, dtype=torch.int64)
    program = opsetta.export(empty, tokens, weights=tmp_path)
    assert program.model_proto == opsetta.export(eager, tokens).model_proto
    assert all(buffer.is_meta for buffer in empty.buffers())


def test_a_transposed_tensor_of_a_checkpoint_is_stored_in_order(tmp_path):
    torch.save({"weight": torch.arange(12.0).reshape(4, 3).t(), "bias": torch.ones(3)}, tmp_path / "x.pt")
    found = opsetta.open_weights(tmp_path)
    np.testing.assert_array_equal(found["weight"].numpy(), np.arange(12.0, dtype=np.float32).reshape(4, 3).T)
    program = opsetta.export(nn.Linear(4, 3, device="meta").eval(), torch.randn(2, 4), weights=found)
    program.verify()


REFUSED_CHECKPOINTS = {
    "nested": ({"state_dict": {"a": torch.ones(2)}}, r"more than tensors by name, such as 'state_dict'"),
    "a tensor": (torch.ones(2), "holds a Tensor|holds a FakeTensor"),
    "code": ({"a": pathlib.PurePosixPath("x")}, "torch.load refuses it"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED_CHECKPOINTS.values(), ids=REFUSED_CHECKPOINTS)
def test_a_checkpoint_that_holds_something_else_is_refused(content, message, tmp_path):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(opsetta.ModelFileError, match=message):
        opsetta.open_weights(tmp_path / "x.pt")


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "sub/../../x.safetensors"])
def test_an_index_that_leads_out_of_its_folder_is_refused(name, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    (inner / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(opsetta.ModelFileError, match="must be in the model's folder"):
        opsetta.open_weights(inner)


def test_links_out_of_the_folder_are_refused_except_in_the_cache_of_the_hub(tmp_path):
    blobs, snapshot, other = tmp_path / "blobs", tmp_path / "snapshot", tmp_path / "other"
    for folder in (blobs, snapshot, other):
        folder.mkdir()
    sharded(nn.Linear(4, 4), blobs)
    for name in os.listdir(blobs):
        (snapshot / name).symlink_to(blobs / name)
        (other / name).symlink_to(blobs / name)
    assert set(opsetta.open_weights(snapshot)) == {"weight", "bias"}
    (other / "model.safetensors.index.json").unlink()
    (other / "model.safetensors.index.json").write_bytes(
        (blobs / "model.safetensors.index.json").read_bytes()
    )
    with pytest.raises(opsetta.ModelFileError, match="a link out of the model's folder"):
        opsetta.open_weights(other)


def test_an_index_that_contradicts_its_files_is_refused(tmp_path):
    sharded(nn.Linear(4, 4), tmp_path)
    path = tmp_path / "model.safetensors.index.json"
    content = json.loads(path.read_text())
    content["weight_map"]["more"] = content["weight_map"]["bias"]
    path.write_text(json.dumps(content))
    with pytest.raises(opsetta.ModelFileError, match="contradict each other about 'more'"):
        opsetta.open_weights(path)


def test_a_folder_without_a_checkpoint_or_with_several_is_refused(tmp_path):
    with pytest.raises(opsetta.ModelFileError, match=r"no .safetensors file"):
        opsetta.open_weights(tmp_path)
    for name in "ab":
        save_file({"x": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(opsetta.ModelFileError, match=r"several files .safetensors, 'a.safetensors', 'b.saf"):
        opsetta.open_weights(tmp_path)
    with pytest.raises(opsetta.ModelFileError, match="No such file"):
        opsetta.open_weights(tmp_path / "c.safetensors")
    (tmp_path / "x.bin").write_bytes(b"something")
    with pytest.raises(opsetta.ModelFileError, match=r"neither a .safetensors file nor"):
        opsetta.open_weights(tmp_path / "x.bin")


def test_a_parameter_without_data_that_is_not_used_does_no_harm():
    model = nn.Linear(4, 4).eval()
    model.unused = nn.Parameter(torch.empty(3, device="meta"))
    opsetta.export(model, torch.randn(2, 4)).verify()


def test_fake_tensors_without_weights_are_refused():
    with FakeTensorMode():
        model = nn.Linear(4, 4).eval()
    with pytest.raises(opsetta.CaptureError, match=r"'weight', 'bias' .* FakeTensor.*weights="):
        opsetta.export(model, torch.randn(2, 4))


def test_complex_weights_become_pairs(tmp_path):
    class Model(nn.Module):
        def __init__(self, device=None):
            super().__init__()
            values = torch.arange(6.0).reshape(2, 3)
            self.factor = nn.Parameter(torch.complex(values, values + 1).to(device))

        def forward(self, x):
            return torch.view_as_real(x.to(torch.complex64) * self.factor)

    weights, x = file(Model(), tmp_path), torch.randn(2, 3)
    program = opsetta.export(Model("meta").eval(), x, weights=weights)
    program.verify()
    assert program.model_proto == opsetta.export(Model().eval(), x).model_proto


class Deciding(nn.Module):
    """Branches on a buffer, a weight, and a number in a buffer."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("initialised", torch.tensor(False))
        self.register_buffer("padding", torch.tensor(1))

    def forward(self, x):
        if not self.initialised:
            x = x * 100
        if self.linear.weight.sum() > 0:
            x = x + 1
        return self.linear(nn.functional.pad(x, (int(self.padding), 0))[:, :-3])


def deciding(width, folder, dtype=torch.float32):
    model = Deciding(width).eval()
    model.initialised.fill_(True)
    model.padding.fill_(3)
    nn.init.constant_(model.linear.weight, 0.25)
    save_file({k: v.to(dtype) if v.is_floating_point() else v for k, v in model.state_dict().items()}, folder)
    with torch.device("meta"):
        return model, Deciding(width).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_paths_depend_on_the_values_in_the_file(tmp_path, dtype):
    model, empty = deciding(4, tmp_path / "x.safetensors", dtype)
    x = torch.ones(2, 4)
    program = opsetta.export(empty, (x,), weights=tmp_path / "x.safetensors")
    torch.testing.assert_close(program(x), model(x), rtol=1e-3, atol=1e-3)


def test_a_path_that_depends_on_a_large_converted_weight_is_refused_by_name(tmp_path):
    _, empty = deciding(1024, tmp_path / "x.safetensors", torch.float16)
    with pytest.raises(opsetta.CaptureError, match=r"(?s)'linear\.weight' will be converted.*model\.half"):
        opsetta.export(empty, (torch.ones(2, 1024),), weights=tmp_path / "x.safetensors")
    x = torch.ones(2, 1024, dtype=torch.float16)
    opsetta.export(empty.half(), (x,), weights=tmp_path / "x.safetensors")
