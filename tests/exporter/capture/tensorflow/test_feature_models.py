"""SavedModels with parsed examples, tables and strings: `make_feature_models.py` made them in TensorFlow."""

import json
import pathlib
import tarfile
import warnings
from typing import Any

import numpy as np
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.freezing import freeze
from opsetta.exporter.capture.tensorflow.messages import message_type

from ....opsets import HIGHEST, named
from .graph_files import DATA
from .graphs import FLOAT, Graph


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the models."""
    folder = tmp_path_factory.mktemp("feature_models")
    with tarfile.open(DATA / "feature_models.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def _arrays(lists: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    return {
        name: np.array(elements, dtype).reshape(shape) for name, (dtype, shape, elements) in lists.items()
    }


@pytest.mark.parametrize(
    ("model", "opsets"),
    [
        ("tables", (9, 13, 18, HIGHEST)),
        ("assets", (9, 13, HIGHEST)),
        ("learned", (7, 9, HIGHEST)),
        ("text", (20, HIGHEST)),
        ("parsed", (9, 13, HIGHEST)),
        ("columns", (9, 13, HIGHEST)),
    ],
)
def test_models_agree_with_tensorflow(models: pathlib.Path, model: str, opsets: tuple[int, ...]):
    given, expected = map(_arrays, json.loads((models / "expected.json").read_text())[model])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*parses serialized")
        source = opsetta.load(models / model)
    for opset in opsets:
        with named(opset):
            program = source.lower(opset)
            assert set(program.input_names) == set(given)
            results = program(**given)
            results = results if isinstance(results, (list, tuple)) else [results]
            for name, result in zip(program.output_names, results, strict=True):
                wanted = expected[name]
                assert np.shape(result) == wanted.shape
                if wanted.dtype.kind == "f":
                    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
                else:
                    np.testing.assert_array_equal(result, wanted)


def test_features_are_inputs_and_the_user_is_told(models: pathlib.Path):
    with pytest.warns(UserWarning, match=r"'age' FLOAT \[batch, 1\] \(its default is 0.0\)"):
        source = opsetta.load(models / "parsed")
    assert source.lower(13).input_names == [
        "tags/indices",
        "tags/values",
        "tags/dense_shape",
        "age",
        "income",
        "steps/values",
        "steps/row_splits",
    ]


def test_a_feature_is_optional_if_the_number_of_examples_is_known(models: pathlib.Path):
    with pytest.warns(UserWarning, match="parses serialized"):
        source = opsetta.load(
            models / "parsed", inputs={"serving_default_examples": [2]}, outputs=["StatefulPartitionedCall:0"]
        )
    program = source.lower(13)
    initializers = program.model.graph.initializers
    assert initializers["age"].const_value.numpy().tolist() == [[0.0], [0.0]]
    score = program(income=np.float32([[1, 2], [0, -1]]))
    np.testing.assert_allclose(score, [[8], [-3]])


def test_a_parser_may_be_kept_and_is_refused(models: pathlib.Path):
    source = opsetta.load(models / "parsed", keep_parse_example=True)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="tf::ParseExampleV2"):
        source.lower(13)


def _parse_single(graph: Graph, **attributes: Any) -> None:
    examples = graph.add("Placeholder", "example", dtype="DT_STRING", shape=[])
    graph.constant("default", np.float32([0.5, 1.5]))
    graph.add(
        "ParseSingleExample",
        "parse",
        [examples, "default"],
        num_sparse=1,
        sparse_keys=["tags"],
        dense_keys=["size"],
        sparse_types=["DT_INT64"],
        Tdense=[FLOAT],
        dense_shapes=[[2]],
        **attributes,
    )


def test_one_example_has_features_without_a_batch(tmp_path: pathlib.Path):
    graph = Graph()
    _parse_single(graph)
    graph.add("Neg", "negative", ["parse:3"], T=FLOAT)
    graph.add("Identity", "where", ["parse:0"], T="DT_INT64")
    (tmp_path / "graph.pb").write_bytes(graph.message.SerializeToString())
    with pytest.warns(UserWarning, match=r"'tags/indices' INT64 \[tags_count, 1\]; 'size' FLOAT \[2\]"):
        program = opsetta.load(tmp_path / "graph.pb", outputs=["negative", "where"]).lower(13)
    negative, where = program(**{"tags/indices": np.array([[3]])})
    np.testing.assert_array_equal(negative, np.float32([-0.5, -1.5]))
    assert where.tolist() == [[3]]


def _table_graph(tmp_path: pathlib.Path, *, initializer: str) -> pathlib.Path:
    graph = Graph()
    graph.add("HashTableV2", "table", key_dtype="DT_STRING", value_dtype="DT_INT64")
    graph.constant("default", np.int64(-1))
    keys = graph.add("Placeholder", "x", dtype="DT_STRING", shape=[-1])
    if initializer == "tensors":
        graph.constant("keys", np.array(["a", "b"]))
        graph.constant("values", np.int64([3, 4]))
        graph.add(
            "LookupTableImportV2", "fill", ["table", "keys", "values"], Tin="DT_STRING", Tout="DT_INT64"
        )
    elif initializer == "file":
        graph.constant("path", np.array("/etc/passwd"))
        graph.add(
            "InitializeTableFromTextFileV2",
            "fill",
            ["table", "path"],
            key_index=-2,
            value_index=-1,
            vocab_size=-1,
            delimiter="\t",
        )
    graph.add("LookupTableFindV2", "ids", ["table", keys, "default"], Tin="DT_STRING", Tout="DT_INT64")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.message.SerializeToString())
    return path


def test_a_frozen_graph_may_fill_its_tables(tmp_path: pathlib.Path):
    source = opsetta.load(_table_graph(tmp_path, initializer="tensors"))
    for opset in (9, 13, HIGHEST):
        program = source.lower(opset)
        assert program(np.array(["b", "c", "a"], object)).tolist() == [4, -1, 3]
    # The domain has the version that was released with the opset.
    assert [source.lower(opset).model.graph.opset_imports["ai.onnx.ml"] for opset in (9, 13, 18)] == [1, 2, 3]


def test_a_table_without_contents_is_refused(tmp_path: pathlib.Path):
    with pytest.raises(opsetta.CaptureError, match="a table whose contents are not in the file"):
        opsetta.load(_table_graph(tmp_path, initializer=""))


def test_a_file_that_a_graph_names_is_not_opened(tmp_path: pathlib.Path):
    with pytest.raises(opsetta.CaptureError, match="'/etc/passwd', which is not an asset"):
        opsetta.load(_table_graph(tmp_path, initializer="file"))


def test_a_missing_asset_is_named(models: pathlib.Path, tmp_path: pathlib.Path):
    message = message_type("SavedModel").FromString((models / "assets" / "saved_model.pb").read_bytes())
    (tmp_path / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(opsetta.ModelFileError, match="the asset '(words.txt|pairs.tsv)'"):
        opsetta.load(tmp_path)


def test_a_table_that_no_output_needs_may_have_no_contents(tmp_path: pathlib.Path):
    path = _table_graph(tmp_path, initializer="file")
    message = message_type("GraphDef").FromString(path.read_bytes())
    message.node.add(name="y", op="Identity", input=["x"]).attr["T"].type = 7
    path.write_bytes(message.SerializeToString())
    program = opsetta.load(path, outputs=["y"]).lower(13)
    assert program(np.array(["a"], object)).tolist() == ["a"]


def test_an_asset_outside_of_the_folder_is_refused(models: pathlib.Path, tmp_path: pathlib.Path):
    message = message_type("SavedModel").FromString((models / "assets" / "saved_model.pb").read_bytes())
    for asset in message.meta_graphs[0].asset_file_def:
        asset.filename = "../secret.txt"
    folder = tmp_path / "model"
    (folder / "assets").mkdir(parents=True)
    (folder / "secret.txt").write_text("a\n")
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(opsetta.ModelFileError, match="'../secret.txt'"):
        opsetta.load(folder)


def test_functions_that_fill_tables_may_not_call_themselves(models: pathlib.Path, tmp_path: pathlib.Path):
    message = message_type("SavedModel").FromString((models / "tables" / "saved_model.pb").read_bytes())
    library = message.meta_graphs[0].graph_def.library
    for function in library.function:
        if "initializer" in function.signature.name:
            call = function.node_def.add(name="again", op=function.signature.name)
            call.input.extend(argument.name for argument in function.signature.input_arg)
    (tmp_path / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(opsetta.ModelFileError, match="nested too deep"):
        opsetta.load(tmp_path)


def test_freezing_does_not_keep_tables(models: pathlib.Path):
    with pytest.raises(opsetta.CaptureError, match="cannot be frozen: its results come from outside"):
        freeze(models / "tables")
