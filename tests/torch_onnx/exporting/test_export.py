"""The keywords of `torch.onnx.export`, each as a caller of torch.onnx gives it."""

import inspect
import io
import pathlib
import re

import onnx
import pytest
import torch
from torch import nn

import opsetta
from opsetta import torch_onnx
from opsetta.registration.opsets import OPSET_RANGE
from opsetta.torch_onnx.exporting.keywords import REMOVED

from ...opsets import HIGHEST
from .files import check, opset_of, shapes_of

DOCUMENTATION = pathlib.Path(__file__).resolve().parents[3] / "docs" / "torch-onnx.md"
X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Two(nn.Module):
    def forward(self, x, y=None, scale=1.0):
        return x * scale if y is None else x * scale - 2 * y


@pytest.fixture(scope="module")
def layers():
    torch.manual_seed(0)
    return Layers().eval()


def exported(model, args, **options):
    options.setdefault("opset_version", 12)
    return torch_onnx.export(model, args, **options)


def parameters_of(function):
    return [
        (name, parameter.kind, parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def test_the_signature_is_that_of_torch():
    theirs, ours = parameters_of(torch.onnx.export), parameters_of(torch_onnx.export)
    names = [name for name, _, _ in theirs]
    shared = [entry for entry in ours if entry[0] in names]
    enumerations = ("training", "operator_export_type")
    assert [entry[:2] for entry in shared] == [entry[:2] for entry in theirs]
    assert [e for e in shared if e[0] not in enumerations] == [e for e in theirs if e[0] not in enumerations]
    assert {name for name, _, _ in ours} - {*names} <= {"fallback", "removed"}


def test_the_documentation_says_what_each_keyword_does():
    table = DOCUMENTATION.read_text(encoding="utf-8").split("## Keywords")[1].split("\n## ")[0]
    listed = [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split(" | ")[0])
    ]
    known = {name for name, _, _ in parameters_of(torch.onnx.export)} | {"fallback"}
    assert len(listed) == len(set(listed))
    assert set(listed) - known == set(REMOVED)
    assert known <= set(listed)


@pytest.mark.parametrize(
    "target", ["path", "string", "buffer", "file", None], ids=["path", "string", "buffer", "file", "none"]
)
def test_the_target_is_a_path_a_file_or_none(target, layers, tmp_path):
    path = tmp_path / "model.onnx"
    buffer = io.BytesIO()
    if target == "file":
        with open(path, "wb") as file:
            result = exported(layers, X, f=file)
    else:
        result = exported(layers, X, f={"path": path, "string": str(path), "buffer": buffer}.get(target))
    if target == "buffer":
        path.write_bytes(buffer.getvalue())
    if target is not None:
        check(path, layers, X)
    assert isinstance(result, torch.onnx.ONNXProgram)


@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.sweep)])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X, X + 1), None),
        ([X, X + 1], None),
        ((X, {"y": X + 1}), None),
        ((X,), {"y": X + 1}),
        (X, {"y": X + 1}),
        ({"x": X, "y": X + 1}, None),
        (({"y": X + 1, "x": X},), {}),
    ],
    ids=["tuple", "list", "dict at the end", "kwargs", "one tensor", "dict", "dict in another order"],
)
def test_forms_of_the_arguments(args, kwargs, dynamo):
    result = exported(Two(), args, kwargs=kwargs, dynamo=dynamo)
    torch.testing.assert_close(
        result(x=X, y=X * 3) if isinstance(args, dict) else result(X, X * 3), (X - 6 * X,)
    )


def test_an_empty_dict_at_the_end_makes_the_one_before_it_an_argument():
    def of_dict(x, extra=None):
        return x - extra["x"]

    result = exported(of_dict, (X, {"x": X + 1}, {}))
    torch.testing.assert_close(result(X, extra={"x": 2 * X}), (-X,))


