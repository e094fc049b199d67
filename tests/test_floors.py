"""The floor plan: who imports whom, where torch may be, and how long files and functions get."""

import ast
import collections
import functools
import gc
import graphlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = {
    "registration": set(),
    "symbolics": {"registration"},
    "passes": {"registration"},
    "exporter": {"registration", "symbolics", "passes"},
    "torch_onnx": {"registration", "exporter"},
}
EXPORTER = [
    "captured_graph",
    "files",
    "torch_boundary",
    "capture",
    "lowering",
    "running",
    "editing",
    "calibration",
    "inspection",
    "devices",
    "report",
]
"""The folders of `exporter`, from the ground up; its own files stand on them, and the commands on those."""
FILES = [
    *sorted(path for floor in ALLOWED for path in (ROOT / floor).rglob("*.py")),
    *sorted(ROOT.glob("*.py")),
]
MAXIMUM_FILE = 500
MAXIMUM_FUNCTION = 80


def floor_of(path: pathlib.Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else ""


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path: pathlib.Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def without_collections() -> Iterator[None]:
    """Keep collections of garbage from looking at the trees, which are a million objects."""
    gc.disable()
    yield
    gc.enable()


def forget_trees() -> None:
    """Drop the trees, after the last of the files of tests that read them."""
    for cached in (nodes_of, imports_of, tree_of):
        cached.cache_clear()


@functools.cache
def imports_of(path: pathlib.Path) -> list[str]:
    """Every module that a file imports, lazily or not; those of the package as `opsetta.floor…`."""
    return list(_imports(path))


def _imports(path: pathlib.Path) -> Iterator[str]:
    folder = path.relative_to(ROOT).parent.parts
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.ImportFrom):
            above = len(folder) - (node.level - 1)
            assert above >= 0, f"{path} reaches above the package"
            base = ["opsetta", *folder[:above], *(node.module.split(".") if node.module else [])]
            yield ".".join(base)
            yield from (".".join([*base, alias.name]) for alias in node.names)


def test_a_floor_imports_only_what_lies_below_it():
    found = []
    for path in FILES:
        floor = floor_of(path)
        reached = {name.split(".")[1] for name in imports_of(path) if name.startswith("opsetta.")} & set(
            ALLOWED
        )
        if floor and reached - {floor} - ALLOWED[floor]:
            found.append(f"{path.relative_to(ROOT)}: {sorted(reached - {floor} - ALLOWED[floor])}")
    assert found == []


def level_of(parts: tuple[str, ...]) -> int:
    """How high a module of `exporter` stands, by the parts of its name after `exporter`."""
    if parts and parts[0] in EXPORTER:
        return EXPORTER.index(parts[0])
    return len(EXPORTER) + (bool(parts) and parts[0] == "command_line")


def test_folders_of_the_exporter_import_only_what_lies_below_them():
    found = []
    for path in FILES:
        if floor_of(path) != "exporter":
            continue
        level = level_of(path.relative_to(ROOT / "exporter").with_suffix("").parts)
        for name in imports_of(path):
            if name.startswith("opsetta.exporter.") and level_of(tuple(name.split(".")[2:])) > level:
                found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == []


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package by its dotted name."""
    named = {}
    for path in FILES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        named[".".join(["opsetta", *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
    return named


def test_no_modules_import_each_other_in_a_circle():
    """Lazy imports and those of type checkers count as well."""
    named = modules()
    graph = {}
    for name, path in named.items():
        reached = set(imports_of(path))
        graph[name] = {other for other in reached if other in named and other != name}
        # `from .folder import name` of a submodule is an import of that module, not of the folder.
        folders = {other.rpartition(".")[0] for other in graph[name]} & set(named)
        graph[name] -= {folder for folder in folders if named[folder].name == "__init__.py"}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folders_import_each_other_in_a_circle():
    """A folder and the folders in it count as one subject: imports between them are no edges."""
    named = modules()
    folders = collections.defaultdict(set)
    for path in named.values():
        folder = path.parent
        for imported in imports_of(path):
            target = named[imported].parent if imported in named else folder
            if folder not in (target, *target.parents) and target not in folder.parents:
                folders[str(folder.relative_to(ROOT))].add(str(target.relative_to(ROOT)))
    try:
        graphlib.TopologicalSorter(folders).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_imports_inside_the_package_are_relative():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in nodes_of(path)
        for name in absolute_imports(node)
        if name.split(".")[0] == "opsetta"
    ]
    assert found == []


def absolute_imports(node: ast.AST) -> list[str]:
    """The modules that a statement imports by their full names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def test_torch_is_imported_by_the_exporter_and_torch_onnx_alone():
    """The latter holds the tensors and element types of functions that were written for torch.onnx."""
    heavy = {"torch", "transformers", "onnxruntime", "typer", "rich"}
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        if floor_of(path) not in ("exporter", "torch_onnx")
        for name in imports_of(path)
        if name.split(".")[0] in heavy
    ]
    assert found == []


BOUNDARY = ROOT / "exporter" / "torch_boundary"


