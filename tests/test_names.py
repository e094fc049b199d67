"""Names say what a value is: how many empty names, participles and shared names the package may have.

The limits are what the package has now, rounded up. A change may lower them, and never raises them.
"""

import ast
import collections
import functools
import pathlib
import re
from collections.abc import Iterator

import pytest

from .test_floors import FILES, ROOT, forget_trees, nodes_of, tree_of, without_collections  # noqa: F401

EMPTY_NAMES = frozenset(
    "found given made known own at place places shown kind each rest wanted held kept said other others "
    "thing things it what one ones taken left gone".split()
)
"""Names that say nothing about the value. `other` is a name of ATen's schemas, and stays there."""
EMPTY_NAMES_PER_1000_LINES = 0.9
PARTICIPLE = re.compile(
    r"^_?(said|made|fed|met|held|kept|taken|given|known|shown|built|found|meant|owned|read|written|[a-z]+ed)$"
)
"""A function is named by a verb and its object: `make_node`, not `_made`."""
PARTICIPLES = 15
SHARED_FILE_NAMES = 0
"""The modules whose file name three others have."""
SHARED_CLASS_NAMES = 7
"""The names of classes that stand in several modules."""


@pytest.fixture(scope="module", autouse=True)
def last_reader_of_the_trees() -> Iterator[None]:
    """The files of tests that share the trees run one after the other, this one last."""
    yield
    forget_trees()


@functools.cache
def lines() -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in FILES)


def nodes() -> Iterator[tuple[pathlib.Path, ast.AST]]:
    """The definitions and bound names of the package, with their files."""
    kinds = (ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for path in FILES:
        relative = path.relative_to(ROOT)
        yield from ((relative, node) for node in nodes_of(path) if isinstance(node, kinds))


def test_few_names_say_nothing():
    empty = [
        f"{path}:{node.lineno} {name}"
        for path, node in nodes()
        for name in [bound_name(node)]
        if name in EMPTY_NAMES
    ]
    assert 1000 * len(empty) / lines() <= EMPTY_NAMES_PER_1000_LINES, "\n".join(empty)


def bound_name(node: ast.AST) -> str | None:
    """The variable or parameter that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None


def test_few_functions_are_participles():
    participles = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in nodes()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and PARTICIPLE.match(node.name)
        and "property" not in [getattr(decorator, "id", "") for decorator in node.decorator_list]
    ]
    assert len(participles) <= PARTICIPLES, "\n".join(participles)


def test_few_modules_share_their_file_name():
    names = collections.Counter(path.name for path in FILES if path.name != "__init__.py")
    shared = sorted(str(path.relative_to(ROOT)) for path in FILES if names[path.name] > 3)
    assert len(shared) <= SHARED_FILE_NAMES, "\n".join(shared)


def test_few_classes_share_their_name():
    modules = collections.defaultdict(set)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            modules[node.name].add(str(path))
    shared = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert len(shared) <= SHARED_CLASS_NAMES, shared


def test_docstrings_name_parameters_and_attributes_that_exist():
    unknown = [
        f"{path}:{node.lineno} {node.name}: {name}"
        for path, node in nodes()
        if (documented := _documented_names(node))
        for name in sorted(documented - _existing_names(node))
    ]
    assert not unknown, "\n".join(unknown)


def test_documented_names_are_read_from_the_docstring():
    source = '''
def f(a, *rest, b=1):
    """Line.

    Args:
        a, c: both; `x`: not a name
            of the list.
        *rest: further ones.
        missing (int): an annotation.

    Returns:
        result: not a parameter.
    """
'''
    function = ast.parse(source).body[0]
    assert _documented_names(function) == {"a", "c", "rest", "missing"}
    assert _existing_names(function) == {"a", "rest", "b"}


_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \(.*?\))?:(?: |$)")
"""The names before the colon of an entry of a docstring's section."""


def _documented_names(node: ast.AST) -> set[str]:
    """The parameters that the docstring of a function lists, or the attributes that that of a class lists."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return set()
    heading = "Attributes:" if isinstance(node, ast.ClassDef) else "Args:"
    lines = (ast.get_docstring(node) or "").splitlines()
    if heading not in lines:
        return set()
    section = lines[lines.index(heading) + 1 :]
    end = next((i for i, line in enumerate(section) if line and not line.startswith(" ")), len(section))
    entries = (_ENTRY.match(line[4:]) for line in section[:end] if line[4:5].strip())
    return {name.strip("* ") for entry in entries if entry for name in entry[1].split(",")}


def _existing_names(node: ast.AST) -> set[str]:
    """The parameters of a function; the attributes of a class and of the classes that it derives from."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return {a.arg for a in (*parameters, arguments.vararg, arguments.kwarg) if a is not None}
    if not isinstance(node, ast.ClassDef):
        return set()
    items = list(ast.walk(node))
    names = {
        item.attr for item in items if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)
    }
    names |= {name for item in items if (name := bound_name(item)) is not None}
    names |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    base_names = {base.id for base in map(_without_subscript, node.bases) if isinstance(base, ast.Name)}
    bases = (_classes()[name] for name in base_names & _classes().keys())
    return names.union(*(_existing_names(base) for base in bases if base is not node))


@functools.cache
def _classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for _, node in nodes() if isinstance(node, ast.ClassDef)}


def _without_subscript(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base