def test_keywords_come_in_the_order_of_the_forward_as_in_a_trace():
    result = exported(Two(), (), kwargs={"y": X, "x": X + 1}, dynamo=False, input_names=["first", "second"])
    [mul] = [node for node in result.model.graph if node.op_type == "Mul"]
    assert mul.inputs[0].name == "second"


def test_the_same_tensor_twice_is_two_inputs():
    result = exported(Two(), (X, X))
    torch.testing.assert_close(result(X, torch.zeros_like(X)), (X,))


@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_the_file_has_exactly_the_opset(opset, layers, tmp_path):
    exported(layers, (X,), f=tmp_path / "m.onnx", opset_version=opset)
    assert opset_of(tmp_path / "m.onnx") == opset


def test_the_default_opset_is_that_of_opsetta(layers, tmp_path):
    torch_onnx.export(layers, (X,), tmp_path / "m.onnx")
    assert opset_of(tmp_path / "m.onnx") == opsetta.DEFAULT_OPSET


def test_fewer_names_than_inputs():
    result = exported(Two(), (X, X + 1), input_names=["left"], output_names=["out"])
    assert [value.name for value in result.model.graph.inputs] == ["left", "y"]
    assert [value.name for value in result.model.graph.outputs] == ["out"]


def test_names_beyond_the_inputs_go_to_the_weights_of_a_trace(layers):
    names = ["x", "learned_0", "learned_1", "learned_2"]
    result = exported(layers, (X,), input_names=names, dynamo=False)
    assert set(result.model.graph.initializers) == {"learned_0", "learned_1", "learned_2", "second.bias"}
    torch.testing.assert_close(result(X)[0], layers(X).detach())
    with pytest.warns(UserWarning, match="input_names: no weight of the file has the name 'e', 'f'"):
        exported(layers, (X,), input_names=[*"xabcdef"], dynamo=False)


def test_names_beyond_inputs_and_outputs_are_ignored_otherwise(layers):
    with pytest.warns(UserWarning, match="_names has 2 names for 1: b are ignored"):
        result = exported(layers, (X,), input_names=["a", "b"], output_names=["a1", "b"])
    assert set(result.model.graph.initializers) == {*layers.state_dict()}
    with pytest.raises(torch.onnx.OnnxExporterError, match="output_names has 2 names, but the model has 1"):
        exported(layers, (X,), output_names=["a", "b"], dynamo=False)


class Nested(nn.Module):
    def forward(self, x, flag, cache):
        return x + cache[0]["k"] if flag else x, cache[1] * 2


CACHE = [{"k": X}, torch.ones(2, 5)]


@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_dynamic_axes_name_inputs_inside_of_arguments(dynamo, tmp_path):
    exported(
        Nested(),
        (X, True, CACHE),
        f=tmp_path / "m.onnx",
        dynamo=dynamo,
        input_names=["x", "cache.0.k", "cache.1"],
        output_names=["sum", "twice"],
        dynamic_axes={"x": {0: "rows"}, "cache.0.k": {0: "rows"}, "cache.1": [1], "twice": {1: "length"}},
    )
    file = onnx.load(tmp_path / "m.onnx")
    length = "cache.1_dynamic_axes_1"
    assert shapes_of(file.graph.input) == [
        ("x", ["rows", 3]),
        ("cache.0.k", ["rows", 3]),
        ("cache.1", [2, length]),
    ]
    assert shapes_of(file.graph.output) == [("sum", ["rows", 3]), ("twice", [2, length])]


@pytest.mark.parametrize("form", ["dynamic_axes", "dynamic_shapes"])
def test_names_of_axes_promise_nothing(form):
    axes = {"x": {0: "n", 1: "n"}, "y": {0: "m", 1: "k"}}
    with pytest.warns(UserWarning, match="is called") as told:
        result = exported(Two(), (X, X + 1), **{form: axes})
    texts = " ".join(str(entry.message) for entry in told)
    assert "axis 1 of 'x' is called 'n_2' in the file, because 'n' has another size" in texts
    assert "axis 0 of 'y' is called 'n' in the file and not 'm'" in texts
    assert shapes_of(result.model_proto.graph.input)[0] == ("x", ["n", "n_2"])


