"""The registry: inheritance over opsets, overlays, and what it refuses."""

import pathlib
import subprocess
import sys
import types

import pytest

from opsetta import symbolics  # noqa: F401
from opsetta.registration import (
    MAXIMUM_OPSET,
    MINIMUM_OPSET,
    RegistrationError,
    Registry,
    SymbolicFunction,
    Value,
    default_registry,
    load_entry_points,
    onnx_symbolic,
)
from opsetta.registration.functions import registry as registry_module


def symbolic(g, self: Value):
    return self


def another(g, self: Value):
    return self


def third(g, self: Value):
    return self


def serving(registry: Registry, name: str, opset: int, overload: str = ""):
    found = registry.lookup(name, overload, opset)
    return None if found is None else found.function


def test_later_opsets_inherit_the_nearest_function_below():
    registry = Registry()
    registry.register("aten::relu", 9, symbolic)
    registry.register("aten::relu", 13, another)
    assert [serving(registry, "aten::relu", o) for o in (9, 12)] == [symbolic, symbolic]
    assert [serving(registry, "aten::relu", o) for o in (13, MAXIMUM_OPSET)] == [another, another]


def test_below_the_base_the_nearest_at_or_above_serves():
    registry = Registry()
    registry.register("aten::relu", 9, symbolic)
    assert serving(registry, "aten::relu", 7) is symbolic
    registry.register("aten::relu", 8, another)
    assert [serving(registry, "aten::relu", o) for o in (7, 8, 9)] == [another, another, symbolic]
    registry.register("aten::relu", 7, third)
    assert [serving(registry, "aten::relu", o) for o in (7, 8, 9)] == [third, another, symbolic]


def test_a_function_below_the_base_does_not_serve_above_itself():
    registry = Registry()
    registry.register("aten::relu", 7, symbolic)
    assert [serving(registry, "aten::relu", o) for o in (7, 8, 9, 20)] == [symbolic, None, None, None]


def test_a_function_of_a_later_opset_does_not_serve_below_the_base():
    registry = Registry()
    registry.register("aten::relu", 11, symbolic)
    assert [serving(registry, "aten::relu", o) for o in (7, 9, 10, 11)] == [None, None, None, symbolic]


def test_an_overload_goes_before_the_general_name():
    registry = Registry()
    registry.register("aten::add", 9, symbolic)
    registry.register("aten::add.Scalar", 13, another)
    assert serving(registry, "aten::add", 13, "Tensor") is symbolic
    assert serving(registry, "aten::add", 13, "Scalar") is another
    assert serving(registry, "aten::add", 12, "Scalar") is symbolic


def test_an_overload_alone_serves_no_other_overload():
    registry = Registry()
    registry.register("aten::add.Scalar", 9, symbolic)
    assert serving(registry, "aten::add", 9, "Tensor") is None
    assert serving(registry, "aten::add", 9) is None


def test_an_overlay_goes_first_and_leaves_its_parent_alone():
    parent = Registry()
    parent.register("aten::relu", 9, symbolic)
    parent.register("aten::relu", 13, another)
    overlay = parent.fork()
    overlay.register("aten::relu", 10, third)
    overlay.register("mylib::op", 9, third)
    assert [serving(overlay, "aten::relu", o) for o in (9, 10, 13)] == [symbolic, third, third]
    assert [serving(parent, "aten::relu", o) for o in (9, 10, 13)] == [symbolic, symbolic, another]
    assert overlay.names() == ["aten::relu", "mylib::op"]
    assert parent.names() == ["aten::relu"]
    assert list(overlay.versions("aten::relu")) == [9, 10, 13]
    assert list(parent.versions("aten::relu")) == [9, 13]


def test_an_overlay_sees_what_its_parent_learns_later():
    parent = Registry()
    overlay = parent.fork().fork()
    parent.register("aten::relu", 9, symbolic)
    assert serving(overlay, "aten::relu", 9) is symbolic
    assert [found.function for found in overlay] == [symbolic]


def test_an_overlay_may_hold_what_its_parent_holds():
    parent = Registry()
    parent.register("aten::relu", 9, symbolic)
    parent.fork().register("aten::relu", 9, another)
    assert serving(parent, "aten::relu", 9) is symbolic


def test_a_duplicate_is_refused_and_names_the_holder():
    registry = Registry()
    registry.register("aten::relu", 9, symbolic)
    with pytest.raises(RegistrationError, match=r"aten::relu at opset 9 .*symbolic.*override=True"):
        registry.register("aten::relu", 9, another)
    assert serving(registry, "aten::relu", 9) is symbolic


def test_override_replaces():
    registry = Registry()
    registry.register("aten::relu", 9, symbolic)
    registry.register("aten::relu", 9, another, override=True)
    assert serving(registry, "aten::relu", 9) is another


