"""Models are saved with references to the files that have their weights."""

import os

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import opsetta


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(30, 40)
        self.narrow = nn.Parameter(torch.randn(40, 20).to(torch.bfloat16))

    def forward(self, x):
        return self.first(x).relu() @ self.narrow.float() + torch.arange(800.0).reshape(40, 20)[:1]


X = torch.randn(3, 30, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def eager():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture
def folder(eager, tmp_path):
    (tmp_path / "weights").mkdir()
    save_file(eager.state_dict(), tmp_path / "weights" / "x.safetensors")
    return tmp_path


def exported(folder, opset=17):
    with torch.device("meta"):
        model = Model().eval()
    return opsetta.export(model, X, opset=opset, weights=folder / "weights")


def places(path):
    """The file, offset and length of each tensor."""
    graph = onnx.load(path, load_external_data=False).graph
    return {t.name: {e.key: e.value for e in t.external_data} for t in graph.initializer}


def run(path):
    return onnxruntime.InferenceSession(path).run(None, {"x": X.numpy()})[0]


@pytest.mark.parametrize("opset", [12, 17])
def test_weights_stay_where_they_are(opset, eager, folder):
    path = folder / "m.onnx"
    exported(folder, opset).save(path, weights="reference")
    found = places(path)
    assert found["first.weight"]["location"] == "weights/x.safetensors"
    assert found["first.weight"]["length"] == "4800"
    assert found["first.bias"] == {}
    # Opset 12 has no arithmetic on bfloat16: the weight is written as float32.
    assert (found["narrow"]["location"] == "weights/x.safetensors") == (opset == 17)
    expected = eager(X).detach().numpy()
    np.testing.assert_allclose(run(path), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(opsetta.load(path)(X).numpy(), expected, rtol=1e-4, atol=1e-4)
    onnx.checker.check_model(path)


def test_a_loaded_model_refers_to_the_same_files(eager, folder):
    exported(folder).save(folder / "m.onnx", weights="reference")
    before = set(os.listdir(folder))
    loaded = opsetta.load(folder / "m.onnx")
    loaded.lower(18).save(folder / "n.onnx", weights="reference")
    assert set(os.listdir(folder)) == before | {"n.onnx"}
    assert places(folder / "n.onnx").keys() == places(folder / "m.onnx").keys()
    np.testing.assert_allclose(run(folder / "n.onnx"), eager(X).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_a_copy_does_not_refer(folder):
    exported(folder).save(folder / "m.onnx")
    assert all(not place for place in places(folder / "m.onnx").values())


def test_the_rest_may_stay_in_the_file(folder):
    exported(folder).save(folder / "m.onnx", weights="reference", external_data=False)
    located = {place.get("location") for place in places(folder / "m.onnx").values()}
    assert located == {None, "weights/x.safetensors"}


def refuse(program, target, message, **options):
    with pytest.raises(opsetta.OpsettaError, match=message):
        program.save(target, weights="reference", **options)


def test_a_model_outside_of_the_folder_is_refused(folder):
    other = folder / "other"
    other.mkdir()
    refuse(
        exported(folder), other / "m.onnx", r"in the folder of .*x.safetensors.*or save with weights='copy'"
    )
    assert os.listdir(other) == []


def test_a_file_that_changed_is_refused(folder):
    program, path = exported(folder), folder / "weights" / "x.safetensors"
    os.utime(path, ns=(1, 1))
    refuse(program, folder / "m.onnx", "was replaced or changed")
    path.unlink()
    refuse(program, folder / "m.onnx", "was replaced or changed")


def test_a_file_with_hard_links_is_refused(folder):
    os.link(folder / "weights" / "x.safetensors", folder / "weights" / "y.other")
    refuse(exported(folder), folder / "m.onnx", "has hard links")


def test_the_file_with_the_weights_is_not_overwritten(eager, tmp_path):
    save_file(eager.state_dict(), tmp_path / "x.safetensors")
    program = opsetta.export(Model().to("meta").eval(), X, weights=tmp_path)
    content = (tmp_path / "x.safetensors").read_bytes()
    refuse(program, tmp_path / "x.safetensors", "save the model under another name")
    refuse(program, tmp_path / "m.onnx", "save the model under another name", external_data="x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == content


def test_a_model_without_files_is_refused(eager, tmp_path):
    refuse(opsetta.export(eager, X), tmp_path / "m.onnx", "needs weights in files, but the model has none")


def test_other_targets_and_modes_are_refused(folder):
    program = exported(folder)
    with open(os.devnull, "wb") as file:
        refuse(program, file, "a file object has no folder")
    refuse(program, os.devnull, "not a regular file")
    refuse(program, folder / "p", "cannot be combined with weights='reference'", prepack=True)
    with pytest.raises(opsetta.UsageError, match="weights is 'copy' or 'reference', not 'move'"):
        program.save(folder / "m.onnx", weights="move")


def test_a_tensor_at_an_odd_place_is_copied(tmp_path):
    content = torch.randn(40, 30)
    header = (
        b'{"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"weight":{"dtype":"F32","shape":[40,30],"data_offsets":[1,4801]}}'
    )
    header += b" " * (-len(header) % 8)
    data = len(header).to_bytes(8, "little") + header + b"\0" + content.numpy().tobytes()
    (tmp_path / "x.safetensors").write_bytes(data)
    weights = {"weight": opsetta.open_weights(tmp_path)["weight"]}
    model = nn.Linear(30, 40, bias=False, device="meta").eval()
    program = opsetta.export(model, X, weights=weights)
    program.verify()
    program.save(tmp_path / "m.onnx", weights="reference")
    assert places(tmp_path / "m.onnx")["weight"]["location"].startswith("m.onnx.")