def test_axes_of_unknown_names_are_ignored_with_a_warning(layers):
    with pytest.warns(UserWarning, match="dynamic_axes names 'z', which the model does not have.*ignored"):
        exported(layers, (X,), dynamic_axes={"x": {0: "n"}, "z": {0: "n"}})


def test_names_of_outputs_axes_are_used_where_no_input_has_the_size():
    def joined(x):
        return torch.cat([x, x]), x * 2, x.nonzero()

    axes = {"x": {0: "n"}, "both": {0: "twice"}, "same": {0: "other"}, "found": {0: "hits", 1: "rank"}}
    result = exported(joined, (X,), dynamic_axes=axes, output_names=["both", "same", "found"])
    assert shapes_of(result.model_proto.graph.output) == [
        ("both", ["twice", 3]),
        ("same", ["n", 3]),
        ("found", ["hits", 2]),
    ]


@pytest.mark.parametrize(
    ("shapes", "dynamo"),
    [
        ({"x": {0: torch.export.Dim("n")}}, True),
        ({"x": {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.STATIC}}, False),
        ([("n", None)], True),
        pytest.param({"x": {0: torch.export.Dim.AUTO}}, True, marks=pytest.mark.sweep),
        pytest.param(({0: "n"},), False, marks=pytest.mark.sweep),
    ],
    ids=["Dim", "DYNAMIC", "list", "AUTO", "name"],
)
def test_forms_of_dynamic_shapes(shapes, dynamo, layers):
    result = exported(layers, (X,), dynamic_shapes=shapes, dynamo=dynamo)
    [(_, [batch, width])] = shapes_of(result.model_proto.graph.input)
    assert isinstance(batch, str)
    assert width == 3
    assert result(torch.randn(5, 3))[0].shape == (5, 2)


def other_branch_beyond_four(x):
    return x * 2 if x.shape[0] <= 4 else x.double()


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_narrowed_dimension_is_an_error_but_a_label_is_not(dynamo):
    with pytest.raises(opsetta.NarrowedError, match=r'n <= 4(.|\n)*Dim\("n", max=4\)') as raised:
        exported(other_branch_beyond_four, (X,), dynamic_shapes=({0: "n"},), dynamo=dynamo)
    assert isinstance(raised.value, torch.onnx.OnnxExporterError)
    allowed = {"dynamic_shapes": ({0: torch.export.Dim("n", max=4)},)}
    assert exported(other_branch_beyond_four, (X,), **allowed, dynamo=dynamo)(X)[0].shape == X.shape
    with pytest.warns(UserWarning, match="valid for n <= 4"):
        exported(other_branch_beyond_four, (X,), dynamic_axes={"x": {0: "n"}}, dynamo=dynamo)


def test_dynamic_shapes_go_before_dynamic_axes(layers):
    result = exported(layers, (X,), dynamic_shapes={"x": {0: "n"}}, dynamic_axes={"x": {0: "m"}})
    assert shapes_of(result.model_proto.graph.input) == [("x", ["n", 3])]


def test_an_exported_program_gets_names_for_its_axes(layers):
    program = torch.export.export(layers, (X,), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}})
    result = exported(program, (X,), kwargs={}, dynamic_shapes={"x": {0: "rows"}}, dynamic_axes={"x": [0]})
    assert result.exported_program is program
    assert shapes_of(result.model_proto.graph.output)[0][1] == ["rows", 2]


class Exportable(torch.onnx.ExportableModule):
    def forward(self, x, scale):
        return x * scale

    def example_arguments(self):
        return (X,), {"scale": X + 1}

    def input_names(self):
        return ["image", "factor"]

    def dynamic_shapes(self):
        return {"x": {0: "n"}, "scale": {0: "n"}}


def test_an_exportable_module_brings_its_arguments():
    result = exported(Exportable(), ())
    assert shapes_of(result.model_proto.graph.input) == [("image", ["n", 3]), ("factor", ["n", 3])]