@pytest.mark.parametrize(
    ("name", "functional"),
    [
        ("aten::relu_", "aten::relu"),
        ("aten::add_.Tensor", "aten::add.Tensor"),
        ("aten::index_put_", "aten::index_put"),
        ("quantized::add_", "quantized::add"),
    ],
)
def test_an_inplace_name_is_refused_and_names_the_functional_one(name, functional):
    with pytest.raises(RegistrationError, match=f"in-place.*'{functional}'"):
        Registry().register(name, 9, symbolic)


@pytest.mark.parametrize("name", ["aten::__and__", "aten::_softmax", "mylib::op_", "sym::not", "ns.sub::op"])
def test_names_that_only_look_inplace_are_taken(name):
    registry = Registry()
    registry.register(name, 9, symbolic)
    assert serving(registry, name, 9) is symbolic


@pytest.mark.parametrize("name", ["relu", "aten:relu", "aten::", "::relu", "aten::re lu", "aten::a.b.c", ""])
def test_a_name_out_of_form_is_refused(name):
    with pytest.raises(RegistrationError, match="namespace::operator"):
        Registry().register(name, 9, symbolic)


@pytest.mark.parametrize("opset", [MINIMUM_OPSET - 1, MAXIMUM_OPSET + 1, 0, -1, True, 9.0, "9", None])
def test_an_opset_out_of_range_is_refused(opset):
    with pytest.raises(RegistrationError, match=f"integers from {MINIMUM_OPSET} to {MAXIMUM_OPSET}"):
        Registry().register("aten::relu", opset, symbolic)


def test_first_opset():
    registry = Registry()
    registry.register("aten::relu", 13, symbolic)
    assert registry.first_opset("aten::relu") == 13
    assert registry.first_opset("aten::relu", "default") == 13
    assert registry.first_opset("aten::gelu") is None
    registry.register("aten::relu", 9, symbolic)
    assert registry.first_opset("aten::relu") == MINIMUM_OPSET


def test_first_opset_where():
    registry = Registry()
    registry.register("aten::relu", 9, symbolic)
    registry.register("aten::relu", 13, another)
    assert registry.first_opset_where("aten::relu", 9, lambda f: f.function is another) == 13
    assert registry.first_opset_where("aten::relu", 13, lambda f: f.function is symbolic) is None


def test_the_decorator_returns_the_function_and_registers_it():
    registry = Registry()
    decorated = onnx_symbolic("mylib::op", opset=11, registry=registry)(symbolic)
    assert decorated is symbolic
    assert serving(registry, "mylib::op", 11) is symbolic
    assert "mylib::op" not in default_registry.names()
    onnx_symbolic("mylib::op", opset=11, registry=registry, override=True)(another)
    assert serving(registry, "mylib::op", 11) is another


def test_an_empty_registry_is_not_mistaken_for_none():
    registry = Registry()
    onnx_symbolic("mylib::empty_registry", registry=registry)(symbolic)
    assert registry.names() == ["mylib::empty_registry"]
    assert "mylib::empty_registry" not in default_registry.names()


@pytest.mark.parametrize(
    "names_operators",
    [
        lambda registry: [registry.lookup("late::op", "", 9).name],
        lambda registry: [registry.fork().versions("late::op")[9].name],
        lambda registry: registry.names("late"),
        lambda registry: registry.names("lat"),
        lambda registry: registry.names(),
    ],
)
def test_a_deferred_package_is_imported_when_an_operator_of_its_namespace_is_named(
    names_operators, tmp_path, monkeypatch
):
    registry = Registry()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_functions", raising=False)
    monkeypatch.setattr(registry_module, "late_registry", registry, raising=False)
    code = f"""from {registry_module.__name__} import late_registry
late_registry.register("late::op", 9, lambda g: None)
"""
    (tmp_path / "late_functions.py").write_text(code, encoding="utf-8")
    registry.defer("late", "late_functions")
    assert registry.lookup("later::op", "", 9) is None
    assert registry.names("later") == registry.names("other") == []
    assert "late_functions" not in sys.modules
    assert names_operators(registry) == ["late::op"]
    with pytest.raises(RegistrationError, match="already registered"):
        registry.register("late::op", 9, symbolic)


@pytest.mark.parametrize("package", ["tensorflow", "caffe2"])
def test_a_deferred_package_has_all_functions_of_its_namespaces_and_no_others(package):
    """A composition in it is called by its own functions only."""
    namespaces = {"tensorflow": ("tf", "tf_complex"), "caffe2": ("caffe2",)}[package]
    root = pathlib.Path(registry_module.__file__).parents[2] / "symbolics"
    compositions = set()
    for function in default_registry:
        namespace, module = function.name.partition("::")[0], function.function.__module__
        is_inside = f".symbolics.{package}." in module
        if is_inside and namespace not in namespaces:
            assert namespace == "composed", function.name
            compositions.add(function.name)
        # Tables of regular operators are in `compositions`, and filled by the package.
        assert is_inside or namespace not in namespaces or ".symbolics.compositions." in module, function.name
    others = [path for path in root.rglob("*.py") if root / package not in path.parents]
    text = "".join(path.read_text(encoding="utf-8") for path in others)
    assert [name for name in compositions if name in text] == []


