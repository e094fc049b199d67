"""What happens with a torch that lacks private names."""

import dataclasses
import importlib
import pathlib
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.export import _trace

import opsetta
from opsetta.exporter.torch_boundary import export_internals, probe

FEATURES = [item for item in vars(probe).values() if isinstance(item, probe.Feature)]
X = torch.ones(2, 3)


def forget():
    probe.missing.cache_clear()
    probe.has.cache_clear()


@pytest.fixture
def lacking(monkeypatch):
    """Take names from torch, for the probe."""
    exists = probe._exists

    def lack(*names):
        monkeypatch.setattr(probe, "_exists", lambda name: name not in names and exists(name))
        forget()

    yield lack
    forget()


def test_this_torch_has_every_name():
    assert {feature.purpose: probe.missing(feature) for feature in FEATURES if probe.missing(feature)} == {}


@pytest.mark.parametrize("feature", [probe.CALL, probe.CAPTURE], ids=["call", "capture"])
def test_an_export_without_what_it_needs_is_refused(feature, lacking):
    lacking(*feature.names[:2])
    with pytest.raises(opsetta.OpsettaError) as raised:
        opsetta.export(nn.Linear(3, 3).eval(), X)
    first, second = (name.replace(":", ".") for name in feature.names[:2])
    assert str(raised.value).startswith(
        f"torch {torch.__version__} does not have {first}, {second}: {feature.purpose} does not work."
    )


def test_only_torchscript_is_refused_without_its_names(lacking):
    lacking("torch:_C.parse_schema")
    model = nn.Linear(3, 3).eval()
    opsetta.export(model, X).verify()
    with pytest.raises(opsetta.OpsettaError, match="torch._C.parse_schema: capturing a TorchScript model"):
        opsetta.export(torch.jit.script(model), X)


OPTIONAL = [
    probe.RECURRENT,
    probe.SHAPE_KERNELS,
    probe.ASSOCIATIVE_SCAN,
    probe.CAUSAL_MASKS,
    probe.NAMED_DIMENSIONS,
]


def test_what_cannot_be_replaced_is_left_and_told_once(lacking):
    lacking(*(feature.names[-1] for feature in OPTIONAL))
    model = nn.Bilinear(3, 3, 3).eval()
    batch = {0: "batch"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opsetta.export(model, (X, X), dynamic_shapes=(batch, batch)).verify()
        opsetta.export(model, (X, X))
    told = [str(warning.message) for warning in caught if "does not have" in str(warning.message)]
    assert [sum(feature.purpose in text for text in told) for feature in OPTIONAL] == [1] * len(OPTIONAL)


def test_a_name_that_is_gone_is_found_missing(monkeypatch):
    module = importlib.import_module("torch._higher_order_ops.associative_scan")
    monkeypatch.delattr(module, "_maybe_compile_and_run_fn")
    forget()
    try:
        with pytest.warns(
            UserWarning, match="_maybe_compile_and_run_fn: capturing associative_scan does not"
        ):
            opsetta.export(nn.Linear(3, 3).eval(), X).verify()
    finally:
        forget()


def test_direct_capture_does_not_import_the_compilers_of_torch_export(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.export._trace", None)
    forget()
    try:
        opsetta.export(nn.Linear(3, 3).eval(), X, capture="direct", dynamic_shapes=({0: "batch"},))
        with pytest.raises(opsetta.OpsettaError, match="capturing with torch.export does not work"):
            opsetta.export(nn.Linear(3, 3).eval(), X, capture="torch.export")
    finally:
        forget()


def test_functions_of_operators_are_traced_with_the_settings_of_torch_export():
    settings = dataclasses.asdict(_trace.DEFAULT_EXPORT_DYNAMO_CONFIG)
    assert {name: export_internals.DYNAMO_SETTINGS.get(name) for name in settings} == settings


def test_operators_are_not_decomposed_without_decompositions(lacking):
    lacking("torch._decomp:decomposition_table")
    with (
        pytest.warns(UserWarning, match="decomposing operators"),
        pytest.raises(opsetta.UnsupportedOperatorsError, match="rot90"),
    ):
        opsetta.export(lambda x: torch.rot90(x), X, opset=9)


def test_dynamic_shapes_are_refused_where_their_limits_cannot_be_found(lacking):
    lacking("torch._export.utils:_compiling_state_context")
    model = nn.Linear(3, 3).eval()
    opsetta.export(model, X).verify()
    with pytest.raises(opsetta.OpsettaError, match="the sizes that a model with dynamic shapes takes"):
        opsetta.export(model, X, dynamic_shapes=({0: "batch"},))


def test_a_module_that_cannot_be_imported_is_not_said_to_be_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "broken_module.py").write_text("import absent_dependency")
    (tmp_path / "old_module.py").write_text("from math import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    names = (
        "broken_module:name",
        "old_module",
        "absent_module:name",
        "torch:absent_name",
        "torch.absent.module",
    )
    with pytest.raises(opsetta.OpsettaError) as caught:
        probe.require(probe.Feature("a feature", names))
    text = str(caught.value)
    assert "does not have absent_module.name, torch.absent_name, torch.absent.module and fails" in text
    assert "fails to import broken_module (ModuleNotFoundError: No module named 'absent_dependency')" in text
    assert "fails to import old_module (ImportError: cannot import name 'no_such_name'" in text
