"""The modules of a graph as a tree, each a run of nodes that follow each other.

A module that runs twice is two modules here. So an edge between modules always leads to a later one, and a
picture of folded modules has no cycles.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence

CHUNK = 48
"""The most children of a module; more are put into groups of neighbours."""
COMPOSED = 4
"""The fewest nodes of one composed operator that are a group."""
DEPTH = 24
"""The deepest nesting of modules; deeper nodes belong to the innermost one."""


@dataclasses.dataclass
class Module:
    """A module, or a group of neighbours without a name of their own.

    Attributes:
        name: the last parts of its path, with a number if it runs several times.
        path: the path of the user's module; empty for a group.
        children: modules, and positions of nodes, in order.
        is_cut: whether the report leaves its nodes out.
    """

    name: str
    path: str
    children: list[Module | int] = dataclasses.field(default_factory=list)
    is_cut: bool = False

    def nodes(self) -> list[int]:
        """The positions of all nodes in it, in order."""
        positions: list[int] = []
        pending: list[Module | int] = [self]
        while pending:
            item = pending.pop()
            if isinstance(item, Module):
                pending += reversed(item.children)
            else:
                positions.append(item)
        return positions


def tree(paths: Sequence[str], makers: Sequence[str | None]) -> Module:
    """Build the tree of modules of a graph.

    Args:
        paths: the module path of each node, in order of execution.
        makers: what each node was made from; neighbours with the same maker are a group of this name.
    """
    root = Module("", "")
    stack = [root]
    open_segments: list[str] = []
    for position, path in enumerate(paths):
        segments = path.split(".")[:DEPTH] if path else []
        common = 0
        # A module that runs again later, after others, gets another entry: the tree follows execution order.
        while common < min(len(open_segments), len(segments)) and open_segments[common] == segments[common]:
            common += 1
        del stack[common + 1 :]
        for depth in range(common, len(segments)):
            enclosed = Module(segments[depth], ".".join(segments[: depth + 1]))
            stack[-1].children.append(enclosed)
            stack.append(enclosed)
        stack[-1].children.append(position)
        open_segments = segments
    for module in [root, *_descendants(root)]:
        _join_only_child(module)
    for module in [root, *_descendants(root)]:
        # A module of one node is that node.
        module.children = [
            child.children[0]
            if isinstance(child, Module) and len(child.children) == 1 and isinstance(child.children[0], int)
            else child
            for child in module.children
        ]
        _group_by_maker(module, makers)
        count: Counter[str] = Counter()
        for child in _modules(module):
            count[child.name] += 1
            if count[child.name] > 1:
                child.name = f"{child.name} #{count[child.name]}"
        _group(module)
    return root


def cut(root: Module, most: int) -> int:
    """Remove the nodes of the deepest modules until at most `most` remain; return the number removed."""
    total = len(root.nodes())
    depths: list[list[Module]] = [[root]]
    while depths[-1]:
        depths.append([child for module in depths[-1] for child in _modules(module)])
    hidden = 0
    # The deepest levels first, so that the outer structure stays visible.
    for level in reversed(depths[1:]):
        for module in level:
            if total - hidden <= most:
                return hidden
            module.is_cut = True
            inner = sum(_row_count(child) if isinstance(child, Module) else 1 for child in module.children)
            hidden += inner - 1
    return hidden


def _row_count(module: Module) -> int:
    """The number of rows of a module."""
    if module.is_cut:
        return 1
    return sum(_row_count(child) if isinstance(child, Module) else 1 for child in module.children)


def _modules(module: Module) -> list[Module]:
    return [child for child in module.children if isinstance(child, Module)]


def _descendants(root: Module) -> list[Module]:
    """All modules in one, outer ones first."""
    modules: list[Module] = []
    pending = _modules(root)
    while pending:
        modules += pending
        pending = [child for module in pending for child in _modules(module)]
    return modules


def _join_only_child(module: Module) -> None:
    """Merge a module with its only child, under both names."""
    while module.path and len(module.children) == 1 and isinstance(module.children[0], Module):
        [inner] = module.children
        assert isinstance(inner, Module)
        module.name, module.path = f"{module.name}.{inner.name}", inner.path
        module.children = inner.children


def _group_by_maker(module: Module, makers: Sequence[str | None]) -> None:
    """Put the nodes that one operator was composed of into a group, unless they are the whole module."""
    runs = [
        (maker, list(run))
        for maker, run in itertools.groupby(
            module.children, lambda child: None if isinstance(child, Module) else makers[child]
        )
    ]
    if len(runs) == 1:
        return
    grouped: list[Module | int] = []
    for maker, run in runs:
        if maker is None or len(run) < COMPOSED:
            grouped += run
        else:
            grouped.append(Module(maker.partition(" ")[0], "", run))
    module.children = grouped


def _group(module: Module) -> None:
    """Put neighbours into groups of about equal size, and groups into groups, where there are many."""
    while len(module.children) > CHUNK:
        groups = -(-len(module.children) // CHUNK)
        size = -(-len(module.children) // groups)
        grouped: list[Module | int] = []
        for begin in range(0, len(module.children), size):
            members = module.children[begin : begin + size]
            # Modules of the user at both ends name the group.
            ends = [end.name for end in (members[0], members[-1]) if isinstance(end, Module) and end.path]
            name = " … ".join(ends) if len(ends) == 2 else f"part {begin // size + 1} of {groups}"
            grouped.append(Module(name, "", members))
        module.children = grouped
