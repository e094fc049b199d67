"""Versions of targets: bounds, merged keys, and the oldest version that takes a model."""

import warnings

import pytest
import torch

import opsetta
from opsetta.exporter.devices.targets.load_target import (
    load_target,
    parse_target,
    resolve_target,
    target_names,
)
from opsetta.exporter.devices.targets.target_report import report_on_target
from opsetta.registration import TargetError, UsageError

HEAD = 'title = "A device {version}"\nsources = ["its manual, version 2.1"]\n'
TEXT = f"""{HEAD}
measured_versions = ["1.0", "1.8.2", "1.10", "2.0"]
[opsets]
maximum = 19
[operators]
refused = ["Abs"]
[[versions]]
from = "3"
target = "opencv5"
[[versions]]
below = "1.10"
opsets = {{ maximum = 13, default = 12 }}
[[versions]]
from = "1.5"
below = "1.9"
operators = {{ refused = ["Neg"] }}
"""


@pytest.mark.parametrize(
    ("version", "maximum", "refused"),
    [
        (None, 19, "Abs"),
        ("2.0.0", 19, "Abs"),
        ("2.7", 19, "Abs"),
        ("1.10", 19, "Abs"),
        ("1.9", 13, "Abs"),
        ("1.8.2", 13, "Neg"),
        ("1.5", 13, "Neg"),
        ("1.4.9", 13, "Abs"),
        ("1", 13, "Abs"),
    ],
)
def test_keys_of_a_version(version, maximum, refused):
    target = parse_target("device", TEXT, version)
    assert target.opsets.maximum == maximum
    assert target.operators.refused == {refused}
    assert target.default_opset == (17 if maximum == 19 else 12)
    assert target.version == (version or "2.0")
    assert target.title == f"A device {version or '2.0'}"
    assert target.name == ("device" if version is None else f"device@{version}")


@pytest.mark.parametrize("operators", ["", '[operators]\nrefused = ["Abs"]'])
def test_older_versions_refuse_further_operators(operators):
    older = "".join(
        f'[[versions]]\nbelow = "{version}"\noperators = {{ also_refused = ["{name}"] }}\n'
        for version, name in (("2", "Neg"), ("1.5", "Sin"))
    )
    text = f'{HEAD}measured_versions = ["1.0", "1.8", "2.0"]\n{operators}\n{older}'
    names = {"Abs"} if operators else set()
    for version, refused in (("2", names), ("1.8", names | {"Neg"}), ("1", names | {"Neg", "Sin"})):
        assert parse_target("device", text, version).operators.refused == refused
    with pytest.raises(UsageError, match="unknown key 'operators.also_refused'"):
        parse_target("device", HEAD + 'operators = { also_refused = ["Abs"] }')


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.9", "versions from 1.0 on, not 0.9"),
        ("", "'' is not a version"),
        ("1.x", "'1.x' is not a version"),
    ],
)
def test_versions_without_facts_are_refused(version, message):
    with pytest.raises(UsageError, match=message):
        parse_target("device", TEXT, version)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('measured_versions = ["2.0", "1.0"]', "oldest first"),
        ('measured_versions = ["1.0b"]', "oldest first"),
        ('measured_versions = ["1.0", "1.0"]', "oldest first"),
        ('[[versions]]\nbelow = "2"', "measured_versions is missing"),
        ('measured_versions = ["1"]\n[[versions]]\nexternal_data = false', "`from`, `below` or both"),
        ('measured_versions = ["1"]\n[[versions]]\nbelow = "two"', "`from`, `below` or both"),
        ('measured_versions = ["1"]\n[[versions]]\nfrom = "2"\ntarget = "opencv6"', "no 'opencv6'"),
        ('measured_versions = ["1", "2"]\n[[versions]]\nbelow = "2"\nopset = 9', "unknown key 'opset'"),
        ('[[restrictions]]\noperator = "Abs"\noutcome = "bad"', "outcome has no 'bad'"),
        ('host_operators = ["Ab"]', "did you mean 'Abs'"),
    ],
)
def test_wrong_versions_are_refused_by_key(lines, message):
    with pytest.raises(UsageError, match=message):
        parse_target("device", HEAD + lines)


def test_a_version_of_another_target():
    assert load_target("opencv@5.0").name == "opencv5"
    assert load_target("tensorrt@8.5").name == "tensorrt8"
    with pytest.raises(UsageError, match="does not describe versions"):
        load_target("tract@0.23")


@pytest.mark.parametrize("name", target_names())
def test_every_span_of_a_target_is_valid(name):
    target = load_target(name)
    for version in target.measured_versions:
        older = load_target(f"{name}@{version}")
        assert older.default_opset in older.opsets


def test_a_path_has_a_version_too(tmp_path):
    (tmp_path / "device.toml").write_text(TEXT)
    assert load_target(f"{tmp_path}/device.toml@1.8").default_opset == 12
    assert load_target(tmp_path / "device.toml").version == "2.0"


@pytest.mark.parametrize(
    ("version", "opset", "oldest"),
    [("1.0", 11, "1.0"), ("1.4", 12, "1.4"), ("1.7", 13, "1.6"), ("1.12", 17, "1.12"), ("1.32", 17, "1.12")],
)
def test_the_oldest_version_that_takes_a_program(version, opset, oldest):
    program = opsetta.export(
        torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),), target=f"onnxruntime@{version}"
    )
    assert program.opset == opset
    assert report_on_target(program.model, program.target).oldest_version == oldest
    if version != "1.32":
        with pytest.raises(TargetError, match=f"'onnxruntime@{version}' supports"):
            program.lower(28, target=f"onnxruntime@{version}")


def test_ranks_with_wrong_results_are_errors_unless_forced(tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(
        HEAD + '[[restrictions]]\noperator = "Softmax"\nranks = { maximum = 3 }\noutcome = "wrong"\n'
    )
    model = torch.nn.Sequential(torch.nn.Flatten(2), torch.nn.Softmax(-1)).eval()
    opsetta.export(model, (torch.ones(1, 2, 3, 4),), target=path)
    with pytest.raises(TargetError, match="its results are wrong: data of rank 4") as caught:
        opsetta.export(model[1], (torch.ones(1, 2, 3, 4),), target=path)
    assert [problem.outcome for problem in caught.value.problems] == ["wrong"]
    _, forced = resolve_target(None, path, force=True)
    with pytest.warns(UserWarning, match="results are wrong"):
        opsetta.export(model[1], (torch.ones(1, 2, 3, 4),), target=forced)


def test_ranks_of_named_inputs(tmp_path):
    path = tmp_path / "device.toml"
    rule = '[[restrictions]]\noperator = "MatMul"\nranks = { minimum = 2, maximum = 2 }\n'
    path.write_text(HEAD + rule + 'ranked_inputs = ["A", "B"]\n')
    x, y = torch.ones(2, 3), torch.ones(5, 3, 4)
    opsetta.export(torch.matmul, (x, y[0]), target=path)
    with pytest.raises(TargetError, match="data of rank 3 are not supported, but of rank 2$"):
        opsetta.export(torch.matmul, (x, y), target=path)
    path.write_text(HEAD + rule)
    opsetta.export(torch.matmul, (x, y), target=path)


def test_layers_on_the_host_are_a_warning_that_names_them(tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(HEAD + 'host_operators = ["Div", "Log"]\n')
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softsign()).eval()
    with pytest.warns(UserWarning, match=r"runs on the CPU.*nodes: 1\):\n.*Div \('.*in 1\)"):
        opsetta.export(model, (torch.ones(1, 4),), target=path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opsetta.export(model[0], (torch.ones(1, 4),), target=path)