def is_private(name: str) -> bool:
    """Names of operators are not private: schemas spell them."""
    if name.startswith("torch.ops."):
        return False
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def dotted_name(node: ast.AST) -> str:
    """The name `torch.nn.Module` of attributes of a variable or its items; "" of other expressions."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def torch_names(path: pathlib.Path) -> set[str]:
    """The names of torch that a file imports, spells out or has in strings: `torch.nn.Module`."""
    names = list(imports_of(path))
    # Strings that stand alone: docstrings of modules, classes, functions and constants.
    documentation = {node.value for node in nodes_of(path) if isinstance(node, ast.Expr)}
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names.append(dotted_name(node))
        elif isinstance(node, ast.Call) and dotted_name(node.func).endswith("import_module"):
            names.append(str(getattr(node.args[0], "value", "")))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            names += re.findall(r"\btorch(?:\.\w+)+", node.value)
    return {name for name in names if name.partition(".")[0] == "torch"}


def test_private_names_of_torch_stand_in_the_boundary_alone():
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        if BOUNDARY not in path.parents
        for name in sorted(filter(is_private, torch_names(path)))
    ]
    assert found == []


def test_the_probe_knows_every_private_name_of_torch():
    from opsetta.exporter.torch_boundary import probe

    features = [item for item in vars(probe).values() if isinstance(item, probe.Feature)]
    known = [f"{name.replace(':', '.')}." for feature in features for name in feature.names]
    used = {f"{name}." for path in BOUNDARY.rglob("*.py") for name in filter(is_private, torch_names(path))}
    unknown = [name for name in used if not any(k.startswith(name) or name.startswith(k) for k in known)]
    assert sorted(unknown) == []


def test_private_attributes_outside_of_the_boundary_are_our_own():
    own, used = set(), {}
    for path in FILES:
        nodes = nodes_of(path)
        defined = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        own |= defined
        for node in nodes:
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                holder = getattr(node.value, "id", None)
                if holder in ("self", "cls") or holder in defined:
                    own.add(node.attr)
                elif holder != "sys" and BOUNDARY not in path.parents:
                    used.setdefault(node.attr, f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: place for name, place in used.items() if name not in own} == {}


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring."""
    documented = function.body[0] if ast.get_docstring(function) is not None else None
    docstring = documented.end_lineno - documented.lineno + 1 if documented is not None else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_files_and_functions_stay_short():
    found = []
    for path in FILES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAXIMUM_FILE:
            found.append(f"{path.relative_to(ROOT)}: {lines} lines")
        found += [
            f"{path.relative_to(ROOT)}: {node.name} has {length(node)} lines"
            for node in nodes_of(path)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and length(node) > MAXIMUM_FUNCTION
        ]
    assert found == []


def test_every_module_has_a_docstring():
    trees = {path: tree_of(path) for path in FILES}
    assert [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


@pytest.mark.parametrize(
    "imported",
    [
        "import opsetta; opsetta.OpsetError, opsetta.DEFAULT_OPSET",
        "import opsetta.passes, opsetta.exporter; from opsetta.registration import MODULE, UsageError",
        "import opsetta.exporter.command_line.application",
    ],
)
def test_packages_import_libraries_when_a_name_needs_them(imported, tmp_path):
    code = f"{imported}; import sys; assert not {{'numpy', 'onnx', 'onnx_ir', 'sympy'}} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("before", ["", "import sympy", "import onnx_ir"])
def test_sympy_comes_in_with_arithmetic_on_dimensions(before, tmp_path):
    code = f"""{before}
import sys
from opsetta.registration import GraphContext
import onnx_ir as ir
assert ({before!r} != "") == ("sympy" in sys.modules), "sympy"
assert ir.SymbolicDim("n").value == "n"
assert ({before!r} != "") == ("sympy" in sys.modules), "a name"
assert str((ir.SymbolicDim("n") * 2 + 1).evaluate({{"n": 3}})) == "7"
import sympy
assert sympy.__name__ == "sympy" and type(sympy) is type(sys), type(sympy)
assert ir.SymbolicDim(sympy.Symbol("k") + 1).value == "k + 1"
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "imported",
    [
        "opsetta, opsetta.registration, opsetta.symbolics, opsetta.passes",
        "opsetta.exporter",
        "opsetta.torch_onnx, opsetta.torch_onnx.symbolic_helper, opsetta.torch_onnx.symbolic_opset9",
        "opsetta.exporter.command_line.application, opsetta.exporter.files.summary",
    ],
)
def test_torch_comes_in_only_when_it_is_needed(imported, tmp_path):
    code = f"import {imported}; import sys; assert not {{'torch', 'onnxruntime'}} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_floor_names_the_opset_it_is_at():
    """`if g.opset >= N` in a symbolic function is a sign that it belongs into that opset's file."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        if floor_of(path) == "symbolics"
        for node in nodes_of(path)
        if isinstance(node, ast.Compare)
        for side in [node.left, *node.comparators]
        if isinstance(side, ast.Attribute) and side.attr == "opset"
    ]
    assert found == []