def test_atens_functions_are_in_namespaces_that_import_them():
    """An ONNX operator's function there would not be found before an operator of ATen is named."""
    outside = [
        function.name
        for function in default_registry
        if function.function.__module__.startswith(("opsetta.symbolics.aten.", "opsetta.symbolics.complex."))
        and function.name.partition("::")[0] not in ("aten", "complex", "composed", "packed", "torch_nn")
    ]
    assert outside == []


@pytest.mark.parametrize("first", ["aten.opset9.fourier", "complex.fourier", "tensorflow", "aten_functions"])
def test_any_module_of_symbolic_functions_can_be_the_first_one(first, tmp_path):
    code = f"""
import sys, opsetta.symbolics
assert "opsetta.symbolics.aten" not in sys.modules
import opsetta.symbolics.{first}
assert opsetta.default_registry.lookup("complex::istft", "", 9) is not None
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=120, check=True)


def _entry(name, value, load):
    return types.SimpleNamespace(name=name, value=value, load=load)


def test_entry_points_are_loaded_once(monkeypatch):
    calls = []
    entries = [_entry("mine", "test_pkg.once", lambda: calls.append(1))]
    monkeypatch.setattr(registry_module.importlib.metadata, "entry_points", lambda group: entries)
    monkeypatch.setattr(registry_module, "_loaded", set())
    load_entry_points()
    load_entry_points()
    assert calls == [1]


def test_an_entry_point_that_fails_is_named(monkeypatch):
    def fail():
        raise ImportError("no such thing")

    entries = [_entry("mine", "test_pkg.broken", fail)]
    monkeypatch.setattr(registry_module.importlib.metadata, "entry_points", lambda group: entries)
    monkeypatch.setattr(registry_module, "_loaded", set())
    with pytest.raises(RegistrationError, match=r"'mine' \(test_pkg.broken\).*no such thing"):
        load_entry_points()


def first(name: str, opset: int, function) -> SymbolicFunction:
    return SymbolicFunction(name, opset, function)


def test_what_is_put_first_goes_before_every_function_of_its_registry_and_parents():
    parent = Registry()
    parent.register("aten::relu", 13, symbolic)
    parent.register("aten::relu.out", 9, symbolic)
    parent.put_first(first("aten::relu", 11, another))
    overlay = parent.fork()
    assert [serving(overlay, "aten::relu", o) for o in (9, 11, 13, 28)] == [None, *[another] * 3]
    assert serving(parent, "aten::relu", 11, "out") is another
    assert serving(parent, "aten::relu", 9, "out") is symbolic
    assert parent.lookup("aten::relu", "", 13, custom=False).function is symbolic
    overlay.register("aten::relu", 9, third)
    assert serving(overlay, "aten::relu", 13) is third


@pytest.mark.parametrize(("opset", "expected"), [(7, another), (8, another), (9, third), (12, third)])
def test_functions_put_first_below_the_base(opset, expected):
    registry = Registry()
    registry.put_first(first("aten::relu", 1, symbolic))
    assert serving(registry, "aten::relu", opset) is symbolic
    registry.put_first(first("aten::relu", 8, another))
    registry.put_first(first("aten::relu", 9, third))
    assert serving(registry, "aten::relu", opset) is expected


def test_what_was_put_first_is_taken_back_once():
    registry = Registry()
    registry.put_first(first("aten::relu", 9, symbolic))
    assert registry.names() == ["aten::relu"]
    assert registry.remove_first("aten::relu", 9)
    assert not registry.remove_first("aten::relu", 9)
    assert registry.names() == []
    assert serving(registry, "aten::relu", 9) is None


def test_one_decorator_registers_several_names():
    registry = Registry()
    onnx_symbolic(["tf::Add", "tf::AddV2"], registry=registry)(symbolic)
    assert serving(registry, "tf::Add", 9) is serving(registry, "tf::AddV2", 9) is symbolic


def _lines_of(code: str) -> list[str]:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_default_registry_is_filled_at_its_first_use():
    code = (
        "import sys, opsetta\n"
        "print('opsetta.symbolics' in sys.modules, 'aten::relu' in opsetta.default_registry.names())"
    )
    assert _lines_of(code) == ["False True"]


def test_own_function_is_overridden_before_the_first_export():
    code = (
        "from opsetta import onnx_symbolic\n"
        "@onnx_symbolic('aten::relu', override=True)\n"
        "def relu(g, self): return g.op('Clip', self)\n"
        "from opsetta import default_registry\n"
        "print(default_registry.lookup('aten::relu', '', 13).function is relu)\n"
        "try: onnx_symbolic('aten::sin')(relu)\n"
        "except ValueError as error: print(error)"
    )
    overridden, refused = _lines_of(code)
    assert overridden == "True"
    assert "aten::sin at opset 9 is already registered (opsetta.symbolics." in refused