@pytest.mark.parametrize("opset", [8, 12])
def test_weights_as_inputs(opset, layers, tmp_path):
    names = ["x", "first.weight", "first.bias", "second.weight", "second.bias"]
    exported(layers, (X,), f=tmp_path / "a.onnx", opset_version=opset, keep_initializers_as_inputs=True)
    file = check_inputs(tmp_path / "a.onnx", names)
    assert {tensor.name for tensor in file.graph.initializer} == {*names[1:]}
    exported(layers, (X,), f=tmp_path / "b.onnx", opset_version=opset, export_params=False)
    assert not check_inputs(tmp_path / "b.onnx", names).graph.initializer


def check_inputs(path, names):
    onnx.checker.check_model(path, full_check=True)
    file = onnx.load(path)
    assert [value.name for value in file.graph.input] == names
    return file


def test_weights_without_values_are_fed(layers, tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    image = torch.randn(1, 1, 2, 2)
    exported(model, image, f=tmp_path / "m.onnx", export_params=False)
    weights = [w for name, w in model.state_dict().items() if "num_batches" not in name]
    check(tmp_path / "m.onnx", lambda x, *_: model(x), image, *weights)


def test_external_data_has_the_name_that_torch_gives_it(tmp_path):
    model = nn.Linear(20, 30).eval()
    x = torch.randn(1, 20)
    exported(model, x, f=tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size >= 2400
    check(tmp_path / "m.onnx", model, x)
    exported(model, x, f=tmp_path / "one.onnx", external_data=False)
    exported(model, x, f=tmp_path / "two.onnx", dynamo=False)
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data", "one.onnx", "two.onnx"}


@pytest.mark.parametrize(
    ("mode", "before", "dropouts"),
    [
        (None, True, 0),
        ("EVAL", True, 0),
        ("PRESERVE", True, 1),
        ("PRESERVE", False, 0),
        ("TRAINING", False, 1),
    ],
)
def test_the_mode_of_the_model_during_the_export(mode, before, dropouts):
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    model.train(before)
    model[0].train(not before)
    training = None if mode is None else getattr(torch.onnx.TrainingMode, mode)
    result = exported(model, X, dynamo=False, training=training)
    random = [
        node for node in result.model.graph if node.op_type in ("Dropout", "RandomUniformLike", "Bernoulli")
    ]
    assert len(random) == dropouts
    assert (model.training, model[0].training) == (before, not before)


@pytest.mark.parametrize("options", [{"optimize": False}, {"do_constant_folding": False, "dynamo": False}])
def test_optimization_is_switched_off(options):
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    result = exported(model, torch.randn(1, 1, 2, 2), **options)
    assert [node.op_type for node in result.model.graph] == ["Conv", "BatchNormalization"]
    result.optimize()
    assert [node.op_type for node in result.model.graph] == ["Conv"]


def test_the_files_of_report_profile_and_dump(layers, tmp_path, capsys):
    options = {"report": True, "profile": True, "dump_exported_program": True, "verbose": True}
    folder = tmp_path / "new" / "folder"
    result = exported(layers, (X,), artifacts_dir=folder, verify=True, **options)
    texts = {path.stem.rpartition("_")[2]: path for path in folder.iterdir()}
    assert "| Gemm | 2 |" in texts["success"].read_text()
    assert "| capturing |" in texts["profile"].read_text()
    [dumped] = folder.glob("*.pt2")
    assert torch.export.load(dumped).graph_signature.user_inputs == ("x",)
    assert isinstance(result.exported_program, torch.export.ExportedProgram)
    assert "[torch.onnx] capturing" in capsys.readouterr().out


def test_a_folder_for_files_that_cannot_be_made_is_refused(layers, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(opsetta.ModelFileError, match="artifacts_dir: .* cannot be made"):
        exported(layers, (X,), artifacts_dir=tmp_path / "file" / "folder", profile=True)


def test_other_public_names_are_those_of_torch():
    assert torch_onnx.is_in_onnx_export is torch.onnx.is_in_onnx_export
    assert all(hasattr(torch_onnx, name) for name in torch.onnx.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'invented'"):
        torch_onnx.invented  # noqa: B018


def test_a_failed_export_is_reported_and_writes_no_model(tmp_path):
    class Decides(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(torch.onnx.OnnxExporterError):
        exported(Decides(), X, f=tmp_path / "m.onnx", report=True, artifacts_dir=tmp_path)
    [report] = tmp_path.iterdir()
    assert "CaptureError" in report.read_text()
    with pytest.warns(UserWarning, match="decisions of the example inputs"):
        exported(Decides(), X, dynamo=False)


def test_a_difference_is_an_error_before_the_file_is_written(tmp_path):
    class Differs(nn.Module):
        def forward(self, x):
            return x + 1 if torch.onnx.is_in_onnx_export() and torch.compiler.is_exporting() else x

    with pytest.raises(opsetta.VerificationError):
        exported(Differs(), X, f=tmp_path / "m.onnx", verify=True)
    assert not list(tmp_path.iterdir())


def test_code_knows_that_it_is_exported():
    seen = []

    class Asks(nn.Module):
        def forward(self, x):
            seen.append(torch.onnx.is_in_onnx_export())
            return x * 2

    for dynamo in (True, False):
        exported(Asks(), X, dynamo=dynamo)
    assert seen
    assert all(seen)
    with pytest.raises(torch.onnx.OnnxExporterError):
        exported(nn.LSTM, X)
    assert not torch.onnx.is_in_onnx_export()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"export_modules_as_functions": True}, "export_modules_as_functions is not supported"),
        ({"operator_export_type": torch.onnx.OperatorExportTypes.ONNX_ATEN}, "no runtime has ATen operators"),
        ({"custom_opsets": {"": 12}}, "pass its version"),
        ({"custom_opsets": [1]}, "custom_opsets must be a dict"),
        ({"training": 2}, "training must be a torch.onnx.TrainingMode"),
        ({"opset_version": 6}, f"opsets {OPSET_RANGE}"),
        ({"f": 3}, "f must be a path, a binary file object or None, not int"),
        ({"dynamo": "yes"}, "dynamo must be True or False, not 'yes'"),
        ({"kwargs": [1]}, "kwargs must be a dict"),
        ({"dynamic_axes": [0]}, "dynamic_axes must be a dict"),
        ({"dynamic_axes": {"x": 0}}, "a dict or a list of axes, not 0"),
        ({"custom_translation_table": {"aten::relu": len}}, "keys are operators"),
        ({"opset": 12}, "torch.onnx.export has no argument 'opset'"),
    ],
)
def test_what_is_refused_is_named(options, message, layers):
    with pytest.raises(opsetta.OpsettaError, match=message) as caught:
        torch_onnx.export(layers, (X,), **options)
    assert isinstance(caught.value, torch.onnx.OnnxExporterError)


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_dict_at_the_end_that_is_an_argument_is_refused_with_the_remedy(dynamo):
    class Batch(nn.Module):
        def forward(self, scale, batch):
            return batch["x"] * scale

    args = (torch.ones(1), {"x": X})
    with pytest.raises(opsetta.UsageError, match=r"put an empty dict after it.* kwargs={'batch'"):
        torch_onnx.export(Batch(), args, dynamo=dynamo)
    exported(Batch(), (*args, {}), dynamo=dynamo)


def test_what_has_no_effect_is_taken(layers):
    fallthrough = torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH
    plain = exported(layers, (X,))
    result = exported(
        layers,
        (X,),
        autograd_inlining=False,
        operator_export_type=fallthrough,
        fallback=True,
        example_outputs=X,
        strip_doc_string=True,
        enable_onnx_checker=False,
        custom_opsets={"unused": 3},
    )
    assert result.model_proto == plain.model_proto
