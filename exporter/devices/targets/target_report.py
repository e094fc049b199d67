"""Reports on a model in a target: problems, measurements, and the versions that support the model."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

import onnx_ir as ir

from ....registration import InvalidNode, TargetProblem
from .form_problems import find_form_problems
from .load_target import target_at
from .target import Target
from .target_problems import ModelParts, find_inexact_nodes, find_problems, nodes_on_host
from .versions import first_versions, other_target, version_key


@dataclasses.dataclass(frozen=True)
class TargetReport:
    """The report on a model in a target.

    Attributes:
        problems: what the target refuses, or computes wrongly without an error.
        inexact_nodes: the nodes whose results are right only for most numbers.
        host_nodes: the nodes that run on the host's processor, not on the accelerator.
        right_nodes: the number of nodes of `Target.measured_operators`.
        unmeasured: the number of other nodes, by operator; empty if the target's file lists no measurements.
        oldest_version: the oldest measured version without problems; "" if there is none, or if the file
            describes only one version.
    """

    problems: tuple[TargetProblem, ...]
    inexact_nodes: tuple[TargetProblem, ...]
    host_nodes: tuple[TargetProblem, ...]
    right_nodes: int
    unmeasured: dict[str, int]
    oldest_version: str

    def lines(self, target: Target) -> list[str]:
        """Return sentences about measurements and versions."""
        lines = []
        if target.measured_operators:
            total = self.right_nodes + sum(self.unmeasured.values())
            unmeasured = ", ".join(f"{name} ({count})" for name, count in self.unmeasured.items())
            lines.append(
                f"{self.right_nodes} of {total} nodes are of operators that were measured as right in "
                f"{target.title}" + (f"; others: {unmeasured}" if unmeasured else "")
            )
        if self.oldest_version:
            name = target.name.partition("@")[0]
            lines.append(
                f"supported by {name} from version {self.oldest_version} on, the oldest measured version "
                "without known problems"
            )
        return lines


def report_on_target(
    model: ir.Model, target: Target, *, is_file: bool = False, invalid: Iterable[InvalidNode] | None = None
) -> TargetReport:
    """Report on a model in a target.

    Args:
        is_file, invalid: see `find_problems`.
    """
    invalid_nodes = None if invalid is None else list(invalid)
    parts = ModelParts.of(model)
    problems = find_problems(model, target, is_file=is_file, invalid=invalid_nodes, parts=parts)
    if not invalid_nodes:
        problems += find_form_problems(model, target)
    operators: collections.Counter[str] = collections.Counter()
    for (_, op_type, _), members in parts.nodes.items():
        operators[op_type] += len(members)
    del operators["Constant"]
    right = {name for name in operators if name in target.measured_operators}
    return TargetReport(
        tuple(problems),
        tuple(find_inexact_nodes(model, target)),
        tuple(nodes_on_host(model, target)),
        sum(operators[name] for name in right),
        {name: count for name, count in sorted(operators.items()) if name not in right}
        if target.measured_operators
        else {},
        "" if problems else _oldest_version(model, target, is_file, invalid_nodes, parts),
    )


def _oldest_version(
    model: ir.Model,
    target: Target,
    is_file: bool,
    invalid: Iterable[InvalidNode] | None,
    parts: ModelParts,
) -> str:
    """Return the oldest measured version from which on, up to the target's, no version has a problem."""
    oldest = ""
    for version in first_versions(target.content, target.measured_versions):
        if version_key(version) > version_key(target.version) or other_target(target.content, version):
            continue
        older = target_at(target.name.partition("@")[0], target.content, version)
        problems = find_problems(model, older, is_file=is_file, invalid=invalid or (), parts=parts)
        if problems or find_form_problems(model, older):
            break
        oldest = version
    return oldest if len(target.measured_versions) > 1 else ""
