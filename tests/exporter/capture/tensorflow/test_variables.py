"""`load` of graphs with variables: the checkpoint has their values, and the results equal TensorFlow's."""

import pathlib

import numpy as np
import onnx
import pytest

import opsetta

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "tensorflow"
GRAPHS = sorted(path.parent.name for path in (DATA / "freezing").glob("*/graph.pb"))


def check(source: opsetta.SourceModel, example: pathlib.Path, opset: int) -> None:
    """Compare the results with TensorFlow's, by name."""
    with np.load(example) as file:
        found = {key.removesuffix(":0"): file[key] for key in file}
    inputs = {key[3:]: found[key] for key in found if key.startswith("in:")}
    outputs = {key[4:]: found[key] for key in found if key.startswith("out:")}
    program = source.lower(opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    results = program(**inputs)
    results = results if isinstance(results, tuple) else (results,)
    assert sorted(program.output_names) == sorted(outputs)
    for name, result in zip(program.output_names, results, strict=True):
        np.testing.assert_allclose(result, outputs[name], rtol=1e-5, atol=1e-5)


def outputs_of(example: pathlib.Path) -> list[str]:
    with np.load(example) as file:
        return [key[4:] for key in file if key.startswith("out:")]


@pytest.mark.parametrize("opset", [9, 24])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_and_its_checkpoint(name, opset):
    folder = DATA / "freezing" / name
    prefix = next(folder.glob("*.index")).with_suffix("")
    outputs = outputs_of(folder / "io.npz")
    source = opsetta.load(folder / "graph.pb", checkpoint=prefix, outputs=outputs)
    check(source, folder / "io.npz", opset)


def test_a_meta_graph_finds_the_checkpoint_beside_it():
    folder = DATA / "freezing" / "adam"
    source = opsetta.load(folder / "model.ckpt-5.meta", outputs=outputs_of(folder / "io.npz"))
    check(source, folder / "io.npz", 13)


def test_a_saved_model_has_signatures_and_variables():
    folder = DATA / "freezing" / "saved_model"
    check(opsetta.load(folder), folder / "io.npz", 13)


def test_inputs_and_outputs_have_the_names_of_the_signature():
    folder = DATA / "saved_models" / "objects"
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    program = opsetta.load(folder).lower(13)
    assert (program.input_names, program.output_names) == (["x"], ["largest", "scaled"])
    largest, scaled = program(x)
    assert largest == 6
    np.testing.assert_array_equal(scaled, x * np.float32([1, 2, 3]))
    shifted = opsetta.load(folder, signature="shifted").lower(13)
    np.testing.assert_array_equal(shifted(shift=x[0]), np.float32([2, 4, 6]))
    with pytest.raises(opsetta.ModelFileError, match="it has no signature 'nothing'"):
        opsetta.load(folder, signature="nothing")


def test_a_graph_is_chosen_by_its_tags():
    folder = DATA / "saved_models" / "tagged"
    with pytest.raises(opsetta.ModelFileError, match="it has no signature 'serving_default'"):
        opsetta.load(folder)
    for tags, signature, factor in ((["serve"], "doubled", 2), (["train"], "predict", 1)):
        program = opsetta.load(folder, tags=tags, signature=signature).lower(13)
        assert (program.input_names, program.output_names) == (["left"], ["product"])
        found = program(np.float32([[1, 1]]))
        np.testing.assert_array_equal(found, np.float32([[4, 6]]) * factor)


def test_variables_without_a_checkpoint_are_named():
    folder = DATA / "freezing" / "average"
    with pytest.raises(opsetta.CaptureError, match="depend on variables.*give the checkpoint"):
        opsetta.load(folder / "graph.pb", outputs=outputs_of(folder / "io.npz"))
